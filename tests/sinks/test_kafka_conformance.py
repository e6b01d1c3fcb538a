"""The Kafka sink passes the whole suite: with a topic of its own, and with topics that the rows name."""

import pytest
from tests.sinks.kafka_harness import KafkaHarness
from tests.sinks.variants import asked_for_what_it_changes

from onceonly.protocol import Peek
from onceonly_lab.conformance import SinkConformance
from onceonly_lab.conformance.scenario import Scenario
from onceonly_lab.servers.kafka import EmbeddedKafka


class TestOneTopic(SinkConformance):
    @pytest.fixture
    def harness(self, kafka: EmbeddedKafka) -> KafkaHarness:
        return KafkaHarness(kafka)


@asked_for_what_it_changes
class TestTopicsByColumn(SinkConformance):
    @pytest.fixture
    def harness(self, kafka: EmbeddedKafka) -> KafkaHarness:
        return KafkaHarness(kafka, by_column=True)

    def test_another_pipeline_sees_nothing_of_ours(self, harness: KafkaHarness) -> None:
        """Which topics there will be is not known before rows name them, so rows of others in them are not either."""
        with Scenario(harness) as story:
            first = story.driver(4).writes()
            other = story.stranger(1, "other", pipeline="conformance-other")
            assert other.sink.fence() is None
            position = other.fences()
            assert (position.marker, position.has_rows) == (None, False)
            story.holds(first)

    def test_a_look_shows_the_newest_marker(self, harness: KafkaHarness) -> None:
        """As above: to another pipeline, topics that no row has named hold nothing."""
        with Scenario(harness) as story:
            reader = story.reader()
            assert reader.look() == Peek(None, 0)
            driver = story.driver(1)
            driver.writes()
            newest = driver.marker(driver.writes().epoch)
            assert reader.look() == Peek(newest, newest.epoch.number)
            assert story.driver(2).sink.look().marker == newest
            assert story.stranger(1, "other", pipeline="conformance-other").sink.look() == Peek(None, 0)
