"""Whether an epoch of an old pipeline costs more than one of a young one: without Spark, through the real core.

An old and a young pipeline are measured in turns, epoch by epoch, so that the machine's moods fall on both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import bars as names
from benchmarks.data import table
from benchmarks.model import Bar, Pair, Result
from onceonly.machine import coordinator
from onceonly.machine.facts import Offer
from onceonly.machine.state import Job, State
from onceonly.protocol import Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Slice, SourceIdentity, SourceOffsets
from onceonly_sinks.delta.log_committer import CHECKPOINT_EVERY, COMPACT_EVERY

ROWS = 100
YOUNG = 100
"""Age at which the young pipeline is measured: half of the window before it, half after."""

LOG_KEPT = "interval 20 seconds"
"""Of the table that is tended: some 1,000 epochs at the pace of these, as many as a week has at one in ten minutes."""

_WINDOW = 60
_SOURCES = (SourceIdentity("0", "kafka:events"),)
_LEDGER_PHASES = ("intend", "record")


class _Rows(ArrowBatch):
    """One batch for every epoch; its digest is not what is measured."""

    @cached_property
    def _digest(self) -> Digest:
        return super().digest()

    def digest(self) -> Digest:
        return self._digest


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of one epoch: all of it, and the ledger's part."""

    whole: float
    ledger: float


class Lived:
    """A pipeline that has lived through some epochs.

    Args:
        sink: where the rows go.
        ledger: its index.
        name: of the pipeline.
        carried: whether the sink's transaction writes the ledger.
        rows: of an epoch, at most :data:`ROWS`.
    """

    def __init__(self, sink: Sink, ledger: SqlLedger, name: str, *, carried: bool, rows: int = ROWS) -> None:
        self._sink, self._ledger, self._name = sink, ledger, name
        self._runner = Runner([sink], ledger, carried=carried)
        self._batch = _Rows(table(ROWS).slice(0, rows))
        self._state: State | None = None
        self.epochs = 0

    def write(self) -> Cost:
        """One epoch more."""
        offer = self._offer(self.epochs)
        if self._state is None:
            state = coordinator.start(Job(self._name, (self._sink.id,), "benchmark", offer))
        else:
            state = coordinator.resume(self._state, offer)
        began = time.perf_counter()
        self._state = self._runner.run(state, self._batch)
        whole = time.perf_counter() - began
        self.epochs += 1
        ledger = sum(self._runner.phases.get(phase, 0.0) for phase in _LEDGER_PHASES)
        return Cost(whole * 1000, ledger * 1000)

    def grow(self, epochs: int) -> None:
        """Live until this many epochs."""
        while self.epochs < epochs:
            self.write()
            if not self.epochs % 1000:
                print(f"long: {self._name}: {self.epochs} epochs", file=sys.stderr)

    def close(self) -> None:
        """Release connections."""
        self._sink.close()
        self._ledger.close()

    def _offer(self, batch: int) -> Offer:
        start, end = (_at(number * ROWS if number else None) for number in (batch, batch + 1))
        lineage = Lineage("query", "run", "file:/checkpoint", batch, 1 + batch, 0)
        return Offer(Slice(start, end), lineage, _SOURCES, "columns")


def _at(offset: int | None) -> SourceOffsets:
    return SourceOffsets.of({"0": None if offset is None else f'{{"events":{{"0":{offset}}}}}'})


def measure(bars: Sequence[Bar], dsn: str, root: Path, age: int) -> tuple[list[Result], dict[str, Any]]:
    """Compare epochs ``age`` and :data:`YOUNG` of each bar; also what was measured, for the record."""
    wanted = {bar.ours for bar in bars}
    found: dict[str, tuple[list[Cost], list[Cost]]] = {}
    if names.AUTO in wanted:
        found[names.AUTO] = _compare(lambda which: _postgres(dsn, which), age)
    if wanted & {names.UNTENDED, names.LEDGER}:
        untended = _compare(lambda which: _delta(root / "untended", which), age)
        found[names.UNTENDED] = found[names.LEDGER] = untended
    if names.TENDED in wanted:
        found[names.TENDED] = _compare(lambda which: _delta(root / "tended", which, tended=True), age)
    about = {
        "long_age": age,
        "long_young": YOUNG,
        "long_window": _WINDOW,
        "long_rows": ROWS,
        "long_checkpoint": CHECKPOINT_EVERY,
        "long_compact": COMPACT_EVERY,
        "long_log": LOG_KEPT,
        "long_means": {
            side: [round(_mean(costs), 1) for costs in found[side]] for side in found if side != names.LEDGER
        },
    }
    return [_result(bar, *found[bar.ours]) for bar in bars], about


def _compare(make: Callable[[str], Lived], age: int) -> tuple[list[Cost], list[Cost]]:
    old, young = make("old"), make("young")
    try:
        old.grow(age - _WINDOW // 2)
        young.grow(min(YOUNG, age) - _WINDOW // 2)
        pairs = [(old.write(), young.write()) for _ in range(_WINDOW)]
    finally:
        old.close()
        young.close()
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _result(bar: Bar, old: Sequence[Cost], young: Sequence[Cost]) -> Result:
    """One pair per third of the window: medians, since single epochs scatter."""
    third = _WINDOW // 3
    pairs = [
        Pair(_middle(bar, old[first : first + third]), _middle(bar, young[first : first + third]))
        for first in range(0, _WINDOW, third)
    ]
    return Result(bar, f"the same at epoch {YOUNG}", tuple(pairs))


def _mean(costs: Sequence[Cost]) -> float:
    return mean(cost.whole for cost in costs)


def _middle(bar: Bar, costs: Sequence[Cost]) -> float:
    return median(cost.ledger if bar.ours == names.LEDGER else cost.whole for cost in costs)


def _postgres(dsn: str, which: str) -> Lived:
    from onceonly_sinks.postgres import PostgresSink

    sink = PostgresSink(dsn, f"long_{which}")
    return Lived(sink, SqlLedger(str(sink.ledger_url)), f"postgres-{which}", carried=True)


def _delta(root: Path, which: str, *, tended: bool = False) -> Lived:
    from deltalake import DeltaTable

    from onceonly_sinks.delta import DeltaSink

    root.mkdir(exist_ok=True)
    sink = DeltaSink(str(root / which))
    lived = Lived(sink, SqlLedger(str(root / f"{which}.db")), f"delta-{which}", carried=False)
    lived.grow(1)
    kept = {"delta.logRetentionDuration": LOG_KEPT} if tended else {"delta.autoOptimize.autoCompact": "false"}
    DeltaTable(root / which).alter.set_table_properties(kept)
    return lived
