"""Write each epoch exactly once into a Delta table.

Implements the sink contract and delegates its phases to one opening of the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from onceonly import faults, protocol
from onceonly.errors import refuse
from onceonly.errors.options import Column, Columns, checks_arguments, names_of
from onceonly.faults import Point
from onceonly.protocol.capabilities import (
    CHANGED,
    GONE,
    STATE_KEY,
    OpenWindow,
    SeenIdsStore,
    Span,
    StateRow,
    StateWanted,
    WindowStore,
)
from onceonly.protocol.sink import check_prepared_by
from onceonly.protocol.values import (
    AppTransaction,
    Changes,
    ExpiredRows,
    ExternalChange,
    Leaves,
    Names,
    ToleratedChanges,
    Total,
)
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.storage import is_local, resolved
from onceonly_sinks.delta import columns as rules
from onceonly_sinks.delta import errors, files, read, row_rules, seen_ids, spark_committer, window_state
from onceonly_sinks.delta import table as foreign
from onceonly_sinks.delta.ladder import ChangePolicy
from onceonly_sinks.delta.load import Preparer
from onceonly_sinks.delta.marker import application_id
from onceonly_sinks.delta.merge import Merge, Upsert, checked
from onceonly_sinks.delta.options import TUNING, AllowedChanges, DeltaTuning, SchemaChange, address_of, read_address
from onceonly_sinks.delta.planning import Planner, Settings
from onceonly_sinks.delta.prepared import Rows
from onceonly_sinks.delta.spark_committer import SparkCommitter
from onceonly_sinks.delta.table import Table, is_table_name, location
from onceonly_sinks.delta.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

    from onceonly.protocol.batch import AsOf
    from onceonly.protocol.health import Check, Observed
    from onceonly.protocol.row_rules import Condition, Rule

_MOST_SHOWN = 5
"""Changes by others that ``explain()`` names."""

_READERS = "nothing to do: every version of the table holds whole epochs only"


@checks_arguments
class DeltaSink(
    SeenIdsStore,
    WindowStore,
    protocol.HostsStores,
    protocol.ReplacesRows,
    protocol.ReadsRows,
    protocol.DetectsChanges,
    protocol.HasConstraints,
    protocol.Inspectable,
    protocol.StreamSource,
):
    """Writes each epoch exactly once, as one version of a Delta table.

    Between commits the sink checkpoints by ``delta.checkpointInterval`` (20 if unset), cleans the log by
    ``delta.logRetentionDuration``, and compacts small files with ``delta.autoOptimize.autoCompact``. A table that the
    sink creates has the last one.

    Args:
        table: directory or URI of the table, created if missing, or the name of an existing table in Spark's catalog.
        key: columns that identify a row. A row of a later epoch replaces that of an earlier one.
        sequence: column that orders the changes of a key. A change with a lower value changes nothing. Of two equal
            values the later epoch wins. Within one epoch equal values are refused (E505).
        delete_flag: boolean column of the batch. A row with true removes its key, under the same rule of ``sequence``.
            The table stores neither the column nor the key, so an older change in a later epoch brings it back.
        merge: how rows meet those of the table, in place of ``key``. See :class:`Merge`.
        schema: ``fail`` refuses a batch with columns that the table lacks. ``add_columns`` adds them, nullable, with
            the first epoch that brings rows. They come in that epoch's version. If deltalake merges, or commits files
            that executors wrote, they come in the version before it. A column's type never changes. In both modes,
            names may differ in case. A nullable column may be left out, and a merge then keeps its value. A number may
            have any type whose values all fit its column. A type that would narrow is refused (E506).
        id: the sink's id. Default: ``delta:<leaf of the path, or table>``.
        partition_by: partition columns of a table that the sink creates.
        storage_options: deltalake's options for an object store, with its secrets. Default: from the environment.
        external_changes: changes that other writers may make. ``nothing``: none. ``appends``: add rows. ``deletes``:
            also delete rows. ``changes``: also change rows by UPDATE, MERGE or an overwrite, after which an audit
            cannot verify the rows of an epoch. Each permitted change is an event of the pipeline. Commits that change
            no row are always permitted. A RESTORE below our newest rows, another table in the same place and an
            unknown operation never are.
        tuning: the way of the rows.

    Raises:
        ConfigurationError: E110 the arguments do not fit together.
    """

    def __init__(
        self,
        table: str | os.PathLike[str],
        *,
        key: Columns | None = None,
        sequence: Column | None = None,
        delete_flag: Column | None = None,
        merge: Merge | None = None,
        schema: SchemaChange = "fail",
        id: str | None = None,
        partition_by: Columns = (),
        storage_options: Mapping[str, str] | None = None,
        external_changes: AllowedChanges = "appends",
        tuning: DeltaTuning = TUNING,
    ) -> None:
        self._target = os.fspath(table)
        self._named = isinstance(table, str) and is_table_name(table)
        upsert, parts = Upsert(names_of(key), sequence, delete_flag), names_of(partition_by)
        entering, grows = checked(upsert, merge, schema), schema == "add_columns"
        column, committer, limit = tuning.epoch_column, tuning.committer, tuning.driver_limit
        allowed = ChangePolicy[external_changes.upper()]
        self._settings = Settings(upsert, entering, column, committer, limit, parts, grows, allowed)
        self._free, self._tuning = merge, tuning
        self._options = dict(storage_options) if storage_options else None
        super().__init__(id or f"delta:{_leaf(self._target, named=self._named)}")
        self.named = id is not None
        self._root = None if self._named else location(self._target)
        self._opened: _Opened | None = None
        self._by_session: tuple[SparkSession, SparkCommitter] | None = None

    # ---- what it is

    @property
    def address(self) -> str:
        """The table's location, or its name until the location is known."""
        id_ = self._id if self.named or self._named else None
        return address_of(self._root or self._target, self._settings, id_, self._free, DeltaSink.__init__)

    @property
    def capabilities(self) -> protocol.Capabilities:
        """Epochs can be recounted only without a merge, where rows are only ever added."""
        append, upsert = self._settings.merge is None, self._settings.upsert
        changes = self._opened.writer.tolerated if self._opened else []
        tolerated = "".join(f"; tolerated: {change.detail}" for change in changes[-_MOST_SHOWN:])
        committers = {
            "log": "deltalake, one log entry",
            "spark": "Spark's Delta, one log entry",
            "auto": f"one log entry: deltalake; {'merges beyond the driver limit and ' if not append else ''}"
            "tables it cannot write through Spark's Delta",
        }
        return protocol.Capabilities(
            append,
            append,
            carries_ledger=False,
            committer=committers[self._settings.committer],
            readers=_READERS,
            foreign=self._settings.foreign.words + tolerated,
            provable=self._settings.foreign < ChangePolicy.CHANGES,
            names=Names(folds=True),
            changes=Changes(upsert.key, upsert.sequence, upsert.delete),
        )

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a table again for reading. The environment supplies the secrets of an object store."""
        target, options, keeps = read_address(address, DeltaSink.__init__)
        path = target if is_table_name(target) else location(target)
        found = cls(Path(path) if is_local(path) and not is_table_name(path) else path, **options)
        return found.seen_ids_store(keeps) if keeps else found

    def seen_ids_store(self, seconds: int) -> Self:
        """This table as one of seen ids. Raises E122: the sink has options for other rows."""
        if said := self._described:
            raise refuse("E122", problem=said, next=f"give the table alone: store=DeltaSink({self._target!r})")
        id_ = self._id if self.named else None
        return self._of_our_own(self._root or self._target, id_, seen_ids.EPOCH_COLUMN, keeps=seconds)

    def window_store(self, *, separate: bool) -> Self | None:
        """A table for the state of windows (see ``HostsStores``). ``None``: beside a table that only a catalog finds.

        Raises E143: the sink has options for other rows.
        """
        target = self._root or self._target
        if separate and self._root is None:
            return None
        if not separate and (said := self._described):
            raise refuse("E143", problem=said, next=f"give the table alone: state_sink=DeltaSink({self._target!r})")
        place = f"{target.rstrip('/')}{window_state.SUFFIX}" if separate else target
        id_ = self._id if self.named and not separate else None
        return self._of_our_own(place, id_, CHANGED, key=STATE_KEY, delete_flag=GONE)

    @property
    def _described(self) -> str:
        """That options describe the table's rows, in words. Empty: they do not."""
        settings = self._settings
        said = settings.merge or settings.epoch_column or settings.partition_by or settings.grows
        return f"{self._id} was given options of its table" if said else ""

    def _of_our_own(self, place: str, id_: str | None, column: str, keeps: int = 0, **options: Any) -> Self:
        options |= {"storage_options": self._options, "tuning": replace(self._tuning, epoch_column=column)}
        made = type(self)(place, id=id_, external_changes="nothing", **options)
        made._settings = replace(made._settings, keeps=keeps)
        return made

    def lookup(self, as_of: AsOf) -> seen_ids.SeenIdsLookup:
        """A lookup of seen ids for executors. Raises E506: the table holds other rows. E508: it cannot be read."""
        return seen_ids.lookup(self._open.table, as_of, self._settings.keeps)

    # ---- opening

    def open(self, pipeline: str) -> None:
        """Find the table and check its place, without creating anything.

        Raises E508: something else is in the place, or the catalog has no such table.
        """
        super().open(pipeline)
        if self._root is None:
            self._root = spark_committer.locate(self._id, self._target)
        table = Table(self._id, self._root, application_id(pipeline, self._id), self._options)
        table.check_place()
        self._by_session = None
        self._opened = _Opened(
            table,
            TableWriter(table, self._settings, self._spark, free=self._free is not None),
            Preparer(Planner(table, self._settings, self._spark)),
        )

    def row_rules(self, columns: pa.Schema) -> Sequence[Rule | Condition]:
        """Rules of the table's newest version for rows with these columns.

        Raises:
            DestinationError: E506, Delta has no such type.
        """
        table, batch = self._open.table, rules.columns_of(rules.delta_schema(self._id, columns))
        if table.reopen() is None or rules.is_placeholder(table.columns):
            return row_rules.of(self._settings, (), {}, batch)
        return row_rules.of(self._settings, table.columns, table.handle.metadata().configuration, batch)

    def fence(self) -> Fence | None:
        """The newest installed fence, without an owner if the log no longer holds its text."""
        table = self._open.table
        return table.state_of(table.reopen()).fence

    def look(self) -> protocol.Peek:
        """The newest marker, as of the table's newest version."""
        table = self._open.table
        table_state = table.look_at_log()
        marker = table_state.note.marker if table_state.note else None
        strangers = not table_state.epoch and table_state.head >= 0 and table.has_rows()
        return protocol.Peek(marker, table_state.epoch, strangers=strangers)

    def identity_now(self, recorded: str) -> str:
        """The table's id, regardless of ``recorded``, or empty if there is no table."""
        return self._open.table.identity if self._open.table.current() is not None else ""

    def install(self, fence: Fence) -> None:
        """Commit a fence that repeats the newest marker, if it is strictly greater than the current fence.

        Raises E507 if the table cannot be written, E509 if it forgets markers, E512 if it ran out of generations.
        """
        self._open.writer.install(fence)

    def content_epoch(self) -> int | None:
        """The newest epoch's number, or that of the epoch whose rows a RESTORE has brought back.

        ``None`` if other writers changed the current rows, or if the log does not reach back far enough.
        """
        content = self._open.writer.content()
        return None if content is None else content.epoch

    def reset_to(self, fence: Fence, epoch: int) -> None:
        """Commit a fence that repeats the marker of an older epoch, whose rows the table now holds.

        Raises:
            Superseded: the current fence is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            DestinationError: as by :meth:`install`.
            ConfigurationError: E110, the table holds other rows.
        """
        self._open.writer.reset_to(fence, epoch)

    def position(self, since: Receipt | None) -> protocol.Position:
        """The table's position under our fence.

        Raises E508 if our fence is not installed, E509 if the table forgets markers.
        """
        return self._open.writer.position(since)

    # ---- one epoch

    def prepare(self, batch: protocol.Batch, epoch: int) -> protocol.Prepared:
        """Bring the rows into this process, into data files without a log entry, or into staging.

        Raises E110: the rows need Spark's Delta, which is missing. Raises E503 to E508: the table cannot take the rows.
        """
        if self._open.table.current() is None:
            raise errors.no_fence(self._id)
        try:
            prepared = self._open.preparer.prepare(batch, epoch, self._open.writer.generation)
        except OSError as error:
            if error.errno is None:
                raise
            raise errors.unwritable(self._id, error.errno) from error
        try:
            faults.fire(Point.PREPARE_SENT)
        except BaseException:
            prepared.abandon()
            raise
        return prepared

    def cannot_replace(self, span: Span) -> str:
        """Reason why a commit must not remove all rows, such as rows in the log that are not ours. Empty if it may."""
        self._open.table.reopen()
        return self._open.writer.cannot_replace()

    def prepare_replacement(self, batch: protocol.Batch, epoch: int, span: Span) -> protocol.Prepared:
        """Prepare as :meth:`prepare` does.

        The marker makes the commit remove the old rows in the version that brings the new ones.
        """
        return self.prepare(batch, epoch)

    def commit(
        self, prepared: protocol.Prepared | None, marker: Marker, ledger: protocol.Recorder | None = None
    ) -> Receipt:
        """Commit rows and marker as one version, if our fence and the previous chain are unchanged.

        Raises E207 to E210 if the table was replaced or changed, or the epoch does not follow its newest one. Raises
        E503 to E509 if the table cannot take the rows.
        """
        ours: Rows | None = check_prepared_by(prepared, *get_args(Rows))
        if ours is not None and ours.gone:
            raise RuntimeError("an abandoned preparation cannot be committed")
        return self._open.writer.commit(ours, marker)

    def look_up(self, marker: Marker) -> Receipt | None:
        """Look for an epoch after an unknown answer: its receipt, or ``None`` once it cannot land any more."""
        return self._open.writer.look_up(marker)

    def sweep(self) -> None:
        """Remove staged rows of lower generations. VACUUM removes data files without a log entry."""
        table = self._open.table
        files.sweep(table.root, table.options, table.app, self._open.writer.generation)

    # ---- reading

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first, as far back as the log goes. The newest is always there."""
        return read.history(self._id, self._open.table, after)

    def recount(self) -> Mapping[int, int] | None:
        """Rows per epoch that the table still holds, counted by following files through the log. See ``census``.

        Epochs whose log file was cleaned away are left out. ``None`` if an epoch was merged, or if the log does not
        show whose rows another writer deleted. A table of ids counts those that are still known.
        """
        if self._settings.keeps:
            return self._known(self.look().marker)[0]
        return None if self._settings.merge else read.recount(self._open.table)

    def expired_rows(self) -> ExpiredRows | None:
        """Rows of a table of ids that no longer count. ``None`` for any other table."""
        newest = self.look().marker
        if newest is None or not self._settings.keeps:
            return None
        return ExpiredRows(newest.epoch.number, newest.epoch.digest_in(self._id).rows, 0, self._known(newest)[1])

    def _known(self, newest: Marker | None) -> tuple[Mapping[int, int], int]:
        return seen_ids.known(self._open.table, newest.epoch, self._settings.keeps) if newest else ({}, 0)

    def absent(self) -> str:
        """Count of missing data files of the newest version, in words, or empty."""
        gone, table = read.absent(self._open.table), self._open.table
        return f"{len(gone)} of {len(table.paths)} data files of version {table.handle.version()}" if gone else ""

    def total(self) -> Total | None:
        """Rows of the newest version, by its log. ``None`` if a file has no count or holds deleted rows."""
        upsert = self._settings.upsert
        removes = self._free is not None or upsert.delete is not None or self._settings.keeps > 0
        rows = self._open.table.count_rows()
        leaves = Leaves.by(sequence=upsert.sequence is not None, removes=removes)
        return None if rows is None else Total(rows, leaves)

    def read_with_spark(self, spark: SparkSession) -> DataFrame | None:
        """Read an append's rows with their epochs, through Spark's Delta. ``None`` for a merge or an unclear log."""
        if self._settings.merge:
            return None
        return read.read_back(self._open.table, self._settings.epoch_column, spark)

    def read_by_epoch(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """Read an append's rows by epoch, through deltalake. ``None`` for a merge or an unclear log.

        Raises:
            DestinationError: E508, deltalake does not read such a table.
        """
        from onceonly_sinks.delta import read_at

        return None if self._settings.merge else read_at.of(self._open.table, self._settings.epoch_column, span)

    def check_at(self, at: Receipt, since: Receipt | None = None) -> None:
        """Check that the version of an epoch can be read. ``EpochExpired``: part of its log or files is gone."""
        from onceonly_sinks.delta import read_at

        read_at.check(self._open.table, at)

    def read_at(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Read the rows as of an epoch, through deltalake.

        They include rows that other writers added until that version. Raises ``EpochExpired`` if some are gone,
        ``NotVersioned`` if only later rows are wanted and the table cannot tell them apart, and E508 if only Spark
        reads such a table.
        """
        from onceonly_sinks.delta import read_at

        column, merged = self._settings.epoch_column, self._settings.merge is not None
        return read_at.read(self._open.table, column, at, since, merged=merged)

    def frame_at(self, spark: SparkSession, at: Receipt, since: Receipt | None = None) -> DataFrame:
        """Read the rows as of an epoch, through Spark's Delta. Raises as :meth:`read_at`."""
        from onceonly_sinks.delta import read_at

        column, merged = self._settings.epoch_column, self._settings.merge is not None
        return read_at.frame(self._open.table, spark, column, at, since, merged=merged)

    def select_at(self, at: Receipt, since: Receipt | None = None) -> str:
        """``SELECT ... VERSION AS OF``, for Spark's Delta. Raises as :meth:`read_at`, also if ``since`` is given."""
        from onceonly_sinks.delta import read_at

        return read_at.select(self._open.table, at, since)

    def read_changes(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Read the table's change data feed, through deltalake. Raises as :meth:`read_at`."""
        from onceonly_sinks.delta import read_at

        if self._settings.merge is None:
            return super().read_changes(at, since)
        return read_at.read_changes(self._open.table, self._settings.epoch_column, at, since)

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        """Read the wanted rows of window state (see ``WindowStore``).

        Raises E226: a row is of this epoch or a later one. Raises E508: deltalake does not read such a table.
        """
        return window_state.recall(self._open.table, request, as_of)

    def count_windows(self, since: int) -> int:
        """Number of open windows (see ``WindowStore``)."""
        return window_state.count(self._open.table, since)

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> Iterator[OpenWindow]:
        """Open windows (see ``WindowStore``)."""
        return window_state.open_windows(self._open.table, since, key, limit)

    def external_changes(self, since: Receipt | None) -> tuple[ExternalChange, ...]:
        """Changes by other writers since a receipt, without commits that change no row."""
        return read.disturbances(self._open.table, since, self._settings.foreign)

    def tolerated_now(self) -> tuple[ExternalChange, ...]:
        """Changes by other writers that the newest commit permitted. Each is reported once."""
        return self._open.writer.passed()

    def tolerated_changes(self) -> ToleratedChanges:
        """Changes by other writers that were permitted, or would be now, as far back as the log goes."""
        return read.allowed(self._open.table, self._settings.foreign, merged=self._settings.merge is not None)

    def pipelines(self) -> list[str]:
        """Pipelines with an epoch in the table's newest commits, ours included."""
        return self._open.table.followed.writers()

    def place(self) -> str:
        """The table's root, without links and with its scheme in one spelling."""
        return f"delta:{resolved(self._open.table.root)}"

    def source_identity(self) -> str | None:
        """The table's id, to which offsets of Spark's Delta source belong. ``None`` without a table."""
        return self._open.table.identity if self._open.table.reopen() is not None else None

    def app_transaction(self, app: str) -> AppTransaction:
        """The newest write of an application here, by ``txnAppId`` and ``txnVersion``."""
        return foreign.transaction(self._open.table, app)

    def examine(self, observed: Observed) -> Sequence[Check]:
        """Check that the place can be written, who can commit there, and how long the table remembers markers."""
        from onceonly_sinks.delta import health

        merges = self._settings.merge is not None or self._free is not None
        directory, table = health.read(self._open.table)
        return list(health.judge(self.address, directory, table, observed, merges=merges))

    def needs_spark(self) -> str | None:
        """Reason why deltalake cannot write the table. ``None`` if it can, or before the table was opened."""
        table = self._opened.table if self._opened is not None else None
        return table.needs_spark() if table is not None and table.is_open else None

    def close(self) -> None:
        """Release handle and fence."""
        if self._opened is not None:
            self._opened.writer.close()
            self._opened.table.drop_handle()

    @property
    def _open(self) -> _Opened:
        if self._opened is None:
            raise RuntimeError("open() comes first")
        return self._opened

    def _spark(self) -> SparkCommitter | None:
        session = spark_committer.active_session()
        if session is None or self._settings.committer == "log":
            return None
        if self._by_session is None or self._by_session[0] is not session:
            self._by_session = (session, SparkCommitter.of(self._open.table, session))
        return self._by_session[1]


@dataclass(frozen=True, slots=True)
class _Opened:
    table: Table
    writer: TableWriter
    preparer: Preparer


def _leaf(target: str, *, named: bool) -> str:
    return target if named else target.rstrip("/").rpartition("/")[2]
