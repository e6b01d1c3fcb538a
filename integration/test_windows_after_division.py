"""Windows behind deduplication, quality and outputs: Streaming 102 with bad and repeated rows among its own."""

from __future__ import annotations

import json
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
from pyspark.sql import functions as f
from tests.kafka_client import visible, visible_records
from tests.panes.oracle import Row

from onceonly import Dedupe, EventTime, Output, Quality, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly.windows import AtCount, AtWatermark, Count, Global, Repeat, Sessions, Sliding, Sum, Windows
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.demo.streaming102 import COLUMNS, Case, batch, cases, milliseconds, set_clock, written
from onceonly_sinks.kafka import KafkaSink
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


RECORDS = ["team AS key", "to_json(struct(total, sign, timing)) AS value"]


@pytest.mark.kafka
@pytest.mark.slow
def test_postgres_delta_and_a_topic_get_the_same_results_from_one_staged_epoch(
    spark: SparkSession, pg: PostgresTarget, delta: DeltaTarget, any_kafka: Any, tmp_path: Path
) -> None:
    figure, topic = cases()[FIGURE], any_kafka.topic("results")
    case = replace(figure, windows=replace(figure.windows, records=RECORDS))

    def wrapped() -> Any:
        return chain(pg, case, pg.sink(), delta.sink(), KafkaSink(any_kafka.servers, topic))

    script = Script(spark, tmp_path, case)
    for number in range(len(case.epochs)):
        script.plan(number, wrapped())
        faults.arm(Point.COMMIT_AFTER, crash)
        assert "a crash" in script.fail(wrapped())
        faults.disarm()
        script.run(wrapped())
    assert written(pg.dsn, "orders") == case.results
    here = sorted((result.total, result.sign, result.timing) for result in case.results)
    assert sorted(delta.rows("total", "sign", "timing")) == here
    records = [json.loads(value) for value in visible(any_kafka.servers, topic)]
    assert [(record["total"], record["sign"], record["timing"]) for record in records] == [
        (result.total, result.sign, result.timing) for result in case.results
    ]
    adds_up(pg, script, wrapped())


@pytest.mark.kafka
def test_of_an_upsert_a_topic_gets_a_record_and_of_a_window_that_is_gone_a_tombstone(
    spark: SparkSession, pg: PostgresTarget, any_kafka: Any, tmp_path: Path
) -> None:
    topic, stream = any_kafka.topic("sessions"), FileStream(spark, tmp_path)
    windows = Windows(
        key="word",
        aggregates={"rows": Count()},
        time="id",
        window=Sessions(5),
        trigger=Repeat(AtCount(1)),
        accumulation="retracting",
        results="upserts",
        records=["concat_ws(' ', word, window_start, window_end) AS key", "IF(deleted, NULL, string(rows)) AS value"],
        state_sink=PostgresSink(pg.dsn, table="open_sessions"),
    )

    def wrapped() -> Any:
        return exactly_once(KafkaSink(any_kafka.servers, topic), windows=windows, transform=one_word)

    for at in (10, 18, 14):  # the last one joins the two sessions before
        stream.receive([at])
        stream.run(wrapped())
    consumed = visible_records(any_kafka.servers, topic)
    assert consumed[:2] == [(b"w 10 15", b"1"), (b"w 18 23", b"1")]
    assert dict(consumed) == {b"w 10 23": b"3", b"w 10 15": None, b"w 18 23": None}


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (["string(total) AS value", "string(pane) AS value"], "records= makes the columns value, value"),
        (["string(total) AS value", "team AS Key"], "records= makes the columns value, Key"),
        (["string(total) AS value", "'other' AS topic"], "records= makes the columns value, topic"),
        (["team AS key"], "records= makes the columns key"),
        (["total AS value"], "column value of window results is bigint"),
        (["string(totals) AS value"], "name one that they have: team"),
        (["string(sum(total)) AS value"], "looks at other rows"),
        (["string(rand()) AS value"], "gives another value in each run"),
    ],
)
def test_what_makes_no_record_is_refused_before_the_query_starts(
    spark: SparkSession, pg: PostgresTarget, tmp_path: Path, records: list[str], told: str
) -> None:
    case = cases()[FIGURE]
    windows = replace(case.windows, records=records, state_sink=PostgresSink(pg.dsn, table="state"))
    wrapped = exactly_once(KafkaSink("localhost:9", topic="results"), event_time=case.event_time, windows=windows)
    said = wrapped.explain(Script(spark, tmp_path, case).read())
    assert "it will be refused" in said
    assert told in said


