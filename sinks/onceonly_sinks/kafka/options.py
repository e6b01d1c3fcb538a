"""Translate Kafka options for librdkafka, and build the sink's address.

The address holds no secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote

from onceonly.errors.options import Bytes, Seconds, Typed, checks_arguments, misused, read_texts, unfit

if TYPE_CHECKING:
    from typing_extensions import Self


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KafkaTuning(Typed):
    """How rows reach a Kafka sink, where its markers are, its waits.

    Attributes:
        marker_topic: topic of the markers. ``None``: one of the sink's own, whose name begins with ``onceonly.``.
        answer_timeout: seconds that one answer of the brokers may take.
        hidden_timeout: seconds to wait for a transaction whose end is hidden, before the sink refuses to write.
            ``None``: as long as the brokers let any transaction stay open. The sink skips open transactions of other
            producers if Spark has Kafka's package loaded and the brokers ask for no login. Only Spark's client can tell
            them apart.
        load: ``driver`` or ``executors`` for all epochs. ``auto`` decides by ``driver_limit``, and takes the driver
            where tasks cannot send.
        driver_limit: bytes in Arrow form that go through the driver.

    Raises:
        ConfigurationError: E110, a value without meaning.
    """

    marker_topic: str | None = None
    answer_timeout: Seconds = 30.0
    hidden_timeout: Seconds | None = None
    load: Literal["auto", "driver", "executors"] = "auto"
    driver_limit: Bytes = 4 * 1024 * 1024


TUNING = KafkaTuning()

_unfit = partial(unfit, "KafkaSink")

# ---- The options of Spark's own sink, as the client underneath spells them.
#
# Spark takes the settings of the Java producer, with the prefix ``kafka.``. The client here is librdkafka: most names
# are the same, some are spelled otherwise, some have no equivalent and are refused by name. What exactly-once rests
# on cannot be set.

PREFIX = "kafka."
TRANSACTION_TIMEOUT_MS = 300_000
"""How long a transaction may stay open: longer than an epoch takes, shorter than readers may have to wait for one."""

SECRETS = frozenset(
    {"sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password", "sasl.oauthbearer.client.secret"}
)
"""Settings of the client that never leave the process in words; each may come from the environment instead."""

_DEFAULTS: Mapping[str, str] = {
    "client.id": "onceonly",
    "linger.ms": "20",
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "262144",
    "socket.timeout.ms": "10000",
    "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
}
_FORCED: Mapping[str, str] = {"acks": "all", "enable.idempotence": "true"}

_RENAMED: Mapping[str, str] = {
    "max.request.size": "message.max.bytes",
    "delivery.timeout.ms": "message.timeout.ms",
    "sasl.mechanism": "sasl.mechanisms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
}
_ONLY: Mapping[str, tuple[frozenset[str], str]] = {
    "acks": (frozenset({"all", "-1"}), "an epoch that one broker holds alone can be lost with it"),
    "request.required.acks": (frozenset({"all", "-1"}), "an epoch that one broker holds alone can be lost with it"),
    "enable.idempotence": (frozenset({"true"}), "a transaction needs an idempotent producer"),
    "delivery.report.only.error": (frozenset({"true"}), "no Python code runs per row"),
}
_REFUSED: Mapping[str, tuple[str, str]] = {
    "bootstrap.servers": ("the brokers are the sink's first argument", "KafkaSink('host:9092', topic=...)"),
    "transactional.id": (
        "the sink's own id fences older drivers out, so it follows from pipeline and sink",
        "leave it out; two writes of one pipeline to one topic differ by id=",
    ),
    "key.serializer": ("keys are written as the bytes of the column key", "convert the column before the sink"),
    "value.serializer": ("values are written as the bytes of the column value", "convert the column before the sink"),
    "partitioner.class": (
        "it names a Java class",
        "leave it out: keys go where Java sends them; or give the rows a column partition",
    ),
    "interceptor.classes": ("it names Java classes", "leave it out"),
    "metric.reporters": ("it names Java classes", "leave it out"),
    "max.block.ms": ("the client here has no such limit", "KafkaSink(..., tuning=KafkaTuning(answer_timeout=30))"),
    "ssl.truststore.password": ("a trust store is a PEM file here", "convert it to PEM; it needs no password"),
    "ssl.engine.factory.class": ("it names a Java class", "leave it out"),
    "sasl.login.callback.handler.class": ("it names a Java class", "leave it out"),
    "sasl.client.callback.handler.class": ("it names a Java class", "leave it out"),
    "security.providers": ("it names Java classes", "leave it out"),
    "transaction.two.phase.commit.enable": ("the client here cannot do it", "leave it out"),
}
_CONNECTION = ("security.", "sasl.", "ssl.", "socket.", "broker.", "client.", "reconnect.", "metadata.", "connections.")
_JAAS = re.compile(r"^\s*\S*\.(?P<module>Plain|Scram)LoginModule\s+required\b(?P<rest>.*);\s*$", re.DOTALL)
_JAAS_PAIR = re.compile(r"(\w+)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options.

    ``user_options`` are the user's, as spelled but without the prefix. ``settings`` are the same in the client's
    spelling, with secrets.
    """

    servers: str
    user_options: Mapping[str, str]
    settings: Mapping[str, str]

    @classmethod
    def check(cls, servers: str | Sequence[str], options: Mapping[str, str] | None) -> Self:
        """Check and translate options. Raises E110 with the option's name."""
        brokers = servers.split(",") if isinstance(servers, str) else servers
        servers = ",".join(part.strip() for part in brokers if part.strip())
        if not servers or any(character in servers for character in "/?# "):
            raise _unfit(f"servers={servers!r}", "it wants host:port,host:port", "KafkaSink('localhost:9092', ...)")
        user_options = {_unprefixed(name): str(value) for name, value in (options or {}).items()}
        settings: dict[str, str] = {}
        for name, value in user_options.items():
            settings.update(_translated(name, value, user_options))
        settings |= _secrets_of_the_environment(SECRETS - settings.keys())
        spoken = settings.get("security.protocol", "").upper()
        if spoken.startswith("SASL") and not {"sasl.mechanism", "sasl.mechanisms"} & settings.keys():
            cause = "without a mechanism the client takes GSSAPI, for which it must be built with Kerberos"
            remedy = 'say the brokers\': options={"kafka.sasl.mechanism": "PLAIN", ...}, or SCRAM-SHA-512 and the like'
            raise _unfit(f"kafka.security.protocol={spoken} alone", cause, remedy)
        return cls(servers, user_options, settings)

    def producer(self, transactional_id: str, patience: float) -> dict[str, str | bool]:
        """Configuration of one producer."""
        longest_ms = int(min(patience, self.timeout) * 1000)
        socket_ms = min(int(_DEFAULTS["socket.timeout.ms"]), max(1000, longest_ms))
        settings = {**_DEFAULTS, "socket.timeout.ms": str(socket_ms), **self.settings, **_FORCED}
        forced: dict[str, str | bool] = {"transactional.id": transactional_id, "delivery.report.only.error": True}
        return {"bootstrap.servers": self.servers, **settings, **forced}

    @property
    def connection(self) -> dict[str, str | int | float | bool]:
        """Configuration of a client that does not produce."""
        settings = {name: value for name, value in self.settings.items() if name.startswith(_CONNECTION)}
        return {"bootstrap.servers": self.servers, "client.id": _DEFAULTS["client.id"], **settings}

    @property
    def for_spark(self) -> dict[str, str]:
        """Options of Spark's Kafka source that reach the same brokers, as far as the user gave them."""
        connection_options = {name: value for name, value in self.user_options.items() if name.startswith(_CONNECTION)}
        return {
            f"{PREFIX}{name}": value
            for name, value in {"bootstrap.servers": self.servers, **connection_options}.items()
        }

    @property
    def timeout(self) -> float:
        """Seconds that a transaction may stay open."""
        return int(self.settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)) / 1000

    @property
    def described(self) -> dict[str, str]:
        """Options that an address needs to reach the cluster again, without secrets."""
        hidden = SECRETS | {"sasl.jaas.config"}
        public_options = {
            name: value for name, value in self.user_options.items() if name not in hidden and not name.endswith(".key")
        }
        if "sasl.jaas.config" in self.user_options:
            public_options["sasl.username"] = self.settings["sasl.username"]
        return {f"{PREFIX}{name}": value for name, value in sorted(public_options.items())}


