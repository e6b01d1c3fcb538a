"""``audit --deep``: the rows themselves are hashed again, and a value that somebody changed is found by its epoch."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence

import pytest
from integration.printed import run
from pyspark.sql import functions as f
from typer.testing import CliRunner

from onceonly import EventTime, Route, Storage, exactly_once
from onceonly.audit import AuditResult, Verdict, audit
from onceonly.audit.page import commands_in
from onceonly.cli.app import app
from onceonly.protocol import Sink
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def shaped(df):
    """Types that come back as they went in, with nulls."""
    return df.select(
        "id",
        f.when(f.col("id") % 3 != 0, f.col("word")).alias("word"),
        (f.col("id") * 1.1).alias("ratio"),
        (f.col("id") * 1.1).cast("float").alias("small"),
        f.col("id").cast("decimal(20,4)").alias("price"),
        f.col("id").cast("smallint").alias("short"),
        f.timestamp_micros(f.col("id") * 1_000_003).alias("seen"),
        f.timestamp_micros(f.col("id") * 1_000_003).cast("timestamp_ntz").alias("clock"),
        f.date_from_unix_date(f.col("id").cast("int")).alias("day"),
        f.col("word").cast("binary").alias("raw"),
        (f.col("id") % 2 == 0).alias("even"),
    )


ROWS = {"A109", "A121", "A122", "A129"}
"""Codes that speak of the rows of epochs."""


@pytest.fixture
def audited(spark) -> Callable[..., AuditResult]:
    """Audits sinks and lets go of them."""

    def judged(
        sinks: Sequence[Sink], *, deep: bool = True, since: int = 1, ledger: Ledger | None = None
    ) -> AuditResult:
        try:
            return audit(ledger, "orders", sinks, since=since, spark=spark if deep else None)
        finally:
            for sink in sinks:
                sink.close()

    return judged


def codes(result: AuditResult) -> list[tuple[str, str | None, int | None]]:
    return [(finding.code, finding.sink, finding.epoch) for finding in result.findings if finding.code in ROWS]


def test_a_changed_value_is_found_in_its_sink_alone_and_named_by_its_epoch(audited, stream, pg, delta, tmp_path):
    memory = MemorySink(id="memory:orders")
    place = str(tmp_path / "ledger.db")
    stream.receive(range(20), range(20, 40), range(40, 60))
    stream.run(
        exactly_once(pg.sink(), delta.sink(), memory, storage=Storage(ledger=place), event_time=NOTED), shape=shaped
    )
    sinks = (pg.sink(), delta.sink(), MemorySink(id="memory:orders", store=memory.store))

    pg.says("update orders set ratio = ratio + 1, seen = seen - interval '1 hour' where id = 25")
    delta.table.update(predicate="id = 45", updates={"word": "'another'"})
    shallow = audited(sinks, deep=False)
    assert codes(shallow) == of_time(shallow) == []
    found = audited(sinks)
    assert codes(found) == [("A129", "postgres:orders", 2), ("A129", "delta:table", 3)]
    assert of_time(found) == [("A173", "postgres:orders", 2)]
    assert found.verdict is Verdict.IN_DOUBT

    words = ["audit", "--deep", "-q", "orders", "--ledger", place, "-o", "json", "--since", "3"]
    said = CliRunner().invoke(app, [*words, *(word for sink in sinks[:2] for word in ("--sink", sink.address))])
    assert said.exit_code == 1, said.stderr
    told = json.loads(said.stdout)["findings"]
    assert [one["epoch"] for one in told if one["code"] == "A129"] == [3]


@pytest.mark.slow
def test_what_rows_say_cannot_be_told_where_they_are_replaced_or_mixed_or_of_other_types(audited, stream, pg, delta):
    stream.receive(range(20), range(20, 40))
    also = PostgresSink(pg.dsn, table="tiny", id="postgres:tiny")
    sinks = (pg.sink(key="id"), delta.sink(), also)
    stream.run(exactly_once(*sinks), shape=lambda df: df.withColumn("tiny", (f.col("id") % 100).cast("tinyint")))
    delta.table.optimize.compact()
    found = audited((pg.sink(key="id"), delta.sink(), PostgresSink(pg.dsn, table="tiny", id="postgres:tiny")))
    assert [code[:2] for code in codes(found) if code[0] == "A109"] == [
        ("A109", "postgres:orders"),
        ("A109", "delta:table"),
        ("A109", "postgres:tiny"),
    ]
    assert found.verdict is Verdict.CANNOT_TELL
    assert found.exit_code == 3


# ---- what the rows say of time


TIMES = {"A172", "A173", "A174"}
NOTED = EventTime("seen", max_delay="5 seconds")
HEIGHTS = EventTime("height", max_delay=5, unit="integer")


def timed(df):
    """Times a microsecond before a millisecond ends, every seventh of them unknown, and heights."""
    seen = f.timestamp_micros((f.col("id") - 30) * 1_000_000 - 1)
    return df.select("id", f.when(f.col("id") % 7 != 0, seen).alias("seen"), f.col("id").cast("int").alias("height"))


def of_time(result: AuditResult) -> list[tuple[str, str | None, int | None]]:
    return [(finding.code, finding.sink, finding.epoch) for finding in result.findings if finding.code in TIMES]


@pytest.mark.slow
@pytest.mark.parametrize("noted", [NOTED, HEIGHTS], ids=["moments", "numbers"])
def test_times_of_rows_are_counted_again_in_each_sink_and_one_that_was_changed_is_found(
    audited, stream, pg, delta, noted
):
    memory = MemorySink(id="memory:orders")
    stream.receive(range(20), [*range(10, 18), *range(40, 50)], [7, 14], range(90, 95))
    stream.run(exactly_once(pg.sink(), delta.sink(), memory, event_time=noted), shape=timed)
    sinks = (pg.sink(), delta.sink(), MemorySink(id="memory:orders", store=memory.store))
    found = audited(sinks)
    assert of_time(found) == [("A172", None, 2)]
    late = [line.epoch.time.late_rows for line in found.epochs if line.epoch.time]
    assert late == ([0, 4, 0, 0] if noted is NOTED else [0, 4, 2, 0])

    pg.says("update orders set seen = seen - interval '1 hour', height = height - 100 where id = 41")
    delta.table.update(predicate="id = 92", updates={"seen": "null", "height": "1"})
    found = audited((pg.sink(), delta.sink(), MemorySink(id="memory:orders", store=memory.store)))
    assert of_time(found)[:2] == [("A173", "postgres:orders", 2), ("A173", "delta:table", 4)]
    assert "time in doubt" in found.spoken


@pytest.mark.slow
def test_the_command_that_is_printed_shows_what_the_epoch_said_and_rows_set_right_by_it_are_in_no_doubt(
    audited, stream, pg
):
    stream.receive(range(20), range(20, 40)).run(exactly_once(pg.sink(), event_time=HEIGHTS), shape=timed)
    pg.says("update orders set height = 7 where id = 20")
    ledger = SqlLedger(pg.dsn)
    (finding,) = [one for one in audited((pg.sink(),), ledger=ledger).findings if one.code == "A173"]
    ledger.close()
    assert (
        finding.evidence
        == "20 to 39, 0 late, 0 without a time by the epoch; 7 to 39, 1 late, 0 without a time by its rows"
    )
    (printed,) = commands_in(finding.remedy)
    shown = run(shlex.split(printed))
    assert "20 to 39" in shown
    pg.says("update orders set height = 20 where id = 20")
    assert of_time(audited((pg.sink(),))) == []


@pytest.mark.slow
def test_times_of_rows_that_are_dealt_out_to_tables_are_counted_together(audited, stream, pg):
    def tables():
        return {f"k{at}": PostgresSink(pg.dsn, table=name) for at, name in enumerate(("one", "two", "three"))}

    stream.receive(range(20), [*range(10, 18), *range(40, 50)])
    routed = Route("concat('k', id % 3)", tables())
    stream.run(exactly_once(routed, event_time=HEIGHTS), shape=timed)
    assert of_time(audited(tuple(tables().values()))) == [("A172", None, 2)]
    pg.says("update two set height = 3 where id = 40")
    found = audited(tuple(tables().values()))
    assert of_time(found) == [("A173", "postgres:one", 2), ("A172", None, 2)]
    (evidence,) = [finding.evidence for finding in found.findings if finding.code == "A173"]
    assert "10 to 49, 4 late, 0 without a time by the epoch; 3 to 49, 5 late" in evidence


@pytest.mark.slow
def test_times_cannot_be_told_where_rows_are_replaced(audited, stream, pg):
    stream.receive(range(20))
    stream.run(exactly_once(pg.sink(key="id"), event_time=NOTED), shape=timed)
    assert of_time(audited((pg.sink(key="id"),))) == [("A174", "postgres:orders", 1)]
