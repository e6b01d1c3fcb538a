"""Head of a Delta sink: fence, position, and rules for the next."""

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
    """What one opening knows of its table.

    Attributes:
        fence: our fence.
        note: our newest commit's note.
        version: version of that commit.
        judged: version up to which the doings of others are known to have left our rows alone.
        identity: id of the table that took our newest rows; before the first, of the table as we found it.
        told: version up to which the doings of others were told to the runner, which decided to go on; -1 for none.
        told_identity: the table's id as it was told; empty until then.
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
        """The newest marker; ``None`` if there is none, or its text has aged out."""
        return self.note.marker

    @property
    def epoch(self) -> int:
        """The newest epoch's number; 0 for none."""
        return self.note.epoch

    @property
    def held(self) -> NewestEpoch:
        """The newest epoch; where the marker's text has aged out, only its number is left to compare."""
        return NewestEpoch.of(self.marker) if self.marker or not self.epoch else NewestEpoch(self.epoch, None)

    @property
    def held_at(self) -> int:
        """Version of our newest rows; -1 where there are none, or it is not known any more."""
        if self.note.marker is None:
            return -1
        return self.version if self.note.at is None else self.note.at


def still_ours(sink: str, fence: Fence, found: TableState) -> bool:
    """Whether our fence is the one that stands.

    Raises:
        Superseded: one stands that is neither ours nor lower.
    """
    refused = check_fence(sink, found.fence, fence)
    if isinstance(refused, Superseded):
        raise refused
    return refused is None


def fence_note(app: str, fence: Fence, found: TableState, *, judged: int, mode: str, token: str) -> Note:
    """What a fence says: the newest marker in full, or, where its text has aged out, its epoch's number."""
    if found.note is not None:
        return found.note.repeated(fence, found.version, judged, token)
    return Note(app, fence, found.epoch, None, None, found.head, judged, 0, mode, "", token)


def standing_note(app: str, fence: Fence, holds: Content, *, head: int, mode: str, token: str) -> Note:
    """What a fence says where rows of an older epoch stand: that epoch's marker, and that all up to it was looked at.

    A number that is lower than the one before it is told from an older commit by the generation, which is higher.
    """
    if holds.note is not None:
        return holds.note.repeated(fence, holds.version, head, token)
    return Note(app, fence, 0, None, None, head, head, 0, mode, "", token)


def first(fence: Fence, found: TableState, identity: str) -> SinkState:
    """The standing that a fence finds."""
    note = found.note
    assert note is not None
    return SinkState(fence, note, found.version, note.judged, note.identity or identity)


def advanced(before: SinkState, found: TableState) -> SinkState:
    """The standing with the newest commit of ours that was found."""
    assert found.note is not None
    return replace(before, note=found.note, version=found.version, judged=max(before.judged, found.note.judged))


def accepted(standing: SinkState) -> SinkState:
    """The standing that a commit is judged by: what was told at the opening is not held against it."""
    if not standing.told_identity:
        return standing
    return replace(standing, judged=max(standing.told, standing.judged), identity=standing.told_identity)


def since(now: SinkState, receipt: Receipt | None) -> SinkState:
    """The standing to judge from: the newest epoch's own words, else those of the receipt.

    An epoch is committed only after everything before it was judged, so its own words reach further than any receipt.
    """
    read = receipt.at("read") if receipt else None
    if now.marker is not None or receipt is None or not isinstance(read, int):
        return now
    return replace(now, judged=read, identity=receipt.identity)


def judge(log: DeltaLog, known: SinkState, head: int, allowed: ChangePolicy) -> tuple[ExternalChange, ...]:
    """What others did after the versions that are judged already, up to ``head``; what they may is ``allowed``."""
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