def _secrets_of_the_environment(names: Iterable[str]) -> dict[str, str]:
    secrets = {name: os.environ.get(environment_name(name)) for name in names}
    return {name: value for name, value in secrets.items() if value}


def environment_name(setting: str) -> str:
    """Name of the environment variable that a secret may come from: ``ONCEONLY_KAFKA_SASL_PASSWORD``."""
    return "ONCEONLY_KAFKA_" + setting.upper().replace(".", "_")


def _unprefixed(name: str) -> str:
    if not name.startswith(PREFIX):
        cause = "options= takes the settings of the Kafka producer with the prefix kafka., as Spark's own sink does"
        raise _unfit(f"the option {name!r}", cause, f'options={{"{PREFIX}{name}": ...}}, if you mean that')
    return name.removeprefix(PREFIX)


def _translated(name: str, value: str, user_options: Mapping[str, str]) -> dict[str, str]:
    if name in _REFUSED:
        cause, next_ = _REFUSED[name]
        raise _unfit(f"the option {PREFIX}{name}", cause, next_)
    if name in _ONLY and value.lower() not in _ONLY[name][0]:
        raise _unfit(f"{PREFIX}{name}={value}", _ONLY[name][1], "leave it out")
    if name in _SPECIAL:
        return _SPECIAL[name](value, user_options)
    return {_RENAMED.get(name, name): value}


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise _unfit(f"{PREFIX}{name}={value!r}", "it wants a number", "correct it") from None


