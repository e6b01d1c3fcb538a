"""The Delta sink: the contract's phases over a table, its log and two committers.

What holds for a table that does not exist yet: the first fence creates it, with a column that the first batch's columns
replace. Version 0 is taken by one driver only, so from then on fences order everybody, before there is any row.

What a conditional commit rests on: each commit carries our application id, and deltalake and Spark refuse a commit if another
one with that id has landed since the version that it was checked against. Version files are created where none is, by link or
conditional put, so of two commits for one version one fails.
"""

from __future__ import annotations

import importlib.util
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.protocol import Batch, Capabilities, OutcomeUnknown, Position, Prepared, Superseded
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.delta import columns, failures, reading, standing
from onceonly_sinks.delta.columns import Merge
from onceonly_sinks.delta.logcommitter import LogCommitter
from onceonly_sinks.delta.marker import Note, application_id, pack
from onceonly_sinks.delta.prepare import HeldRows, Preparer, WrittenFiles
from onceonly_sinks.delta.sparkcommitter import SparkCommitter, StagedRows
from onceonly_sinks.delta.standing import Standing
from onceonly_sinks.delta.table import Found, Table, is_table_name, location

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from onceonly_checkpoints.ledger import Ledger

_TRIES = 20
_ID_MARK = "#id="
_READERS = "nothing: a version of the table holds whole epochs only"


