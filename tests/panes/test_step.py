"""One epoch of windows: timers, rows, what is noted, closing; ties are decided, and nothing that was taken is lost."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.panes.making import Pipeline, brief, made

from onceonly.windows import (
    All,
    AtCount,
    AtMark,
    AtPeriod,
    AtWatermark,
    Count,
    Global,
    Max,
    OrFinally,
    Repeat,
    Seq,
    Sessions,
    Sliding,
    Sum,
    Tumbling,
)
from onceonly.windows import (
    Any as AnyOf,
)
from onceonly.windows.rules.assigners import LEAST
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import EpochClock, OpenWindowState, Partial, Stepped, WindowKey
from onceonly.windows.rules.step import Row, partials_of, state_request, step
from onceonly_checkpoints.epoch_time import END

EVERY = AtWatermark(early=AtCount(1), late=AtCount(1))
KEY = '["A"]'


def pipeline(**changes: Any) -> Pipeline:
    return Pipeline(made(**changes))


# ---- how results of one window relate


@pytest.mark.parametrize(
    ("accumulation", "panes"),
    [
        ("accumulating", ["+I 5 EARLY 0 @1", "+U 12 EARLY 1 @2", "+U 12 ON_TIME 2 @3", "+U 13 LATE 3 @4"]),
        ("discarding", ["+I 5 EARLY 0 @1", "+I 7 EARLY 1 @2", "+I 0 ON_TIME 2 @3", "+I 1 LATE 3 @4"]),
        (
            "retracting",
            [
                "+I 5 EARLY 0 @1",
                *("-U 5 EARLY 0 @2", "+U 12 EARLY 1 @2"),
                *("-U 12 ON_TIME 1 @3", "+U 12 ON_TIME 2 @3"),
                *("-U 12 LATE 2 @4", "+U 13 LATE 3 @4"),
            ],
        ),
    ],
)
def test_a_window_comes_early_on_time_and_late(accumulation: str, panes: list[str]) -> None:
    run = pipeline(trigger=EVERY, allowed_lateness=5, accumulation=accumulation)
    rows = [*run.epoch(1, [(3, 5)]), *run.epoch(2, [(4, 7)]), *run.epoch(3, noted=10), *run.epoch(4, [(9, 1)])]
    assert brief(rows) == [f"[0,10) {pane}" for pane in panes]
    assert run.epoch(5, noted=15) == []
    assert run.state == {}


@pytest.mark.parametrize("accumulation", ["accumulating", "discarding", "retracting"])
def test_where_nothing_came_a_pane_on_time_is_left_out_if_the_user_says_so(accumulation: str) -> None:
    run = pipeline(trigger=EVERY, allowed_lateness=5, accumulation=accumulation, on_time="changed")
    run.epoch(1, [(3, 5)])
    assert run.epoch(2, noted=10) == []
    (late,) = [row for row in run.epoch(3, [(3, 2)]) if row.sign > 0]
    assert (late.timing, late.pane, late.values) == ("LATE", 1, (2,) if accumulation == "discarding" else (7,))


def test_a_pane_of_nothing_is_zero_of_counts_and_sums_and_null_of_all_else() -> None:
    values = {"rows": Count(), "total": Sum("value"), "most": Max("value")}
    run = pipeline(aggregates=values, trigger=EVERY, allowed_lateness=5, accumulation="discarding")
    run.epoch(1, [(3, 5)])
    assert [row.values for row in run.epoch(2, noted=10)] == [(0, 0, None)]


def test_a_row_that_is_taken_back_is_the_row_that_was_written_with_the_other_sign() -> None:
    run = pipeline(aggregates={"most": Max("value"), "rows": Count()}, trigger=EVERY, accumulation="retracting")
    (first,) = run.epoch(1, [(3, 9)])
    back, second = run.epoch(2, [(3, 4)])
    assert (back.window_key, back.values, back.pane, back.sign, back.kind) == (
        first.window_key,
        first.values,
        0,
        -1,
        "-U",
    )
    assert second.values == (9, 2)


# ---- ties


def test_rows_and_the_end_of_their_window_in_one_epoch_give_one_pane_on_time() -> None:
    assert brief(pipeline().epoch(7, [(3, 5), (9, 1)], noted=10)) == ["[0,10) +I 6 ON_TIME 0 @7*"]


def test_a_window_ends_where_its_end_is_noted_and_not_before() -> None:
    run = pipeline()
    assert run.epoch(1, [(3, 5)], noted=9) == []
    assert brief(run.epoch(2, noted=10)) == ["[0,10) +I 5 ON_TIME 0 @2*"]


@pytest.mark.parametrize(("noted", "dropped"), [(14, 0), (15, 1)])
def test_rows_are_dropped_once_the_epoch_before_noted_the_end_and_the_lateness(noted: int, dropped: int) -> None:
    run = pipeline(allowed_lateness=5, trigger=AtWatermark(late=AtCount(1)))
    run.epoch(1, noted=noted)
    rows = run.epoch(2, [(9, 5)])
    assert (len(rows), run.dropped) == (1 - dropped, dropped)


def test_what_the_same_epoch_notes_drops_none_of_its_rows() -> None:
    run = pipeline()
    assert brief(run.epoch(1, [(3, 5)], noted=1_000)) == ["[0,10) +I 5 ON_TIME 0 @1*"]
    assert run.dropped == 0


def test_a_window_closes_with_the_row_that_passes_its_end_and_not_an_epoch_later() -> None:
    """Times 0, 1, 2, 0, 5, 6, 8, 3, delay 2: Spark's windows take the eighth row, see test_native_windows.py."""
    run, shown = pipeline(window=Tumbling(5)), dict[int, list[str]]()
    for row, time in enumerate((0, 1, 2, 0, 5, 6, 8, 3), start=1):
        noted = max(run.noted or 0, time - 2)
        shown[row] = brief(run.epoch(row, [(time, 2 ** (row - 1))], noted=noted))
    assert {row: panes for row, panes in shown.items() if panes} == {7: ["[0,5) +I 15 ON_TIME 0 @7*"]}
    assert run.dropped == 1
    assert brief(run.ends(9)) == ["[5,10) +I 112 ON_TIME 0 @9*"]


