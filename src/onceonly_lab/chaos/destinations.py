"""Destinations that a job asks for: made when they are asked for, read from outside of the drivers that are killed."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from onceonly.errors import mask
from onceonly_lab.chaos.wires import Wire
from onceonly_lab.history import Promise
from onceonly_lab.looks import Columns, DeltaLook, KafkaLook, PostgresLook
from onceonly_lab.model.parts import Kind
from onceonly_lab.pollers import Look, Seen, SinkUnreachable
from onceonly_lab.proxy import KafkaProxy, PostgresProxy
from onceonly_lab.proxy.strikes import strike_commit, strike_end

if TYPE_CHECKING:
    from onceonly_lab.chaos.pipeline import Pipeline
    from onceonly_lab.kafka import EmbeddedKafka
    from onceonly_lab.postgres import EmbeddedPostgres

ORDERED = frozenset({Kind.POSTGRES, Kind.KAFKA})
"""Sinks that have an order of rows: pages of a heap that is only added to, offsets of a partition."""


@dataclass(frozen=True, slots=True)
class Destination:
    """One destination of one run.

    Attributes:
        kind: what it is.
        sink: name in the history, which is the default id of our sink there.
        address: what the job gets.
        look: reads it.
        promise: what is judged.
        wire: puts faults in force between drivers and the server; ``None``: no server is there.
    """

    kind: Kind
    sink: str
    address: tuple[str, ...]
    look: Look
    promise: Promise
    wire: Wire | None = None


@dataclass(frozen=True, slots=True)
class Guarded:
    """A look at rows of unknown making: columns that are not there, values that are no JSON, give no answer."""

    sink: str
    look: Look

    def __call__(self) -> Seen:
        """Look once.

        Raises:
            SinkUnreachable: no answer, or none that can be understood.
        """
        try:
            return self.look()
        except (LookupError, ValueError, TypeError) as error:
            raise SinkUnreachable(self.sink, f"{type(error).__name__}: {mask(str(error))}") from error


class Servers:
    """Servers that come up with the first job that needs one. A context manager; its end ends them."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._postgres: tuple[EmbeddedPostgres, PostgresProxy] | None = None
        self._kafka: tuple[EmbeddedKafka, KafkaProxy, KafkaProxy] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def postgres(self) -> tuple[EmbeddedPostgres, PostgresProxy]:
        """The Postgres server, and the proxy before it."""
        from onceonly_lab.postgres import temporary_postgres

        if self._postgres is None:
            server = self._running.enter_context(temporary_postgres())
            wire = self._running.enter_context(PostgresProxy(("127.0.0.1", server.port)))
            self._postgres = server, wire
        return self._postgres

    @property
    def kafka(self) -> tuple[EmbeddedKafka, KafkaProxy, KafkaProxy]:
        """The Kafka broker, the proxy before its clients, and the one before what it tells itself."""
        from onceonly_lab.kafka import temporary_kafka

        if self._kafka is None:
            wire, inner = (self._running.enter_context(KafkaProxy()) for _ in range(2))
            broker = self._running.enter_context(temporary_kafka(proxy=wire, internal_proxy=inner))
            self._kafka = broker, wire, inner
        return self._kafka


class Destinations:
    """The destinations of one run.

    Args:
        servers: where databases and topics are made.
        job: says what is looked at.
        folder: of the run; its name makes the run's databases and topics its own.
    """

    def __init__(self, servers: Servers, job: Pipeline, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        # Rows that are replaced have values in between that no run without faults ends with.
        self._columns = Columns(job.identity, job.key, values=job.values)
        self._job = job
        self.answers = folder / "sinks"
        self.answers.mkdir(parents=True)

    def make(self, kind: Kind, name: str) -> Destination:
        """Make a destination and leave its address for the drivers."""
        made = {Kind.DELTA: self._delta, Kind.POSTGRES: self._table, Kind.KAFKA: self._topic}[kind](name)
        answer = self.answers / f"{kind}-{name}.json"
        hidden = answer.with_suffix(".tmp")
        hidden.write_text(json.dumps(made.address))
        hidden.rename(answer)
        return made

    def _promise(self, kind: Kind, sink: str) -> Promise:
        ordered = bool(self._job.order_by) and kind in ORDERED
        return Promise(sink, ordered=ordered, whole=kind is not Kind.KAFKA, keeps=self._job.keeps)

    def _delta(self, name: str) -> Destination:
        sink, path = f"delta:{name}", str(self._folder / "tables" / name)
        Path(path).parent.mkdir(exist_ok=True)
        look = DeltaLook(sink, path, self._columns)
        return Destination(Kind.DELTA, sink, (path,), Guarded(sink, look), self._promise(Kind.DELTA, sink))

    def _table(self, name: str) -> Destination:
        server, wire = self._servers.postgres
        sink, direct = f"postgres:{name}", server.database(f"{self._folder.name}_{name}")
        dsn = direct.replace(f":{server.port}/", f":{wire.port}/")
        look = Guarded(sink, PostgresLook(sink, direct, name, self._columns))
        promise = self._promise(Kind.POSTGRES, sink)
        return Destination(Kind.POSTGRES, sink, (dsn,), look, promise, partial(strike_commit, wire))

    def _topic(self, name: str) -> Destination:
        broker, wire, inner = self._servers.kafka
        sink, topic = f"kafka:{name}", broker.topic(f"{self._folder.name}_{name}")
        look = Guarded(sink, KafkaLook(sink, broker.servers, topic, self._columns))
        address, promise = (broker.proxied_servers, topic), self._promise(Kind.KAFKA, sink)
        strike = partial(strike_end, wire, inner, undecided=lambda: look().leaks)
        return Destination(Kind.KAFKA, sink, address, look, promise, strike)
