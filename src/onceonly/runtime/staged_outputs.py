"""Outputs of staged rows: a batch each, over the same files.

Rows with outputs are wide: each output adds a structure column of its own columns. It is null in rows that the output
does not get. So a row is computed once for all sinks. A row of output ``bad`` is in no other output, and not among all
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from onceonly.machine.estimate import TEXT_BYTES, schema_width
from onceonly.protocol import Attempt, Batch, Estimate, Task
from onceonly.protocol.row_times import Clock, RowTimes, TimeTally
from onceonly.spark.digest import quote
from onceonly_checkpoints.digests import BAD, OF_WINDOWS, Digest, OutputDigest, bad_in, column_of

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.protocol import DataFrame


@dataclass(frozen=True, slots=True)
class Pick:
    """Takes the columns of one output out of wide rows. Picklable, for executors.

    Without ``output`` it takes all good rows, without the columns of outputs. ``aside`` are the columns that mark other
    rows: bad ones, and those of windows.
    """

    output: str | None
    columns: tuple[str, ...]
    aside: tuple[str, ...] = ()

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the picked rows, maybe none."""
        import pyarrow as pa

        if self.output is None:
            for name in self.aside:
                rows = rows.filter(rows.column(name).is_null())
            return rows.select(list(self.columns))
        output_rows: Any = rows.column(self.output).drop_null()
        return pa.RecordBatch.from_arrays(output_rows.flatten(), schema=pa.schema(list(output_rows.type)))

    def schema(self, wide: pa.Schema) -> pa.Schema:
        """Return the picked schema."""
        import pyarrow as pa

        if self.output is None:
            return pa.schema([wide.field(name) for name in self.columns])
        kind: Any = wide.field(self.output).type
        return pa.schema(list(kind))

    def frame(self, wide: DataFrame) -> DataFrame:
        """Pick from Spark's rows."""
        if self.output is None:
            for name in self.aside:
                wide = wide.where(f"{quote(name)} IS NULL")
            return wide.select(*map(quote, self.columns))
        return wide.where(f"{quote(self.output)} IS NOT NULL").select(f"{quote(self.output)}.*")


def pick(outputs: tuple[OutputDigest, ...], output: str | None, wide: pa.Schema) -> Pick:
    """Return the pick of one output, or with ``None`` of all good rows, from wide rows."""
    if output is None:
        named = {column_of(output_digest.name) for output_digest in outputs}
        aside = tuple(column_of(part.name) for part in outputs if part.name in (BAD, *OF_WINDOWS))
        return Pick(None, tuple(name for name in wide.names if name not in named), aside)
    kind: Any = wide.field(column_of(output)).type
    return Pick(column_of(output), tuple(field.name for field in kind))


class WideRows(Batch, Protocol):
    """Materialised wide rows."""

    def picked(self, pick: Pick, task: Task) -> list[Mapping[str, Any]]:
        """Run a task over the picked part of the rows, as ``on_executors``."""
        ...


class OutputBatch:
    """The ``Batch`` contract over one output of materialised wide rows. ``digest`` is that of the picked rows."""

    def __init__(self, wide: WideRows, selection: Pick, digest: Digest) -> None:
        self._wide = wide
        self._pick = selection
        self._digest = digest
        self._schema = selection.schema(wide.schema)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the picked rows."""
        return self._schema

    @property
    def estimate(self) -> Estimate:
        """Exact rows, and their bytes in Arrow form by the schema."""
        return Estimate(self._digest.rows, self._digest.rows * max(1, schema_width(self._schema, TEXT_BYTES)))

    @property
    def dataframe(self) -> DataFrame:
        """Spark's view of the picked rows."""
        return self._pick.frame(self._wide.dataframe)

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, file by file."""
        return map(self._pick, self._wide.arrow())

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run the task over the picked rows of each partition."""
        return self._wide.picked(self._pick, task)

    def digest(self) -> Digest:
        """Digest of the action that staged the rows."""
        return self._digest


def of(wide: WideRows, outputs: tuple[OutputDigest, ...], name: str | None) -> OutputBatch:
    """Return the rows of a sink from wide rows: an output by its name (``KeyError``), or all good rows."""
    digest = wide.digest() if name is None else {output.name: output.digest for output in outputs}[name]
    return OutputBatch(wide, pick(outputs, name, wide.schema), digest)


def times_of(pieces: Iterable[pa.RecordBatch], clock: Clock, outputs: tuple[OutputDigest, ...]) -> RowTimes:
    """Tally the event times of good rows.

    A bad row with a date in the year 9999 would make all later rows late. Of ``pieces``, only the clock's column and
    the one that marks bad rows are read.
    """
    tally, aside = TimeTally(clock), bad_in(outputs) is not None
    for piece in pieces:
        good = piece.filter(piece.column(column_of(BAD)).is_null()) if aside else piece
        tally.add(good.column(clock.column))
    return tally.times


@dataclass(frozen=True, slots=True)
class Picking:
    """A task over wide rows that passes the picked rows to another task."""

    pick: Pick
    task: Task

    def __call__(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        """Return the task's result."""
        return self.task(attempt, map(self.pick, rows))
