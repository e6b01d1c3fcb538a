"""Batches: the rows of one epoch, their trims, and an in-memory batch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from onceonly.protocol.row_times import Clock, RowTimes, TimeTally
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import OutputColumns
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Slice
from onceonly_checkpoints.storage import file_system

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from onceonly.protocol.row_rules import BrokenCheck


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of one partition on an executor. Unique even when Spark runs a task twice.

    ``attempt`` is Spark's task attempt id, unique in the application.
    """

    partition: int
    attempt: int


Task = Callable[["Attempt", Iterator["pa.RecordBatch"]], Mapping[str, Any]]
"""Runs on an executor over one partition, consumes it all, returns a small mapping of JSON types. Picklable."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected size of a batch before any action: rows, and bytes in Arrow form. ``None`` where nothing is known."""

    rows: int | None
    size: int | None


class TooLargeForDriver(Exception):
    """The engine refuses to bring a batch's rows to the driver. The text is its own, and holds no secret."""


class Batch(Protocol):
    """The rows of one epoch. An attempt runs exactly one of ``arrow``, ``on_executors``, ``dataframe``."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows that ``arrow`` and ``on_executors`` deliver."""
        ...

    @property
    def estimate(self) -> Estimate:
        """Expected size, known before the action."""
        ...

    @property
    def dataframe(self) -> DataFrame:
        """Spark's DataFrame, observed: an action on it fills ``digest``. Only for sinks that write through Spark."""
        ...

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Bring the rows to the driver, in no particular order. Partition results come as they arrive.

        :class:`TooLargeForDriver` if the engine refuses to bring so many.
        """
        ...

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run ``task`` over every partition. Return the answers of the winning attempts, one per partition."""
        ...

    def digest(self) -> Digest:
        """Digest of the rows, from the same action. Valid only after the action was consumed to its end."""
        ...


@runtime_checkable
class InFiles(Protocol):
    """A batch whose rows already lie in Parquet files. A sink of such files may link or copy them.

    The files do not belong to the sink: they go when every sink holds the epoch after this one.
    """

    @property
    def paths(self) -> Sequence[Path]:
        """The files, on a disk that driver and executors share. None is empty."""
        ...


@runtime_checkable
class Divided(Protocol):
    """A batch with outputs: some sinks get other rows. :mod:`onceonly.runtime.staged_outputs` has the layout."""

    def outputs(self) -> tuple[OutputDigest, ...]:
        """Counted in the same action as ``digest``, and as valid."""
        ...


@runtime_checkable
class Checkable(Protocol):
    """A batch whose rows may have to meet checks together."""

    @property
    def checked_in_files(self) -> bool:
        """Whether the engine can judge its rows in files only, and not from memory."""
        ...

    def broken(self, output: Callable[[str | None], Batch]) -> tuple[BrokenCheck, ...]:
        """Return the checks that staged rows do not meet. ``output`` returns those of an output, or all good ones."""
        ...

    def aside(self, checks: Sequence[str]) -> Batch:
        """The same batch, with all rows bad because of these checks."""
        ...


@runtime_checkable
class Timeable(Protocol):
    """A batch whose event times can be measured."""

    def timed(self, clock: Clock) -> Batch:
        """The same batch, with event times."""
        ...


@runtime_checkable
class TellsTime(Protocol):
    """A batch that measures its event times."""

    def times(self) -> RowTimes:
        """From the same action as ``digest``, and as valid."""
        ...


# ---- Which rows are left out because their id was seen before.


@dataclass(frozen=True, slots=True)
class AsOf:
    """The state of a pipeline just before an epoch, for comparing ids.

    So the same rows are left out when any driver computes an epoch again.

    Attributes:
        series: the first epoch whose ids count. A full refresh forgets those of all before.
        epoch: number of the epoch that is computed. Ids of lower ones count.
        clock_ms: its time by the engine's own record, in milliseconds since 1970. A replay has the same.
    """

    series: int
    epoch: int
    clock_ms: int
    pipeline: str = field(default="", compare=False)


@runtime_checkable
class Recalling(Protocol):
    """A batch that leaves out rows whose id was seen before."""

    def as_of(self, as_of: AsOf) -> Batch:
        """The same batch without those rows."""
        ...


# ---- Windows over the rows of a batch, that go on from the epoch before.


NONE_OPEN = Digest(0)


