"""A Spark that calls itself one of a known line and lacks a call of it is refused by that call's name.

Each fork is the line of the real Spark that runs, with one name in it that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.streams import FileStream
from integration.targets import DeltaTarget
from integration.test_line import counts
from pyspark.sql import DataFrame, SparkSession

from onceonly import Storage, exactly_once
from onceonly.errors import ConfigurationError
from onceonly.spark import detect
from onceonly.spark.classic import try_rows
from onceonly.spark.versions import LINES, SparkVersion
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.spark

OWN = detect.line()


def no_python(*_: Any) -> Any:
    from pyspark.sql import to_vendor_seq

    return to_vendor_seq


FORKS: dict[str, tuple[SparkVersion, str]] = {
    "a class of Java": (replace(OWN, state_writer="com.vendor.StateStoreWriter"), "com.vendor.StateStoreWriter"),
    "a method of the query": (
        replace(OWN, source_ids=lambda execution, sources: execution.vendorIds()),
        "vendorIds",
    ),
    "a method of an observation": (replace(OWN, metrics=lambda found: found.vendorRow()), "vendorRow"),
    "a function of Python": (replace(OWN, sequence=no_python), "pyspark.sql.to_vendor_seq"),
    "an attribute of Python": (
        replace(OWN, frame=lambda jdf, session: session.vendorFrame),
        "SparkSession.vendorFrame",
    ),
    "the socket of a job": (replace(OWN, connect=no_python), "pyspark.sql.to_vendor_seq"),
    "an argument": (replace(OWN, arrow_schema=lambda columns: columns.jsonValue(vendor=1)), "vendor"),
}


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[SparkVersion], None]:
    def become(fork: SparkVersion) -> None:
        monkeypatch.setattr(detect, "LINES", {**LINES, fork.minor: fork})

    return become


def test_a_fork_without_a_private_is_refused_by_its_name_before_a_sink_is_opened(
    stream: FileStream,
    sink: MemorySink,
    ledger: SqlLedger,
    pretend: Callable[[SparkVersion], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    otherwise, tried, opened = [], [], []
    monkeypatch.setattr(sink, "open", opened.append)

    def write(df: DataFrame, batch_id: int) -> None:
        for kind, (fork, name) in FORKS.items():
            tried.append(kind)
            pretend(fork)
            said = ""
            try:
                exactly_once(sink, storage=Storage(ledger=ledger))(df, batch_id)
            except ConfigurationError as refused:
                said = str(refused)
            named = f"lacks {name}" in said or f"'{name}'" in said
            if not (named and "[ONCE-E113]" in said and f"Next: run the query on Apache Spark {OWN.minor}" in said):
                otherwise.append((kind, said))
        pretend(OWN)

    stream.receive(range(5)).run(write)
    assert tried == list(FORKS)
    assert otherwise == []
    assert opened == []
    assert not (stream.root / "ledger.db").exists()


def test_a_refused_fork_leaves_no_table_and_the_real_spark_goes_on_from_there(
    stream: FileStream, delta: DeltaTarget, ledger: SqlLedger, pretend: Callable[[SparkVersion], None]
) -> None:
    pretend(FORKS["a method of an observation"][0])
    stream.receive(range(5)).fail(exactly_once(delta.sink(), storage=Storage(ledger=ledger)))
    assert not Path(delta.path).exists()
    pretend(OWN)
    stream.run(exactly_once(delta.sink(), storage=Storage(ledger=ledger)))
    assert delta.ids() == list(range(5))


def test_a_private_that_only_a_plan_before_the_start_needs_is_named_too(
    stream: FileStream, sink: MemorySink, pretend: Callable[[SparkVersion], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly.spark.classic.plan.analysed", lambda df: df._jdf.vendorPlan())
    with pytest.raises(ConfigurationError, match="lacks vendorPlan"):
        exactly_once(sink).explain(counts(stream.receive(range(5)).read()))


def test_the_self_test_runs_no_task(spark: SparkSession) -> None:
    spark.sparkContext.setJobGroup("self-test", "")
    try:
        try_rows(OWN, spark.range(5))
        tracker = spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("self-test")]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        assert sum(stage.numTasks for stage in stages if stage) == 0
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
