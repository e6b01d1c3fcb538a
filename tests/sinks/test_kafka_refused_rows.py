"""A row that the brokers refuse, a marker topic that goes, a topic made anew: certain, and told at once."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from tests.sinks.kafka_harness import values as committed_values
from tests.sinks.kafka_writer import Writer, values

from onceonly.errors import DestinationError, IdentityError
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka.markers import MarkerScope as Names

pytestmark = pytest.mark.kafka

_numbers = itertools.count(1)
_SECONDS = 60.0
_SOON = 12.0
"""Seconds in which a stop must be told; the client by itself takes 30."""


def topic_of(kafka: EmbeddedKafka, **config: str) -> str:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return kafka.topic(f"refused-{next(_numbers)}", config=settings)


def delete(servers: str, topic: str) -> None:
    """Delete a topic and wait until the brokers know it no longer."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(_SECONDS)
    deadline = time.monotonic() + _SECONDS
    while topic in admin.list_topics(timeout=_SECONDS).topics:
        assert time.monotonic() < deadline, f"{topic} does not go"
        time.sleep(0.05)


def committed(kafka: EmbeddedKafka, topic: str) -> list[str]:
    return [value.decode() for value in committed_values(kafka.servers, topic, 1)]


def row(value: str, key: str | None = "k", at: datetime | None = None) -> pa.Table:
    columns = {"value": pa.array([value], pa.string()), "key": pa.array([key], pa.string())}
    return pa.table({**columns, "timestamp": pa.array([at], pa.timestamp("us", "UTC"))})


LATE = datetime.now(UTC) + timedelta(days=1)
REFUSED = {
    "max.message.bytes": ({"max_message_bytes": "2000"}, row("x" * 5000)),
    "cleanup.policy": ({"cleanup_policy": "compact"}, row("no key", key=None)),
    "message.timestamp": ({"message_timestamp_after_max_ms": "1000"}, row("from the future", at=LATE)),
}


@pytest.mark.parametrize("setting", REFUSED)
@pytest.mark.parametrize("before", [0, 500])
def test_a_row_that_the_brokers_refuse_is_told_with_the_setting_and_never_as_unknown(
    kafka: EmbeddedKafka, setting: str, before: int
) -> None:
    config, bad = REFUSED[setting]
    topic, good = topic_of(kafka, **config), row("fine")
    with Writer(kafka.servers, topic) as writer:
        with pytest.raises(DestinationError) as caught:
            writer.prepare(pa.concat_tables([good] * before + [bad, good]))
        assert caught.value.code == "E517"
        assert setting in str(caught.value)
        assert committed(kafka, topic) == []
        writer.write(good)
    assert committed(kafka, topic) == ["fine"]


def test_a_marker_topic_that_is_deleted_while_the_query_runs_is_named(kafka: EmbeddedKafka) -> None:
    topic = topic_of(kafka)
    with Writer(kafka.servers, topic) as writer:
        writer.write(values("a"))
        writer.sink._open_slot.quiet()  # the next epoch's producer has looked at the topics by now
        delete(kafka.servers, Names("orders", f"kafka:{topic}").topic)
        began = time.monotonic()
        with pytest.raises(DestinationError) as caught:
            writer.write(values("b"))
        assert time.monotonic() - began < _SOON
    assert caught.value.code == "E508"
    assert "marker topic" in str(caught.value)
    assert committed(kafka, topic) == ["a"]


@pytest.mark.parametrize("refilled", [0, 5])
def test_a_topic_made_anew_between_two_epochs_takes_none_of_the_next(kafka: EmbeddedKafka, refilled: int) -> None:
    topic = topic_of(kafka)
    with Writer(kafka.servers, topic) as writer:
        writer.write(values("a"))
        writer.sink._open_slot.quiet()
        delete(kafka.servers, topic)
        kafka.topic(topic)
        if refilled:
            with Writer(kafka.servers, topic, id="kafka:another") as other:
                other.write(values(*["foreign"] * refilled))
        with pytest.raises(IdentityError) as caught:
            writer.write(values("b"))
        assert caught.value.code == "E208"
    assert committed(kafka, topic) == ["foreign"] * refilled
