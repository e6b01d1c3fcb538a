"""Bad rows of an epoch: in the quarantine once, in no other sink, whatever crashes; and what ``Quality`` takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.core.several import CRASHES, Crash, Pipeline, WideDriver, crash, crashed
from tests.core.stories import epochs

from onceonly import Output, Quality, exactly_once, faults
from onceonly.errors import ConfigurationError, OnceOnlyError
from onceonly.faults import Point
from onceonly.machine.division_rules import MaxBad, allowed, set_aside, unbalanced
from onceonly.protocol import Batch
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.row_rules import BrokenCheck, Check
from onceonly.quality.spark_outputs import OutputSpec, ResolvedOutput, widened
from onceonly_checkpoints.digests import BAD, Digest, column_of
from onceonly_checkpoints.digests import OutputDigest as Held
from onceonly_checkpoints.epoch import Epoch
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

ROWS = 10


def is_bad(number: int) -> bool:
    return number % 10 >= 7


def ids(number: int) -> range:
    return range((number - 1) * ROWS, number * ROWS)


class Wide(ArrowBatch):
    """Ten rows of an epoch, the last three of them bad; b gets those that are even, c the bad ones.

    Args:
        number: of the epoch.
        leaks: whether b gets a bad row as well.
    """

    def __init__(self, number: int, *, leaks: bool = False) -> None:
        rows = ids(number)
        self.number = number
        good = self.good()
        self._good = pa.table({"id": pa.array(good, pa.int64())})
        picked = [row for row in rows if row % 2 == 0 and (leaks or row in good)]
        self._found = [
            ("picked", "memory:b", "key", picked, [one for one in good if one not in picked], ()),
            (BAD, "memory:c", "row", [row for row in rows if row not in good], good, self.why()),
        ]
        super().__init__(pa.table({"id": pa.array(rows, pa.int64()), **dict(map(self._column, self._found))}))

    def good(self) -> list[int]:
        return [row for row in ids(self.number) if not is_bad(row)]

    def why(self) -> tuple[tuple[str, int], ...]:
        return (("small", 3),)

    def _column(self, found: tuple[Any, ...]) -> tuple[str, pa.Array[Any]]:
        name, _, column, held, *_ = found
        made = [{column: one} if one in held else None for one in ids(self.number)]
        return column_of(name), pa.array(made, pa.struct([(column, pa.int64())]))

    def digest(self) -> Digest:
        return ArrowBatch(self._good).digest()

    def outputs(self) -> tuple[Held, ...]:
        return tuple(
            Held(name, (sink,), column, ArrowBatch(pa.table({column: held})).digest(), len(filtered), reasons)
            for name, sink, column, held, filtered, reasons in self._found
        )


class Quarantined(Pipeline):
    """Good rows into a, an output of them into b, bad rows into c."""

    def start(self) -> Start:
        return Start(self)

    def holds_apart(self, count: int) -> None:
        a, b, c = self.sinks_open()
        rows = range(count * ROWS)
        assert sorted(row["id"] for row in a.rows()) == [one for one in rows if not is_bad(one)]
        assert sorted(row["key"] for row in b.rows()) == [one for one in rows if one % 2 == 0 and not is_bad(one)]
        assert sorted(row["row"] for row in c.rows()) == [one for one in rows if is_bad(one)]
        assert len({tuple(marker.epoch.chain for marker, _ in sink.history()) for sink in (a, b, c)}) == 1


class Start(WideDriver):
    made = Wide


@pytest.fixture
def pipeline(tmp_path: Path) -> Quarantined:
    return Quarantined(tmp_path)


@pytest.mark.parametrize(("point", "hit"), CRASHES, ids=str)
def test_a_crash_anywhere_is_healed_by_the_next_start(pipeline: Quarantined, point: Point, hit: int) -> None:
    crashed(pipeline.start(), point, hit)
    pipeline.start().writes_wide(2, 3)
    pipeline.holds_apart(3)


# ---- rows together


class Checked(Wide):
    """The rows of epoch 2 do not add up; ``set_aside``: all of them are bad."""

    checked_in_files = False

    def __init__(self, number: int, *, set_aside: bool = False) -> None:
        self._aside = set_aside
        super().__init__(number)

    def good(self) -> list[int]:
        return [] if self._aside else super().good()

    def why(self) -> tuple[tuple[str, int], ...]:
        return (("balanced", ROWS),) if self._aside else super().why()

    def broken(self, output: Callable[[str | None], Batch]) -> tuple[BrokenCheck, ...]:
        staged = [row["id"] for piece in output(None).arrow() for row in piece.to_pylist()]
        adds_up = self.number != 2 or not staged
        return () if adds_up else (BrokenCheck(Check("balanced", "sum(debit) = sum(credit)"), (9, 7)),)

    def aside(self, checks: Sequence[str]) -> Checked:
        assert checks == ("balanced",)
        return Checked(self.number, set_aside=True)


class Stops(WideDriver):
    made = Checked


class SetsAside(Stops):
    aside = ("balanced",)


def test_an_epoch_that_breaks_a_check_is_refused_again_and_again_and_leaves_no_files(pipeline: Quarantined) -> None:
    for numbers in ((1, 2), (2,)):
        with pytest.raises(OnceOnlyError, match="ONCE-E531") as refused:
            Stops(pipeline).writes_wide(*numbers)
        assert "sum(debit) = sum(credit) is not true (sum(debit): 9, sum(credit): 7)" in str(refused.value)
    pipeline.holds_apart(1)
    assert [place for place in pipeline.staged() if "e000000000002" in place] == []


@pytest.mark.parametrize(("point", "hit"), CRASHES, ids=str)
def test_rows_that_are_set_aside_together_are_so_once_wherever_a_driver_dies(
    pipeline: Quarantined, point: Point, hit: int
) -> None:
    crashed(SetsAside(pipeline), point, hit)
    SetsAside(pipeline).writes_wide(2, 3, max_bad=3)
    a, b, c = pipeline.sinks_open()
    good = [row for row in (*ids(1), *ids(3)) if not is_bad(row)]
    assert sorted(row["id"] for row in a.rows()) == good
    assert sorted(row["key"] for row in b.rows()) == [row for row in good if row % 2 == 0]
    assert sorted(row["row"] for row in c.rows()) == [row for row in range(3 * ROWS) if row in ids(2) or is_bad(row)]
    last = [marker.epoch for marker, _ in a.history()][1]
    assert (last.digest.rows, set_aside(last)) == (0, ("balanced",))


def test_a_figure_may_be_a_number_or_a_time_and_never_a_row() -> None:
    check = Check("it", "sum(a) > max(at) AND min(b) AND max(struct(*)) AND listagg(word)")
    broken = BrokenCheck(check, (Decimal("7.5"), date(2026, 1, 2), None, {"id": 7}, "w1w2"))
    assert broken.text == f"{check.sql} is not true (sum(a): 7.5, max(at): 2026-01-02, min(b): null)"


@pytest.mark.parametrize(
    ("sql", "figures"),
    [
        ("sum(debit) = sum(credit)", ("sum(debit)", "sum(credit)")),
        ("abs(sum(a) - sum(b)) < 0.01 AND (count(*) > 0)", ("abs(sum(a) - sum(b))", "count(*)")),
        ("max(`a(b`) > 1 OR min(coalesce(x, '(')) IN (1, 2)", ("max(`a(b`)", "min(coalesce(x, '('))")),
        ("count(*) FILTER (WHERE bad) = 0", ()),
        ("count(*) = (SELECT count(*) FROM others)", ()),
        ("true", ()),
    ],
)
def test_a_check_shows_the_values_of_its_outermost_calls(sql: str, figures: tuple[str, ...]) -> None:
    assert Check("it", sql).figures == figures


def test_a_row_that_is_bad_and_in_an_output_stops_the_epoch(pipeline: Quarantined) -> None:
    pipeline.start().writes_wide(1)
    with pytest.raises(OnceOnlyError, match="ONCE-E510") as refused:
        pipeline.start().writes_wide(Wide(2, leaks=True))
    assert "output picked" in str(refused.value)
    pipeline.holds_apart(1)


def test_resolve_brings_a_quarantine_to_its_rows_without_the_program(pipeline: Quarantined) -> None:
    driver = pipeline.start()
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        driver.writes_wide(1)
    faults.disarm()
    pipeline.resolve()
    pipeline.holds_apart(1)


def test_what_may_be_bad_is_asked_before_anything_is_written(pipeline: Quarantined) -> None:
    with pytest.raises(OnceOnlyError, match="ONCE-E522") as refused:
        pipeline.start().writes_wide(1, max_bad=2)
    assert '3 of the 10 rows of epoch 1 of "orders" are invalid, and 2 may be: small 3' in str(refused.value)
    assert "max_bad=3" in str(refused.value)
    pipeline.start().writes_wide(1, max_bad=3)
    pipeline.holds_apart(1)


def test_a_sink_that_is_behind_gets_its_bad_rows_whatever_the_program_lets_through_by_now(
    pipeline: Quarantined,
) -> None:
    driver = pipeline.start()
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        driver.writes_wide(1, max_bad=3)
    faults.disarm()
    with pytest.raises(OnceOnlyError, match="ONCE-E522"):
        pipeline.start().writes_wide(1, 2, max_bad=0)
    pipeline.holds_apart(1)


def test_the_next_batch_of_a_run_is_held_to_the_same_number(pipeline: Quarantined) -> None:
    driver = pipeline.start()
    driver.writes_wide(1, max_bad=3)
    assert driver.state is not None
    assert driver.state.job.of(None).max_bad == 3


# ---- how many may be


@pytest.mark.parametrize(
    ("max_bad", "rows", "most"),
    [
        (None, 10, 10),
        (0, 10, 0),
        (500, 10, 500),
        (0.01, 10, 100),
        (0.01, 10_000, 100),
        (0.01, 20_000, 200),
        (1.0, 20_000, 20_000),
        (0.0, 20_000, 0),
    ],
)
def test_a_number_is_rows_and_a_share_lets_a_hundred_through(max_bad: MaxBad, rows: int, most: int) -> None:
    assert allowed(max_bad, rows) == most


def test_each_output_is_held_against_the_good_rows() -> None:
    picked, bad = Held("picked", (), "", Digest(4), 6), Held(BAD, (), "", Digest(3), 10)
    assert unbalanced(Digest(10), (picked, bad)) is None
    assert unbalanced(Digest(9), (picked, bad)) == ("picked", 10, 9)
    assert unbalanced(Digest(10), (picked, Held(BAD, (), "", Digest(3), 9))) == (BAD, 9, 10)


# ---- the durable form


def test_wide_rows_are_taken_for_as_large_as_if_all_were_bad() -> None:
    """Else they are brought to the driver, whose heap ends before they do, and Spark's job never."""
    columns = pa.schema([("reasons", pa.string()), ("row", pa.string()), ("hash", pa.int64())])
    bad = ResolvedOutput(OutputSpec(BAD, ("memory:c",)), "", columns, frozenset(), cast("Any", None))
    few = ResolvedOutput(OutputSpec("few", ("memory:b",)), "", pa.schema([("id", pa.int64())]), frozenset(), bad.column)
    assert widened(72, (few,)) == 72 + 8
    assert widened(72, (few, bad)) == 72 + 8 + 2 * 72 + 64 + 64 + 8


