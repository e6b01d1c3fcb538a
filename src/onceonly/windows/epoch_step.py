"""One epoch of windows: partial results to state, and result rows.

The rules are those of :mod:`onceonly.windows`. Here their answers become rows of Arrow. The state after the epoch is
counted without being read.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from onceonly.protocol import Batch
from onceonly.protocol.batch import ArrowBatch, AsOf, Bound, Notes
from onceonly.protocol.capabilities import StateRow, StateWanted
from onceonly.protocol.guard import foreign
from onceonly.protocol.row_times import RowTimes
from onceonly.spark import digest, frames
from onceonly.spark.detect import engine_for
from onceonly.windows.rules import json_values
from onceonly.windows.rules import state as state_rules
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.step import state_request, step
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import LATE, RECORDS, STATE, WINDOWS, Digest, OutputDigest, column_of
from onceonly_checkpoints.epoch import OutputColumns
from onceonly_checkpoints.epoch_time import EpochWindows, ResultCounts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from onceonly.spark.batch import SparkBatch


# ---- Result rows of windows, by output, as one batch in memory.
#
# They are the union of the outputs' rows. Each row has the structure of one output and null in those of the others.
# So such an epoch is staged, counted, healed and audited as any epoch with outputs.


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Rows of one output for the sinks with these ids.

    The digest is of the rows as those sinks hold them. ``schema`` is a fingerprint of the columns.
    """

    name: str
    sinks: tuple[str, ...]
    rows: pa.Table
    digest: Digest
    schema: str


def part(name: str, sinks: Sequence[str], rows: pa.Table, session: SparkSession | None) -> OutputRows:
    """Return the rows of one output, counted.

    ``rows`` have Spark's Arrow types. Only ``session`` can hash some columns.
    """
    return OutputRows(name, tuple(sinks), rows, digest_of(rows, session), fingerprint(rows.schema))


def digest_of(rows: pa.Table, session: SparkSession | None = None) -> Digest:
    """Return the digest of rows in Arrow, the same that Spark computes of them.

    Raises ``TypeError``: only Spark can hash such columns, and there is no session.
    """
    hashing = digest.hashing(struct_of(rows.schema))
    if hashing:
        return sum((hashing(piece) for piece in rows.to_batches()), Digest(0))
    if session is None:
        raise TypeError(f"only Spark can hash rows of {rows.schema.names}")
    from pyspark.sql import functions as f

    df = frames.of_arrow(session, rows)
    hashed = df.select(digest.row_hash(df.schema).alias("hash"))
    counted = hashed.select(f.col("hash"), f.lit(1).alias("one")).agg(*digest.sums(f.col("hash"), f.col("one")))
    return digest.from_metrics(counted.collect()[0].asDict())


def fingerprint(schema: pa.Schema) -> str:
    """Return the fingerprint of columns, as for those of a plan."""
    return chain.fingerprint((field.name, field.dataType.simpleString()) for field in struct_of(schema).fields)


def struct_of(schema: pa.Schema) -> Any:
    """Return Spark's types of Arrow columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


class WindowResultBatch(ArrowBatch):
    """Rows of all outputs in memory, with event times and windows of the epoch.

    ``times`` come from the aggregated rows and the user's function. The session of ``live`` can read staged files, with
    ``None`` there is no Spark.
    """

    def __init__(
        self, parts: Sequence[OutputRows], times: RowTimes, panes: EpochWindows, live: SparkBatch | None = None
    ) -> None:
        super().__init__(union({column_of(part.name): part.rows for part in parts}), partitions=1)
        self._parts = tuple(parts)
        self._times = times
        self._panes = panes
        self._live = live

    def reread(self, paths: tuple[str, ...], schema: pa.Schema) -> Batch:
        """Return a batch over Parquet files of ``schema`` (``TypeError``: there is no session that could read them)."""
        if self._live is None:
            raise TypeError("there is no session that reads staged files")
        return self._live.reread(paths, schema)

    def digest(self) -> Digest:
        """Digest of the rows of all outputs."""
        return sum((part.digest for part in self._parts), Digest(0))

    def outputs(self) -> tuple[OutputDigest, ...]:
        """Digest of each output. A row is in one of them."""
        total = self._table.num_rows
        return tuple(
            OutputDigest(part.name, part.sinks, part.schema, part.digest, total - part.rows.num_rows)
            for part in self._parts
        )

    def times(self) -> RowTimes:
        """Event times from the aggregated rows and the user's function."""
        return self._times

    def panes(self) -> EpochWindows:
        """Windows of the epoch."""
        return self._panes

    def columns(self) -> tuple[OutputColumns, ...]:
        """Columns of results and late rows."""
        parts = (part for part in self._parts if part.name != STATE)
        return tuple(OutputColumns(part.name, frames.columns_in(part.rows.schema)) for part in parts)

    def rows_of(self, name: str) -> pa.Table:
        """Return the rows of one output."""
        return next(part.rows for part in self._parts if part.name == name)


