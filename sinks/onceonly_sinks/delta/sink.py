"""The Delta sink: phases of the contract over one open table."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from onceonly import faults
from onceonly.doctor import Check, Observed
from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.faults import Point
from onceonly.protocol import (
    AppTransaction,
    Batch,
    Capabilities,
    Changes,
    ExternalChange,
    Leaves,
    Names,
    Peek,
    Position,
    Prepared,
    Recorder,
    SinkBase,
    ToleratedChanges,
    Total,
    check_prepared_by,
)
from onceonly.protocol.capabilities import Span
from onceonly.protocol.row_rules import Condition, Rule
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.storage import is_local, resolved
from onceonly_sinks.delta import columns as rules
from onceonly_sinks.delta import errors, read, read_at, row_rules, spark_committer, staging
from onceonly_sinks.delta import table as foreign
from onceonly_sinks.delta.address import AddressOptions, read_address
from onceonly_sinks.delta.ladder import ChangePolicy
from onceonly_sinks.delta.load import Preparer
from onceonly_sinks.delta.marker import application_id
from onceonly_sinks.delta.merge import Merge, Upsert, checked, wrong
from onceonly_sinks.delta.planning import Planner, Settings
from onceonly_sinks.delta.prepared import Rows
from onceonly_sinks.delta.spark_committer import SparkCommitter
from onceonly_sinks.delta.table import Table, is_table_name, location
from onceonly_sinks.delta.writer import TableWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self


_TOLD = 5
"""Changes by others that ``explain()`` names."""

_READERS = "nothing to do: every version of the table holds whole epochs only"


@checks_arguments
class DeltaSink(SinkBase):
    """Writes each epoch of a pipeline exactly once into a Delta table, as one version of it.

    Between commits the sink does what the table's properties ask for: ``delta.checkpointInterval`` (20 where it is not
    set), ``delta.logRetentionDuration``, and with ``delta.autoOptimize.autoCompact`` small files become larger ones.

    Args:
        path_or_table: directory or URI of the table, created when missing; or the name of an existing table in Spark's
            catalog.
        mode: ``append``, or ``merge`` (implied by ``key`` and ``merge``).
        key: columns that identify a row: a row of a later epoch replaces that of an earlier one.
        sequence: column that orders the changes of a key: one with a lower value changes nothing; of two equal ones
            the later epoch wins, and in one epoch they are refused (E505).
        delete: boolean column of the batch; a row with true removes its key, under the same rule of ``sequence``. The
            column is not stored, and of a removed key nothing is: an older change in a later epoch brings it back.
        merge: how rows meet those of the table, in place of ``key``; see :class:`Merge`.
        schema: ``fail`` refuses a batch with columns that the table lacks; ``add_columns`` adds them, nullable, with
            the first epoch that brings rows: in its version, or, where deltalake merges or commits files that executors
            wrote, in the version before it. A column's type is never changed. In both, names may differ in case, a
            column that may be null may be left out (a merge leaves it as it stands), and a number may be of a type
            whose every value its column holds; whatever would narrow is refused (E506).
        id: the sink's id; default ``delta:<leaf of the path, or table>``.
        committer: ``log`` commits through deltalake, ``spark`` through Spark's Delta; ``auto`` takes deltalake, except
            for merges beyond ``driver_limit``, for tables with features that deltalake does not write, and for what
            Spark would then read as something else: rows of a table with generated columns; merges where a partition
            column is a timestamp, a decimal, floating point or bytes, where the name of a partition is not ASCII, or
            where Spark wrote timestamps before 1678 or after 2262. Without Spark's Delta these are refused (E110).
        driver_limit: bytes in Arrow form up to which an epoch goes through the driver.
        partition_by: columns by which a table that the sink creates is partitioned.
        epoch_column: name of a column that gets the epoch's number; ``None`` for none.
        storage_options: deltalake's options for an object store, with its secrets; default: from the environment.
        foreign: what others may do to the table: ``nothing``; ``appends``: add rows; ``deletes``: delete some, too;
            ``changes``: change them, too, by UPDATE, MERGE or an overwrite, after which an audit cannot tell what the
            rows of an epoch say. What is let pass is an event of the pipeline. What changes no row is always let pass;
            RESTORE below our newest rows, another table in the place and an unknown operation never are.

    Raises:
        ConfigurationError: E108 deltalake is not installed; E110 the arguments do not fit together.
    """

    def __init__(
        self,
        path_or_table: str | os.PathLike[str],
        *,
        mode: str | None = None,
        key: str | Sequence[str] | None = None,
        sequence: str | None = None,
        delete: str | None = None,
        merge: Merge | None = None,
        schema: str = "fail",
        id: str | None = None,
        committer: str = "auto",
        driver_limit: int = 64 * 1024 * 1024,
        partition_by: str | Sequence[str] = (),
        epoch_column: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        foreign: str = "appends",
    ) -> None:
        if importlib.util.find_spec("deltalake") is None:
            raise refuse("E108", what="DeltaSink", package="deltalake", distribution="onceonly", extra="delta")
        self._target = os.fspath(path_or_table)
        self._named = isinstance(path_or_table, str) and is_table_name(path_or_table)
        upsert, parts = Upsert(_names(key), sequence, delete), _names(partition_by)
        entering, grows = checked(mode, upsert, merge, schema), schema == "add_columns"
        if committer not in ("auto", "log", "spark"):
            raise wrong(f'DeltaSink has no committer="{committer}".', 'committer="auto", "log" or "spark"')
        allowed = ChangePolicy.of(foreign)
        if allowed is None:
            raise wrong(
                f'DeltaSink has no foreign="{foreign}".', 'foreign="nothing", "appends", "deletes" or "changes"'
            )
        self._settings = Settings(upsert, entering, epoch_column, committer, driver_limit, parts, grows, allowed)
        self._free = merge
        self._options = dict(storage_options) if storage_options else None
        super().__init__(id or f"delta:{_leaf(self._target, named=self._named)}")
        self._custom_id = id is not None
        self._root = None if self._named else location(self._target)
        self._opened: _Opened | None = None
        self._made: tuple[SparkSession, SparkCommitter] | None = None

    # ---- what it is

    @property
    def address(self) -> str:
        """Where the table lies, once that is known; else its name."""
        id_ = self._id if self._custom_id or self._named else None
        said = AddressOptions.of(self._settings, id_, self._free)
        return said.address(self._root or self._target)

    @property
    def capabilities(self) -> Capabilities:
        """Recountable where rows are only ever added."""
        append, upsert = self._settings.merge is None, self._settings.upsert
        committers = {
            "log": "deltalake, one log entry",
            "spark": "Spark's Delta, one log entry",
            "auto": f"one log entry: deltalake; {'merges beyond the driver limit and ' if not append else ''}"
            "tables it cannot write through Spark's Delta",
        }
        return Capabilities(
            append,
            append,
            carries_ledger=False,
            committer=committers[self._settings.committer],
            readers=_READERS,
            foreign=self._foreign_words,
            provable=self._settings.foreign < ChangePolicy.CHANGES,
            names=Names(folds=True),
            changes=Changes(upsert.key, upsert.sequence, upsert.delete),
        )

    @property
    def _foreign_words(self) -> str:
        seen = self._opened.writer.seen if self._opened else []
        return self._settings.foreign.words + "".join(f"; let pass: {one.detail}" for one in seen[-_TOLD:])

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a table again for reading; an object store's secrets come from the environment."""
        target, said = read_address(address)
        path = target if is_table_name(target) else location(target)
        return cls(Path(path) if is_local(path) and not is_table_name(path) else path, **said.arguments)

    # ---- opening

    def open(self, pipeline: str) -> None:
        """Find the table and check its place; creates nothing.

        Raises:
            DestinationError: E508, something else lies there, or the name leads nowhere.
        """
        super().open(pipeline)
        if self._root is None:
            self._root = spark_committer.locate(self._id, self._target)
        table = Table(self._id, self._root, application_id(pipeline, self._id), self._options)
        table.check_place()
        self._made = None
        self._opened = _Opened(
            table,
            TableWriter(table, self._settings, self._spark, free=self._free is not None),
            Preparer(Planner(table, self._settings, self._spark)),
        )

    def demands(self, columns: pa.Schema) -> Sequence[Rule | Condition]:
        """What the table demands of rows of these columns, as of its newest version.

        Raises:
            DestinationError: E506, Delta has no such type.
        """
        table, batch = self._open.table, rules.columns_of(rules.delta_schema(self._id, columns))
        if table.reopen() is None or rules.is_placeholder(table.columns):
            return row_rules.of(self._settings, (), {}, batch)
        return row_rules.of(self._settings, table.columns, table.handle.metadata().configuration, batch)

    def fence(self) -> Fence | None:
        """The newest installed fence; without an owner where its text has aged out."""
        table = self._open.table
        return table.found(table.reopen()).fence

    def look(self) -> Peek:
        """The newest marker, as of the table's newest version."""
        table = self._open.table
        found = table.look()
        marker = found.note.marker if found.note else None
        strangers = not found.epoch and found.head >= 0 and table.has_rows()
        return Peek(marker, found.epoch, strangers=strangers)

    def identity_beside(self, known: str) -> str:
        """The table's id, whatever was known; empty where there is no table."""
        return self._open.table.identity if self._open.table.current() is not None else ""

    def install(self, fence: Fence) -> None:
        """Commit a fence that repeats the newest marker, where it is strictly greater than the one found.

        Raises:
            Superseded: a fence stands that is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            DestinationError: E507, E509 or E512, the table cannot be written, forgets markers, or ran out of
                generations.
        """
        self._open.writer.install(fence)

    def content(self) -> int | None:
        """The newest epoch's number, or that of the epoch whose rows a RESTORE has brought back.

        ``None`` where others changed what stands, or the log does not reach as far.
        """
        found = self._open.writer.content()
        return None if found is None else found.epoch

    def stand_at(self, fence: Fence, epoch: int) -> None:
        """Commit a fence that repeats the marker of an older epoch, whose rows are those that stand; see ``Settable``.

        Raises:
            Superseded: a fence stands that is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            DestinationError: as by :meth:`install`.
            ConfigurationError: E110, other rows stand.
        """
        self._open.writer.stand_at(fence, epoch)

    def position(self, since: Receipt | None) -> Position:
        """Where the table stands, under our fence.

        Raises:
            Superseded: another fence stands.
            DestinationError: E508, our fence does not stand; E509, the table forgets markers.
        """
        return self._open.writer.position(since)

    # ---- one epoch

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Bring the rows into this process, into data files without an entry, or into staging.

        Raises:
            ConfigurationError: E110, the rows need Spark's Delta and it is not there.
            DestinationError: E503 to E508, the table cannot take the rows.
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

    def keeps_from_replacing(self, span: Span) -> str:
        """Why not all rows of the table can leave at once: by its log it is not ours alone; empty where they can."""
        self._open.table.reopen()
        return self._open.writer.keeps_from_replacing()

    def prepare_replacing(self, batch: Batch, epoch: int, span: Span) -> Prepared:
        """As :meth:`prepare`; what leaves is said by the marker, and does so in the version that brings these rows."""
        return self.prepare(batch, epoch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Commit rows and marker as one version, where our fence and the previous chain stand.

        Raises:
            Superseded: another fence stands.
            IdentityError: E207 to E210: the table was replaced or changed, or is not what the epoch follows.
            DestinationError: E503 to E509, the table cannot take the rows.
            OutcomeUnknown: the answer was lost.
        """
        return self._open.writer.commit(_standing(prepared), marker)

    def look_up(self, marker: Marker) -> Receipt | None:
        """After an unknown answer: the receipt if that very epoch is there, ``None`` once it cannot land any more.

        Raises:
            Superseded: another fence stands.
            OutcomeUnknown: it cannot be said.
        """
        return self._open.writer.look_up(marker)

    def sweep(self) -> None:
        """Remove what lower generations staged; data files without a log entry are VACUUM's."""
        table = self._open.table
        staging.sweep(table.root, table.options, table.app, self._open.writer.generation)

    # ---- reading

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first, as far back as the log goes; the newest is always there."""
        return read.history(self._id, self._open.table, after)

    def recount(self) -> Mapping[int, int] | None:
        """Rows per epoch that still stand, counted by following its files through the log; see ``census``.

        Epochs whose log file was cleaned away are left out. ``None`` where an epoch was merged, or where the log does
        not show whose rows somebody deleted.
        """
        return None if self._settings.merge else read.recount(self._open.table)

    def absent(self) -> str:
        """Data files that the newest version names and that are not there; see ``Filed``."""
        gone, table = read.absent(self._open.table), self._open.table
        return f"{len(gone)} of {len(table.paths)} data files of version {table.handle.version()}" if gone else ""

    def total(self) -> Total | None:
        """The rows of the newest version, by its log; ``None`` where files do not say theirs, or hold deleted ones."""
        upsert = self._settings.upsert
        removes = self._free is not None or upsert.delete is not None
        rows = self._open.table.count_rows()
        leaves = Leaves.by(sequence=upsert.sequence is not None, removes=removes)
        return None if rows is None else Total(rows, leaves)

    def read_back(self, spark: SparkSession) -> DataFrame | None:
        """The rows of an append, each with its epoch, through Spark's Delta; ``None`` for a merge or an unclear log."""
        if self._settings.merge:
            return None
        return read.read_back(self._open.table, self._settings.epoch_column, spark)

    def read_rows(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """The rows of an append by epoch, through deltalake; ``None`` for a merge or an unclear log.

        Raises:
            DestinationError: E508, deltalake does not read such a table.
        """
        return None if self._settings.merge else read_at.of(self._open.table, self._settings.epoch_column, span)

    def check_at(self, at: Receipt, since: Receipt | None = None) -> None:
        """See that the version of an epoch can be read; see ``Versioned``.

        Raises:
            EpochExpired: its log or its files are not all there any more.
        """
        read_at.check(self._open.table, at)

    def read_at(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Rows as of an epoch, through deltalake, with those that others had brought until its version.

        Raises:
            EpochExpired: they are not all there any more.
            NotVersioned: only later rows are asked for, and the table does not tell them.
            DestinationError: E508, deltalake does not read such a table: Spark does.
        """
        column, merged = self._settings.epoch_column, self._settings.merge is not None
        return read_at.read(self._open.table, column, at, since, merged=merged)

    def frame_at(self, spark: SparkSession, at: Receipt, since: Receipt | None = None) -> DataFrame:
        """Rows as of an epoch, through Spark's Delta; raises as :meth:`read_at`."""
        column, merged = self._settings.epoch_column, self._settings.merge is not None
        return read_at.frame(self._open.table, spark, column, at, since, merged=merged)

    def select_at(self, at: Receipt, since: Receipt | None = None) -> str:
        """``SELECT ... VERSION AS OF``, for Spark's Delta; raises as :meth:`read_at`."""
        return read_at.select(self._open.table, at, since)

    def disturbances(self, since: Receipt | None) -> tuple[ExternalChange, ...]:
        """What others did to the table since a receipt; what changes no row is nobody's business."""
        return read.disturbances(self._open.table, since, self._settings.foreign)

    def passed(self) -> tuple[ExternalChange, ...]:
        """What the newest commit let pass of what others did; each is told once."""
        return self._open.writer.passed()

    def allowed(self) -> ToleratedChanges:
        """What others did to the table and was let pass, or would be now, as far back as the log goes."""
        return read.allowed(self._open.table, self._settings.foreign, merged=self._settings.merge is not None)

    def writers(self) -> list[str]:
        """Pipelines with an epoch in the table, as far as its newest commits show them; ours among them."""
        return self._open.table.followed.writers()

    @property
    def named(self) -> bool:
        """Whether its id was given."""
        return self._custom_id

    def place(self) -> str:
        """The table's root, without links and by one name of its scheme."""
        return f"delta:{resolved(self._open.table.root)}"

    def feeds(self) -> str | None:
        """The table's id, which the offsets of Spark's Delta source are of; ``None`` where there is no table."""
        return self._open.table.identity if self._open.table.reopen() is not None else None

    def transaction(self, app: str) -> AppTransaction:
        """What an application last wrote here under ``txnAppId`` and ``txnVersion``."""
        return foreign.transaction(self._open.table, app)

    def examine(self, observed: Observed) -> Sequence[Check]:
        """Whether the place can be written, who can commit there, and how long the table remembers markers."""
        merges = self._settings.merge is not None or self._free is not None
        place, table = read.read(self._open.table)
        return list(read.judge(self.address, place, table, observed, merges=merges))

    def needs_spark(self) -> str | None:
        """What deltalake cannot write of the table; ``None`` if it can write it, or nobody has looked."""
        table = self._opened.table if self._opened is not None else None
        return table.needs_spark() if table is not None and table.seen else None

    def close(self) -> None:
        """Let go of handle and fence."""
        if self._opened is not None:
            self._opened.writer.close()
            self._opened.table.drop_handle()

    @property
    def _open(self) -> _Opened:
        if self._opened is None:
            raise RuntimeError("open() comes first")
        return self._opened

    def _spark(self) -> SparkCommitter | None:
        """Spark's committer in the session at hand; one per session."""
        session = spark_committer.active_session()
        if session is None or self._settings.committer == "log":
            return None
        if self._made is None or self._made[0] is not session:
            self._made = (session, SparkCommitter.of(self._open.table, session))
        return self._made[1]


@dataclass(frozen=True, slots=True)
class _Opened:
    table: Table
    writer: TableWriter
    preparer: Preparer


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _leaf(target: str, *, named: bool) -> str:
    return target if named else target.rstrip("/").rpartition("/")[2]


def _standing(prepared: Prepared | None) -> Rows | None:
    ours: Rows | None = check_prepared_by(prepared, *get_args(Rows))
    if ours is not None and ours.gone:
        raise RuntimeError("an abandoned preparation cannot be committed")
    return ours
