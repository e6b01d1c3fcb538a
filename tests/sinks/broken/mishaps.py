"""Broken sinks that take what happens to them for something else."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from tests.sinks.broken.registry import caught_by
from tests.sinks.sqlite_harness import RuledSQLiteSink
from tests.sinks.tutorial import SQLiteSink

from onceonly.errors import refuse
from onceonly.protocol import Batch, HasConstraints, OutcomeUnknown
from onceonly.protocol.batch import ArrowRows
from onceonly.protocol.row_rules import Characters, Condition, NotNull, Rule
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink
from onceonly_sinks.sql import HeadScope
from onceonly_sinks.sql.tables import advancing


class CallsARefusedRowUnknown(SQLiteSink):
    """Takes a constraint's no for no answer."""

    def write(self, db: Any, rows: pa.Table, epoch: int) -> None:
        try:
            super().write(db, rows, epoch)
        except sqlite3.IntegrityError as error:
            raise OutcomeUnknown(self.id, "refused") from error


class MakesANewTargetInSilence(SQLiteSink):
    """Where the tables are gone they are made anew, and the epoch goes into them."""

    def commit(self, prepared: Any, marker: Marker, ledger: object = None) -> Receipt:
        if self.fence():
            receipt: Receipt = super().commit(prepared, marker)
            return receipt
        self.install(marker.fence)
        with self._transaction() as db:
            rows = prepared.rows if prepared else 0
            if prepared:
                self.write(db, prepared.table, marker.epoch.number)
            place = {"identity": self.identity(db), "target": self.table}
            db.execute(self.tables.sql_advance[1], {**advancing(self._writer, marker, rows), **place})
            told: Receipt = self._receipt(marker, rows, place["identity"])
            return told


class LetsALockOutRaw(SQLiteSink):
    """Waits for nobody, and hands on what the client library says of a lock."""

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.where, timeout=0.05, isolation_level=None)

    def read(self, error: Exception) -> Any:
        return super().read(error) if isinstance(error, sqlite3.IntegrityError) else None


class OnePipelineForAll(SQLiteSink):
    """Keeps one head for a target, whichever pipeline asks."""

    @property
    def _writer(self) -> HeadScope:
        return HeadScope("all", self.id)


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


class GivesNoRule(SQLiteSink, HasConstraints):
    """Says nothing of what its file refuses."""

    def row_rules(self, columns: pa.Schema) -> Sequence[Rule | Condition]:
        return ()


class WithholdsEveryRow(RuledSQLiteSink):
    """Has a condition that no row meets."""

    more = (Condition("never", "false"),)


class WithholdsUsualNotes(RuledSQLiteSink):
    """Demands shorter notes than its file."""

    more = (Rule("note", Characters(3)),)


@caught_by("every_type_comes_back_or_is_refused")
class RoundsDecimals(MemorySink):
    """Keeps every number as a double."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        table = super().prepare(batch, epoch).table
        for index, field in enumerate(table.schema):
            if pa.types.is_decimal(field.type):
                table = table.set_column(index, field.name, table.column(index).cast(pa.float64()))
        return ArrowRows(table)


class RefusesEveryType(MemorySink):
    """Takes no value of any type, and says so with a code."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        if "value" in batch.schema.names:
            raise refuse("E506", sink=self.id, difference="a value", next="write no values")
        return prepared


class RefusesDecimals(MemorySink):
    """Takes no decimals, as it may."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        if any(pa.types.is_decimal(field.type) for field in batch.schema):
            raise refuse("E506", sink=self.id, difference="a decimal", next="write no decimals")
        return prepared


@caught_by("every_type_comes_back_or_is_refused")
class DemandsMoreThanItsStore(MemorySink, HasConstraints):
    """Says that its store holds no null, and so would have rows kept from it that it takes."""

    def row_rules(self, columns: pa.Schema) -> tuple[Rule, ...]:
        return tuple(Rule(name, NotNull()) for name in columns.names)


class KeepsWhatItRefuses(RefusesDecimals):
    """Has put decimals into the table when it refuses them."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        if any(pa.types.is_decimal(field.type) for field in batch.schema):
            self.store.append_foreign(pa.Table.from_batches(list(batch.arrow()), batch.schema))
        return super().prepare(batch, epoch)


MISHAPS: dict[type[Any], str] = {
    CallsARefusedRowUnknown: "a_row_that_the_destination_refuses_is_refused_with_a_code",
    MakesANewTargetInSilence: "a_target_that_is_replaced_after_prepare_takes_nothing_in_silence",
    LetsALockOutRaw: "a_locked_target_is_waited_for_or_refused_with_a_code",
    OnePipelineForAll: "two_pipelines_beside_each_other_keep_their_own_epochs",
    CallsADeadlockUnknown: "a_failure_that_passes_is_no_end",
    GivesNoRule: "a_row_that_the_destination_refuses_breaks_a_rule",
    WithholdsEveryRow: "rows_that_the_destination_takes_meet_every_condition",
    WithholdsUsualNotes: "rows_that_the_destination_takes_break_no_rule",
    LooksUpWithoutWaiting: "looking_up_waits_for_a_commit_that_is_late",
}
"""The claim that catches each of them."""
