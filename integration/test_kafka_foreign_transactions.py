"""Where Kafka's own client is loaded, open transactions of strangers are not waited for; hidden ones of ours are."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.kafka_client import ends, producer, send
from tests.sinks.kafka_writer import Writer, values

from onceonly_lab.servers.kafka import EmbeddedKafka, temporary_kafka
from onceonly_lab.servers.kafkaproxy import Api, KafkaProxy
from onceonly_lab.servers.proxy import Act

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def wires() -> Iterator[tuple[KafkaProxy, KafkaProxy]]:
    with KafkaProxy() as clients, KafkaProxy() as inner:
        yield clients, inner


@pytest.fixture(scope="module")
def broker(wires: tuple[KafkaProxy, KafkaProxy]) -> Iterator[EmbeddedKafka]:
    with temporary_kafka(proxy=wires[0], internal_proxy=wires[1]) as broker:
        yield broker


@pytest.fixture
def foreign(broker: EmbeddedKafka) -> Iterator[Producer]:
    made = producer(broker.servers, f"somebody-{time.monotonic_ns()}")
    yield made
    made.abort_transaction(10)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_strangers_open_transaction_does_not_set_our_pace(broker: EmbeddedKafka, foreign: Producer) -> None:
    topic = broker.topic("shared")
    with Writer(broker.servers, topic) as writer:
        writer.write(values("a"))
        send(foreign, topic, "theirs")
        for value in ("b", "c", "d"):
            writer.write(values(value))  # whoever waits for theirs is refused with E514 in the end
        stable, end = ends(broker.servers, topic)
        assert stable < end  # their transaction is open still
        assert writer.sink.recount() is None
        foreign.commit_transaction(10)
        assert writer.sink.recount() == {1: 1, 2: 1, 3: 1, 4: 1, 0: 1}
    send(foreign, topic, "and open again")
    with Writer(broker.servers, topic, generation=2) as again:
        assert again.last is not None
        assert again.last.number == 4


@pytest.mark.slow
def test_an_end_of_our_own_that_is_delayed_is_waited_for(
    spark: SparkSession, broker: EmbeddedKafka, wires: tuple[KafkaProxy, KafkaProxy]
) -> None:
    topic = broker.topic("ours")
    with Writer(broker.servers, topic) as writer:
        prepared = writer.prepare(values("a"))
        delayed = wires[1].rule(Act.DELAY_REQUEST, Api.WRITE_TXN_MARKERS, delay_s=1.0, times=1)
        began = time.monotonic()
        writer.commit(prepared)
        assert delayed.hits
        assert time.monotonic() - began >= 1.0
        assert ends(broker.servers, topic)[0] == ends(broker.servers, topic)[1]
    wires[1].clear()
