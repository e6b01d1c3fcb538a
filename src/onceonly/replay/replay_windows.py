"""Step windows again over replayed epochs, and rebuild their state.

The record has the inputs of each window step: the engine's clock, and the noted time. So the same step over the same
rows gives the same results and leaves the same state, even if the table of state has changed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onceonly import faults
from onceonly.errors import refuse
from onceonly.errors.options import misused
from onceonly.machine import division_rules as windows
from onceonly.protocol import Estimate, Sink
from onceonly.protocol.batch import ArrowBatch, AsOf
from onceonly.protocol.capabilities import CHANGED, GONE, OpenWindow, StateRow, StateWanted, WindowStore
from onceonly.protocol.row_times import RowTimes
from onceonly.replay import rerun_request
from onceonly.replay.spark_replay import Replay
from onceonly.runtime import operator_epoch
from onceonly.runtime.sink_refusals import naming
from onceonly.windows import spark_partials
from onceonly.windows.epoch_step import Targets, WindowResultBatch, WindowStepper, digest_of, fingerprint, state_digest
from onceonly.windows.rules.spec import Definition, Windows, define
from onceonly.windows.rules.state import WindowKey, state_table
from onceonly.windows.spark_batch import WindowedBatch
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import LATE, RECORDS, STATE, WINDOWS, Digest, OutputDigest, beside_windows
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from onceonly.protocol import SparkSession
    from onceonly.replay.spark_replay import Job

# ---- Rebuild window state in its sink by an epoch of its own.
#
# The epoch writes rows that differ from the state that the newest epoch left, and removes foreign ones.

Rows = Mapping[tuple[str, int, int], Mapping[str, Any]]
"""Rows of state by key, start and end of their window."""


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """State of windows after an epoch, with its recorded digest.

    ``outputs`` are those of the newest epoch that had any.
    """

    rows: Rows
    digest: Digest
    outputs: tuple[OutputDigest, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Faults of the stored state.

    Attributes:
        missing: rows that are not there, or differ.
        foreign: windows that are there and are not open.
    """

    missing: tuple[Mapping[str, Any], ...]
    foreign: tuple[WindowKey, ...]

    @property
    def text(self) -> str:
        """Difference in words."""
        return f"{len(self.missing)} windows written, {len(self.foreign)} taken away"


def difference(open_windows: Iterable[OpenWindow], expected: Rows, newest: int) -> Difference:
    """Compare stored state with computed state.

    ``newest`` is the epoch of ``expected``. A row of a higher epoch is wrong and counts as missing, even if its values
    match.
    """
    right, foreign = set[tuple[str, int, int]](), list[WindowKey]()
    for open_window in open_windows:
        row = open_window.state
        window_key = row.key, row.start, row.stop
        expected_row = expected.get(window_key)
        if expected_row is None:
            foreign.append(WindowKey(*window_key))
            continue
        stored = {"body": row.body, "wake_clock": open_window.wake_clock, "wake_time": open_window.wake_time}
        if row.epoch <= newest and all(expected_row[name] == value for name, value in stored.items()):
            right.add(window_key)
    return Difference(tuple(row for key, row in expected.items() if key not in right), tuple(foreign))


def _table(differences: Difference) -> pa.Table:
    import pyarrow as pa

    gone = state_table((), differences.foreign)
    return pa.concat_tables([pa.Table.from_pylist(list(differences.missing), schema=gone.schema), gone])


def rebuild(
    sinks: Sequence[Sink],
    keeper: WindowStore,
    ledger: Ledger,
    pipeline: str,
    *,
    accepted: Adoption,
    left: StoredWindows,
) -> tuple[Epoch, Difference] | None:
    """Restore the newest epoch's state by an epoch of its own. Return ``None`` if it is correct.

    Every driver is fenced out. Repeated after a crash, it writes the rest. ``keeper`` is the sink of state.
    ``accepted`` has kind ``rebuild-panes`` and names, as its last epoch, the computed one, which left ``left``. Raises
    E110: the query continued since, or an error of opening and sinks.
    """
    state = operator_epoch.opened(sinks, ledger, pipeline)
    last = state.opening.last
    # Decisions of operators leave state as it is, such as this one, cut off before every sink had it.
    if last is None or last.windows is None or last.windows.open != left.digest:
        raise operator_epoch.went_on(pipeline, last.number if last else 0, accepted.last)
    with naming(keeper):
        differences = difference(keeper.open_windows(last.windows.since) or (), left.rows, last.number)
    if not (differences.missing or differences.foreign):
        return None
    rows, end = _table(differences), last.written.end
    epoch = operator_epoch.decision(
        state, Slice(end, end), accepted, resume_point=last.resume_point, sources=last.sources, base=last
    )
    outputs = tuple(_output(output, rows) for output in left.outputs)
    epoch = chain.linked(replace(epoch, chain="", digest=digest_of(rows), outputs=outputs))
    faults.fire(faults.Point.PREPARE_BEFORE)
    with naming(keeper):
        prepared = keeper.prepare(ArrowBatch(rows), epoch.number)
    faults.fire(faults.Point.PREPARE_AFTER)
    faults.fire(faults.Point.COMMIT_BEFORE)
    # First where the rows are: others can be brought to an epoch without any.
    order = [keeper, *(sink for sink in sinks if sink is not keeper)]
    operator_epoch.write(state, order, ledger, epoch, last, rows={keeper.id: prepared})
    faults.fire(faults.Point.RECORD_AFTER)
    return epoch, differences


