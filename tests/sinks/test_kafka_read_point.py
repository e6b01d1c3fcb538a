"""A topic read up to the offsets of a read point holds the rows of its epoch and of those before, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.several import Pipeline, rows
from tests.sinks.kafka_harness import PARTITIONS, as_records, messages

from onceonly.protocol import Sink
from onceonly.reading import read_point
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaSink

pytestmark = pytest.mark.kafka


class WithTopic(Pipeline):
    """A topic and a memory sink."""

    def __init__(self, root: Path, kafka: EmbeddedKafka) -> None:
        super().__init__(root, ("b",))
        self.servers, self.topic = kafka.servers, kafka.topic("read-at-a-point", PARTITIONS)

    def sinks(self) -> list[Sink]:  # type: ignore[override]
        return [KafkaSink(self.servers, self.topic, id="kafka:target"), *super().sinks()]

    def up_to(self, epoch: int) -> list[int]:
        """Ids of the records below the offsets of an epoch's read point."""
        receipt = read_point("orders", epoch, ledger=self.ledger)["kafka:target"]
        ends = json.loads(str(receipt.at("end")))[self.topic]
        found = messages(self.servers, self.topic)
        return sorted(json.loads(one.value())["id"] for one in found if one.offset() < ends[str(one.partition())])


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[WithTopic]:
    made = WithTopic(tmp_path, kafka)
    yield made
    made.ledger.close()


def test_a_topic_is_read_at_the_point_of_each_epoch(pipeline: WithTopic) -> None:
    driver = pipeline.driver()
    for number in (1, 2, 3):
        driver.writes(number, table=as_records(rows(number)))
    for sink in driver.sinks:
        sink.close()
    for epoch in (1, 2, 3):
        assert pipeline.up_to(epoch) == list(range(10 * epoch))