def test_rows_of_overlapping_windows_are_dropped_of_those_that_are_closed_alone() -> None:
    run = pipeline(window=Sliding(10, 5))
    run.epoch(1, noted=10)
    run.epoch(2, [(7, 5)])
    assert run.dropped == 1
    assert [place.start for place in run.state] == [5]


# ---- timers


def _timed(**changes: Any) -> Pipeline:
    return pipeline(
        trigger=AtWatermark(early=AtPeriod("1 minute"), late=AtPeriod("1 minute")), allowed_lateness=50, **changes
    )


def test_several_timers_that_are_due_are_one_pane_at_the_instant_of_the_first_and_of_the_old_rows() -> None:
    run = _timed()
    run.epoch(10, [(3, 5)])
    assert brief(run.epoch(190_000, [(4, 7)])) == ["[0,10) +I 5 EARLY 0 @60000"]
    assert run.epoch(239_999) == []
    assert brief(run.epoch(240_000)) == ["[0,10) +U 12 EARLY 1 @240000"]


def test_a_window_without_news_has_no_timer() -> None:
    run = _timed()
    run.epoch(10, [(3, 5)])
    assert len(run.epoch(60_000)) == 1
    assert run.state[WindowKey(KEY, 0, 10)].wake_clock is None
    assert run.epoch(500_000) == []


def test_a_timer_that_is_due_when_the_end_is_noted_fires_first() -> None:
    run = _timed()
    run.epoch(10, [(3, 5)])
    assert brief(run.epoch(61_000, noted=10)) == ["[0,10) +I 5 EARLY 0 @60000", "[0,10) +U 5 ON_TIME 1 @61000"]


def test_a_pane_on_time_takes_the_rows_that_a_timer_waited_for() -> None:
    run = _timed()
    run.epoch(10, [(3, 5)])
    assert brief(run.epoch(20, noted=10)) == ["[0,10) +I 5 ON_TIME 0 @20"]
    assert run.epoch(60_000) == []


