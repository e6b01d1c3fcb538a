"""Plan an epoch's columns and its way into a Delta table.

The plan is complete before any row is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pyarrow as pa
from deltalake import Schema

from onceonly.errors import refuse
from onceonly.machine.estimate import schema_width
from onceonly.protocol import Batch, Estimate
from onceonly_checkpoints.model import shorten_list
from onceonly_sinks.delta import columns as rules
from onceonly_sinks.delta import log_committer
from onceonly_sinks.delta.columns import Column, Unread
from onceonly_sinks.delta.ladder import ChangePolicy
from onceonly_sinks.delta.merge import Merge, Upsert, misnamed
from onceonly_sinks.delta.schema_compatibility import Demands, Shape, differences, paired
from onceonly_sinks.delta.spark_committer import SparkCommitter
from onceonly_sinks.delta.table import Table

# ---- Which way an epoch's rows take to a table: decided before the action from their size, table and settings.

_BYTES_OF_UNKNOWN_WIDTH = 40


class LoadPath(Enum):
    """How rows reach the table."""

    DRIVER = "through the driver, committed by deltalake"
    EXECUTORS = "files written by the executors, committed by deltalake"
    SPARK = "committed by Spark's Delta"


def size_of(estimate: Estimate, schema: pa.Schema) -> int | None:
    """Expected bytes of a batch in Arrow form. ``None`` if unknown."""
    if estimate.size is not None or estimate.rows is None:
        return estimate.size
    return estimate.rows * schema_width(schema, _BYTES_OF_UNKNOWN_WIDTH)


@dataclass(frozen=True, slots=True)
class Choice:
    """Facts that decide the way of an epoch.

    Attributes:
        size: expected bytes. ``None``: unknown.
        limit: bytes that the driver may hold.
        log_refuses: why deltalake cannot commit to the table. ``None``: it can.
        takes_files: whether files may be added without Delta's own writer.
        only_files: whether Spark would misread values that deltalake's own writer writes.
    """

    merge: bool
    size: int | None
    limit: int
    committer: str
    log_refuses: str | None
    takes_files: bool
    only_files: bool
    spark: bool

    @property
    def load_path(self) -> LoadPath:
        """The way. An unknown size counts as large."""
        if self.committer == "spark" or self.log_refuses:
            return LoadPath.SPARK
        small = self.size is not None and self.size <= self.limit
        if (self.only_files or not small) and not self.merge and self.takes_files:
            return LoadPath.EXECUTORS
        if not small and self.committer == "auto" and self.spark:
            return LoadPath.SPARK
        return LoadPath.DRIVER


# ---- The plan: what the columns of an epoch become, and which way it takes.


@dataclass(frozen=True, slots=True)
class Settings:
    """Options that the user chose, as in :class:`~onceonly_sinks.delta.sink.DeltaSink`.

    ``limit`` is ``driver_limit``, in bytes of Arrow. ``keeps``: seconds after which a row leaves a table of seen ids, 0
    in any other table.
    """

    upsert: Upsert
    merge: Merge | None
    epoch_column: str | None
    committer: str
    limit: int
    partition_by: tuple[str, ...]
    grows: bool
    foreign: ChangePolicy
    keeps: int = 0


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Batch, target columns and way of one epoch.

    Attributes:
        schema: Delta columns of the batch that the table has or gets, with the epoch's.
        shape: order of columns: the table's in its order, then those it lacks, then those it never holds.
        upsert: the key, by the names in ``shape``.
        merge: how rows enter the table, by the same names. ``None``: they are added.
        grow: whether columns are to be added to the table.
        partition_by: present or future partition columns.
    """

    batch: Batch
    epoch: int
    generation: int
    schema: Schema
    shape: Shape
    demands: Demands
    upsert: Upsert
    merge: Merge | None
    grow: bool
    partition_by: tuple[str, ...]
    choice: Choice


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the epochs of one sink. ``spark`` finds Spark's committer, if a session with Delta is active."""

    table: Table
    settings: Settings
    spark: Callable[[], SparkCommitter | None]

    def plan(self, batch: Batch, epoch: int, generation: int) -> LoadPlan:
        """Decide how an epoch is written. Raises E506 if the columns do not fit."""
        arrow_schema, sink, chosen = batch.schema, self.table.sink, self.settings
        if chosen.epoch_column:
            arrow_schema = arrow_schema.append(pa.field(chosen.epoch_column, pa.int64()))
        schema = rules.delta_schema(sink, arrow_schema)
        offered, table = rules.columns_of(schema), self.table.columns
        there = () if rules.is_placeholder(table) else table
        left_out = self.settings.merge.not_stored if self.settings.merge else ()
        stored = [column for column in offered if column.name not in left_out]
        pairs = self._paired(there, stored)
        lacking = tuple(column.name for column in stored if column.name not in pairs) if chosen.grows and there else ()
        self._check_named(offered, there, pairs)
        if there and self.fits_table:
            self._check_columns(there, [column for column in stored if column.name not in lacking], pairs)
        held, sources = self._held(there, schema, stored, pairs)
        demands, unread = _demands(there)
        partition_by = self.table.partition_columns if there else chosen.partition_by
        choice = self._choice(
            batch,
            takes_files=not there or self.table.takes_files(),
            otherwise=rules.written_otherwise(there or offered, partition_by),
            grow=bool(lacking),
            beyond_us=unread or self._computed_limits(demands),
        )
        upsert = chosen.upsert.renamed(pairs)
        return LoadPlan(
            batch,
            epoch,
            generation,
            self._stored_schema(there, schema, stored, pairs, lacking),
            Shape.of(held, sources),
            demands,
            upsert,
            upsert.merge if upsert.key else chosen.merge,
            bool(lacking),
            partition_by,
            choice,
        )

    def _paired(self, there: Sequence[Column], stored: Sequence[Column]) -> dict[str, str]:
        """Pair the batch's columns with the table's. A user's own merge names columns exactly as spelled."""
        names = [column.name for column in stored]
        if self.settings.merge is None or self.settings.upsert.key:
            return paired(there, names)
        table_names = {column.name for column in there}
        return {name: name for name in names if name in table_names}

    def _check_columns(self, there: Sequence[Column], stored: Sequence[Column], pairs: Mapping[str, str]) -> None:
        """Refuse (E506) a batch that the table's columns cannot take without loss."""
        if problems := differences(there, stored, pairs):
            absent = tuple(column.name for column in stored if column.name not in pairs)
            raise refuse(
                "E506",
                sink=self.table.sink,
                difference=shorten_list(problems, 4, "; "),
                absent=absent if len(absent) == len(problems) else (),
                next="change the query back, or bring the table in line with ALTER TABLE while the query is stopped",
            )

    def _held(
        self, there: Sequence[Column], schema: Schema, stored: Sequence[Column], pairs: Mapping[str, str]
    ) -> tuple[pa.Schema, list[str | None]]:
        """The columns to write, each with its source. Nulls that the table forbids are checked separately."""
        offered = {field.name: field for field in rules.arrow_schema(schema)}
        if not there or not self.fits_table:
            names = _in_order(offered, there, stored)
            return pa.schema([offered[name].with_nullable(True) for name in names]), list(names)
        table = {field.name: field for field in rules.arrow_schema(self.table.handle.schema())}
        sources = {target: name for name, target in pairs.items()}
        # A merge leaves what the batch lacks as it stands; a row that is added has null there.
        fills = () if self.settings.merge else [column.name for column in there if not column.filled]
        fields = [(table[name], sources.get(name)) for name in table if name in sources or name in fills]
        fields += [(offered[name], name) for name in offered if name not in pairs]
        return pa.schema([field.with_nullable(True) for field, _ in fields]), [source for _, source in fields]

    def _stored_schema(
        self,
        there: Sequence[Column],
        schema: Schema,
        stored: Sequence[Column],
        pairs: Mapping[str, str],
        lacking: Sequence[str],
    ) -> Schema:
        if not there:
            return rules.select(schema, [column.name for column in stored])
        table = rules.select(self.table.handle.schema(), frozenset(pairs.values()))
        return rules.joined(table, rules.select(schema, lacking))

    def _computed_limits(self, demands: Demands) -> str | None:
        """Find CHAR or VARCHAR columns that a user's own merge computes. Only Spark's writer checks their texts."""
        merge = self.settings.merge
        computed = merge.assigned & set(demands.read) if merge else frozenset()
        return f"merge= computes {', '.join(sorted(computed))}, a CHAR or VARCHAR" if computed else None

    @property
    def fits_table(self) -> bool:
        """Whether the batch must have the table's columns. False if a merge maps each column itself."""
        return self.settings.merge is None or self.settings.merge.takes_all

    def _choice(
        self, batch: Batch, *, takes_files: bool, otherwise: str | None, grow: bool, beyond_us: str | None
    ) -> Choice:
        size, limit, committer = size_of(batch.estimate, batch.schema), self.settings.limit, self.settings.committer
        merge = self.settings.merge is not None
        log_refuses = self.table.needs_spark() or (self.table.cannot_grow() if grow else None) or beyond_us
        log_refuses = log_refuses or (otherwise if merge or not takes_files else None)
        if merge and log_refuses is None and committer != "spark" and not rules.is_placeholder(self.table.columns):
            log_refuses = log_committer.rewrite_obstacle(self.table)
        # Asking for the session is a call into the JVM, which a small epoch need not pay for.
        asks_spark = size is None or size > limit or committer == "spark" or log_refuses is not None
        return Choice(
            merge=merge,
            size=size,
            limit=limit,
            committer=committer,
            log_refuses=log_refuses,
            takes_files=takes_files,
            only_files=otherwise is not None,
            spark=asks_spark and self.spark() is not None,
        )

    def _check_named(self, offered: Sequence[Column], there: Sequence[Column], pairs: Mapping[str, str]) -> None:
        batch, chosen = {column.name: json.loads(column.type) for column in offered}, self.settings
        table = frozenset(column.name for column in there) | (frozenset(batch) if chosen.grows else frozenset())
        problem = misnamed(chosen.upsert, chosen.merge, batch, table | frozenset(pairs))
        if problem is not None:
            mismatch, cause = "cannot use a column that an argument names", "another column was meant"
            details = {"difference": problem[0], "because": cause, "next": problem[1]}
            raise refuse("E506", sink=self.table.sink, mismatch=mismatch, **details)


def _in_order(offered: Mapping[str, Any], there: Sequence[Column], stored: Sequence[Column]) -> list[str]:
    """Order a batch's columns: the table's in its order, then those it lacks, then those it never holds."""
    stored_names, table_names = {column.name for column in stored}, [column.name for column in there]
    names = [name for name in table_names if name in stored_names]
    names += [name for name in offered if name not in table_names]
    return names + [name for name in offered if name in table_names and name not in stored_names]


def _demands(there: Sequence[Column]) -> tuple[Demands, str | None]:
    """The table's rules for values, and the reason why they cannot be checked here."""
    generated = [column.name for column in there if column.generated]
    try:
        # Of one expression, deltalake and Spark make two values: of a day in a session's zone, of a division.
        return Demands.of(there), f"generated column {', '.join(generated)}" if generated else None
    except Unread as unread:
        return Demands.of([replace(column, metadata={}) for column in there]), f"a column is {unread}"
