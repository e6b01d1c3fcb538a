"""Servers for schedules, and a table or topic per sink.

Each sink of a run has its own.
"""

from __future__ import annotations

import itertools
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onceonly.protocol import Prepared, Sink
from onceonly.protocol.registry import sink_class
from onceonly_lab.history.recorder import Look
from onceonly_lab.model.parts import Kind
from onceonly_lab.reading import Columns, DeltaReader, KafkaReader, PostgresReader
from onceonly_lab.schedule import Action
from onceonly_lab.servers.kafka import EmbeddedKafka, temporary_kafka
from onceonly_lab.servers.kafkaproxy import KafkaProxy
from onceonly_lab.servers.postgres import EmbeddedPostgres, temporary_postgres
from onceonly_lab.servers.postgresproxy import PostgresProxy
from onceonly_lab.servers.strikes import Strike, strike_commit, strike_end
from onceonly_lab.stores.windowed import (
    NUMBERED_RESULTS,
    RESULTS,
    SUFFIX,
    DeltaKeeperReader,
    KeeperReader,
    results,
)

# ---- What one sink of a run writes to: a table or a topic of its own on a real server, with the wire before it.

COLUMNS = Columns(identity="id", key="key", values=("amount",))
NUMBERED = replace(COLUMNS, epoch="_epoch")
"""Where rows are to be replaced, they carry their epoch."""

PATIENCE = 2.5
"""Seconds that a sink waits for an answer: a lost one must not hold up the run."""

_DATABASE = "lab"
_TABLE = 'CREATE TABLE {} ("id" text, "key" text, "amount" bigint, "value" text)'


def _columns(*, numbered: bool = False, windowed: bool = False) -> Columns:
    if windowed:
        return NUMBERED_RESULTS if numbered else RESULTS
    return NUMBERED if numbered else COLUMNS


class Place(ABC):
    """A destination.

    Attributes:
        kind: of which kind.
        id: id of the sink that writes there.
        executors: have executors write where that can be chosen.
        windowed: results of windows stand there instead of rows.
    """

    kind: Kind
    id: str
    executors = False
    windowed = False

    @abstractmethod
    def sink(self) -> Sink:
        """A new handle, as a driver that starts has it."""

    @abstractmethod
    def look(self) -> Look:
        """How a reader reads it."""

    @abstractmethod
    def strike(self, action: Action) -> Strike | None:
        """Put a fault of the next request's wire in force; ``None`` where no wire can do that."""

    @abstractmethod
    def vanish(self, prepared: Prepared) -> None:
        """What becomes of a preparation whose process is gone."""


class PostgresPlace(Place):
    """A table that is there and empty: whoever writes beside the sink needs it, too. Of results the sink makes it.

    Args:
        server: the server.
        wire: the proxy before it.
        table: its name.
        numbered: whether rows carry their epoch.
        windowed: whether they are results of windows.
    """

    kind = Kind.POSTGRES

    def __init__(
        self,
        server: EmbeddedPostgres,
        wire: PostgresProxy,
        table: str,
        *,
        numbered: bool = False,
        windowed: bool = False,
    ) -> None:
        self.server, self.table, self._wire = server, table, wire
        self.windowed = windowed
        self.columns = _columns(numbered=numbered, windowed=windowed)
        self.id = f"postgres:{table}"
        self.direct = server.database(_DATABASE)
        self.dsn = self.direct.replace(f":{server.port}/", f":{wire.port}/")
        if not windowed:
            self._make(numbered=numbered)

    def _make(self, *, numbered: bool) -> None:
        import psycopg
        from psycopg import sql

        table = self.table
        with psycopg.connect(self.direct, autocommit=True) as connection:
            connection.execute(sql.SQL(_TABLE).format(sql.Identifier(table)))
            if numbered:
                connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN _epoch bigint").format(sql.Identifier(table)))

    def sink(self) -> Sink:
        """A ``PostgresSink`` through the wire."""
        made: Any = sink_class(self.kind)
        from onceonly_sinks.postgres import PostgresTuning

        tuning = PostgresTuning(commit_timeout=PATIENCE, load="executors" if self.executors else "auto")
        sink: Sink = made(self.dsn, self.table, tuning=tuning)
        return sink

    def look(self) -> Look:
        """Past the wire."""
        if self.windowed:
            return results(KeeperReader(self.id, self.direct, self.table, self.columns, f"{self.table}{SUFFIX}"))
        return PostgresReader(self.id, self.direct, self.table, self.columns)

    def strike(self, action: Action) -> Strike | None:
        """At the COMMIT."""
        return strike_commit(self._wire, action)

    def vanish(self, prepared: Prepared) -> None:
        """The server rolls back when the connection ends."""
        prepared.abandon()


class DeltaPlace(Place):
    """A directory; a Delta log has no wire.

    Args:
        root: of the table.
        numbered: whether rows carry their epoch.
        windowed: whether they are results of windows.
    """

    kind = Kind.DELTA

    def __init__(self, root: Path, *, numbered: bool = False, windowed: bool = False) -> None:
        self.root = root
        self.windowed = windowed
        self.columns = _columns(numbered=numbered, windowed=windowed)
        self.id = f"delta:{root.name}"

    def sink(self) -> Sink:
        """A ``DeltaSink`` that commits through deltalake."""
        made: Any = sink_class(self.kind)
        from onceonly_sinks.delta import DeltaTuning

        sink: Sink = made(self.root, tuning=DeltaTuning(committer="log", epoch_column=self.columns.epoch))
        return sink

    def look(self) -> Look:
        """One version."""
        where = str(self.root)
        if self.windowed:
            return results(DeltaKeeperReader(self.id, where, self.columns, f"{where}{SUFFIX}"))
        return DeltaReader(self.id, where, self.columns)

    def strike(self, action: Action) -> Strike | None:
        """A directory has no wire."""
        return None

    def vanish(self, prepared: Prepared) -> None:
        """Files that were written stay; no log entry names them."""


