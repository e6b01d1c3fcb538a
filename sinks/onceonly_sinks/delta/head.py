"""Track a Delta sink's fence, newest epoch and judged version.

Holds the rules by which a fence or an epoch may follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from onceonly.protocol import ExternalChange, Superseded
from onceonly.protocol.guard import NewestEpoch, check_fence
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.delta import log as loginspect
from onceonly_sinks.delta.ladder import ChangePolicy
from onceonly_sinks.delta.log import DeltaLog
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.restored_version import Content, restored_to
from onceonly_sinks.delta.table import TableState


@dataclass(frozen=True, slots=True)
class SinkState:
    """Knowledge of one opening about its table.

    Attributes:
        note: our newest commit's note. ``version`` is that of the commit.
        judged: version up to which other writers are known to have left our rows alone.
        identity: id of the table that took our newest rows. Before the first, id of the table at the opening.
        told: version up to which the runner got the changes of others and decided to go on. -1 for none.
        told_identity: the table's id as the runner got it. Empty until then.
    """

    fence: Fence
    note: Note
    version: int
    judged: int
    identity: str
    told: int = -1
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


def still_ours(sink: str, fence: Fence, found: TableState) -> bool:
    """Whether our fence is the installed one. Raises ``Superseded`` if that one is neither ours nor lower."""
    refused = check_fence(sink, found.fence, fence)
    if isinstance(refused, Superseded):
        raise refused
    return refused is None


def fence_note(app: str, fence: Fence, found: TableState, *, judged: int, mode: str, token: str) -> Note:
    """The note of a fence: the newest marker in full, or its epoch's number if its text has aged out."""
    if found.note is not None:
        return found.note.repeated(fence, found.version, judged, token)
    return Note(app, fence, found.epoch, None, None, found.head, judged, 0, mode, "", token)


def standing_note(app: str, fence: Fence, holds: Content, *, head: int, mode: str, token: str) -> Note:
    """The note of a fence over rows of an older epoch: that epoch's marker, with everything up to it judged.

    Its epoch may be lower than the one before. The higher generation distinguishes it from an older commit.
    """
    if holds.note is not None:
        return holds.note.repeated(fence, holds.version, head, token)
    return Note(app, fence, 0, None, None, head, head, 0, mode, "", token)


def first(fence: Fence, found: TableState, identity: str) -> SinkState:
    """The state that a fence finds."""
    note = found.note
    assert note is not None
    return SinkState(fence, note, found.version, note.judged, note.identity or identity)


def advanced(before: SinkState, found: TableState) -> SinkState:
    """The state with our newest commit."""
    assert found.note is not None
    return replace(before, note=found.note, version=found.version, judged=max(before.judged, found.note.judged))


def accepted(standing: SinkState) -> SinkState:
    """The state by which a commit is judged. Changes that the runner got at the opening do not count against it."""
    if not standing.told_identity:
        return standing
    return replace(standing, judged=max(standing.told, standing.judged), identity=standing.told_identity)


def since(now: SinkState, receipt: Receipt | None) -> SinkState:
    """The state to judge from: the newest epoch's note, else the receipt.

    An epoch is committed only after everything before it was judged. So its note reaches further than any receipt.
    """
    read = receipt.at("read") if receipt else None
    if now.marker is not None or receipt is None or not isinstance(read, int):
        return now
    return replace(now, judged=read, identity=receipt.identity)


def judge(log: DeltaLog, known: SinkState, head: int, allowed: ChangePolicy) -> tuple[ExternalChange, ...]:
    """Changes by other writers after the judged versions, up to ``head``. ``allowed`` marks permitted ones."""
    start = known.judged + 1
    found: tuple[ExternalChange, ...] = ()
    if start <= head and log.entry(start) is None:
        readable = min((version for version in log.versions() if version > start), default=head + 1)
        found, start = (loginspect.unreadable(start, readable - 1),), readable
    entries = (log.entry(version) for version in range(start, head + 1))
    readable_entries = [entry for entry in entries if entry is not None]
    return found + loginspect.disturbances(
        readable_entries, known.identity, known.held_at, allowed, partial(restored_to, log)
    )
