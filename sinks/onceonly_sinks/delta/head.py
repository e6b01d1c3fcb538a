"""Track a Delta sink's fence, newest epoch and judged version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from onceonly.protocol import Superseded
from onceonly.protocol.guard import NewestEpoch, check_fence
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.delta import log as loginspect
from onceonly_sinks.delta.ladder import ChangePolicy, Effect
from onceonly_sinks.delta.log import DeltaLog, LogEntry
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.table import TableState

# ---- Find the epoch whose rows a RESTORE brought back.
#
# Reads the log alone. A RESTORE puts an older version of the rows under newer markers.


@dataclass(frozen=True, slots=True)
class Content:
    """The epoch whose rows the table holds, with the note and version of the commit that brought them.

    Epoch 0 is the table's state before the first epoch. Its note is ``None`` and its version -1.
    """

    epoch: int
    note: Note | None = None
    version: int = -1


def content(log: DeltaLog, head: int, identity: str, allowed: ChangePolicy) -> Content | None:
    """Follow the log down from a version to the commit that brought the current rows. A RESTORE leads to its target.

    Permitted changes of others on the way leave our rows alone, as they do when an epoch follows them. ``identity`` is
    the table's id in the version ``head``. ``None`` if others changed the current rows, or a commit on the way was
    cleaned away.
    """
    version = head
    while version >= 0:
        entry = log.entry(version)
        if entry is None:
            return None
        if entry.note is not None and entry.note.brings_epoch:
            note = entry.note
            return Content(note.epoch, note, version) if note.identity in ("", identity) else None
        if entry.note is None and entry.operation == "RESTORE":
            below = restored_to(log, entry)
        else:
            below = version - 1 if entry.note is not None or _passes(entry, allowed) else None
        if below is None or below >= version:
            return None
        version = below
    return Content(0)


def restored_to(log: DeltaLog, entry: LogEntry) -> int | None:
    """Find the newest version with the same files as after a RESTORE.

    ``None`` if the log cannot tell, or if the commit is no RESTORE.
    """
    if entry.operation != "RESTORE":
        return None
    from onceonly_sinks.delta import row_counts

    below = log.before(entry.version)
    return row_counts.restored_to(row_counts.parse(earlier, log.text(earlier.version) or "") for earlier in below)


def _passes(entry: LogEntry, allowed: ChangePolicy) -> bool:
    rung = entry.effect.rung
    return entry.effect is Effect.NONE or (rung is not None and rung <= allowed)


# ---- Track a Delta sink's fence, newest epoch and judged version.


@dataclass(frozen=True, slots=True)
class SinkState:
    """Knowledge of one opening about its table.

    Attributes:
        note: our newest commit's note. ``version`` is that of the commit.
        judged: version up to which other writers are known to have left our rows alone.
        identity: id of the table that took our newest rows. Before the first, id of the table at the opening.
        reported: version up to which the runner got the changes of others and decided to go on. -1 for none.
        told_identity: the table's id as the runner got it. Empty until then.
    """

    fence: Fence
    note: Note
    version: int
    judged: int
    identity: str
    reported: int = -1
    told_identity: str = ""

    @property
    def marker(self) -> Marker | None:
        """The newest marker. ``None`` if there is none, or its text has aged out."""
        return self.note.marker

    @property
    def epoch(self) -> int:
        """The newest epoch's number. 0 before the first."""
        return self.note.epoch

    @property
    def held(self) -> NewestEpoch:
        """The newest epoch. If the marker's text has aged out, only its number is left to compare."""
        return NewestEpoch.of(self.marker) if self.marker or not self.epoch else NewestEpoch(self.epoch, None)

    @property
    def held_at(self) -> int:
        """Version of our newest rows. -1 if there are none, or if it is not known any more."""
        if self.note.marker is None:
            return -1
        return self.version if self.note.at is None else self.note.at


def still_ours(sink: str, fence: Fence, table_state: TableState) -> bool:
    """Whether our fence is the installed one. Raises ``Superseded`` if that one is neither ours nor lower."""
    refused = check_fence(sink, table_state.fence, fence)
    if isinstance(refused, Superseded):
        raise refused
    return refused is None


def fence_note(app: str, fence: Fence, table_state: TableState, *, judged: int, mode: str, token: str) -> Note:
    """The note of a fence: the newest marker in full, or its epoch's number if its text has aged out."""
    if table_state.note is not None:
        return table_state.note.repeated(fence, table_state.version, judged, token)
    return Note(app, fence, table_state.epoch, None, None, table_state.head, judged, 0, mode, "", token)


def standing_note(app: str, fence: Fence, holds: Content, *, head: int, mode: str, token: str) -> Note:
    """The note of a fence over rows of an older epoch: that epoch's marker, with everything up to it judged.

    Its epoch may be lower than the one before. The higher generation distinguishes it from an older commit.
    """
    if holds.note is not None:
        return holds.note.repeated(fence, holds.version, head, token)
    return Note(app, fence, 0, None, None, head, head, 0, mode, "", token)


def first(fence: Fence, table_state: TableState, identity: str) -> SinkState:
    """The state that a fence finds."""
    note = table_state.note
    assert note is not None
    return SinkState(fence, note, table_state.version, note.judged, note.identity or identity)


def advanced(before: SinkState, table_state: TableState) -> SinkState:
    """The state with our newest commit."""
    assert table_state.note is not None
    return replace(
        before, note=table_state.note, version=table_state.version, judged=max(before.judged, table_state.note.judged)
    )


def accepted(state: SinkState) -> SinkState:
    """The state by which a commit is judged. Changes that the runner got at the opening do not count against it."""
    if not state.told_identity:
        return state
    return replace(state, judged=max(state.reported, state.judged), identity=state.told_identity)


def since(now: SinkState, receipt: Receipt | None) -> SinkState:
    """The state to judge from: the newest epoch's note, else the receipt.

    An epoch is committed only after everything before it was judged. So its note reaches further than any receipt.
    """
    read = receipt.at("read") if receipt else None
    if now.marker is not None or receipt is None or not isinstance(read, int):
        return now
    return replace(now, judged=read, identity=receipt.identity)


def judge(log: DeltaLog, state: SinkState, head: int, allowed: ChangePolicy) -> tuple[ExternalChange, ...]:
    """Changes by other writers after the judged versions, up to ``head``. ``allowed`` marks permitted ones."""
    start = state.judged + 1
    changes: tuple[ExternalChange, ...] = ()
    if start <= head and log.entry(start) is None:
        readable = min((version for version in log.versions() if version > start), default=head + 1)
        changes, start = (loginspect.unreadable(start, readable - 1),), readable
    entries = (log.entry(version) for version in range(start, head + 1))
    readable_entries = [entry for entry in entries if entry is not None]
    return changes + loginspect.disturbances(
        readable_entries, state.identity, state.held_at, allowed, partial(restored_to, log)
    )