class KafkaPlace(Place):
    """A topic of one partition: a read of it shows a transaction whole or not at all.

    Args:
        broker: the broker.
        wire: the proxy before its clients.
        inner: the proxy before what it tells itself.
        topic: its name.
        windowed: whether records are results of windows.
    """

    kind = Kind.KAFKA

    def __init__(
        self, broker: EmbeddedKafka, wire: KafkaProxy, inner: KafkaProxy, topic: str, *, windowed: bool = False
    ) -> None:
        self.windowed = windowed
        self.columns = _columns(windowed=windowed)
        self.topic, self._wire, self._inner = broker.topic(topic), wire, inner
        self.id = f"kafka:{topic}"
        self.servers, self.direct = broker.proxied_servers, broker.servers

    def sink(self) -> Sink:
        """A ``KafkaSink`` through the wire."""
        made: Any = sink_class(self.kind)
        from onceonly_sinks.kafka import KafkaTuning

        tuning = KafkaTuning(answer_timeout=PATIENCE, hidden_timeout=PATIENCE)
        sink: Sink = made(self.servers, self.topic, tuning=tuning)
        return sink

    def look(self) -> Look:
        """Past the wire, committed records only."""
        return KafkaReader(self.id, self.direct, self.topic, self.columns)

    def strike(self, action: Action) -> Strike | None:
        """At EndTxn."""
        return strike_end(self._wire, self._inner, action, lambda: self.look()().leaks)

    def vanish(self, prepared: Prepared) -> None:
        """Its transaction stays open: only the next producer of its id ends it."""
        sink_state: Any = getattr(prepared, "state", None)
        if sink_state is not None:
            sink_state.transaction.drop()


# ---- The servers that schedules are played on: one of each for many runs, and a table or topic of its own for each.

_runs = itertools.count(1)


@dataclass(frozen=True)
class Broker:
    """A broker with the proxies before it.

    Attributes:
        server: the broker.
        wire: before its clients.
        inner: before what it tells itself.
    """

    server: EmbeddedKafka
    wire: KafkaProxy
    inner: KafkaProxy


@dataclass(frozen=True)
class Servers:
    """Servers that run.

    Attributes:
        root: directory for tables, ledgers and staging.
        postgres: with the proxy before it; ``None`` where no schedule needs one.
        kafka: the same.
    """

    root: Path
    postgres: tuple[EmbeddedPostgres, PostgresProxy] | None = None
    kafka: Broker | None = None
    _runs: itertools.count[int] = field(default_factory=lambda: _runs)

    def places(
        self, kinds: Sequence[Kind], *, numbered: bool = False, windowed: bool = False
    ) -> tuple[Path, tuple[Place, ...]]:
        """A directory of its own for one run, and a place for each of its sinks.

        Args:
            kinds: of the sinks.
            numbered: whether rows carry their epoch, where the sink has columns.
            windowed: whether results of windows are written instead of rows.

        Raises:
            LookupError: a server is missing.
        """
        number = next(self._runs)
        folder = self.root / f"run{number}"
        folder.mkdir()
        names = [f"rows{number}" if kind not in kinds[:at] else f"rows{number}_{at}" for at, kind in enumerate(kinds)]
        made = zip(kinds, names, strict=True)
        return folder, tuple(
            self._place(kind, folder, name, numbered=numbered, windowed=windowed) for kind, name in made
        )

    def _place(self, kind: Kind, folder: Path, name: str, *, numbered: bool, windowed: bool) -> Place:
        if kind is Kind.DELTA:
            return DeltaPlace(folder / name, numbered=numbered, windowed=windowed)
        if kind is Kind.POSTGRES and self.postgres is not None:
            return PostgresPlace(*self.postgres, name, numbered=numbered, windowed=windowed)
        if kind is Kind.KAFKA and self.kafka is not None:
            wires = self.kafka.wire, self.kafka.inner
            return KafkaPlace(self.kafka.server, *wires, name, windowed=windowed)
        raise LookupError(f"no server for {kind}")


@contextmanager
def temporary_servers(kinds: Collection[Kind]) -> Generator[Servers]:
    """Start what these kinds of sinks need, and leave nothing behind."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onceonly-stores-")))
        postgres = kafka = None
        if Kind.POSTGRES in kinds:
            server = stack.enter_context(temporary_postgres())
            postgres = server, stack.enter_context(PostgresProxy(("127.0.0.1", server.port)))
        if Kind.KAFKA in kinds:
            wire, inner = stack.enter_context(KafkaProxy()), stack.enter_context(KafkaProxy())
            broker = stack.enter_context(temporary_kafka(proxy=wire, internal_proxy=inner))
            kafka = Broker(broker, wire, inner)
        yield Servers(root, postgres, kafka)