@pytest.mark.parametrize("table", ["postgres", "delta"])
def test_rows_that_break_a_check_together_are_set_aside_as_a_whole_and_reach_no_window(
    spark: SparkSession, pg: PostgresTarget, delta: DeltaTarget, tmp_path: Path, table: str
) -> None:
    """In one transaction from memory, and, with a table of Delta, from staged files."""
    stream, results = FileStream(spark, tmp_path), pg.sink() if table == "postgres" else delta.sink()
    windows = Windows(
        key="word",
        aggregates={"total": Sum("id")},
        time="id",
        window=Global(),
        trigger=Repeat(AtCount(1)),
        state_sink=PostgresSink(pg.dsn, table="open_windows"),
    )
    bad = PostgresSink(pg.dsn, table="bad")
    quality = Quality(checks={"few": "count(*) < 3"}, quarantine=bad, on_broken="quarantine")
    for ids in ([1, 2], [3, 4, 5], [6]):
        stream.receive(ids)
        stream.run(exactly_once(results, quality=quality, windows=windows, transform=one_word))
    totals = delta.rows("total") if table == "delta" else pg.says("select total from orders order by _epoch")
    assert sorted(totals) == [(3,), (9,)]
    assert pg.says("select count(*), min(_epoch) from bad") == [(3, 2)]


def one_word(df: DataFrame) -> DataFrame:
    return df.withColumn("word", f.lit("w"))


@pytest.mark.slow
@pytest.mark.parametrize("files", [False, True], ids=["in memory", "in files"])
@pytest.mark.parametrize("window", [Sliding(1000, 500), Sessions(7)], ids=["sliding", "sessions"])
def test_of_many_rows_windows_give_what_they_give_of_the_good_ones_alone(
    spark: SparkSession, pg: PostgresTarget, delta: DeltaTarget, tmp_path: Path, window: Any, files: bool
) -> None:
    """So many that Spark groups them. One in ten is bad, and every second one comes twice."""
    windows = Windows(
        key="word",
        aggregates={"rows": Count(), "total": Sum("id")},
        time="id",
        window=window,
        trigger=AtWatermark(early=AtCount(1)),
        accumulation="retracting",
    )
    draw = random.Random(7)
    stream = FileStream(spark, tmp_path, "many")
    for number in range(2):
        ids = [
            number * 4_000_000 + draw.randrange(400_000) * 10 + draw.choice([0, *range(1, 10)]) for _ in range(80_000)
        ]
        rows = [at for at in dict.fromkeys(ids) for _ in range(1 + at % 2)]
        stream.drop(pa.table({"id": rows, "word": [f"w{at % 7}" for at in rows]}))
    also = [Output(delta.sink(), name="even", where="id % 2 = 0")] if files else []
    write = exactly_once(
        *also,
        pg.sink(),
        quality=Quality(expect={"good": "id % 10 <> 0"}, quarantine=PostgresSink(pg.dsn, table="bad"), max_bad=1.0),
        dedupe=Dedupe(key="id", within="7 days", store=PostgresSink(pg.dsn, table="seen")),
        windows=windows,
        event_time=EventTime("id", max_delay=0, unit="integer"),
    )
    stream.run(write)
    alone = FileStream(spark, tmp_path / "alone", "alone")
    alone.inbox.rmdir()
    alone.inbox.symlink_to(stream.inbox)
    good = exactly_once(
        PostgresSink(pg.dsn, table="alone"),
        transform=lambda df: df.where("id % 10 <> 0").dropDuplicates(["id"]),
        windows=windows,
        event_time=EventTime("id", max_delay=0, unit="integer"),
    )
    alone.run(good)
    columns = "_epoch, word, window_start, window_end, rows, total, kind, timing, pane"
    assert pg.says("select count(*) > 1000 from orders") == [(True,)]
    assert pg.says(f"select {columns} from orders except select {columns} from alone") == []
    assert pg.says(f"select {columns} from alone except select {columns} from orders") == []


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
