"""Windows as the machine knows them: from what they go on, whether they can, how many may be open, what is recorded."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.core.stories import SINK, cut, epochs, offer
from tests.core.test_coordinator import NEXT, TWO, Machine

from onceonly.event_time import TimedEpoch
from onceonly.machine import commands as c
from onceonly.machine import coordinator, division_rules, event_time
from onceonly.machine.division_rules import WindowsConfig
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.facts import PreviousClock, Replays
from onceonly.machine.state import Job
from onceonly.protocol.batch import AsOf, Bound
from onceonly.protocol.row_times import RowTimes
from onceonly.runtime import time_callback
from onceonly.windows import AtCount, AtWatermark, Count, Tumbling, Windows
from onceonly.windows import windows_argument as paning
from onceonly.windows.rules.spec import define
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import LATE, STATE, WINDOWS, Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, ReplayedEpochs
from onceonly_checkpoints.epoch_time import END, EpochTime, EpochWindows
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import Adoption, AdoptionKind

OURS = WindowsConfig("whole", "meaning", lateness=60)
KEEPER = "memory:state"


def state(windows: int = 3, *, definition: str = "whole", meaning: str = "meaning", clock: int = 1001) -> EpochWindows:
    return EpochWindows(definition, meaning, Digest(windows, windows, windows), 10, 0, clock)


def held(epoch: Epoch, windows: int = 3, noted: int | None = None, **said: Any) -> Epoch:
    """The epoch, with windows."""
    time = None if noted is None else EpochTime("ms", noted, noted, noted)
    outputs = (OutputDigest(WINDOWS, (SINK,), "p", Digest(2), 1), OutputDigest(STATE, (KEEPER,), "s", Digest(1), 2))
    return chain.linked(replace(epoch, windows=state(windows, **said), time=time, outputs=outputs, digest=Digest(3)))


# ---- what is recorded


def test_an_epoch_without_windows_is_spelled_as_ever_and_one_with_windows_comes_back() -> None:
    assert "windows" not in TWO.to_json()
    with_windows = held(TWO, noted=5)
    assert Epoch.from_json(with_windows.to_json()) == with_windows
    assert EpochWindows.from_json(state(0).to_json()) == state(0)
    assert with_windows.chain != chain.linked(replace(with_windows, windows=state(4))).chain


@pytest.mark.parametrize(
    ("windows", "dropped", "text"),
    [(0, 0, "0 windows open"), (1, 1, "1 window open, 1 row dropped"), (12, 3, "12 windows open, 3 rows dropped")],
)
def test_it_is_told_in_words(windows: int, dropped: int, text: str) -> None:
    assert replace(state(windows), dropped=dropped).text == text


def test_a_digest_of_fewer_rows_is_the_digest_of_the_rest() -> None:
    assert Digest(3, 30, 300) + Digest(1, 1, 1) - Digest(2, 11, 101) == Digest(2, 20, 200)


# ---- whether they can go on


LAST = held(TWO)


@pytest.mark.parametrize(
    ("windows", "last", "begins", "problem"),
    [
        (OURS, None, False, ""),
        (None, None, False, ""),
        (None, TWO, False, ""),
        (OURS, LAST, False, ""),
        (OURS, TWO, False, "its rows up to epoch 2 were written as they came"),
        (OURS, TWO, True, ""),
        (None, LAST, False, "epoch 2 wrote window results, and windows= is missing"),
        (None, LAST, True, ""),
        (
            replace(OURS, definition="x", meaning="x"),
            LAST,
            False,
            "key, values, time, window, accumulation",
        ),
        (replace(OURS, definition="x", meaning="x"), LAST, True, ""),
        (replace(OURS, definition="x"), LAST, False, "trigger or lateness is another one, and 3 windows open"),
        (replace(OURS, definition="x"), held(TWO, 0), False, ""),
    ],
)
def test_windows_go_on_as_they_were_defined_or_not_at_all(
    windows: WindowsConfig | None, last: Epoch | None, begins: bool, problem: str
) -> None:
    found = division_rules.refused(windows, "scores", last, begins=begins)
    assert (found is None) is (not problem)
    if found:
        assert found.code == "E142"
        assert problem in str(dict(found.details)["problem"])


@pytest.mark.parametrize("early", [None, AtCount(2)])
def test_windows_that_wait_with_late_rows_go_on_so_once_that_is_said_as_it_is_printed(early: AtCount | None) -> None:
    def said(trigger: AtWatermark) -> WindowsConfig:
        given = {"key": "a", "aggregates": {"n": Count()}, "time": "t", "window": Tumbling(10), "allowed_lateness": 5}
        return paning.WindowsArgument.windows(define(Windows(**given, trigger=trigger), {"a": "string", "t": "bigint"}))

    recorded = said(AtWatermark(early=early, late="closing"))
    last = held(TWO, definition=recorded.definition, meaning=recorded.meaning)
    found = division_rules.refused(said(AtWatermark(early=early)), "scores", last, begins=False)
    assert found is not None
    assert found.code == "E142"
    way = str(dict(found.details)["next"])
    printed = re.search(r"trigger=(AtWatermark\(.*?\))", way)
    assert printed is not None
    obeyed = replace(eval(printed[1]), early=early)
    assert division_rules.refused(said(obeyed), "scores", last, begins=False) is None


def paned(windows: WindowsConfig | None, last: Epoch, noting: EventTimeConfig | None = None) -> Machine:
    """A machine that has opened after an epoch, and says what it does with the next batch."""
    said: dict[str, Any] = {"divided": True, "windows": windows, "noting": noting}
    return Machine(NEXT, coordinator.start(Job("orders", (SINK,), "us", NEXT, **said))).opens(last)


def test_a_pipeline_of_windows_stops_before_anything_is_written_where_they_are_others() -> None:
    asks = paned(replace(OURS, meaning="x", definition="x"), LAST).asks
    assert isinstance(asks, c.Refuse)
    assert asks.refusal.code == "E142"


# ---- rows that are in no window


@pytest.mark.parametrize(
    ("rows", "dropped", "overlap", "late", "told"),
    [
        (3, 0, False, 2, "behind-time: 2 rows came late: all before 1970-01-01T00:00:00.9"),
        (3, 2, False, 2, 'W719] Epoch 2 of pipeline "scores" dropped 2 of its 3 rows: in no window. No result counts'),
        (
            3,
            3,
            False,
            3,
            "dropped all of its 3 rows: in no window. No result counts them. Everything before 1970-01-01T00:00:00.9",
        ),
        (1, 1, False, 0, "dropped its only row: in no window"),
        (3, 3, True, 3, "dropped 3 times one of its 3 rows: in no window"),
    ],
)
def test_rows_that_windows_dropped_are_warned_of_and_never_called_late(
    rows: int, dropped: int, overlap: bool, late: int, told: str
) -> None:
    epoch = held(TWO, noted=900)
    assert epoch.time is not None
    counted = replace(state(), rows=rows, dropped=dropped)
    epoch = replace(epoch, windows=counted, time=replace(epoch.time, late_rows=late, late_before=900))
    said = (*event_time.late(epoch), *division_rules.dropped(replace(OURS, overlap=overlap), "scores", epoch))
    assert len(said) == 1, said
    assert told in f"{said[0].kind.value}: {said[0].reason}"
    assert (" late" in f"{event_time.complete_until(epoch)}, {counted.text}") is not bool(dropped)


def test_rows_that_a_sink_keeps_are_no_loss_and_an_operators_epoch_drops_none() -> None:
    epoch = replace(held(TWO, noted=900), windows=replace(state(), rows=3, dropped=2))
    kept = replace(epoch, outputs=(*epoch.outputs, OutputDigest(LATE, ("memory:late",), "l", Digest(2), 1)))
    (told,) = division_rules.dropped(OURS, "scores", kept)
    assert (told.kind, "W719" in told.reason, "memory:late" in told.reason) == (EventKind.BEHIND, False, True)
    decided = replace(epoch, adoption=Adoption(AdoptionKind.START, reason="said so"))
    assert division_rules.dropped(OURS, "scores", decided) == ()


# ---- what they go on from


def test_the_epoch_is_staged_as_its_windows_go_on_and_says_what_is_open_behind_it() -> None:
    last = held(TWO, noted=900, clock=5000)
    machine = paned(OURS, last, EventTimeConfig("ingest")).hears(c.Done())
    asks = machine.asks
    assert isinstance(asks, c.Stage)
    assert asks.bound == Bound(AsOf(1, 3, 1002), 5000, 900, Digest(3, 3, 3))
    outputs = (OutputDigest(WINDOWS, (SINK,), "p", Digest(2), 1), OutputDigest(STATE, (KEEPER,), "s", Digest(1), 2))
    machine.hears(c.Staged(None, 3, Digest(3), outputs, RowTimes(), state(4)))
    epoch = machine.state.current
    assert epoch.windows == state(4)
    assert epoch.time is not None
    assert (epoch.time.complete_until, epoch.time.closed_until) == (1002, 942)


def test_windows_are_closed_by_what_the_epoch_notes_and_not_by_a_word_that_goes_back() -> None:
    machine = paned(OURS, held(TWO, noted=900), EventTimeConfig("function")).hears(c.Done())
    assert isinstance(machine.asks, c.Stage)
    asked: list[int | None] = []

    def says(epoch: TimedEpoch) -> int:
        asked.append(epoch.previous)
        return 100

    told, noted = time_callback.times_and_completeness(machine.state, says, RowTimes(), 3)
    assert (told.callback_time, noted, asked) == (100, 900, [900])


def test_of_an_epoch_that_sinks_are_brought_to_nobody_is_asked_what_it_notes() -> None:
    machine, found = (
        paned(OURS, held(TWO, noted=900), EventTimeConfig("function")).hears(c.Done()),
        RowTimes(first=1, last=2),
    )

    def says(epoch: TimedEpoch) -> int:
        raise AssertionError("it was said when the epoch was written")

    for epoch, noted in ((held(TWO, noted=700), 700), (replace(TWO, time=None), None)):
        work = replace(machine.state.work, healing=(SINK,), epoch=epoch)
        assert time_callback.times_and_completeness(replace(machine.state, work=work), says, found, 3) == (found, noted)


def test_rows_as_they_come_are_staged_without_windows() -> None:
    asks = paned(None, TWO).hears(c.Done()).asks
    assert isinstance(asks, c.Stage)
    assert asks.bound is None


def test_they_go_on_from_what_the_last_epoch_recorded() -> None:
    as_of = AsOf(1, 3, 1002)
    bound = division_rules.bound(as_of, held(TWO, noted=900, clock=1001), begins=False)
    assert bound == Bound(as_of, 1001, 900, Digest(3, 3, 3))
    assert bound.clock == 1002


def test_their_clock_does_not_go_back_with_the_engines() -> None:
    bound = division_rules.bound(AsOf(1, 3, 990), held(TWO, clock=1001), begins=False)
    assert bound.clock == 1001


def test_a_new_series_begins_them_anew() -> None:
    as_of = AsOf(3, 3, 1002)
    assert division_rules.bound(as_of, held(TWO, noted=900), begins=True) == Bound(as_of)
    assert division_rules.bound(as_of, None, begins=False) == Bound(as_of)


def test_where_a_rerun_begins_them_they_go_on_from_when_the_recorded_epoch_before_was() -> None:
    as_of, ran = (
        AsOf(1, 1, 1002),
        Replays(ReplayedEpochs("orders", 3, 3, "chain of 3"), previous_clock=PreviousClock(1001, 900)),
    )
    first = offer(cut(0, 100), 0, replays=ran)
    assert division_rules.bound(as_of, None, begins=False, previous=first.previous_clock) == Bound(as_of, 1001, 900)
    assert (
        division_rules.bound(
            as_of, held(TWO, noted=950, clock=1003), begins=False, previous=first.previous_clock
        ).noted_before
        == 950
    )
    assert replace(first, replays=None).previous_clock is None


# ---- an epoch that some sinks lack, and whose bytes are gone


def test_it_is_computed_again_only_from_the_state_of_the_epoch_before() -> None:
    one, two = epochs(10, 20)
    follows = held(two)
    assert division_rules.before(follows, (follows, one)) == one
    assert division_rules.before(follows, (follows, held(one))) is None  # of another history
    assert division_rules.computable(follows, (KEEPER,), one)
    assert not division_rules.computable(follows, (SINK,), one)  # the state is that of this epoch already
    assert not division_rules.computable(follows, (KEEPER,), None)
    assert division_rules.computable(replace(follows, number=1), (KEEPER,), None)
    assert division_rules.computable(replace(follows, windows=None), (SINK,), None)


# ---- how many may be open


def test_an_epoch_that_would_leave_more_open_than_was_said_is_refused() -> None:
    most = replace(OURS, most=10)
    assert division_rules.too_many(most, "scores", 3, state(10)) is None
    refusal = division_rules.too_many(most, "scores", 3, state(11))
    assert refusal is not None
    assert refusal.code == "E527"
    assert dict(refusal.details) == {"pipeline": "scores", "epoch": 3, "windows": 11, "most": 10}
    assert division_rules.too_many(OURS, "scores", 3, state(11)) is None


def test_that_windows_get_many_is_said_once() -> None:
    most = replace(OURS, most=10)
    said = [
        division_rules.many(most, "scores", held(TWO, before), held(TWO, after))
        for before, after in ((7, 8), (8, 9), (2, 7))
    ]
    assert [len(one) for one in said] == [1, 0, 0]
    assert "8 open windows" in said[0][0].reason


def test_behind_what_is_noted_less_lateness_nothing_changes_any_more() -> None:
    assert division_rules.closed(EpochTime("ms", 100, 100, 100), OURS) == EpochTime(
        "ms", 100, 100, 100, closed_until=40
    )
    for lateness in (0, 60, END):
        assert (
            division_rules.closed(EpochTime("ms", END, END, END), replace(OURS, lateness=lateness)).closed_until == END
        )  # type: ignore[union-attr]
    assert division_rules.closed(EpochTime("ms", None, None, None), OURS) == EpochTime("ms", None, None, None)
    unlimited = EpochTime("ms", 100, 100, 100)
    assert division_rules.closed(unlimited, replace(OURS, lateness=END)) == unlimited
    assert division_rules.closed(None, OURS) is None
