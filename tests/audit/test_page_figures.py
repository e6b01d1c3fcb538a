"""The numbers beside the pictures are those of the facts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.audit.histories import intent, true_facts, with_ledger, without_ledger
from tests.audit.pages import damaged, story
from tests.audit.world import World

from onceonly.audit import gather, judge
from onceonly.audit.page.figures import TOTAL, attempts_of, journey_of, phases_of, quantile
from onceonly_checkpoints.ledger import Event, EventKind


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.5, 50), (0.95, 95), (0.99, 99), (1, 100)])
def test_a_quantile_is_a_value_that_was_measured(share: float, expected: int) -> None:
    assert quantile(list(range(1, 101)), share) == expected
    assert quantile([7.0], share) == 7.0


def test_phases_have_their_quantiles_and_a_sum() -> None:
    *phases, whole = phases_of(story(100))
    assert [phase.name for phase in phases] == ["open", "stage", "prepare", "commit", "record"]
    assert (whole.name, whole.epochs) == (TOTAL, 100)
    assert list(whole.seconds) == sorted(whole.seconds)
    assert whole.seconds[-1] <= sum(phase.seconds[-1] for phase in phases)


def test_without_a_ledger_there_are_no_times_and_no_attempts() -> None:
    bare = without_ledger(true_facts())
    assert (phases_of(bare), attempts_of(bare)) == ((), ())


def test_an_attempt_says_whether_all_sinks_hold_its_epoch_alike() -> None:
    newest, *_ = attempts_of(story(40))
    assert (newest.epoch, newest.digest) == (33, "the same in all sinks")
    assert newest.what.startswith("offered again")


def test_openings_are_no_attempts() -> None:
    facts = story(40)
    assert facts.ledger is not None
    opened = sum(event.kind is EventKind.OPENED for event in facts.ledger.events)
    assert len(attempts_of(facts)) == len(facts.ledger.events) - opened


def test_every_way_through_the_protocol_is_counted() -> None:
    facts = damaged(48)
    journey = journey_of(facts, judge(facts))
    assert (journey.openings, journey.epochs, journey.recorded) == (3, 47, 47)
    assert (journey.skipped, journey.resolved, journey.open) == (2, 2, 0)
    doubtful = with_ledger(true_facts(), intent=intent(5))
    assert journey_of(doubtful, judge(doubtful)).open == 1


def test_events_are_gathered_with_the_rest(tmp_path: Path) -> None:
    world = World(tmp_path).write_all()
    facts = gather(world.ledger, world.name, [world.sink])
    assert facts.ledger is not None
    assert [event.kind for event in facts.ledger.events] == [EventKind.OPENED]


def test_a_failure_is_counted_and_told_with_its_code(tmp_path: Path) -> None:
    world = World(tmp_path).write_all()
    world.ledger.note(Event(world.name, EventKind.FAILED, "E506: no column", 0, 1))
    facts = gather(world.ledger, world.name, [world.sink])
    assert journey_of(facts, judge(facts)).refused == 1
    (attempt,) = attempts_of(facts)
    assert (attempt.what, attempt.detail) == ("refused, or stopped by an error", "E506: no column")
