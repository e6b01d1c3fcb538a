"""Find the epoch whose rows a RESTORE brought back.

Reads the log alone. A RESTORE puts an older version of the rows under newer markers.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceonly_sinks.delta import row_counts
from onceonly_sinks.delta.ladder import ChangePolicy, Effect
from onceonly_sinks.delta.log import DeltaLog, LogEntry
from onceonly_sinks.delta.marker import Note


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
    below = log.before(entry.version)
    return row_counts.restored_to(row_counts.parse(one, log.text(one.version) or "") for one in below)


def _passes(entry: LogEntry, allowed: ChangePolicy) -> bool:
    rung = entry.effect.rung
    return entry.effect is Effect.NONE or (rung is not None and rung <= allowed)
