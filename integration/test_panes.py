"""Panes on a real query into a real Postgres: the figures of Streaming 102, epoch by epoch, with a crash in each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from integration.streaming102 import Script, cases, shown, wanted
from integration.targets import PostgresTarget
from pyspark.sql import SparkSession

from onceonly import ExactlyOnce, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly.spark.paned import digest_of
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger.sql import SqlLedger

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def crash() -> None:
    raise RuntimeError("a crash")


FIGURES = [pytest.param(one, marks=[] if "9" in one else pytest.mark.slow) for one in cases()]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_comes_out_of_a_query_that_crashes_in_each_epoch(
    spark: SparkSession, pg: PostgresTarget, tmp_path: Path, name: str
) -> None:
    case = cases()[name]
    script = Script(spark, tmp_path, case)

    def write() -> Any:
        return exactly_once(pg.sink(), note_time=case.noting, panes=case.panes)

    for number in range(len(case.epochs)):
        script.plan(number, write())
        faults.arm(Point.COMMIT_BEFORE if number % 2 else Point.COMMIT_AFTER, crash)
        assert "a crash" in script.fail(write())
        faults.disarm()
        script.run(write())
    assert shown(pg) == wanted(case)
    epochs = records(pg)
    assert len(epochs) == len(case.epochs)
    assert sum(one.panes.dropped for one in epochs if one.panes) == case.dropped
    told(pg, write())


def records(pg: PostgresTarget) -> list[Epoch]:
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    found = [record.epoch for record in ledger.epochs("scores")]
    ledger.close()
    return found


def told(pg: PostgresTarget, wrapped: ExactlyOnce) -> None:
    """The audit finds nothing, and of the state as much as the newest epoch says."""
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    sinks = wrapped._arguments.sinks
    found = audit(ledger, "scores", sinks)
    for sink in sinks:
        sink.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(one) for one in found.findings]
    ledger.close()
    for sink in wrapped._arguments.sinks:
        sink.close()
    newest = records(pg)[-1]
    assert newest.panes is not None
    table = pg.says("select key, start, stop, body from orders_state")
    columns = {name: [row[at] for row in table] for at, name in enumerate(("key", "start", "stop", "body"))}
    text, number = pa.string(), pa.int64()
    schema = pa.schema([("key", text), ("start", number), ("stop", number), ("body", text)])
    assert digest_of(pa.table(columns, schema=schema)) == newest.panes.open
