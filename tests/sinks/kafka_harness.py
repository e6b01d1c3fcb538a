"""A fresh topic behind the Kafka sink: the suite's rows travel as JSON in ``value``; a plain consumer reads them."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.sinks.flat_options import kafka_sink

from onceonly.protocol import Batch
from onceonly.protocol.batch import ArrowBatch
from onceonly_lab.conformance import NotTested, SinkHarness
from onceonly_lab.conformance.harness import BrokenOffBatch
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaSink

PARTITIONS = 3

_numbers = itertools.count(1)
_GLANCE_S = 0.4


def as_records(table: pa.Table, topic: str | None = None) -> pa.Table:
    """The same rows with the columns of Spark's Kafka sink."""
    columns = {
        "key": pa.array([str(row["id"]) for row in table.to_pylist()], pa.string()),
        "value": pa.array([json.dumps(row) for row in table.to_pylist()], pa.string()),
    }
    if topic is not None:
        columns["topic"] = pa.array([topic] * table.num_rows, pa.string())
    return pa.table(columns)


class KafkaHarness(SinkHarness):
    """One topic, under a name of its own, on a shared broker."""

    # Whoever follows a killed producer waits for the brokers to end its transaction: a second or more.
    moments = 5

    def __init__(
        self, kafka: EmbeddedKafka, *, by_column: bool = False, sink: type[KafkaSink] = KafkaSink, **options: Any
    ) -> None:
        self._kafka = kafka
        self._sink = sink
        self._servers = kafka.servers
        self.topic = kafka.topic(f"target-{next(_numbers)}", PARTITIONS)
        self._by_column = by_column
        self._options = options
        self.answers = frozenset(
            {"read_by_epoch", "location_columns", "read_at", "examine", "source_identity"}
            | (set() if by_column else {"place"})
        )

    def connect(self) -> KafkaSink:
        topic = None if self._by_column else self.topic
        # The pipeline is the same in every story; the id keeps their markers apart.
        return kafka_sink(self._servers, topic, self._sink, id=f"kafka:{self.topic}", **self._options)

    def batch(self, table: pa.Table, *, duplicate_attempts: bool = False, breaks_off: bool = False) -> Batch:
        records = as_records(table, self.topic if self._by_column else None)
        return BrokenOffBatch(records) if breaks_off else ArrowBatch(records, duplicate_attempt=duplicate_attempts)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(value) for value in values(self._servers, self.topic)]

    def values(self) -> list[Any]:
        raise NotTested("A topic has no columns: a row is bytes, and other types are refused before anything is sent.")

    def forbid(self) -> str:
        return "x" * 2_000_000  # more than a broker takes in one record

    def forbid_by_rule(self) -> str:
        raise NotTested("No note breaks a rule of a record. A broker alone knows what is too large.")

    def start_method(self) -> str:
        return "forkserver"  # librdkafka's threads do not live through a fork

    def another(self) -> SinkHarness:
        return type(self)(self._kafka, by_column=self._by_column, sink=self._sink, **self._options)

    def __getstate__(self) -> dict[str, Any]:
        """What a driver in a process of its own needs; the broker stays here."""
        return {**self.__dict__, "_kafka": None}


def values(servers: str, topic: str, partitions: int = PARTITIONS) -> list[bytes]:
    """Committed values of all partitions, once what was decided until now can be seen."""
    return [message.value() for message in messages(servers, topic, partitions)]


def messages(servers: str, topic: str, partitions: int = PARTITIONS) -> list[Any]:
    """Committed records of all partitions."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    wanted, deadline = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED), time.monotonic() + _GLANCE_S
    # A decided transaction shows within milliseconds; one that is open does not, and is not waited for.
    while (stable := _ends(admin, places, IsolationLevel.READ_COMMITTED)) != wanted and time.monotonic() < deadline:
        wanted = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED)
        time.sleep(0.005)
    return _read(servers, places, stable)


def _ends(admin: AdminClient, places: list[TopicPartition], level: IsolationLevel) -> dict[int, int]:
    until = time.monotonic() + 30
    while True:
        asked = admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), isolation_level=level)
        try:
            return {at.partition: future.result(30).offset for at, future in asked.items()}
        except KafkaException as error:
            # A new topic's partitions may not have their leader yet.
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
        time.sleep(0.1)


def _read(servers: str, places: list[TopicPartition], stable: dict[int, int]) -> list[Any]:
    settings = {"bootstrap.servers": servers, "group.id": "harness", "isolation.level": "read_committed"}
    more = {"enable.partition.eof": True, "fetch.wait.max.ms": 10, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, **more, "auto.offset.reset": "earliest"})
    consumer.assign(places)
    waiting, found = {partition for partition, end in stable.items() if end}, []
    try:
        deadline = time.monotonic() + 30
        while waiting:
            assert time.monotonic() < deadline, "the records do not come"
            # Waiting for a full chunk would cost the whole time-out; the first record brings those behind it.
            first = consumer.poll(1)
            for message in [] if first is None else [first, *consumer.consume(10_000, 0)]:
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition())
    finally:
        consumer.close()
    return found
