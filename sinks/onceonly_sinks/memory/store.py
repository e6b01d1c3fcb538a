"""In-memory destination: a log of entries whose replay is the table."""

from __future__ import annotations

import itertools
import sys
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlencode
from weakref import WeakValueDictionary

from onceonly.errors import refuse
from onceonly.errors.options import checks_arguments, unfit
from onceonly.protocol.capabilities import (
    CHANGED,
    GONE,
    SIGN,
    STATE_KEY,
    OpenWindow,
    StateRow,
    StateWanted,
    refuse_own,
)
from onceonly.protocol.guard import check_recalled
from onceonly.protocol.values import ExternalChange, order
from onceonly_checkpoints.epoch import Fence

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

    from onceonly.protocol.batch import AsOf

# ---- How rows of an epoch meet those of a memory store: rules over keys, their order and removal. Pure.

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Merge:
    """How rows enter the table: added, or replacing rows of the same key.

    Attributes:
        key: columns that identify a row, empty for an append.
        sequence: column that orders the changes of a key. Without it, a later epoch wins.
        delete: boolean column of the batch. A row with true removes its key. It is not kept.
    """

    key: tuple[str, ...] = ()
    sequence: str | None = None
    delete: str | None = None

    def stored_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a batch that the table keeps."""
        return schema if self.delete is None else schema.remove(schema.get_field_index(self.delete))

    @property
    def query(self) -> str:
        """The same in the form of an address's query, empty for an append."""
        pairs = [*(("key", name) for name in self.key), ("sequence", self.sequence), ("delete_flag", self.delete)]
        return urlencode([(name, value) for name, value in pairs if value])

    @classmethod
    def parse(cls, query: str) -> Self:
        """The inverse of :attr:`query`."""
        options = parse_qs(query)
        return cls(
            tuple(options.get("key", [])), options.get("sequence", [None])[0], options.get("delete_flag", [None])[0]
        )

    def check(self) -> None:
        """Refuse columns that do not go together. Raises E110."""
        names = [*self.key, *(name for name in (self.sequence, self.delete) if name is not None)]
        if (names and not self.key) or len(set(names)) < len(names):
            problem = f"key={self.key!r}, sequence={self.sequence!r}, delete_flag={self.delete!r}"
            cause = "sequence= and delete_flag= belong to a key, and each names another column"
            raise unfit("MemorySink", problem, cause, "MemorySink(key=['id'], sequence='at', delete_flag='gone')")

    def check_columns(self, sink: str, schema: pa.Schema) -> None:
        """Refuse a batch without a boolean column to delete by. Raises E506."""
        if self.delete is None:
            return
        index = schema.get_field_index(self.delete)
        kind = str(schema.field(index).type) if index >= 0 else "not there"
        if kind != "bool":
            difference = f"column {self.delete}, which delete_flag= names, is {kind} in the batch; it must be boolean"
            cause, remedy = "delete_flag= names another column than was meant", "name a boolean column of the batch"
            mismatch = "cannot use a column that an argument names"
            raise refuse("E506", sink=sink, mismatch=mismatch, difference=difference, because=cause, next=remedy)


def upserted(table: pa.Table, rows: pa.Table, merge: Merge) -> pa.Table:
    """The table after the rows, one per key, are merged into it."""
    import pyarrow as pa

    merged = {_key(row, merge): row for row in table.to_pylist()}
    for row in rows.to_pylist():
        key = _key(row, merge)
        old_row = merged.get(key)
        if old_row and merge.sequence and order(old_row[merge.sequence]) > order(row[merge.sequence]):
            continue
        if merge.delete and row.pop(merge.delete):
            merged.pop(key, None)
        else:
            merged[key] = row
    return pa.Table.from_pylist(list(merged.values()), schema=merge.stored_schema(rows.schema))


def _key(row: Row, merge: Merge) -> tuple[Any, ...]:
    return tuple(row[column] for column in merge.key)


def one_per_key(sink: str, table: pa.Table, merge: Merge) -> pa.Table:
    """Keep the newest row of each key.

    Raises E503 for a null sequence or delete column, E504 for a null key, and E505 if the newest row is ambiguous.
    """
    import pyarrow as pa

    rows: list[Row] = table.to_pylist()
    _no_nulls(sink, rows, merge)
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_key.setdefault(_key(row, merge), []).append(row)
    newest = [_newest(sink, key, changes, merge) for key, changes in by_key.items()]
    return pa.Table.from_pylist(newest, schema=table.schema)


