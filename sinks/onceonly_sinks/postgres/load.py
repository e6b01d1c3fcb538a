"""Load a batch through the driver or, by executors, into staging."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Batch
from onceonly.protocol.capabilities import Span
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.postgres import ddl, errors, obstacles, schema, staging, upsert
from onceonly_sinks.postgres.copy import Encoder, copy_in, statement
from onceonly_sinks.postgres.head import PostgresHeadScope, Visibility
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import Server, TableName, address_of
from onceonly_sinks.postgres.transaction import Transactions, raw
from onceonly_sinks.postgres.type_mapping import TypeMapping, map_types
from onceonly_sinks.postgres.upsert import Merge

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

    from onceonly_sinks.postgres.apply_sql import Apply
    from onceonly_sinks.postgres.upsert import Waiting


# ---- What ``prepare`` hands to ``commit``: rows near the target, that nobody else can see.


@dataclass(slots=True)
class PostgresPrepared:
    """Rows of one epoch.

    Attributes:
        rows: counted by the server as it took them.
        release: frees the rows when they are not needed any more, never raises.
        connection: the open transaction that holds them. ``None`` if they were staged, or if there are none.
        waiting: relation of the rows that are not yet in the target.
        proven: false if the waiting rows must be counted again before the commit.
        cleared: epochs whose rows were deleted in the transaction of ``connection``.
    """

    plan: TypeMapping
    rows: int
    release: Callable[[], None]
    connection: Connection | None = None
    waiting: Waiting | None = None
    proven: bool = True
    cleared: Span | None = None

    def abandon(self) -> None:
        """Roll back, or drop the staging table. Never raises, may repeat."""
        release, self.release = self.release, _nothing
        release()


def _nothing() -> None:
    return


# ---- The two ways there: through the driver into an open transaction, or by executors into a staging table.

log = logging.getLogger(__name__)

_HOUSEKEEPING_SECONDS = 2.0


class TooLarge(Exception):
    """The batch has more bytes than the driver may take."""


@dataclass(frozen=True, slots=True)
class Target:
    """Table to write to, and how new rows meet those already there.

    The options are those of :class:`~onceonly_sinks.postgres.sink.PostgresSink`. ``keep_ms`` is by the clock of the
    epochs, 0 for ever.
    """

    server: Server
    name: TableName
    merge: Merge
    epoch_column: str | None
    writer: PostgresHeadScope
    grows: bool = False
    apply: Apply | None = None
    triggers: bool = False
    visibility: Visibility = field(default_factory=Visibility)
    keep_ms: int = 0
    sealed_view: bool = False

    @property
    def address(self) -> str:
        """Address without secrets."""
        return address_of(self.server, self.name, {})

    @property
    def events(self) -> int:
        """INSERT, UPDATE and DELETE that an epoch causes, in the bits of a trigger's type."""
        upsert_, delete = bool(self.merge.key), bool(self.merge.delete)
        return obstacles.INSERT | obstacles.UPDATE * upsert_ | obstacles.DELETE * delete

    def look(self, connection: Connection, *, lock: bool = False) -> Table | None:
        """Inspect the table, if there is one, and check that it keeps rows exactly as they are sent.

        Raises E506 or E508: it cannot be used.
        """
        sink = self.writer.sink
        table = schema.inspect(connection, self.name, sink, self.epoch_column, lock=lock)
        if table is None:
            return None
        refused = obstacles.volatile(sink, self.name, table.parts)
        if refused is None and self.apply is None:
            refused = obstacles.altering(sink, table.parts, 0 if self.triggers else self.events)
        if refused is not None:
            raise refused
        return table

    def plan(self, connection: Connection, batch: pa.Schema, *, lock: bool = False) -> TypeMapping:
        """Read the table, or plan it if there is none, and how the batch goes into it. Raises E506 or E508."""
        sink, merge = self.writer.sink, self.merge
        if self.apply is not None:
            return map_types(sink, batch, ddl.planned(self.name, batch, (), None, sink))
        table = self.look(connection, lock=lock)
        if table is None:
            stored = [field for field in batch if field.name != merge.delete]
            table = ddl.planned(self.name, stored, merge.key, self.epoch_column, sink)
        upsert.check_index(sink, table, merge)
        return map_types(sink, batch, table, merge.key, merge.delete, grow=self.grows)

    def lock_table(self, connection: Connection, plan: TypeMapping) -> Table:
        """Lock the plan's table against changes. Create it now if the plan wanted that.

        Raises E506: the table no longer has the shape of the plan.
        """
        if plan.added:
            connection.exec_driver_sql(*schema.locking(self.name, alone=True))
        table = self.look(connection, lock=True)
        if table is None and plan.table.oid == 0:
            return self._made(connection, plan.table)
        if table is None or not staging.same_shape(plan.original, table):
            raise errors.changed(self.writer.sink)
        if not plan.added:
            return table
        return self._shown(connection, ddl.add(connection, table, plan.added))

    def _made(self, connection: Connection, planned: Table) -> Table:
        made = ddl.create(connection, planned, self.merge.key)
        if self.merge.keeps:
            from onceonly_sinks.postgres import seen_ids

            seen_ids.ready(connection, made)
        if self.merge.state:
            from onceonly_sinks.postgres import window_state

            window_state.ready(connection, made)
        return self._shown(connection, made)

    def _shown(self, connection: Connection, table: Table) -> Table:
        if not self.merge.history:  # that has to be there first
            self.show(connection, table)
        return table

    def show(self, connection: Connection, table: Table) -> None:
        """Create the sealed view if one is wanted, or give it the columns of the table.

        Raises E506: the table has no epoch column.
        """
        if self.sealed_view:
            from onceonly_sinks.postgres import sealed_views

            sealed_views.ready(connection, table, self.writer, self.merge)


