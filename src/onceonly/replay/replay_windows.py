"""Step windows again over replayed epochs, with state in memory.

The record has the inputs of each window step: the engine's clock, and the noted time. So the same step over the same
rows gives the same results and leaves the same state, even if the table of state has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.machine import window_rules as windows
from onceonly.protocol import Estimate
from onceonly.protocol.batch import AsOf
from onceonly.protocol.capabilities import GONE, StateRow, StateWanted
from onceonly.protocol.row_times import RowTimes
from onceonly.replay.spark_replay import Replay
from onceonly.windows import spark_partials
from onceonly.windows.batch import WindowedBatch
from onceonly.windows.epoch_step import Targets, WindowStepper
from onceonly.windows.result_batch import WindowResultBatch
from onceonly.windows.rules.spec import Definition, Panes, define
from onceonly_checkpoints.digests import LATE, PANES, STATE
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.epoch_windows import EpochWindows
from onceonly_checkpoints.model import AdoptionKind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Place = tuple[str, int, int]
"""Key, start and end of a window."""


@dataclass
class InMemoryWindowStore:
    """Window state in this process: a ``RecallsState`` that applies the changes of each epoch.

    ``rows`` are the current ones by window, each with the epoch that wrote it.
    """

    rows: dict[Place, tuple[Mapping[str, Any], int]] = field(default_factory=dict)

    def recall(self, wanted: StateWanted, as_of: AsOf) -> Sequence[StateRow]:
        """Return rows of state, each once. Windows that were given up do not count."""
        places, keys = set(wanted.places), set(wanted.keys)
        return [
            StateRow(*place, row["body"], epoch)
            for place, (row, epoch) in self.rows.items()
            if epoch >= as_of.series and (place in places or place[0] in keys or _wakes(row, wanted))
        ]

    def take(self, changes: pa.Table, epoch: int) -> None:
        """Apply an epoch's changes."""
        for row in changes.to_pylist():
            place = row["key"], row["start"], row["stop"]
            if row[GONE]:
                self.rows.pop(place, None)
            else:
                self.rows[place] = row, epoch


def _wakes(row: Mapping[str, Any], wanted: StateWanted) -> bool:
    clock, time = wanted.wake_clock, wanted.wake_time
    by_clock = clock is not None and row["wake_clock"] is not None and row["wake_clock"] <= clock
    return by_clock or (time is not None and row["wake_time"] <= time)


Take = Callable[[Epoch, WindowResultBatch], None]
"""Gets a recorded epoch, and what its windows give now."""


@dataclass
class WindowReplay:
    """Steps the windows of recorded epochs again.

    ``kept`` is the state after the newest of them.
    """

    replay: Replay
    panes: Panes
    kept: InMemoryWindowStore = field(default_factory=InMemoryWindowStore)

    def run(self, epochs: range, take: Take) -> None:
        """Run epochs again, oldest first, after all earlier epochs whose windows continue in them.

        ``epochs`` are dense numbers. ``take`` gets each of them that has a batch.

        Raises:
            OnceOnlyError: as :meth:`Replay.run`. E234 epochs before them are not on record. E110 ``panes`` are not
                those that wrote them.
        """
        known = {record.epoch.number: record.epoch for record in self.replay.records}
        begun = began(known, epochs.start, pipeline=self._pipeline, ledger=self.replay.ledger)
        self.kept = InMemoryWindowStore()
        stood: EpochWindows | None = None
        definition: Definition | None = None

        def each(ran: tuple[EpochRecord, ...], rows: DataFrame) -> None:
            nonlocal stood, definition
            epoch = ran[-1].epoch
            if definition is None:
                definition = define(self.panes, dict(rows.dtypes), self._kinds(rows))
                self._demand(definition, epoch)
            last = _behind(known, epoch.number, stood)
            made = self._stepped(rows, definition, epoch, last)
            stood = made.panes()
            self.kept.take(made.rows_of(STATE), epoch.number)
            if epoch.number in epochs:
                take(epoch, made)

        self.replay.run(range(begun, epochs.stop), each)

    def _stepped(self, rows: DataFrame, definition: Definition, epoch: Epoch, last: Epoch | None) -> WindowResultBatch:
        clock = epoch.lineage.batch_timestamp_ms if epoch.lineage else 0
        to = windows.bound(
            AsOf(epoch.series, epoch.number, clock, self._pipeline), last, begins=epoch.replaces is not None
        )
        noted = epoch.time.noted if epoch.time else None

        def notes(times: RowTimes, _: int) -> tuple[RowTimes, int | None]:
            return times, noted

        batch = WindowedBatch(rows, WindowStepper(definition, self.kept, _targets(epoch)), Estimate(None, None))
        return batch.bound(to, None, notes)

    def _kinds(self, rows: DataFrame) -> Mapping[str, str]:
        return spark_partials.kinds_of(self._pipeline, rows, self.panes)

    def _demand(self, definition: Definition, epoch: Epoch) -> None:
        if epoch.panes is None or definition.fingerprint == epoch.panes.definition:
            return
        raise refuse(
            "E110",
            problem=f'Epoch {epoch.number} of "{self._pipeline}" was written by other panes.',
            cause="windows, trigger, values or lateness were others, or the rows have other types",
            next="give the Panes that the query was started with",
        )

    @property
    def _pipeline(self) -> str:
        return self.replay.records[0].pipeline if self.replay.records else ""


def began(known: Mapping[int, Epoch], first: int, *, pipeline: str, ledger: str) -> int:
    """Return the first epoch whose windows continue in epoch ``first``. ``known`` are recorded epochs by number.

    Raises:
        IdentityError: E234, epochs between the two are not on record.
    """
    begun = known[first].windows_since
    lacking = next((number for number in range(begun, first) if number not in known), None)
    if lacking is not None:
        reason = f"windows of epoch {first} go back to epoch {begun}, and the ledger lacks epoch {lacking}"
        raise refuse("E234", ledger=ledger, pipeline=pipeline, first=begun, last=first, reason=reason)
    return begun


def _behind(known: Mapping[int, Epoch], number: int, stood: EpochWindows | None) -> Epoch | None:
    """Return the epoch before ``number`` with the recomputed windows, or ``None`` before the first."""
    last = known.get(number - 1)
    if last is None or stood is None:
        return last
    for epoch in _decisions(known, number):
        if epoch.adoption and epoch.adoption.kind is AdoptionKind.RESET_PANES:
            stood = stood.given_up(epoch.number)
    return replace(last, panes=stood)


def _decisions(known: Mapping[int, Epoch], number: int) -> Iterator[Epoch]:
    """Yield operator epochs directly before one, the newest first."""
    while (epoch := known.get(number := number - 1)) and epoch.lineage is None:
        yield epoch


def _targets(epoch: Epoch) -> Targets:
    sinks = {output.name: output.sinks for output in epoch.outputs}
    late = sinks.get(LATE)
    return Targets(sinks[PANES], sinks[STATE][0], late[0] if late else None)