def _output(output: OutputDigest, rows: pa.Table) -> OutputDigest:
    """Give these rows to state, and none to other outputs."""
    if output.name == STATE:
        return OutputDigest(STATE, output.sinks, fingerprint(rows.schema), digest_of(rows))
    return OutputDigest(output.name, output.sinks, output.schema, Digest(0), rows.num_rows)


# ---- Step windows again over replayed epochs, with state in memory.

WindowKeyTuple = tuple[str, int, int]
"""Key, start and end of a window."""


@dataclass
class InMemoryWindowStore:
    """Window state in this process: a ``WindowStore`` that applies each epoch's changes. ``rows`` are by window."""

    rows: dict[WindowKeyTuple, tuple[Mapping[str, Any], int]] = field(default_factory=dict)

    def read_windows(self, request: StateWanted, as_of: AsOf) -> Sequence[StateRow]:
        """Return rows of state, each once. Windows that were given up do not count."""
        rows = ({**row, CHANGED: epoch} for row, epoch in self.rows.values() if epoch >= as_of.series)
        return list(request.select(rows))

    def take(self, changes: pa.Table, epoch: int) -> None:
        """Apply an epoch's changes."""
        for row in changes.to_pylist():
            window = row["key"], row["start"], row["stop"]
            if row[GONE]:
                self.rows.pop(window, None)
            else:
                self.rows[window] = row, epoch


Take = Callable[[Epoch, WindowResultBatch], None]
"""Gets a recorded epoch, and what its windows give now."""


@dataclass
class WindowReplay:
    """Steps the windows of recorded epochs again. ``store`` has the state after the newest of them."""

    replay: Replay
    panes: Windows
    store: InMemoryWindowStore = field(default_factory=InMemoryWindowStore)

    def run(self, epochs: range, take: Take) -> None:
        """Run epochs again, oldest first, after all earlier epochs whose windows continue in them.

        ``epochs`` are dense numbers. ``take`` gets each of them that has a batch.

        Raises:
            OnceOnlyError: as :meth:`Replay.run`. E234 epochs before them are not on record. E110 ``panes`` are not
                those that wrote them.
        """
        by_number = {record.epoch.number: record.epoch for record in self.replay.records}
        begun = began(by_number, epochs.start, pipeline=self._pipeline, ledger=self.replay.ledger)
        self.store = InMemoryWindowStore()
        previous: EpochWindows | None = None
        definition: Definition | None = None

        def each(ran: tuple[EpochRecord, ...], rows: DataFrame) -> None:
            nonlocal previous, definition
            epoch = ran[-1].epoch
            if definition is None:
                kinds = spark_partials.kinds_of(self._pipeline, rows, self.panes)
                definition = define(self.panes, dict(rows.dtypes), kinds)
                self._demand(definition, epoch)
            last = _behind(by_number, epoch.number, previous)
            made = self._stepped(rows, definition, epoch, last)
            previous = made.panes()
            self.store.take(made.rows_of(STATE), epoch.number)
            if epoch.number in epochs:
                take(epoch, made)

        self.replay.run(range(begun, epochs.stop), each)

    def _stepped(self, rows: DataFrame, definition: Definition, epoch: Epoch, last: Epoch | None) -> WindowResultBatch:
        named = f"--query {shlex.quote(self._pipeline)} --ledger {shlex.quote(self.replay.ledger)}"
        given_up = f"give the open windows up: onceonly recover reset-windows {named} --accept-loss"
        demand_undivided(epoch, self._pipeline, f"put the sinks back from a backup; or {given_up}")
        clock = epoch.lineage.batch_timestamp_ms if epoch.lineage else 0
        to = windows.bound(
            AsOf(epoch.series, epoch.number, clock, self._pipeline), last, begins=epoch.replaces is not None
        )
        complete_until = epoch.time.complete_until if epoch.time else None

        def notes(times: RowTimes, _: int) -> tuple[RowTimes, int | None]:
            return times, complete_until

        batch = WindowedBatch(rows, WindowStepper(definition, self.store, _targets(epoch)), Estimate(None, None))
        return batch.bound(to, None, notes)

    def _demand(self, definition: Definition, epoch: Epoch) -> None:
        if epoch.windows is None or definition.fingerprint == epoch.windows.definition:
            return
        raise misused(
            f'Epoch {epoch.number} of "{self._pipeline}" was written by other windows.',
            "windows, trigger, values or lateness were others, or the rows have other types",
            "give the Windows that the query was started with",
        )

    @property
    def _pipeline(self) -> str:
        return self.replay.records[0].pipeline if self.replay.records else ""


