"""A rerun (RR): what the target says it ran again decides, and neither offsets nor the engine's names do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.stories import FROM_THE_LEDGER, batch, cut, epochs, offer

from onceonly.errors import refuse
from onceonly.machine.comparison import decide_batch
from onceonly.machine.facts import NewEpoch, Refusal, Replays, Skip
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, ReplayedEpochs

(OWN,) = epochs(10)
SEVENTH = ReplayedEpochs("orders", 7, 7, "chain of 7")
EIGHTH = ReplayedEpochs("orders", 8, 9, "chain of 9")
HELD = chain.linked(replace(OWN, replays=SEVENTH))


def decide(last: Epoch | None, replays: Replays, **options: object) -> object:
    """About a batch in the middle of its source, under a query id that nobody has seen."""
    return decide_batch(batch(last, offer(cut(700, 800), 8, "q9", replays=replays, **options)))


def test_the_first_epoch_of_a_rerun_may_begin_in_the_middle_of_the_source() -> None:
    assert decide(None, Replays(SEVENTH)) == NewEpoch(1)


def test_what_follows_in_the_recorded_chain_is_the_next_epoch_wherever_its_offsets_stand() -> None:
    assert decide(HELD, Replays(EIGHTH, after="chain of 7")) == NewEpoch(2)


@pytest.mark.parametrize("stateful", [False, True])
def test_what_the_target_holds_is_skipped(stateful: bool) -> None:
    assert decide(HELD, Replays(SEVENTH, after="chain of 6"), stateful=stateful) == Skip(HELD, stateful)


@pytest.mark.parametrize(
    ("last", "replays", "stands"),
    [
        (HELD, Replays(EIGHTH, after="chain of another 7"), "epoch 7 of orders"),
        (HELD, Replays(EIGHTH), "epoch 7 of orders"),
        (HELD, Replays(replace(SEVENTH, pipeline="payments")), "epoch 7 of orders"),
        (OWN, Replays(EIGHTH, after="chain of 7"), "not a backfilled epoch"),
    ],
)
def test_a_target_that_holds_something_else_is_refused(last: Epoch, replays: Replays, stands: str) -> None:
    decision = decide(last, replays)
    assert isinstance(decision, Refusal)
    said = str(refuse(decision.code, **{**FROM_THE_LEDGER, **dict(decision.details)}))
    assert said.startswith("[ONCE-E239]")
    assert f"is {stands}." in said


def test_what_was_run_again_is_part_of_the_chain_and_of_the_text() -> None:
    assert HELD.chain != OWN.chain
    assert Epoch.from_json(HELD.to_json()) == HELD
    assert "replays" not in OWN.to_json()
    assert (SEVENTH.text, EIGHTH.text) == ("epoch 7 of orders", "epochs 8..9 of orders")
