"""A full refresh (RF): proven by what a sibling checkpoint still holds, or said by an operator; never guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.stories import FROM_THE_LEDGER, SINK, adoption, at, batch, cut, epochs, lineage, offer, reading, sight
from tests.core.stories import receipt as receipt_of
from tests.core.stories import recorded as record_of

from onceonly.errors import refuse
from onceonly.machine import commands as c
from onceonly.machine import coordinator
from onceonly.machine.comparison import decide_batch
from onceonly.machine.facts import NewEpoch, Offer, OnRefresh, Refusal
from onceonly.machine.overlap import held_files
from onceonly.machine.state import Job, State
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import InputFile
from onceonly_checkpoints.spark.offsets import PreviousBatch

ONE, TWO, THREE = epochs(10, 20, 30)
ANEW = cut(None, 15)


def old(epoch: Epoch = THREE, **changes: object) -> PreviousBatch:
    """What the sibling's offset log says of the batch that became an epoch."""
    assert epoch.lineage
    made = PreviousBatch(replace(epoch.lineage, run_id="", checkpoint="file:/ckpt/0"), epoch.written.end)
    return replace(made, **changes)  # type: ignore[arg-type]


def anew(*siblings: PreviousBatch, number: int = 0, **options: object) -> Offer:
    """A batch under another query id, from the start of the source."""
    return offer(ANEW, number, "q2", earlier_checkpoints=siblings, **options)


def decide(offered: Offer, on_refresh: OnRefresh = "stop", last: Epoch = THREE) -> object:
    return decide_batch(batch(last, offered, on_refresh=on_refresh))


def code(decision: object) -> str:
    assert isinstance(decision, Refusal), decision
    assert str(refuse(decision.code, **{**FROM_THE_LEDGER, **dict(decision.details)})).startswith("[ONCE-")
    return decision.code


def test_a_proven_refresh_stops_and_names_the_rows_at_stake():
    decision = decide(anew(old(TWO), old()))
    assert code(decision) == "E246"
    assert isinstance(decision, Refusal)
    said = dict(decision.details)
    assert (said["first"], said["last"], said["begins"]) == (1, 3, "")


def test_a_proven_refresh_that_may_replace_is_the_next_epoch_and_takes_all_before_away():
    decision = decide(anew(old()), "replace")
    assert isinstance(decision, NewEpoch)
    assert (decision.number, decision.replaces, decision.written) == (4, (1, 3), None)
    assert [happening.kind for happening in decision.happenings] == [EventKind.REPLACED]


def test_state_begins_together_with_the_rows_so_its_loss_is_not_asked_about():
    assert isinstance(decide(anew(old(), stateful=True), "replace"), NewEpoch)
    assert code(decide(anew(old(), stateful=True))) == "E246"


@pytest.mark.parametrize(
    "sibling",
    [
        old(TWO),
        old(end=at(31)),
        old(lineage=lineage(2, "q9")),
        old(lineage=lineage(2, clock=5)),
        old(lineage=lineage(1)),
    ],
    ids=["an older batch", "another end", "another query", "another clock", "another batch id"],
)
def test_what_is_not_the_newest_epochs_own_batch_proves_nothing(sibling: PreviousBatch):
    assert code(decide(anew(sibling), "replace")) == "E211"
    assert code(decide(anew(sibling, stateful=True), "replace")) == "E206"


def test_without_a_sibling_the_option_is_not_asked():
    assert code(decide(anew(), "replace")) == "E211"


def test_a_batch_after_the_first_would_leave_rows_out_and_is_no_refresh():
    assert code(decide(anew(old(), number=1), "replace")) == "E211"


def test_the_same_query_is_no_refresh_whatever_lies_beside_it():
    offered = replace(offer(cut(30, 40), 3), earlier_checkpoints=(old(),))
    decision = decide(offered, "replace")
    assert isinstance(decision, NewEpoch)
    assert decision.replaces is None


def test_an_epoch_of_which_a_part_was_left_out_is_proven_by_the_batch_that_was_offered():
    last = chain.linked(replace(THREE, offered=cut(10, 30), written=cut(20, 30)))
    assert code(decide(anew(old()), last=last)) == "E246"


