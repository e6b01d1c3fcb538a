"""Open a Delta table and keep its handle."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pa_fs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from onceonly.errors import refuse
from onceonly.errors.options import misused
from onceonly.protocol.values import AppTransaction
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.storage import file_in_the_way, half_url, is_local
from onceonly_sinks.delta import log
from onceonly_sinks.delta.columns import Column, columns_of
from onceonly_sinks.delta.ladder import ChangePolicy
from onceonly_sinks.delta.log import LOG, CachedLog, DeltaLog, LogEntry
from onceonly_sinks.delta.marker import Note, pack, unpack

# ---- Reads what another application (Delta's ``txnAppId``) last wrote to a table, and what became of that since.


def transaction(table: Table, app: str) -> AppTransaction:
    """Find an application's newest version in the table's state, and later changes in the log.

    The state alone is not enough. RESTORE takes rows back and leaves the application's version unchanged
    (https://github.com/delta-io/delta/issues/1813).
    """
    handle = table.reopen()
    version = None if handle is None else handle.transaction_version(app)
    if handle is None or version is None:
        return AppTransaction(None, ())
    later: list[LogEntry] = []
    for number in range(handle.version(), -1, -1):
        text = table.log.text(number)
        if text is None:
            return AppTransaction(version, (log.unreadable(0, number),))
        if any(writer == app for writer, _ in log.transactions(text)):
            changes = log.disturbances(reversed(later), table.identity, number, ChangePolicy.APPENDS)
            return AppTransaction(version, tuple(change for change in changes if not change.allowed))
        later.append(log.parse(number, text, table.app))
    return AppTransaction(version, (log.unreadable(0, 0),))


# ---- Our own table: where it lies, the handle that is kept on it, and what of ours stands in its log.

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_TABLE_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}")
_RETENTION = "delta.setTransactionRetentionDuration"
_APPEND_ONLY = "delta.appendOnly"

_WRITABLE = frozenset(
    {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
    }
)
"""Writer features with which deltalake commits; with any other it opens and reads a table, and refuses the commit."""


def paths_of(handle: DeltaTable) -> list[str]:
    """Data files of a version, as its log names them."""
    return [str(path) for path in handle.get_add_actions(flatten=True).column("path").to_pylist()]


def is_table_name(target: str) -> bool:
    """Whether a target is a table's name in a catalog rather than a path: ``orders``, ``sales.orders``."""
    return _TABLE_NAME.fullmatch(target) is not None


def location(target: str) -> str:
    """Normalize a path for the log readers. Raises E110 for what they and Spark understand differently.

    Local paths become absolute and lose their scheme. URIs stay.
    """
    if is_local(target):
        plain = "/" + target.removeprefix("file:").lstrip("/") if target.startswith("file:") else target
        path = str(Path(plain).absolute())
        if escape := _ESCAPE.search(path):
            raise misused(
                f"{path} has {escape[0]} in its name.",
                "deltalake reads that as an escaped character of a URL and looks in another folder",
                f"choose a path without it, such as {_ESCAPE.sub('_', path)}",
            )
        return path
    if instead := half_url(target):
        raise misused(
            f"{target} is neither a path nor a URL.",
            "Spark takes one slash for a URL, and readers without Spark do not",
            f"write {instead}",
        )
    return target


@dataclass(frozen=True, slots=True)
class TableState:
    """Our newest fence and epoch in one version of the table.

    Attributes:
        head: that version. -1 without a table.
        packed: our application version. ``None`` if we never committed.
        entry: our newest commit. ``None`` if we never committed, or its file was cleaned away.
    """

    head: int = -1
    packed: int | None = None
    entry: LogEntry | None = None

    @property
    def note(self) -> Note | None:
        """The note of our newest commit."""
        return None if self.entry is None else self.entry.note

    @property
    def version(self) -> int:
        """Version of our newest commit. -1 if unknown."""
        return -1 if self.entry is None else self.entry.version

    def holds(self, token: str) -> bool:
        """Whether our newest commit has this token."""
        return self.note is not None and self.note.token == token

    @property
    def fence(self) -> Fence | None:
        """The installed fence, without an owner if only the application version is left."""
        if self.note:
            return self.note.fence
        return None if self.packed is None else Fence(unpack(self.packed)[0], "")

    @property
    def epoch(self) -> int:
        """The newest epoch's number. 0 before the first."""
        return 0 if self.packed is None else unpack(self.packed)[1]


class Table:
    """A table with a kept handle.

    The handle is reloaded only here and only between commits. A commit uses the very handle that its checks read. So it
    fails if we committed anything in between. ``root`` comes from :func:`location`. ``without_int96`` holds paths of
    files known to have no INT96 timestamp.
    """

    def __init__(self, sink: str, root: str, app: str, options: dict[str, str] | None) -> None:
        self.sink = sink
        self.root = root
        self.app = app
        self.options = options
        self.log = DeltaLog(root, app, options)
        self.followed = CachedLog(self.log)
        self.without_int96: set[str] = set()
        self._handle: DeltaTable | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is on a file system, where a commit that raised has not landed and will not."""
        return is_local(self.root)

    @property
    def uri(self) -> str:
        """Its location as a URI."""
        return Path(self.root).as_uri() if self.is_local else self.root

    def check_place(self) -> None:
        """Refuse (E508) a place that cannot hold a table, without creating anything."""
        folder = Path(self.root)
        if not self.is_local:
            return
        if blocking_file := file_in_the_way(folder):
            reason = (
                "it is a file"
                if blocking_file == folder
                else f"{blocking_file} is a file, and no table can lie below one"
            )
            raise self._unusable(reason, "give a directory of its own")
        if not folder.exists():
            return
        strangers = (path.name for path in folder.iterdir() if not path.name.startswith((".", "_")))
        if not (folder / LOG).is_dir() and any(strangers):
            raise self._unusable(
                "there are files, but no Delta log",
                "give an empty directory, or make it a Delta table with CONVERT TO DELTA",
            )

    def _unusable(self, reason: str, next_: str) -> Exception:
        return refuse("E508", sink=self.sink, reason=f"{self.root}: {reason}", cause="a wrong path", next=next_)

    # ---- the handle

    def exists(self) -> bool:
        """Whether there is a table."""
        if self.is_local:
            return (Path(self.root) / LOG).is_dir() and bool(DeltaTable.is_deltatable(self.root))
        return bool(DeltaTable.is_deltatable(self.root, self.options))

    def reopen(self) -> DeltaTable | None:
        """Drop the handle and open a new one. ``None`` without a table."""
        self._handle = None
        if not self.exists():
            return None
        try:
            self._handle = DeltaTable(self.root, storage_options=self.options)
        except TableNotFoundError:
            return None
        return self._handle

    def current(self) -> DeltaTable | None:
        """The kept handle, at the newest version."""
        if self._handle is None:
            return self.reopen()
        if self.log.entry(self._handle.version() + 1) is not None:
            self._handle.update_incremental()
        return self._handle

    @property
    def handle(self) -> DeltaTable:
        """The kept handle, without an update."""
        assert self._handle is not None
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether the table was found and its handle is kept."""
        return self._handle is not None

    def drop_handle(self) -> None:
        """Drop the handle, after a failure or at the end."""
        self._handle = None

    def state_of(self, handle: DeltaTable | None) -> TableState:
        """Our newest fence and epoch as of the handle's version."""
        if handle is None:
            return TableState()
        packed = handle.transaction_version(self.app)
        return TableState(handle.version(), packed, None if packed is None else self.log.newest(handle.version()))

    def look(self) -> TableState:
        """Our newest fence and epoch now, by the handle that will commit and by the log files themselves.

        The files are read again because Spark's log store on a local disk checks before it renames. A commit of a
        driver that was fenced out in between can replace the fence's file unnoticed by the handle.
        """
        try:
            return self.state_of(self.current())
        except (DeltaError, FileNotFoundError):
            # The handle reads log files late; somebody cleaned them up, or dropped the table.
            return self.state_of(self.reopen())

    def look_at_log(self) -> TableState:
        """As :meth:`look`, by the log's files alone where one of the newest 20 has an epoch of ours. For readers.

        deltalake lists the log of a table that has moved on. In an object store each file of it is a request.
        """
        head = self.followed.head()
        entry = next((entry for entry in islice(self.log.before(head), 20) if entry.note), None)
        if entry and entry.note and entry.note.epoch:
            return TableState(head, pack(self.sink, *entry.note.packed), entry)
        return self.look()

    # ---- what the table is

    @property
    def identity(self) -> str:
        """The table's id."""
        return str(self.handle.metadata().id)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The table's columns."""
        return columns_of(self.handle.schema())

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Columns the table is partitioned by."""
        return tuple(self.handle.metadata().partition_columns)

    def has_rows(self) -> bool:
        """Whether any file of the table may hold a row."""
        return any(count is None or count > 0 for count in self._counts())

    @property
    def paths(self) -> list[str]:
        """Data files of the handle's version, as its log names them."""
        return paths_of(self.handle)

    def absent(self, paths: Iterable[str]) -> list[str]:
        """Those of the data files that are missing, found in an object store by one listing of the table."""
        if self.is_local:
            return [path for path in paths if not self._local(path).exists()]
        listing = pa_fs.FileSelector("", recursive=True, allow_not_found=True)
        there = {info.path for info in log.store(self.root, self.options).get_file_info(listing)}
        # A shallow clone names files of another table by their URI, of which the listing says nothing.
        return [path for path in paths if "://" not in path and unquote(path) not in there]

    def _local(self, path: str) -> Path:
        return Path(unquote(path.removeprefix("file:"))) if path.startswith("file:") else Path(self.root, unquote(path))

    def _counts(self) -> list[int | None]:
        counts: Any = self.handle.get_add_actions(flatten=True).column("num_records").to_pylist()
        return list(counts)

    def count_rows(self) -> int | None:
        """Rows of the newest version. ``None`` if a file is gone, has no count, or may hide deleted rows."""
        if self.reopen() is None:
            return 0
        if self.absent(self.paths):
            return None
        counts, marked = self._counts(), "deletionVectors" in (self.handle.protocol().reader_features or ())
        return None if marked or None in counts else sum(count or 0 for count in counts)

    def check_properties(self, *, removes: bool) -> None:
        """Refuse a table that forgets application versions (E509).

        If ``removes``, also refuse one that only accepts appends (E508).
        """
        properties = self.handle.metadata().configuration
        if retention := properties.get(_RETENTION):
            raise refuse("E509", sink=self.sink, retention=retention)
        if removes and properties.get(_APPEND_ONLY) == "true":
            raise refuse(
                "E508",
                sink=self.sink,
                reason=f"{_APPEND_ONLY} is true, and key= or merge= replaces rows",
                cause="the table's owner lets rows be added only",
                next=f"ALTER TABLE ... SET TBLPROPERTIES ('{_APPEND_ONLY}' = 'false'), or write without key=",
            )

    @property
    def appends_only(self) -> bool:
        """Whether the table's owner only permits appends. False without a table."""
        handle = self.current()
        return handle is not None and handle.metadata().configuration.get(_APPEND_ONLY) == "true"

    def needs_spark(self) -> str | None:
        """Reason why deltalake cannot commit to the table. ``None`` if it can."""
        protocol = self.handle.protocol()
        features = sorted(set(protocol.writer_features or ()) - _WRITABLE)
        if features:
            return f"its features {', '.join(features)}"
        return "identity columns" if protocol.min_writer_version == 6 else None

    def cannot_grow(self) -> str | None:
        """Reason why deltalake cannot add a column: under column mapping a new one needs a physical name."""
        mode = self.handle.metadata().configuration.get("delta.columnMapping.mode", "none")
        return None if mode == "none" else "new columns under column mapping"

    def takes_files(self) -> bool:
        """Whether files from another writer fit: the table checks nothing and computes nothing."""
        protocol = self.handle.protocol()
        features = set(protocol.writer_features or ())
        legacy = not features and protocol.min_writer_version > 2
        computed = features & {"checkConstraints", "generatedColumns", "columnMapping"}
        guarded = any({"delta.invariants", "delta.columnMapping.id"} & set(c.metadata) for c in self.columns)
        return not (legacy or computed or guarded)
