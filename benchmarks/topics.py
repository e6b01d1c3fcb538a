"""Kafka topics of a run: made, counted as a reader of committed records counts them, removed."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2

_SECONDS = 30.0
_MESSAGES = 10_000


def make(servers: str, name: str) -> None:
    """Have a topic, whose files go away soon after it."""
    topic = NewTopic(name, PARTITIONS, 1, config={"file.delete.delay.ms": "100"})
    admin = AdminClient({"bootstrap.servers": servers})
    try:
        admin.create_topics([topic])[name].result(_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def remove(servers: str, name: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([name])[name].result(_SECONDS)


def count(servers: str, name: str) -> tuple[int, int]:
    """Committed records, and the sum of the ids that are their keys. Raises as :func:`committed`."""
    records = total = 0
    for message in committed(servers, name):
        records += 1
        total += int(message.key() or b"0")
    return records, total


def committed(servers: str, name: str, partitions: int = PARTITIONS) -> Iterator[Message]:
    """Records as a reader of committed ones gets them, from each partition's beginning to its end.

    Raises:
        TimeoutError: the brokers stopped answering.
    """
    settings = {"bootstrap.servers": servers, "group.id": "benchmarks", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(name, partition, 0) for partition in range(partitions)])
    ended = 0
    try:
        while ended < partitions:
            first = consumer.poll(_SECONDS)
            if first is None:
                raise TimeoutError(f"topic {name} brings neither a record nor its end")
            # Asked with a time to wait, consume() would wait it out for a full chunk.
            for message in (first, *consumer.consume(_MESSAGES, 0)):
                if (error := message.error()) is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
