"""What a topic is complete through: by its marker topics, at any offsets, for one writer and for two."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.reading.writing import Writer, records_at

from onceonly.event_time import TimeReader
from onceonly.machine.writer_progress import WriterSet
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaSink

pytestmark = pytest.mark.kafka

_numbers = itertools.count(1)

BOTH = WriterSet(("web", "app"), 60)


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    """Of another name each time: marker topics are named after it and outlive a test."""
    return kafka.topic(f"clicks-{next(_numbers)}", 2)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def writer(stack: ExitStack, kafka: EmbeddedKafka, topic: str, name: str, writers: WriterSet | None = None) -> Writer:
    sink = KafkaSink(kafka.servers, topic)
    stack.callback(sink.close)
    return Writer(name, sink, writers, table=records_at)


def test_a_topic_says_at_the_offsets_of_each_epoch_what_was_complete(
    kafka: EmbeddedKafka, topic: str, stack: ExitStack
) -> None:
    web = writer(stack, kafka, topic, "web")
    receipts = [web.write(number, number, noted=number * 10) for number in (1, 2, 3)]
    reader = stack.enter_context(TimeReader("web", KafkaSink(kafka.servers, topic)))
    found = reader.time_window()
    assert (found.lower, found.upper) == (30, 30)
    for number, receipt in enumerate(receipts, start=1):
        end = str(receipt.at("end"))
        assert reader.time_window(end).lower == number * 10
        assert reader.time_window(json.loads(end)).lower == number * 10
    early = dict.fromkeys(json.loads(str(receipts[0].at("end")))[topic], 0)
    assert reader.time_window({topic: early}).lower is None


def test_a_peer_of_whom_the_named_writer_knows_is_found_in_its_own_marker_topic(
    kafka: EmbeddedKafka, topic: str, stack: ExitStack
) -> None:
    web, app = (writer(stack, kafka, topic, name, BOTH) for name in ("web", "app"))
    web.write(1, noted=100)
    app.write(2, noted=70, sees=[web])
    last = web.write(3, noted=110, sees=[app])
    app.write(4, noted=105, sees=[web])
    reader = stack.enter_context(TimeReader("web", KafkaSink(kafka.servers, topic)))
    found = reader.time_window()
    assert (found.lower, found.upper, [mark.writer for mark in found.held]) == (105, 110, ["app"])
    assert reader.time_window(str(last.at("end"))).lower == 70
