"""Broken sinks that are right in their plain variant, and wrong in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.sinks.duckdb_harness import example
from tests.sinks.psycopg_sink import PsycopgSink

from onceonly.protocol import Batch, Prepared
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.capabilities import SIGN
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.delta.log_committer import LogCommitter
from onceonly_sinks.delta.merge import Merge, Upsert
from onceonly_sinks.delta.prepared import DataFile, WrittenFiles
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.kafka.commit import KafkaPrepared
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink, commit
from onceonly_sinks.postgres.load import PostgresPrepared


class CountsAnUpsert(MemorySink):
    """Counts the rows that came, whether they stand or not."""

    def recount(self) -> Mapping[int, int] | None:
        if not self._merge.key:
            return super().recount()
        return {entry.epoch: entry.count for entry in self.store.epochs(self._writer)}


class ChangesShowTheNewestImage(MemorySink):
    """A change has the row that the table holds now, not the one that its epoch left."""

    def read_changes(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        changed, newest = super().read_changes(at, since), {row["id"]: row for row in self.store.table().to_pylist()}
        rows = [{**row, **newest.get(row["id"], row)} if row[SIGN] > 0 else row for row in changed.to_pylist()]
        return pa.Table.from_pylist(rows, changed.schema)


class ChangesReadPastTheEpoch(MemorySink):
    """Changes also hold those of the newest epoch, which not every sink may hold."""

    def read_changes(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        *_, (_, newest) = self.history()
        return super().read_changes(newest, since)


class ChangesTakeNothing(MemorySink):
    """Changes bring new rows, and leave out those that were replaced or removed."""

    def read_changes(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        changed = super().read_changes(at, since)
        return pa.Table.from_pylist([row for row in changed.to_pylist() if row[SIGN] > 0], changed.schema)


class _RemovesWhatStays:
    """Takes any answer in the column that deletes for a yes."""

    def prepare(self, batch: Batch, epoch: int) -> Any:
        table = pa.Table.from_batches(list(batch.arrow()), batch.schema)
        if "gone" in table.column_names:
            place = table.column_names.index("gone")
            table = table.set_column(place, "gone", pa.array([True] * table.num_rows, pa.bool_()))
        return super().prepare(ArrowBatch(table), epoch)  # type: ignore[misc]


class MemoryRemovesWhatStays(_RemovesWhatStays, MemorySink):
    pass


class DeltaRemovesWhatStays(_RemovesWhatStays, DeltaSink):
    pass


class PostgresRemovesWhatStays(_RemovesWhatStays, PostgresSink):
    pass


class MemoryKeepsTheOlderOfEqual(MemorySink):
    """Of two changes with one sequence the one that was there first stays."""

    def prepare(self, batch: Batch, epoch: int) -> Any:
        stands = {(row["id"], row["step"]) for row in self.rows() if "step" in row and self._merge.sequence}
        table = pa.Table.from_batches(list(batch.arrow()), batch.schema)
        newer = [(row.get("id"), row.get("step")) not in stands for row in table.to_pylist()]
        return super().prepare(ArrowBatch(table.filter(pa.array(newer, pa.bool_()))), epoch)


class DeltaKeepsTheOlderOfEqual(DeltaSink):
    """The same, in the condition of the merge."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        upsert = self._settings.upsert
        strict = _Strict(upsert.key, upsert.sequence, upsert.delete)
        self._settings = replace(self._settings, upsert=strict)


class _Strict(Upsert):
    @property
    def merge(self) -> Merge | None:
        made = super().merge
        return Merge.parse(str(made).replace(" >= ", " > ")) if made else None


