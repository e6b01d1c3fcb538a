"""A real Kafka broker on this machine without a container, for tests, the demo and the fault lab."""

from onceonly_lab.kafka.broker import EmbeddedKafka, KafkaDidNotStart
from onceonly_lab.kafka.properties import SETTINGS
from onceonly_lab.kafka.temporary import temporary_kafka

__all__ = ["SETTINGS", "EmbeddedKafka", "KafkaDidNotStart", "temporary_kafka"]
