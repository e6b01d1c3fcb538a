"""In-memory sink: reference model of the contract, and for notebooks.

Nothing survives the process.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, unquote

from onceonly import faults, protocol
from onceonly.errors import refuse
from onceonly.errors.options import Column, Columns, checks_arguments, misused, names_of
from onceonly.faults import Point
from onceonly.protocol.batch import ArrowRows
from onceonly.protocol.capabilities import EPOCH, EpochExpired, NotVersioned, WindowStore
from onceonly.protocol.guard import NewestEpoch, check_fence, check_follows, check_install, elsewhere
from onceonly.protocol.sink import check_prepared_by
from onceonly.protocol.values import Changes, ExternalChange, Leaves, Total
from onceonly.runtime.sink_refusals import refusal
from onceonly_checkpoints import on_demand
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.memory import store as stores
from onceonly_sinks.memory.store import MemoryStore, Merge, StoreEntry, Writer, one_per_key, replay, signed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

    from onceonly.protocol import Recorder, Sink
    from onceonly.protocol.batch import AsOf
    from onceonly.protocol.capabilities import OpenWindow, Span, StateRow, StateWanted

__all__ = ["MemorySink", "MemoryStore"]
__dir__ = [*__all__, "__version__"].copy
__getattr__ = on_demand(__name__, {})

_READERS = "read through the sink object (table(), rows()) in the same process; the rows end with the process"


@checks_arguments
class MemorySink(
    WindowStore,
    protocol.JoinsTransaction,
    protocol.ReplacesRows,
    protocol.ReadsRows,
    protocol.DetectsChanges,
    protocol.HostsStores,
    protocol.Inspectable,
):
    """A handle on a store. It appends, or upserts with ``key=``.

    Args:
        id: the sink's id, by default ``memory:<name of the store>``.
        store: the destination, by default one of its own. Another driver is another sink on the same store.
        key: columns that identify a row. A row of a later epoch replaces that of an earlier one.
        sequence: column that orders the changes of a key. A lower value changes nothing. Of two equal ones the later
            epoch wins, and within one epoch they are refused (E505).
        delete_flag: boolean column of the batch. A row with true removes its key, under the same rule of ``sequence``.
            It is not kept, and neither is a trace of the key: an older change in a later epoch brings it back.

    Raises:
        ConfigurationError: E110, ``sequence`` or ``delete_flag`` without ``key``, or a column that is named twice.
    """

    def __init__(
        self,
        id: str | None = None,
        store: MemoryStore | None = None,
        *,
        key: Columns = (),
        sequence: Column | None = None,
        delete_flag: Column | None = None,
    ) -> None:
        self.store = store or MemoryStore()
        super().__init__(id or f"memory:{self.store.name}")
        self.named = id is not None
        self._merge = Merge(names_of(key), sequence, delete_flag)
        self._merge.check()
        self._fence: Fence | None = None

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: rows that arrive in another process would be invisible here."""
        raise misused(
            f"MemorySink {self._id!r} lives in this process, and the callback runs in the server's.",
            "the query runs on Spark Connect, which sends the callback and its sinks there",
            'write to a place that both reach: DeltaSink("/tmp/orders") needs no server',
        )

    @property
    def address(self) -> str:
        """The store in this process, the sink's id, the upsert's columns."""
        query = self._merge.query
        return f"memory:{self.store.address}#{quote(self._id, safe=':/@ ')}" + (f"?{query}" if query else "")

    @property
    def capabilities(self) -> protocol.Capabilities:
        """All but a ledger. An upsert cannot recount."""
        merge, append = self._merge, not self._merge.key
        changes = Changes(merge.key, merge.sequence, merge.delete)
        return protocol.Capabilities(
            append, append, carries_ledger=False, committer="memory", readers=_READERS, changes=changes
        )

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a store of this process again, for reading. Raises E508: the store is gone."""
        where, _, rest = address.removeprefix("memory:").partition("#")
        id_, _, query = rest.partition("?")
        store = MemoryStore.at(where)
        if store is None:
            cause = "its process has ended, or nothing holds the store any more"
            raise refuse(
                "E508", sink=address, reason="no such store in this process", cause=cause, next="read it where it lives"
            )
        merge = Merge.parse(query)
        return cls(unquote(id_) or None, store, key=merge.key, sequence=merge.sequence, delete_flag=merge.delete)

    def window_store(self, *, separate: bool) -> MemorySink:
        """A store of window state, beside this one or this very one."""
        merge = stores.MERGE
        id_, store = (None, self.store.state()) if separate else (self._id, self.store)
        return MemorySink(id_, store, key=merge.key, delete_flag=merge.delete)

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        """Wanted rows of window state."""
        with self.store.lock:
            return stores.recall(self.store.epochs(self._writer), self._id, request, as_of)

    def count_windows(self, since: int) -> int:
        """Number of open windows."""
        return len(self._open_windows(since))

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> Iterator[OpenWindow]:
        """Open windows."""
        windows = self._open_windows(since)
        return iter([window for window in windows if key is None or window.state.key == key][:limit])

    def _open_windows(self, since: int) -> list[OpenWindow]:
        with self.store.lock:
            return stores.open_windows(self.store.epochs(self._writer), since)

    def fence(self) -> Fence | None:
        """The newest installed fence."""
        newest = self.store.newest(self._writer)
        return newest.fence if newest else None

    def look(self) -> protocol.Peek:
        """The newest marker, under any fence."""
        with self.store.lock:
            newest = self.store.newest(self._writer)
            marker = _marker(newest) if newest else None
            number = marker.epoch.number if marker else 0
            return protocol.Peek(marker, number, strangers=not number and self.store.has_rows)

    def place(self) -> str:
        """The store, among those of this process."""
        return f"memory:{self.store.address}"

    def identity_now(self, recorded: str) -> str:
        """The store's identity, which does not depend on ``recorded``."""
        return self.store.identity

    def install(self, fence: Fence) -> None:
        """Make ``fence`` the newest if it is strictly greater or already ours."""
        with self.store.lock:
            newest = self._below(fence)
            if newest is None or newest.fence != fence:
                self.store.add(StoreEntry(self._writer, fence, newest.marker if newest else None))
        self._answer(Point.INSTALL_SENT)
        self._fence = fence

    def content_epoch(self) -> int | None:
        """The newest epoch's number, or that of restored rows, or ``None`` if rows were overwritten."""
        content = self.store.content(self._writer)
        return None if content is None else content.epoch

    def reset_to(self, fence: Fence, epoch: int) -> None:
        """Add a fence that repeats the marker of an older epoch, whose rows are the current ones."""
        with self.store.lock:
            newest, holds = self._below(fence), self.store.content(self._writer)
            if holds is None or holds.epoch != epoch:
                raise elsewhere(self._id, epoch, holds.epoch if holds else None)
            if newest is None or newest.fence != fence:
                self.store.add(StoreEntry(self._writer, fence, holds.marker, reset_epoch=epoch))
        self._answer(Point.INSTALL_SENT)
        self._fence = fence

    def _below(self, fence: Fence) -> StoreEntry | None:
        """The newest entry of ours, if a fence may follow it or is the installed one."""
        newest = self.store.newest(self._writer)
        if superseded := check_install(self._id, newest.fence if newest else None, fence):
            raise superseded
        return newest

    def position(self, since: Receipt | None) -> protocol.Position:
        """Return the sink's newest epoch, identity and mishaps, under our fence.

        Raises E508 if our fence is not installed.
        """
        with self.store.lock:
            newest = self._newest_entry(self._fence)
            marker = _marker(newest)
            return protocol.Position(
                fence=newest.fence,
                marker=marker,
                epoch=marker.epoch.number if marker else 0,
                identity=self.store.identity,
                has_rows=self.store.has_rows,
                disturbances=self.store.mishaps(after=self._judged_until(since)),
            )

    def prepare(self, batch: protocol.Batch, epoch: int) -> ArrowRows:
        """Bring the rows into this process.

        Raises E503 to E505 for a null or a key that is not unique, E506 for other columns than the store's.
        """
        import pyarrow as pa

        table = pa.Table.from_batches(list(batch.arrow()), batch.schema)
        self._same_columns(table.schema)
        rows = one_per_key(self._id, table, self._merge) if self._merge.key else table
        faults.fire(Point.PREPARE_SENT)
        return ArrowRows(rows, offered=table.num_rows)

    def cannot_replace(self, span: tuple[int, int]) -> str:
        """Why rows of epochs are not distinguishable from others: an upsert met rows of another writer."""
        if self._merge.key and (self.store.foreign_rows or self.store.others(self._writer)):
            return "others write to the store too, and rows are replaced by key: whose a row is, is not known"
        return ""

    def prepare_replacement(self, batch: protocol.Batch, epoch: int, span: tuple[int, int]) -> ArrowRows:
        """As :meth:`prepare`. The marker names the epochs whose rows leave."""
        return self.prepare(batch, epoch)

    def commit(self, prepared: protocol.Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Add one entry with rows and marker, if our fence and the previous chain still hold.

        Raises E207 or E210 if the previous epoch is not the newest, and E508 if our fence is not installed. Raises E247
        if rows that must leave are not distinguishable from others.
        """
        with self.store.lock:
            entry = self.store.add(self._entry(prepared, marker))
        self._answer(Point.COMMIT_SENT)
        return self._receipt(entry, marker)

    def can_join(self, other: Sink) -> bool:
        """Whether the other one's store was made beside this one's."""
        ours, theirs = self.store, other.store if isinstance(other, MemorySink) else None
        return theirs is not None and theirs is not ours and theirs.lock is ours.lock

    def fits_in_driver(self, size: protocol.Estimate) -> bool:
        """Always: there is no other way here."""
        return True

    def prepare_joined(
        self,
        batch: protocol.Batch,
        epoch: int,
        siblings: Sequence[tuple[Sink, protocol.Prepared]],
        span: Span | None = None,
    ) -> ArrowRows:
        """As :meth:`prepare`."""
        return self.prepare(batch, epoch)

    def commit_joined(
        self,
        prepared: protocol.Prepared | None,
        marker: Marker,
        siblings: Sequence[tuple[Sink, protocol.Prepared | None, Marker]],
        ledger: Recorder | None = None,
    ) -> tuple[Receipt, ...]:
        """As :meth:`commit`, with an entry in each of the stores, or in none."""
        others = [(sink, rows, sink_marker) for sink, rows, sink_marker in siblings if isinstance(sink, MemorySink)]
        with self.store.lock:
            made = [
                (sink, sink._entry(rows, sink_marker), sink_marker)
                for sink, rows, sink_marker in [(self, prepared, marker), *others]
            ]
            added = [(sink, sink.store.add(entry), sink_marker) for sink, entry, sink_marker in made]
        self._answer(Point.COMMIT_SENT)
        return tuple(sink._receipt(entry, sink_marker) for sink, entry, sink_marker in added)

    def _entry(self, prepared: protocol.Prepared | None, marker: Marker) -> StoreEntry:
        """The entry to add, if fence and chain still hold."""
        ours = check_prepared_by(prepared, ArrowRows)
        table, count = (ours.table, ours.rows) if ours else (None, 0)
        self._follows(_marker(self._newest_entry(marker.fence)), marker)
        number, replaces = marker.epoch.number, marker.epoch.replaces
        if replaces and (reason := self.cannot_replace(replaces)):
            raise refusal(self._id, marker.pipeline, reason)
        return StoreEntry(self._writer, marker.fence, marker.text, number, table, count, self._merge, replaces=replaces)

    def look_up(self, marker: Marker) -> Receipt | None:
        """The receipt of a marker that is the newest under our fence. Raises E508 if our fence is not installed."""
        with self.store.lock:
            newest = self._newest_entry(marker.fence)
            landed = newest.epoch == marker.epoch.number and newest.marker == marker.text
        return self._receipt(newest, marker) if landed else None

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first, as far back as the store remembers."""
        for entry in self.store.epochs(self._writer):
            marker = _marker(entry)
            if marker and entry.epoch > after:
                yield marker, self._receipt(entry, marker)

    def recount(self) -> Mapping[int, int] | None:
        """Rows in the store per epoch, with rows without a marker under 0, or ``None`` for an upsert."""
        if self._merge.key:
            return None
        ours = {entry.epoch: _count(entry) for entry in self.store.epochs(self._writer)}
        return {0: foreign, **ours} if (foreign := self.store.foreign_rows) else ours

    def total(self) -> Total:
        """The store's rows, of an upsert by the epoch that wrote them last."""
        newest = self.store.newest(self._writer)
        written = Counter(epoch for epoch, _ in self.read_current((1, newest.epoch if newest else 0)) or ())
        leaves = Leaves.by(sequence=bool(self._merge.sequence), removes=bool(self._merge.delete))
        return Total(self.store.table().num_rows, leaves, written)

    def read_with_spark(self, spark: SparkSession) -> DataFrame | None:
        """The rows of an append, each with its epoch, or ``None`` for an upsert or without rows."""
        import pyarrow as pa

        from onceonly.spark.frames import of_arrow

        if self._merge.key:
            return None
        entries = [entry for entry in self.store.epochs(self._writer) if _count(entry)]
        numbered = [_numbered(replay([entry]), entry.epoch) for entry in entries]
        return of_arrow(spark, pa.concat_tables(numbered)) if numbered else None

    def read_by_epoch(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """The rows of an append by epoch, or ``None`` for an upsert."""
        if self._merge.key:
            return None
        first, last = span
        selected = [entry for entry in self.store.epochs(self._writer) if first <= entry.epoch <= last and entry.rows]
        return ((entry.epoch, row) for entry in selected for row in replay([entry]).to_pylist())

    def read_current(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """The rows of an upsert by the epoch that wrote them last, or ``None`` for an append."""
        if not self._merge.key:
            return None
        entries = self.store.epochs(self._writer)
        numbered = [replace(entry, rows=_numbered(entry.rows, entry.epoch)) for entry in entries if entry.rows]
        rows = replay(numbered).to_pylist()
        return ((row.pop(EPOCH), row) for row in rows if span[0] <= row[EPOCH] <= span[1])

    def check_at(self, at: Receipt, since: Receipt | None = None) -> None:
        """Check that the entry of an epoch is still the confirmed one, else raise :class:`EpochExpired`.

        Raises :class:`NotVersioned` with ``since``, as an upsert cannot select only later rows.
        """
        entry = self._entry_of(at)
        marker = _marker(entry) if entry else None
        if self.store.identity != at.identity or entry is None or (marker and marker.epoch.chain != at.chain):
            raise EpochExpired("the store holds no such entry any more", "it was restored, or created again")
        if any(mishap.kind == "overwritten" for mishap in self.store.mishaps(after=entry.serial)):
            raise EpochExpired("its rows were overwritten since", "another program replaced all rows")
        if since is not None and self._merge.key:
            raise NotVersioned("after an upsert, rows of later epochs are not known", "leave since= out")

    def read_at(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """The rows up to the entry of an epoch. Raises as :meth:`check_at`."""
        with self.store.lock:
            self.check_at(at, since)
            entries = self.store.as_of(_serial(at))
        first = _serial(since) if since else 0
        return replay(entry for entry in entries if entry.serial > first)

    def frame_at(self, spark: SparkSession, at: Receipt, since: Receipt | None = None) -> DataFrame:
        """The same rows in Spark."""
        from onceonly.spark.frames import of_arrow

        return of_arrow(spark, self.read_at(at, since))

    def read_changes(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """The rows that entries since then brought and took. Raises as :meth:`check_at`."""
        if not self._merge.key:
            return super().read_changes(at, since)
        with self.store.lock:
            for receipt in (at, since) if since else (at,):
                self.check_at(receipt)
            first = _serial(since) if since else 0
            later = [entry for entry in self.store.as_of(_serial(at)) if entry.serial > first and entry.count]
            if any(entry.writer != self._writer for entry in later):
                raise NotVersioned("another writer changed rows, under no epoch", "give it a store of its own")
            tables = [replay(self.store.as_of(serial)) for serial in (first, *(entry.serial for entry in later))]
        return signed(tables, [entry.epoch for entry in later], self._merge.key)

    def _entry_of(self, at: Receipt) -> StoreEntry | None:
        entries = (entry for entry in self.store.as_of(_serial(at)) if entry.writer == self._writer)
        return next((entry for entry in entries if (entry.serial, entry.epoch) == (_serial(at), at.epoch)), None)

    def external_changes(self, since: Receipt | None) -> tuple[ExternalChange, ...]:
        """Mishaps of the store since a receipt."""
        return self.store.mishaps(after=max(_serial(since) if since else 0, self.store.reset_serial(self._writer)))

    def pipelines(self) -> list[str]:
        """Pipelines with an epoch in the store."""
        return self.store.writers()

    def close(self) -> None:
        """Forget the fence. The rows stay readable."""
        self._fence = None

    def table(self, epoch: int | None = None) -> pa.Table:
        """Rows of the store as an Arrow table. With ``epoch`` those that this sink wrote in it.

        Raises ``LookupError`` without such an epoch.
        """
        if epoch is None:
            return self.store.table()
        for entry in self.store.epochs(self._writer):
            if entry.epoch == epoch:
                return replay([entry])
        raise LookupError(f"{self._id} holds no epoch {epoch}")

    def rows(self) -> list[dict[str, Any]]:
        """The store's rows, one dict each."""
        return self.table().to_pylist()

    @property
    def _writer(self) -> Writer:
        return self.pipeline, self._id

    def _answer(self, point: Point) -> None:
        try:
            faults.fire(point)
        except Exception as error:
            raise protocol.OutcomeUnknown(self._id, f"the answer was lost ({type(error).__name__})") from error

    def _newest_entry(self, fence: Fence | None) -> StoreEntry:
        newest = self.store.newest(self._writer)
        refused = check_fence(self._id, newest.fence if newest else None, fence)
        if refused is not None or newest is None:
            raise refused or AssertionError("there is a fence without an entry")
        return newest

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        if refused := check_follows(marker, NewestEpoch.of(newest)):
            raise refused

    def _judged_until(self, since: Receipt | None) -> int:
        """Serial of the last entry whose surroundings are known."""
        reset_serial = self.store.reset_serial(self._writer)  # who put the sink there knew of all that was before
        if since is not None and (serial := _serial(since)):
            return max(serial, reset_serial)
        return max((reset_serial, *(entry.serial for entry in self.store.epochs(self._writer))))

    def _same_columns(self, schema: pa.Schema) -> None:
        self._merge.check_columns(self._id, schema)
        store_schema, schema = self.store.schema, self._merge.stored_schema(schema)
        if store_schema is not None and not store_schema.equals(schema):
            difference = f"the store has {_columns(store_schema)}, the batch {_columns(schema)}"
            raise refuse("E506", sink=self._id, difference=difference, next="write to a new store")

    def _receipt(self, entry: StoreEntry, marker: Marker) -> Receipt:
        epoch = marker.epoch
        coordinates = (("entry", entry.serial),)
        return Receipt(self._id, epoch.number, epoch.chain, self.store.identity, coordinates, entry.count)


def _marker(entry: StoreEntry) -> Marker | None:
    return Marker.from_json(json.loads(entry.marker)) if entry.marker else None


def _serial(receipt: Receipt) -> int:
    """The place of an epoch's entry in the log, 0 if the receipt names none."""
    serial = receipt.at("entry")
    return serial if isinstance(serial, int) else 0


def _count(entry: StoreEntry) -> int:
    return 0 if entry.rows is None else entry.rows.num_rows


def _numbered(rows: pa.Table, epoch: int) -> pa.Table:
    import pyarrow as pa

    return rows.append_column(EPOCH, pa.array([epoch] * rows.num_rows, pa.int64()))


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
