"""A refusal explains a stop only where what its code says is so in the world."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, Fence, Lineage, Marker
from onceonly_checkpoints.model import Slice
from onceonly_lab.model.parts import (
    Desk,
    Harm,
    Held,
    Kind,
    SimulatedLedger,
    StagingArea,
    Target,
    computed,
    harmed,
    offsets,
    receipt,
)
from onceonly_lab.model.spark import Checkpoint, Entry, Source
from onceonly_lab.model.ways import Situation

FENCE = Fence(1, "owner-1")
SINKS = (("postgres", 1), ("delta", 1))


def epochs(count: int) -> list[Epoch]:
    made = list[Epoch]()
    for number in range(1, count + 1):
        before = made[-1].chain if made else chain.GENESIS
        lineage = Lineage("query", "run", "the checkpoint", number - 1, number, 0)
        slice_ = Slice(offsets(number - 1 if made else None), offsets(number))
        rows = computed(1 << (number - 1))
        made.append(chain.linked(Epoch(number, slice_, "", before, rows, "columns", SINKS, lineage)))
    return made


def target(name: Kind, held: list[Epoch]) -> Target:
    rows = tuple(Held(epoch, Marker("orders", name, FENCE, epoch), epoch.digest) for epoch in held)
    return Target(name, name, FENCE, rows)


def situation(postgres: int, delta: int, recorded: int, planned: int = 2, **options: object) -> Situation:
    """Sinks and ledger with so many of three epochs; a checkpoint that has planned batch ``planned``."""
    every = epochs(3)
    targets = (target(Kind.POSTGRES, every[:postgres]), target(Kind.DELTA, every[:delta]))
    ledger = SimulatedLedger()
    for epoch in every[:recorded]:
        told = tuple(receipt(Marker("orders", name, FENCE, epoch)) for name, _ in SINKS)
        ledger = ledger.record(epoch, told)
    checkpoint = Checkpoint("the checkpoint", "query", tuple(Entry(at, at) for at in range(1, planned + 2)), done=False)
    source = Source(begins=True)
    now = Situation(targets, StagingArea(), ledger, checkpoint, Desk(), checkpoint.planned(planned), source)
    return replace(now, **options)  # type: ignore[arg-type]


def codes(now: Situation) -> set[str]:
    every = ("E203", "E204", "E205", "E206", "E207", "E208", "E210", "E211", "E214", "E217", "E219", "E220", "E229")
    return {code for code in every if now.explains(code)}


def test_a_world_in_which_nothing_is_wrong_explains_nothing():
    assert codes(situation(2, 2, 2)) == set()


def test_a_batch_past_the_end_is_one_that_the_engine_finished_only_where_the_ledger_ends_there_too():
    assert codes(situation(1, 1, 1)) == {"E229"}
    assert codes(situation(1, 1, 2)) == {"E207"}
    assert not situation(1, 1, 1, planned=1).explains("E229")


def test_a_checkpoint_of_another_query_is_no_sink_that_ends_early():
    elsewhere = Checkpoint("the checkpoint", "another", begin=2, entries=(Entry(3, 9),), done=False)
    now = situation(1, 1, 1, checkpoint=elsewhere)
    now = replace(now, planned=elsewhere.planned(0))
    assert codes(now) == {"E204"}


def test_a_sink_that_was_set_back_is_not_one_that_was_replaced():
    back = situation(1, 2, 2)
    assert back.explains("E207")
    assert not back.explains("E208")
    made_anew = harmed(back.targets[0], Harm.REPLACED)
    assert made_anew is not None
    replaced = replace(back, targets=(made_anew, back.targets[1]))
    assert replaced.explains("E208")
    assert not replaced.explains("E207")


def test_a_sink_that_is_one_behind_is_not_healed_only_where_its_bytes_are_gone():
    assert situation(1, 2, 1).explains("E219")
    assert not situation(2, 2, 2).explains("E219")


@pytest.mark.parametrize(("recorded", "said"), [(3, set[str]()), (0, {"E203"})])
def test_a_batch_that_comes_again_repeats_rows_only_where_it_is_not_proven_to_be_an_epoch(recorded, said):
    assert codes(situation(3, 3, recorded, planned=1)) == said


def test_a_batch_that_was_planned_again_is_another_one():
    now = situation(2, 2, 2, planned=1)
    other = replace(now.checkpoint, entries=(Entry(1, 1), Entry(2, 7)))
    assert codes(replace(now, checkpoint=other, planned=other.planned(1))) == {"E203", "E205"}


def test_a_code_that_no_world_explains_is_never_right():
    assert not situation(1, 1, 1).explains("E508")
    assert not situation(1, 1, 1).explains("E215")