def test_late_rows_set_timers_whose_panes_are_late() -> None:
    run = _timed()
    run.epoch(10, [(3, 5)], noted=10)
    assert run.epoch(20, [(3, 1)]) == []
    assert brief(run.epoch(99_000)) == ["[0,10) +U 6 LATE 1 @60000"]


# ---- late and closing


def test_where_nothing_is_said_of_late_rows_each_fires_as_by_the_defaults_of_beam_and_flink() -> None:
    run = pipeline(allowed_lateness=5)
    assert brief(run.epoch(1, [(3, 5)], noted=10)) == ["[0,10) +I 5 ON_TIME 0 @1"]
    assert brief(run.epoch(2, [(3, 1)])) == ["[0,10) +U 6 LATE 1 @2"]
    run = pipeline(allowed_lateness=5)
    run.epoch(1, noted=12)
    assert brief(run.epoch(2, [(3, 5)])) == ["[0,10) +I 5 LATE 0 @2"]  # the first rows of a window, at once as well


def test_late_rows_that_wait_for_the_closing_are_in_one_last_pane() -> None:
    run = pipeline(allowed_lateness=5, trigger=AtWatermark(late="closing"))
    assert brief(run.epoch(1, [(3, 5)], noted=10)) == ["[0,10) +I 5 ON_TIME 0 @1"]
    assert [*run.epoch(2, [(3, 1)]), *run.epoch(3, [(4, 1)])] == []
    assert brief(run.epoch(4, noted=15)) == ["[0,10) +U 7 LATE 1 @4*"]


def test_a_window_that_begins_late_has_no_pane_on_time() -> None:
    run = pipeline(allowed_lateness=5, trigger=EVERY)
    run.epoch(1, noted=12)
    assert brief(run.epoch(2, [(3, 5)])) == ["[0,10) +I 5 LATE 0 @2"]
    assert run.epoch(3, noted=13) == []


def test_late_rows_of_one_epoch_are_one_pane() -> None:
    run = pipeline(allowed_lateness=5, trigger=EVERY)
    run.epoch(1, noted=12)
    assert brief(run.epoch(2, [(3, 5), (4, 1), (9, 1)])) == ["[0,10) +I 7 LATE 0 @2"]


def test_late_rows_in_the_epoch_that_closes_their_window_are_in_its_last_pane() -> None:
    run = pipeline(allowed_lateness=5)
    run.epoch(1, [(3, 5)], noted=10)
    assert brief(run.epoch(2, [(3, 1)], noted=15)) == ["[0,10) +U 6 LATE 1 @2*"]


def test_a_trigger_that_is_finished_waits_for_the_closing() -> None:
    run = pipeline(trigger=Seq(AtCount(1), AtCount(1)), accumulation="discarding")
    found = [one for clock in range(1, 5) for one in brief(run.epoch(clock, [(3, clock)]))]
    assert found == ["[0,10) +I 1 EARLY 0 @1", "[0,10) +I 2 EARLY 1 @2"]
    assert brief(run.epoch(5, noted=10)) == ["[0,10) +I 7 ON_TIME 2 @5*"]


def test_watermark_and_end_of_file_row_is_one_pane_once_both_are_there() -> None:
    trigger = All(AtWatermark(), AtMark("value = 99"))
    run = pipeline(trigger=trigger, allowed_lateness=5)
    assert [*run.epoch(1, [(3, 5)]), *run.epoch(2, [(4, 99)], marks=[99])] == []
    assert brief(run.epoch(3, noted=10)) == ["[0,10) +I 104 ON_TIME 0 @3"]
    run = pipeline(trigger=trigger, allowed_lateness=5)
    assert [*run.epoch(1, [(3, 5)]), *run.epoch(2, noted=10)] == []
    assert brief(run.epoch(3, [(4, 99)], marks=[99])) == ["[0,10) +I 104 LATE 0 @3"]


