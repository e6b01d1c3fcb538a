"""One opening of a table: fence, position and commits.

What a conditional commit rests on: each commit carries our application id, and deltalake and Spark refuse one if
another with that id has landed since the version it was checked against. Version files are created where none is, by
link or conditional put, so of two commits for one version one fails.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.protocol import ExternalChange, OutcomeUnknown, Position, Superseded
from onceonly.protocol.guard import check_follows, elsewhere
from onceonly.runtime.refresh import refusal
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.delta import columns, errors, head, read, restored_version, spark_committer
from onceonly_sinks.delta.head import SinkState
from onceonly_sinks.delta.log_committer import LogCommitter, Maintenance
from onceonly_sinks.delta.marker import Note, pack
from onceonly_sinks.delta.planning import Settings
from onceonly_sinks.delta.prepared import Committer, HeldRows, Rows, StagedRows
from onceonly_sinks.delta.restored_version import Content
from onceonly_sinks.delta.rewrite_check import NAMES, removes_all
from onceonly_sinks.delta.spark_committer import SparkCommitter
from onceonly_sinks.delta.table import Table, TableState

if TYPE_CHECKING:
    from deltalake import DeltaTable

_TRIES = 20
_BUSY = "other commits of this pipeline were faster each time"


class TableWriter:
    """Fences a table and commits to it.

    Args:
        table: the table.
        settings: what the user chose.
        spark: finds Spark's committer, where there is one.
        free: whether the user wrote the merge, so that it may be what is wrong.

    Attributes:
        seen: what others did and was let pass since the opening.
    """

    def __init__(
        self, table: Table, settings: Settings, spark: Callable[[], SparkCommitter | None], *, free: bool
    ) -> None:
        self._table = table
        self._mode = "merge" if settings.merge else "append"
        self._removes = settings.merge is not None and settings.merge.removes
        self._by_spark = settings.committer == "spark"
        self._free = free
        self._partition_by = settings.partition_by
        self._allowed = settings.foreign
        self._spark = spark
        self._passing: tuple[ExternalChange, ...] = ()
        self._passed: tuple[ExternalChange, ...] = ()
        self.seen: list[ExternalChange] = []
        self._log = LogCommitter(table.sink, table.root, table.options)
        self._maintenance = Maintenance(table)
        self._state: SinkState | None = None

    @property
    def generation(self) -> int:
        """Generation of our fence; 0 before there is one."""
        return self._state.fence.generation if self._state else 0

    def close(self) -> None:
        """Let go of the fence; in the table it stays."""
        self._state = None

    def passed(self) -> tuple[ExternalChange, ...]:
        """What the newest commit let pass of what others did; each is told once."""
        told, self._passed = self._passed, ()
        return told

    # ---- fence and position

    def install(self, fence: Fence) -> None:
        """Commit a fence that repeats the newest marker, where it is strictly greater than the one found.

        A table that does not exist is created for it, so that fences order drivers before there is any row.

        Raises:
            Superseded: a fence stands that is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            DestinationError: E507 to E509, the table cannot be written, or forgets markers; E512.
        """
        self._install(fence, None)

    def stand_at(self, fence: Fence, epoch: int) -> None:
        """Commit a fence that repeats the marker of an older epoch, whose rows are those that stand.

        Raises:
            Superseded: a fence stands that is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            DestinationError: as by :meth:`install`.
            ConfigurationError: E110, other rows stand.
        """
        self._install(fence, epoch)

    def content(self) -> Content | None:
        """The epoch whose rows stand, as of the table's newest version; ``None``: not known, or files are gone."""
        handle = self._table.reopen()
        return self._content_at(-1 if handle is None else handle.version())

    def _content_at(self, version: int) -> Content | None:
        identity = self._table.identity if version >= 0 else ""
        found = restored_version.content(self._table.log, version, identity, self._allowed)
        # The log of a RESTORE may name files that VACUUM took: what it says stands is not there.
        return None if version >= 0 and self._table.absent(self._table.paths) else found

    def _install(self, fence: Fence, epoch: int | None) -> None:
        for _ in range(_TRIES):
            handle = self._table.reopen()
            found = self._table.found(handle)
            if head.still_ours(self._table.sink, fence, found):
                self._state = head.first(fence, found, self._table.identity)
                return
            self._try_fence(fence, handle, found, epoch)
        raise OutcomeUnknown(self._table.sink, _BUSY)

    def _try_fence(self, fence: Fence, handle: DeltaTable | None, found: TableState, epoch: int | None) -> None:
        """Commit a fence on the handle that was read; whether it stands, the next look tells."""
        app, mode, token = self._table.app, self._mode, _token()
        if epoch is None:
            judged = self._judged_until(fence, found)
            note = head.fence_note(app, fence, found, judged=judged, mode=mode, token=token)
        else:
            holds = self._content_at(found.head)
            if holds is None or holds.epoch != epoch:
                raise elsewhere(self._table.sink, epoch, holds.epoch if holds else None)
            note = head.standing_note(app, fence, holds, head=found.head, mode=mode, token=token)
        pack(self._table.sink, *note.packed)
        try:
            if handle is None:
                self._log.create(note)
            else:
                self._table.check_properties(removes=self._removes)
                self._committer(None).send(handle, note, None)
            faults.fire(Point.INSTALL_SENT)
        except OnceOnlyError:
            raise
        except Exception as error:
            self._table.drop_handle()
            if not errors.lost_a_race(error, created=handle is None and self._table.exists()):
                raise errors.of_fence(self._table, error) from error

    def _judged_until(self, fence: Fence, found: TableState) -> int:
        """How far the log can be called harmless now, for later openings: to its end, if nothing in it stops us.

        What is let pass is kept: the look under the fence begins after it, and has to tell it all the same.
        """
        if found.note is None or not found.note.epoch:
            return found.head
        told = self._judged(head.first(fence, found, self._table.identity))
        if any(not one.allowed for one in told):
            return found.note.judged
        self._passing = told
        return found.head

    def position(self, since: Receipt | None) -> Position:
        """Where the table stands, under our fence.

        Everything before the newest epoch was judged when that epoch was committed, so only what came later is judged
        here.

        Raises:
            Superseded: another fence stands.
            DestinationError: E508, our fence does not stand; E509, the table forgets markers.
        """
        now = self._renewed(self._need())
        self._table.check_properties(removes=self._removes)
        identity = self._table.identity
        found = self._judged(head.since(now, since)) if now.epoch else ()
        found = (*(one for one in self._passing if one.at not in {other.at for other in found}), *found)
        self.seen = [one for one in found if one.allowed]
        self._state = replace(now, told=self._table.handle.version(), told_identity=identity)
        return Position(now.fence, now.marker, now.epoch, identity, self._table.has_rows(), found)

    def _judged(self, known: SinkState) -> tuple[ExternalChange, ...]:
        newest, identity = self._table.handle.version(), self._table.identity
        found = tuple(map(self._vacuumed, head.judge(self._table.log, known, newest, self._allowed)))
        replaced = known.identity != identity and all(one.kind != "recreated" for one in found)
        recreated = ExternalChange("recreated", f"table id {identity}", fatal=True, at=newest)
        return (*found, recreated) if replaced else found

    def _vacuumed(self, one: ExternalChange) -> ExternalChange:
        """A RESTORE to our newest rows does harm where it names files that VACUUM took."""
        if one.kind != "restored" or one.fatal or not (gone := self._table.absent(self._table.paths)):
            return one
        told = f"{one.detail}; VACUUM took {len(gone)} of its data files, which only a backup brings back"
        return replace(one, detail=told, fatal=True)

    # ---- one epoch

    def commit(self, prepared: Rows | None, marker: Marker) -> Receipt:
        """Commit rows and marker as one version, where our fence and the previous chain stand.

        Raises:
            Superseded: another fence stands.
            IdentityError: E207 to E210: the table was replaced or changed, or is not what the epoch follows.
            DestinationError: E503 to E509, the table cannot take the rows; E512.
            OutcomeUnknown: the answer was lost.
        """
        self._passed = ()
        before, passing = self._ready(marker)
        note = Note(
            app=self._table.app,
            fence=marker.fence,
            epoch=marker.epoch.number,
            marker=marker,
            at=None,
            read=before.judged,
            judged=before.judged,
            rows=prepared.rows if prepared else 0,
            mode=self._mode,
            identity=before.identity,
            token=_token(),
        )
        pack(self._table.sink, *note.packed)
        try:
            self._send(prepared, note, before)
            faults.fire(Point.COMMIT_SENT)
            version = read.landed(self._table.log, before.judged + 1, note.token)
        except Exception as error:
            held = prepared.table.nbytes if isinstance(prepared, HeldRows) else None
            raise self._after(error, before, note, held) from error
        self._state = replace(before, note=note, version=version)
        self._passed = passing
        self.seen += passing
        self._maintenance.committed(version)
        return read.receipt(self._table.sink, note, version)

    def _ready(self, marker: Marker) -> tuple[SinkState, tuple[ExternalChange, ...]]:
        """Everything that must hold before a commit is sent, read on the handle that will commit; also what passes."""
        before = head.accepted(self._renewed(self._need(marker.fence)))
        replaces = marker.epoch.replaces is not None
        self._table.check_properties(removes=self._removes or replaces)
        if replaces and (reason := self.keeps_from_replacing()):
            raise refusal(self._table.sink, marker.pipeline, reason)
        sink, identity = self._table.sink, self._table.identity
        if identity != before.identity:
            raise refuse("E208", sink=sink, was=before.identity, now=identity, pipeline=marker.pipeline)
        found = self._judged(before)
        if event := next((one.detail for one in found if one.fatal), None):
            raise refuse("E209", sink=sink, epoch=before.epoch, event=event, pipeline=marker.pipeline)
        if refused := check_follows(marker, before.held):
            raise refused
        return replace(before, judged=self._table.handle.version()), tuple(one for one in found if one.allowed)

    def keeps_from_replacing(self) -> str:
        """Why not all rows of the table can leave at once; empty where they can."""
        if self._table.appends_only:
            return "delta.appendOnly is true: its owner lets rows be added only"
        if self._removes_by_log and not removes_all(self._table):
            return f"it has {NAMES}"
        reason = read.beside_ours(self._table)
        return f"the table is not known to be ours alone: {reason}" if reason else ""

    @property
    def _removes_by_log(self) -> bool:
        return self._table.current() is not None and not (self._by_spark or self._table.needs_spark())

    def _send(self, prepared: Rows | None, note: Note, before: SinkState) -> None:
        handle = self._table.handle
        if prepared is not None:
            if columns.is_placeholder(self._table.columns):
                self._log.define(handle, self._again(before), prepared.schema, self._partition_by)
            if prepared.widens_before:
                self._log.widen(handle, self._again(before), prepared.schema)
        self._committer(prepared).send(handle, note, prepared)

    @staticmethod
    def _again(before: SinkState) -> Note:
        """What stood before, in a commit that brings no rows."""
        return before.note.repeated(before.fence, before.version, before.judged, _token())

    def _committer(self, rows: Rows | None) -> Committer:
        """Who makes the entry: of what Spark staged it does, and of a note alone whoever can write the table."""
        if isinstance(rows, StagedRows):
            return rows.committer
        why = self._table.needs_spark() if rows is None else None
        return self._log if why is None else spark_committer.needed(self._table.sink, self._spark(), why)

    def _after(self, error: Exception, before: SinkState, note: Note, held: int | None) -> Exception:
        """What a failure after the commit was sent means: fenced, certainly refused, or not known."""
        if isinstance(error, OnceOnlyError):
            return error
        found = self._table.found(self._table.reopen())
        try:
            if not head.still_ours(self._table.sink, before.fence, found):
                return errors.no_fence(self._table.sink)
        except Superseded as fenced:
            return fenced
        landed = found.holds(note.token)
        refused = errors.of_merge(self._table, error, note.epoch, landed=landed) if self._free and note.rows else None
        alone = found.head <= before.judged
        return refused or errors.of_commit(self._table, error, landed=landed, held=held, alone=alone)

    def look_up(self, marker: Marker) -> Receipt | None:
        """After an unknown answer: the receipt if that very epoch is there.

        If it is not, our fence is committed once more before ``None`` is said: that takes the version for which a late
        commit was meant, so it cannot land any more.

        Raises:
            Superseded: another fence stands.
            OutcomeUnknown: it cannot be said.
        """
        before = self._need(marker.fence)
        for _ in range(_TRIES):
            self._table.drop_handle()
            now = self._state = self._renewed(before)
            if receipt := read.find(self._table.log, self._table.handle, marker):
                return receipt
            if self._closed_behind(now):
                self._state = self._renewed(now)
                return None
        raise OutcomeUnknown(self._table.sink, _BUSY)

    def _closed_behind(self, now: SinkState) -> bool:
        """Make sure that nothing which was sent can land any more; ``False``: something of ours landed meanwhile."""
        if self._table.needs_spark():
            if not SparkCommitter.at_rest(self._table):
                raise OutcomeUnknown(self._table.sink, "Spark may still be committing")
            return True
        try:
            note = now.note.repeated(now.fence, now.version, now.note.judged, _token())
            self._log.send(self._table.handle, note, None)
        except Exception as error:
            if errors.lost_a_race(error, created=False):
                return False
            raise errors.of_fence(self._table, error) from error
        return True

    # ---- helpers

    def _need(self, fence: Fence | None = None) -> SinkState:
        if self._state is not None and fence in (None, self._state.fence):
            return self._state
        if fence is not None:
            head.still_ours(self._table.sink, fence, self._table.found(self._table.reopen()))
        raise errors.no_fence(self._table.sink)

    def _renewed(self, before: SinkState) -> SinkState:
        """The standing with whatever of ours was committed since, under our fence, read on the handle that will commit.

        Raises:
            Superseded: another fence stands.
            DestinationError: E508, our fence does not stand.
        """
        found = self._table.look()
        if found.entry is None and found.packed == pack(self._table.sink, *before.note.packed):
            return before
        if not head.still_ours(self._table.sink, before.fence, found):
            raise errors.no_fence(self._table.sink)
        return head.advanced(before, found)


def _token() -> str:
    return uuid.uuid4().hex
