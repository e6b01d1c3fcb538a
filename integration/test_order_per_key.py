"""The order of each key's rows in a topic: no promise of ours, and how a query can have it all the same."""

from __future__ import annotations

from collections import defaultdict

import pytest
from integration.servers import KafkaAddress
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from tests.kafka_client import committed

from onceonly import Storage, exactly_once
from onceonly_sinks.kafka import KafkaSink

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def by_key(df: DataFrame) -> DataFrame:
    """Rows of a key in one partition, sorted there; the input has them the other way round."""
    keyed = df.select((f.col("id") % 6).cast("string").alias("key"), (-f.col("id")).alias("seq"))
    ordered = keyed.repartition(3, "key").sortWithinPartitions("key", "seq")
    return ordered.select("key", f.concat_ws(" ", "key", "seq").alias("value"))


def test_rows_that_are_sorted_within_partitions_reach_a_topic_in_the_order_of_each_key(
    stream, any_kafka: KafkaAddress, ledger, tmp_path
) -> None:
    topic = any_kafka.topic(f"ordered-{tmp_path.name}"[:60], partitions=1)
    sink = KafkaSink(any_kafka.servers, topic=topic)
    stream.receive(range(3000)).run(exactly_once(sink, storage=Storage(ledger=ledger), transform=by_key))
    found = defaultdict(list)
    for value in committed(any_kafka.servers, topic):
        key, seq = value.split(" ")
        found[key].append(int(seq))
    assert sum(len(told) for told in found.values()) == 3000
    assert {key: sorted(told) for key, told in found.items()} == dict(found)
