"""Panes are committed with their state: whatever is killed, both appear together, and the log is that of no crash."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.core.paned import APART, BESIDE, MS, Paned, Query, drawn
from tests.core.several import CRASHES, Crash, crash
from tests.panes import oracle, story
from tests.panes.oracle import LEAST, Oracle, Row, Rules, Sessions, spans_of

from onceonly import faults
from onceonly.errors import IdentityError, OnceOnlyError, SupersededRun
from onceonly.event_time import FixedWindows, TimeReader
from onceonly.faults import Point
from onceonly.replay.replay_windows import demand_undivided
from onceonly_checkpoints.epoch_time import END
from onceonly_checkpoints.ledger import EventKind
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import MERGE, StoreEntry

Make = Callable[..., Paned]
Of = tuple[str, int, int]
"""A window: key, start, end, in milliseconds."""


@pytest.fixture
def seed() -> int:
    found = random.SystemRandom().randrange(2**32)
    print("seed", found)
    return found


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Paned] = []

    def new(*names: str, beside: tuple[str, ...] = ()) -> Paned:
        made.append(Paned(tmp_path / str(len(made)), names or APART, beside))
        return made[-1]

    yield new
    faults.disarm()
    for one in made:
        one.ledger.close()


def undisturbed(pipeline: Paned, rules: Rules, epochs: Sequence[oracle.Epoch]) -> list[list[dict[str, Any]]]:
    """State behind each epoch of a run that nothing happens to, that of none first."""
    query, states = Query(pipeline, rules, epochs), [list[dict[str, Any]]()]
    for number in range(1, len(epochs) + 1):
        query.writes(number)
        states.append(pipeline.state())
    return states


def agrees(pipeline: Paned, calm: Paned, states: Sequence[list[dict[str, Any]]]) -> None:
    """What each sink shows is what it showed after as many epochs of the calm run."""
    for name in pipeline.stores:
        number = len(pipeline.epochs(name))
        if name == "state":
            assert pipeline.state() == states[number], (name, number)
        else:
            assert pipeline.panes(name) == calm.panes()[:number], (name, number)
        told = [(marker.time, marker.windows) for marker in pipeline.markers(name)]
        assert told == [(marker.time, marker.windows) for marker in calm.markers(name)][:number], (name, number)


# ---- killed


@pytest.mark.parametrize(("point", "hit"), CRASHES, ids=str)
def test_a_crash_anywhere_leaves_each_sink_at_an_epoch_and_the_log_is_that_of_no_crash(
    make: Make, seed: int, point: Point, hit: int
) -> None:
    rules, epochs = drawn(seed)
    calm, pipeline = make(), make()
    states = undisturbed(calm, rules, epochs)
    for number in range(1, len(epochs) + 1):
        query = Query(pipeline, rules, epochs)
        if number > 1:
            query.writes(number - 1)
        faults.arm(point, crash, hit)
        with pytest.raises(Crash):
            query.writes(number)
        faults.disarm()
        agrees(pipeline, calm, states)
    Query(pipeline, rules, epochs).writes(len(epochs))
    agrees(pipeline, calm, states)
    assert {len(pipeline.epochs(name)) for name in APART} == {len(epochs)}


DIVIDED = ("a", "bad", "state")


@pytest.mark.parametrize("beside", [DIVIDED, ()], ids=["in one transaction", "one after the other"])
@pytest.mark.parametrize("point", [Point.STAGE_AFTER, Point.PREPARE_AFTER, Point.COMMIT_AFTER, Point.RECORD_BEFORE])
def test_a_crash_changes_no_result_of_windows_that_take_the_good_rows_alone(
    make: Make, seed: int, point: Point, beside: tuple[str, ...]
) -> None:
    rules, epochs = drawn(seed)
    calm, pipeline = make(*BESIDE), make(*DIVIDED, beside=beside)
    states = undisturbed(calm, rules, epochs)
    for number in range(1, len(epochs) + 1):
        query = Query(pipeline, rules, epochs)
        if number > 1:
            query.writes(number - 1)
        faults.arm(point, crash)
        with pytest.raises(Crash):
            query.writes(number)
        faults.disarm()
        committed = len(pipeline.epochs("a"))
        assert pipeline.panes() == calm.panes()[:committed]
    Query(pipeline, rules, epochs).writes(len(epochs))
    assert (pipeline.panes(), pipeline.state()) == (calm.panes(), states[-1])
    brought = [row["why"] for row in pipeline.opened("bad").rows()]
    assert brought == [f"epoch {number}" for number in range(1, len(epochs) + 1) for _ in range(number % 3)]
    for number, marker in enumerate(pipeline.markers("a"), start=1):
        good = len(epochs[number - 1].rows)
        assert marker.windows is not None
        assert (marker.rows, marker.windows.rows, marker.came) == (good, good, good + number % 3)


def test_windows_that_took_a_part_of_their_rows_are_not_run_again(make: Make, seed: int) -> None:
    """A rerun, a recomputation and a rebuilding of state are not given what divides the rows."""
    rules, epochs = drawn(seed)
    divided, whole = make(*DIVIDED), make(*BESIDE)
    for pipeline in (divided, whole):
        Query(pipeline, rules, epochs).writes(1)
    demand_undivided(whole.markers("a")[0], "orders", "give them up")
    with pytest.raises(OnceOnlyError, match='Windows of epoch 1 of "orders" took the rows') as refused:
        demand_undivided(divided.markers("a")[0], "orders", "give them up")
    assert (refused.value.code, refused.value.remedy) == ("E110", "give them up")


@pytest.mark.parametrize(
    ("fault", "named"), [("leaks", "output windows"), ("missed", "output windows"), ("lost", "the staged files")]
)
def test_a_bad_row_in_a_window_or_a_good_one_in_none_stops_the_epoch(
    make: Make, seed: int, fault: str, named: str
) -> None:
    rules, epochs = drawn(seed)
    pipeline = make(*DIVIDED, beside=DIVIDED)
    number = next(number for number, epoch in enumerate(epochs, start=1) if epoch.rows)
    for earlier in range(1, number):
        Query(pipeline, rules, epochs).writes(earlier)
    with pytest.raises(OnceOnlyError, match=named) as refused:
        Query(pipeline, rules, epochs, fault=fault).writes(number)
    assert refused.value.code == "E510"
    assert len(pipeline.epochs("a")) == number - 1


def shown(pipeline: Paned, sink: str) -> list[tuple[int, oracle.Pane]]:
    """Results as the script of Streaming 102 has them, each with its epoch and with what it takes back."""
    found, taken = list[tuple[int, oracle.Pane]](), list[tuple[oracle.Span, Any]]()
    for number, rows in enumerate(pipeline.panes(sink), 1):
        for row in rows:
            key, start, end = _of(row)
            span = _seconds(start), _seconds(end)
            if row["sign"] < 0:
                taken.append((span, row["total"]))
                continue
            told = (row["timing"], row["pane"], round(row["fired_at"].timestamp()))
            found.append((number, oracle.Pane(key, span, row["total"], tuple(taken), *told)))
            taken = []
    assert not taken
    return found


def told_through_crashes(pipeline: Paned, case: story.Case) -> int:
    """Bring a figure through a crash before and one after the commit of each epoch, each in a start of its own, and see
    that it comes out as it must. How many crashes that were."""
    crashes, first = 0, next(iter(pipeline.stores))
    for number in range(1, len(case.epochs) + 1):
        for point, stands in ((Point.COMMIT_BEFORE, number - 1), (Point.COMMIT_AFTER, number)):
            query = Query(pipeline, case.rules, case.epochs)
            if number > 1:
                query.writes(number - 1)
            faults.arm(point, crash)
            with pytest.raises(Crash):
                query.writes(number)
            faults.disarm()
            assert len(pipeline.epochs(first)) == stands, f"{case.name}, epoch {number}"
            crashes += 1
    Query(pipeline, case.rules, case.epochs).writes(len(case.epochs))
    for name in pipeline.stores:
        assert name == "state" or shown(pipeline, name) == list(case.panes), case.name
    assert sum(marker.windows.dropped for marker in pipeline.markers(first) if marker.windows) == case.dropped
    return crashes


@pytest.mark.parametrize("name", ["row 6 retracting", "row 9 sessions"])
def test_a_crash_before_and_after_the_commit_of_every_epoch_changes_no_figure(make: Make, name: str) -> None:
    case = story.cases()[name]
    assert told_through_crashes(make(*BESIDE, beside=BESIDE), case) == 2 * len(case.epochs)


@pytest.mark.slow
@pytest.mark.parametrize("beside", [BESIDE, ()], ids=["state beside the rows", "two sinks and a keeper"])
def test_no_figure_of_streaming_102_is_changed_by_a_crash_at_any_commit(make: Make, beside: tuple[str, ...]) -> None:
    crashes = {
        name: told_through_crashes(make(*(beside or APART), beside=beside), case)
        for name, case in story.cases().items()
    }
    assert crashes == {name: 2 * len(case.epochs) for name, case in story.cases().items()}
    print(sum(crashes.values()), "crashes in", len(crashes), "figures")


def test_a_window_is_open_then_complete_then_closed_to_who_reads_and_its_value_is_what_the_last_pane_said(
    make: Make,
) -> None:
    case = story.cases()["P102-5 lateness 1 min with r11"]
    pipeline = make(*BESIDE, beside=BESIDE)
    query, first = Query(pipeline, case.rules, case.epochs), story.seconds("12:00:00")
    found: list[tuple[int, str]] = []
    with TimeReader("orders", MemorySink("memory:a", pipeline.stores["a"])) as reader:
        for number, epoch in enumerate(case.epochs, 1):
            query.writes(number)
            window = next(reader.windows(FixedWindows("2 minutes"), since=first * MS), None)
            if window is not None:
                found.append((epoch.clock, window.status))
    began = {status: clock for clock, status in reversed(found)}
    assert {status: story.clock(at) for status, at in began.items()} == {
        "open": "12:05:19",
        "complete": "12:05:58",
        "closed": "12:06:50",
    }
    assert [status for _, status in found] == sorted((status for _, status in found), key=list(began)[::-1].index)
    told = [(pane.fired_at, pane.value) for _, pane in shown(pipeline, "a") if pane.span[0] == first]
    assert [(story.clock(at), value) for at, value in told] == [("12:05:58", 5), ("12:06:41", 11)]


IN_ONE = (
    Point.STAGE_AFTER,
    Point.PREPARE_BEFORE,
    Point.PREPARE_AFTER,
    Point.COMMIT_BEFORE,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
    Point.RECORD_BEFORE,
)


@pytest.mark.parametrize("point", IN_ONE, ids=str)
def test_where_state_is_beside_the_rows_a_crash_leaves_both_or_neither_and_nothing_is_staged_in_files(
    make: Make, seed: int, point: Point
) -> None:
    rules, epochs = drawn(seed)
    calm, pipeline = make(*BESIDE, beside=BESIDE), make(*BESIDE, beside=BESIDE)
    states = undisturbed(calm, rules, epochs)
    for number in range(1, len(epochs) + 1):
        faults.arm(point, crash)
        with pytest.raises(Crash):
            Query(pipeline, rules, epochs).writes(number)
        faults.disarm()
        assert pipeline.epochs("a") == pipeline.epochs("state")
        agrees(pipeline, calm, states)
        Query(pipeline, rules, epochs).writes(number)
        agrees(pipeline, calm, states)
    assert not Path(pipeline.staging).exists() or not pipeline.staged()


@pytest.mark.parametrize("hit", [1, 2])
def test_sinks_left_behind_get_the_recorded_panes_and_state_whatever_the_batch_holds_by_now(
    make: Make, seed: int, hit: int
) -> None:
    rules, epochs = drawn(seed)
    calm, pipeline = make(), make()
    states = undisturbed(calm, rules, epochs)
    query = Query(pipeline, rules, epochs)
    query.writes(1)
    faults.arm(Point.COMMIT_AFTER, crash, hit)
    with pytest.raises(Crash):
        query.writes(2)
    faults.disarm()
    again = Query(pipeline, rules, epochs)
    again.writes(2, rows=lambda _: [Row("z", 77, 1)])
    assert again.asked == []
    assert [len(pipeline.epochs(name)) for name in APART] == [2, 2, 2]
    again.writes(*range(3, len(epochs) + 1))
    agrees(pipeline, calm, states)


# ---- bytes that are gone


def bereft(pipeline: Paned, rules: Rules, epochs: Sequence[oracle.Epoch]) -> None:
    """Epoch 2 is in the first sink only, and what was staged of it is gone."""
    query = Query(pipeline, rules, epochs)
    query.writes(1)
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        query.writes(2)
    faults.disarm()
    shutil.rmtree(pipeline.staging)


@pytest.mark.parametrize("names", [APART, DIVIDED], ids=["all rows", "good rows"])
def test_an_epoch_whose_bytes_are_gone_is_computed_again_where_the_keeper_stands_at_the_one_before(
    make: Make, seed: int, names: tuple[str, ...]
) -> None:
    rules, epochs = drawn(seed)
    calm, pipeline = make(), make(*names)
    states = undisturbed(calm, rules, epochs)
    bereft(pipeline, rules, epochs)
    again = Query(pipeline, rules, epochs)
    again.writes(*range(2, len(epochs) + 1))
    assert again.asked == [*range(3, len(epochs) + 1)]
    assert (pipeline.panes(), pipeline.state()) == (calm.panes(), states[-1])
    assert {len(pipeline.epochs(name)) for name in names} == {len(epochs)}


def test_where_the_keeper_holds_the_epoch_whose_bytes_are_gone_nothing_is_computed(make: Make) -> None:
    pipeline = make("state", "a", "b")
    bereft(pipeline, COUNTING, TEN)
    with pytest.raises(IdentityError, match="is in other sinks but not in memory:a, memory:b") as refused:
        Query(pipeline, COUNTING, TEN).writes(2)
    assert refused.value.code == "E219"
    assert [len(pipeline.epochs(name)) for name in ("state", "a", "b")] == [2, 1, 1]


def test_where_the_batch_gives_other_panes_than_were_recorded_nothing_is_written(make: Make) -> None:
    pipeline = make()
    bereft(pipeline, COUNTING, TEN)
    with pytest.raises(IdentityError, match="computed again, its windows differ") as refused:
        Query(pipeline, COUNTING, TEN).writes(2, rows=lambda _: [Row("z", 77, 1)])
    assert refused.value.code == "E219"
    assert [len(pipeline.epochs(name)) for name in APART] == [2, 1, 1]


# ---- others

COUNTING = Rules(oracle.Fixed(10), count=1, lateness=20, retracting=True)
"""A pane for each row, and windows that stay open for long."""

TEN = [oracle.Epoch(at, (Row("a", at, at), Row(f"key {at}", 1, at)), at) for at in range(1, 11)]
"""Ten epochs of two rows; each leaves one window more open."""


@pytest.mark.parametrize(
    ("point", "beside"),
    [
        (Point.COMMIT_BEFORE, ()),
        (Point.STAGE_AFTER, BESIDE),
        (Point.PREPARE_AFTER, BESIDE),
        (Point.COMMIT_BEFORE, BESIDE),
    ],
    ids=str,
)
def test_who_recalls_state_sleeps_and_commits_is_fenced_out_and_changes_nothing(
    make: Make, seed: int, point: Point, beside: tuple[str, ...]
) -> None:
    rules, epochs = drawn(seed)
    names = beside or APART
    calm, pipeline = make(*names, beside=beside), make(*names, beside=beside)
    states = undisturbed(calm, rules, epochs)

    def others_go_on() -> None:
        faults.disarm()
        Query(pipeline, rules, epochs).writes(2, 3)

    zombie = Query(pipeline, rules, epochs)
    zombie.writes(1)
    faults.arm(point, others_go_on)
    with pytest.raises(SupersededRun):
        zombie.writes(2)
    assert {len(pipeline.epochs(name)) for name in names} == {3}
    agrees(pipeline, calm, states)


def changed_by_hand(pipeline: Paned, **row: Any) -> None:
    """Somebody writes a row of state past every epoch."""
    store, writer = pipeline.stores["state"], ("orders", "memory:state")
    newest = store.newest(writer)
    assert newest is not None
    epoch = row.pop("epoch", 1)
    standing = next(entry.rows for entry in store.epochs(writer) if entry.rows is not None)
    changed = pa.Table.from_pylist([{**standing.to_pylist()[0], **row}], schema=standing.schema)
    store.add(StoreEntry(writer, newest.fence, newest.marker, epoch, changed, 1, MERGE))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"epoch": 9}, 'the window of key ["a"] from 0 on is of epoch 9'),
        ({"body": "3"}, 'the window of key ["a"] from 0 on cannot be read'),
    ],
    ids=["of a later epoch", "unreadable"],
)
def test_state_that_no_epoch_left_stops_the_query(make: Make, row: dict[str, Any], problem: str) -> None:
    pipeline = make()
    Query(pipeline, COUNTING, TEN).writes(1)
    changed_by_hand(pipeline, **row)
    with pytest.raises(IdentityError) as refused:
        Query(pipeline, COUNTING, TEN).writes(2)
    assert refused.value.code == "E226"
    assert problem in str(refused.value)
    assert [len(pipeline.markers(name)) for name in ("a", "b")] == [1, 1]


def test_more_windows_than_the_epoch_before_left_stop_the_query(make: Make) -> None:
    pipeline = make()
    closing = [TEN[0], oracle.Epoch(99, (), END)]
    Query(pipeline, COUNTING, closing).writes(1)
    changed_by_hand(pipeline, key='["put there"]')
    with pytest.raises(IdentityError, match="there are more windows than that epoch left") as refused:
        Query(pipeline, COUNTING, closing).writes(2)
    assert refused.value.code == "E226"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"window": oracle.Fixed(20)}, "key, values, time, window, accumulation or the form of rows is another one"),
        ({"retracting": False}, "key, values, time, window, accumulation or the form of rows is another one"),
        ({"lateness": 30}, "trigger or lateness is another one, and 2 windows open"),
        ({"count": 2}, "trigger or lateness is another one, and 2 windows open"),
    ],
    ids=["window", "accumulation", "lateness", "trigger"],
)
def test_another_definition_under_a_running_name_is_refused(make: Make, change: dict[str, Any], said: str) -> None:
    pipeline = make()
    Query(pipeline, COUNTING, TEN).writes(1)
    with pytest.raises(OnceOnlyError) as refused:
        Query(pipeline, replace(COUNTING, **change), TEN).writes(2)
    assert refused.value.code == "E142"
    assert said in str(refused.value)
    assert [len(pipeline.epochs(name)) for name in APART] == [1, 1, 1]


def test_trigger_and_lateness_may_change_once_no_window_is_open(make: Make) -> None:
    pipeline = make()
    epochs = [TEN[0], oracle.Epoch(50, (), 50), TEN[2]]
    Query(pipeline, COUNTING, epochs).writes(1, 2)
    assert pipeline.state() == []
    Query(pipeline, replace(COUNTING, count=2, lateness=30), epochs).writes(3)
    assert [len(pipeline.epochs(name)) for name in APART] == [3, 3, 3]


def test_a_query_with_windows_does_not_go_on_without_them(make: Make) -> None:
    pipeline = make()
    Query(pipeline, COUNTING, TEN).writes(1)
    with pytest.raises(OnceOnlyError, match="windows= was taken out of the call") as refused:
        Query(pipeline, COUNTING, TEN, panes=False).writes(2)
    assert refused.value.code == "E142"


def test_more_open_windows_than_may_be_are_refused_and_said_once_before(make: Make) -> None:
    pipeline = make()
    query = Query(pipeline, COUNTING, TEN, at_most=5)
    query.writes(1, 2, 3, 4)
    with pytest.raises(OnceOnlyError) as refused:
        query.writes(5)
    assert refused.value.code == "E527"
    assert [len(pipeline.epochs(name)) for name in APART] == [4, 4, 4]
    assert len(pipeline.state()) == 5
    assert sum("W705" in said for said in pipeline.events(EventKind.WARNED)) == 1


# ---- right


def test_where_the_recorded_clock_goes_back_timers_stand_still(make: Make) -> None:
    rules = Rules(oracle.Fixed(100), period=10, lateness=20, retracting=True)
    clocks, rows = (12, 5, 14, 21), (Row("a", 1, 1),)
    back, still = make(), make()
    Query(back, rules, [oracle.Epoch(at, rows) for at in clocks]).writes(1, 2, 3, 4)
    Query(still, rules, [oracle.Epoch(max(12, at), rows) for at in clocks]).writes(1, 2, 3, 4)
    assert [epoch.windows.clock for epoch in back.markers("a") if epoch.windows] == [12 * MS, 12 * MS, 14 * MS, 21 * MS]
    assert (back.panes(), back.state()) == (still.panes(), still.state())
    assert [len(rows) for rows in back.panes()] == [0, 0, 0, 1]


def test_the_log_is_what_brute_force_says_of_the_same_epochs(make: Make, seed: int) -> None:
    for at in range(20):
        rules, epochs = drawn(seed + at)
        pipeline, judge = make(*BESIDE, beside=BESIDE), Oracle(rules)
        Query(pipeline, rules, epochs).writes(*range(1, len(epochs) + 1))
        for said, rows in zip(epochs, pipeline.panes(), strict=True):
            expected = sorted((pane.key, pane.value, pane.timing, pane.index) for pane in judge.epoch(said))
            told = [(row["team"], row["total"] or 0, row["timing"], row["pane"]) for row in rows if row["sign"] > 0]
            assert sorted(told) == expected, f"{rules} {epochs} of seed {seed + at}"


def test_after_each_epoch_rows_and_what_state_has_not_shown_are_the_batch_result(make: Make, seed: int) -> None:
    seen = Counter[str]()
    for at in range(30):
        rules, epochs = drawn(seed + at)
        pipeline, judge = make(*BESIDE, beside=BESIDE), Oracle(rules)
        query = Query(pipeline, rules, epochs)
        for number, said in enumerate(epochs, 1):
            query.writes(number)
            judge.epoch(said)
            held = reconciled(pipeline, rules)
            if isinstance(rules.window, Sessions):
                held, wanted = of_sessions(held, judge, rules)
            else:
                wanted = aggregate(pipeline, rules, epochs[:number])
            assert held == wanted, f"epoch {number} of {rules}, {epochs}, seed {seed + at}"
            seen[_how(rules)] += len(wanted)
    assert all(seen[how] for how in ("discarding", "retracting", "accumulating")), seen


def of_sessions(held: dict[Of, int], judge: Oracle, rules: Rules) -> tuple[dict[Of, int], dict[Of, int]]:
    """What stands of sessions, and what they come to by brute force. Those that others absorbed are left in the rows:
    retracting they come to nothing, accumulating they stand as they were, discarding their key adds up with them."""
    sums = {(key, start * MS, end * MS): value for (key, (start, end)), value in judge.sums().items()}
    wanted = {place: value for place, value in sums.items() if isinstance(value, int)}
    assert wanted.keys() == sums.keys()
    if rules.discarding:
        return by_key(held), by_key(wanted)
    return {place: value for place, value in held.items() if place in wanted or (rules.retracting and value)}, wanted


def by_key(found: dict[Of, int]) -> dict[Of, int]:
    """Sums of keys, over all their windows."""
    keys = {key for key, _, _ in found}
    return {(key, LEAST, END): sum(value for place, value in found.items() if place[0] == key) for key in keys}


def _how(rules: Rules) -> str:
    return "discarding" if rules.discarding else "retracting" if rules.retracting else "accumulating"


def reconciled(pipeline: Paned, rules: Rules) -> dict[Of, int]:
    """What each window comes to by the rows that stand and by what state has not shown."""
    found = dict[Of, int]()
    for row in (row for rows in pipeline.panes() for row in rows):
        value, place = row["sign"] * (row["total"] or 0), _of(row)
        adds = rules.discarding or rules.retracting
        found[place] = value + (found.get(place, 0) if adds else 0)
    for row in pipeline.state():
        (value,), fresh, _, _, emitted, _ = json.loads(row["body"])
        (key,) = json.loads(row["key"])
        place = key, row["start"], row["stop"]
        if rules.retracting:
            found[place] = found.get(place, 0) + (value or 0)
            for start, end, _, (shown,) in emitted:
                found[key, start, end] -= shown or 0
        elif rules.discarding:
            found[place] = found.get(place, 0) + (value or 0)
        else:
            assert fresh or found[place] == (value or 0), place
            found[place] = value or 0
    return found


def aggregate(pipeline: Paned, rules: Rules, epochs: Sequence[oracle.Epoch]) -> dict[Of, int]:
    """The sum of each window over all rows, but those of windows that were closed by what epochs before had noted."""
    found = dict[Of, int]()
    noted = [None, *(marker.time.complete_until if marker.time else None for marker in pipeline.markers("a"))]
    for said, before in zip(epochs, noted, strict=False):
        for row in said.rows:
            for start, end in spans_of(rules.window, row):
                if before == END or (before is not None and _closed(end, rules.lateness, before)):
                    continue
                place = row.key, *(one if one in (LEAST, END) else one * MS for one in (start, end))
                found[place] = found.get(place, 0) + row.value
    return found


def _closed(end: int, lateness: int | None, noted: int) -> bool:
    return lateness is not None and end != END and (end + lateness) * MS <= noted


def _seconds(moment: int) -> int:
    return moment if moment in (LEAST, END) else moment // MS


def _of(row: dict[str, Any]) -> Of:
    start, end = row["window_start"], row["window_end"]
    return (
        row["team"],
        LEAST if start is None else round(start.timestamp() * MS),
        END if end is None else round(end.timestamp() * MS),
    )
