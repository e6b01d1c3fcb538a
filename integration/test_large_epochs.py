"""An epoch that Spark does not bring to the driver: refused with a way out, and the way out taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.servers import KafkaAddress
from integration.streams import FileStream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.kafka_client import committed

from onceonly import Storage, exactly_once
from onceonly_sinks.kafka import KafkaSink

pytestmark = pytest.mark.spark

ROWS = 20_000
LIMIT = "256k"
"""A row has 100 bytes: an epoch of these is some eight times as large."""


@pytest.fixture
def tight(spark: SparkSession) -> Iterator[None]:
    """Spark brings little to this driver."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get("spark.driver.maxResultSize", "1g")
    conf.set("spark.driver.maxResultSize", LIMIT)
    yield
    conf.set("spark.driver.maxResultSize", before)


def shape(df: DataFrame) -> DataFrame:
    return df.select(f.to_json(f.struct("id", f.repeat("word", 16).alias("words"))).alias("value"))


def ids(kafka: KafkaAddress, topic: str) -> list[int]:
    return sorted(json.loads(value)["id"] for value in committed(kafka.servers, topic))


@pytest.mark.usefixtures("tight")
def test_an_epoch_beyond_the_driver_goes_through_files_and_only_once(
    stream: FileStream, any_kafka: KafkaAddress, tmp_path: Path
) -> None:
    topic = any_kafka.topic("large")
    sink = KafkaSink(any_kafka.servers, topic=topic)
    stream.receive(range(ROWS))
    said = stream.fail(exactly_once(sink), shape=shape)
    assert "[ONCE-E521]" in said
    assert "spark.driver.maxResultSize" in said
    assert "staging='/path'" in said
    assert not ids(any_kafka, topic)

    staged = exactly_once(sink, storage=Storage(staging=tmp_path / "staging"))
    stream.run(staged, shape=shape)
    stream.receive(range(ROWS, ROWS + 5)).run(staged, shape=shape)
    assert ids(any_kafka, topic) == list(range(ROWS + 5))
    assert "staged first" in staged.explain()
    [epoch] = (tmp_path / "staging").glob("*/*")
    assert epoch.name.startswith("e000000000002-"), "what no marker needs any more was not removed"
