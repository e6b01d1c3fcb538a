"""What one sink of a run writes to: a table or a topic of its own on a real server, with the wire before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Prepared, Sink
from onceonly.registry import sink_class
from onceonly_lab.looks import Columns, DeltaLook, KafkaLook, PostgresLook
from onceonly_lab.model.parts import Kind
from onceonly_lab.pollers import Look
from onceonly_lab.proxy import KafkaProxy, PostgresProxy
from onceonly_lab.proxy.strikes import Strike, strike_commit, strike_end
from onceonly_lab.schedule import Action

if TYPE_CHECKING:
    from onceonly_lab.kafka import EmbeddedKafka
    from onceonly_lab.postgres import EmbeddedPostgres

COLUMNS = Columns(identity="id", key="key", values=("amount",))
PATIENCE = 2.5
"""Seconds that a sink waits for an answer: a lost one must not hold up the run."""

_DATABASE = "lab"
_TABLE = 'CREATE TABLE {} ("id" text, "key" text, "amount" bigint, "value" text)'


class Place(ABC):
    """A destination.

    Attributes:
        kind: of which kind.
        id: id of the sink that writes there.
        executors: have executors write where that can be chosen.
    """

    kind: Kind
    id: str
    executors = False

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
    """A table that is there and empty: whoever writes beside the sink needs it, too.

    Args:
        server: the server.
        wire: the proxy before it.
        table: its name.
    """

    kind = Kind.POSTGRES

    def __init__(self, server: EmbeddedPostgres, wire: PostgresProxy, table: str) -> None:
        import psycopg
        from psycopg import sql

        self.server, self.table, self._wire = server, table, wire
        self.id = f"postgres:{table}"
        self.direct = server.database(_DATABASE)
        self.dsn = self.direct.replace(f":{server.port}/", f":{wire.port}/")
        with psycopg.connect(self.direct, autocommit=True) as connection:
            connection.execute(sql.SQL(_TABLE).format(sql.Identifier(table)))

    def sink(self) -> Sink:
        """A ``PostgresSink`` through the wire."""
        made: Any = sink_class(self.kind)
        via = "executors" if self.executors else "auto"
        sink: Sink = made(self.dsn, self.table, patience=PATIENCE, via=via)
        return sink

    def look(self) -> Look:
        """Past the wire."""
        return PostgresLook(self.id, self.direct, self.table, COLUMNS)

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
    """

    kind = Kind.DELTA

    def __init__(self, root: Path) -> None:
        self.root = root
        self.id = f"delta:{root.name}"

    def sink(self) -> Sink:
        """A ``DeltaSink`` that commits through deltalake."""
        made: Any = sink_class(self.kind)
        sink: Sink = made(self.root, committer="log")
        return sink

    def look(self) -> Look:
        """One version."""
        return DeltaLook(self.id, str(self.root), COLUMNS)

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
    """

    kind = Kind.KAFKA

    def __init__(self, broker: EmbeddedKafka, wire: KafkaProxy, inner: KafkaProxy, topic: str) -> None:
        self.topic, self._wire, self._inner = broker.topic(topic), wire, inner
        self.id = f"kafka:{topic}"
        self.servers, self.direct = broker.proxied_servers, broker.servers

    def sink(self) -> Sink:
        """A ``KafkaSink`` through the wire."""
        made: Any = sink_class(self.kind)
        sink: Sink = made(self.servers, self.topic, patience=PATIENCE, settle=PATIENCE)
        return sink

    def look(self) -> Look:
        """Past the wire, committed records only."""
        return KafkaLook(self.id, self.direct, self.topic, COLUMNS)

    def strike(self, action: Action) -> Strike | None:
        """At EndTxn."""
        return strike_end(self._wire, self._inner, action, lambda: self.look()().leaks)

    def vanish(self, prepared: Prepared) -> None:
        """Its transaction stays open: only the next producer of its id ends it."""
        standing: Any = getattr(prepared, "standing", None)
        if standing is not None:
            standing.transaction.drop()
