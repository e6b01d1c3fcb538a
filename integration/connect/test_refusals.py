"""What cannot work on Spark Connect is refused by name: before the start where that can be, else at the first batch."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.connect.streams import ConnectStream, patiently, refusal_of
from integration.targets import DeltaTarget
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import onceonly
from onceonly import exactly_once
from onceonly.errors import ConfigurationError, Refused
from onceonly_lab.servers.connect import ConnectServer
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.connect


class Locked(DeltaSink):
    """A sink that holds what lives in one process."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.lock = threading.Lock()


def lucky(df: DataFrame) -> DataFrame:
    """Sums that another run computes otherwise, of more columns than Spark prints unasked."""
    sums = [f.sum(f.col("id") + number).alias(f"sum_{number}") for number in range(30)]
    return df.withColumn("luck", f.rand()).groupBy("word").agg(*sums, f.sum("luck").alias("luck"))


def counts(df: DataFrame) -> DataFrame:
    return df.groupBy("word").count()


def unique(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["id"])


def with_luck(df: DataFrame) -> DataFrame:
    return df.withColumn("luck", f.rand())


@pytest.fixture
def other(remote: SparkSession, tmp_path: Path) -> Iterator[ConnectStream]:
    """Another query of the same session, which runs on."""
    stream = ConnectStream(remote, tmp_path / "other", "other").receive(range(3))
    sink = DeltaSink(str(tmp_path / "other-table"))
    writer = stream.read().writeStream.trigger(processingTime="200 milliseconds")
    query = patiently(
        lambda: onceonly.start(writer, exactly_once(sink, name="other", checkpoint=str(stream.checkpoint)))
    )
    query.processAllAvailable()
    yield stream
    query.stop()


def refused(stream: ConnectStream, wrapped: Any, shape: Callable[[DataFrame], DataFrame] = counts) -> Refused:
    """How a query is refused that gives its callback to ``foreachBatch`` itself."""
    return refusal_of(stream.start(wrapped, shape=shape, mode="update"))


def test_a_checkpoint_that_is_none_is_refused(connected: ConnectStream, delta: DeltaTarget, tmp_path: Path) -> None:
    connected.receive(range(3))
    wrapped = exactly_once(delta.sink(key="word"), name="orders", checkpoint=str(tmp_path / "elsewhere"))
    found = refused(connected, wrapped)
    assert (found.code, "is not the checkpoint of this query" in found.what) == ("E106", True)
    assert not Path(delta.path).exists()


def test_the_checkpoint_of_another_query_is_refused(
    connected: ConnectStream, other: ConnectStream, delta: DeltaTarget
) -> None:
    connected.receive(range(3))
    wrapped = exactly_once(delta.sink(key="word"), name="orders", checkpoint=str(other.checkpoint))
    found = refused(connected, wrapped)
    assert (found.code, 'is the checkpoint of query "other"' in found.what) == ("E106", True)


def test_a_callback_without_a_name_is_refused_where_it_could_be_of_two_queries(
    connected: ConnectStream, other: ConnectStream, delta: DeltaTarget
) -> None:
    connected.receive(range(3))
    found = refused(connected, exactly_once(delta.sink(key="word"), checkpoint=str(connected.checkpoint)))
    assert (found.code, "2 queries are active" in found.what) == ("E106", True)


def test_a_callback_without_a_name_has_that_of_the_only_query(connected: ConnectStream, delta: DeltaTarget) -> None:
    connected.receive(range(3))
    connected.run(exactly_once(delta.sink(), checkpoint=str(connected.checkpoint)))
    assert delta.ids() == [0, 1, 2]


def test_a_callback_that_is_not_told_its_checkpoint_is_refused_before_the_start(
    connected: ConnectStream, delta: DeltaTarget
) -> None:
    with pytest.raises(Exception, match="foreachBatch") as caught:
        connected.receive(range(3)).start(exactly_once(delta.sink()))
    found = onceonly.errors.refusal(caught.value)
    assert found is not None
    assert (found.code, found.what) == ("E106", "On Spark Connect the callback does not know its checkpoint.")


