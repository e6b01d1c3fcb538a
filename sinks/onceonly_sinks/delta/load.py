"""Prepare an epoch's rows for a Delta table before its commit.

The way is chosen before the batch's action. Few rows go through the driver. Executors write many rows to data files
without a log entry. Spark stages rows that deltalake cannot commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from onceonly.errors import refuse
from onceonly.protocol import Batch
from onceonly.protocol.batch import InFiles
from onceonly_checkpoints.storage import is_local
from onceonly_sinks.delta import columns as rules
from onceonly_sinks.delta import errors, prepared, spark_committer
from onceonly_sinks.delta.files import DataDirectory, WriteFiles
from onceonly_sinks.delta.planning import LoadPath, LoadPlan, Planner
from onceonly_sinks.delta.prepared import DataFile, HeldRows, Rows, StagedRows, WrittenFiles
from onceonly_sinks.delta.schema_compatibility import IncompatibleSchema, refusal


class TooMuch(Exception):
    """More rows arrived at the driver than it may hold. Nothing was sent."""


class Preparer:
    """Prepares the epochs of one sink. ``planner`` decides how each is written."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._table = planner.table
        self._settings = planner.settings

    def prepare(self, batch: Batch, epoch: int, generation: int) -> Rows:
        """Run the batch's action. Raises as :meth:`DeltaSink.prepare`."""
        plan = self._planner.plan(batch, epoch, generation)
        if (files := self._adoptable(plan)) is not None:
            root = Path(self._table.root)
            adopted, where = prepared.adopt(self._table.sink, plan.shape.schema, plan.demands, files, root)
            return WrittenFiles(adopted, where, plan.schema, plan.grow)
        match plan.choice.load_path:
            case LoadPath.SPARK:
                return self._stage(plan)
            case LoadPath.EXECUTORS:
                return self._on_executors(plan)
            case LoadPath.DRIVER:
                return self._through_driver(plan)

    def _stage(self, plan: LoadPlan) -> StagedRows:
        choice = plan.choice
        why = choice.log_refuses or f"committer={choice.committer!r}, {choice.size or 'unknown'} bytes"
        spark = spark_committer.needed(self._table.sink, self._planner.spark(), why)
        column, names = self._settings.epoch_column, plan.batch.schema.names
        there = [*names, column] if column else names
        # A column that is left out is filled by Spark's writer, too, but not where a CHAR lies in a struct.
        plain = list(plan.shape.sources) == there and plan.shape.schema.names == there
        same = plain and plan.shape.schema.types[: len(names)] == plan.batch.schema.types
        shape = None if same or not self._planner.fits_table else plan.shape
        return spark.stage(
            plan.batch,
            plan.epoch,
            plan.generation,
            schema=plan.schema,
            epoch_column=column,
            shape=shape,
            partition_by=plan.partition_by,
            upsert=plan.upsert,
            merge=plan.merge,
            grow=plan.grow,
        )

    def _adoptable(self, plan: LoadPlan) -> Sequence[Path] | None:
        """Files of the batch that can join the table unchanged, without a second write."""
        if not isinstance(plan.batch, InFiles) or plan.choice.merge or plan.choice.committer == "spark":
            return None
        plain = plan.choice.takes_files and not plan.partition_by and not self._settings.epoch_column
        same = {field.name: field.type for field in plan.batch.schema} == {
            field.name: field.type for field in plan.shape.schema
        }
        fits = plain and same and is_local(self._table.root) and not plan.choice.log_refuses
        return plan.batch.paths if fits else None

    def _on_executors(self, plan: LoadPlan) -> WrittenFiles:
        options = self._table.options or {}
        task = WriteFiles(
            self._table.root,
            plan.shape,
            self._settings.epoch_column,
            plan.epoch,
            plan.demands,
            plan.partition_by,
            tuple(options.items()),
        )
        answers = plan.batch.on_executors(task)
        where = DataDirectory(self._table.root, options)
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
                raise errors.unwritable(self._table.sink, answer["errno"])
            if answer["wrong"]:
                raise refusal(self._table.sink, *answer["wrong"])

    def _check_files(self, files: Sequence[DataFile], where: DataDirectory) -> None:
        for file in files:
            if where.size(file.path) != file.size:
                raise refuse(
                    "E508",
                    sink=self._table.sink,
                    reason="a file that an executor wrote is not there for the driver",
                    cause="the path is on a disk that driver and executors do not share",
                    next="use a path on shared storage",
                )

    def _through_driver(self, plan: LoadPlan) -> Rows:
        choice = plan.choice
        to_executors = choice.takes_files and not choice.merge
        bounded = to_executors or (choice.committer == "auto" and self._planner.spark() is not None)
        try:
            rows = self._collect(plan.batch, choice.limit if bounded else None)
        except TooMuch:
            # Nothing was sent and nothing written: the attempt is dropped, and a second action takes the other way.
            return self._on_executors(plan) if to_executors else self._stage(plan)
        table = self._checked(rules.with_epoch(rows, self._settings.epoch_column, plan.epoch), plan)
        table = rules.without_empty_texts(table, plan.partition_by)
        if plan.upsert.key:
            table = rules.one_per_key(self._table.sink, table, plan.upsert)
        return HeldRows(table, plan.merge, rows.num_rows, plan.schema, plan.grow)

    def _checked(self, rows: pa.Table, plan: LoadPlan) -> pa.Table:
        """The rows in the table's columns, with valid values. Raises DestinationError E503 otherwise."""
        try:
            shaped = plan.shape.shaped(rows)
        except IncompatibleSchema as unfit:
            raise refusal(self._table.sink, unfit.column, unfit.reason) from unfit
        broken = plan.demands.broken(shaped) if self._planner.fits_table else None
        if broken is not None:
            raise refusal(self._table.sink, *broken)
        return shaped

    def _collect(self, batch: Batch, limit: int | None) -> pa.Table:
        held, size = [], 0
        for part in batch.arrow():
            size += part.nbytes
            if limit is not None and size > limit:
                raise TooMuch
            held.append(part)
        return pa.Table.from_batches(held, batch.schema)