class DeltaSink:
    """Writes each epoch of a pipeline exactly once into a Delta table, as one version of it.

    Args:
        path_or_table: directory or URI of the table, created when missing; or the name of an existing table in Spark's catalog.
        mode: ``append``, or ``merge`` (implied by ``key``).
        key: columns that identify a row: a row of a later epoch replaces that of an earlier one.
        sequence: column that orders the changes of a key: a row replaces only one with a lower value.
        id: the sink's id; default ``delta:<leaf of the path, or table>``.
        committer: ``log`` commits through deltalake, ``spark`` through Spark's Delta; ``auto`` takes deltalake, except for
            merges beyond ``driver_limit`` and for tables with features that deltalake does not write.
        driver_limit: bytes in Arrow form up to which an epoch goes through the driver.
        partition_by: columns by which a table that the sink creates is partitioned.
        epoch_column: name of a column that gets the epoch's number; ``None`` for none.
        storage_options: deltalake's options for an object store, with its secrets; default: from the environment.

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
        id: str | None = None,
        committer: str = "auto",
        driver_limit: int = 64 * 1024 * 1024,
        partition_by: str | Sequence[str] = (),
        epoch_column: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if importlib.util.find_spec("deltalake") is None:
            raise refuse("E108", what="DeltaSink", package="deltalake", extra="delta")
        self._target = os.fspath(path_or_table)
        self._named = isinstance(path_or_table, str) and is_table_name(path_or_table)
        self._merge = Merge(_names(key), sequence)
        self._mode = _checked_mode(mode, self._merge, committer)
        self._committer = committer
        self._limit = driver_limit
        self._partition_by = _names(partition_by)
        self._epoch_column = epoch_column
        self._options = dict(storage_options) if storage_options else None
        self._id = id or f"delta:{_leaf(self._target, named=self._named)}"
        self._custom_id = id is not None
        self._root = None if self._named else location(self._target)
        self._opened: Table | None = None
        self._standing: Standing | None = None

    # ---- what it is

    @property
    def id(self) -> str:
        """One logical write, unique in the pipeline."""
        return self._id

    @property
    def address(self) -> str:
        """Where the table lies, once that is known; else its name."""
        mark = f"{_ID_MARK}{self._id}" if self._custom_id or self._named else ""
        return f"delta:{self._root or self._target}{mark}"

    @property
    def capabilities(self) -> Capabilities:
        """Recountable where rows are only ever added."""
        append = self._mode == "append"
        committers = {
            "log": "deltalake, one log entry",
            "spark": "Spark's Delta, one log entry",
            "auto": f"one log entry: deltalake; {'merges beyond the driver limit and ' if not append else ''}"
            "tables it cannot write through Spark's Delta",
        }
        return Capabilities(append, append, carries_ledger=False, committer=committers[self._committer], readers=_READERS)

    @property
    def ledger_url(self) -> str | None:
        """None: a table is no database."""
        return None

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a table again for reading; an object store's secrets come from the environment."""
        target, _, id_ = address.removeprefix("delta:").partition(_ID_MARK)
        path = target if is_table_name(target) else location(target)
        return cls(path if "://" in path or is_table_name(path) else Path(path), id=id_ or None)

    # ---- opening

    def open(self, pipeline: str) -> None:
        """Find the table and check its place; creates nothing.

        Raises:
            ConfigurationError: E112, Spark would write S3 with a store that does not order writers.
            DestinationError: E508, something else lies there, or the name leads nowhere.
        """
        if self._root is None:
            self._root = SparkCommitter.locate(self._id, self._target)
        table = Table(self._id, self._root, application_id(pipeline, self._id), self._options)
        table.check_place()
        SparkCommitter.check_store(self._root, self._mode, self._committer)
        self._opened = table
        self._log = LogCommitter(self._id, self._root, self._options)
        self._preparer = Preparer(
            table, self._merge, self._epoch_column, self._committer, self._limit, lambda: SparkCommitter.here(table, self._merge)
        )

    def fence(self) -> Fence | None:
        """The newest installed fence; without an owner where its text has aged out."""
        return self._table.found(self._table.reopen()).fence

    def install(self, fence: Fence) -> None:
        """Commit a fence that repeats the newest marker, where it is strictly greater than the one found.

        Raises:
            Superseded: a fence stands that is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            DestinationError: E507 or E509, the table cannot be written, or forgets markers.
        """
        for _ in range(_TRIES):
            handle = self._table.reopen()
            found = self._table.found(handle)
            if standing.still_ours(self._id, fence, found):
                self._standing = self._stands(fence, found)
                return
            self._try_fence(fence, handle, found)
        raise OutcomeUnknown(self._id, "other commits of this pipeline were faster each time")

    def _try_fence(self, fence: Fence, handle: DeltaTable | None, found: Found) -> None:
        """Commit a fence on the handle that was read; whether it stands, the next look tells."""
        note = self._fence_note(fence, found)
        pack(self._id, *note.packed)
        try:
            if handle is None:
                self._log.create(note)
            else:
                self._table.check_retention()
                self._mark(handle, note)
            faults.fire(Point.INSTALL_SENT)
        except OnceOnlyError:
            raise
        except Exception as error:
            self._table.drop_handle()
            if not failures.lost_a_race(error, created=handle is None and self._table.exists()):
                raise failures.unknown(self._table, error) from error

    def _fence_note(self, fence: Fence, found: Found) -> Note:
        token = uuid.uuid4().hex
        if found.entry and found.entry.note:
            return found.entry.note.repeated(fence, found.entry.version, token)
        return Note(self._table.app, fence, found.epoch, None, None, found.head, 0, self._mode, "", token)

    def _stands(self, fence: Fence, found: Found) -> Standing:
        assert found.entry is not None
        assert found.entry.note is not None
        note = found.entry.note
        judged = note.read if note.marker else found.entry.version
        return Standing(fence, note, found.entry.version, judged, note.identity or self._table.identity)

    def position(self, since: Receipt | None) -> Position:
        """Where the table stands, under our fence.

        Raises:
            Superseded: another fence stands.
            DestinationError: E508, our fence does not stand; E509, the table forgets markers.
        """
        now = self._renewed(self._need_standing())
        self._table.check_retention()
        known = now if now.marker or since is None else replace(now, judged=_judged(since), identity=since.identity)
        identity = self._table.identity
        found = standing.judge(self._table.log, known.judged + 1, self._table.handle.version(), known.identity, now.held_at)
        found = found if now.epoch else ()
        if now.epoch and known.identity != identity and all(one.kind != "recreated" for one in found):
            found = (*found, reading.replaced(identity))
        self._standing = replace(now, judged=self._table.handle.version(), identity=identity)
        return Position(now.fence, now.marker, now.epoch, identity, self._table.has_rows(), found)

    # ---- one epoch

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Bring the rows into this process, into data files without an entry, or into staging.

        Raises:
            ConfigurationError: E110, the rows need Spark's Delta and it is not there.
            DestinationError: E503 to E508, the table cannot take the rows.
        """
        if self._table.current() is None:
            raise self._no_fence()
        try:
            prepared = self._preparer.prepare(batch, epoch)
        except OSError as error:
            raise failures.unwritable(self._id, error) from error
        faults.fire(Point.PREPARE_SENT)
        return prepared

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Ledger | None = None) -> Receipt:
        """Commit rows and marker as one version, where our fence and the previous chain stand.

        Raises:
            Superseded: another fence stands.
            IdentityError: E208 or E209, the table was replaced or changed, or the previous epoch is not the newest.
            DestinationError: E503 to E509, the table cannot take the rows.
            OutcomeUnknown: the answer was lost.
        """
        before = self._ready(marker)
        rows = prepared.rows if prepared else 0
        note = Note(
            app=self._table.app,
            fence=marker.fence,
            epoch=marker.epoch.number,
            marker=marker,
            at=None,
            read=before.judged,
            rows=rows,
            mode=self._mode,
            identity=before.identity,
            token=uuid.uuid4().hex,
        )
        pack(self._id, *note.packed)
        try:
            self._send(_own(prepared), note, before)
            faults.fire(Point.COMMIT_SENT)
            version = reading.landed(self._table.log, before.judged + 1, note.token)
        except Exception as error:
            raise self._after(error, before, note) from error
        self._standing = replace(before, note=note, version=version)
        self._table.committed()
        return reading.receipt(self._id, note, version)

    def _ready(self, marker: Marker) -> Standing:
        """Everything that must hold before a commit is sent."""
        before = self._renewed(self._need_standing(marker.fence))
        handle = self._table.handle
        self._table.check_retention()
        if self._table.identity != before.identity:
            raise reading.not_the_table(self._id, marker.pipeline, before.identity, self._table.identity)
        found = standing.judge(self._table.log, before.judged + 1, handle.version(), before.identity, before.held_at)
        reason = next((one.detail for one in found if one.fatal), None)
        reason = reason or standing.follows(self._id, before, marker.epoch)
        if reason:
            raise refuse("E209", sink=self._id, epoch=before.epoch, event=reason, pipeline=marker.pipeline)
        return replace(before, judged=handle.version())

    def _send(self, prepared: HeldRows | WrittenFiles | StagedRows | None, note: Note, before: Standing) -> None:
        handle = self._table.handle
        if prepared is not None and columns.is_placeholder(self._table.columns):
            defining = before.note.repeated(before.fence, before.version, uuid.uuid4().hex)
            self._log.define(handle, defining, prepared.schema, self._partition_by)
        if isinstance(prepared, StagedRows):
            prepared.send(note)
        elif prepared is not None:
            prepared.send(self._log, handle, note)
        else:
            self._mark(handle, note)

    def _mark(self, handle: DeltaTable, note: Note) -> None:
        """Commit a note without rows, through whichever committer the table takes."""
        if self._table.needs_spark() is None:
            self._log.mark(handle, note)
            return
        spark = SparkCommitter.here(self._table, self._merge)
        if spark is None:
            raise SparkCommitter.missing(self._id, self._table.needs_spark())
        spark.mark(note)

    def _after(self, error: Exception, before: Standing, note: Note) -> Exception:
        """What a failure after the commit was sent means: fenced, certainly refused, or not known."""
        if isinstance(error, OnceOnlyError):
            return error
        found = self._table.found(self._table.reopen())
        self._table.drop_handle()
        try:
            standing.still_ours(self._id, before.fence, found)
        except Superseded as fenced:
            return fenced
        landed = found.entry is not None and found.entry.note is not None and found.entry.note.token == note.token
        return failures.unknown(self._table, error) if landed else failures.explained(self._table, error)

    def look_up(self, marker: Marker) -> Receipt | None:
        """After an unknown answer: the receipt if that very epoch is there.

        If it is not, our fence is committed once more before ``None`` is said: that takes the version a late commit was
        checked against, so it cannot land any more.

        Raises:
            Superseded: another fence stands.
            OutcomeUnknown: it cannot be said.
        """
        before = self._need_standing(marker.fence)
        for _ in range(_TRIES):
            handle = self._table.reopen()
            now = self._renewed(before)
            if receipt := reading.find(self._table.log, handle, marker):
                self._standing = now
                return receipt
            if self._closed_behind(now, handle):
                return None
        raise OutcomeUnknown(self._id, "other commits of this pipeline were faster each time")

    def _closed_behind(self, now: Standing, handle: DeltaTable | None) -> bool:
        assert handle is not None
        note = now.note.repeated(now.fence, now.version, uuid.uuid4().hex)
        if self._table.needs_spark() is not None:
            return SparkCommitter.at_rest(self._id)
        try:
            self._log.mark(handle, note)
        except Exception as error:
            if failures.lost_a_race(error, created=False):
                return False
            raise failures.unknown(self._table, error) from error
        self._standing = self._renewed(now)
        return True

    def sweep(self) -> None:
        """Remove staging of lower generations; data files without an entry are VACUUM's."""
        StagedRows.sweep(self._table, self._need_standing().fence.generation)

    # ---- reading

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first, as far back as the log goes; the newest is always there."""
        return reading.history(self._id, self._table, after)

    def recount(self) -> Mapping[int, int] | None:
        """Rows per epoch, counted in the files that its commit added.

        Epochs whose log file was cleaned away, or whose files do not say how many rows they hold, are left out.
        ``None`` where an epoch was merged.
        """
        return None if self._mode == "merge" else reading.recount(self._table)

    def close(self) -> None:
        """Let go of handle and fence."""
        self._standing = None
        if self._opened is not None:
            self._opened.drop_handle()

    # ---- helpers

    @property
    def _table(self) -> Table:
        if self._opened is None:
            raise RuntimeError("open() comes first")
        return self._opened

    def _need_standing(self, fence: Fence | None = None) -> Standing:
        if self._standing is None or (fence is not None and self._standing.fence != fence):
            if fence is not None:
                standing.still_ours(self._id, fence, self._table.found(self._table.reopen()))
            raise self._no_fence()
        return self._standing

    def _no_fence(self) -> OnceOnlyError:
        return refuse(
            "E508",
            sink=self._id,
            reason="our fence does not stand",
            cause="the table was dropped, created anew or set back since, or the fence was never installed",
            next="restart the query",
        )

    def _renewed(self, before: Standing) -> Standing:
        """The standing with whatever of ours was committed since, under our fence, read on the handle that will commit.

        Raises:
            Superseded: another fence stands.
            DestinationError: E508, our fence does not stand.
        """
        found = self._table.found(self._table.current())
        if not standing.still_ours(self._id, before.fence, found) or found.entry is None or found.entry.note is None:
            raise self._no_fence()
        return replace(before, note=found.entry.note, version=found.entry.version)


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _leaf(target: str, *, named: bool) -> str:
    return target if named else target.rstrip("/").rpartition("/")[2]


def _checked_mode(mode: str | None, merge: Merge, committer: str) -> str:
    chosen = mode or ("merge" if merge.key else "append")
    problem = next_ = ""
    if chosen not in ("append", "merge"):
        problem, next_ = f'DeltaSink has no mode="{chosen}".', 'mode="append", or key=... for a merge'
    elif (chosen == "merge") != bool(merge.key):
        problem, next_ = "mode= and key= do not fit: a merge needs a key, an append has none.", "give key=..., or leave both"
    elif merge.sequence and not merge.key:
        problem, next_ = "sequence= orders the changes of a key, and there is no key=.", "give key=..."
    elif committer not in ("auto", "log", "spark"):
        problem, next_ = f'DeltaSink has no committer="{committer}".', 'committer="auto", "log" or "spark"'
    if problem:
        raise refuse("E110", problem=problem, cause="the arguments of DeltaSink", next=next_)
    return chosen


def _own(prepared: Prepared | None) -> HeldRows | WrittenFiles | StagedRows | None:
    if prepared is not None and not isinstance(prepared, HeldRows | WrittenFiles | StagedRows):
        raise TypeError(f"prepared by another sink: {type(prepared).__name__}")
    if prepared is not None and prepared.gone:
        raise RuntimeError("an abandoned preparation cannot be committed")
    return prepared


__all__ = ["DeltaSink"]
