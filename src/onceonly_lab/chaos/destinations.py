"""Read a job's destinations from outside of its drivers.

Also injects faults between a driver and its servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import mask
from onceonly_lab.chaos.environment import ARMED, OVER, wire_file
from onceonly_lab.history import Promise
from onceonly_lab.history.recorder import Look, Seen, SinkUnreachable
from onceonly_lab.model.parts import Kind
from onceonly_lab.reading import Columns, DeltaReader, KafkaReader, PostgresReader
from onceonly_lab.schedule import Action, Fault
from onceonly_lab.servers.kafkaproxy import KafkaProxy
from onceonly_lab.servers.postgresproxy import PostgresProxy
from onceonly_lab.servers.strikes import Strike, strike_commit, strike_end

if TYPE_CHECKING:
    from typing_extensions import Self

    from onceonly_lab.chaos.pipeline import Pipeline
    from onceonly_lab.servers.kafka import EmbeddedKafka
    from onceonly_lab.servers.postgres import EmbeddedPostgres


# ---- Faults between a driver and its servers: put in force before a request is sent, held while drivers come and go.

Wire = Callable[[Action], Strike | None]
"""Puts a fault in force on one wire; ``None`` where that wire has no such fault."""


@dataclass
class Wires:
    """The faults in force on the wires of one run.

    A driver waits at the point before its request until they are in force, and at the one after it until they are over:
    so they meet this request, and no other.

    Attributes:
        folder: where drivers look for the answer.
        hit: is told of a fault that met its request.
    """

    folder: Path
    hit: Callable[[Fault], None]
    _fault: Fault | None = None
    _armed: list[Strike] = field(default_factory=list[Strike])
    _held: list[tuple[int, Strike]] = field(default_factory=list[tuple[int, Strike]])
    _passed: int = 0

    def arm(self, fault: Fault, at: int, wires: Iterable[Wire]) -> None:
        """Put a fault in force on every wire that can have it: the driver sends on one of them."""
        self._fault = fault
        made = (wire(fault.action) for wire in wires)
        self._armed = [strike for strike in made if strike is not None]
        wire_file(self.folder, fault.incarnation, at, ARMED).touch()

    def over(self, at: int) -> None:
        """The request was answered, or given up."""
        fault = self._fault
        self.gone()
        if fault is not None:
            wire_file(self.folder, fault.incarnation, at, OVER).touch()

    def gone(self) -> None:
        """The driver goes on, or is dead: what is held stays held, and everything else is over."""
        fault, self._fault = self._fault, None
        armed, self._armed = self._armed, []
        if fault is None:
            return
        if any(strike.hit for strike in armed):
            self.hit(fault)
        for strike in armed:
            if strike.hit and fault.action is Action.DELAY:
                self._held.append((self._passed + fault.steps, strike))
            else:
                strike.end()

    def passed(self) -> None:
        """A driver passed a point: what was held long enough goes on."""
        self._passed += 1
        self._let_go(self._passed)

    def close(self) -> None:
        """Everything that is held goes on."""
        self.gone()
        self._let_go(None)

    def _let_go(self, now: int | None) -> None:
        due = [held_strike for held_strike in self._held if now is None or held_strike[0] <= now]
        for held_strike in due:
            self._held.remove(held_strike)
            held_strike[1].end()


# ---- Destinations that a job asks for: made when they are asked for, read from outside of the drivers that are
# killed.

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

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def postgres(self) -> tuple[EmbeddedPostgres, PostgresProxy]:
        """The Postgres server, and the proxy before it."""
        from onceonly_lab.servers.postgres import temporary_postgres

        if self._postgres is None:
            server = self._running.enter_context(temporary_postgres())
            wire = self._running.enter_context(PostgresProxy(("127.0.0.1", server.port)))
            self._postgres = server, wire
        return self._postgres

    @property
    def kafka(self) -> tuple[EmbeddedKafka, KafkaProxy, KafkaProxy]:
        """The Kafka broker, the proxy before its clients, and the one before what it tells itself."""
        from onceonly_lab.servers.kafka import temporary_kafka

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
        self._columns = Columns(job.identity, job.key, values=job.values, invariant=job.invariant)
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
        look = DeltaReader(sink, path, self._columns)
        return Destination(Kind.DELTA, sink, (path,), Guarded(sink, look), self._promise(Kind.DELTA, sink))

    def _table(self, name: str) -> Destination:
        server, wire = self._servers.postgres
        sink, direct = f"postgres:{name}", server.database(f"{self._folder.name}_{name}")
        dsn = direct.replace(f":{server.port}/", f":{wire.port}/")
        look = Guarded(sink, PostgresReader(sink, direct, name, self._columns))
        promise = self._promise(Kind.POSTGRES, sink)
        return Destination(Kind.POSTGRES, sink, (dsn,), look, promise, partial(strike_commit, wire))

    def _topic(self, name: str) -> Destination:
        broker, wire, inner = self._servers.kafka
        sink, topic = f"kafka:{name}", broker.topic(f"{self._folder.name}_{name}")
        look = Guarded(sink, KafkaReader(sink, broker.servers, topic, self._columns))
        address, promise = (broker.proxied_servers, topic), self._promise(Kind.KAFKA, sink)
        strike = partial(strike_end, wire, inner, undecided=lambda: look().leaks)
        return Destination(Kind.KAFKA, sink, address, look, promise, strike)
