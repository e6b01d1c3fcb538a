"""The destination behind the memory sink: a log of entries whose replay is the table, and its mishaps."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakValueDictionary

from onceonly.protocol import Disturbance
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.memory_upsert import Merge, upserted

if TYPE_CHECKING:
    import pyarrow as pa

Writer = tuple[str, str]
"""``(pipeline, sink id)``: whose fence and markers an entry carries."""

_NOBODY = Fence(0, "")
_APPEND = Merge()


@dataclass(frozen=True, slots=True)
class Entry:
    """One atomic change of a store.

    Attributes:
        writer: who made it; ``None`` for somebody outside of any pipeline.
        fence: the writer's fence that stands after this entry.
        marker: canonical text of the writer's newest marker; ``None`` before the first and once cleaned away.
        epoch: the epoch that this entry committed; 0 for a fence and for foreign rows.
        rows: the rows it brought; ``None`` if there are none, or none any more.
        count: how many rows it was offered.
        merge: how the rows enter the table.
        serial: place in the log; never used twice, not even after a restore.
    """

    writer: Writer | None = None
    fence: Fence = _NOBODY
    marker: str | None = None
    epoch: int = 0
    rows: pa.Table | None = None
    count: int = 0
    merge: Merge = _APPEND
    serial: int = 0


class MemoryStore:
    """A destination in memory, shared by all handles on it.

    A fence repeats the newest marker, so the newest entry of a writer says all about where it stands.

    Args:
        name: leaf of the default sink id.

    Attributes:
        address: finds the store again in this process; see :meth:`at`.
        lock: held for every change; the store's transaction.
        identity: changes when the store is created anew.
    """

    _all: ClassVar[WeakValueDictionary[str, MemoryStore]] = WeakValueDictionary()
    _numbers = itertools.count(1)

    def __init__(self, name: str = "rows") -> None:
        self.name = name
        self.address = f"{name}@{next(self._numbers)}"
        self.lock = threading.RLock()
        self.identity = uuid.uuid4().hex
        self._log: list[Entry] = []
        self._serials = itertools.count(1)
        self._mishaps: list[tuple[int, Disturbance]] = []
        self._all[self.address] = self

    @classmethod
    def at(cls, address: str) -> MemoryStore | None:
        """The store of this process with that address; ``None`` if it is gone."""
        return cls._all.get(address)

    def add(self, entry: Entry) -> Entry:
        """Append an entry; return it with its serial."""
        with self.lock:
            entry = replace(entry, serial=next(self._serials))
            self._log.append(entry)
            return entry

    def newest(self, writer: Writer) -> Entry | None:
        """The newest entry of a writer: its fence and its marker."""
        with self.lock:
            return next((entry for entry in reversed(self._log) if entry.writer == writer), None)

    def epochs(self, writer: Writer) -> list[Entry]:
        """The entries with which a writer committed epochs, oldest first."""
        with self.lock:
            return [entry for entry in self._log if entry.writer == writer and entry.epoch]

    def writers(self) -> list[str]:
        """Pipelines that committed epochs, by name."""
        with self.lock:
            return sorted({entry.writer[0] for entry in self._log if entry.writer and entry.epoch})

    def table(self) -> pa.Table:
        """All rows, whoever wrote them; a table without columns before the first."""
        with self.lock:
            return replay(self._log)

    @property
    def has_rows(self) -> bool:
        """Whether there is any row."""
        with self.lock:
            offered = any(entry.rows is not None and entry.rows.num_rows for entry in self._log)
            removing = any(entry.merge.delete for entry in self._log)
            return self.table().num_rows > 0 if offered and removing else offered

    @property
    def foreign_rows(self) -> int:
        """Rows that came without a marker."""
        with self.lock:
            return sum(entry.rows.num_rows for entry in self._log if entry.rows is not None and entry.writer is None)

    @property
    def schema(self) -> pa.Schema | None:
        """Columns of the rows; ``None`` before the first."""
        with self.lock:
            held = (entry for entry in reversed(self._log) if entry.rows is not None)
            return next((entry.merge.kept(entry.rows.schema) for entry in held if entry.rows is not None), None)

    def mishaps(self, after: int) -> tuple[Disturbance, ...]:
        """What happened to the store since an entry."""
        with self.lock:
            return tuple(mishap for serial, mishap in self._mishaps if serial > after)

    def restore(self, epoch: int) -> None:
        """Go back to where an epoch had just been committed, as from a backup; 0 for the empty store.

        Fences go back as well.

        Raises:
            LookupError: no entry committed that epoch.
        """
        with self.lock:
            ends = [index + 1 for index, entry in enumerate(self._log) if entry.epoch == epoch] if epoch else [0]
            if not ends:
                raise LookupError(f"epoch {epoch} was never committed to this store")
            del self._log[ends[-1] :]
            self._suffer("restored", f"set back to epoch {epoch}")

    def recreate(self) -> None:
        """Drop everything, fences and markers included, and be created anew under another identity."""
        with self.lock:
            self._log.clear()
            self.identity = uuid.uuid4().hex
            self._suffer("recreated", "dropped and created again")

    def overwrite(self, table: pa.Table) -> None:
        """Replace all rows, as somebody else's overwrite does; markers stay."""
        with self.lock:
            self._log = [replace(entry, rows=None) for entry in self._log]
            self.append_foreign(table)
            self._suffer("overwritten", f"overwritten with {table.num_rows} rows")

    def append_foreign(self, table: pa.Table) -> None:
        """Add rows that no marker vouches for. No mishap: others may append."""
        self.add(Entry(rows=table))

    def clean_up(self) -> None:
        """Forget old fences and all but the newest marker of each writer, as a log's retention does."""
        with self.lock:
            last = {(entry.writer, bool(entry.epoch)): entry.serial for entry in self._log if entry.writer}
            spared = set(last.values())
            kept = [entry for entry in self._log if entry.rows is not None or entry.epoch or entry.serial in spared]
            self._log = [entry if entry.serial in spared else replace(entry, marker=None) for entry in kept]

    def _suffer(self, kind: str, detail: str) -> None:
        self._mishaps.append((next(self._serials), Disturbance(kind, detail, fatal=True)))


def replay(entries: Iterable[Entry]) -> pa.Table:
    """Put the rows of entries together, in their order: runs of appends as they are, upserts row by row."""
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
