"""Read commit files of a Delta log.

Works in any object store, and separates our commits from those of other writers. The rules are pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pyarrow.fs as pa_fs

from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.storage import is_local
from onceonly_sinks.delta import ladder
from onceonly_sinks.delta.ladder import ChangePolicy, Effect
from onceonly_sinks.delta.marker import METADATA_KEY, Note, pipeline_of, unpack

# ---- The place of a table as a pyarrow file system.


def store(root: str, options: Mapping[str, str] | None) -> Any:
    """The file system rooted at a table: Arrow's own on a disk, else the URI's store by deltalake's credentials."""
    if is_local(root):
        return pa_fs.SubTreeFileSystem(root, pa_fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler  # executors may lack it

    handler = DeltaStorageHandler(root, dict(options) if options else None)
    return pa_fs.PyFileSystem(cast("pa_fs.FileSystemHandler", handler))


# ---- Pure rules over the entries of a Delta log: which are ours, and which of the others' endanger our rows.


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version of a table in its log.

    Attributes:
        operation: ``WRITE``, ``OPTIMIZE``, ``RESTORE``. Empty if the writer gave none.
        note: our note. ``None`` for commits of other writers.
        rows: rows in the files it added. ``None`` if a file has no count.
        removed_rows: rows that it removed in total. ``None`` if unknown.
        identity: the table's id, if the commit set it.
    """

    version: int
    operation: str
    parameters: Mapping[str, Any]
    note: Note | None
    rows: int | None
    effect: Effect
    removed_rows: int | None
    identity: str | None


def parse(version: int, text: str, app: str) -> LogEntry:
    """Read the text of one commit file."""
    # Not splitlines(): a marker may hold characters that it, but not JSON, takes for the end of a line.
    actions: list[dict[str, Any]] = [json.loads(line) for line in text.split("\n") if line.strip()]
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    counts = [_records(add) for add in adds]
    file_rows = [records - hidden for records, hidden in counts if records is not None]
    operation = info.get("operation") or ""
    removed_rows: int | None = 0
    shrinks = True
    if removes:
        come, gone = ({file["path"]: _records(file) for file in files} for files in (adds, removes))
        removed_rows, shrinks = ladder.count_removed(come, gone, info.get("operationMetrics") or {})
    return LogEntry(
        version=version,
        operation=operation,
        parameters=info.get("operationParameters") or {},
        note=Note.parse(info.get(METADATA_KEY), app),
        rows=sum(file_rows) if len(file_rows) == len(counts) else None,
        effect=ladder.effect(
            operation,
            adds=bool(adds),
            removes=bool(removes),
            changes=any(file.get("dataChange", True) for file in (*adds, *removes)),
            shrinks=shrinks,
        ),
        removed_rows=removed_rows,
        identity=next((action["metaData"]["id"] for action in reversed(actions) if "metaData" in action), None),
    )


def transactions(text: str) -> Iterator[tuple[str, int]]:
    """Application ids and versions that one commit sets."""
    for line in text.split("\n"):
        action = json.loads(line) if '"txn"' in line else {}
        if txn := action.get("txn"):
            yield txn["appId"], txn["version"]


def _records(file: Mapping[str, Any]) -> tuple[int | None, int]:
    """Records of a file, including those that its deletion vector hides, and the number of hidden ones."""
    records = json.loads(file.get("stats") or "{}").get("numRecords")
    return records, (file.get("deletionVector") or {}).get("cardinality", 0)


def _named(entry: LogEntry) -> int | None:
    """The target version that a RESTORE records. ``None`` if it names a moment."""
    target = str(entry.parameters.get("version"))
    return int(target) if target.isdigit() else None


def disturbances(
    entries: Iterable[LogEntry],
    identity: str,
    holds_until: int,
    allowed: ChangePolicy,
    restored: Callable[[LogEntry], int | None] = _named,
) -> tuple[ExternalChange, ...]:
    """Changes by other writers, oldest first, without commits that change no row. Consecutive appends become one.

    ``entries`` are oldest first. ``identity`` is the table's last known id. ``holds_until`` is the version of our
    newest rows, or -1: a RESTORE to it or to a later one keeps them. ``restored`` finds the target version of a
    RESTORE.
    """
    changes: list[ExternalChange] = []
    for entry in entries:
        target = restored(entry) if entry.operation == "RESTORE" else None
        change = None if entry.note is not None else _disturbance(entry, identity, holds_until, allowed, target)
        if change is not None and changes and change.kind == changes[-1].kind == Effect.APPENDED.value:
            changes[-1] = _both(changes[-1], change)
        elif change is not None:
            changes.append(change)
    return tuple(changes)


def _disturbance(
    entry: LogEntry, identity: str, holds_until: int, allowed: ChangePolicy, target: int | None
) -> ExternalChange | None:
    if entry.identity is not None and identity and entry.identity != identity:
        return ExternalChange(
            "recreated", f"{_describe_entry(entry)}, new table id {entry.identity}", fatal=True, at=entry.version
        )
    if entry.operation == "RESTORE":
        return _restored(entry, holds_until, target)
    if entry.effect is Effect.NONE:
        return None
    passes = entry.effect.rung is not None and entry.effect.rung <= allowed
    added = entry.rows if entry.effect is Effect.APPENDED else None
    removed = entry.removed_rows if entry.effect is Effect.DELETED else None
    unknown = ", an operation that is not known here" if entry.effect is Effect.UNKNOWN else ""
    return ExternalChange(
        entry.effect.value,
        f"{_describe_entry(entry)}{_rows(added, 'added')}{_rows(removed, 'removed')}{unknown}",
        fatal=not passes,
        at=entry.version,
        allowed=passes,
        operation=entry.operation,
        added=added,
        removed=removed,
    )


def _rows(count: int | None, what: str) -> str:
    return "" if count is None else f", {count} {'row' if count == 1 else 'rows'} {what}"


def _both(earlier: ExternalChange, other: ExternalChange) -> ExternalChange:
    first = earlier.first or earlier.at
    added = None if earlier.added is None or other.added is None else earlier.added + other.added
    detail = f"appends as versions {first} to {other.at}{_rows(added, 'added')}"
    fatal, allowed = earlier.fatal or other.fatal, earlier.allowed and other.allowed
    return replace(other, detail=detail, first=first, added=added, operation="", fatal=fatal, allowed=allowed)


def _restored(entry: LogEntry, holds_until: int, target: int | None) -> ExternalChange:
    """RESTORE keeps application versions, so rows vanish while the table still claims their epochs."""
    named = _named(entry)
    version = target if named is None else named
    where = entry.parameters.get("timestamp", "another version") if version is None else f"version {version}"
    harmless = target is not None and target >= holds_until
    return ExternalChange(
        "restored", f"{_describe_entry(entry)}, back to {where}", fatal=not harmless, at=entry.version
    )


def _describe_entry(entry: LogEntry) -> str:
    return f"{entry.operation or 'an unnamed operation'} as version {entry.version}"


def unreadable(first: int, last: int) -> ExternalChange:
    """Versions whose log files were cleaned away before we judged them. One may have been a RESTORE."""
    return ExternalChange(
        "unreadable", f"the log of versions {first} to {last} was cleaned away unseen", fatal=True, at=last
    )


# ---- The commit files one by one, without a table handle, on a local disk or in an object store.

LOG = "_delta_log"


class _Local:
    """A log on a disk, which each epoch looks at: Arrow would ask for the size of each file that it lists."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> str | None:
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        try:
            return [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []


class _Remote:
    def __init__(self, root: str, options: dict[str, str] | None) -> None:
        self._root = root
        self._options = options

    @cached_property
    def _store(self) -> Any:
        return store(self._root, self._options)

    def read(self, name: str) -> str | None:
        try:
            with self._store.open_input_file(f"{LOG}/{name}") as file:
                return str(file.read(), "utf-8")
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        files = self._store.get_file_info(pa_fs.FileSelector(LOG, allow_not_found=True))
        return [info.base_name for info in files]


class DeltaLog:
    """The commit files of one table, seen by one application.

    ``root`` is the table's directory or URI. ``app`` is the application id of our notes. ``options`` are deltalake's
    storage options.
    """

    def __init__(self, root: str, app: str, options: dict[str, str] | None = None) -> None:
        self.app = app
        self._files = _Local(Path(root) / LOG) if is_local(root) else _Remote(root, options)

    def entry(self, version: int) -> LogEntry | None:
        """One version. ``None`` if its file is missing: not written yet, or cleaned away."""
        text = self.text(version)
        return None if text is None else parse(version, text, self.app)

    def text(self, version: int) -> str | None:
        """Text of one version's commit file. ``None`` if it is missing."""
        return self._files.read(f"{version:020d}.json") if version >= 0 else None

    def since(self, version: int) -> Iterator[LogEntry]:
        """Entries from ``version`` up, until the first missing one."""
        while (entry := self.entry(version)) is not None:
            yield entry
            version += 1

    def before(self, version: int) -> Iterator[LogEntry]:
        """Entries from ``version`` down, until the first missing one."""
        while (entry := self.entry(version)) is not None:
            yield entry
            version -= 1

    def newest(self, head: int) -> LogEntry | None:
        """Our newest commit at or below ``head``. ``None`` if there is none, or it was cleaned away.

        Other writers may have committed between it and ``head``.
        """
        return next((entry for entry in self.before(head) if entry.note), None)

    def versions(self) -> list[int]:
        """Versions whose commit files still exist, ascending."""
        stems = (name.removesuffix(".json") for name in self._files.names() if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def checkpointed(self) -> int:
        """Version of the last checkpoint, or the newest of all if that is gone. -1 if there is none."""
        checkpoint = re.search(r'"version":\s*(\d+)', self._files.read("_last_checkpoint") or "")
        version = int(checkpoint[1]) if checkpoint else -1
        return version if self.text(version) is not None else max(self.versions(), default=-1)


# ---- Cache the entries of a Delta log between looks.
# A listing takes longer the older the table is. So the newest version is found by number, and later files are read.
# The cache is valid while the file of that version is unchanged. A table that was made anew has another file.


NEWEST = 200
"""Commits in which other writers are looked for: enough to meet each that is at work, and soon read."""


class CachedLog:
    """Memory of a log between two looks: a number, a hash, and names for at most :data:`NEWEST` commits."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._head = -1
        self._head_fingerprint: str | None = None
        self._writers: dict[int, frozenset[str]] = {}

    def head(self) -> int:
        """The newest version. -1 if there is none."""
        if self._head_fingerprint is None or self.fingerprint(self._head) != self._head_fingerprint:
            self._writers.clear()
            self._head = self._log.checkpointed()
            self._head_fingerprint = self.fingerprint(self._head)
        # A version follows the one before it, in every log: so one that is missing is the end.
        while (fingerprint := self.fingerprint(self._head + 1)) is not None:
            self._head, self._head_fingerprint = self._head + 1, fingerprint
        return self._head

    def fingerprint(self, version: int) -> str | None:
        """A hash of one version's file. ``None`` if it is missing."""
        text = self._log.text(version)
        return None if text is None else hashlib.sha256(text.encode()).hexdigest()

    def newest_first(self) -> Iterator[LogEntry]:
        """Every entry whose file still exists. The folder is listed only for entries below a missing one."""
        lowest = self.head() + 1
        for entry in self._log.before(lowest - 1):
            yield entry
            lowest = entry.version
        for version in reversed(self._log.versions() if lowest > 0 else ()):
            if version < lowest and (older := self._log.entry(version)) is not None:
                yield older

    def writers(self) -> list[str]:
        """Pipelines that wrote epochs in the newest commits, by name."""
        head = self.head()
        newest = range(max(0, head - NEWEST + 1), head + 1)
        self._writers = {version: self._written(version) for version in newest}
        return sorted(frozenset().union(*self._writers.values()))

    def _written(self, version: int) -> frozenset[str]:
        if version in self._writers:
            return self._writers[version]
        numbers = transactions(self._log.text(version) or "")
        pipelines = (pipeline_of(app) for app, number in numbers if unpack(number)[1])
        return frozenset(name for name in pipelines if name is not None)
