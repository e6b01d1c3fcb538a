"""Brings the rows of an epoch near the table: into this process, into data files without a log entry, or into staging.

Which way is chosen before the action: rows that are few go through the driver, many are written where they are, and
what deltalake cannot commit goes through Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.protocol import Batch
from onceonly_sinks.delta import columns as rules
from onceonly_sinks.delta import failures, sparkcommitter
from onceonly_sinks.delta.columns import Column, Merge
from onceonly_sinks.delta.files import LocalPlace, RemotePlace, WriteFiles, place
from onceonly_sinks.delta.logcommitter import DataFile, LogCommitter
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.sparkcommitter import SparkCommitter, StagedRows
from onceonly_sinks.delta.table import Table
from onceonly_sinks.delta.ways import Choice, Way, size_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, Schema


@dataclass(slots=True)
class HeldRows:
    """Rows in this process."""

    table: pa.Table
    merge: Merge
    rows: int
    schema: Schema
    gone: bool = False

    def abandon(self) -> None:
        """Let them go."""
        self.gone = True
        self.table = self.table.schema.empty_table()

    def send(self, committer: LogCommitter, handle: DeltaTable, note: Note) -> None:
        """Commit them."""
        if not self.table.num_rows:
            committer.mark(handle, note)
        elif self.merge.key:
            committer.merge(handle, note, self.table, self.merge)
        else:
            committer.append_rows(handle, note, self.table)


@dataclass(slots=True)
class WrittenFiles:
    """Data files in the table's directory."""

    files: Sequence[DataFile]
    place: LocalPlace | RemotePlace
    schema: Schema
    gone: bool = False
    sent: bool = False
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = sum(file.rows for file in self.files)

    def abandon(self) -> None:
        """Delete them, unless a log entry may name them. What is left without an entry is VACUUM's."""
        # Once an entry was sent its answer may be lost: then the table may already read these files.
        if self.gone or self.sent:
            return
        self.gone = True
        for file in self.files:
            try:
                self.place.remove(file.path)
            except OSError:
                continue

    def send(self, committer: LogCommitter, handle: DeltaTable, note: Note) -> None:
        """Commit them; from then on they stay."""
        self.sent = True
        committer.append_files(handle, note, self.files)


class TooMuch(Exception):
    """More rows arrived at the driver than it may hold; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose.

    Attributes:
        merge: how rows enter the table.
        epoch_column: column that gets the epoch's number; ``None`` for none.
        committer: ``auto``, ``log`` or ``spark``.
        limit: bytes in Arrow form that the driver may hold.
        partition_by: columns by which a table that is created here is partitioned.
    """

    merge: Merge
    epoch_column: str | None
    committer: str
    limit: int
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """One epoch on its way.

    Attributes:
        batch: its rows.
        epoch: its number.
        generation: of the fence it is prepared under.
        schema: Delta columns of the batch, with the epoch's.
        there: columns of the table; empty while it has none.
        held: Arrow columns to write, in the table's order.
        partition_by: columns that the table is or will be partitioned by.
        choice: what its way depends on.
    """

    batch: Batch
    epoch: int
    generation: int
    schema: Schema
    there: tuple[Column, ...]
    held: pa.Schema
    partition_by: tuple[str, ...]
    choice: Choice


