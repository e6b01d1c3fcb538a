"""Find the epoch that a RESTORE left in the table, by log."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly_sinks.delta import row_counts
from onceonly_sinks.delta.ladder import ChangePolicy, Effect
from onceonly_sinks.delta.log import DeltaLog, LogEntry
from onceonly_sinks.delta.marker import Note


@dataclass(frozen=True, slots=True)
class Content:
    """The epoch whose rows stand.

    Attributes:
        epoch: its number; 0: the table is as it was before the first one.
        note: of the commit that brought them; ``None`` for epoch 0.
        version: of that commit; -1 for epoch 0.
    """

    epoch: int
    note: Note | None = None
    version: int = -1


def content(log: DeltaLog, head: int, identity: str, allowed: ChangePolicy) -> Content | None:
    """Go down the log from a version to the commit that brought what stands there; a RESTORE leads to its target.

    What others did on the way and may do leaves our rows alone, as it does when an epoch follows it.

    Returns:
        ``None`` where others changed what stands, or a commit on the way was cleaned away.
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
    """The newest version that held the files that stand after a RESTORE; ``None`` where the log does not tell.

    Also where the commit is no RESTORE.
    """
    if entry.operation != "RESTORE":
        return None
    below = log.before(entry.version)
    return row_counts.restored_to(row_counts.parse(one, log.text(one.version) or "") for one in below)


def _passes(entry: LogEntry, allowed: ChangePolicy) -> bool:
    rung = entry.effect.rung
    return entry.effect is Effect.NONE or (rung is not None and rung <= allowed)
