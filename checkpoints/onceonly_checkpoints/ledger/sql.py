"""Ledger in SQLite or Postgres, with one short transaction per call."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import resources
from typing import Any, TypeVar

from sqlalchemy import Connection, Delete, Engine, Row, Select, inspect, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from onceonly_checkpoints import ledger
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.epoch_time import now_ms
from onceonly_checkpoints.ledger import tables as rows
from onceonly_checkpoints.ledger.databases import PATIENCE_S, READ_ONLY
from onceonly_checkpoints.ledger.location import place_of, unavailable
from onceonly_checkpoints.ledger.statements import FAR, Statements, new
from onceonly_checkpoints.model import UnreadableMarker

log = logging.getLogger(__name__)

SCHEMA_LOCK = int.from_bytes(b"onceonly", "big")
"""Advisory lock under which tables in the Postgres schema ``onceonly`` are created."""

_T = TypeVar("_T")


def _scripts(dialect: str) -> list[tuple[int, str]]:
    """Numbered schema files of a dialect: ``(version it leads to, text)``, ascending."""
    scripts: list[tuple[int, str]] = []
    for file in resources.files("onceonly_checkpoints.ledger").joinpath("migrations").iterdir():
        if match := re.fullmatch(rf"(\d+)_{dialect}\.sql", file.name):
            scripts.append((int(match[1]), file.read_text()))
    return sorted(scripts)


class SqlLedger(ledger.Ledger):
    """A ledger in a SQLite file or a Postgres database.

    Every writing call can be sent twice with the effect of one. So a connection that a server dropped between two
    epochs is replaced in silence. A SQLite file that is deleted or replaced while it is open raises at the next call.
    Going on in an empty file would leave a history with a hole, while a new start rebuilds it from the sinks.

    ``url_or_path`` is as for :func:`~onceonly_checkpoints.ledger.location.place_of`. Raises :class:`LedgerUnavailable`
    for a Postgres address without its driver.
    """

    def __init__(self, url_or_path: str) -> None:
        self._address = place_of(url_or_path)
        self._sql = Statements(self._address.dialect, self._address.schema)
        self._engine = self._address.engine()
        self._reader = self._engine.execution_options(**{READ_ONLY: True})
        self._single = self._address.single(self._engine)

    @property
    def address(self) -> str:
        """The file's path, or the database's URL without its password."""
        return self._address.address

    def open(self) -> None:
        """Create or upgrade the tables (see :meth:`Ledger.open`). Refuses tables of a newer version of this package."""
        with self._failures():
            self._address.create()
            with self._reader.begin() as connection:
                version = self._version(connection)
            if version < _scripts(self._address.dialect)[-1][0]:
                self._transact(self._upgrade)

    def _version(self, connection: Connection) -> int:
        if not inspect(connection).has_table("ledger_version", schema=self._address.schema):
            return 0
        version = int(connection.execute(self._sql.version).scalar_one())
        newest = _scripts(self._address.dialect)[-1][0]
        if version > newest:
            raise ledger.LedgerUnavailable(f"its tables have version {version}; this onceonly knows {newest}")
        return version

    def _upgrade(self, connection: Connection) -> None:
        if schema := self._address.schema:
            connection.execute(text(f"SET LOCAL lock_timeout = '{PATIENCE_S}s'"))
            # A Postgres sink makes its tables in the same schema, maybe in the same second: one lock for both.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SCHEMA_LOCK})
            if not inspect(connection).has_schema(schema):
                connection.execute(text(f'CREATE SCHEMA "{schema}"'))
        version = self._version(connection)
        for leads_to, script in _scripts(self._address.dialect):
            if leads_to > version:
                _run(connection, script)

    def enter(self, pipeline: ledger.Pipeline) -> None:
        """Insert or update a pipeline's row with its sinks."""

        def work(connection: Connection) -> None:
            connection.execute(self._sql.enter, rows.pipeline_values(pipeline))
            connection.execute(self._sql.drop_sinks, {"pipeline": pipeline.name})
            if sinks := rows.sink_values(pipeline):
                connection.execute(self._sql.add_sinks, sinks)

        self._write(work)

    def pipelines(self) -> Sequence[ledger.Pipeline]:
        """All pipelines by name."""
        with self._reading() as connection:
            sinks = connection.execute(self._sql.sinks).all()
            pipeline_rows = connection.execute(self._sql.pipelines).all()
            return [
                rows.pipeline_of(row, [sink for sink in sinks if sink.pipeline == row.pipeline])
                for row in pipeline_rows
            ]

    def intend(self, intent: ledger.Intent) -> None:
        """Note an intent. A later one for the same epoch replaces it."""
        values = rows.intent_values(replace(intent, at_ms=intent.at_ms or now_ms()))
        self._write(lambda connection: connection.execute(self._sql.intend, values), self._single)

    def intent(self, pipeline: str, epoch: int) -> ledger.Intent | None:
        """The newest intent for an epoch."""
        with self._reading() as connection:
            row = connection.execute(self._sql.intent, {"pipeline": pipeline, "epoch": epoch}).first()
            return None if row is None else rows.intent_of(row)

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record an epoch with receipts, files and phases.

        The same epoch and chain again replaces only the parts that the new record has. Other files, phases and receipts
        stay, and so does the time of the first recording. An SQLAlchemy ``connection`` to the same database joins its
        transaction, which is not committed here. Raises :class:`LedgerConflict` if the ledger holds another chain under
        this epoch.
        """
        record = replace(record, recorded_ms=record.recorded_ms or now_ms())
        if connection is None:
            self._write(lambda own: self._record(own, record))
        else:
            with self._failures():
                self._record(connection, record)

    def _record(self, connection: Connection, record: EpochRecord) -> None:
        values = rows.epoch_values(record)
        if self._recorded(connection, record, values):
            return
        if not _touched(connection, self._sql.record_again, values):
            recorded = str(connection.execute(self._sql.chain, values).scalar_one())
            raise ledger.LedgerConflict(record.pipeline, record.epoch.number, recorded, record.epoch.chain)
        self._add_parts(connection, record, replacing=True)

    def _recorded(self, connection: Connection, record: EpochRecord, values: rows.Values) -> bool:
        """Record an epoch that is not there yet, and return whether it was new."""
        if self._sql.record_whole is not None:
            part_rows = rows.part_values(record)
            parts = {part.name: json.dumps(each) for part, each in zip(self._sql.parts, part_rows, strict=True)}
            parameters = {new(name): value for name, value in {**values, **parts}.items()}
            return connection.execute(self._sql.record_whole, parameters).first() is not None
        if not _touched(connection, self._sql.record, values):
            return False
        self._add_parts(connection, record)
        return True

    def _add_parts(self, connection: Connection, record: EpochRecord, *, replacing: bool = False) -> None:
        number = record.epoch.number
        key = {"pipeline": record.pipeline, "first": number, "last": number}
        for part, values in zip(self._sql.parts, rows.part_values(record), strict=True):
            if values and replacing:
                connection.execute(part.drop, key)
            if values:
                connection.execute(part.add, values)

    def head(self, pipeline: str) -> EpochRecord | None:
        """The newest recorded epoch."""
        return self._first_record(self._sql.head, {"pipeline": pipeline})

    def find(self, pipeline: str, query_id: str, batch_id: int) -> EpochRecord | None:
        """The newest epoch that a batch of a query became."""
        return self._first_record(self._sql.find, {"pipeline": pipeline, "query_id": query_id, "batch_id": batch_id})

    def _first_record(self, statement: Select[Any], parameters: dict[str, Any]) -> EpochRecord | None:
        with self._reading() as connection:
            row = connection.execute(statement, parameters).first()
            if row is None:
                return None
            return self._with_parts(connection, row.pipeline, [row], row.epoch, row.epoch)[0]

    def epochs(self, pipeline: str, first: int = 1, last: int | None = None) -> Sequence[EpochRecord]:
        """Recorded epochs with numbers in ``first..last``, oldest first."""
        last = FAR if last is None else last
        with self._reading() as connection:
            key = {"pipeline": pipeline, "first": first, "last": last}
            epoch_rows = connection.execute(self._sql.epochs, key).all()
            return self._with_parts(connection, pipeline, epoch_rows, first, last)

    def _with_parts(
        self, connection: Connection, pipeline: str, epoch_rows: Sequence[Row[Any]], first: int, last: int
    ) -> list[EpochRecord]:
        key = {"pipeline": pipeline, "first": first, "last": last}
        parts = (connection.execute(part.within, key) for part in self._sql.parts)
        receipts, files, phases = (rows.grouped(part) for part in parts)
        return [rows.record_of(row, receipts, files, phases) for row in epoch_rows]

    def discard(self, pipeline: str, first: int) -> None:
        """Forget epochs from ``first`` on. Intents and events stay."""
        self._forget(pipeline, first, FAR)

    def supersede(self, pipeline: str, first: int, why: str) -> Sequence[ledger.RemovedEpoch]:
        """Set epochs from ``first`` on aside and forget their intents, in one transaction. Events stay."""
        key = {"pipeline": pipeline, "first": first, "last": FAR}
        now = now_ms()

        def work(connection: Connection) -> list[ledger.RemovedEpoch]:
            epochs = [rows.epoch_of(row) for row in connection.execute(self._sql.epochs, key).all()]
            aside = [ledger.RemovedEpoch(pipeline, epoch, why, now) for epoch in epochs]
            if aside:
                connection.execute(
                    self._sql.supersede, [rows.superseded_values(removed_epoch) for removed_epoch in aside]
                )
            for drop in (self._sql.drop_epochs, *(part.drop for part in self._sql.parts), self._sql.drop_intents):
                connection.execute(drop, key)
            return aside

        return self._write(work)

    def superseded(self, pipeline: str, after: int = 0) -> Sequence[ledger.RemovedEpoch]:
        """All superseded epochs beyond ``after``, oldest first."""
        with self._reading() as connection:
            removed_rows = connection.execute(self._sql.superseded, {"pipeline": pipeline, "after": after}).all()
            return [rows.superseded_of(row) for row in removed_rows]

    def pin(self, pin: ledger.Pin) -> None:
        """Pin an epoch, or renew its pin. Expired pins are deleted."""
        now = now_ms()
        values = asdict(replace(pin, since_ms=pin.since_ms or now))

        def work(connection: Connection) -> None:
            connection.execute(self._sql.pin, values)
            connection.execute(self._sql.drop_pins, {"pipeline": pin.pipeline, "now": now})

        self._write(work)

    def unpin(self, pipeline: str, token: str) -> None:
        """Delete a pin."""
        self._write(lambda connection: connection.execute(self._sql.unpin, {"pipeline": pipeline, "token": token}))

    def pins(self, pipeline: str) -> Sequence[ledger.Pin]:
        """Valid pins, the oldest epoch first."""
        with self._reading() as connection:
            pins = connection.execute(self._sql.pins, {"pipeline": pipeline, "now": now_ms()})
            return [ledger.Pin(**pin) for pin in pins.mappings()]

    def keep_plan(self, plan: ledger.KeptPlan) -> None:
        """Keep a plan. One that is kept already stays as it is."""
        self._write(lambda connection: connection.execute(self._sql.keep_plan, asdict(plan)))

    def plans(self, pipeline: str) -> Sequence[ledger.KeptPlan]:
        """Kept plans, by their first epoch."""
        with self._reading() as connection:
            plans = connection.execute(self._sql.plans, {"pipeline": pipeline})
            return [ledger.KeptPlan(**plan) for plan in plans.mappings()]

    def prune(self, pipeline: str, before: int) -> None:
        """Forget epochs below ``before`` with their intents. Events stay."""
        self._forget(pipeline, 1, before - 1, self._sql.drop_intents)

    def _forget(self, pipeline: str, first: int, last: int, *more: Delete) -> None:
        key = {"pipeline": pipeline, "first": first, "last": last}

        def work(connection: Connection) -> None:
            for drop in (self._sql.drop_epochs, *(part.drop for part in self._sql.parts), *more):
                connection.execute(drop, key)

        self._write(work)

    def forget(self, pipeline: str) -> None:
        """Forget all rows of a pipeline, in one transaction."""
        key = {"pipeline": pipeline}

        def work(connection: Connection) -> None:
            for drop in self._sql.forget:
                connection.execute(drop, key)

        self._write(work)

    def note(self, event: ledger.Event) -> None:
        """Append an event."""
        values = rows.event_values(replace(event, at_ms=event.at_ms or now_ms()), uuid.uuid4().hex)
        self._write(lambda connection: connection.execute(self._sql.note, values))

    def events(self, pipeline: str, limit: int = 1000, kind: ledger.EventKind | None = None) -> Sequence[ledger.Event]:
        """The newest ``limit`` events, of one kind or of any, oldest first."""
        parameters = {"pipeline": pipeline, "newest": limit, **({"kind": kind.value} if kind else {})}
        with self._reading() as connection:
            event_rows = connection.execute(self._sql.events_of_kind if kind else self._sql.events, parameters).all()
            return [rows.event_of(row) for row in reversed(event_rows)]

    def close(self) -> None:
        """Release connections. May repeat. The next call connects again."""
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Generator[Connection]:
        with self._failures(), self._reader.begin() as connection:
            self._address.check(connection)
            yield connection

    def _write(self, work: Callable[[Connection], _T], engine: Engine | None = None) -> _T:
        with self._failures():
            try:
                return self._transact(work, engine)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                log.info("ledger %s dropped its connection; sending once more on a new one", self.address)
                return self._transact(work, engine)

    def _transact(self, work: Callable[[Connection], _T], engine: Engine | None = None) -> _T:
        with (engine or self._engine).begin() as connection:
            self._address.check(connection)
            return work(connection)

    @contextmanager
    def _failures(self) -> Generator[None]:
        try:
            yield
        except ledger.LedgerConflict:
            raise
        except ledger.LedgerUnavailable:
            self.close()
            raise
        except UnreadableMarker as error:
            raise ledger.LedgerUnavailable(str(error)) from error
        except (SQLAlchemyError, self._address.driver_error, OSError) as error:
            raise unavailable(self._address, error) from error


def _touched(connection: Connection, statement: Any, values: rows.Values) -> bool:
    # SQLAlchemy keeps the count of an INSERT only where it is told to.
    return connection.execute(statement, values, execution_options={"preserve_rowcount": True}).rowcount > 0


def _run(connection: Connection, script: str) -> None:
    for statement in re.sub(r"--.*", "", script).split(";"):
        if statement.strip():
            connection.exec_driver_sql(statement)
