"""Translate errors of Kafka's client into refusals.

Error codes and flags decide, never an error's text. A producer that lost its transactional id reports it in four
shapes. They are ``_FENCED`` at a call, ``_FATAL`` at the next ``produce``, a bare broker code inside an exception, and
a ``SystemError``. The last hides the first when the client was running Python code. :func:`read` folds them into one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onceonly.errors import OnceOnlyError, mask, refuse
from onceonly.errors.options import misused
from onceonly_checkpoints.strenum import StrEnum


class Kind(StrEnum):
    """Possible reactions to a failure."""

    LOST = "lost"
    DENIED = "denied"
    UNREACHABLE = "unreachable"
    ROW = "row"
    ROOM = "room"
    NO_TOPIC = "no topic"
    TIMEOUT_TOO_LONG = "timeout too long"
    CONFIGURATION = "configuration"
    OTHER = "other"


_NAMES: Mapping[Kind, tuple[str, ...]] = {
    # The id is another's, or the coordinator ended our transaction: which of the two, only the markers tell.
    Kind.LOST: (
        # Also for a transaction that grew too old: the coordinator raises its epoch, which looks like another driver.
        "_FENCED",
        # What ``produce`` answers after that, with a flag that says it is not fatal.
        "_FATAL",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        # Behind this one, and behind TRANSACTION_ABORTABLE, a commit can stand that was carried out, while the client
        # asks for an abort: that is refused with INVALID_TXN_STATE, and the rows are there.
        "INVALID_PRODUCER_ID_MAPPING",
        "UNKNOWN_PRODUCER_ID",
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
        # Calls that do not fit what became of the transaction: after a refused record, and beside a commit whose answer
        # did not come in time.
        "_STATE",
        "_CONFLICT",
    ),
    # Wherever the login or a right is missing, asking again gives the same answer: an operator has to grant it.
    Kind.DENIED: (
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    # Asked again for as long as patience lasts (``Cluster.ask``); of a commit, none of these says what became of it.
    Kind.UNREACHABLE: (
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        # Byte for byte the same for a commit that never arrived and for one that was carried out and lost its answer.
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_RESOLVE",
        "_SSL",
        # An admin client that lived through a broker's restart knows no leaders any more, and does not recover: four of
        # four loops of 5 s asked in vain, and a new client answered.
        "_NOENT",
        "_WAIT_COORD",
        "NETWORK_EXCEPTION",
        "BROKER_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        # A new leader does not know its high watermark yet, and says so rather than giving an old one.
        "OFFSET_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        # The predecessor's transaction is being ended: after a lost request for its end that takes the brokers 30 s.
        "CONCURRENT_TRANSACTIONS",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    ),
    # One row, refused for good. Taken for a lost answer, it would stop every start with a commit that nobody knows of.
    Kind.ROW: (
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "_UNKNOWN_PARTITION",
    ),
    Kind.ROOM: ("KAFKA_STORAGE_ERROR", "POLICY_VIOLATION", "_QUEUE_FULL"),
    Kind.NO_TOPIC: ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION"),
    Kind.TIMEOUT_TOO_LONG: ("INVALID_TRANSACTION_TIMEOUT",),
    Kind.CONFIGURATION: ("_INVALID_ARG",),
}
_KINDS: Mapping[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names}

_GRANTS: Mapping[str, str] = {
    "TOPIC_AUTHORIZATION_FAILED": "grant READ and WRITE on the output topics; READ, WRITE, "
    "DESCRIBE_CONFIGS and CREATE on topics that begin with onceonly.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "grant WRITE and DESCRIBE on transactional ids that begin with onceonly",
    "GROUP_AUTHORIZATION_FAILED": "grant READ on the group onceonly",
    "CLUSTER_AUTHORIZATION_FAILED": "grant DESCRIBE on the cluster, or CREATE to have the marker topic made",
}
_CAUSES = {
    # Kept apart from a refused record, which it sounds like. The name of librdkafka for the broker's CORRUPT_MESSAGE.
    "INVALID_MSG": "bytes did not match their check sum at the broker: a fault of a network, a disk or memory"
}
_LOGIN = "correct kafka.sasl.* or kafka.ssl.* in options=, or ONCEONLY_KAFKA_SASL_PASSWORD"


@dataclass(frozen=True, slots=True)
class Failure:
    """Facts of a client's error, copied out of it.

    ``name`` is the code's name. ``reason`` is one line, without secrets. ``retriable`` is true if the same call may be
    repeated on the same instance.
    """

    kind: Kind
    name: str
    reason: str
    retriable: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """Facts for a message that the failure lacks.

    ``address`` has no secrets. A transaction may stay open for ``timeout`` seconds. ``keyless``: a sent row had no key.
    ``heard`` are the client's reports on connections while it had none. Its calls report only that it has none.
    """

    sink: str
    address: str = ""
    timeout: float = 0.0
    keyless: bool = False
    protocol: str = "PLAINTEXT"
    heard: list[str] = field(default_factory=list[str])

    def hear(self, report: str) -> None:
        """Keep the newest report. A mere disconnection replaces none."""
        # librdkafka reports a failed handshake also as a mere disconnection, in no fixed order.
        if not self.heard or ": Disconnected" not in report or " failed" in report:
            self.heard[:] = [report]


def kind_of(name: str, *, fatal: bool = False) -> Kind:
    """Kind of a code by its name. A fatal error of any name costs the producer its transaction."""
    return _KINDS.get(name, Kind.LOST if fatal else Kind.OTHER)


def read(error: BaseException | None) -> Failure | None:
    """Read a failure out of an exception of the client. ``None`` if it is none."""
    from confluent_kafka import KafkaError, KafkaException

    if isinstance(error, SystemError):
        # The client's own callback ran into a fatal error: what it hides is the cause, if anything. With a delivery
        # callback in Python every ``flush`` of a fenced producer ends so, and no code is to be had.
        return read(error.__cause__ or error.__context__) or Failure(Kind.LOST, "_FENCED", "the producer was fenced")
    kafka_error = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(kafka_error, KafkaError):
        return None if not isinstance(error, KafkaException) else Failure(Kind.OTHER, "UNKNOWN", mask(str(error)))
    name = str(kafka_error.name())
    reason = mask(f"{name}: {kafka_error.str()}".split("\n", 1)[0])
    return Failure(kind_of(name, fatal=bool(kafka_error.fatal())), name, reason, bool(kafka_error.retriable()))


def refusal(failure: Failure, context: Context) -> OnceOnlyError:
    """The error for a failure before or instead of a commit."""
    sink, reason = context.sink, failure.reason
    match failure.kind:
        case Kind.DENIED:
            return refuse("E502", sink=sink, reason=reason, next=_GRANTS.get(failure.name, _LOGIN))
        case Kind.UNREACHABLE:
            return _unreachable(failure, context)
        case Kind.ROW:
            return _row(failure, context)
        case Kind.ROOM:
            return refuse("E507", sink=sink, reason=reason)
        case Kind.TIMEOUT_TOO_LONG | Kind.CONFIGURATION:
            return _setting(failure, context)
        case Kind.NO_TOPIC:
            cause, next_ = "a topic was deleted", "create it again, then restart the query"
        case _:
            cause = _CAUSES.get(failure.name, f"the client's answer {failure.name}")
            next_ = "remove the cause, then restart the query"
    return refuse("E508", sink=sink, reason=reason, cause=cause, next=next_)


def _unreachable(failure: Failure, context: Context) -> OnceOnlyError:
    spoken = f"security.protocol={context.protocol}, a certificate or an advertised listener does not fit the brokers"
    return refuse(
        "E501",
        sink=context.sink,
        reason=": ".join((failure.reason, *map(mask, context.heard[-1:]))),
        address=context.address,
        because=f"the brokers are down, the address is wrong, the network is cut, or {spoken}",
        mend="start the brokers, or correct the address or kafka.security.protocol and kafka.ssl.* in options=",
    )


def _row(failure: Failure, context: Context) -> OnceOnlyError:
    cause, next_ = "the broker's or the topic's limits", "change the query or the topic, then restart the query"
    if failure.name in ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"):
        cause = "a row is larger than the producer or the topic takes"
        next_ = 'raise max.message.bytes of the topic and KafkaSink(..., options={"kafka.max.request.size": "..."})'
    if failure.name == "INVALID_RECORD":
        cause = "a check of the broker or the topic did not pass; the brokers' log names it"
    if failure.name == "INVALID_RECORD" and context.keyless:
        cause = "a row without a key goes to a topic with cleanup.policy=compact, which keeps rows by key"
        next_ = "give every row a key, or set cleanup.policy=delete on the topic, then restart the query"
    if failure.name == "INVALID_TIMESTAMP":
        cause = "the column timestamp is further from now than the topic takes"
        next_ = "correct the rows, or raise message.timestamp.before.max.ms (or after.max.ms) of the topic"
    if failure.name == "_UNKNOWN_PARTITION":
        cause = "the column partition names one that the topic does not have"
        next_ = "correct the column, or leave it out to have the key decide"
    return refuse("E517", sink=context.sink, reason=failure.reason, cause=cause, next=next_)


def _setting(failure: Failure, context: Context) -> OnceOnlyError:
    problem, next_ = f"{failure.reason}.", "correct options="
    cause = "options= holds a value that the Kafka client does not take"
    if failure.kind is Kind.TIMEOUT_TOO_LONG:
        timeout_ms = int(context.timeout * 1000)
        problem = f"kafka.transaction.timeout.ms={timeout_ms} is more than the brokers allow."
        cause = "the brokers' transaction.max.timeout.ms is lower"
        next_ = "lower kafka.transaction.timeout.ms in options=, or raise transaction.max.timeout.ms on the brokers"
    return misused(f"{context.sink}: {problem}", cause, next_)