class Preparer:
    """Prepares the epochs of one sink.

    Args:
        table: the table.
        settings: what the user chose.
        spark: finds Spark's committer, where a session with Delta is at hand.
    """

    def __init__(self, table: Table, settings: Settings, spark: Callable[[], SparkCommitter | None]) -> None:
        self._table = table
        self._settings = settings
        self._merge = settings.merge
        self._spark = spark

    def prepare(self, batch: Batch, epoch: int, generation: int) -> HeldRows | WrittenFiles | StagedRows:
        """Run the batch's action.

        Raises:
            ConfigurationError: E110, Spark's Delta is needed and not there.
            DestinationError: E503 to E508, the table cannot take the rows.
        """
        plan = self._plan(batch, epoch, generation)
        match plan.choice.way:
            case Way.SPARK:
                return self._stage(plan)
            case Way.EXECUTORS:
                return self._on_executors(plan)
            case Way.DRIVER:
                return self._through_driver(plan)

    def _plan(self, batch: Batch, epoch: int, generation: int) -> _Plan:
        import pyarrow as pa

        wanted, sink = batch.schema, self._table.sink
        if self._settings.epoch_column:
            wanted = wanted.append(pa.field(self._settings.epoch_column, pa.int64()))
        schema = rules.delta_schema(sink, wanted)
        offered, there = rules.columns_of(schema), self._table.columns
        fresh = rules.is_placeholder(there)
        if not fresh:
            rules.check_columns(sink, there, offered)
        self._check_merge_columns(offered)
        held = _held(schema if fresh else self._table.handle.schema(), offered)
        partition_by = self._settings.partition_by if fresh else self._table.partition_columns
        takes_files = rules.spelled_alike(offered, partition_by) and (fresh or self._table.takes_files())
        choice = self._choice(batch, takes_files=takes_files)
        return _Plan(batch, epoch, generation, schema, () if fresh else there, held, partition_by, choice)

    def _choice(self, batch: Batch, *, takes_files: bool) -> Choice:
        size, limit, committer = size_of(batch.estimate, batch.schema), self._settings.limit, self._settings.committer
        log_refuses = self._table.needs_spark()
        # Asking for the session is a call into the JVM, which a small epoch need not pay for.
        asks_spark = size is None or size > limit or committer == "spark" or log_refuses is not None
        return Choice(
            merge=bool(self._merge.key),
            size=size,
            limit=limit,
            committer=committer,
            log_refuses=log_refuses,
            takes_files=takes_files,
            spark=asks_spark and self._spark() is not None,
        )

    def _check_merge_columns(self, offered: Sequence[Column]) -> None:
        names = {column.name for column in offered}
        wanted = [*self._merge.key, *([self._merge.sequence] if self._merge.sequence else [])]
        if absent := [name for name in wanted if name not in names]:
            raise refuse(
                "E506",
                sink=self._table.sink,
                difference=f"key= or sequence= names {', '.join(absent)}, which the batch does not have",
                next="name columns of the batch",
            )

    def _stage(self, plan: _Plan) -> StagedRows:
        choice = plan.choice
        why = choice.log_refuses or f"committer={choice.committer!r}, {choice.size or 'unknown'} bytes"
        spark = sparkcommitter.needed(self._table.sink, self._spark(), why)
        return spark.stage(plan.batch, plan.epoch, plan.generation, plan.schema, self._settings.epoch_column)

    def _on_executors(self, plan: _Plan) -> WrittenFiles:
        options = self._table.options or {}
        task = WriteFiles(
            self._table.root,
            plan.held.serialize().to_pybytes(),
            self._settings.epoch_column,
            plan.epoch,
            tuple(column.name for column in plan.there if not column.nullable),
            plan.partition_by,
            tuple(options.items()),
        )
        answers = plan.batch.on_executors(task)
        where = place(self._table.root, options)
        files = [DataFile(**file) for answer in answers for file in answer["files"]]
        written = WrittenFiles(files, where, plan.schema)
        try:
            self._check_answers(answers)
            self._check_files(files, where)
        except Exception:
            written.abandon()
            raise
        return written

    def _check_answers(self, answers: Sequence[Mapping[str, Any]]) -> None:
        for answer in answers:
            if answer["errno"]:
                raise failures.unwritable(self._table.sink, answer["errno"])
            if answer["null"]:
                raise rules.not_null(self._table.sink, answer["null"])

    def _check_files(self, files: Sequence[DataFile], where: LocalPlace | RemotePlace) -> None:
        for file in files:
            if where.size(file.path) != file.size:
                raise refuse(
                    "E508",
                    sink=self._table.sink,
                    reason="a file that an executor wrote is not there for the driver",
                    cause="the path is on a disk that driver and executors do not share",
                    next="use a path on shared storage",
                )

    def _through_driver(self, plan: _Plan) -> HeldRows | WrittenFiles | StagedRows:
        choice = plan.choice
        to_executors = choice.takes_files and not choice.merge
        bounded = to_executors or (choice.committer == "auto" and self._spark() is not None)
        try:
            rows = self._collect(plan.batch, choice.limit if bounded else None)
        except TooMuch:
            # Nothing was sent and nothing written: the attempt is dropped, and a second action takes the other way.
            return self._on_executors(plan) if to_executors else self._stage(plan)
        shaped = rules.with_epoch(rows, self._settings.epoch_column, plan.epoch)
        table = self._cast(shaped, plan.held)
        if self._merge.key:
            table = rules.one_per_key(self._table.sink, table, self._merge)
        rules.check_nulls(self._table.sink, plan.there, table)
        return HeldRows(table, self._merge, rows.num_rows, plan.schema)

    def _collect(self, batch: Batch, limit: int | None) -> pa.Table:
        import pyarrow as pa

        held, size = [], 0
        for part in batch.arrow():
            size += part.nbytes
            if limit is not None and size > limit:
                raise TooMuch
            held.append(part)
        return pa.Table.from_batches(held, batch.schema)

    def _cast(self, rows: pa.Table, held: pa.Schema) -> pa.Table:
        import pyarrow as pa

        try:
            return rows.select(held.names).cast(held)
        except pa.ArrowInvalid as error:
            raise refuse(
                "E503",
                sink=self._table.sink,
                column="of the batch",
                reason=str(error),
                next="cast the column before the sink",
            ) from error


def _held(table: Schema, offered: Sequence[Column]) -> pa.Schema:
    """The columns to write, in the table's order, without those that Delta computes; nulls are looked for apart."""
    import pyarrow as pa

    names = {column.name for column in offered}
    return pa.schema([one.with_nullable(True) for one in rules.arrow_schema(table) if one.name in names])