class CommitsWhateverLiesThere(DeltaSink):
    """Commits the files of the folder that no entry names, in place of those that tasks name."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        prepared = super().prepare(batch, epoch)
        if isinstance(prepared, WrittenFiles):
            root = Path(self._open.table.root)
            known = {Path(uri).name for uri in DeltaTable(root).file_uris()}
            prepared.files = [_data_file(path, root) for path in root.glob("*.parquet") if path.name not in known]
        return prepared


def _data_file(path: Path, root: Path) -> DataFile:
    rows = pq.read_metadata(path).num_rows
    return DataFile(str(path.relative_to(root)), path.stat().st_size, rows, f'{{"numRecords":{rows}}}', {})


class MergesWhereItShouldReplace(DeltaSink):
    """Old rows stay where new ones are merged."""

    def open(self, pipeline: str) -> None:
        super().open(pipeline)
        table = self._open.table
        self._open.writer._log = _Merging(table.sink, table.root, table.options)


class _Merging(LogCommitter):
    def _merge(self, handle: DeltaTable, note: Any, rows: pa.Table, merge: Merge) -> None:
        super()._merge(handle, _OfNoReplacement(note), rows, merge)


class _OfNoReplacement:
    replaces = False

    def __init__(self, note: Any) -> None:
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._note, name)


class GrowsByReplacingTheTable(DeltaSink):
    """Gives a table that lacks a column another life, with the rows that stood in it."""

    def open(self, pipeline: str) -> None:
        super().open(pipeline)
        table = self._open.table
        self._open.writer._log = _Replacing(table.sink, table.root, table.options)


class _Replacing(LogCommitter):
    def widen(self, handle: DeltaTable, note: Any, schema: Any) -> None:
        rows = handle.to_pyarrow_table()
        DeltaTable.create(self._root, schema, mode="overwrite")
        handle.update_incremental()
        self._write(handle, note, rows, grow=True)


class TakesEveryAttempt(PostgresSink):
    """Brings what all attempts of a task have staged."""

    def prepare(self, batch: Batch, epoch: int) -> PostgresPrepared:
        prepared = super().prepare(batch, epoch)
        if prepared.waiting and prepared.connection is None:
            return replace(prepared, waiting=replace(prepared.waiting, winners="true", parameters={}), proven=True)
        return prepared


class BringsWhatWaitsAlone(PostgresSink):
    """Rows that wait beside the table enter it in a transaction of their own, then comes the marker."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Any = None) -> Receipt:
        ours = prepared if isinstance(prepared, PostgresPrepared) else None
        if ours is None or ours.waiting is None or not (ours.plan.table.oid or self._options.apply):
            return super().commit(prepared, marker, ledger)
        session = self._writer.session(marker.fence)
        connection = ours.connection or self._transactions.begin(session, self._transactions.lock_seconds)
        commit._bring(connection, self._aim, ours, marker.epoch)
        connection.commit()
        self._transactions.drop(connection)
        return replace(super().commit(None, marker, ledger), rows=ours.rows)


class PostgresCountsAnUpsert(PostgresSink):
    """Counts the rows that came, whether they stand or not."""

    def recount(self) -> Mapping[int, int] | None:
        if not self._options.merge.key:
            return super().recount()
        return {receipt.epoch: receipt.rows for _, receipt in self.history()}


class _ReadsNoError:
    """Knows none of the driver's errors."""

    def read(self, error: Exception) -> None:
        return None


class PsycopgReadsNoError(_ReadsNoError, PsycopgSink):
    pass


class DuckDBReadsNoError(_ReadsNoError, example.DuckDBSink):  # type: ignore[misc]
    pass


class ForgetsWhereItsRowsWent(KafkaSink):
    """Its marker names no topic that rows have named."""

    def prepare(self, batch: Batch, epoch: int) -> KafkaPrepared:
        prepared = super().prepare(batch, epoch)
        return prepared if self._topic else replace(prepared, start={}, end={})


@dataclass(frozen=True, slots=True)
class Twin:
    """A broken sink and the one of its variants that shows it.

    Attributes:
        sink: the sink.
        variant: class of tests of the variant, see :data:`tests.sinks.variants.TOUCHED`.
        claims: those that catch it there.
        others: whether more may.
    """

    sink: type[Any]
    variant: str
    claims: frozenset[str]
    others: bool = False

    def __str__(self) -> str:
        return f"{self.sink.__name__}-{self.variant.removeprefix('Test')}"


