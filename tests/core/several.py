"""A pipeline into several memory sinks, with real staging and ledger, and drivers that die where they are told."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.core.stories import cut, offer

from onceonly import faults
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.division_rules import MaxBad
from onceonly.machine.facts import Offer
from onceonly.machine.state import Job, State
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime import operator, shared_transaction
from onceonly.runtime.runner import Runner
from onceonly.runtime.staged_files import directory
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore

NAMES = ("a", "b", "c")


class Crash(BaseException):
    """Ends a driver where it stands: nothing on its way out takes it for a lost answer."""


def crash() -> None:
    raise Crash


def rows(number: int) -> pa.Table:
    first = (number - 1) * 10
    return pa.table({"id": range(first, first + 10), "text": [None, *(f"row {i}" for i in range(1, 10))]})


def offered(number: int) -> Offer:
    return offer(cut((number - 1) * 10 if number > 1 else None, number * 10), number - 1)


class Pipeline:
    """Three stores and what a driver needs; each ``Driver`` is a start of the query.

    Those of ``beside`` share a transaction.
    """

    def __init__(
        self, root: Path, names: tuple[str, ...] = NAMES, staging: str | None = None, beside: tuple[str, ...] = ()
    ) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.staging = staging or str(root / "staging")
        first = MemoryStore()
        self.stores = {name: MemoryStore(beside=first if name in beside else None) for name in names}
        self.ledger = SqlLedger(str(root / "ledger.db"))

    def sinks(self) -> list[MemorySink]:
        return [MemorySink(f"memory:{name}", store) for name, store in self.stores.items()]

    def driver(self) -> Driver:
        return Driver(self)

    def staged(self) -> list[str]:
        """Addresses of what is staged."""
        above = directory(self.staging)
        folders = [above.child(name) for name in above.names()]
        return [folder.child(name).address for folder in folders for name in folder.names()]

    def resolve(self) -> operator.Resolution:
        return operator.resolve(self.sinks(), self.ledger, "orders")

    def events(self, kind: EventKind) -> list[str]:
        return [event.reason for event in self.ledger.events("orders") if event.kind is kind]

    def holds(self, epochs: int) -> None:
        """Every sink holds every row of epochs 1 to ``epochs`` once, under the same chain."""
        for sink in self.sinks():
            sink.open("orders")
            assert sorted(row["id"] for row in sink.rows()) == list(range(epochs * 10)), sink.id
        chains = {sink.id: [marker.epoch.chain for marker, _ in sink.history()] for sink in self.sinks_open()}
        assert len({tuple(chain) for chain in chains.values()}) == 1, chains
        assert all(len(chain) == epochs for chain in chains.values())

    def sinks_open(self) -> list[MemorySink]:
        opened = self.sinks()
        for sink in opened:
            sink.open("orders")
        return opened


class Driver:
    """One start of the query."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.sinks = pipeline.sinks()
        staging = StagedEpochs(pipeline.staging, "orders", self.sinks)
        self.runner = Runner(self.sinks, pipeline.ledger, staging=staging)
        self.state: State | None = None

    def writes(self, *numbers: int, table: pa.Table | None = None) -> State:
        for number in numbers:
            if self.state is None:
                ids, owner = tuple(sink.id for sink in self.sinks), secrets.token_hex(4)
                said = {
                    "stages": len(ids) == 1,
                    "transaction_groups": shared_transaction.transaction_groups(self.sinks),
                }
                state = coordinator.start(Job("orders", ids, owner, offered(number), **said))
            else:
                state = coordinator.resume(self.state, offered(number))
            self.state = self.runner.run(state, ArrowBatch(table or rows(number)))
        assert self.state is not None
        return self.state


def left_behind(root: Path, staging: str | None = None) -> Pipeline:
    """Epoch 2 is in the first sink only."""
    pipeline = Pipeline(root, staging=staging)
    driver = pipeline.driver()
    driver.writes(1)
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        driver.writes(2)
    faults.disarm()
    return pipeline


class WideDriver(Driver):
    """A driver whose batches have outputs; a number stands for the batch of that epoch that ``made`` gives."""

    made: Callable[[int], Any]
    aside: tuple[str, ...] = ()

    def writes_wide(self, *batches: Any, max_bad: MaxBad = None) -> State:
        for batch in batches:
            wide = self.made(batch) if isinstance(batch, int) else batch
            if self.state is None:
                named, owner = tuple(sink.id for sink in self.sinks), secrets.token_hex(4)
                said = {
                    "max_bad": max_bad,
                    "aside": self.aside,
                    "transaction_groups": shared_transaction.transaction_groups(self.sinks),
                    "divided": True,
                }
                state = coordinator.start(Job("orders", named, owner, offered(wide.number), **said))
            else:
                state = coordinator.resume(self.state, offered(wide.number))
            self.state = self.runner.run(state, wide)
        assert self.state is not None
        return self.state


_ONCE = (Point.STAGE_BEFORE, Point.STAGE_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER)
_PER_SINK = (
    Point.PREPARE_BEFORE,
    Point.PREPARE_AFTER,
    Point.COMMIT_BEFORE,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
)
CRASHES = [(point, 1) for point in _ONCE] + [(point, hit) for point in _PER_SINK for hit in (1, 2, 3)]
"""Each point on the way of a staged epoch into three sinks, and which time it is passed."""


def crashed(driver: WideDriver, point: Point, hit: int) -> None:
    """Have a driver write epoch 1, and die at a point of epoch 2."""
    driver.writes_wide(1)
    faults.arm(point, crash, hit)
    with pytest.raises(Crash):
        driver.writes_wide(2)
    faults.disarm()
