"""Fence a Delta table and commit epochs to it.

Each commit carries our application id. deltalake and Spark refuse it if another commit with that id has landed since
the checked version. Version files are created only if absent, by link or conditional put. So of two commits for one
version one fails.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from deltalake import DeltaTable

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown, Position, Superseded
from onceonly.protocol.guard import check_follows, elsewhere
from onceonly.protocol.values import ExternalChange
from onceonly.runtime.sink_refusals import refusal
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.delta import columns, errors, head, read, spark_committer
from onceonly_sinks.delta.head import Content, SinkState
from onceonly_sinks.delta.log_committer import ENCODED_NAMES, EXPIRE_EVERY, LogCommitter, Maintenance, removes_all
from onceonly_sinks.delta.marker import Note, pack
from onceonly_sinks.delta.planning import Settings
from onceonly_sinks.delta.prepared import Committer, HeldRows, Rows, StagedRows
from onceonly_sinks.delta.spark_committer import SparkCommitter
from onceonly_sinks.delta.table import Table, TableState

_TRIES = 20
_BUSY = "other commits of this pipeline were faster each time"


class TableWriter:
    """Fences a table and commits to it.

    ``spark`` finds Spark's committer, if there is one. ``free`` is true if the user wrote the merge, so that its SQL
    may cause a failure. ``tolerated`` holds permitted changes by other writers since the opening.
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
        self._keeps = settings.keeps
        self._brought_ids = 0
        self._spark = spark
        self._passing: tuple[ExternalChange, ...] = ()
        self._passed: tuple[ExternalChange, ...] = ()
        self.tolerated: list[ExternalChange] = []
        self._log = LogCommitter(table.sink, table.root, table.options)
        self._maintenance = Maintenance(table)
        self._state: SinkState | None = None

    @property
    def generation(self) -> int:
        """Generation of our fence. 0 before there is one."""
        return self._state.fence.generation if self._state else 0

    def close(self) -> None:
        """Forget the fence. In the table it remains."""
        self._state = None

    def passed(self) -> tuple[ExternalChange, ...]:
        """Changes by other writers that the newest commit permitted. Each is reported once."""
        changes, self._passed = self._passed, ()
        return changes

    # ---- fence and position

    def install(self, fence: Fence) -> None:
        """Commit the fence for :meth:`DeltaSink.install`. Raises E508 as well.

        A missing table is created for the fence, so that fences order drivers before there is any row.
        """
        self._install(fence, None)

    def reset_to(self, fence: Fence, epoch: int) -> None:
        """Commit the fence for :meth:`DeltaSink.stand_at`. Raises E508 as well."""
        self._install(fence, epoch)

    def content(self) -> Content | None:
        """The epoch whose rows the newest version holds. ``None`` if unknown, or if files are gone."""
        handle = self._table.reopen()
        return self._content_at(-1 if handle is None else handle.version())

    def _content_at(self, version: int) -> Content | None:
        identity = self._table.identity if version >= 0 else ""
        content = head.content(self._table.log, version, identity, self._allowed)
        # The log of a RESTORE may name files that VACUUM took: what it says stands is not there.
        return None if version >= 0 and self._table.absent(self._table.paths) else content

    def _install(self, fence: Fence, epoch: int | None) -> None:
        for _ in range(_TRIES):
            handle = self._table.reopen()
            table_state = self._table.state_of(handle)
            if head.still_ours(self._table.sink, fence, table_state):
                self._state = head.first(fence, table_state, self._table.identity)
                return
            self._try_fence(fence, handle, table_state, epoch)
        raise OutcomeUnknown(self._table.sink, _BUSY)

    def _try_fence(self, fence: Fence, handle: DeltaTable | None, table_state: TableState, epoch: int | None) -> None:
        """Commit a fence on the handle that was read. The next look shows whether it landed."""
        app, mode, token = self._table.app, self._mode, _token()
        if epoch is None:
            judged = self._judged_until(fence, table_state)
            note = head.fence_note(app, fence, table_state, judged=judged, mode=mode, token=token)
        else:
            holds = self._content_at(table_state.head)
            if holds is None or holds.epoch != epoch:
                raise elsewhere(self._table.sink, epoch, holds.epoch if holds else None)
            note = head.standing_note(app, fence, holds, head=table_state.head, mode=mode, token=token)
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

    def _judged_until(self, fence: Fence, table_state: TableState) -> int:
        """Version up to which later openings can skip the log: its end, if it holds nothing fatal.

        Permitted changes are kept. The look under the fence begins after them, and must still report them.
        """
        if table_state.note is None or not table_state.note.epoch:
            return table_state.head
        changes = self._judged(head.first(fence, table_state, self._table.identity))
        if any(not change.allowed for change in changes):
            return table_state.note.judged
        self._passing = changes
        return table_state.head

    def position(self, since: Receipt | None) -> Position:
        """The table's position under our fence. Raises as :meth:`DeltaSink.position`.

        The commit of the newest epoch judged everything before it, so only later changes are judged here.
        """
        now = self._renewed(self._need())
        self._table.check_properties(removes=self._removes)
        identity = self._table.identity
        changes = self._judged(head.since(now, since)) if now.epoch else ()
        changes = (*(change for change in self._passing if change.at not in {other.at for other in changes}), *changes)
        self.tolerated = [change for change in changes if change.allowed]
        self._state = replace(now, reported=self._table.handle.version(), told_identity=identity)
        return Position(now.fence, now.marker, now.epoch, identity, self._table.has_rows(), changes)

    def _judged(self, state: SinkState) -> tuple[ExternalChange, ...]:
        newest, identity = self._table.handle.version(), self._table.identity
        changes = tuple(map(self._vacuumed, head.judge(self._table.log, state, newest, self._allowed)))
        replaced = state.identity != identity and all(change.kind != "recreated" for change in changes)
        recreated = ExternalChange("recreated", f"table id {identity}", fatal=True, at=newest)
        return (*changes, recreated) if replaced else changes

    def _vacuumed(self, change: ExternalChange) -> ExternalChange:
        """Mark a RESTORE to our newest rows as fatal if VACUUM deleted files that it names."""
        if change.kind != "restored" or change.fatal or not (gone := self._table.absent(self._table.paths)):
            return change
        detail = f"{change.detail}; VACUUM took {len(gone)} of its data files, which only a backup brings back"
        return replace(change, detail=detail, fatal=True)

    # ---- one epoch

    def commit(self, prepared: Rows | None, marker: Marker) -> Receipt:
        """Commit rows and marker for :meth:`DeltaSink.commit`. Raises E512 as well."""
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
        self.tolerated += passing
        self._maintenance.committed(version)
        return read.receipt(self._table.sink, note, version)

    def _ready(self, marker: Marker) -> tuple[SinkState, tuple[ExternalChange, ...]]:
        """Check all preconditions of a commit on the handle that will commit. Also returns the permitted changes."""
        before = head.accepted(self._renewed(self._need(marker.fence)))
        replaces = marker.epoch.replaces is not None
        self._table.check_properties(removes=self._removes or replaces)
        if replaces and (reason := self.cannot_replace()):
            raise refusal(self._table.sink, marker.pipeline, reason)
        sink, identity = self._table.sink, self._table.identity
        if identity != before.identity:
            raise refuse("E208", sink=sink, was=before.identity, now=identity, pipeline=marker.pipeline)
        changes = self._judged(before)
        if event := next((change.detail for change in changes if change.fatal), None):
            raise refuse("E209", sink=sink, epoch=before.epoch, event=event, pipeline=marker.pipeline)
        if refused := check_follows(marker, before.held):
            raise refused
        return replace(before, judged=self._table.handle.version()), tuple(
            change for change in changes if change.allowed
        )

    def cannot_replace(self) -> str:
        """Reason why a commit must not remove all rows of the table. Empty if it may."""
        if self._table.appends_only:
            return "delta.appendOnly is true: its owner lets rows be added only"
        by_log = self._table.current() is not None and not (self._by_spark or self._table.needs_spark())
        if by_log and not removes_all(self._table):
            return f"it has {ENCODED_NAMES}"
        reason = read.beside_ours(self._table)
        return f"the table is not known to be ours alone: {reason}" if reason else ""

    def _send(self, prepared: Rows | None, note: Note, before: SinkState) -> None:
        handle = self._table.handle
        if prepared is not None:
            if columns.is_placeholder(self._table.columns):
                self._log.define(handle, self._repeated_note(before), prepared.schema, self._partition_by)
            if prepared.widens_before:
                self._log.widen(handle, self._repeated_note(before), prepared.schema)
            if self._keeps and note.rows:
                self._expire_ids(handle, note, before)
        self._committer(prepared).send(handle, note, prepared)

    def _expire_ids(self, handle: DeltaTable, note: Note, before: SinkState) -> None:
        lineage = note.marker.epoch.lineage if note.marker else None
        if lineage and not self._brought_ids % EXPIRE_EVERY:
            self._log.expire(handle, self._repeated_note(before), lineage.batch_timestamp_ms - self._keeps * 1000)
        self._brought_ids += 1

    @staticmethod
    def _repeated_note(before: SinkState) -> Note:
        """The note of the previous commit, for a commit that brings no rows."""
        return before.note.repeated(before.fence, before.version, before.judged, _token())

    def _committer(self, rows: Rows | None) -> Committer:
        """Select the committer: the one that staged the rows, or any that can write the table for a note alone."""
        if isinstance(rows, StagedRows):
            return rows.committer
        why = self._table.needs_spark() if rows is None else None
        return self._log if why is None else spark_committer.needed(self._table.sink, self._spark(), why)

    def _after(self, error: Exception, before: SinkState, note: Note, held: int | None) -> Exception:
        """Classify a failure after the commit was sent: fenced, certainly refused, or unknown."""
        if isinstance(error, OnceOnlyError):
            return error
        table_state = self._table.state_of(self._table.reopen())
        try:
            if not head.still_ours(self._table.sink, before.fence, table_state):
                return errors.no_fence(self._table.sink)
        except Superseded as fenced:
            return fenced
        landed = table_state.holds(note.token)
        refused = errors.of_merge(self._table, error, note.epoch, landed=landed) if self._free and note.rows else None
        alone = table_state.head <= before.judged
        return refused or errors.of_commit(self._table, error, landed=landed, held=held, alone=alone)

    def look_up(self, marker: Marker) -> Receipt | None:
        """Look for an epoch after an unknown answer, for :meth:`DeltaSink.look_up`.

        Unless that exact epoch is there, our fence is committed once more before ``None`` is returned. The fence takes
        the version of a late commit, so the commit cannot land any more.
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
        """Make sure that nothing sent earlier can still land. ``False`` if one of our commits landed meanwhile."""
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
            head.still_ours(self._table.sink, fence, self._table.state_of(self._table.reopen()))
        raise errors.no_fence(self._table.sink)

    def _renewed(self, before: SinkState) -> SinkState:
        """The state with our newest commit, under our fence, read on the handle that will commit.

        Raises ``Superseded`` if another fence is installed, and DestinationError E508 if none of ours is.
        """
        table_state = self._table.look()
        if table_state.entry is None and table_state.packed == pack(self._table.sink, *before.note.packed):
            return before
        if not head.still_ours(self._table.sink, before.fence, table_state):
            raise errors.no_fence(self._table.sink)
        return head.advanced(before, table_state)


def _token() -> str:
    return uuid.uuid4().hex