def union(parts: Mapping[str, pa.Table]) -> pa.Table:
    """Concatenate rows of all parts, each within the structure of its part."""
    import pyarrow as pa

    schema = pa.schema([nullable(pa.field(name, pa.struct(list(rows.schema)))) for name, rows in parts.items()])
    pieces: list[pa.Table] = []
    for name, rows in parts.items():
        if count := rows.num_rows:
            arrays = [_of(rows, field) if field.name == name else pa.nulls(count, field.type) for field in schema]
            pieces.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(pieces).combine_chunks() if pieces else schema.empty_table()


def _of(rows: pa.Table, field: pa.Field[Any]) -> pa.Array[Any]:
    import pyarrow as pa

    columns = [column.combine_chunks() for column in rows.columns]
    fields = list(field.type)
    own = frames.cast(pa.RecordBatch.from_arrays(columns, names=rows.schema.names), pa.schema(fields))
    return pa.StructArray.from_arrays(own.columns, fields=fields)


def nullable(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return a column whose parts may be missing."""
    import pyarrow as pa

    # Arrow's writer refuses a missing structure whose parts are never null.
    kind: Any = field.type
    parts = pa.struct(list(map(nullable, kind))) if pa.types.is_struct(kind) else kind
    return field.with_type(parts).with_nullable(True)


# ---- One epoch of windows, from partial results to rows and state.


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause Python's collector of cycles.

    It would search the windows of an epoch, which are no cycles, again and again: a third of the time of a million.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class EpochAggregates:
    """Result of one action over a batch: partial results by key and window, row count and event times.

    ``late`` has the rows of closed windows if a sink keeps them, or ``None`` if they are only counted.
    """

    partials: Sequence[state_rules.Partial]
    rows: int
    times: RowTimes
    late: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Targets:
    """Ids of the sinks of panes, of state, of late rows and of records. Late rows without one are only counted."""

    panes: tuple[str, ...]
    state: str
    late: str | None = None
    records: tuple[str, ...] = ()


class WindowReader(Protocol):
    """What a stepper needs of a :class:`WindowStore`."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> Sequence[StateRow]:
        """As :meth:`WindowStore.read_windows`."""
        ...


@dataclass(frozen=True, slots=True)
class WindowStepper:
    """Steps the windows of one pipeline from epoch to epoch.

    ``keeper`` holds the state, as the newest epoch left it.
    """

    definition: Definition
    keeper: WindowReader
    targets: Targets

    @collector_paused()
    def stepped(
        self, to: Bound, counted: EpochAggregates, notes: Notes, live: SparkBatch | None = None
    ) -> WindowResultBatch:
        """Return the rows of an epoch, for each of its outputs.

        ``notes`` gives the noted time. The session of ``live`` can read staged files, with ``None`` there is no Spark.

        Raises:
            IdentityError: E226, the state is not as the epoch before left it.
            DestinationError: the keeper does not answer.
            ConfigurationError: E133, the user's function returned something else than a time.
        """
        definition, targets = self.definition, self.targets
        times, complete_until = notes(counted.times, counted.rows)
        moment = state_rules.EpochClock(to.clock, complete_until, to.noted_before)
        state_rows = self.keeper.read_windows(state_request(definition, moment, counted.partials), to.as_of)
        held = (_read(row, targets.state, to) for row in state_rows)
        done = step(definition, moment, held, counted.partials)
        changed = frozenset((*(window.window_key for window in done.changed_windows), *done.gone))
        state = state_rules.state_table(done.changed_windows, done.gone)
        replaced = [row for row in state_rows if _window_key(row) in changed]
        left = _left(to, state.slice(0, len(done.changed_windows)), replaced, targets.state)
        dropped = done.dropped + times.untimed
        fields = (definition.fingerprint, definition.meaning, left, counted.rows, dropped, to.clock, to.since)
        results = state_rules.pane_table(definition, done.rows)
        panes = EpochWindows(*fields, definition.form, _timings(results))
        session = live.session if live else None
        parts = [
            part(WINDOWS, targets.panes, results, session),
            *self._records(results, session),
            part(STATE, (targets.state,), state, session),
            *_late(counted.late, targets.late, session),
        ]
        return WindowResultBatch(parts, times, panes, live)

    def _records(self, results: pa.Table, session: SparkSession | None) -> list[OutputRows]:
        if not self.targets.records:
            return []
        if session is None:
            raise TypeError("only Spark makes records of results")
        return [part(RECORDS, self.targets.records, records_of(self.definition, results, session), session)]


def records_of(definition: Definition, results: pa.Table, session: SparkSession) -> pa.Table:
    """Return results as records, in their order (Spark's own error: an expression that it cannot read)."""
    import pyarrow as pa

    # Rows of several partitions come as they are ready, and a retraction would follow the result that replaces it.
    rows = frames.of_arrow(session, results).coalesce(1).selectExpr(*definition.panes.records)
    schema = frames.arrow_schema(rows)
    with closing(engine_for(rows).arrow(rows)) as pieces:
        return pa.Table.from_batches([frames.cast(piece, schema) for piece in pieces], schema)


def _timings(results: pa.Table) -> ResultCounts:
    import pyarrow.compute as pc

    compute: Any = pc
    counted = compute.value_counts(results.filter(compute.greater(results["sign"], 0))["timing"])
    rows_by_timing = {entry["values"]: entry["counts"] for entry in counted.to_pylist()}
    return ResultCounts(rows_by_timing.get("EARLY", 0), rows_by_timing.get("ON_TIME", 0), rows_by_timing.get("LATE", 0))


def _late(rows: pa.Table | None, sink: str | None, session: SparkSession | None) -> list[OutputRows]:
    return [part(LATE, (sink,), rows, session)] if rows is not None and sink is not None else []


def _window_key(row: StateRow) -> state_rules.WindowKey:
    return state_rules.WindowKey(row.key, row.start, row.stop)


def _read(row: StateRow, keeper: str, to: Bound) -> state_rules.OpenWindowState:
    try:
        return state_rules.OpenWindowState.read(_window_key(row), row.body)
    except ValueError as error:
        problem = f"the window of key {row.key} from {row.start} on cannot be read"
        raise foreign(keeper, to.as_of, problem) from error


def _left(to: Bound, written: pa.Table, replaced: Sequence[StateRow], keeper: str) -> Digest:
    """Return the digest of all state after the epoch, without reading that state."""
    removed = state_digest((row.key, row.start, row.stop, row.body) for row in replaced)
    left = to.open - removed + digest_of(written.select(["key", "start", "stop", "body"]))
    if left.rows < 0:
        raise foreign(keeper, to.as_of, "there are more windows than that epoch left")
    return left


_PIECE = 10_000
"""Rows that are hashed at once."""


def state_digest(rows: Iterable[tuple[str, int, int, str]]) -> Digest:
    """Return the digest of rows of state, as epochs keep it.

    ``rows`` have key, start, end and body, in any order. They are read piece by piece.
    """
    import pyarrow as pa

    text, number = json_values.arrow("string"), json_values.arrow("bigint")
    schema = pa.schema([("key", text), ("start", number), ("stop", number), ("body", text)])
    left, digest = iter(rows), Digest(0)
    while piece := list(islice(left, _PIECE)):
        columns = dict(zip(schema.names, map(list, zip(*piece, strict=True)), strict=True))
        digest += digest_of(pa.table(columns, schema=schema))
    return digest
