"""Where a sink stands: what was read under its fence, and the pure rules by which an epoch may follow."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly.protocol import Disturbance, Superseded
from onceonly_checkpoints.epoch import Epoch, Fence, Marker
from onceonly_sinks.delta import loginspect
from onceonly_sinks.delta.log import DeltaLog
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.table import Found


@dataclass(frozen=True, slots=True)
class Standing:
    """What one opening knows of its table.

    Attributes:
        fence: our fence.
        note: our newest commit's note.
        version: version of that commit.
        judged: version up to which the doings of others are judged.
        identity: the table's id.
    """

    fence: Fence
    note: Note
    version: int
    judged: int
    identity: str

    @property
    def marker(self) -> Marker | None:
        """The newest marker; ``None`` if there is none, or its text has aged out."""
        return self.note.marker

    @property
    def epoch(self) -> int:
        """The newest epoch's number; 0 for none."""
        return self.note.epoch

    @property
    def held_at(self) -> int:
        """Version of our newest rows; -1 where there are none, or it is not known any more."""
        if self.note.marker is None:
            return -1
        return self.version if self.note.at is None else self.note.at


def still_ours(sink: str, fence: Fence, found: Found) -> bool:
    """Whether our fence is the one that stands.

    Raises:
        Superseded: one stands that is neither ours nor lower.
    """
    stands = found.fence
    if stands is None or stands.generation < fence.generation:
        return False
    if stands != fence:
        raise Superseded(sink, stands)
    return True


def follows(sink: str, standing: Standing, epoch: Epoch) -> str | None:
    """Why an epoch does not continue what stands there, in words; ``None`` if it does.

    A sink may join at its first epoch. Where the marker's text has aged out, its number is all that is left to compare.
    """
    marker = standing.marker
    if marker is not None:
        right = (epoch.number - 1, epoch.previous_chain) == (marker.epoch.number, marker.epoch.chain)
    elif standing.epoch:
        right = epoch.number - 1 == standing.epoch
    else:
        right = epoch.number == dict(epoch.sinks).get(sink, 1)
    found = f"epoch {standing.epoch}" if standing.epoch else "no epoch"
    return None if right else f"it holds {found} where the one before epoch {epoch.number} was expected"


def judge(log: DeltaLog, first: int, head: int, identity: str, held_at: int) -> tuple[Disturbance, ...]:
    """What others did in the versions ``first..head``.

    Args:
        log: the table's log.
        first: first version that is not judged yet.
        head: last one.
        identity: the table's id as we knew it.
        held_at: version of our newest rows.
    """
    present = [version for version in log.versions() if first <= version <= head] if log.entry(first) is None else []
    found: tuple[Disturbance, ...] = ()
    if first <= head and log.entry(first) is None:
        start = min(present, default=head + 1)
        found, first = (loginspect.unreadable(first, start - 1),), start
    entries = [entry for version in range(first, head + 1) if (entry := log.entry(version)) is not None]
    return found + loginspect.disturbances(entries, identity, held_at)
