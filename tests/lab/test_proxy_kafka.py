"""The proxy loses exactly the message it is told to lose, and the broker's state says on which side of the commit."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

import pytest
from confluent_kafka import KafkaException
from tests.kafka_client import committed, ends, producer, send

from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.kafkaproxy import Api, KafkaProxy, error_codes, with_code
from onceonly_lab.servers.proxy import Act, NotUnderstood

IMPATIENT = {"socket_timeout_ms": 500}
COMMIT_S = 0.6


@pytest.fixture
def broker(kafka: EmbeddedKafka) -> EmbeddedKafka:
    kafka.start()
    return kafka


@pytest.mark.parametrize(
    ("act", "landed"),
    [(Act.DROP_REQUEST, False), (Act.CUT_REQUEST, False), (Act.DROP_ANSWER, True), (Act.CUT_ANSWER, True)],
)
def test_a_lost_request_and_a_lost_answer_look_the_same_to_the_client_and_are_not(
    broker: EmbeddedKafka, wire: KafkaProxy, act: Act, landed: bool
) -> None:
    topic = broker.topic(f"lost-{act.name}")
    writer = producer(broker.proxied_servers, topic, **IMPATIENT)
    lost = wire.rule(act, Api.END_TXN, transactional_id=topic)
    send(writer, topic, "a")
    with pytest.raises(KafkaException) as caught:
        writer.commit_transaction(COMMIT_S)
    assert caught.value.args[0].name() == "_TIMED_OUT"
    lost.wait(30)  # the client goes on in the background: a busy machine may not have sent its request by now
    assert lost.hits
    assert all(request.committing and request.client_id == topic for request in lost.hits)
    if landed:
        assert committed(broker.servers, topic) == ["a"]
    else:
        assert ends(broker.servers, topic) == (0, 1)
        wire.remove(lost)
        writer.commit_transaction(10)
        assert committed(broker.servers, topic) == ["a"]


def test_a_rule_is_for_one_client_a_number_of_times_after_a_number_of_others(
    broker: EmbeddedKafka, wire: KafkaProxy
) -> None:
    topic = broker.topic("picky")
    rule = wire.rule(Act.PASS, Api.END_TXN, client_id="picky", skip=1, times=1)
    everything = wire.rule(Act.PASS, Api.PRODUCE, where=lambda request: request.version >= 3)
    for name in ("other", "picky"):
        writer = producer(broker.proxied_servers, name)
        for value in "abc":
            send(writer, topic, value)
            writer.commit_transaction(10)
    assert [request.client_id for request in rule.hits] == ["picky"]
    assert [request.transactional_id for request in everything.hits] == ["other"] * 3 + ["picky"] * 3


@pytest.mark.parametrize(
    ("api", "code", "asks_to_abort"),
    [
        (Api.END_TXN, 7, True),
        (Api.ADD_PARTITIONS_TO_TXN, 53, None),
        (Api.PRODUCE, 87, True),
        (Api.INIT_PRODUCER_ID, 53, None),
    ],
)
def test_an_answer_can_carry_another_error_code(
    broker: EmbeddedKafka, wire: KafkaProxy, api: Api, code: int, asks_to_abort: bool | None
) -> None:
    topic = broker.topic(f"code-{api.name}")
    replaced = wire.rule(Act.REPLACE_CODE, api, client_id=topic, code=code, times=1)

    def write() -> None:
        writer = producer(broker.proxied_servers, topic)
        writer.begin_transaction()
        writer.produce(topic, b"a")
        writer.commit_transaction(10)

    with pytest.raises(KafkaException) as caught:
        write()
    assert len(replaced.hits) == 1
    assert caught.value.args[0].code() == code
    assert asks_to_abort is None or caught.value.args[0].txn_requires_abort() is asks_to_abort
    if api is Api.END_TXN:
        # The client says that the transaction must be aborted; it is committed.
        assert committed(broker.servers, topic) == ["a"]


@pytest.mark.slow
def test_a_commit_that_comes_late_meets_the_next_transaction_only_if_its_producer_is_the_same(
    broker: EmbeddedKafka, wire: KafkaProxy
) -> None:
    topic = broker.topic("late")
    for next_one, code, visible in (("new", 47, ["a", "b"]), ("same", 0, ["a", "b", "c", "half"])):
        first = producer(broker.proxied_servers, topic, **IMPATIENT)
        held = wire.rule(Act.HOLD_REQUEST, Api.END_TXN, times=1)
        send(first, topic, "a" if next_one == "new" else "c")
        first.commit_transaction(10)  # its own second try lands
        second = producer(broker.proxied_servers, topic) if next_one == "new" else first
        send(second, topic, "b" if next_one == "new" else "half")
        assert held.release() == [code]
        if next_one == "new":
            second.commit_transaction(10)
        assert committed(broker.servers, topic) == visible


@pytest.mark.slow
def test_delays_hold_up_the_commit_and_nothing_else(broker: EmbeddedKafka, wire: KafkaProxy) -> None:
    topic = broker.topic("slow")
    writer = producer(broker.proxied_servers, topic)
    for act in (Act.DELAY_REQUEST, Act.DELAY_ANSWER):
        rule = wire.rule(act, Api.END_TXN, delay_s=0.4, times=1)
        send(writer, topic, act.name)
        began = time.monotonic()
        writer.commit_transaction(10)
        assert time.monotonic() - began >= 0.4
        rule.wait(5)
    assert committed(broker.servers, topic) == ["DELAY_REQUEST", "DELAY_ANSWER"]


def test_a_broker_can_be_killed_between_the_commit_and_its_answer(broker: EmbeddedKafka, wire: KafkaProxy) -> None:
    topic = broker.topic("killed")
    writer = producer(broker.proxied_servers, topic, **IMPATIENT)
    died = wire.rule(Act.CUT_ANSWER, Api.END_TXN, times=1, call=lambda request: broker.kill())
    send(writer, topic, "a")
    with pytest.raises(KafkaException):
        writer.commit_transaction(COMMIT_S)
    died.wait(10)
    assert not broker.running
    broker.start()
    assert committed(broker.servers, topic) == ["a"]


def test_a_proxy_can_refuse_connections_and_reset_those_that_are_open(broker: EmbeddedKafka, wire: KafkaProxy) -> None:
    with socket.create_connection(("127.0.0.1", wire.port), 5) as before:
        assert asked(before)
        wire.refusing = True
        try:
            wire.cut_all()
            assert not asked(before)
            with socket.create_connection(("127.0.0.1", wire.port), 5) as during:
                assert not asked(during)
        finally:
            wire.refusing = False
    with socket.create_connection(("127.0.0.1", wire.port), 5) as after:
        assert asked(after)


def asked(connection: socket.socket) -> bool:
    """Whether a question about API versions is answered."""
    question = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        connection.sendall(struct.pack(">i", len(question)) + question)
        return connection.recv(4) != b""
    except OSError:
        return False


def test_what_a_proxy_does_not_understand_fails_its_test() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = KafkaProxy(("127.0.0.1", server.getsockname()[1]))
        proxy.start()
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
            client.sendall(struct.pack(">i", 3) + b"???")
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        with pytest.raises(NotUnderstood) as caught:
            proxy.stop()
    assert [type(failure) for failure in caught.value.failures] == [struct.error]


# ---- where codes stand in answers


@pytest.mark.parametrize(
    ("api", "version", "answer"),
    [
        (Api.END_TXN, 1, struct.pack(">iih", 5, 0, 3)),
        (Api.END_TXN, 3, struct.pack(">ibih", 5, 0, 0, 3) + b"\0"),
        (Api.INIT_PRODUCER_ID, 4, struct.pack(">ibihqh", 5, 0, 0, 3, 1, 1) + b"\0"),
        (Api.ADD_PARTITIONS_TO_TXN, 0, struct.pack(">iiih1siih", 5, 0, 1, 1, b"t", 1, 0, 3)),
        (
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            struct.pack(">ibiBB1sBihBBB", 5, 0, 0, 2, 2, b"t", 2, 0, 3, 0, 0, 0),
        ),
        (Api.PRODUCE, 7, struct.pack(">iih1siihqqqi", 5, 1, 1, b"t", 1, 0, 3, 9, 9, 9, 0)),
        (
            Api.PRODUCE,
            9,
            struct.pack(">ibBB1sBihqqqBBBBiB", 5, 0, 2, 2, b"t", 2, 0, 3, 9, 9, 9, 1, 0, 0, 0, 0, 0),
        ),
    ],
)
def test_each_version_of_an_answer_gives_and_takes_its_code(api: Api, version: int, answer: bytes) -> None:
    assert error_codes(api, version, answer) == [3]
    changed = with_code(api, version, answer, 51)
    assert error_codes(api, version, changed) == [51]
    assert sum(a != b for a, b in zip(answer, changed, strict=True)) == 1


def test_a_code_cannot_be_replaced_where_its_place_is_unknown() -> None:
    with pytest.raises(ValueError, match="request 3"):
        with_code(Api.METADATA, 1, struct.pack(">ii", 5, 0), 51)
