"""What the doctor finds in a real broker: topics that forget, and transactions that may not last as long as epochs."""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from onceonly.cli.doctor_checks import destination
from onceonly.doctor import UNOBSERVED, Check, Observed, State
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaSink, KafkaTuning
from onceonly_sinks.kafka.health import ClusterFacts, TopicFacts, judge
from onceonly_sinks.kafka.markers import MarkerScope

pytestmark = pytest.mark.kafka

_numbers = itertools.count(1)
_SECONDS = 60.0


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    return kafka.topic(f"examined-{next(_numbers)}")


def found(sink: KafkaSink, observed: Observed = UNOBSERVED) -> dict[str, Check]:
    """What was found, without what is true of every cluster of one broker."""
    checks = [check for check in destination(sink.address, "orders", observed) if check.code]
    assert all(check.state is State.HINT for check in checks if check.code == "D103")
    return {check.code: check for check in checks if check.code != "D103"}


def make(kafka: EmbeddedKafka, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(_SECONDS)


def test_a_topic_that_is_fit_has_nothing_found(kafka: EmbeddedKafka, topic: str) -> None:
    assert found(KafkaSink(kafka.servers, topic), Observed(9, 20.0)) == {}


def test_a_transaction_timeout_below_what_epochs_took_is_found(kafka: EmbeddedKafka, topic: str) -> None:
    sink = KafkaSink(kafka.servers, topic, options={"kafka.transaction.timeout.ms": "30000"})
    check = found(sink, Observed(9, 45.0))["D101"]
    assert check.state is State.PROBLEM
    assert "up to 45 s; the brokers end one after 30 s" in check.message
    assert "transaction.timeout.ms to 180000" in check.remedy
    assert "brokers is 900000" in check.remedy
    wider = KafkaSink(kafka.servers, topic, options={"kafka.transaction.timeout.ms": "180000"})
    assert found(wider, Observed(9, 45.0)) == {}


def test_a_marker_topic_that_forgets_is_found(kafka: EmbeddedKafka, topic: str) -> None:
    marker = MarkerScope("orders", f"kafka:{topic}").topic
    make(kafka, marker, cleanup_policy="delete")
    check = found(KafkaSink(kafka.servers, topic))["D102"]
    assert "cleanup.policy=delete" in check.message
    assert f"--topic {marker} --add-config cleanup.policy=compact" in check.remedy


def test_a_marker_topic_without_one_order_is_found(kafka: EmbeddedKafka, topic: str) -> None:
    make(kafka, f"{topic}-markers", 2, cleanup_policy="compact")
    check = found(KafkaSink(kafka.servers, topic, tuning=KafkaTuning(marker_topic=f"{topic}-markers")))["D102"]
    assert "2 partitions" in check.message


def test_a_topic_whose_leader_may_lack_rows_is_found(kafka: EmbeddedKafka, topic: str) -> None:
    entry = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(_SECONDS)
    assert found(KafkaSink(kafka.servers, topic)).keys() == {"D105"}


@pytest.mark.parametrize(
    ("brokers", "replicas", "least", "expected"),
    [
        (1, 1, "1", [("D103", State.HINT)]),
        (3, 1, "1", [("D103", State.PROBLEM)]),
        (3, 3, "1", [("D104", State.PROBLEM)]),
        (3, 3, "2", []),
    ],
)
def test_a_row_that_one_broker_alone_can_hold_is_told(brokers: int, replicas: int, least: str, expected) -> None:
    """On facts: a broker alone has no replicas to lack."""
    topic = TopicFacts("orders", 4, replicas, {"cleanup.policy": "delete", "min.insync.replicas": least})
    facts = ClusterFacts("one:9092", brokers, 300.0, 900.0, "markers", "orders", (topic,))
    assert [(check.code, check.state) for check in judge("kafka:orders", facts, UNOBSERVED) if check.code] == expected
