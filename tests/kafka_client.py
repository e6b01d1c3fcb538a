"""The few sentences that tests say to a broker: put rows, commit a transaction, wait until all is decided, read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

_PATIENCE_S = 30.0
_QUIET = {"log_level": 0}


def producer(servers: str, name: str, **options: object) -> Producer:
    """A transactional producer that is ready to begin."""
    settings = {"bootstrap.servers": servers, "transactional.id": name, "client.id": name, **_QUIET}
    made = Producer({**settings, **{key.replace("_", "."): value for key, value in options.items()}})
    # Without a connection, the first try at the transaction's start is put off by half a second.
    made.list_topics(timeout=5)
    made.init_transactions(_PATIENCE_S)
    return made


def more_partitions(servers: str, topic: str, count: int) -> None:
    """Have a topic be of so many partitions."""
    admin = AdminClient({"bootstrap.servers": servers, **_QUIET})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(_PATIENCE_S)


def send(producer: Producer, topic: str, *values: str) -> None:
    """Begin a transaction and have these values written in it."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode())
    producer.flush(_PATIENCE_S)


def put(
    servers: str,
    topic: str,
    numbers: Iterable[int],
    partition: Callable[[int], int] = lambda number: 0,
    key: Callable[[int], str | None] = lambda number: None,
) -> None:
    """Append these numbers once each and in this order, whatever the client has to send again."""
    # Without idempotence, a batch that a new topic's leader turns away is sent again behind the next one.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **_QUIET})
    for number in numbers:
        producer.produce(topic, str(number), key(number), partition(number))
    assert producer.flush(_PATIENCE_S) == 0


def ends(servers: str, topic: str) -> tuple[int, int]:
    """Of partition 0: the offset up to which all transactions are decided, and the end of what is written."""
    partition, deadline = TopicPartition(topic, 0), time.monotonic() + _PATIENCE_S

    def end(isolation: IsolationLevel) -> int:
        # A new one each time: an older one does not find leaders after a restart of the broker.
        admin = AdminClient({"bootstrap.servers": servers, **_QUIET})
        asked = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=isolation)
        try:
            return int(asked[partition].result(_PATIENCE_S).offset)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
            return end(isolation)

    return end(IsolationLevel.READ_COMMITTED), end(IsolationLevel.READ_UNCOMMITTED)


def committed(servers: str, topic: str) -> list[str]:
    """Values of partition 0 that readers of committed data see, once every transaction is decided."""
    deadline = time.monotonic() + _PATIENCE_S
    while len(set(ends(servers, topic))) > 1:
        assert time.monotonic() < deadline, f"a transaction on {topic} stays open: {ends(servers, topic)}"
        time.sleep(0.02)
    return visible(servers, topic)


def visible(servers: str, topic: str) -> list[str]:
    """Values of partition 0 that readers of committed data see now."""
    return [value.decode() for _, value in visible_records(servers, topic) if value is not None]


def visible_records(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of partition 0 that readers of committed data see now."""
    stable, _ = ends(servers, topic)
    with _consumer(servers, topic) as consumer:
        return list(_records(consumer, stable))


@contextmanager
def _consumer(servers: str, topic: str) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": servers, "group.id": "tests", "isolation.level": "read_committed", **_QUIET}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        yield consumer
    finally:
        consumer.close()


def _records(consumer: Consumer, stable: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    while True:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None, "neither a record nor the end"
        if message.error() is not None:
            assert message.offset() >= stable
            return
        yield message.key(), message.value()
