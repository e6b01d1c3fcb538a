"""What the Kafka sink does when answers are lost, transactions end without it, and commits stay hidden."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.kafka_client import ends
from tests.sinks.kafka_harness import messages
from tests.sinks.kafka_harness import values as committed_values
from tests.sinks.kafka_writer import PIPELINE, Writer, values

from onceonly.errors import DestinationError, FencedOut, IdentityError
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.kafkaproxy import Api, KafkaProxy
from onceonly_lab.servers.proxy import Act
from onceonly_sinks.kafka import KafkaSink, KafkaTuning
from onceonly_sinks.kafka.cluster import End
from onceonly_sinks.kafka.marker_reader import TopicEnd
from onceonly_sinks.kafka.markers import MarkerScope as Names

_numbers = itertools.count(1)
QUICK = {"tuning": KafkaTuning(answer_timeout=2.5, hidden_timeout=2.5)}


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    return kafka.topic(f"outcome-{next(_numbers)}")


def committed(kafka: EmbeddedKafka, topic: str) -> list[str]:
    return [value.decode() for value in committed_values(kafka.servers, topic, 1)]


def transactional_id(topic: str) -> str:
    return Names(PIPELINE, f"kafka:{topic}").transactional_id


class SlowBatch(ArrowBatch):
    """Rows of which the second part comes after something has happened."""

    def __init__(self, *parts: pa.Table, between: Any) -> None:
        super().__init__(pa.concat_tables(parts))
        self._parts, self._between = parts, between

    def arrow(self) -> Iterator[pa.RecordBatch]:
        for number, part in enumerate(self._parts):
            if number:
                self._between()
            yield from part.to_batches()


# ---- lost answers


def test_a_commit_whose_answer_is_lost_is_there_once(kafka: EmbeddedKafka, wire: KafkaProxy, topic: str) -> None:
    with Writer(kafka.proxied_servers, topic, **QUICK) as writer:
        prepared = writer.prepare(values("a", "b"))
        lost = wire.rule(Act.DROP_ANSWER, Api.END_TXN, transactional_id=transactional_id(topic))
        with pytest.raises(OutcomeUnknown):
            writer.commit(prepared)
        wire.remove(lost)
        assert lost.hits
        receipt = writer.looks_up(2)
        assert receipt is not None
        assert [receipt] == [found for _, found in writer.sink.history()]
        writer.write(values("c"))
    assert committed(kafka, topic) == ["a", "b", "c"]


def test_a_commit_that_never_arrived_is_absent_and_written_once(
    kafka: EmbeddedKafka, wire: KafkaProxy, topic: str
) -> None:
    with Writer(kafka.proxied_servers, topic, **QUICK) as writer:
        prepared = writer.prepare(values("a", "b"))
        lost = wire.rule(Act.CUT_REQUEST, Api.END_TXN, transactional_id=transactional_id(topic))
        with pytest.raises(OutcomeUnknown):
            writer.commit(prepared)
        prepared.abandon()
        wire.remove(lost)
        assert lost.hits
        assert writer.looks_up(2) is None
        writer.write(values("a", "b"))
    assert committed(kafka, topic) == ["a", "b"]


@pytest.mark.parametrize("code", [-1, 7, 49, 120])
def test_an_error_that_asks_for_an_abort_can_belong_to_a_commit(
    kafka: EmbeddedKafka, wire: KafkaProxy, topic: str, code: int
) -> None:
    with Writer(kafka.proxied_servers, topic, **QUICK) as writer:
        prepared = writer.prepare(values("a"))
        id_ = transactional_id(topic)
        lied = wire.rule(Act.REPLACE_CODE, Api.END_TXN, transactional_id=id_, code=code, times=1)
        with pytest.raises(OutcomeUnknown):
            writer.commit(prepared)
        aborted = wire.rule(Act.PASS, Api.END_TXN, where=lambda request: request.committing is False)
        prepared.abandon()
        assert writer.looks_up(1) is not None
        assert lied.hits
        assert not aborted.hits
    assert committed(kafka, topic) == ["a"]


def test_a_late_commit_of_the_epoch_before_changes_nothing(kafka: EmbeddedKafka, wire: KafkaProxy, topic: str) -> None:
    with Writer(kafka.proxied_servers, topic, **QUICK) as writer:
        prepared = writer.prepare(values("a"))
        held = wire.rule(Act.HOLD_REQUEST, Api.END_TXN, transactional_id=transactional_id(topic), times=1)
        with pytest.raises(OutcomeUnknown):
            writer.commit(prepared)
        assert writer.looks_up(1) is None
        again = writer.prepare(values("a", "b"))
        assert held.release() == [47]
        assert committed(kafka, topic) == []
        writer.commit(again)
    assert committed(kafka, topic) == ["a", "b"]


def test_a_claim_whose_answer_is_lost_is_found_by_the_next_round(
    kafka: EmbeddedKafka, wire: KafkaProxy, topic: str
) -> None:
    with Writer(kafka.servers, topic) as writer:
        writer.write(values("a"))
    lost = wire.rule(Act.CUT_ANSWER, Api.END_TXN, transactional_id=transactional_id(topic), times=1)
    with Writer(kafka.proxied_servers, topic, generation=2, **QUICK) as writer:
        assert lost.hits
        assert writer.position().fence == writer.fence
        writer.write(values("b"))
    assert committed(kafka, topic) == ["a", "b"]


# ---- transactions that end without their driver


@pytest.mark.slow
def test_an_epoch_longer_than_a_transaction_may_stay_open_is_refused_with_the_setting(
    kafka: EmbeddedKafka, topic: str
) -> None:
    options = {"kafka.transaction.timeout.ms": "1000"}
    with Writer(kafka.servers, topic, options=options) as writer:

        def outlives_the_transaction() -> None:
            wait_until_decided(kafka, topic, beyond=0)

        with pytest.raises(DestinationError) as caught:
            writer.write(SlowBatch(values("a"), values("b"), between=outlives_the_transaction))
        assert caught.value.code == "E513"
        assert "kafka.transaction.timeout.ms" in caught.value.remedy
        writer.write(values("a", "b"))
    assert committed(kafka, topic) == ["a", "b"]


def wait_until_decided(kafka: EmbeddedKafka, topic: str, beyond: int) -> None:
    """Wait until something was written, and whatever transaction it belongs to was ended by the broker."""
    while True:
        stable, end = ends(kafka.servers, topic)
        if stable == end > beyond:
            return


def test_a_zombie_that_fences_again_costs_the_living_driver_one_repetition(kafka: EmbeddedKafka, topic: str) -> None:
    with (
        Writer(kafka.servers, topic, generation=1, **QUICK) as zombie,
        Writer(kafka.servers, topic, 2, **QUICK) as live,
    ):
        prepared = live.prepare(values("a"))
        # What a zombie does that looked before the living driver's claim, and fences after it.
        zombie.sink._on.stand().transaction.drop()
        with pytest.raises(OutcomeUnknown):
            live.commit(prepared)
        prepared.abandon()
        assert live.looks_up(1) is None
        live.write(values("a"))
        zombie.sink._open_slot.forget()
        with pytest.raises(FencedOut):
            zombie.prepare(values("z"))
        with pytest.raises(Superseded):
            zombie.position()
    assert committed(kafka, topic) == ["a"]


@pytest.mark.parametrize("texts", [("a",), ()])
def test_a_producer_fenced_in_vain_before_its_first_row_costs_nothing(
    kafka: EmbeddedKafka, topic: str, texts: tuple[str, ...]
) -> None:
    with Writer(kafka.servers, topic) as live:
        live.position()
        live.sink._on.stand().transaction.drop()
        live.write(values(*texts))
    assert committed(kafka, topic) == list(texts)


def test_a_lower_generation_does_not_disturb_a_living_transaction(kafka: EmbeddedKafka, topic: str) -> None:
    with Writer(kafka.servers, topic, generation=5) as live:
        prepared = live.prepare(values("a"))
        late = KafkaSink(kafka.servers, topic)
        late.open(PIPELINE)
        with pytest.raises(Superseded):
            late.install(Fence(4, "late"))
        late.close()
        live.commit(prepared)
    assert committed(kafka, topic) == ["a"]


# ---- commits that stay hidden


def test_a_commit_whose_end_is_delayed_is_waited_for(kafka: EmbeddedKafka, inner_wire: KafkaProxy, topic: str) -> None:
    with Writer(kafka.servers, topic) as writer:
        prepared = writer.prepare(values("a"))
        delayed = inner_wire.rule(Act.DELAY_REQUEST, Api.WRITE_TXN_MARKERS, delay_s=0.5, times=1)
        writer.commit(prepared)
        assert delayed.hits
        assert ends(kafka.servers, topic)[0] == ends(kafka.servers, topic)[1]
    assert committed(kafka, topic) == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "told"), [(0.8, []), (4.0, ["WARNING"])])
def test_a_wait_for_an_open_transaction_is_told_once_and_nobody_is_named_where_nobody_can_tell(
    kafka: EmbeddedKafka, topic: str, caplog: pytest.LogCaptureFixture, seconds: float, told: list[str]
) -> None:
    stranger = Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"stranger-{topic}", "log_level": 0})
    stranger.init_transactions(10)
    stranger.begin_transaction()
    stranger.produce(topic, b"open")
    stranger.flush(10)
    with caplog.at_level(logging.INFO), pytest.raises(DestinationError, match="E514"):
        Writer(kafka.servers, topic, answer_timeout=10.0, hidden_timeout=seconds)
    stranger.abort_transaction(10)
    waits = [record for record in caplog.records if record.name == "onceonly_sinks.kafka.marker_reader"]
    assert [record.levelname for record in waits] == told, caplog.text
    assert all(topic in record.getMessage() for record in waits)
    assert all("their writers are not known here" in record.getMessage() for record in waits)


@pytest.mark.slow
def test_a_commit_that_hangs_hidden_is_refused_not_written_again(kafka: EmbeddedKafka, inner_wire: KafkaProxy) -> None:
    for _ in range(6):
        topic = kafka.topic(f"hanging-{next(_numbers)}")
        if hangs_after_a_naive_restart(kafka, inner_wire, topic):
            break
    else:
        pytest.fail("six restarts, and each time the end of the transaction was written")
    before = ends(kafka.servers, topic)
    with pytest.raises(DestinationError) as caught:
        Writer(kafka.servers, topic, generation=2, answer_timeout=10.0, hidden_timeout=1.0)
    assert caught.value.code == "E514"
    assert "find-hanging" in caught.value.remedy
    assert ends(kafka.servers, topic) == before


def hangs_after_a_naive_restart(kafka: EmbeddedKafka, inner_wire: KafkaProxy, topic: str) -> bool:
    """Commit an epoch, lose its end in the broker, and say whether that is for good."""
    with Writer(kafka.servers, topic, answer_timeout=5.0, hidden_timeout=0.2) as writer:
        prepared = writer.prepare(values("a"))
        held = inner_wire.rule(Act.DROP_REQUEST, Api.WRITE_TXN_MARKERS)
        with pytest.raises(OutcomeUnknown):
            writer.commit(prepared)
        assert held.hits
        kafka.kill()
    inner_wire.clear()
    kafka.start(settle=False)
    stable, end = ends(kafka.servers, topic)
    return stable < end


# ---- a queue that is full


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_rows_beyond_what_the_client_queues_wait_for_room_and_keep_their_order(
    kafka: EmbeddedKafka, topic: str, keyed: bool
) -> None:
    rows = [str(number) for number in range(5_000)]
    table = pa.table({"value": rows, **({"key": rows} if keyed else {})})
    with Writer(kafka.servers, topic, options={"kafka.queue.buffering.max.messages": "64"}) as writer:
        writer.write(table)
        assert committed(kafka, topic) == rows


# ---- what is remembered of the marker topic

FETCH = 1


def test_after_our_own_commit_nothing_is_read_again(kafka: EmbeddedKafka, wire: KafkaProxy, topic: str) -> None:
    with Writer(kafka.proxied_servers, topic) as writer:
        writer.write(values("a"))
        writer.sink._open_slot.quiet()
        read = wire.rule(Act.PASS, FETCH)
        for text in "bcd":
            writer.write(values(text))
        writer.sink._open_slot.quiet()
        assert not read.hits
        assert [marker.epoch.number for marker, _ in writer.sink.history()] == [1, 2, 3, 4]
        assert read.hits
    assert committed(kafka, topic) == ["a", "b", "c", "d"]


def test_what_another_driver_wrote_after_our_commit_is_read(kafka: EmbeddedKafka, topic: str) -> None:
    with Writer(kafka.servers, topic, generation=1) as zombie:
        zombie.write(values("a"))
        zombie.sink._open_slot.quiet()
        with Writer(kafka.servers, topic, generation=2) as live:
            live.write(values("b"))
            with pytest.raises(Superseded):
                zombie.looks_up(1)
    assert committed(kafka, topic) == ["a", "b"]


def test_a_marker_topic_made_anew_and_grown_as_long_is_not_taken_for_the_old_one(
    kafka: EmbeddedKafka, topic: str
) -> None:
    with Writer(kafka.servers, topic) as writer:
        writer.write(values("a"))
        writer.sink._open_slot.forget()
        markers = writer.sink._on.marker_topic
        _, end = ends(kafka.servers, markers)
        anew(kafka, markers, {"cleanup.policy": "compact"})
        other = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
        for _ in range(end):
            other.produce(markers, b"{}", b"not ours")
        assert other.flush(10) == 0
        assert ends(kafka.servers, markers) == (end, end)
        with pytest.raises(DestinationError) as caught:
            writer.looks_up(1)
        assert caught.value.code == "E508"


@pytest.mark.parametrize(
    ("end", "known"),
    [
        (End(7, 7, 3), True),
        (End(8, 8, 3), False),  # more came than our record and the mark of its end
        (End(6, 6, 3), False),
        (End(7, 7, 4), False),  # another leader may have another log
        (End(7, 7, -1), False),
    ],
)
def test_a_record_is_remembered_only_where_nothing_else_can_lie_above_the_last_look(end: End, *, known: bool) -> None:
    assert (TopicEnd("id", 3, 5).followed_by(end) is not None) is known


# ---- the target


def test_headers_partitions_and_times_arrive(kafka: EmbeddedKafka) -> None:
    # Kept for ever: retention goes by the records' own times, and these are old.
    topic = kafka.topic(f"outcome-{next(_numbers)}", 3, {"retention.ms": "-1"})
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.table(
        {
            "value": pa.array(["a", None], pa.string()),
            "key": pa.array(["k", None], pa.string()),
            "partition": pa.array([2, 1], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None], kind),
            "timestamp": pa.array([1_700_000_000_000, 1_700_000_000_001], pa.timestamp("ms", "UTC")),
        }
    )
    with Writer(kafka.servers, topic) as writer:
        assert writer.write(rows).at("end") == f'{{"{topic}":{{"0":0,"1":1,"2":1}}}}'
    first, second = sorted(messages(kafka.servers, topic), key=lambda message: -message.partition())
    assert (first.partition(), first.key(), first.value(), first.headers()) == (
        2,
        b"k",
        b"a",
        [("h", b"1"), ("h", None)],
    )
    assert (second.partition(), second.key(), second.value(), second.headers()) == (1, None, None, None)
    assert [message.timestamp()[1] for message in (first, second)] == [1_700_000_000_000, 1_700_000_000_001]


def test_rows_may_name_topics_that_were_not_seen_before(kafka: EmbeddedKafka) -> None:
    topics = [kafka.topic(f"outcome-{next(_numbers)}") for _ in range(2)]
    with Writer(kafka.servers, None, id=f"kafka:{topics[0]}") as writer:
        for topic in topics:
            writer.write(pa.table({"value": ["x", "y"], "topic": [topic, topic]}))
        assert writer.sink.recount() == {1: 2, 2: 2}
        with pytest.raises(DestinationError, match="there is no topic nowhere") as caught:
            writer.write(pa.table({"value": ["x"], "topic": ["nowhere"]}))
        assert caught.value.code == "E508"
    assert [committed(kafka, topic) for topic in topics] == [["x", "y"], ["x", "y"]]


def test_rows_of_others_between_epochs_are_counted_as_nobodys(kafka: EmbeddedKafka, topic: str) -> None:
    with Writer(kafka.servers, topic) as writer:
        writer.write(values("a", "b"))
        other = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
        other.produce(topic, b"other")
        assert other.flush(10) == 0
        writer.write(values("c"))
        assert writer.sink.recount() == {1: 2, 0: 1, 2: 1}


def test_a_topic_that_was_made_anew_is_noticed(kafka: EmbeddedKafka, topic: str) -> None:
    with Writer(kafka.servers, topic) as writer:
        receipt = writer.write(values("a", "b"))
        prepared = writer.prepare(values("c"))
        prepared.abandon()
        anew(kafka, topic)
        assert [event.kind for event in writer.sink.external_changes(receipt)] == ["recreated"]
        with pytest.raises(IdentityError) as caught:
            writer.write(values("c"))
        assert caught.value.code == "E208"
        position = writer.position(receipt)
        assert position.identity != receipt.identity
        assert [event.fatal for event in position.disturbances] == [True]


def anew(kafka: EmbeddedKafka, topic: str, settings: dict[str, str] | None = None) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(10)
    while topic in admin.list_topics(timeout=10).topics:
        pass
    kafka.topic(topic, 1, settings or {})


def test_a_missing_topic_is_refused_with_the_command_that_makes_it(kafka: EmbeddedKafka) -> None:
    with pytest.raises(DestinationError) as caught:
        KafkaSink(kafka.servers, "nowhere").open(PIPELINE)
    assert caught.value.code == "E508"
    assert "--create --topic nowhere" in caught.value.remedy


@pytest.mark.parametrize(
    ("partitions", "policy", "named"), [(1, "delete", "cleanup.policy=delete"), (2, "compact", "2 partitions")]
)
def test_a_marker_topic_that_would_forget_is_refused(
    kafka: EmbeddedKafka, topic: str, partitions: int, policy: str, named: str
) -> None:
    markers = kafka.topic(f"{topic}-markers", partitions, {"cleanup.policy": policy})
    with pytest.raises(DestinationError, match=named) as caught:
        Writer(kafka.servers, topic, marker_topic=markers)
    assert caught.value.code == "E508"


def test_the_marker_topic_is_compacted_and_of_one_partition(kafka: EmbeddedKafka, topic: str) -> None:
    with Writer(kafka.servers, topic) as writer:
        destination = writer.sink._on
        assert destination.cluster.policy(destination.marker_topic) == {"compact"}
        assert destination.cluster.topics([destination.marker_topic])[destination.marker_topic].partitions == (0,)


def test_a_timeout_that_the_brokers_do_not_allow_is_refused_by_name(kafka: EmbeddedKafka, topic: str) -> None:
    from onceonly.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match=r"transaction\.max\.timeout\.ms"):
        Writer(kafka.servers, topic, options={"kafka.transaction.timeout.ms": "3600000"})


def test_a_row_that_is_too_large_fails_the_epoch(kafka: EmbeddedKafka, topic: str) -> None:
    with Writer(kafka.servers, topic) as writer:
        with pytest.raises(DestinationError) as caught:
            writer.write(values("x" * 2_000_000))
        assert caught.value.code == "E517"
        writer.write(values("a"))
    assert committed(kafka, topic) == ["a"]


def test_nobody_there_is_said_within_the_patience() -> None:
    with pytest.raises(DestinationError) as caught:
        KafkaSink("127.0.0.1:1", "orders", tuning=KafkaTuning(answer_timeout=1.0)).open(PIPELINE)
    assert caught.value.code == "E501"
    assert "127.0.0.1:1 failed: Connection refused" in caught.value.what


_SASL = ("SASL_PLAINTEXT", "SASL_SSL")


@pytest.mark.parametrize("protocol", ["SSL", *(pytest.param(one, marks=pytest.mark.slow) for one in _SASL)])
def test_a_listener_that_speaks_another_protocol_is_told_in_the_clients_own_words(
    kafka: EmbeddedKafka, topic: str, protocol: str
) -> None:
    options = {"kafka.security.protocol": protocol}
    if protocol.startswith("SASL"):
        options |= {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "me", "kafka.sasl.password": "s3cr3t"}
    words = "SSL handshake failed" if protocol.endswith("SSL") else "SASL PLAIN mechanism handshake failed"
    for patience in (5.0, 60.0):  # what the client says has to come within: on a busy machine it takes longer
        with pytest.raises(DestinationError) as caught:
            KafkaSink(kafka.servers, topic, options=options, tuning=KafkaTuning(answer_timeout=patience)).open(PIPELINE)
        said = str(caught.value)
        if words in said:
            break
    assert words in said
    assert f"security.protocol={protocol}" in said
    assert "s3cr3t" not in said
    KafkaSink(kafka.servers, topic, options={"kafka.security.protocol": "PLAINTEXT"}).open(PIPELINE)