def test_unlimited_lateness_takes_any_row_until_nothing_follows() -> None:
    run = pipeline(allowed_lateness="unlimited", trigger=EVERY)
    run.epoch(1, [(3, 5)], noted=10**9)
    assert brief(run.epoch(2, [(3, 1)])) == ["[0,10) +U 6 LATE 2 @2"]
    assert run.ends(3) == []
    assert (run.state, run.dropped) == ({}, 0)


def test_the_global_window_closes_when_nothing_follows() -> None:
    run = pipeline(window=Global(), trigger=AtCount(2))
    assert brief(run.epoch(1, [(3, 5), (10**9, 1)], noted=10**9)) == [f"[{LEAST},{END}) +I 6 EARLY 0 @1"]
    assert run.epoch(2, [(-5, 1)]) == []
    assert brief(run.ends(3)) == [f"[{LEAST},{END}) +U 7 ON_TIME 1 @3*"]
    assert run.state == {}


def test_the_state_of_global_windows_is_a_row_for_each_key() -> None:
    run = pipeline(window=Global(), trigger=AtCount(1))
    for clock in range(300):
        run.epoch(clock, [(clock, 1)], team=f"team {clock % 3}")
    assert len(run.state) == 3
    assert {one.values for one in run.state.values()} == {(100,)}


# ---- what a row says of itself


def test_rows_say_what_was_noted_when_they_were_written() -> None:
    run = pipeline(trigger=EVERY, allowed_lateness=5)
    (first,) = run.epoch(1, [(3, 5)])
    early, on_time = run.epoch(2, [(3, 5)], noted=12)
    assert [first.watermark, early.watermark, on_time.watermark] == [None, None, 12]
    (late,) = run.epoch(3, [(3, 5)])
    assert late.watermark == 12


def test_rows_of_a_key_are_numbered_by_phase_then_end_then_start_and_what_is_taken_back_comes_first() -> None:
    run = pipeline(window=Sliding(20, 10), trigger=EVERY, accumulation="retracting", allowed_lateness=10)
    run.epoch(1, [(25, 1), (5, 1)])
    rows = run.epoch(2, [(25, 2), (15, 2)], noted=20)
    assert [row.seq for row in rows] == list(range(10))
    assert brief(rows) == [
        *("[0,20) -U 1 EARLY 0 @2", "[0,20) +U 3 EARLY 1 @2"),
        *("[10,30) -U 1 EARLY 0 @2", "[10,30) +U 5 EARLY 1 @2"),
        *("[20,40) -U 1 EARLY 0 @2", "[20,40) +U 3 EARLY 1 @2"),
        *("[-10,10) -U 1 ON_TIME 0 @2", "[-10,10) +U 1 ON_TIME 1 @2*"),
        *("[0,20) -U 3 ON_TIME 1 @2", "[0,20) +U 3 ON_TIME 2 @2"),
    ]


def test_each_key_has_numbers_of_its_own() -> None:
    told = made(trigger=EVERY)
    partials = partials_of(told, [Row((team,), time, (1,)) for team in ("B", "A", None) for time in (3, 13)])
    rows = step(told, EpochClock(1, None, None), [], partials).rows
    assert [(row.window_key.key, row.window_key.start, row.seq) for row in rows] == [
        *(('["A"]', 0, 0), ('["A"]', 10, 1)),
        *(('["B"]', 0, 0), ('["B"]', 10, 1)),
        *(("[null]", 0, 0), ("[null]", 10, 1)),
    ]


# ---- sessions


def _sessions(**changes: Any) -> Pipeline:
    return pipeline(
        window=Sessions(10), **{"trigger": EVERY, "accumulation": "retracting", "allowed_lateness": 50, **changes}
    )


def test_a_row_between_two_sessions_makes_them_one_and_both_are_taken_back() -> None:
    run = _sessions()
    run.epoch(1, [(0, 1), (15, 2)])
    assert brief(run.epoch(2, [(8, 4)])) == [
        "[0,10) -D 1 EARLY 0 @2",
        "[15,25) -D 2 EARLY 0 @2",
        "[0,25) +I 7 EARLY 1 @2",
    ]
    assert list(run.state) == [WindowKey(KEY, 0, 25)]


