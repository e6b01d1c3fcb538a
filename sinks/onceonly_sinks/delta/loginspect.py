"""Pure rules over the entries of a Delta log: which are ours, and which of the others' endanger our rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onceonly.protocol import Disturbance
from onceonly_sinks.delta.marker import METADATA_KEY, Note

_DELETING = frozenset({"DELETE", "TRUNCATE"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a table, as its log says.

    Attributes:
        version: its number.
        operation: ``WRITE``, ``OPTIMIZE``, ``RESTORE``; empty where the writer did not say.
        parameters: the operation's parameters.
        timestamp_ms: when, by the writer's clock, milliseconds since 1970.
        note: ours, if the commit is ours.
        rows: rows in the files it added; ``None`` where a file does not say.
        removes_rows: whether it removed files together with their rows (rewriting files does not).
        identity: the table's id where the commit set it.
    """

    version: int
    operation: str
    parameters: Mapping[str, Any]
    timestamp_ms: int
    note: Note | None
    rows: int | None
    removes_rows: bool
    identity: str | None


def parse(version: int, text: str, app: str) -> Entry:
    """Read the text of one commit file."""
    info: dict[str, Any] = {}
    counts: list[int | None] = []
    removes_rows = False
    identity: str | None = None
    # Not splitlines(): a marker may hold characters that it, but not JSON, takes for the end of a line.
    for line in text.split("\n"):
        action = json.loads(line) if line.strip() else {}
        info = action.get("commitInfo", info)
        if "add" in action:
            counts.append(_records(action["add"]))
        if "remove" in action:
            removes_rows = removes_rows or action["remove"].get("dataChange", True)
        if "metaData" in action:
            identity = action["metaData"]["id"]
    known = [count for count in counts if count is not None]
    return Entry(
        version=version,
        operation=info.get("operation") or "",
        parameters=info.get("operationParameters") or {},
        timestamp_ms=info.get("timestamp") or 0,
        note=Note.parse(info.get(METADATA_KEY), app),
        rows=sum(known) if len(known) == len(counts) else None,
        removes_rows=removes_rows,
        identity=identity,
    )


def _records(add: Mapping[str, Any]) -> int | None:
    records = json.loads(add.get("stats") or "{}").get("numRecords")
    deleted = (add.get("deletionVector") or {}).get("cardinality", 0)
    return None if records is None else records - deleted


def disturbances(entries: Iterable[Entry], identity: str, holds_until: int) -> tuple[Disturbance, ...]:
    """What others did, oldest first; appends and rewrites without a change of data are nobody's business.

    Args:
        entries: entries of the log, oldest first.
        identity: the table's id when we last knew it.
        holds_until: version of our newest rows; a RESTORE to it or to a later one leaves them; -1 where we have none.
    """
    found = (_disturbance(entry, identity, holds_until) for entry in entries if entry.note is None)
    return tuple(disturbance for disturbance in found if disturbance)


def _disturbance(entry: Entry, identity: str, holds_until: int) -> Disturbance | None:
    if entry.identity is not None and identity and entry.identity != identity:
        return Disturbance("recreated", f"{_told(entry)}, new table id {entry.identity}", fatal=True)
    if entry.operation == "RESTORE":
        return _restored(entry, holds_until)
    if not entry.removes_rows:
        return None
    kind = "deleted" if entry.operation in _DELETING else "overwritten"
    return Disturbance(kind, _told(entry), fatal=True)


def _restored(entry: Entry, holds_until: int) -> Disturbance:
    """Restoring keeps application versions: rows are gone while the table still claims the epochs."""
    target = entry.parameters.get("version")
    where = f"version {target}" if target is not None else str(entry.parameters.get("timestamp", "another version"))
    known = isinstance(target, int | str) and str(target).isdigit()
    harmless = known and int(str(target)) >= holds_until
    return Disturbance("restored", f"{_told(entry)}, back to {where}", fatal=not harmless)


def _told(entry: Entry) -> str:
    return f"{entry.operation or 'an unnamed operation'} as version {entry.version}"


def unreadable(first: int, last: int) -> Disturbance:
    """Versions whose log files were cleaned away before we judged them: there may have been a RESTORE among them."""
    return Disturbance("unreadable", f"the log of versions {first} to {last} was cleaned away unseen", fatal=True)
