"""A pipeline with windows and no Spark: random rows, two sinks of panes, a keeper of state, and what they hold."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.core.several import Pipeline, offered
from tests.panes import oracle
from tests.panes.drive import definition_of, engine_rows
from tests.panes.oracle import Epoch as Said
from tests.panes.oracle import Rules
from tests.panes.streams import drawn_epochs, drawn_rules

from onceonly.event_time import TimedEpoch
from onceonly.machine import coordinator
from onceonly.machine.division_rules import WindowsConfig
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.facts import Offer
from onceonly.machine.state import Job, State
from onceonly.protocol.batch import ArrowBatch, Bound, Notes
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.runtime import shared_transaction
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly.windows.epoch_step import (
    EpochAggregates,
    Targets,
    WindowResultBatch,
    WindowStepper,
    digest_of,
    fingerprint,
)
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.step import partials_of
from onceonly_checkpoints.digests import BAD, Digest, OutputDigest, column_of
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END
from onceonly_sinks.memory import MemorySink

APART = ("a", "b", "state")
BESIDE = ("a", "state")
MS = 1000


def drawn(seed: int, least: int = 4) -> tuple[Rules, list[Said]]:
    """Rules and epochs, in seconds; of values only the sum."""
    draw = random.Random(seed)
    rules, epochs = replace(drawn_rules(draw), value=sum), drawn_epochs(draw)
    while len(epochs) < least:
        epochs = drawn_epochs(draw)
    return rules, epochs[:8]


def offer_of(number: int, said: Said) -> Offer:
    made = offered(number)
    return replace(made, lineage=replace(made.lineage, batch_timestamp_ms=said.clock * MS))


class WindowedRows(ArrowBatch):
    """Rows of one epoch, aggregated where they are: what Spark's batch is to a query."""

    def __init__(self, rows: Sequence[oracle.Row], stepping: WindowStepper) -> None:
        super().__init__(pa.table({"value": pa.array([row.value for row in rows], pa.int64())}))
        self._said = rows
        self._stepping = stepping

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> WindowResultBatch:
        """Aggregate and step; see ``protocol.batch.Bindable``."""
        definition = self._stepping.definition
        given = engine_rows(definition, self._said)
        times = [row.time for row in given if row.time is not None]
        horizon = clock.horizon if clock and clock.horizon is not None else min(times, default=0)
        late = sum(time < horizon for time in times)
        told = RowTimes(min(times, default=None), max(times, default=None), late)
        return self._stepping.stepped(to, EpochAggregates(partials_of(definition, given), len(given), told), notes)


class DividedRows(WindowedRows):
    """Rows of one epoch, of which those without a key are bad, and in no window.

    ``fault`` breaks it: a bad row ``leaks`` into a window, a good one is ``missed``, or a staged row is ``lost``.
    """

    def __init__(
        self, rows: Sequence[oracle.Row], stepping: WindowStepper, bad: Sequence[str], fault: str = ""
    ) -> None:
        super().__init__([*rows, *[oracle.Row("bad", 1, row.time) for row in rows if fault == "leaks"][:1]], stepping)
        self._said = self._said[1:] if fault == "missed" else self._said
        self._fault = fault
        self._good, self._bad = pa.table({"value": pa.array([row.value for row in rows], pa.int64())}), bad

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> Any:
        """Divide, and step by the good rows."""
        bad = pa.table({"why": pa.array(self._bad, pa.string())})
        return _Chained(super().bound(to, clock, notes), self._good, bad, lost=self._fault == "lost")


class _Chained(ArrowBatch):
    """Good and bad rows, and behind them those of windows, as ``spark_batch`` lays them out."""

    def __init__(self, made: WindowResultBatch, good: pa.Table, bad: pa.Table, *, lost: bool) -> None:
        told = pa.table({column_of(BAD): pa.array(bad.to_pylist(), pa.struct(list(bad.schema)))})
        of_windows = pa.Table.from_batches(list(made.arrow()), made.schema)
        super().__init__(pa.concat_tables([good.slice(lost), told, of_windows], promote_options="default"))
        self._made, self._good, self._bad = made, good, bad
        self.panes, self.times, self.columns = made.panes, made.times, made.columns

    def digest(self) -> Digest:
        return digest_of(self._good)

    def outputs(self) -> tuple[OutputDigest, ...]:
        bad, good = self._bad, self._good.num_rows
        said = OutputDigest(BAD, ("memory:bad",), fingerprint(bad.schema), digest_of(bad), good, (("key", len(bad)),))
        return said, *(replace(output, filtered=0) for output in self._made.outputs())


