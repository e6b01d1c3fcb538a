"""Step the windows of one epoch from partial results to rows.

It recalls state from its sink, applies :mod:`onceonly.windows.rules` and makes rows of Arrow. It digests the new
state without reading all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from onceonly.protocol.batch import Bound, Notes
from onceonly.protocol.capabilities import RecallsState, StateRow, StateWanted
from onceonly.protocol.guard import foreign
from onceonly.protocol.row_times import RowTimes
from onceonly.windows.result_batch import OutputRows, WindowResultBatch, digest_of, part
from onceonly.windows.rules import json_values
from onceonly.windows.rules.arrow_rows import pane_table, state_table
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import EpochClock, OpenWindowState, Partial, Stepped, WindowKey
from onceonly.windows.rules.step import step, wanted
from onceonly_checkpoints.digests import LATE, PANES, STATE, Digest
from onceonly_checkpoints.epoch_windows import EpochWindows, ResultCounts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from onceonly.spark.batch import SparkBatch


@dataclass(frozen=True, slots=True)
class EpochAggregates:
    """Result of the one action over a batch.

    ``times`` are least, greatest and late times of its rows. ``late`` is ``None`` if late rows are only counted.
    """

    partials: Sequence[Partial]
    rows: int
    times: RowTimes
    late: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Targets:
    """Ids of the sinks of each output. ``late`` is ``None`` if late rows are only counted."""

    panes: tuple[str, ...]
    state: str
    late: str | None = None


@dataclass(frozen=True, slots=True)
class WindowStepper:
    """Step the windows of one pipeline from epoch to epoch.

    ``keeper`` holds the state as the newest epoch left it.
    """

    definition: Definition
    keeper: RecallsState
    targets: Targets

    def stepped(
        self, to: Bound, counted: EpochAggregates, notes: Notes, live: SparkBatch | None = None
    ) -> WindowResultBatch:
        """The rows of an epoch, for each of its outputs.

        ``to`` has the state and clock from which its windows go on. ``notes`` gives the time that the epoch notes. The
        session of ``live`` reads staged files. It is ``None`` without Spark.

        Raises:
            IdentityError: E226, the state differs from the one that the epoch before left.
            DestinationError: the keeper does not answer.
            ConfigurationError: E133, the user's function returns no time.
        """
        definition, targets = self.definition, self.targets
        times, noted = notes(counted.times, counted.rows)
        moment = EpochClock(to.clock, noted, to.noted_before)
        found = self._recalled(moment, counted.partials, to)
        held = [_read(row, targets.state, to) for row in found]
        done = step(definition, moment, held, counted.partials)
        changed = frozenset((*(one.place for one in done.kept), *done.gone))
        left = _left(to, done, [row for row in found if _place(row) in changed], targets.state)
        dropped = done.dropped + times.untimed
        told = (definition.fingerprint, definition.meaning, left, counted.rows, dropped, to.clock, to.since)
        results = pane_table(definition, done.rows)
        panes = EpochWindows(*told, definition.form, _timings(results))
        session = live.session if live else None
        parts = [
            part(PANES, targets.panes, results, session),
            part(STATE, (targets.state,), state_table(done.kept, done.gone), session),
            *_late(counted.late, targets.late, session),
        ]
        return WindowResultBatch(parts, times, panes, live)

    def _recalled(self, moment: EpochClock, partials: Sequence[Partial], to: Bound) -> Sequence[StateRow]:
        asked = wanted(self.definition, moment, partials)
        places = [(one.key, one.start, one.end) for one in asked.places]
        return self.keeper.recall(StateWanted(places, asked.keys, asked.wake_clock, asked.wake_time), to.as_of)


def _timings(results: pa.Table) -> ResultCounts:
    import pyarrow.compute as pc

    compute: Any = pc
    counted = compute.value_counts(results.filter(compute.greater(results["sign"], 0))["timing"])
    found = {one["values"]: one["counts"] for one in counted.to_pylist()}
    return ResultCounts(found.get("EARLY", 0), found.get("ON_TIME", 0), found.get("LATE", 0))


def _late(rows: pa.Table | None, sink: str | None, session: SparkSession | None) -> list[OutputRows]:
    return [part(LATE, (sink,), rows, session)] if rows is not None and sink is not None else []


def _place(row: StateRow) -> WindowKey:
    return WindowKey(row.key, row.start, row.stop)


def _read(row: StateRow, keeper: str, to: Bound) -> OpenWindowState:
    try:
        return OpenWindowState.read(_place(row), row.body)
    except ValueError as error:
        problem = f"the window of key {row.key} from {row.start} on cannot be read"
        raise foreign(keeper, to.as_of, problem) from error


def _left(to: Bound, done: Stepped, replaced: Sequence[StateRow], keeper: str) -> Digest:
    """Digest of all state after the epoch, computed from the changed rows only."""
    taken = state_digest((row.key, row.start, row.stop, row.body) for row in replaced)
    written = state_digest((one.place.key, one.place.start, one.place.end, one.body) for one in done.kept)
    left = to.open - taken + written
    if left.rows < 0:
        raise foreign(keeper, to.as_of, "there are more windows than that epoch left")
    return left


_PIECE = 10_000
"""Rows that are hashed at once."""


def state_digest(rows: Iterable[tuple[str, int, int, str]]) -> Digest:
    """The digest of rows of state, as epochs record it.

    ``rows`` have key, start, end and body of windows, in any order. They are hashed piece by piece.
    """
    import pyarrow as pa

    left, found = iter(rows), Digest(0)
    while piece := list(islice(left, _PIECE)):
        columns = dict(zip(_hashed().names, map(list, zip(*piece, strict=True)), strict=True))
        found += digest_of(pa.table(columns, schema=_hashed()))
    return found


def _hashed() -> pa.Schema:
    import pyarrow as pa

    text, number = json_values.arrow("string"), json_values.arrow("bigint")
    return pa.schema([("key", text), ("start", number), ("stop", number), ("body", text)])
