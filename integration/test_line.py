"""What each line of Spark must do: append, upsert, keep state, stage for several sinks, replay, heal, trim.

`make line` runs it on a line that has no jars of Delta and Kafka; what needs them is refused there by name.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyspark
import pytest
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget, events
from pyspark.sql import DataFrame, SparkSession

from onceonly import exactly_once
from onceonly.errors import ConfigurationError
from onceonly.pins import DELTA_SPARK_LINES, SPARK_LINES, line_of
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.sqlledger import SqlLedger
from onceonly_sinks.delta import DeltaSink, with_delta

pytestmark = pytest.mark.spark

LINE = line_of(pyspark.__version__)
NO_JARS = LINE not in DELTA_SPARK_LINES


def counts(df: DataFrame) -> DataFrame:
    return df.groupBy("word").count()


def test_this_line_is_one_that_is_known() -> None:
    assert LINE in SPARK_LINES


@pytest.mark.parametrize("limit", [None, 0])
def test_rows_are_appended_once_through_the_driver_and_by_executors(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, ledger: SqlLedger, limit: int | None
) -> None:
    options = {} if limit is None else {"driver_limit": limit}
    stream.receive(range(10), range(10, 20))
    stream.run(exactly_once(pg.sink(**options), ledger=ledger))
    stream.lose_checkpoint()
    stream.name = "history"
    stream.run(exactly_once(delta.sink(**options), ledger=ledger))
    assert pg.ids() == delta.ids() == list(range(20))


def test_one_epoch_goes_to_several_sinks_and_a_replay_to_none(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, ledger: SqlLedger
) -> None:
    stream.receive(range(10), range(10, 20)).run(exactly_once(pg.sink(), delta.sink(), ledger=ledger))
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(exactly_once(pg.sink(), delta.sink(), ledger=ledger))
    assert pg.ids() == delta.ids() == list(range(30))
    assert len(events(ledger, EventKind.SKIPPED)) == 1


def test_state_goes_on_over_a_replay(stream: FileStream, pg: PostgresTarget, ledger: SqlLedger) -> None:
    for name in ("a", "b", "c"):
        stream.receive(range(5))
        stream.run(exactly_once(pg.sink(key="word"), ledger=ledger), shape=counts, mode="update")
        stream.remove("commits", stream.newest("commits"))
        assert name
    stream.run(exactly_once(pg.sink(key="word"), ledger=ledger), shape=counts, mode="update")
    found = dict(pg.says("select word, count from orders"))
    assert found == Counter({f"w{number}": 3 for number in range(5)})


def test_keys_are_merged_into_delta(stream: FileStream, delta: DeltaTarget, ledger: SqlLedger) -> None:
    for _ in range(2):
        stream.receive(range(5)).run(exactly_once(delta.sink(key="id"), ledger=ledger))
    assert delta.ids() == list(range(5))


def test_a_lost_checkpoint_is_trimmed(stream: FileStream, pg: PostgresTarget, ledger: SqlLedger) -> None:
    def shape(df: DataFrame) -> DataFrame:
        return df.selectExpr("*", "_metadata.file_path as file_path")

    def write() -> object:
        return exactly_once(pg.sink(), ledger=ledger, overlap="trim", before=lambda df: df.drop("file_path"))

    stream.receive(range(10), range(10, 20)).run(write(), shape=shape)
    stream.lose_checkpoint()
    stream.receive(range(20, 30)).run(write(), shape=shape)
    assert pg.ids() == list(range(30))


def test_what_needs_the_jars_of_delta_is_refused_by_name_where_there_are_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    if not NO_JARS:
        with_delta(SparkSession.builder)
        return
    with pytest.raises(ConfigurationError) as caught:
        with_delta(SparkSession.builder)
    assert caught.value.code == "E111"
    by_spark = FileStream(spark, tmp_path).receive(range(3))
    said = by_spark.fail(exactly_once(DeltaSink(str(tmp_path / "table"), committer="spark")))
    assert "[ONCE-E" in said
    assert "with_delta" in said