@dataclass(frozen=True, slots=True)
class Bound:
    """Starting point of the windows of an epoch. Epochs recorded all of it, so a replay has the same.

    Attributes:
        as_of: the epoch, with its time by the engine's own record.
        clock_before: clock up to which timers of the epoch before ran, milliseconds since 1970. ``None`` without one.
        noted_before: event time that it noted. ``None`` for none.
        open: digest of its state.
        since: the first epoch whose state counts, as the epoch before recorded it.
    """

    as_of: AsOf
    clock_before: int | None = None
    noted_before: int | None = None
    open: Digest = NONE_OPEN
    since: int = 1

    @property
    def clock(self) -> int:
        """Clock up to which timers run. It never goes back, although the recorded clock may."""
        before = self.clock_before
        return self.as_of.clock_ms if before is None else max(before, self.as_of.clock_ms)


Notes = Callable[[RowTimes, int], "tuple[RowTimes, int | None]"]
"""Says what an epoch notes whose rows say this of time, and how many they are: with the user's word, which is asked for
once, and the number that is noted."""


@runtime_checkable
class Bindable(Protocol):
    """A batch whose rows are aggregated in windows, from a given starting point."""

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> Paned:
        """Run the batch's one action, and update the state after epoch ``to``.

        ``clock`` requests event times. ``notes`` computes the times that the epoch notes.

        Raises:
            IdentityError: E226, the state differs from the one that the epoch before left.
            DestinationError: the sink of state does not answer.
            TooLargeForDriver: the engine refuses to bring so many partial results.
        """
        ...


class Paned(Batch, Divided, TellsTime, Protocol):
    """Result of a batch: rows of panes and of state, in the memory of this process.

    Its times are those of the aggregated rows, and the user's answer.
    """

    def panes(self) -> EpochWindows:
        """The epoch's record of its windows."""
        ...

    def columns(self) -> tuple[OutputColumns, ...]:
        """Columns of results and late rows."""
        ...


# ---- Which rows of a batch are written and which are left out, told by source position: values, no rules.

FILE_COLUMNS = {"file_path": "string"}
"""Column by which a row of a file source is told apart, with its type: ``_metadata.file_path``."""

KAFKA_COLUMNS = {"topic": "string", "partition": "int", "offset": "bigint"}
"""Columns by which a row of a Kafka source is told apart, with their types."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition that a batch offers.

    Attributes:
        fresh: the first one that no epoch holds. If it is not below ``end``, epochs hold all of them.
        end: one past the last offset.
    """

    topic: str
    partition: int
    first: int
    fresh: int
    end: int


@dataclass(frozen=True, slots=True)
class OffsetTrim:
    """Keeps rows of a Kafka source from ``fresh`` on."""

    spans: tuple[Span, ...]

    @property
    def summary(self) -> str:
        """Summary of the left-out rows, in numbers."""
        offered = sum(max(0, span.end - span.first) for span in self.spans)
        held = sum(max(0, min(span.fresh, span.end) - span.first) for span in self.spans)
        return f"{held} of {offered} offsets"

    @property
    def left_out(self) -> frozenset[str]:
        """Paths of input that is not read for its rows: none, a partition has no path."""
        return frozenset()

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is written.

        :class:`ValueError` if the batch does not offer the row's position, so that its columns are not the source's.
        """
        for span in self.spans:
            if (span.topic, span.partition) == (row["topic"], row["partition"]):
                if span.first <= row["offset"] < span.end:
                    return bool(row["offset"] >= span.fresh)
                break
        raise ValueError(f"offset {row['offset']} of {row['topic']}-{row['partition']} is not in this batch")


@dataclass(frozen=True, slots=True)
class FileTrim:
    """Keeps rows of the files in ``fresh`` and none of those in ``held``. Paths as :func:`plain` spells them."""

    held: tuple[str, ...]
    fresh: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Summary of the left-out rows, in numbers."""
        return f"{len(self.held)} of {len(self.held) + len(self.fresh)} input files"

    @property
    def left_out(self) -> frozenset[str]:
        """Paths of input that is not read for its rows."""
        return frozenset(self.held)

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is written.

        :class:`ValueError` if the row's file is not in this batch, so that its column is not the source's.
        """
        path = plain(row["file_path"])
        if path not in self.held and path not in self.fresh:
            raise ValueError(f"file {path} is not in this batch")
        return path in self.fresh


Trim = OffsetTrim | FileTrim
"""Which rows of a batch are written, and which are left out because an epoch holds them."""


@dataclass(frozen=True, slots=True)
class TrimmedBatch:
    """A batch without the input of recorded epochs: the written range, from the last epoch's end on, and its trim."""

    written: Slice
    trim: Trim


@dataclass(frozen=True, slots=True)
class RecordedInputFiles:
    """Input files of all recorded epochs.

    Attributes:
        files: modification time by path, as :func:`plain` spells it.
        lacking: why the list is incomplete. Empty if it is complete.
    """

    files: Mapping[str, int] = field(hash=False)
    lacking: str = ""


