"""Spark's Kafka source reads what a broker holds, with the jars that the session was started with."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from integration.servers import KafkaAddress
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from onceonly_sinks.kafka import with_kafka

pytestmark = pytest.mark.spark


def test_a_stream_reads_what_is_committed_and_nothing_else(
    spark: SparkSession, any_kafka: KafkaAddress, tmp_path
) -> None:
    topic = any_kafka.topic("orders", partitions=2)
    transactions(any_kafka.servers, topic, committed=range(5), aborted=range(100, 103))
    options = {"kafka.bootstrap.servers": any_kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    source = spark.readStream.format("kafka").options(**options).option("kafka.isolation.level", "read_committed")
    rows = source.load().select(col("value").cast("string").cast("int").alias("id"))
    seen: list[int] = []
    query = (
        rows.writeStream.foreachBatch(lambda batch, _: seen.extend(row.id for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert query.exception() is None
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_a_builder_of_a_session_that_has_the_jars_is_left_as_it_is(spark: SparkSession) -> None:
    builder = SparkSession.builder.config("spark.driver.extraClassPath", spark.conf.get("spark.driver.extraClassPath"))
    before = dict(builder._options)
    assert with_kafka(builder)._options == before


def transactions(servers: str, topic: str, committed: range, aborted: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "orders", "log_level": 0})
    producer.init_transactions(30)
    for values, end in ((aborted, producer.abort_transaction), (committed, producer.commit_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, str(value).encode(), partition=value % 2)
        producer.flush(30)
        end(30)