def _no_nulls(sink: str, rows: list[Row], merge: Merge) -> None:
    if nulls := sum(None in _key(row, merge) for row in rows):
        raise refuse("E504", sink=sink, key=", ".join(merge.key), count=nulls)
    uses = {
        merge.sequence: "sequence= orders the changes of a row by it",
        merge.delete: "delete_flag= asks it what to do",
    }
    for column, use in uses.items():
        if column and (nulls := sum(row[column] is None for row in rows)):
            reason = f"{nulls} nulls, and {use}"
            details = {"column": column, "reason": reason, "next": f"fill {column}, e.g. with transform="}
            raise refuse("E503", sink=sink, **details, because="the query leaves it null in some rows")


def _newest(sink: str, key: tuple[Any, ...], changes: list[Row], merge: Merge) -> Row:
    """The newest change of a key. Changes equal in every column count as one."""
    if merge.sequence is None:
        newest = changes
    else:
        places = [order(row[merge.sequence]) for row in changes]
        newest = [row for row, rank in zip(changes, places, strict=True) if rank == max(places)]
    if len(newest) > 1 and (merge.sequence is None or any(row != newest[0] for row in newest)):
        raise refuse("E505", sink=sink, key=", ".join(merge.key), example=key, next=_ORDER_THEM)
    return newest[0]


_ORDER_THEM = "name a column that orders the changes of a row: sequence=...; or keep one row per key with transform="

# ---- The store: entries whose replay is the table, and its mishaps.

Writer = tuple[str, str]
"""``(pipeline, sink id)``: whose fence and markers an entry carries."""

_NOBODY = Fence(0, "")
_APPEND = Merge()


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """One atomic change of a store.

    Attributes:
        writer: ``None`` for a writer outside of any pipeline.
        fence: the writer's fence after this entry.
        marker: canonical text of the writer's newest marker, ``None`` before the first and once cleaned away.
        epoch: the epoch that this entry committed, 0 for a fence and for foreign rows.
        rows: ``None`` if it brought none, or if they are gone.
        count: number of rows it was offered.
        serial: place in the log, never used twice, not even after a restore.
        replaces: first and last of the writer's epochs whose rows leave with this entry.
        restores: serial of the last entry whose rows are current again after this one, which no writer of ours made. 0
            means no row at all, and ``None`` means that it restores nothing.
        reset_epoch: the writer's epoch that this fence makes the newest, 0 for none. ``None`` leaves it unchanged.
    """

    writer: Writer | None = None
    fence: Fence = _NOBODY
    marker: str | None = None
    epoch: int = 0
    rows: pa.Table | None = None
    count: int = 0
    merge: Merge = _APPEND
    serial: int = 0
    replaces: tuple[int, int] | None = None
    restores: int | None = None
    reset_epoch: int | None = None


def select_current(log: Iterable[StoreEntry]) -> list[StoreEntry]:
    """The entries of a log, without rows that a later entry has replaced or taken back."""
    entries, current_entries = list(log), list[StoreEntry]()
    for at, entry in enumerate(entries):
        if entry.restores is not None:
            # What was replaced since stands again, too.
            stays = [earlier for earlier in entries[:at] if earlier.serial <= entry.restores]
            current_entries = [
                *select_current(stays),
                *(replace(earlier, rows=None) for earlier in entries[len(stays) : at]),
            ]
        if entry.replaces:
            first, last = entry.replaces
            current_entries = [
                replace(earlier, rows=None)
                if earlier.writer == entry.writer and first <= earlier.epoch <= last
                else earlier
                for earlier in current_entries
            ]
        current_entries.append(entry)
    return current_entries