class Loader:
    """Prepares epochs of one opening."""

    def __init__(self, target: Target, fence: Fence, transactions: Transactions) -> None:
        self.target = target
        self._fence = fence
        self._transactions = transactions
        self._session = target.writer.session(fence)
        self._last: tuple[pa.Schema, TypeMapping] | None = None

    @property
    def plan(self) -> TypeMapping | None:
        """The newest batch's plan, if there was one."""
        return self._last[1] if self._last else None

    def load(
        self,
        batch: Batch,
        epoch: int,
        limit: int | None,
        clear: Callable[[Connection], Span] | None = None,
        within: Connection | None = None,
    ) -> PostgresPrepared:
        """Stream the rows through the driver into an open transaction, which begins with the first rows.

        While Spark still computes, nothing is held in the database. Raises :class:`TooLarge` after more than ``limit``
        bytes in Arrow form, with everything rolled back. ``clear`` deletes rows first, as the same keys may come again,
        and returns their epochs. ``within`` is the open transaction of another sink to write in, and is rolled back if
        this fails.
        """
        plan = self._plan(batch.schema)
        batches = (rows for rows in batch.arrow() if rows.num_rows)
        first = next(batches, None)
        if first is None:
            return PostgresPrepared(plan, 0, _nothing)
        connection = within
        try:
            if connection is None:
                connection, plan = self._begin(batch.schema, plan)
            else:
                plan = self._lock_planned(connection, batch.schema, plan)
            cleared = clear(connection) if clear else None
            waits = staging.BATCH if within is None else f"{staging.BATCH}_{self.target.writer.tag}"
            made = self._stream(connection, plan, epoch, _capped(itertools.chain([first], batches), limit), waits)
            return replace(made, cleared=cleared)
        except BaseException:
            if connection is not None:
                self._transactions.drop(connection)
            raise

    def _plan(self, batch: pa.Schema) -> TypeMapping:
        """Reuse the plan of the previous epoch, until the transaction itself has looked at the table."""
        if self._last is not None and self._last[0] == batch and self._last[1].table.oid and not self._last[1].added:
            return self._last[1]
        with self._transactions.reading() as connection:
            plan = self.target.plan(connection, batch)
        self._last = (batch, plan)
        return plan

    def _begin(self, batch: pa.Schema, plan: TypeMapping) -> tuple[Connection, TypeMapping]:
        """Begin a transaction that locks the table against changes, and return the plan that holds in it.

        A table that is to get columns is not locked yet: two such writers would wait for each other at their commits.
        """
        if plan.added:
            return self._transactions.begin(self._session, self._transactions.lock_seconds), plan
        connection = self._begin_as_planned(plan)
        if connection is not None:
            return connection, plan
        connection = self._transactions.begin(self._session, self._transactions.lock_seconds)
        with self._transactions.whole(connection):
            return connection, self._planned(connection, batch)

    def _planned(self, connection: Connection, batch: pa.Schema) -> TypeMapping:
        plan = self.target.plan(connection, batch, lock=True)
        self._last = (batch, plan)
        return plan

    def _lock_planned(self, connection: Connection, batch: pa.Schema, plan: TypeMapping) -> TypeMapping:
        """Lock the table as :meth:`_begin` does, in another sink's transaction. Return the plan that holds there."""
        if plan.added:
            return plan
        name, stamp = plan.table.name, plan.table.stamp
        if stamp and self._transactions.tried(connection, schema.locking(name), schema.stamping(name)) == [stamp]:
            return plan
        return self._planned(connection, batch)

    def _begin_as_planned(self, plan: TypeMapping) -> Connection | None:
        """Begin in one round trip with an existing plan. Return ``None`` if the table has changed."""
        name, stamp = plan.table.name, plan.table.stamp
        if not stamp:
            return None
        first = (schema.locking(name), schema.stamping(name))
        try:
            connection, stamps = self._transactions.begin_with(self._session, self._transactions.lock_seconds, *first)
        except Exception as error:
            failure = errors.read(error)
            if failure is None or failure.state != errors.NO_SUCH_TABLE:
                raise
            return None
        if stamps == [stamp]:
            return connection
        self._transactions.drop(connection)
        return None

    def _stream(
        self, connection: Connection, plan: TypeMapping, epoch: int, rows: Iterable[pa.RecordBatch], waiting_in: str
    ) -> PostgresPrepared:
        merge = self.target.merge
        # What the table still lacks is made by the commit: made here, it would keep everybody else out until then.
        waits = bool(merge.key) or not plan.table.oid or bool(plan.added)
        relation = staging.create_temporary(connection, plan, waiting_in) if waits else plan.table.name.sql
        constants = {} if waits else _constants(plan, epoch)
        copy = statement(relation, [*plan.columns, *constants])
        encoder = Encoder(plan, constants)
        with raw(connection).cursor() as cursor:
            count = copy_in(cursor, copy, encoder, rows)
        if count != encoder.sent.rows:
            raise self._other_number(connection, plan, epoch, written=count, sent=encoder.sent.rows)
        waiting = staging.temporary(relation, plan) if waits else None
        if waiting:
            upsert.check_rows(connection, self.target.writer.sink, waiting, merge)
        return PostgresPrepared(plan, count, lambda: self._transactions.drop(connection), connection, waiting)

    def _other_number(
        self, connection: Connection, plan: TypeMapping, epoch: int, *, written: int, sent: int
    ) -> OnceOnlyError:
        """Explain why the server took another number of rows. The plan may miss a part that was added deeper."""
        sink, parts = self.target.writer.sink, obstacles.parts(connection, plan.table.oid)
        if written < sent and obstacles.triggers_of(parts, obstacles.INSERT):
            return obstacles.kept_back(sink, parts, obstacles.INSERT, epoch, sent - written)
        return refuse("E510", sink=sink, written=written, epoch=epoch, counted=sent)

    def stage(self, batch: Batch, epoch: int) -> PostgresPrepared:
        """Let executors write the rows into a staging table."""
        writer = self.target.writer
        name = staging.new_name(writer.tag, self._fence.generation, epoch)
        with self._transactions.reading() as connection:
            plan = self.target.plan(connection, batch.schema)
            server = self.target.server.resolved(raw(connection))
        self._short(lambda connection: staging.create(connection, name, plan))
        try:
            task = staging.StageTask(writer.sink, server, self._session, name, plan, self.target.address)
            answers = batch.on_executors(task)
            rows = staging.take(writer.sink, answers)
            waiting = staging.waiting(name, plan, answers)
            with self._transactions.reading() as connection:
                upsert.check_rows(connection, writer.sink, waiting, self.target.merge)
        except BaseException:
            self._forget(name)
            raise
        return PostgresPrepared(plan, rows, lambda: self._forget(name), waiting=waiting, proven=False)

    def _short(self, act: Callable[[Connection], None]) -> None:
        """Run a housekeeping transaction. If it is lost, the next sweep repeats it."""
        connection = self._transactions.begin(self._session, _HOUSEKEEPING_SECONDS)
        try:
            act(connection)
            connection.commit()
        finally:
            self._transactions.drop(connection)

    def _forget(self, name: str) -> None:
        try:
            self._short(lambda connection: staging.drop(connection, name))
        except Exception as error:
            if errors.read(error) is None:
                raise
            log.info("%s: staging table %s is left to the next sweep", self.target.writer.sink, name)

    def sweep(self) -> None:
        """Drop staging tables of lower generations. One that is still locked is left to the next sweep."""
        tag = self.target.writer.tag
        with self._transactions.reading() as connection:
            staging_tables = [(name, staging.generation_of(name, tag)) for name in staging.names(connection)]
        for name, generation in staging_tables:
            if generation is not None and generation < self._fence.generation:
                self._forget(name)


def _constants(plan: TypeMapping, epoch: int) -> dict[str, pa.Scalar[Any]]:
    import pyarrow as pa

    column = plan.table.epoch_column
    return {column: pa.scalar(epoch, pa.int64())} if column else {}


def _capped(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in batches:
        size += batch.nbytes
        if limit is not None and size > limit:
            raise TooLarge
        yield batch