@pytest.mark.parametrize("sinks", [("memory:c",), ()])
def test_an_epoch_with_bad_rows_comes_back_from_its_form(sinks: tuple[str, ...]) -> None:
    [one] = epochs(10)
    bad = Held(BAD, sinks, "columns", Digest(3, 1, 2), 7, (("amount", 2), ("known", 3)))
    divided = replace(one, outputs=(bad,))
    assert Epoch.from_json(divided.to_json()) == divided
    assert divided.bad == bad
    assert one.bad is None
    assert bad.text == "bad 3 (amount 2, known 3)"


# ---- what it is called with


def sink(name: str) -> MemorySink:
    return MemorySink(id=f"memory:{name}")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"expect": {}}, "Quality(expect={}) is not understood"),
        ({"quarantine": MemorySink(id="memory:bad")}, "no sink knows constraints of its destination"),
        ({"expect": ["id > 3"]}, "Quality(expect=['id > 3'])"),
        ({"expect": {'a "name"': "id > 3"}}, "without quotes"),
        ({"expect": {"": "id > 3"}}, "names of up to 63 characters"),
        ({"expect": {f"e{number}": "id > 3" for number in range(101)}}, "up to 100 conditions"),
        ({"expect": {"it": "id > 3"}, "max_bad": -1}, "Quality(max_bad=-1)"),
        ({"expect": {"it": "id > 3"}, "max_bad": 1.5}, "Quality(max_bad=1.5)"),
        ({"expect": {"it": "id > 3"}, "max_bad": True}, "Quality(max_bad=True)"),
        ({"expect": {"it": "id > 3"}, "max_bad": "1%"}, "Quality(max_bad='1%')"),
    ],
    ids=lambda said: said if isinstance(said, str) else "",
)
def test_what_cannot_mean_anything_is_refused(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as refused:
        exactly_once(sink("rows"), quality=Quality(**said))
    assert refused.value.code == "E110"


@pytest.mark.parametrize(
    ("keep", "quarantine", "problem"),
    [
        ("90 days", None, "without a quarantine= no row is kept"),
        ("90", PostgresSink("dbname=none", "bad"), "keep_for is not a duration of at least a second: "),
        ("0 days", PostgresSink("dbname=none", "bad"), "keep_for is not a duration of at least a second: "),
        ("500 ms", PostgresSink("dbname=none", "bad"), "keep_for is not a duration of at least a second: "),
        (90, PostgresSink("dbname=none", "bad"), "Quality(keep_for=) was given an int"),
        ("90 days", MemorySink(id="memory:bad"), "memory:bad removes no row by its age"),
        ("90 days", DeltaSink("/nowhere/bad"), 'DeltaSink(..., external_changes="deletes")'),
        ("90 days", KafkaSink("localhost:1", "bad"), "retention.ms"),
    ],
    ids=lambda said: said if isinstance(said, str) else "",
)
def test_rows_are_kept_for_a_time_by_who_can_remove_them(keep: Any, quarantine: Any, problem: str) -> None:
    said = {"expect": {"it": "id > 3"}, "quarantine": quarantine, "keep_for": keep}
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as refused:
        exactly_once(sink("rows"), quality=Quality(**said))
    assert refused.value.code == "E110"


def test_the_promise_says_for_how_long_bad_rows_are_kept() -> None:
    quarantine = PostgresSink("dbname=none", "bad")
    wrapped = exactly_once(
        sink("rows"), quality=Quality(expect={"it": "id > 3"}, quarantine=quarantine, keep_for="90 days")
    )
    assert "every row that breaks an expectation (it: id > 3), for 90 days." in str(wrapped.explain())


def test_a_dictionary_is_no_quality() -> None:
    with pytest.raises(ConfigurationError, match=re.escape("quality={'amount': 'amount >= 0'}")):
        exactly_once(sink("rows"), quality={"amount": "amount >= 0"})  # type: ignore[arg-type]


def test_a_quarantine_is_a_sink_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="E102"):
        exactly_once(sink("rows"), quality=Quality(expect={"it": "id > 3"}, quarantine=sink("rows")))
    with pytest.raises(ConfigurationError, match=re.escape("E110] Quality(quarantine=) was given a str")):
        Quality(expect={"it": "id > 3"}, quarantine="orders_bad")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="E102"):
        exactly_once(quality=Quality(expect={"it": "id > 3"}, quarantine=sink("bad")))