def test_a_row_that_makes_a_session_longer_takes_back_the_shorter_one() -> None:
    run = _sessions()
    run.epoch(1, [(0, 1)])
    assert brief(run.epoch(2, [(5, 2)])) == ["[0,10) -D 1 EARLY 0 @2", "[0,15) +I 3 EARLY 1 @2"]


def test_a_row_within_a_session_takes_its_place() -> None:
    run = _sessions()
    run.epoch(1, [(0, 1), (5, 1)])
    assert brief(run.epoch(2, [(3, 2)])) == ["[0,15) -U 2 EARLY 0 @2", "[0,15) +U 4 EARLY 1 @2"]


def test_sessions_that_touch_stay_two() -> None:
    run = _sessions()
    run.epoch(1, [(0, 1)])
    assert brief(run.epoch(2, [(10, 2)])) == ["[10,20) +I 2 EARLY 0 @2"]
    assert list(run.state) == [WindowKey(KEY, 0, 10), WindowKey(KEY, 10, 20)]


def test_a_union_has_the_greatest_number_of_the_sessions_in_it() -> None:
    run = _sessions()
    run.epoch(1, [(0, 1)])
    run.epoch(2, [(0, 1)])
    run.epoch(3, [(15, 1)])
    assert [row.pane for row in run.epoch(4, [(8, 1)])] == [1, 0, 2]


def test_counts_of_sessions_that_merge_add_up() -> None:
    run = _sessions(trigger=AtWatermark(early=AtCount(4)))
    run.epoch(1, [(0, 1), (15, 2)])
    assert run.epoch(2, [(0, 1)]) == []
    assert brief(run.epoch(3, [(8, 4)])) == ["[0,25) +I 8 EARLY 0 @3"]


def test_a_session_that_was_on_time_and_grows_is_on_time_again() -> None:
    run = _sessions()
    run.epoch(1, [(0, 1)])
    run.epoch(2, noted=10)
    assert brief(run.epoch(3, [(5, 2)])) == ["[0,10) -D 1 EARLY 1 @3", "[0,15) +I 3 EARLY 2 @3"]
    assert brief(run.epoch(4, noted=15)) == ["[0,15) -U 3 ON_TIME 2 @4", "[0,15) +U 3 ON_TIME 3 @4"]


def test_late_sessions_that_merge_are_written_late() -> None:
    run = _sessions(trigger=AtWatermark(late=AtCount(1)))
    run.epoch(1, [(0, 1), (15, 2)], noted=30)
    assert brief(run.epoch(2, [(8, 4)])) == [
        "[0,10) -D 1 LATE 0 @2",
        "[15,25) -D 2 LATE 0 @2",
        "[0,25) +I 7 LATE 1 @2",
    ]
    assert run.epoch(3, noted=31) == []


def test_what_absorbed_sessions_wrote_is_taken_back_when_the_union_is_written_and_not_before() -> None:
    run = _sessions(trigger=AtWatermark(early=AtPeriod("1 minute")))
    run.epoch(1, [(0, 1), (15, 2)])
    run.epoch(60_000)
    assert run.epoch(60_001, [(8, 4)]) == []
    assert [one.window_key for one in run.state.values()] == [WindowKey(KEY, 0, 25)]
    assert brief(run.epoch(120_000)) == [
        "[0,10) -D 1 EARLY 0 @120000",
        "[15,25) -D 2 EARLY 0 @120000",
        "[0,25) +I 7 EARLY 1 @120000",
    ]


def test_sessions_of_other_keys_do_not_merge() -> None:
    run = _sessions()
    run.epoch(1, [(0, 1)], team="A")
    run.epoch(2, [(5, 1)], team="B")
    assert sorted(run.state) == [WindowKey(KEY, 0, 10), WindowKey('["B"]', 5, 15)]


# ---- what an epoch asks for


def test_an_epoch_asks_for_the_windows_of_its_rows_and_for_what_has_to_be_done() -> None:
    told = made(allowed_lateness=5)
    partials = partials_of(told, [Row(("A",), time, (1,)) for time in (3, 13, 23)])
    asked = state_request(told, EpochClock(9, 30, 15), partials)
    assert asked.places == (WindowKey(KEY, 10, 20), WindowKey(KEY, 20, 30))
    assert (asked.keys, asked.wake_clock, asked.wake_time) == ((), 9, 30)


