"""A failure of the client is read by its code and flags; the four shapes of a lost producer are one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceonly.errors import mask
from onceonly_sinks.kafka.errors import Context, Kind, read, refusal
from onceonly_sinks.kafka.transactions import lost

CONTEXT = Context("kafka:orders", "kafka:localhost:9092/orders", 300.0)


def failed(code: int, text: str = "said so", *, fatal: bool = False, retriable: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, text, fatal=fatal, retriable=retriable))


def hidden(cause: BaseException | None) -> SystemError:
    error = SystemError("<method 'name' of 'cimpl.KafkaError' objects> returned a result with an exception set")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        failed(KafkaError._FENCED, fatal=True),
        failed(KafkaError._FATAL),
        failed(KafkaError.INVALID_PRODUCER_EPOCH),
        failed(90),
        failed(49),
        failed(48, fatal=True),
        failed(53 + 1000, fatal=True),
        hidden(failed(KafkaError._FENCED, fatal=True)),
        hidden(None),
    ],
)
def test_a_lost_producer_is_recognised_in_each_of_its_shapes(error: Exception) -> None:
    assert lost(error)


@pytest.mark.parametrize(
    ("code", "kind", "printed"),
    [
        (KafkaError._TIMED_OUT, Kind.UNREACHABLE, "E501"),
        (KafkaError._ALL_BROKERS_DOWN, Kind.UNREACHABLE, "E501"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Kind.DENIED, "E502"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Kind.DENIED, "E502"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Kind.DENIED, "E502"),
        (KafkaError.MSG_SIZE_TOO_LARGE, Kind.ROW, "E517"),
        (KafkaError._UNKNOWN_PARTITION, Kind.ROW, "E517"),
        (KafkaError.KAFKA_STORAGE_ERROR, Kind.ROOM, "E507"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Kind.NO_TOPIC, "E508"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, Kind.TIMEOUT_TOO_LONG, "E110"),
        (KafkaError._INVALID_ARG, Kind.CONFIGURATION, "E110"),
        (KafkaError.INVALID_REPLICATION_FACTOR, Kind.OTHER, "E508"),
    ],
)
def test_a_code_becomes_one_error_with_what_to_do(code: int, kind: Kind, printed: str) -> None:
    failure = read(failed(code))
    assert failure is not None
    assert failure.kind is kind
    error = refusal(failure, CONTEXT)
    assert error.code == printed
    assert failure.name in str(error) or printed == "E110"
    assert error.remedy


def test_a_corrupted_record_is_not_blamed_on_a_missing_key() -> None:
    """librdkafka's INVALID_MSG is the broker's CORRUPT_MESSAGE: bytes that do not match their check sum."""
    failure = read(failed(KafkaError.INVALID_MSG))
    assert failure is not None
    told = str(refusal(failure, CONTEXT))
    assert "key" not in told
    assert "check sum" in told


@pytest.mark.parametrize("keyless", [True, False])
def test_a_refused_record_is_blamed_on_a_missing_key_only_where_a_row_has_none(keyless: bool) -> None:
    failure = read(failed(KafkaError.INVALID_RECORD))
    assert failure is not None
    told = str(refusal(failure, replace(CONTEXT, keyless=keyless)))
    assert ("cleanup.policy=compact" in told) is keyless


def test_a_missing_right_names_the_grant() -> None:
    failure = read(failed(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    assert failure is not None
    assert "transactional ids that begin with onceonly" in str(refusal(failure, CONTEXT))


def test_text_does_not_decide() -> None:
    failure = read(failed(KafkaError._TIMED_OUT, "Producer was fenced by a newer instance"))
    assert failure is not None
    assert failure.kind is Kind.UNREACHABLE


def test_an_error_that_is_not_the_clients_is_left_alone() -> None:
    assert read(ValueError("x")) is None
    assert not lost(OSError("x"))


def test_a_password_in_the_clients_text_is_masked() -> None:
    failure = read(failed(KafkaError._ALL_BROKERS_DOWN, "sasl://me:hunter2@host down"))
    assert failure is not None
    assert "hunter2" not in failure.reason
    assert mask(failure.reason) == failure.reason


def test_a_report_of_a_failed_handshake_outlives_those_of_mere_disconnections() -> None:
    context, broker = Context("kafka:orders"), "ssl://127.0.0.1:9092/bootstrap: "
    vague, cause = (
        f"{broker}Disconnected: closed by peer",
        f"{broker}SSL handshake failed: Disconnected: closed by peer",
    )
    heard: list[list[str]] = []
    for report in (vague, cause, vague, f"{broker}Connection refused"):
        context.hear(report)
        heard.append([*context.heard])
    assert heard == [[vague], [cause], [cause], [f"{broker}Connection refused"]]
