"""What a run says of itself beside its rows is kept once, in words that lose nothing."""

from __future__ import annotations

from tests.core.stories import at, batch, cut, epochs, offer

from onceonly.machine.comparison import decide_batch
from onceonly.machine.facts import Happening, NewEpoch
from onceonly.runtime import events
from onceonly_checkpoints.ledger import Event, EventKind

ONE, TWO = epochs(10, 20)


def logged(*happenings: Happening) -> list[Event]:
    return [Event("orders", happening.kind, happening.reason, happening.epoch) for happening in happenings]


def test_a_promise_is_said_again_only_where_another_one_stood_in_between():
    first, other = events.promise_event("holds all\n  because  so"), events.promise_event("holds less")
    assert events.unsaid([first], logged(first)) == []
    assert events.unsaid([first], logged(first, other)) == [first]
    assert first.reason == "holds all; because  so"


def test_late_rows_are_said_once_per_epoch_and_their_number_can_be_read_back():
    told = events.late(7, 1_700_000_000_000, 3)
    assert events.unsaid([told], logged(told)) == []
    assert events.unsaid([events.late(7, 1_700_000_000_000, 4)], logged(told)) != []
    [event] = logged(told)
    assert events.late_rows(event) == 7
    assert events.late_rows(Event("orders", EventKind.OPENED, "7 of them")) == 0


def test_going_on_with_another_checkpoint_is_a_warning():
    there = offer(cut(20, 30), 0, "q2")
    found = decide_batch(batch(TWO, there))
    assert isinstance(found, NewEpoch)
    [told] = found.happenings
    assert (told.kind, told.reason[:11]) == (EventKind.WARNED, "[ONCE-W703]")
    assert found.written is None
    assert TWO.written.end == at(20)