@checks_arguments
class MemoryStore:
    """A destination in memory, shared by all handles on it.

    A fence repeats the newest marker, so the newest entry of a writer holds its whole position.

    ``name`` is the leaf of the default sink id. Changes of this store and the one ``beside`` can be one transaction.

    Attributes:
        address: finds the store again in this process (see :meth:`at`).
        lock: held for every change, as the store's transaction.
        identity: changes when the store is created anew.
    """

    _all: ClassVar[WeakValueDictionary[str, MemoryStore]] = WeakValueDictionary()
    _numbers = itertools.count(1)

    def __init__(self, name: str = "rows", beside: MemoryStore | None = None) -> None:
        self.name = name
        self.address = f"{name}@{next(self._numbers)}"
        self.lock: AbstractContextManager[Any] = beside.lock if beside else threading.RLock()
        self.identity = uuid.uuid4().hex
        self._log: list[StoreEntry] = []
        self._serials = itertools.count(1)
        self._mishaps: list[tuple[int, ExternalChange]] = []
        self._state: MemoryStore | None = None
        self._all[self.address] = self

    def state(self) -> MemoryStore:
        """The store of window state beside this one, always the same."""
        with self.lock:
            self._state = self._state or MemoryStore(f"{self.name}_state", beside=self)
            return self._state

    @classmethod
    def at(cls, address: str) -> MemoryStore | None:
        """The store of this process with that address, or ``None`` if it is gone."""
        return cls._all.get(address)

    def add(self, entry: StoreEntry) -> StoreEntry:
        """Append an entry, and return it with its serial."""
        with self.lock:
            entry = replace(entry, serial=next(self._serials))
            self._log.append(entry)
            return entry

    def newest(self, writer: Writer) -> StoreEntry | None:
        """The newest entry of a writer: its fence and its marker."""
        with self.lock:
            return next((entry for entry in reversed(self._log) if entry.writer == writer), None)

    def epochs(self, writer: Writer) -> list[StoreEntry]:
        """A writer's committed entries, oldest first, none beyond the epoch to which it was reset since."""
        entries: list[StoreEntry] = []
        with self.lock:
            for entry in select_current(self._log):
                if entry.writer == writer and entry.reset_epoch is not None:
                    entries = [earlier for earlier in entries if earlier.epoch <= entry.reset_epoch]
                elif entry.writer == writer and entry.epoch:
                    entries.append(entry)
        return entries

    def content(self, writer: Writer) -> StoreEntry | None:
        """The entry of a writer's newest epoch whose rows are current, or one of epoch 0 for none.

        ``None`` if another writer has overwritten them, or the marker of that epoch is cleaned away.
        """
        with self.lock:
            upto = sys.maxsize
            for entry in reversed(self._log):
                if entry.serial > upto:
                    continue
                if entry.restores is not None:
                    upto = entry.restores
                elif entry.writer == writer and entry.epoch:
                    return entry if entry.marker and not self._overwritten(entry.serial) else None
            return None if self._overwritten(0) else StoreEntry(writer)

    def reset_serial(self, writer: Writer) -> int:
        """Serial of the fence that last reset a writer to an epoch, 0 for none."""
        with self.lock:
            return max(
                (entry.serial for entry in self._log if entry.writer == writer and entry.reset_epoch is not None),
                default=0,
            )

    def _overwritten(self, after: int) -> bool:
        return any(mishap.kind == "overwritten" for mishap in self.mishaps(after))

    def as_of(self, serial: int) -> list[StoreEntry]:
        """The entries up to one, without rows that were replaced until then."""
        with self.lock:
            return select_current(entry for entry in self._log if entry.serial <= serial)

    def others(self, writer: Writer) -> bool:
        """Whether another writer has committed epochs here too."""
        with self.lock:
            return any(entry.writer not in (None, writer) and entry.epoch for entry in self._log)

    def writers(self) -> list[str]:
        """Pipelines that committed epochs, by name."""
        with self.lock:
            return sorted({entry.writer[0] for entry in self._log if entry.writer and entry.epoch})

    def table(self) -> pa.Table:
        """All rows, of any writer. Before the first, it has no columns."""
        with self.lock:
            return replay(select_current(self._log))

    @property
    def has_rows(self) -> bool:
        """Whether there is any row."""
        with self.lock:
            offered = any(entry.rows is not None and entry.rows.num_rows for entry in select_current(self._log))
            removing = any(entry.merge.delete for entry in self._log)
            return self.table().num_rows > 0 if offered and removing else offered

    @property
    def foreign_rows(self) -> int:
        """Number of rows that came without a marker."""
        with self.lock:
            entries = select_current(self._log)
            return sum(entry.rows.num_rows for entry in entries if entry.rows is not None and entry.writer is None)

    @property
    def schema(self) -> pa.Schema | None:
        """Columns of the rows, or ``None`` before the first."""
        with self.lock:
            held = (entry for entry in reversed(self._log) if entry.rows is not None)
            return next(
                (entry.merge.stored_schema(entry.rows.schema) for entry in held if entry.rows is not None), None
            )

    def mishaps(self, after: int) -> tuple[ExternalChange, ...]:
        """Mishaps of the store since an entry."""
        with self.lock:
            return tuple(mishap for serial, mishap in self._mishaps if serial > after)

    def restore(self, epoch: int) -> None:
        """Roll rows and fences back to just after an epoch's commit, as from a backup. Epoch 0 is the empty store.

        Raises ``LookupError`` if no entry committed that epoch.
        """
        with self.lock:
            ends = [index + 1 for index, entry in enumerate(self._log) if entry.epoch == epoch] if epoch else [0]
            if not ends:
                raise LookupError(f"epoch {epoch} was never committed to this store")
            del self._log[ends[-1] :]
            self._suffer("restored", f"set back to epoch {epoch}")

    def restore_rows(self, epoch: int) -> None:
        """Restore the rows as of just after an epoch's commit, as a RESTORE of Delta does. Epoch 0 has no row.

        Fences and markers stay, those of later epochs as well. Raises ``LookupError`` if no entry committed that epoch,
        or its rows were overwritten since.
        """
        with self.lock:
            ends = [entry.serial for entry in self._log if entry.epoch == epoch] if epoch else [0]
            if not ends or (epoch and self._overwritten(ends[-1])):
                raise LookupError(f"this store no longer has the rows of epoch {epoch}")
            self.add(StoreEntry(restores=ends[-1]))
            self._suffer("restored", f"its rows set back to those of epoch {epoch}, its markers left")

    def recreate(self) -> None:
        """Drop everything, fences and markers included, and get another identity."""
        with self.lock:
            self._log.clear()
            self.identity = uuid.uuid4().hex
            self._suffer("recreated", "dropped and created again")

    def overwrite(self, table: pa.Table) -> None:
        """Replace all rows, as another writer's overwrite does. Markers stay."""
        with self.lock:
            self._log = [replace(entry, rows=None) for entry in self._log]
            self.append_foreign(table)
            self._suffer("overwritten", f"overwritten with {table.num_rows} rows")

    def append_foreign(self, table: pa.Table) -> None:
        """Add rows without a marker. No mishap: others may append."""
        self.add(StoreEntry(rows=table))

    def clean_up(self) -> None:
        """Forget old fences and all but the newest marker of each writer, as a log's retention does."""
        with self.lock:
            last = {entry.writer: entry.serial for entry in self._log if entry.writer}
            spared = {*last.values(), *(epoch.serial for writer in last for epoch in self.epochs(writer)[-1:])}
            spared |= {
                entry.serial for entry in self._log if entry.restores is not None or entry.reset_epoch is not None
            }
            entries = [entry for entry in self._log if entry.rows is not None or entry.epoch or entry.serial in spared]
            self._log = [entry if entry.serial in spared else replace(entry, marker=None) for entry in entries]

    def _suffer(self, kind: str, detail: str) -> None:
        self._mishaps.append((next(self._serials), ExternalChange(kind, detail, fatal=True)))