@runtime_checkable
class Trimmable(Protocol):
    """A batch whose rows can be distinguished by source position."""

    def trimmed(self, trim: Trim) -> Batch:
        """The same batch without the trimmed rows."""
        ...


def plain(path: str) -> str:
    """A path in the spelling of ``_metadata.file_path``: without an empty host."""
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*):///", r"\1:/", path)


# ---- Rows that are in memory: prepared by a sink that keeps them there, and a batch for suite and notebooks.


class ArrowRows:
    """A preparation with its rows in the driver's memory, invisible.

    ``offered`` is the number of rows in the batch, as an upsert may keep fewer. Default: the table's.
    """

    def __init__(self, table: pa.Table, offered: int | None = None) -> None:
        self._table: pa.Table | None = table
        self._rows: int = table.num_rows if offered is None else offered

    @property
    def rows(self) -> int:
        """Number of rows in the batch."""
        return self._rows

    @property
    def table(self) -> pa.Table:
        """The rows. :class:`RuntimeError` after they were abandoned."""
        if self._table is None:
            raise RuntimeError("an abandoned preparation cannot be committed")
        return self._table

    def abandon(self) -> None:
        """Free the rows."""
        self._table = None


class ArrowBatch:
    """The ``Batch`` contract over an Arrow table. Each of ``partitions`` slices plays one Spark partition.

    With ``duplicate_attempt`` every task runs twice and the second attempt wins, as in Spark after a lost executor.
    ``clock`` requests event times.
    """

    def __init__(
        self, table: pa.Table, partitions: int = 2, *, duplicate_attempt: bool = False, clock: Clock | None = None
    ) -> None:
        self._table = table
        self._partitions = partitions
        self._duplicate = duplicate_attempt
        self._clock = clock

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._table.schema

    @property
    def estimate(self) -> Estimate:
        """Exact size."""
        return Estimate(self._table.num_rows, self._table.nbytes)

    @property
    def dataframe(self) -> DataFrame:
        """Not available: always raises :class:`TypeError`."""
        raise TypeError("an in-memory batch has no DataFrame")

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the table's own chunks."""
        yield from self._table.to_batches()

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run the task in this process, once (or twice) per partition."""
        answers: list[Mapping[str, Any]] = []
        size = -(-self._table.num_rows // self._partitions) if self._table.num_rows else 0
        for partition in range(self._partitions):
            part = self._table.slice(partition * size, size)
            if self._duplicate:
                task(Attempt(partition, partition * 10 + 1), iter(part.to_batches()))
            answers.append(task(Attempt(partition, partition * 10), iter(part.to_batches())))
        return answers

    def write(self, directory: str) -> None:
        """Write the rows as one Parquet file per partition, below a path or a URL."""
        import pyarrow.parquet as pq

        files, path = file_system(directory)
        files.makedirs(path)
        size = max(1, -(-self._table.num_rows // self._partitions))
        for partition in range(self._partitions):
            with files.open(f"{path}/part-{partition:05d}.parquet", "wb") as file:
                pq.write_table(self._table.slice(partition * size, size), file)

    def reread(self, paths: tuple[str, ...], schema: pa.Schema) -> Batch:
        """A batch over Parquet files of ``schema``."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = [pq.read_table(path).cast(schema) for path in paths]
        return ArrowBatch(pa.concat_tables(tables) if tables else schema.empty_table(), self._partitions)

    def trimmed(self, trim: Trim) -> ArrowBatch:
        """The rows whose position is not in an epoch yet."""
        mask = [trim.keeps(row) for row in self._table.to_pylist()]
        return ArrowBatch(self._table.filter(mask), self._partitions, duplicate_attempt=self._duplicate)

    def timed(self, clock: Clock) -> ArrowBatch:
        """The same rows, with event times."""
        return ArrowBatch(self._table, self._partitions, duplicate_attempt=self._duplicate, clock=clock)

    def times(self) -> RowTimes:
        """Event times of the rows. Empty without a clock."""
        if self._clock is None:
            return RowTimes()
        tally = TimeTally(self._clock)
        for piece in self._table.column(self._clock.column).chunks:
            tally.add(piece)
        return tally.times

    def digest(self) -> Digest:
        """Digest over the Python form of the rows. Not comparable with one that Spark computed."""
        high = low = 0
        for row in self._table.to_pylist():
            value = int.from_bytes(hashlib.sha256(repr(sorted(row.items())).encode()).digest()[:8], "big")
            high += value >> 32
            low += value & 0xFFFFFFFF
        return Digest(self._table.num_rows, high, low)
