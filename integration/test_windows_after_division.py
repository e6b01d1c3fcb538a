"""Windows behind deduplication, quality and outputs: Streaming 102 with bad and repeated rows among its own."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.jobs import TABLE, Job
from integration.processes import Drivers, was_killed
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from integration.test_panes import crash
from integration.test_panes_kills import DEATHS, drop, sent, wanted
from pyspark.sql import DataFrame, SparkSession
from tests.panes.oracle import Row

from onceonly import Dedupe, Output, Quality, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.demo.streaming102 import COLUMNS, Case, batch, cases, milliseconds, set_clock, written
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

FIGURE = "row 6 retracting"
IN_2099 = 4_070_908_800_000_000


class Script(FileStream):
    """The stream of a figure, with rows that no window may see.

    Each batch repeats all rows of the one before, and has a bad row of the year 2099, which would close every window.
    """

    def __init__(self, spark: SparkSession, root: Path, case: Case) -> None:
        super().__init__(spark, root, "scores")
        self.case = case
        self.bad = self.repeated = self.good = 0
        self._before: list[dict[str, Any]] = []

    def read(self) -> DataFrame:
        columns = f"id string, {COLUMNS}"
        return self.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(self.inbox))

    def plan(self, number: int, write: Callable[[DataFrame, int], None]) -> None:
        """Have the engine plan the batch of an epoch, from 0, at the clock of the script."""
        own = batch(self.case.epochs[number]).to_pylist()
        rows = [{"id": f"{number}-{at}", **row} for at, row in enumerate(own)]
        bad = {"id": f"{number}-bad", "team": "TeamX", "value": -1, "event_time": IN_2099}
        self.good, self.repeated, self.bad = self.good + len(rows), self.repeated + len(self._before), self.bad + 1
        kinds = [("id", pa.string()), ("team", pa.string()), ("value", pa.int64())]
        schema = pa.schema([*kinds, ("event_time", pa.timestamp("us", "UTC"))])
        path = self.inbox / f"part-{number:04d}.parquet"
        pq.write_table(pa.Table.from_pylist([*rows, *self._before, bad], schema=schema), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
        self._before = rows
        faults.arm(Point.DISCOVER_AFTER, crash)
        assert "a crash" in self.fail(write)
        faults.disarm()
        set_clock(self.checkpoint, number, milliseconds(self.case.epochs[number]["clock"]))


def chain(pg: PostgresTarget, case: Case, *results: Any) -> Any:
    """Deduplicate, set bad rows aside, keep the good ones, and window them."""
    table = PostgresSink(pg.dsn, table="big_scores")
    return exactly_once(
        Output(table, name="big", where="value >= 5"),
        *(results or (pg.sink(),)),
        dedupe=Dedupe(key="id", within="7 days", store=PostgresSink(pg.dsn, table="scores_seen")),
        quality=Quality(expect={"positive": "value > 0"}, quarantine=PostgresSink(pg.dsn, table="bad_scores")),
        event_time=case.event_time,
        windows=case.windows,
    )


def epochs(pg: PostgresTarget) -> list[Epoch]:
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    found = [record.epoch for record in ledger.epochs("scores")]
    ledger.close()
    return found


def adds_up(pg: PostgresTarget, script: Script, wrapped: Any) -> None:
    """Each row went one way, by the record of the epochs, and by the audit."""
    found = epochs(pg)
    assert len(found) == len(script.case.epochs)
    windowed = sum(epoch.windows.rows for epoch in found if epoch.windows)
    assert windowed == sum(epoch.rows for epoch in found) == script.good
    assert sum(epoch.bad.digest.rows for epoch in found if epoch.bad) == script.bad
    assert sum(epoch.repeated.rows for epoch in found if epoch.repeated) == script.repeated
    assert sum(epoch.windows.dropped for epoch in found if epoch.windows) == script.case.dropped
    assert pg.says("select count(*) from bad_scores") == [(script.bad,)]
    big = sum(value >= 5 for epoch in script.case.epochs for value, _ in epoch["rows"])
    assert pg.says("select count(*) from big_scores") == [(big,)]
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    judged = audit(ledger, "scores", wrapped.arguments.sinks)
    ledger.close()
    for sink in wrapped.arguments.sinks:
        sink.close()
    assert judged.verdict is Verdict.EXACTLY_ONCE, "\n".join(
        f"{f.code} {f.sink} {f.epoch}-{f.last}: {f.evidence}" for f in judged.findings
    )


OTHERS = ("row 4 discarding", "row 7 order A", "row 8 order A", "row 9 sessions", "P102-5 lateness 1 min with r11")
FIGURES = [FIGURE, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]


@pytest.mark.parametrize("name", FIGURES)
def test_bad_and_repeated_rows_change_no_figure_of_a_query_that_crashes_in_each_epoch(
    spark: SparkSession, pg: PostgresTarget, tmp_path: Path, name: str
) -> None:
    case = cases()[name]
    script = Script(spark, tmp_path, case)
    for number in range(len(case.epochs)):
        script.plan(number, chain(pg, case))
        faults.arm(Point.COMMIT_BEFORE if number % 2 else Point.COMMIT_AFTER, crash)
        assert "a crash" in script.fail(chain(pg, case))
        faults.disarm()
        script.run(chain(pg, case))
    assert written(pg.dsn, "orders") == case.results
    adds_up(pg, script, chain(pg, case))


def test_results_in_postgres_and_delta_come_from_one_staged_epoch(
    spark: SparkSession, pg: PostgresTarget, delta: DeltaTarget, tmp_path: Path
) -> None:
    case = cases()[FIGURE]
    script = Script(spark, tmp_path, case)
    for number in range(len(case.epochs)):
        script.plan(number, chain(pg, case, pg.sink(), delta.sink()))
        faults.arm(Point.COMMIT_AFTER, crash)
        assert "a crash" in script.fail(chain(pg, case, pg.sink(), delta.sink()))
        faults.disarm()
        script.run(chain(pg, case, pg.sink(), delta.sink()))
    assert written(pg.dsn, "orders") == case.results
    here = sorted((result.total, result.sign, result.timing) for result in case.results)
    assert sorted(delta.rows("total", "sign", "timing")) == here
    adds_up(pg, script, chain(pg, case, pg.sink(), delta.sink()))


# ---- killed


@pytest.mark.kill
@pytest.mark.slow
def test_no_kill_lets_a_bad_or_repeated_row_into_a_window_or_keeps_a_good_one_out(
    any_postgres: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw, known = random.Random(seed), set[int]()
    good: list[list[Row]] = []
    for rows in sent(draw):
        good.append([row for row in {row.time: row for row in rows}.values() if row.time not in known])
        known |= {row.time for row in rows}
    files: list[list[Row]] = []
    for number, rows in enumerate(good):
        earlier = [row for before in good[:number] for row in before]
        files.append([*rows, Row("bad", 0, IN_2099 + number), *draw.sample(earlier, min(3, len(earlier)))])
    database, lake, inbox = any_postgres.database("chain"), tmp_path / "lake", tmp_path / "in"
    also = (("postgres:bad", database), ("delta", str(lake)))
    job = Job("scores", "postgres", database, str(inbox), str(tmp_path / "checkpoint"), also=also, panes=True)
    job = replace(job, once="7 days", expect="word <> 'bad'")
    drop(inbox, files)
    for death in DEATHS:
        assert was_killed(warm_drivers.start(job, fault=death)), death
    warm_drivers.finish(job)
    panes, dropped, still_open = wanted(good)
    pg = PostgresTarget(database)
    columns = "word, window_start, total, sign, timing, case when sign > 0 then pane end"
    assert sorted(pg.says(f"select _epoch, {columns} from {TABLE}"), key=str) == panes
    assert pg.says(f"select count(*) from {TABLE}_state") == [(still_open,)]
    assert pg.says("select count(*) from bad") == [(len(files),)]
    assert DeltaTarget(str(lake)).ids() == sorted(row.time for rows in good for row in rows if row.time % 2 == 0)
    assert sum(epoch.windows.dropped for epoch in epochs(pg) if epoch.windows) == dropped