def test_where_windows_merge_an_epoch_asks_for_all_of_its_keys() -> None:
    told = made(window=Sessions(10))
    partials = partials_of(told, [Row((team,), time, (1,)) for team in "AB" for time in (3, 100)])
    asked = state_request(told, EpochClock(9, None, None), partials)
    assert (asked.places, asked.keys, asked.wake_time) == ((), ('["A"]', '["B"]'), None)
    late = state_request(told, EpochClock(9, 1_000, 1_000), partials)
    assert late.keys == ()


def test_open_windows_wait_for_their_end_and_then_for_their_closing() -> None:
    run = _timed()
    run.epoch(10, [(3, 5)])
    assert [(one.wake_clock, one.wake_time) for one in run.state.values()] == [(60_000, 10)]
    run.epoch(20, noted=10)
    assert [(one.wake_clock, one.wake_time) for one in run.state.values()] == [(None, 60)]


def test_windows_that_are_shown_and_have_nothing_to_do_are_left_as_they_are() -> None:
    told = made(allowed_lateness=5, trigger=EVERY)
    first = step(told, EpochClock(1, None, None), [], partials_of(told, [Row(("A",), 3, (1,))]))
    found = step(told, EpochClock(2, 5, None), first.changed_windows, partials_of(told, [Row(("B",), 3, (1,))]))
    assert [one.window_key.key for one in found.changed_windows] == ['["B"]']
    assert found.gone == ()


def test_state_that_is_none_is_not_read() -> None:
    place = WindowKey(KEY, 0, 10)
    for text in ("", "{}", "[]", "[1,2]", "[[1],0,0,0,[[1]],null]"):
        with pytest.raises(ValueError, match="no state of a window"):
            OpenWindowState.read(place, text)


# ---- random streams


def _random(draw: random.Random, definition: Definition, epochs: int) -> list[tuple[EpochClock, list[Partial]]]:
    """Epochs of random rows, clocks and times; the last one says that nothing follows."""
    clock, noted, found = 0, None, list[tuple[EpochClock, list[Partial]]]()
    for at in range(epochs):
        clock, noted_before = clock + draw.randrange(90_000), noted
        if at == epochs - 1:
            noted = END
        elif draw.random() < 0.5:
            noted = max(noted or 0, at * 4 + draw.randrange(-30, 10))
        middle = at * 4
        given = [
            Row((draw.choice(["A", "B", None]),), middle + draw.randrange(-25, 25), (draw.randint(-9, 9),))
            for _ in range(draw.randrange(5))
        ]
        marked = [row._replace(mark=row.inputs[0] > 6) for row in given]
        partials = partials_of(definition, marked)
        found.append((EpochClock(clock, noted, noted_before), partials))
    return found


def _shapes(draw: random.Random, *, sessions: bool) -> dict[str, Any]:
    leaves = [AtCount(1), AtCount(3), AtPeriod("1 minute"), AtPeriod("7 seconds")]
    early, late = draw.choice(leaves), draw.choice(leaves)
    triggers: list[Any] = [AtWatermark(), AtWatermark(early=early), AtWatermark(late=late), early]
    triggers.append(AtWatermark(early=early, late=late))
    if not sessions:
        triggers += [Seq(early, late), AnyOf(early, AtWatermark()), All(AtMark("value > 6"), AtWatermark())]
        triggers += [Repeat(Seq(early, AtMark("value > 6"))), OrFinally(Repeat(early), AtMark("value > 6"))]
    return {
        "window": Sessions(6)
        if sessions
        else draw.choice([Tumbling(10), Tumbling(7, offset=3), Sliding(9, 4), Global()]),
        "trigger": draw.choice(triggers),
        "allowed_lateness": draw.choice([0, 0, 5, 20, "unlimited"]),
        "on_time": draw.choice(["always", "changed"]),
    }


