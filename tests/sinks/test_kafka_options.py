"""The options of Spark's Kafka sink are mapped to the client's, or refused by name; no secret reaches an address."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from onceonly.errors import ConfigurationError
from onceonly_sinks.kafka import KafkaSink, KafkaTuning, consumer_options, reader_options
from onceonly_sinks.kafka.options import Options, environment_name

SERVERS = "localhost:9092"


def settings(**options: str) -> dict[str, str | bool]:
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    return Options.check(SERVERS, named).producer("id", 30)


def refusal(name: str, value: str = "x") -> str:
    with pytest.raises(ConfigurationError) as caught:
        Options.check(SERVERS, {name: value})
    assert caught.value.code == "E110"
    return str(caught.value)


def test_the_defaults_are_those_that_exactly_once_needs_and_javas_partitioner() -> None:
    found = settings()
    assert found["acks"] == "all"
    assert found["enable.idempotence"] == "true"
    assert found["partitioner"] == "murmur2_random"
    assert found["transactional.id"] == "id"


def test_the_client_takes_what_comes_out() -> None:
    Producer(settings(linger_ms="5", compression_type="zstd", max_request_size="2000000", buffer_memory="33554432"))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("linger.ms", "5", {"linger.ms": "5"}),
        ("max.request.size", "2000000", {"message.max.bytes": "2000000"}),
        ("buffer.memory", "33554432", {"queue.buffering.max.kbytes": "32768"}),
        ("delivery.timeout.ms", "1000", {"message.timeout.ms": "1000"}),
        ("acks", "-1", {"acks": "all"}),
        ("sasl.mechanism", "PLAIN", {"sasl.mechanisms": "PLAIN"}),
        ("ssl.endpoint.identification.algorithm", "", {"ssl.endpoint.identification.algorithm": "none"}),
        ("queue.buffering.max.messages", "5000", {"queue.buffering.max.messages": "5000"}),
    ],
)
def test_an_option_is_spelled_as_the_client_wants_it(name: str, value: str, expected: dict[str, str]) -> None:
    found = Options.check(SERVERS, {f"kafka.{name}": value}).producer("id", 30)
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    "name",
    [
        "transactional.id",
        "bootstrap.servers",
        "key.serializer",
        "value.serializer",
        "partitioner.class",
        "interceptor.classes",
        "max.block.ms",
        "ssl.truststore.password",
        "ssl.truststore.location",
        "ssl.keystore.location",
    ],
)
def test_what_cannot_be_set_is_refused_by_name(name: str) -> None:
    assert f"kafka.{name}" in refusal(f"kafka.{name}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "1"),
        ("enable.idempotence", "false"),
        ("max.in.flight.requests.per.connection", "6"),
        ("retries", "0"),
        ("transaction.timeout.ms", "10"),
        ("buffer.memory", "much"),
    ],
)
def test_a_value_that_would_break_the_promise_is_refused(name: str, value: str) -> None:
    assert f"kafka.{name}" in refusal(f"kafka.{name}", value)


def test_no_request_may_outlive_the_transaction() -> None:
    assert settings(transaction_timeout_ms="2000")["socket.timeout.ms"] == "2000"


def test_a_login_names_its_mechanism() -> None:
    assert '"kafka.sasl.mechanism": "PLAIN"' in refusal("kafka.security.protocol", "SASL_PLAINTEXT")
    said = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    assert KafkaSink("a:1", "orders", options=said)


def test_an_option_without_the_prefix_is_refused() -> None:
    assert "kafka.linger.ms" in refusal("linger.ms")


def test_stores_are_taken_in_the_forms_that_are_not_javas_own() -> None:
    given = {"kafka.ssl.truststore.location": "/ca.pem", "kafka.ssl.truststore.type": "PEM"}
    assert Options.check(SERVERS, given).settings == {"ssl.ca.location": "/ca.pem"}
    given = {"kafka.ssl.keystore.location": "/k.p12", "kafka.ssl.keystore.type": "PKCS12"}
    assert Options.check(SERVERS, given).settings == {"ssl.keystore.location": "/k.p12"}


def test_a_login_in_javas_form_is_understood() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="s\\"e;c";'
    found = Options.check(SERVERS, {"kafka.sasl.jaas.config": jaas}).settings
    assert found == {"sasl.username": "me", "sasl.password": 's"e;c'}
    assert "Kerberos" not in refusal("kafka.sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required;")


def test_secrets_come_from_the_environment_and_never_reach_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment_name("sasl.password"), "hunter2")
    given = {"kafka.sasl.username": "me", "kafka.ssl.key.password": "hunter3", "kafka.linger.ms": "5"}
    sink = KafkaSink(SERVERS, "orders", options=given)
    assert Options.check(SERVERS, given).settings["sasl.password"] == "hunter2"
    assert sink.address == "kafka:localhost:9092/orders?kafka.linger.ms=5&kafka.sasl.username=me"
    assert "hunter" not in repr(sink)


@pytest.mark.parametrize("topic", ["orders", None])
def test_an_address_finds_the_same_sink_again(topic: str | None) -> None:
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.client.id": "a&b=c"}
    sink = KafkaSink("a:1,b:2", topic, options=options, id="kafka:äö", tuning=KafkaTuning(marker_topic="onceonly.mine"))
    found = KafkaSink.from_address(sink.address)
    assert (found.id, found.address) == ("kafka:äö", sink.address)


@pytest.mark.parametrize("address", ["kafka:", "kafka:localhost", "kafka:localhost/orders?strange=1", "delta:/x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaSink.from_address(address)
    assert caught.value.code == "E110"


def test_servers_must_be_hosts_and_ports() -> None:
    with pytest.raises(ConfigurationError):
        KafkaSink("kafka://localhost:9092/x", "orders")


def test_readers_are_told_to_read_committed_records_only() -> None:
    assert reader_options(SERVERS, "orders")["kafka.isolation.level"] == "read_committed"
    assert consumer_options(SERVERS, "mine")["isolation.level"] == "read_committed"
