"""What a run says of itself beside its rows, on real Spark: the promise, warnings, rows that came too late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.streams import settings
from integration.targets import events, ids
from pyspark.sql import functions as f

from onceonly import Storage, exactly_once
from onceonly_checkpoints.ledger import EventKind
from onceonly_sinks.memory import MemorySink, MemoryStore

pytestmark = pytest.mark.spark


@pytest.fixture
def pickled(spark) -> Iterator[None]:
    """A Python UDF straight above a Parquet scan never ends in Spark 4.2.0 where it gets its rows by Arrow, streams and
    batches alike: JVM and worker wait for each other."""
    with settings(spark, {"spark.sql.execution.pythonUDF.arrow.enabled": "false"}):
        yield


def shouted(df):
    def shout(word):
        return word.upper()

    return df.select("id", f.udf(shout)("word").alias("word"), f.expr("uuid()").alias("draw"))


@pytest.mark.usefixtures("pickled")
def test_functions_of_the_user_and_draws_are_named_and_the_promise_is_kept_once(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
    stream.receive(range(5), range(5, 10)).run(wrapped, shape=shouted)
    assert ids(sink) == list(range(10))
    said = wrapped.explain()
    assert "the function shout() writes anywhere by itself" in said
    assert "uuid() AS draw is another value in each run" in said
    [kept] = events(ledger, EventKind.PROMISED)
    assert all(line.strip() in kept for line in said.splitlines())
    stream.receive(range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=shouted)
    assert events(ledger, EventKind.PROMISED) == [kept]


@pytest.mark.slow
def test_a_promise_that_changes_is_kept_beside_the_old_one(stream, sink, ledger):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.receive(range(5, 10)).run(
        exactly_once(sink, storage=Storage(ledger=ledger), transform=lambda df: df.where("id > 6"))
    )
    before, after = events(ledger, EventKind.PROMISED)
    assert "transform= writes anywhere by itself" in after
    assert "transform=" not in before


@pytest.mark.slow
def test_a_digest_that_leaves_columns_out_is_a_warning_in_the_log(stream, sink, ledger):
    def averaged(df):
        return df.groupBy((f.col("id") % 2).alias("k")).agg(f.avg("id").alias("mean"))

    stream.receive(range(9), range(9, 20)).run(
        exactly_once(sink, storage=Storage(ledger=ledger)), shape=averaged, mode="update"
    )
    told, further = events(ledger, EventKind.WARNED)
    assert told.startswith("[ONCE-W702] The digest excludes mean")
    assert further.startswith("[ONCE-W717]")


def test_two_sinks_on_one_target_and_a_text_that_orders_rows_are_warnings_in_the_log(stream, ledger):
    store = MemoryStore()
    one, other = MemorySink("left", store, key="id", sequence="word"), MemorySink("right", store)
    stream.receive(range(5)).run(exactly_once(one, other, storage=Storage(ledger=ledger)))
    twice, text = events(ledger, EventKind.WARNED)
    assert twice.startswith("[ONCE-W701]")
    assert text.startswith("[ONCE-W715] left, sequence=: column word is text")


@pytest.mark.slow
def test_rows_that_spark_drops_as_late_are_counted_by_epoch(stream, sink, ledger):
    def windows(df):
        timed = df.select("id", f.timestamp_seconds("id").alias("at")).withWatermark("at", "10 seconds")
        return timed.groupBy(f.window("at", "10 seconds")).agg(f.count("*").alias("rows"), f.max("id").alias("id"))

    # Spark drops what is older than the watermark that the batch before had; 105 is in time for the third batch.
    stream.receive(range(100, 105), range(120, 125), [5, 6, 105])
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=windows, mode="update")
    [told] = [event for event in ledger.events("orders") if event.kind is EventKind.LATE]
    assert told.epoch == 3
    assert told.reason == "1 late rows were dropped by Spark, watermark of the batch 1970-01-01T00:01:54.000+00:00"
    assert 105 in ids(sink)
    assert not {5, 6} & set(ids(sink))