def _walk(definition: Definition, epochs: list[tuple[EpochClock, list[Partial]]]) -> list[Stepped]:
    state: dict[WindowKey, OpenWindowState] = {}
    found: list[Stepped] = []
    for moment, partials in epochs:
        one = step(definition, moment, list(state.values()), partials)
        for place in one.gone:
            del state[place]
        state |= {kept.window_key: OpenWindowState.read(kept.window_key, kept.body) for kept in one.changed_windows}
        found.append(one)
    assert state == {}
    return found


@pytest.mark.parametrize("sessions", [False, True], ids=["windows", "sessions"])
def test_nothing_that_was_taken_is_lost_and_nothing_is_counted_twice(sessions: bool) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(150):
        shape = _shapes(draw, sessions=sessions)
        values = {"total": Sum("value"), "rows": Count()}
        told = {how: made(**shape, aggregates=values, accumulation=how) for how in ("discarding", "retracting")}
        epochs = _random(draw, told["discarding"], 14)
        discarded, retracted = _walk(told["discarding"], epochs), _walk(told["retracting"], epochs)
        given = sum(partial.rows for _, partials in epochs for partial in partials)
        taken = given - sum(one.dropped for one in discarded)
        assert _signed(discarded, 1) == _signed(retracted, 1) == taken, shape
        assert _signed(discarded, 0) == _signed(retracted, 0), shape


def _signed(steps: list[Stepped], at: int) -> int:
    """The sum of one value over all rows, by their signs."""
    return sum(row.sign * cast("int", row.values[at] or 0) for one in steps for row in one.rows)


def test_panes_of_the_short_form_are_those_of_the_long_form() -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)
    leaves = [AtCount(1), AtCount(3), AtPeriod("1 minute"), AtPeriod("7 seconds")]
    for _ in range(60):
        early, late = draw.choice(leaves), draw.choice(leaves)
        shape = {**_shapes(draw, sessions=False), "accumulation": draw.choice(["discarding", "retracting"])}
        short = made(**{**shape, "trigger": AtWatermark(early=early, late=late)})
        long = made(**{**shape, "trigger": Seq(OrFinally(Repeat(early), AtWatermark()), Repeat(late))})
        epochs = _random(draw, short, 14)
        assert _walk(short, epochs) == _walk(long, epochs)


@pytest.mark.parametrize("sessions", [False, True], ids=["windows", "sessions"])
def test_neither_the_order_of_state_nor_that_of_rows_nor_more_state_than_asked_for_matters(sessions: bool) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(80):
        told = made(**_shapes(draw, sessions=sessions), accumulation="retracting")
        state: dict[WindowKey, OpenWindowState] = {}
        for moment, partials in _random(draw, told, 14):
            asked = state_request(told, moment, partials)
            needed = [one for one in state.values() if _has(one, asked)]
            more = [one for one in state.values() if one in needed or draw.random() < 0.5]
            found = step(told, moment, needed, partials)
            again = step(told, moment, draw.sample(more, len(more)), draw.sample(partials, len(partials)))
            assert again.rows == found.rows
            assert sorted(again.gone) == sorted(found.gone)
            assert _by_place(again) == _by_place(found)
            for place in found.gone:
                del state[place]
            state |= {kept.window_key: kept for kept in found.changed_windows}


def _by_place(found: Stepped) -> dict[WindowKey, tuple[str, int | None, int]]:
    return {one.window_key: (one.body, one.wake_clock, one.wake_time) for one in found.changed_windows}


def _has(one: OpenWindowState, asked: Any) -> bool:
    due = one.wake_clock is not None and one.wake_clock <= asked.wake_clock
    passed = asked.wake_time is not None and one.wake_time <= asked.wake_time
    return due or passed or one.window_key in asked.places or one.window_key.key in asked.keys


def test_state_that_is_written_is_read_as_it_was() -> None:
    run = _sessions()
    run.epoch(1, [(0, 1), (15, 2)])
    for one in run.state.values():
        assert OpenWindowState.read(one.window_key, one.body) == one
        assert OpenWindowState.read(one.window_key, replace(one, fresh=one.fresh + 1).body) != one
