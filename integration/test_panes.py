"""Panes on a real query into a real Postgres: the figures of Streaming 102, epoch by epoch, with a crash in each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from integration.streams import FileStream
from integration.targets import PostgresTarget
from pyspark.sql import DataFrame, SparkSession

from onceonly import ExactlyOnce, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.event_time import FixedWindows, TimeReader
from onceonly.faults import Point
from onceonly.windows.epoch_step import digest_of
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.demo.streaming102 import COLUMNS, Case, bring, cases, milliseconds, set_clock, written

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


class Script(FileStream):
    """The stream of one figure. Each epoch has a start that plans it, and another one that runs it at its clock."""

    def __init__(self, spark: SparkSession, root: Path, case: Case) -> None:
        super().__init__(spark, root, "scores")
        self.case = case

    def read(self) -> DataFrame:
        return self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(self.inbox))

    def plan(self, number: int, write: Callable[[DataFrame, int], None]) -> None:
        """Have the engine plan the batch of an epoch, from 0, at the clock of the script."""
        bring(self.case, number, self.inbox)
        faults.arm(Point.DISCOVER_AFTER, crash)
        assert "a crash" in self.fail(write)
        faults.disarm()
        set_clock(self.checkpoint, number, milliseconds(self.case.epochs[number]["clock"]))


def crash() -> None:
    raise RuntimeError("a crash")


@pytest.mark.slow
@pytest.mark.parametrize("name", cases())
def test_every_figure_comes_out_of_a_query_that_crashes_in_each_epoch(
    spark: SparkSession, pg: PostgresTarget, tmp_path: Path, name: str
) -> None:
    case = cases()[name]
    script = Script(spark, tmp_path, case)

    def write() -> Any:
        return exactly_once(pg.sink(), event_time=case.event_time, windows=case.windows)

    for number in range(len(case.epochs)):
        script.plan(number, write())
        faults.arm(Point.COMMIT_BEFORE if number % 2 else Point.COMMIT_AFTER, crash)
        assert "a crash" in script.fail(write())
        faults.disarm()
        script.run(write())
    assert written(pg.dsn, "orders") == case.results
    epochs = records(pg)
    assert len(epochs) == len(case.epochs)
    assert sum(epoch.windows.dropped for epoch in epochs if epoch.windows) == case.dropped
    told(pg, write())


@pytest.mark.slow
def test_a_window_is_open_then_complete_then_closed_in_sql_and_to_who_reads_and_its_value_goes_from_5_to_11(
    spark: SparkSession, pg: PostgresTarget, tmp_path: Path
) -> None:
    """TW-21: lateness of a minute, a 6 that comes within it, and a 9 that does not."""
    case = cases()["P102-5 lateness 1 min with r11"]
    script, found = Script(spark, tmp_path, case), dict[str, tuple[str, str, int | None]]()
    newest = "select total from orders where window_start = '2015-08-05 12:00Z' order by _epoch desc, seq desc limit 1"
    with TimeReader("scores", pg.sink()) as reader:
        for number, epoch in enumerate(case.epochs):
            write = exactly_once(pg.sink(), event_time=case.event_time, windows=case.windows)
            script.plan(number, write)
            script.run(exactly_once(pg.sink(), event_time=case.event_time, windows=case.windows))
            [(by_sql,)] = pg.says("select onceonly.window_status('orders', '2015-08-05 12:02Z')")
            windows = reader.windows(FixedWindows("2 minutes"), since="2015-08-05T12:00Z")
            read = next((window.status for window in windows), "open")
            found[epoch["clock"]] = read, by_sql, pg.says(newest)[0][0] if pg.says(newest) else None
    stages = {clock: stage for clock, (stage, _, _) in found.items()}
    assert all(read == by_sql for read, by_sql, _ in found.values()), found
    assert {stage for clock, stage in stages.items() if clock < "12:05:58"} == {"open"}
    assert {stage for clock, stage in stages.items() if "12:05:58" <= clock < "12:06:50"} == {"complete"}
    assert {stage for clock, stage in stages.items() if clock >= "12:06:50"} == {"closed"}

    def value_at(moment: str) -> int | None:
        """What a reader sees at a moment: that of the last epoch until then."""
        return [value for clock, (_, _, value) in found.items() if clock <= moment][-1]

    assert [value_at(moment) for moment in ("12:05:57", "12:06:00", "12:07:00", "12:10:00")] == [None, 5, 11, 11]


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
    sinks = wrapped.arguments.sinks
    found = audit(ledger, "scores", sinks)
    for sink in sinks:
        sink.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
    ledger.close()
    for sink in wrapped.arguments.sinks:
        sink.close()
    newest = records(pg)[-1]
    assert newest.windows is not None
    table = pg.says("select key, start, stop, body from orders_state")
    columns = {name: [row[at] for row in table] for at, name in enumerate(("key", "start", "stop", "body"))}
    text, number = pa.string(), pa.int64()
    schema = pa.schema([("key", text), ("start", number), ("stop", number), ("body", text)])
    assert digest_of(pa.table(columns, schema=schema)) == newest.windows.open