def replay(entries: Iterable[StoreEntry]) -> pa.Table:
    """Concatenate the rows of entries in order: runs of appends as they are, upserts row by row."""
    import pyarrow as pa

    table = pa.table({})
    for merge, group in itertools.groupby(entries, key=lambda entry: entry.merge):
        run = [entry.rows for entry in group if entry.rows is not None]
        if not merge.key:
            table = pa.concat_tables([table, *run], promote_options="default")
            continue
        for rows in run:
            table = upserted(table, rows, merge)
    return table


def signed(tables: Sequence[pa.Table], epochs: Sequence[int], key: Sequence[str]) -> pa.Table:
    """The rows that differ between a table and the next, the first of which is before ``epochs``."""
    import pyarrow as pa

    schema, changes = tables[-1].schema, list[dict[str, Any]]()
    refuse_own(schema.names)
    by_key = [{tuple(row[name] for name in key): row for row in table.to_pylist()} for table in tables]
    for epoch, (before, now) in zip(epochs, itertools.pairwise(by_key), strict=True):
        for sign, rows, others in ((-1, before, now), (1, now, before)):
            changed = (row for at, row in rows.items() if others.get(at) != row)
            changes += [{**row, CHANGED: epoch, SIGN: sign} for row in changed]
    return pa.Table.from_pylist(
        changes, schema.append(pa.field(CHANGED, pa.int64())).append(pa.field(SIGN, pa.int16()))
    )


# ---- Window state in a memory store: the reference for recalls.

MERGE = Merge(STATE_KEY, None, GONE)


def recall(entries: Iterable[StoreEntry], sink: str, request: StateWanted, as_of: AsOf) -> list[StateRow]:
    """Rows of state, each once. ``entries`` are the writer's, oldest first.

    Raises E226: an epoch is stored that is not lower than ``as_of``.
    """
    rows = request.select(_current_rows(entries, as_of.series))
    return check_recalled(sink, rows, as_of)


def open_windows(entries: Iterable[StoreEntry], since: int) -> list[OpenWindow]:
    """Open windows, in the order of their next wake-up.

    ``entries`` are the writer's, oldest first. ``since`` is the first epoch whose rows count.
    """
    rows = [OpenWindow(StateRow.of(row), row["wake_clock"], row["wake_time"]) for row in _current_rows(entries, since)]
    return sorted(rows, key=lambda row: (row.wake_time, row.state.key, row.state.start, row.state.stop))


def _current_rows(entries: Iterable[StoreEntry], since: int) -> Collection[Mapping[str, Any]]:
    """The current row of each window, with the epoch that wrote it."""
    rows_by_window: dict[tuple[str, int, int], dict[str, Any]] = {}
    for entry in entries:
        if entry.epoch < since or entry.rows is None:
            continue
        for row in entry.rows.to_pylist():
            window = row["key"], row["start"], row["stop"]
            if row[GONE]:
                rows_by_window.pop(window, None)
            else:
                rows_by_window[window] = {**row, CHANGED: entry.epoch}
    return rows_by_window.values()
