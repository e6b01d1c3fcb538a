"""The servers that schedules are played on: one of each for many runs, and a table or topic of its own for each."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from onceonly_lab.kafka import EmbeddedKafka, temporary_kafka
from onceonly_lab.model.parts import Kind
from onceonly_lab.postgres import EmbeddedPostgres, temporary_postgres
from onceonly_lab.proxy import KafkaProxy, PostgresProxy
from onceonly_lab.stores.places import DeltaPlace, KafkaPlace, Place, PostgresPlace

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
class Ground:
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

    def places(self, kinds: Sequence[Kind]) -> tuple[Path, tuple[Place, ...]]:
        """A directory of its own for one run, and a place for each of its sinks.

        Raises:
            LookupError: a server is missing.
        """
        number = next(self._runs)
        folder = self.root / f"run{number}"
        folder.mkdir()
        return folder, tuple(self._place(kind, folder, number) for kind in kinds)

    def _place(self, kind: Kind, folder: Path, number: int) -> Place:
        if kind is Kind.DELTA:
            return DeltaPlace(folder / f"rows{number}")
        if kind is Kind.POSTGRES and self.postgres is not None:
            return PostgresPlace(*self.postgres, f"rows{number}")
        if kind is Kind.KAFKA and self.kafka is not None:
            return KafkaPlace(self.kafka.server, self.kafka.wire, self.kafka.inner, f"rows{number}")
        raise LookupError(f"no server for {kind}")


@contextmanager
def temporary_ground(kinds: Collection[Kind]) -> Generator[Ground]:
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
        yield Ground(root, postgres, kafka)