def _timeout(value: str, _: Mapping[str, str]) -> dict[str, str]:
    if not 1000 <= _number("transaction.timeout.ms", value) <= 2**31 - 1:
        raise _unfit(f"kafka.transaction.timeout.ms={value}", "it wants milliseconds, at least 1000", "correct it")
    return {"transaction.timeout.ms": value}


def _in_flight(value: str, _: Mapping[str, str]) -> dict[str, str]:
    name = "max.in.flight.requests.per.connection"
    if not 1 <= _number(name, value) <= 5:
        raise _unfit(f"{PREFIX}{name}={value}", "more than 5 would give up the order of rows", "leave it out")
    return {name: value}


def _retries(value: str, _: Mapping[str, str]) -> dict[str, str]:
    if _number("retries", value) < 1:
        raise _unfit(
            f"kafka.retries={value}",
            "a transaction needs an idempotent producer, which retries",
            "leave it out",
        )
    return {"retries": value}


def _store(kind: str, target: Mapping[str, str]) -> Callable[[str, Mapping[str, str]], dict[str, str]]:
    def translate(value: str, user_options: Mapping[str, str]) -> dict[str, str]:
        form = user_options.get(f"ssl.{kind}.type", "JKS").upper()
        if form not in target:
            cause = f"a {kind} of type {form} is a file of Java's own"
            next_ = f"convert it and say kafka.ssl.{kind}.type={' or '.join(target)}"
            raise _unfit(f"the option kafka.ssl.{kind}.location", cause, next_)
        return {target[form]: value}

    return translate


def _jaas(value: str, _: Mapping[str, str]) -> dict[str, str]:
    match = _JAAS.match(value)
    pairs = dict(_JAAS_PAIR.findall(match["rest"])) if match else {}
    if not {"username", "password"} <= pairs.keys():
        cause = "only PlainLoginModule and ScramLoginModule with username and password have an equivalent here"
        raise _unfit(
            "the option kafka.sasl.jaas.config",
            cause,
            "kafka.sasl.username, kafka.sasl.password and the like",
        )
    unescaped = {name: re.sub(r"\\(.)", r"\1", pairs[name]) for name in ("username", "password")}
    return {"sasl.username": unescaped["username"], "sasl.password": unescaped["password"]}


_SPECIAL: Mapping[str, Callable[[str, Mapping[str, str]], dict[str, str]]] = {
    "buffer.memory": lambda value, _: {
        "queue.buffering.max.kbytes": str(max(1, _number("buffer.memory", value) // 1024))
    },
    "transaction.timeout.ms": _timeout,
    "max.in.flight.requests.per.connection": _in_flight,
    "retries": _retries,
    "ssl.endpoint.identification.algorithm": lambda value, _: {
        "ssl.endpoint.identification.algorithm": value or "none"
    },
    "ssl.truststore.location": _store("truststore", {"PEM": "ssl.ca.location"}),
    "ssl.keystore.location": _store("keystore", {"PEM": "ssl.certificate.location", "PKCS12": "ssl.keystore.location"}),
    "ssl.truststore.type": lambda *_: {},
    "ssl.keystore.type": lambda *_: {},
    "sasl.jaas.config": _jaas,
}

# ---- The address of a Kafka sink: brokers, topic, and what differs from the defaults, without secrets.

_SCHEME = "kafka:"
_OURS = ("id", "marker_topic", "order")


def default_id(topic: str | None) -> str:
    """Id of a sink without a given one."""
    return f"{_SCHEME}{topic or '*'}"


def address_of(options: Options, topic: str | None, id_: str, marker_topic: str | None, order: str) -> str:
    """Spell an address."""
    parameters = {
        "id": "" if id_ == default_id(topic) else id_,
        "marker_topic": marker_topic or "",
        "order": order,
        **options.described,
    }
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items() if value)
    return f"{_SCHEME}{options.servers}/{topic or ''}" + (f"?{query}" if query else "")


def read_address(address: str, call: Callable[..., Any]) -> tuple[str, str | None, dict[str, Any]]:
    """Servers, topic and keyword arguments of the sink: the inverse of :func:`address_of`.

    Raises E110 for no address of a Kafka sink.
    """
    where, _, query = address.removeprefix(_SCHEME).partition("?")
    servers, slash, topic = where.partition("/")
    pairs = [part.partition("=") for part in query.split("&") if part]
    parameters = {name: unquote(value) for name, _, value in pairs}
    if not address.startswith(_SCHEME) or not servers or not slash:
        cause = "it wants kafka:HOST:PORT,HOST:PORT/TOPIC?kafka.OPTION=VALUE"
        remedy = "see the addresses of every pipeline: onceonly status"
        raise misused(f"{address!r} is not the address of a Kafka sink.", cause, remedy)
    options = {name: value for name, value in parameters.items() if name.startswith(PREFIX)}
    texts = {name: [value] for name, value in parameters.items() if name not in options}
    values = read_texts("the address of a Kafka sink", texts, _OURS, call, KafkaTuning)
    tuning = KafkaTuning(marker_topic=values.get("marker_topic"))
    return (
        servers,
        topic or None,
        {"options": options, "tuning": tuning, "id": values.get("id"), "order": values.get("order")},
    )