def test_after_an_adoption_the_newest_batch_is_still_the_proof_while_the_position_stands():
    accepted = adoption(THREE, "accept-state-loss", THREE.written.end)
    assert code(decide(anew(old()), last=accepted)) == "E246"
    moved = adoption(THREE, "start", at(90))
    assert code(decide(anew(old()), last=moved)) != "E246"


def test_an_operator_says_it_where_the_layout_proves_nothing_and_the_next_epoch_uses_it_up():
    said = adoption(THREE, "replace-rows", THREE.written.end, first=1, last=3)
    decision = decide(anew(), last=said)
    assert isinstance(decision, NewEpoch)
    assert (decision.number, decision.replaces) == (5, (1, 4))
    goes_on = decide_batch(batch(said, offer(cut(30, 40), 3)))
    assert isinstance(goes_on, NewEpoch)
    assert goes_on.replaces is None


def test_input_that_is_gone_stops_a_refresh_too():
    assert code(decide(anew(old(), missing=("file:/in/a",)), "replace")) == "E214"


# ---- through the machine


def driven(offered: Offer, on_refresh: OnRefresh, *outcomes: c.Outcome) -> State:
    state = coordinator.start(Job("orders", (SINK,), "us", offered, on_refresh=on_refresh))
    for outcome in outcomes:
        while isinstance(coordinator.next(state), c.Note):
            state = coordinator.apply(state, c.Done())
        state = coordinator.apply(state, outcome)
    while isinstance(coordinator.next(state), c.Note):
        state = coordinator.apply(state, c.Done())
    return state


UP_TO_THE_LOOK = (c.Probed((Fence(1, "them"),)), c.Recalled(record_of(THREE)), c.Looked((sight(THREE),)))
OPENED = (*UP_TO_THE_LOOK, c.Recollected(()), c.Installed(), reading(THREE, known=THREE), c.Indexed())


def test_a_refresh_that_stops_fences_nobody_out():
    state = driven(anew(old()), "stop", *UP_TO_THE_LOOK, c.Recollected(()))
    command = coordinator.next(state)
    assert isinstance(command, c.Refuse)
    assert command.refusal.code == "E246"
    assert state.opening.fence.generation == 0


def test_the_first_epoch_of_a_series_says_what_leaves_and_those_after_it_say_the_series():
    state = driven(anew(old()), "replace", *OPENED, c.Recollected(()))
    assert coordinator.next(state) == c.Intend(4, Fence(2, "us"), ANEW, (1, 3))
    state = coordinator.apply(state, c.Done())
    assert coordinator.next(state) == c.Prepare(SINK, 4, None, (1, 3))
    state = coordinator.apply(state, c.Prepared(7, Digest(7, 1, 2)))
    command = coordinator.next(state)
    assert isinstance(command, c.Commit)
    first = command.marker.epoch
    assert (first.number, first.series, first.replaces) == (4, 4, (1, 3))
    assert first.previous_chain == THREE.chain
    assert chain.sound(first)
    state = coordinator.apply(coordinator.apply(state, c.Committed(receipt_of(first))), c.Done())
    state = coordinator.resume(state, offer(cut(15, 20), 1, "q2"))
    state = coordinator.apply(coordinator.apply(state, c.Done()), c.Prepared(7, Digest(7, 1, 2)))
    command = coordinator.next(state)
    assert isinstance(command, c.Commit)
    second = command.marker.epoch
    assert (second.number, second.series, second.replaces) == (5, 4, None)


def test_a_series_is_part_of_the_chain_and_absent_from_epochs_without_one():
    plain = THREE.to_json()
    assert "series" not in plain
    assert "replaces" not in plain
    begun = chain.linked(replace(THREE, series=3, replaces=(1, 2)))
    assert begun.to_json()["series"] == 3
    assert begun.to_json()["replaces"] == [1, 2]
    assert begun.chain != THREE.chain
    assert Epoch.from_json(begun.to_json()) == begun


def test_files_of_a_replaced_series_are_held_no_more():
    first = chain.linked(replace(TWO, written=cut(None, 20), series=2, replaces=(1, 1), sources=()))
    last = chain.linked(replace(THREE, previous_chain=first.chain, series=2, sources=()))
    records = [
        replace(record_of(epoch), files=(InputFile(f"file:/in/{epoch.number}", 1, 0),)) for epoch in (ONE, first, last)
    ]
    held = held_files(records, last)
    assert not held.lacking
    assert set(held.files) == {"file:/in/2", "file:/in/3"}
