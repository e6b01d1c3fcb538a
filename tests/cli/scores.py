"""A pipeline with windows into a memory sink, its state in another one: real runner, ledger and engine, no Spark."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.core.several import offered
from tests.panes.making import made

from onceonly.machine import coordinator
from onceonly.machine.division_rules import WindowsConfig
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.state import Job, State
from onceonly.protocol.batch import ArrowBatch, Bound, Notes
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly.windows.epoch_step import EpochAggregates, Targets, WindowResultBatch, WindowStepper
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.step import Row, partials_of
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore

Event = tuple[str, int, int]
"""Team, its time in whole numbers, value."""


class Events(ArrowBatch):
    """Rows of an epoch that become panes."""

    def __init__(self, rows: Sequence[Event], stepping: WindowStepper) -> None:
        super().__init__(
            pa.Table.from_pylist([{"team": team, "number": at, "value": value} for team, at, value in rows])
        )
        self._events, self._stepping = rows, stepping

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> WindowResultBatch:
        times = [at for _, at, _ in self._events]
        late = sum(at < clock.horizon for at in times) if clock and clock.horizon is not None else 0
        rows = [Row((team,), at, (value,)) for team, at, value in self._events]
        counted = EpochAggregates(
            partials_of(self._stepping.definition, rows), len(rows), RowTimes(min(times), max(times), late)
        )
        return self._stepping.stepped(to, counted, notes)


class Scores:
    """Sums per team and ten numbers; what is noted is the greatest number so far."""

    def __init__(self, root: Path, **said: Any) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.store = MemoryStore()
        self.definition: Definition = made(**said)
        self.ledger = SqlLedger(str(root / "ledger.db"))
        self._number = 0

    def sinks(self) -> list[MemorySink]:
        keyed: dict[str, Any] = {"key": ("team", "window_start", "window_end"), "delete_flag": "deleted"}
        sink = MemorySink("memory:scores", self.store, **(keyed if self.definition.form.upserts else {}))
        return [sink, sink.window_store(separate=True)]

    def writes(self, *batches: Sequence[Event]) -> Scores:
        sinks = self.sinks()
        stepping = WindowStepper(self.definition, sinks[1], Targets((sinks[0].id,), sinks[1].id))
        runner = Runner(sinks, self.ledger, staging=StagedEpochs(str(self.root / "staging"), "orders", sinks))
        told = self.definition
        windows = WindowsConfig(told.fingerprint, told.meaning, told.lateness, told.panes.max_open)
        state: State | None = None
        for rows in batches:
            self._number += 1
            offer = offered(self._number)
            if state is None:
                said: dict[str, Any] = {"divided": True, "windows": windows}
                said["noting"] = EventTimeConfig("rows", "integer", "number")
                ids = tuple(sink.id for sink in sinks)
                state = coordinator.start(Job("orders", ids, secrets.token_hex(4), offer, **said))
            else:
                state = coordinator.resume(state, offer)
            state = runner.run(state, Events(rows, stepping))
        return self

    def results(self) -> list[tuple[str, int, int, int]]:
        """Team, start of its window, sum, number of the pane."""
        sink = self.sinks()[0]
        sink.open("orders")
        return [(row["team"], row["window_start"], row["total"], row["pane"]) for row in sink.rows()]