class Paned(Pipeline):
    """Stores of panes and of state under ``root``; those of ``beside`` share a transaction."""

    def __init__(self, root: Path, names: tuple[str, ...] = APART, beside: tuple[str, ...] = ()) -> None:
        super().__init__(root, names, beside=beside)

    def sinks(self) -> list[MemorySink]:
        made = {name: MemorySink(f"memory:{name}", store) for name, store in self.stores.items()}
        return [one.window_store(separate=False) if name == "state" else one for name, one in made.items()]

    def panes(self, name: str = "a") -> list[list[dict[str, Any]]]:
        """Rows of panes, epoch by epoch."""
        sink = self.opened(name)
        return [sorted(sink.table(number).to_pylist(), key=_order) for number in self.epochs(name)]

    def state(self) -> list[dict[str, Any]]:
        """Rows of state that stand."""
        rows = self.opened("state").rows()
        return sorted(rows, key=lambda row: (row["key"], row["start"], row["stop"]))

    def epochs(self, name: str) -> list[int]:
        return [marker.epoch.number for marker, _ in self.opened(name).history()]

    def markers(self, name: str) -> list[Epoch]:
        return [marker.epoch for marker, _ in self.opened(name).history()]

    def opened(self, name: str) -> MemorySink:
        return next(sink for sink in self.sinks_open() if sink.id == f"memory:{name}")


def _order(row: dict[str, Any]) -> tuple[str, int]:
    return row["team"], row["seq"]


class Query:
    """Starts of one query with windows.

    Args:
        pipeline: where it writes.
        rules: of its windows.
        epochs: what each of its batches is.
        at_most: windows that may be open.
        panes: whether the call has panes at all.
        fault: how its division is broken, if it has a sink of bad rows.
    """

    def __init__(
        self,
        pipeline: Paned,
        rules: Rules,
        epochs: Sequence[Said],
        *,
        at_most: int | None = None,
        panes: bool = True,
        fault: str = "",
    ) -> None:
        self.epochs, self.fault = epochs, fault
        self.asked: list[int] = []
        self.definition: Definition = definition_of(rules)
        self.sinks = pipeline.sinks()
        keeper = next(sink for sink in self.sinks if sink.id == "memory:state")
        self.divides = "bad" in pipeline.stores
        others = tuple(sink.id for sink in self.sinks if sink is not keeper and sink.id != "memory:bad")
        targets = Targets(others, keeper.id)
        self.stepping = WindowStepper(self.definition, keeper, targets)
        staging = StagedEpochs(pipeline.staging, "orders", self.sinks)
        self.runner = Runner(self.sinks, pipeline.ledger, staging=staging, says=self.says)
        said = (self.definition.fingerprint, self.definition.meaning, self.definition.lateness, at_most)
        self.windows = WindowsConfig(*said) if panes else None
        self.state: State | None = None

    def says(self, epoch: TimedEpoch) -> int | None:
        self.asked.append(epoch.number)
        noted = self.epochs[epoch.number - 1].noted
        return noted if noted in (None, END) else noted * MS

    def writes(self, *numbers: int, rows: Callable[[int], Sequence[oracle.Row]] | None = None) -> Epoch:
        """Write epochs; ``rows`` stands for rows that the batch has by now, instead of those it had."""
        for number in numbers:
            said = self.epochs[number - 1]
            if self.state is None:
                ids, owner = tuple(sink.id for sink in self.sinks), secrets.token_hex(4)
                how: dict[str, Any] = {
                    "transaction_groups": shared_transaction.transaction_groups(self.sinks),
                    "divided": True,
                    "noting": EventTimeConfig("function", "ms", "at"),
                    "windows": self.windows,
                }
                state = coordinator.start(Job("orders", ids, owner, offer_of(number, said), **how))
            else:
                state = coordinator.resume(self.state, offer_of(number, said))
            self.state = self.runner.run(state, self._batch(number, rows(number) if rows else said.rows))
        assert self.state is not None
        return self.state.current

    def _batch(self, number: int, rows: Sequence[oracle.Row]) -> WindowedRows:
        if not self.divides:
            return WindowedRows(rows, self.stepping)
        return DividedRows(rows, self.stepping, [f"epoch {number}"] * (number % 3), self.fault)
