"""Broken sinks that take what happens to them for something else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
from tests.sinks.broken.registry import caught_by
from tests.sinks.tutorial import TABLES, SQLiteSink

from onceonly.errors import refuse
from onceonly.protocol import Batch, OutcomeUnknown
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.memory import MemoryPrepared, MemorySink
from onceonly_sinks.postgres import PostgresSink


class CallsARefusedRowUnknown(SQLiteSink):
    """Takes a constraint's no for no answer."""

    def _insert(self, db: Any, table: pa.Table, epoch: int) -> None:
        try:
            super()._insert(db, table, epoch)
        except sqlite3.IntegrityError as error:
            raise OutcomeUnknown(self.id, "refused") from error


class MakesANewTargetInSilence(SQLiteSink):
    """Where the tables are gone they are made anew, and the epoch goes into them."""

    def commit(self, prepared: Any, marker: Marker, ledger: object = None) -> Receipt:
        with self._transaction() as db:
            if self._exists(db, "head"):
                self._under(db, marker.fence)
            for statement in TABLES.strip().split(";"):
                db.execute(statement)
            if prepared:
                self._insert(db, prepared.table, marker.epoch.number)
            row = [*self._us, marker.epoch.number, prepared.rows if prepared else 0, marker.text]
            db.execute("INSERT INTO epoch VALUES (?, ?, ?, ?, ?)", row)
            return self._receipt(marker, self._identity(db), row[3])


class LetsALockOutRaw(SQLiteSink):
    """Waits for nobody, and hands on what the client library says of a lock."""

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=0.05, isolation_level=None)) as db:
            try:
                yield db
            except sqlite3.IntegrityError as error:
                refused = {"reason": "a constraint", "cause": "a row", "next": "restart the query"}
                raise refuse("E508", sink=self.id, **refused) from error


class OnePipelineForAll(SQLiteSink):
    """Keeps one head for a target, whichever pipeline asks."""

    @property
    def _us(self) -> tuple[str, str]:
        return "all", self.id


class CallsADeadlockUnknown(PostgresSink):
    """Takes the server's no to a commit for no answer."""

    def commit(self, prepared: Any, marker: Marker, ledger: Any = None) -> Receipt:
        try:
            return super().commit(prepared, marker, ledger)
        except OutcomeUnknown:
            raise
        except Exception as error:
            raise OutcomeUnknown(self.id, "it failed") from error


class LooksUpWithoutWaiting(PostgresSink):
    """Reads whether the epoch is there, and does not ask whether it may still come."""

    def look_up(self, marker: Marker) -> Receipt | None:
        for found, receipt in self.history(marker.epoch.number - 1):
            if (found.fence, found.epoch) == (marker.fence, marker.epoch):
                return receipt
        return None


@caught_by("every_type_comes_back_or_is_refused")
class RoundsDecimals(MemorySink):
    """Keeps every number as a double."""

    def prepare(self, batch: Batch, epoch: int) -> MemoryPrepared:
        table = super().prepare(batch, epoch).table
        for index, field in enumerate(table.schema):
            if pa.types.is_decimal(field.type):
                table = table.set_column(index, field.name, table.column(index).cast(pa.float64()))
        return MemoryPrepared(table)


MISHAPS: dict[type[Any], str] = {
    CallsARefusedRowUnknown: "a_row_that_the_destination_refuses_is_refused_with_a_code",
    MakesANewTargetInSilence: "a_target_that_is_replaced_after_prepare_takes_nothing_in_silence",
    LetsALockOutRaw: "a_locked_target_is_waited_for_or_refused_with_a_code",
    OnePipelineForAll: "two_pipelines_beside_each_other_keep_their_own_epochs",
    CallsADeadlockUnknown: "a_failure_that_passes_is_no_end",
    LooksUpWithoutWaiting: "looking_up_waits_for_a_commit_that_is_late",
}
"""The claim that catches each of them."""
