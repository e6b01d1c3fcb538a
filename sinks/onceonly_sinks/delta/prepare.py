"""Brings the rows of an epoch near the table: into this process, into data files without a log entry, or into staging.

Which way is chosen before the action: rows that are few go through the driver, many are written where they are, and
what deltalake cannot commit goes through Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.protocol import Batch, InFiles
from onceonly_sinks.delta import adopting, failures, sparkcommitter
from onceonly_sinks.delta import columns as rules
from onceonly_sinks.delta.columns import Column
from onceonly_sinks.delta.files import LocalPlace, RemotePlace, WriteFiles, place
from onceonly_sinks.delta.logcommitter import DataFile
from onceonly_sinks.delta.merge import Merge, Upsert, misnamed
from onceonly_sinks.delta.prepared import HeldRows, WrittenFiles
from onceonly_sinks.delta.sparkcommitter import SparkCommitter, StagedRows
from onceonly_sinks.delta.stores import is_local
from onceonly_sinks.delta.table import Table
from onceonly_sinks.delta.ways import Choice, Way, size_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import Schema


class TooMuch(Exception):
    """More rows arrived at the driver than it may hold; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose.

    Attributes:
        upsert: the key of which each epoch may have one row.
        merge: how rows enter the table; ``None``: they are added.
        epoch_column: column that gets the epoch's number; ``None`` for none.
        committer: ``auto``, ``log`` or ``spark``.
        limit: bytes in Arrow form that the driver may hold.
        partition_by: columns by which a table that is created here is partitioned.
        grows: whether columns that the table lacks are added.
    """

    upsert: Upsert
    merge: Merge | None
    epoch_column: str | None
    committer: str
    limit: int
    partition_by: tuple[str, ...]
    grows: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """One epoch on its way.

    Attributes:
        batch: its rows.
        epoch: its number.
        generation: of the fence it is prepared under.
        schema: Delta columns that the table holds of the batch, with the epoch's.
        there: columns of the table; empty while it has none.
        held: Arrow columns to write: the table's in its order, then those it lacks, then those it never holds.
        grow: whether some are to be added to the table.
        partition_by: columns that the table is or will be partitioned by.
        choice: what its way depends on.
    """

    batch: Batch
    epoch: int
    generation: int
    schema: Schema
    there: tuple[Column, ...]
    held: pa.Schema
    grow: bool
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
        self._spark = spark

    def prepare(self, batch: Batch, epoch: int, generation: int) -> HeldRows | WrittenFiles | StagedRows:
        """Run the batch's action.

        Raises:
            ConfigurationError: E110, Spark's Delta is needed and not there.
            DestinationError: E503 to E508, the table cannot take the rows.
        """
        plan = self._plan(batch, epoch, generation)
        if (files := self._adoptable(plan)) is not None:
            root = Path(self._table.root)
            adopted, where = adopting.adopt(self._table.sink, plan.held, self._required(plan), files, root)
            return WrittenFiles(adopted, where, plan.schema, plan.grow)
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
        offered, table = rules.columns_of(schema), self._table.columns
        there = () if rules.is_placeholder(table) else table
        self._check_named(offered, there)
        stored = self._stored(offered)
        lacking = rules.lacking(there, stored) if self._settings.grows and there else ()
        if there and self._fits_table:
            rules.check_columns(sink, there, [one for one in stored if one.name not in lacking])
        shape = self._table.handle.schema() if there and self._fits_table else None
        held = _held(shape, schema, [one.name for one in stored])
        partition_by = self._table.partition_columns if there else self._settings.partition_by
        takes_files = rules.spelled_alike(offered, partition_by) and (not there or self._table.takes_files())
        choice = self._choice(batch, takes_files=takes_files, grow=bool(lacking))
        kept = rules.select(schema, [one.name for one in stored])
        return _Plan(batch, epoch, generation, kept, there, held, bool(lacking), partition_by, choice)

    @property
    def _fits_table(self) -> bool:
        """Whether the batch must have the table's columns: not if a merge says itself what goes where."""
        return self._settings.merge is None or self._settings.merge.takes_all

    def _stored(self, offered: Sequence[Column]) -> list[Column]:
        left_out = self._settings.merge.not_stored if self._settings.merge else ()
        return [column for column in offered if column.name not in left_out]

    def _choice(self, batch: Batch, *, takes_files: bool, grow: bool) -> Choice:
        size, limit, committer = size_of(batch.estimate, batch.schema), self._settings.limit, self._settings.committer
        log_refuses = self._table.needs_spark() or (self._table.cannot_grow() if grow else None)
        # Asking for the session is a call into the JVM, which a small epoch need not pay for.
        asks_spark = size is None or size > limit or committer == "spark" or log_refuses is not None
        return Choice(
            merge=self._settings.merge is not None,
            size=size,
            limit=limit,
            committer=committer,
            log_refuses=log_refuses,
            takes_files=takes_files,
            spark=asks_spark and self._spark() is not None,
        )

    def _check_named(self, offered: Sequence[Column], there: Sequence[Column]) -> None:
        """Refuse names that the user gave and that are not there."""
        batch, chosen = {one.name: json.loads(one.type) for one in offered}, self._settings
        table = frozenset(one.name for one in there) | (frozenset(batch) if chosen.grows else frozenset())
        told = misnamed(chosen.upsert, chosen.merge, batch, table)
        if told is not None:
            raise refuse("E506", sink=self._table.sink, difference=told[0], next=told[1])

    def _stage(self, plan: _Plan) -> StagedRows:
        choice = plan.choice
        why = choice.log_refuses or f"committer={choice.committer!r}, {choice.size or 'unknown'} bytes"
        spark = sparkcommitter.needed(self._table.sink, self._spark(), why)
        column = self._settings.epoch_column
        return spark.stage(plan.batch, plan.epoch, plan.generation, plan.schema, column, grow=plan.grow)

    def _adoptable(self, plan: _Plan) -> Sequence[Path] | None:
        """Files that the batch lies in, where they can become the table's own as they are: no second write."""
        if not isinstance(plan.batch, InFiles) or plan.choice.merge or plan.choice.committer == "spark":
            return None
        plain = plan.choice.takes_files and not plan.partition_by and not self._settings.epoch_column
        same = {one.name: one.type for one in plan.batch.schema} == {one.name: one.type for one in plan.held}
        fits = plain and same and is_local(self._table.root) and not plan.choice.log_refuses
        return plan.batch.paths if fits else None

    def _required(self, plan: _Plan) -> tuple[str, ...]:
        return tuple(column.name for column in plan.there if not column.nullable)

    def _on_executors(self, plan: _Plan) -> WrittenFiles:
        options = self._table.options or {}
        task = WriteFiles(
            self._table.root,
            plan.held.serialize().to_pybytes(),
            self._settings.epoch_column,
            plan.epoch,
            self._required(plan),
            plan.partition_by,
            tuple(options.items()),
        )
        answers = plan.batch.on_executors(task)
        where = place(self._table.root, options)
        files = [DataFile(**file) for answer in answers for file in answer["files"]]
        written = WrittenFiles(files, where, plan.schema, plan.grow)
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
        if self._settings.upsert.key:
            table = rules.one_per_key(self._table.sink, table, self._settings.upsert)
        if self._fits_table:
            rules.check_nulls(self._table.sink, plan.there, table)
        return HeldRows(table, self._settings.merge, rows.num_rows, plan.schema, plan.grow)

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


def _held(table: Schema | None, batch: Schema, stored: Sequence[str]) -> pa.Schema:
    """The columns to write, without those that Delta computes; nulls are looked for apart."""
    import pyarrow as pa

    offered = {one.name: one for one in rules.arrow_schema(batch)}
    there = {one.name: one for one in rules.arrow_schema(table)} if table else {}
    names = [*(name for name in there if name in stored), *(name for name in offered if name not in there)]
    names += [name for name in offered if name in there and name not in stored]
    found = ((there[name] if name in there and name in stored else offered[name]) for name in names)
    return pa.schema([one.with_nullable(True) for one in found])
