"""The engine gives what brute force gives, on random streams, and the same in whatever order rows come."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from tests.panes.compare import compared
from tests.panes.drive import COLUMNS, World, definition_of, epoch, run, seconds_of
from tests.panes.oracle import END, LEAST, Epoch, Fixed, Oracle, Pane, Row, Rules, Sessions
from tests.panes.oracle import Value as Result
from tests.panes.story import TEAM, records, seconds
from tests.panes.streams import drawn_epochs, drawn_rules

from onceonly.windows import AtCount, AtPeriod, AtWatermark, OrFinally, Repeat, Seq
from onceonly.windows.rules.spec import Definition, define
from onceonly.windows.rules.state import WindowKey, pane_table

TEN = [Row(TEAM, record["value"], seconds(record["event"])) for record in records() if record["id"] != "r11"]

STREAMS = 100
MANY = 2_000
ARRIVALS = 100
LARGER = pytest.mark.lab


@pytest.fixture
def seed() -> int:
    found = random.randrange(2**32)
    print("seed", found)
    return found


@pytest.mark.parametrize("streams", [STREAMS, pytest.param(MANY, marks=LARGER)])
def test_on_random_streams_engine_and_brute_force_give_the_same_rows_drops_and_open_windows(
    streams: int, seed: int
) -> None:
    seen = agreed(seed, streams)
    assert all(seen[what] > streams / 6 for what in ("EARLY", "ON_TIME", "LATE", "retracted", "dropped"))


@pytest.mark.slow
def test_on_ten_thousand_random_streams_they_give_the_same(seed: int) -> None:
    agreed(seed, 10_000)


ORDERS = [ARRIVALS, pytest.param(MANY, marks=LARGER)]


@pytest.mark.parametrize("how", ["discarding", "accumulating", "retracting"])
@pytest.mark.parametrize("arrivals", ORDERS)
def test_in_whatever_order_rows_come_each_window_ends_with_the_batch_result(how: str, arrivals: int, seed: int) -> None:
    draw, ends = random.Random(seed), [14, 22, 3, 12]
    for number in range(arrivals):
        rules = replace(drawn_refinement(draw), window=Fixed(120), discarding=how == "discarding")
        rules = replace(rules, retracting=how == "retracting")
        epochs = drawn_arrivals(draw)
        panes = [pane for panes in run(definition_of(rules), epochs, draw).panes for pane in panes]
        told = f"arrivals {number} of seed {seed}: {rules}, {epochs}"
        assert list(standing(panes, how).values()) == ends, told


@pytest.mark.parametrize("arrivals", ORDERS)
def test_in_whatever_order_rows_come_sessions_end_as_two(arrivals: int, seed: int) -> None:
    draw = random.Random(seed)
    for number in range(arrivals):
        rules = replace(drawn_refinement(draw), window=Sessions(60), retracting=True)
        epochs = drawn_arrivals(draw)
        panes = [pane for panes in run(definition_of(rules), epochs, draw).panes for pane in panes]
        found = {span: value for span, value in standing(panes, "signed").items() if value is not None}
        told = f"arrivals {number} of seed {seed}: {rules}, {epochs}"
        assert found == {
            (seconds("12:00:26"), seconds("12:05:19")): 39,
            (seconds("12:06:39"), seconds("12:08:46")): 12,
        }, told


@pytest.mark.parametrize("streams", [STREAMS // 2, pytest.param(MANY // 2, marks=LARGER)])
def test_signed_rows_and_discarded_parts_come_to_the_batch_result_of_what_was_not_dropped(
    streams: int, seed: int
) -> None:
    draw = random.Random(seed)
    for number in range(streams):
        retracting, epochs = draw.random() < 0.5, drawn_epochs(draw)
        epochs += [Epoch(epochs[-1].clock + 1, (), END)]
        rules = replace(drawn_rules(draw), discarding=not retracting, retracting=retracting, value=sum)
        panes = [pane for panes in run(definition_of(rules), epochs, draw).panes for pane in panes]
        told = f"stream {number} of seed {seed}: {rules}, {epochs}"
        assert nets(panes).total() == accepted(Oracle(rules), epochs), told


def test_the_long_form_of_a_trigger_gives_the_panes_of_the_short_one(seed: int) -> None:
    draw, several = random.Random(seed), 0
    while several < STREAMS // 3:
        rules, epochs = drawn_rules(draw), drawn_epochs(draw)
        short = definition_of(rules).trigger
        if not isinstance(short, AtWatermark) or isinstance(rules.window, Sessions) or not short.parts:
            continue
        several += 1
        early = OrFinally(Repeat(short.early), AtWatermark()) if short.early else AtWatermark()
        long = Seq(early, Repeat(short.corrects)) if short.corrects else early
        wanted, got = run(definition_of(rules), epochs), run(definition_of(rules, trigger=long), epochs)
        assert got.panes == wanted.panes, f"{short} and {long}: stream {several} of seed {seed}: {rules}, {epochs}"


def test_a_timer_that_comes_due_when_a_count_has_shown_all_writes_nothing() -> None:
    trigger = AtWatermark(early=OrFinally(Repeat(AtCount(1)), AtPeriod("1 minute")))
    epochs = [Epoch(50, (Row(TEAM, 1, 0),)), Epoch(70), Epoch(71, (Row(TEAM, 2, 0),))]
    panes = run(definition_of(Rules(Fixed(120)), trigger=trigger), epochs).panes
    assert [[pane.value for pane in some] for some in panes] == [[1], [], [3]]


def test_upserts_make_the_table_that_signed_rows_sum_to(seed: int) -> None:
    draw, tables = random.Random(seed), 0
    while tables < STREAMS // 3:
        rules, epochs = drawn_rules(draw), drawn_epochs(draw)
        if rules.discarding or (isinstance(rules.window, Sessions) and not rules.retracting):
            continue
        tables += 1
        definition = as_upserts(definition_of(rules))
        world, table, stands = World(), dict[Bounds, object](), dict[Bounds, object]()
        for said in epochs:
            world, rows, _ = epoch(definition, world, said, draw)
            for row in pane_table(definition, rows).to_pylist():
                table[row["team"], row["window_start"], row["window_end"]] = None if row["deleted"] else row["total"]
            for row in rows:
                stands[bounds(row.window_key)] = row.values[0] if row.sign > 0 else None
            assert table == stands, f"stream {tables} of seed {seed}: {rules}, {epochs}"


def test_results_of_a_window_are_named_and_ordered_by_when_they_were_written_and_their_number(seed: int) -> None:
    """So they are in a table without a column of epochs."""
    draw, results = random.Random(seed), 0
    for number in range(STREAMS):
        rules, epochs = drawn_rules(draw), drawn_epochs(draw)
        named: dict[tuple[str, tuple[int, int]], list[tuple[int, int]]] = {}
        for panes in run(definition_of(rules), epochs, draw).panes:
            for pane in panes:
                named.setdefault((pane.key, pane.span), []).append((pane.fired_at, pane.index))
                results += 1
        told = f"stream {number} of seed {seed}: {rules}, {epochs}"
        assert all(found == sorted(set(found)) for found in named.values()), told
    assert results > STREAMS


def agreed(seed: int, streams: int) -> Counter[str]:
    """What there was in random streams on which both give the same."""
    draw, seen = random.Random(seed), Counter[str]()
    for number in range(streams):
        rules, epochs = drawn_rules(draw), drawn_epochs(draw)
        result = compared(rules, epochs, draw)
        assert result.difference is None, f"{result.difference}\nin stream {number} of seed {seed}: {rules}, {epochs}"
        seen.update(pane.timing for panes in result.got.panes for pane in panes)
        seen["retracted"] += sum(bool(pane.retracts) for panes in result.got.panes for pane in panes)
        seen["dropped"] += result.got.dropped
    print(dict(seen))
    return seen


def drawn_refinement(draw: random.Random) -> Rules:
    """Rules under which nothing is dropped."""
    early = draw.choice([{}, {"period": draw.choice([7, 60])}, {"count": draw.randint(1, 3)}])
    late = draw.choice([{}, {"late_period": 20}, {"late_count": draw.randint(1, 2)}])
    return Rules(Fixed(120), **early, **late, lateness=None, always=draw.random() < 0.5)


def drawn_arrivals(draw: random.Random) -> list[Epoch]:
    """The ten values in any order, in any epochs, under any watermark; the last epoch says that nothing follows."""
    rows = list(TEN)
    draw.shuffle(rows)
    clock, epochs = seconds("12:05:00"), list[Epoch]()
    while rows:
        clock += draw.randint(0, 90)
        take = draw.randint(0, 3)
        noted = draw.choice([None, draw.randint(seconds("12:00:00"), seconds("12:09:00"))])
        epochs.append(Epoch(clock, tuple(rows[:take]), noted))
        rows = rows[take:]
    return [*epochs, Epoch(clock + 30, (), END)]


def standing(panes: list[Pane], how: str) -> dict[tuple[int, int], Result]:
    """What stands of each window in the end: the last value, the sum of parts, or what signed rows leave."""
    found: dict[tuple[int, int], Result] = {}
    for pane in panes:
        for span, value in pane.retracts:
            assert found[span] == value, f"{value} of {span} is taken back, and does not stand"
            found[span] = None
        before = found.get(pane.span)
        assert how != "signed" or before is None, "two rows of a window stand"
        found[pane.span] = pane.value + (before or 0) if how == "discarding" else pane.value
    return dict(sorted(found.items()))


def nets(panes: list[Pane]) -> Counter[tuple[int, int]]:
    """The sum of signed rows of each window."""
    found = Counter[tuple[int, int]]()
    for pane in panes:
        found[pane.span] += pane.value
        for span, value in pane.retracts:
            found[span] -= value
    return found


def accepted(oracle: Oracle, epochs: list[Epoch]) -> int:
    """The sum of all rows that were not dropped, each once for each of its windows."""
    total = 0
    for said in epochs:
        total += sum(oracle.accepts(said.rows))
        oracle.epoch(said)
    return total


Bounds = tuple[str, datetime | None, datetime | None]
"""Key, start and end of a window, as rows have them."""


def as_upserts(definition: Definition) -> Definition:
    """The same windows, written as upserts."""
    return define(replace(definition.panes, results="upserts"), COLUMNS)


def bounds(place: WindowKey) -> Bounds:
    """A window as a row has it; an end of time is null."""
    key, (start, end) = seconds_of(place)
    return key, _instant(start), _instant(end)


def _instant(time: int) -> datetime | None:
    """A second as Arrow gives it."""
    return None if time in (LEAST, END) else datetime.fromtimestamp(time, timezone.utc)