_REPLACED = "an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own"
_FENCED_BETWEEN = "a_zombie_fenced_between_prepare_and_commit_writes_nothing"
_MARKERS = "markers_of_replaced_epochs_stand"
_RECOUNT = "recount_equals_the_committed_rows"
_REFUSED_ROW = "a_row_that_the_destination_refuses_is_refused_with_a_code"
_CUT = "the_cut_of_a_batch_decides_nothing"
_SIGNED = "signed_changes_add_up_to_the_rows_of_each_epoch"
_ATTEMPTS = "duplicate_attempts_are_counted_once"


def _twin(sink: type[Any], variant: str, *claims: str, others: bool = False) -> Twin:
    return Twin(sink, variant, frozenset(claims), others)


TWINS: tuple[Twin, ...] = (
    _twin(CountsAnUpsert, "TestMemoryUpsert", _RECOUNT, _MARKERS),
    _twin(MemoryRemovesWhatStays, "TestMemoryUpsertWithADeleteColumn", _REPLACED, others=True),
    _twin(MemoryKeepsTheOlderOfEqual, "TestMemoryUpsertWithADeleteColumn", _CUT),
    _twin(ChangesShowTheNewestImage, "TestMemoryUpsert", _SIGNED),
    _twin(ChangesReadPastTheEpoch, "TestMemoryUpsert", _SIGNED),
    _twin(ChangesTakeNothing, "TestMemoryUpsert", _SIGNED),
    _twin(DeltaKeepsTheOlderOfEqual, "TestDeltaMerge", _CUT),
    _twin(
        CommitsWhateverLiesThere,
        "TestDeltaAppendThroughExecutors",
        _ATTEMPTS,
        "a_batch_that_breaks_off_leaves_nothing",
        "what_a_lost_driver_prepared_never_appears",
        others=True,
    ),
    _twin(MergesWhereItShouldReplace, "TestDeltaMerge", _REPLACED, others=True),
    _twin(MergesWhereItShouldReplace, "TestDeltaMergeByHand", _REPLACED, others=True),
    _twin(DeltaRemovesWhatStays, "TestDeltaMergeWithADeleteColumn", _REPLACED, others=True),
    _twin(GrowsByReplacingTheTable, "TestDeltaAddingAColumn", "a_receipt_says_what_was_committed", others=True),
    _twin(TakesEveryAttempt, "TestAppendByExecutors", _ATTEMPTS, others=True),
    _twin(TakesEveryAttempt, "TestUpsertByExecutors", _ATTEMPTS, others=True),
    _twin(TakesEveryAttempt, "TestApplyByExecutors", _ATTEMPTS, others=True),
    _twin(BringsWhatWaitsAlone, "TestAppendByExecutors", _FENCED_BETWEEN, others=True),
    _twin(BringsWhatWaitsAlone, "TestUpsertThroughTheDriver", _FENCED_BETWEEN, others=True),
    _twin(BringsWhatWaitsAlone, "TestApplyThroughTheDriver", _FENCED_BETWEEN, others=True),
    _twin(BringsWhatWaitsAlone, "TestAddingAColumn", "a_first_epoch_with_another_number_is_refused", others=True),
    _twin(PostgresCountsAnUpsert, "TestUpsertThroughTheDriver", _RECOUNT, _MARKERS),
    _twin(PostgresRemovesWhatStays, "TestUpsertWithADeleteColumn", _REPLACED, others=True),
    _twin(PsycopgReadsNoError, "TestAnotherDriver", _REFUSED_ROW, others=True),
    _twin(DuckDBReadsNoError, "TestDuckDB", _REFUSED_ROW, others=True),
    _twin(ForgetsWhereItsRowsWent, "TestTopicsByColumn", _RECOUNT, others=True),
)