@pytest.mark.parametrize(
    ("sink", "code", "words"),
    [
        (MemorySink(id="memory:orders"), "E110", "lives in this process, and the callback runs in the server's"),
        (Locked("nowhere"), "E151", "delta:nowhere cannot be sent to the server of Spark Connect"),
    ],
    ids=["of this process", "unpicklable"],
)
def test_a_sink_that_cannot_be_sent_is_refused_before_the_start(
    connected: ConnectStream, sink: Any, code: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        connected.receive(range(3)).begin(sink)
    assert caught.value.code == code
    assert words in caught.value.what
    assert not connected.checkpoint.exists()


def test_a_whole_result_in_each_epoch_is_refused_before_the_start(connected: ConnectStream, delta: DeltaTarget) -> None:
    with pytest.raises(ConfigurationError, match="E137"):
        connected.receive(range(3)).begin(delta.sink(), shape=lambda df: df.groupBy("word").count(), mode="complete")
    assert not connected.checkpoint.exists()


def test_a_stateful_plan_that_changes_is_refused_before_the_start(connected: ConnectStream, delta: DeltaTarget) -> None:
    with pytest.raises(ConfigurationError, match="E109") as caught:
        connected.receive(range(3)).begin(delta.sink(key="word"), shape=lucky, mode="update")
    assert "rand(" in caught.value.what
    assert not connected.checkpoint.exists()


@pytest.mark.parametrize(("shape", "before"), [(lucky, None), (counts, with_luck)], ids=["its own", "its callback's"])
def test_a_stateful_plan_that_changes_is_refused_at_its_first_batch(
    connected: ConnectStream, delta: DeltaTarget, shape: Any, before: Any
) -> None:
    wrapped = exactly_once(
        delta.sink(key="word"), name="orders", checkpoint=str(connected.checkpoint), transform=before
    )
    found = refused(connected.receive(range(3)), wrapped, shape)
    assert found.code == "E109"
    assert "rand(" in found.what
    assert not Path(delta.path).exists()


def test_a_state_that_is_missing_is_refused_until_it_is_back(connected: ConnectStream, delta: DeltaTarget) -> None:
    connected.receive(range(3)).write(delta.sink(), shape=unique)
    state, kept = connected.checkpoint / "state" / "0" / "0", connected.root / "kept"
    state.rename(kept)
    connected.receive(range(2, 5))
    assert connected.refused(delta.sink(), shape=unique).code == "E248"
    assert delta.ids() == [*range(3)]
    shutil.rmtree(state, ignore_errors=True)
    kept.rename(state)
    connected.write(delta.sink(), shape=unique)
    assert delta.ids() == [*range(5)]


def test_spark_s_own_committer_of_delta_is_refused(connected: ConnectStream, delta: DeltaTarget) -> None:
    wrapped = exactly_once(
        delta.sink(tuning=DeltaTuning(committer="spark"), key="word"),
        name="orders",
        checkpoint=str(connected.checkpoint),
    )
    found = refused(connected.receive(range(3)), wrapped)
    assert found.code == "E110"
    assert "has none" in found.what


def test_a_stream_is_explained_before_its_start(connected: ConnectStream, delta: DeltaTarget) -> None:
    wrapped = exactly_once(delta.sink(key="word"), name="orders", checkpoint=str(connected.checkpoint))
    said = wrapped.explain(counts(connected.read()))
    assert "the plan keeps state" in said
    assert "on Spark Connect" in said
    assert "As it is, it will be refused" in wrapped.explain(lucky(connected.read()))


def test_a_start_by_another_client_takes_the_query_over(
    connected: ConnectStream, server: ConnectServer, delta: DeltaTarget
) -> None:
    connected.receive(range(3))
    writer = connected.read().writeStream.trigger(processingTime="200 milliseconds")
    place = str(connected.checkpoint)
    older = patiently(lambda: onceonly.start(writer, exactly_once(delta.sink(), name="orders", checkpoint=place)))
    older.processAllAvailable()
    connected.spark = SparkSession.builder.remote(server.url).create()
    connected.receive(range(3, 6)).write(delta.sink())
    connected.spark.stop()
    assert delta.ids() == list(range(6))
    assert not older.isActive