PAIRS = {
    "postgres": (PostgresSink("dbname=shop", "orders"), PostgresSink("dbname=shop", "orders", id="aside")),
    "delta": (DeltaSink("/nowhere/orders", key="id"), DeltaSink("/nowhere/orders", id="aside")),
    "kafka": (KafkaSink("localhost:1", "orders"), KafkaSink("localhost:1", "orders", id="aside")),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_a_quarantine_is_no_table_of_good_rows_by_another_id(kind: str) -> None:
    good, aside = PAIRS[kind]
    with pytest.raises(ConfigurationError, match=re.escape(f"is the target of {good.id}, too")) as refused:
        exactly_once(good, quality=Quality(expect={"it": "id > 3"}, quarantine=aside))
    assert refused.value.code == "E110"


def test_tables_of_one_database_and_topics_of_one_cluster_are_not_one_target() -> None:
    for good, aside in (
        (PostgresSink("dbname=shop", "orders"), PostgresSink("dbname=shop", "orders_bad")),
        (DeltaSink("/nowhere/orders"), DeltaSink("/nowhere/orders_bad")),
        (KafkaSink("localhost:1", "orders"), KafkaSink("localhost:1", "orders.bad")),
    ):
        exactly_once(good, quality=Quality(expect={"it": "id > 3"}, quarantine=aside))


def test_the_promise_says_what_is_expected_and_who_gets_bad_rows() -> None:
    few = Output(sink("few"), name="few", where="amount > 1000")
    wrapped = exactly_once(
        sink("rows"), few, quality=Quality(expect={"amount": "amount >= 0"}, quarantine=sink("orders_bad"))
    )
    told = str(wrapped.explain())
    expected = "without rows that break an expectation (amount: amount >= 0)."
    assert f"memory:rows holds every row of the stream once, {expected}" in told
    assert f"memory:few holds every row of output few once: the rows where amount > 1000, {expected}" in told
    aside = "memory:orders_bad holds every row of output bad once: every row that breaks an expectation"
    assert f"{aside} (amount: amount >= 0)." in told
    table = PostgresSink("postgresql://localhost/shop", table="orders")
    told = str(exactly_once(table, quality=Quality(quarantine=sink("orders_bad"))).explain())
    assert (
        "postgres:orders holds every row of the stream once, without rows that break a rule of postgres:orders." in told
    )
    assert "every row that breaks a rule of postgres:orders." in told
    assert "quality=Quality(expect={'amount': 'amount >= 0'}" in repr(wrapped)
    assert repr(wrapped).count("orders_bad") == 1
