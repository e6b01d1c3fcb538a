"""What the Kafka sink finds after its topics were compacted, shared with others, cut short or deleted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.sinks.kafka_writer import Writer, values

from onceonly_lab.servers.kafka import EmbeddedKafka, temporary_kafka
from onceonly_sinks.kafka.markers import MarkerScope as Names

pytestmark = pytest.mark.kafka

_numbers = itertools.count(1)
_SECONDS = 60.0


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    return kafka.topic(f"kept-{next(_numbers)}")


@pytest.fixture
def own_kafka() -> Iterator[EmbeddedKafka]:
    """A broker whose cleaner looks after its logs at once."""
    with temporary_kafka({"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


def delete(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(_SECONDS)


def set_up(servers: str, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(_SECONDS)


def offsets(servers: str, topic: str) -> list[int]:
    """Offsets of the records that are still there."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "offsets", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while (message := consumer.poll(_SECONDS)) is not None and message.error() is None:
            offset = message.offset()
            assert offset is not None
            found.append(offset)
    finally:
        consumer.close()
    return found


def until_gone(servers: str, topic: str, offset: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while offset in offsets(servers, topic):
        assert time.monotonic() < deadline, "the cleaner left everything as it was"
        time.sleep(0.1)


def test_markers_of_others_in_a_shared_topic_hide_none_of_ours(kafka: EmbeddedKafka, topic: str) -> None:
    markers = kafka.topic(f"{topic}-markers", config={"cleanup.policy": "compact"})
    with Writer(kafka.servers, topic, marker_topic=markers) as first:
        first.write(values("a"))
        with Writer(kafka.servers, topic, marker_topic=markers, id="kafka:other") as other:
            for number in range(30):
                other.write(values(f"{number}"))
    with Writer(kafka.servers, topic, generation=2, marker_topic=markers) as first:
        assert first.last is not None
        assert first.last.number == 1
        first.write(values("b"))
        assert [marker.epoch.number for marker, _ in first.sink.history()] == [1, 2]


def test_a_deleted_marker_topic_leaves_rows_of_nobody(kafka: EmbeddedKafka, topic: str) -> None:
    """With the ledger's receipt this is a sink behind its receipt, without one a target with foreign rows."""
    with Writer(kafka.servers, topic) as writer:
        writer.write(values("a"))
        receipt = writer.write(values("b"))
    delete(kafka.servers, Names("orders", f"kafka:{topic}").topic)
    with Writer(kafka.servers, topic, generation=2) as writer:
        found = writer.position(receipt)
    assert (found.marker, found.epoch, found.has_rows) == (None, 0, True)


@pytest.mark.slow
def test_the_newest_marker_outlives_compaction(own_kafka: EmbeddedKafka) -> None:
    """Kafka's own cleaner at work: of five claims only the newest stays, and of each epoch its marker."""
    topic = own_kafka.topic("compacted")
    markers = Names("orders", f"kafka:{topic}").topic
    for generation in range(1, 6):
        with Writer(own_kafka.servers, topic, generation) as writer:
            writer.write(values(f"{generation}"))
    first = offsets(own_kafka.servers, markers)[0]
    set_up(
        own_kafka.servers, markers, segment_ms="100", min_cleanable_dirty_ratio="0.0001", max_compaction_lag_ms="100"
    )
    with Writer(own_kafka.servers, topic, 6) as writer:
        time.sleep(0.5)
        writer.write(values("6"))  # begins a new segment: the cleaner leaves the newest alone
    until_gone(own_kafka.servers, markers, first)
    with Writer(own_kafka.servers, topic, 7) as writer:
        assert writer.last is not None
        assert writer.last.number == 6
        writer.write(values("7"))
        assert [marker.epoch.number for marker, _ in writer.sink.history()] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.slow
def test_a_topic_that_lost_its_end_is_noticed(own_kafka: EmbeddedKafka) -> None:
    """What an unclean leader election leaves: a log that is shorter than what was acknowledged."""
    topic = own_kafka.topic("cut")
    with Writer(own_kafka.servers, topic) as writer:
        receipt = writer.write(values("a", "b"))
        assert writer.position(receipt).disturbances == ()
    own_kafka.stop()
    (folder,) = Path(own_kafka.data_dir).rglob(f"{topic}-0")
    for file in folder.iterdir():
        if file.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            file.unlink()
    own_kafka.start()
    with Writer(own_kafka.servers, topic, generation=2) as writer:
        assert writer.position(receipt).disturbances
