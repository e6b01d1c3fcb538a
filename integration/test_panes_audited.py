"""``audit --deep`` over windows in real tables: what stands is what was written, and a row changed by hand is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from integration.targets import DeltaTarget, PostgresTarget
from integration.test_panes_kept import Events, panes
from pyspark.sql import DataFrame, SparkSession

from onceonly import EventTime, exactly_once
from onceonly.audit import Finding, audit
from onceonly.windows import AtCount, AtWatermark, Count, Last, Mean, Sessions, Sum
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NOTED = EventTime("at", max_delay="10 seconds")
EARLY = AtWatermark(early=AtCount(1), late=AtCount(1))
WIDE = {
    "total": Sum("value"),
    "exact": Sum("CAST(value AS DECIMAL(10, 2))"),
    "mean": Mean("value * 2"),
    "last": Last("at", by="at"),
    "date": Last("DATE(at)", by="at"),
    "raw": Last("CAST(team AS BINARY)", by="at"),
    "none": Last("CAST(NULL AS STRING)", by="at"),
    "rows": Count(),
}


def shaped(df: DataFrame) -> DataFrame:
    return df.selectExpr("*", "CAST(value % 2 AS DECIMAL(5, 1)) AS part", "DATE(at) AS day")


@pytest.fixture
def events(spark: SparkSession, tmp_path: Any) -> Events:
    return Events(spark, tmp_path, "scores")


@pytest.fixture
def found(spark: SparkSession) -> Callable[..., list[Finding]]:
    """What an audit of fresh handles says of state and results."""

    def judged(wrapped: Any, **said: Any) -> list[Finding]:
        sinks = wrapped.arguments.sinks
        try:
            findings = audit(None, "scores", sinks, spark=spark, **said).findings
        finally:
            for sink in sinks:
                sink.close()
        return [finding for finding in findings if finding.code in {"A176", "A177", "A178"}]

    return judged


BATCHES = (
    [("a", 1, 0), ("a", 2, 100), (None, 3, 5)],
    [("a", 4, 50), ("b", 5, 60)],
    [("b", 7, 65), (None, 8, 130), ("c", 9, 140)],
    [("c", 10, 145)],
)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["discarding", "accumulating", "retracting"])
@pytest.mark.parametrize("sessions", [False, True])
def test_results_of_every_kind_in_postgres_and_delta_are_what_their_state_says(
    events: Events, pg: PostgresTarget, delta: DeltaTarget, found: Any, how: str, sessions: bool
) -> None:
    window = {"window": Sessions("30 seconds")} if sessions else {}
    said = panes(key=["team", "part", "day"], aggregates=WIDE, trigger=EARLY, accumulation=how, **window)

    def write() -> Any:
        return exactly_once(pg.sink(), delta.sink(), event_time=NOTED, windows=said, transform=shaped)

    events.come(*BATCHES).run(write())
    assert found(write()) == []
    pg.says("delete from orders where team = 'c' and _epoch = 4")
    [missed] = found(write())
    assert (missed.code, missed.sink, missed.epoch) == ("A177", "postgres:orders", 4)
    assert found(write(), since=5) == []


def test_a_row_that_was_upserted_is_compared_with_its_state(events: Events, pg: PostgresTarget, found: Any) -> None:
    def write() -> Any:
        sink = pg.sink(key=("team", "window_start", "window_end"), delete_flag="deleted")
        said = panes(
            aggregates=WIDE, trigger=EARLY, accumulation="retracting", results="upserts", window=Sessions("30 seconds")
        )
        return exactly_once(sink, event_time=NOTED, windows=said, transform=lambda df: df.where("team IS NOT NULL"))

    events.come(*BATCHES).run(write())
    assert found(write()) == []
    pg.says("update orders set total = 99 where team = 'c'")
    [wrong] = found(write())
    assert "by the state [" in wrong.evidence
    pg.says("delete from orders where team = 'c'")
    [missed] = found(write())
    assert missed.evidence.endswith("by the state pane 1 stands, and no row does")


@pytest.mark.slow
def test_a_table_that_does_not_tell_its_rows_by_epoch_is_said(
    events: Events, delta: DeltaTarget, pg: PostgresTarget, found: Any
) -> None:
    def write() -> Any:
        sink = delta.sink(key=("team", "window_start"))
        said = panes(results="upserts", trigger=EARLY, state_sink=PostgresSink(pg.dsn, table="scores_state"))
        return exactly_once(sink, event_time=NOTED, windows=said, transform=lambda df: df.where("team IS NOT NULL"))

    events.come(*BATCHES).run(write())
    [said] = found(write())
    assert (said.code, said.sink) == ("A178", delta.sink().id)
    assert said.evidence == "results: the sink does not know the epoch of its rows"