def demand_undivided(epoch: Epoch, pipeline: str, remedy: str) -> None:
    """Refuse to run windows again that took only a part of their rows (E110)."""
    if beside_windows(epoch.outputs):
        taken = "took the rows that an Output, quality= or dedupe= left"
        problem = f'Windows of epoch {epoch.number} of "{pipeline}" {taken}.'
        raise misused(problem, "these arguments choose the rows, and a replay is not given them", remedy)


def began(epochs: Mapping[int, Epoch], first: int, *, pipeline: str, ledger: str) -> int:
    """Return the first epoch whose windows continue in epoch ``first`` (E234: an epoch between is not on record)."""
    begun = epochs[first].windows_since
    lacking = next((number for number in range(begun, first) if number not in epochs), None)
    if lacking is not None:
        reason = f"windows of epoch {first} go back to epoch {begun}, and the ledger lacks epoch {lacking}"
        raise refuse("E234", ledger=ledger, pipeline=pipeline, first=begun, last=first, reason=reason)
    return begun


def _behind(epochs: Mapping[int, Epoch], number: int, previous: EpochWindows | None) -> Epoch | None:
    """Return the epoch before ``number`` with the recomputed windows, or ``None`` before the first."""
    last = epochs.get(number - 1)
    if last is None or previous is None:
        return last
    for epoch in _decisions(epochs, number):
        if epoch.adoption and epoch.adoption.kind is AdoptionKind.RESET_PANES:
            previous = previous.given_up(epoch.number)
    return replace(last, windows=previous)


def _decisions(epochs: Mapping[int, Epoch], number: int) -> Iterator[Epoch]:
    """Yield operator epochs directly before one, the newest first."""
    while (epoch := epochs.get(number := number - 1)) and epoch.lineage is None:
        yield epoch


def _targets(epoch: Epoch) -> Targets:
    sinks = {output.name: output.sinks for output in epoch.outputs}
    late = sinks.get(LATE)
    return Targets(sinks[WINDOWS], sinks[STATE][0], late[0] if late else None, sinks.get(RECORDS, ()))


# ---- ``onceonly recover rebuild-windows``: recompute window state from the source.


def rebuild_panes(
    pipeline: str,
    *,
    job: Job,
    windows: Windows,
    sinks: Sequence[Sink],
    keeper: WindowStore,
    ledger: Ledger,
    spark: SparkSession,
    accepted: Adoption,
    transform: Callable[[DataFrame], DataFrame] | None = None,
) -> tuple[Epoch, Difference] | None:
    """Recompute the open windows from their beginning, and correct stored state that differs.

    ``job`` is a ``function(spark)`` that returns the query, not started. ``sinks`` has every sink, with ``keeper``,
    that of state. ``spark`` is a classic session, with the time zone and ANSI mode of the query. ``accepted`` has the
    kind ``rebuild-panes``, and its last epoch is the newest one.

    Returns:
        The epoch with the corrections, and the differences. ``None`` if there were none.

    Raises:
        OnceOnlyError: E226 the source gives other windows than the newest epoch left. E230, E234, E236 its epochs
            cannot be run again. E110 the query went on, or ``windows`` differ. Errors of the opening and the sinks.
    """
    epoch_records = ledger.epochs(pipeline)
    newest = epoch_records[-1].epoch
    replay = WindowReplay(
        Replay(spark, job, epoch_records, rerun_request.checkpoint(epoch_records, None), ledger.address, transform),
        windows,
    )
    last = next(record.epoch for record in reversed(epoch_records) if record.epoch.lineage)
    replay.run(range(last.number, last.number + 1), lambda _, __: None)
    since = newest.windows.since if newest.windows else 1
    expected = {window: row for window, (row, epoch) in replay.store.rows.items() if epoch >= since}
    digest = state_digest((*window, row["body"]) for window, row in expected.items())
    if newest.windows is None or digest != newest.windows.open:
        problem = f"and by the code that was given, its source gives {digest.rows} windows, which are others, too"
        details = {"epoch": newest.number, "problem": problem, "ledger": shlex.quote(ledger.address)}
        raise refuse("E226", sink=keeper.id, pipeline=pipeline, **details)
    outputs = next(record.epoch.outputs for record in reversed(epoch_records) if record.epoch.outputs)
    left = StoredWindows(expected, digest, outputs)
    return rebuild(sinks, keeper, ledger, pipeline, accepted=accepted, left=left)
