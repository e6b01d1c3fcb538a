"""Open a Postgres sink and read its table without writing."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError
from onceonly.protocol import DetectsChanges, HasConstraints, Inspectable, ReadsRows
from onceonly.protocol.capabilities import OpenWindow, Span, WindowStore
from onceonly.protocol.values import ExpiredRows, ExternalChange, Leaves, PrunedEpochs, Total
from onceonly_checkpoints.epoch import Epoch, Marker, Receipt
from onceonly_sinks.postgres import errors, head
from onceonly_sinks.postgres import schema as survey
from onceonly_sinks.postgres.error_translation import ErrorTranslator
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.load import Target
from onceonly_sinks.postgres.options import Options
from onceonly_sinks.postgres.server import Server, TableName
from onceonly_sinks.postgres.transaction import Transactions, raw

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy import Connection

    from onceonly.protocol.health import Check, Observed
    from onceonly.protocol.row_rules import Rule
    from onceonly_sinks.postgres.read_at import CurrentTable, Selection

_PAGE = 500

_LOOKED_AT = 16
"""Newest epochs among which one that brought ids is looked for."""


class Handle(WindowStore, ReadsRows, DetectsChanges, HasConstraints, Inspectable):
    """Opens the target, and reads it without a fence: for audits, the doctor and other reading commands.

    ``id`` is ``None`` for an id that is made of the table's name.
    """

    def __init__(self, server: Server, name: TableName, options: Options, id: str | None) -> None:
        super().__init__(id or f"postgres:{name.text}")
        self.named = id is not None
        self._server = server
        self._name = name
        self._options = options
        self._open: Transactions | None = None
        self._saying: ErrorTranslator | None = None
        self._target: Target | None = None
        self._keep_ms = 0

    @property
    def ledger_url(self) -> str | None:
        """SQLAlchemy URL of the target's database, with its secrets."""
        return self._server.url

    def use_ledger_login(self, ledger: str) -> None:
        """Take the password of a ledger in this very database under this very user."""
        with suppress(OnceOnlyError):
            self._server = self._server.with_secrets_of(Server.parse(ledger))

    # ---- opening

    def open(self, pipeline: str) -> None:
        """Connect and check that rows can be written there. Creates nothing.

        Raises:
            DestinationError: E501 no answer, E502 login refused, E507 read-only, E508 no schema, or not such a table.
        """
        self.close()
        super().open(pipeline)
        context = errors.Context(self._id, self.address)
        tuning = self._options.tuning
        self._open = Transactions(self._server, context, tuning.commit_timeout, tuning.lock_timeout)
        self._saying = ErrorTranslator(self._open, self._writer, self._name, context)
        with self._refusals(), self._open.reading() as connection:
            name = survey.check(connection, self._id, self._name)
            target = self._aiming_at(name)
            target.look(connection)
            if self._keep_ms:
                from onceonly_sinks.postgres import replace_rows

                if refused := replace_rows.expiry_obstacle(connection, target):
                    raise refused
            target = replace(target, visibility=head.visibility(connection))
        self._target = self._translator.target = target

    def expire_after(self, milliseconds: int) -> bool:
        """From the next opening on, remove rows of epochs that were planned longer ago than this, by their clock."""
        self._keep_ms = milliseconds
        return True

    def place(self) -> str:
        """Server, database, schema and table. The server is its system identifier, else the host and port in use."""
        with self._refusals(), self._transactions.reading() as connection:
            system, at = head.table_identity(connection, 0, self._aim.visibility).system, raw(connection).info
            server = f"{at.host}:{at.port}" if system == head.UNSEEN else system
            return f"postgres:{server}/{at.dbname}.{self._aim.name.text}"

    def identity_now(self, recorded: str) -> str:
        """The server's and the table's identity, as far as the server shows them, empty if there is no table."""
        with self._refusals(), self._transactions.reading() as connection:
            return self._table_identity(connection).identity_now(recorded)

    # ---- reading

    def row_rules(self, columns: pa.Schema) -> Sequence[Rule]:
        """Rules of the table, or of the one that would be made, for values of these columns.

        Raises:
            DestinationError: E506, E508: it cannot take such columns.
        """
        from onceonly_sinks.postgres import bad_rows

        with self._refusals(), self._transactions.reading() as connection:
            plan = self._aim.plan(connection, columns)
        return bad_rows.of(plan, columns, self._options.merge)

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first."""
        while True:
            with self._refusals(), self._transactions.reading() as connection:
                has_tables = head.exists(connection)
                page = head.epochs_after(connection, self._writer, after, _PAGE) if has_tables else []
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1][0].epoch.number

    def pruned_epochs(self) -> PrunedEpochs | None:
        """Summary of the epochs whose markers are gone."""
        from onceonly_sinks.postgres import prune

        with self._refusals(), self._transactions.reading() as connection:
            return prune.milestone(connection, self._writer)

    def expired_rows(self) -> ExpiredRows | None:
        """Rows removed as older than :meth:`expire_after`. A table of ids gives those that no longer count."""
        from onceonly_sinks.postgres import expiry, seen_ids

        with self._refusals(), self._transactions.reading() as connection:
            if not self._options.merge.keeps:
                return expiry.expired(connection, self._writer)
            table, newest = self._table(connection), self._newest(connection)
            if table is None or newest is None:
                return None
            before_ms = seen_ids.since(connection, table, newest, self._options.merge.keeps)
            return ExpiredRows(newest.number, newest.digest_in(self._id).rows, 0, before_ms)

    def recount(self) -> Mapping[int, int] | None:
        """Rows per epoch, counted in the table. A table of ids counts those that are still known.

        ``None`` if rows are not only added, if there is no epoch column, or if another sink numbers rows there too.
        """
        keep_seconds = self._options.merge.keeps
        if not (self._options.append or keep_seconds):
            return None
        with self._refusals(), self._transactions.reading() as connection:
            table = self._table(connection)
            if table is None:
                return {}
            if keep_seconds:
                from onceonly_sinks.postgres import prune, seen_ids

                newest, gone = self._newest(connection), prune.milestone(connection, self._writer)
                after = gone.epoch if gone else 0
                return seen_ids.recount(connection, table, newest, keep_seconds, after) if newest else {}
            return survey.recount(connection, table, column) if (column := self._numbers(connection, table)) else None

    def total(self) -> Total:
        """All rows of the table, by the epoch that wrote them last if we alone number them."""
        merge = self._options.merge
        removes = bool(self._options.apply or merge.delete or self._options.tuning.triggers == "allow")
        leaves = Leaves.by(sequence=bool(merge.sequence), removes=removes)
        with self._refusals(), self._transactions.reading() as connection:
            table = self._table(connection)
            column = self._numbers(connection, table) if table else None
            written = survey.recount(connection, table, column) if table and column else None
            rows = survey.rows(connection, table.name) if table and written is None else sum((written or {}).values())
        return Total(rows, leaves, written)

    def read_with_spark(self, spark: SparkSession) -> DataFrame | None:
        """The rows of an append with their epochs, or ``None`` without an epoch column, or if types do not return."""
        if not self._options.append:
            return None
        with self._refusals(), self._transactions.reading() as connection:
            table = self._table(connection)
            if table is None or not self._numbers(connection, table):
                return None
            server = self._server.resolved(raw(connection))
            from onceonly_sinks.postgres import read_at

            return read_at.read_back(connection, server, table, spark)

    def read_by_epoch(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """The rows of an append by epoch, in its order, or ``None`` if :meth:`recount` returns ``None`` too."""
        return self._numbered(span) if self._options.append else None

    def read_current(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """The rows of an upsert by the epoch that wrote them last, or ``None`` for an append or without that column."""
        return None if self._options.append else self._numbered(span)

    def _numbered(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        with self._refusals(), self._transactions.reading() as connection:
            table = self._table(connection)
            column = self._numbers(connection, table) if table else None
        return self._rows_of(table, column, span) if table and column else None if table else iter(())

    def _rows_of(self, table: survey.Table, column: str, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]]:
        from onceonly_sinks.postgres import read_at

        with self._refusals(), self._transactions.reading() as connection:
            yield from read_at.of(connection, table, column, span)

    def check_at(self, at: Receipt, since: Receipt | None = None) -> None:
        """Check that rows can be read as of an epoch (see ``ReadsRows``). Raises E501 or E508 without an answer."""
        with self._selected(at, since):
            pass

    def read_at(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Rows as of an epoch, of one snapshot. Types that Arrow lacks come as text. Raises as :meth:`check_at`."""
        from onceonly_sinks.postgres import read_at

        with self._selected(at, since) as (connection, selection):
            return read_at.read(connection, selection)

    def frame_at(self, spark: SparkSession, at: Receipt, since: Receipt | None = None) -> DataFrame:
        """Rows as of an epoch, by Spark. Types that Spark lacks come as text. Raises as :meth:`check_at`."""
        from onceonly_sinks.postgres import read_at

        with self._selected(at, since) as (connection, selection):
            return read_at.frame(spark, connection, self._server, selection)

    def select_at(self, at: Receipt, since: Receipt | None = None) -> str:
        """The statement that reads the rows as of an epoch, raises as :meth:`check_at`.

        For a table that keeps only the newest rows, it is right until the next epoch.
        """
        with self._selected(at, since) as (_, selection):
            return selection.sql

    def read_changes(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Versions of rows that later epochs began and ended, of one snapshot. Raises as :meth:`check_at`."""
        from onceonly_sinks.postgres import read_at

        if not self._options.merge.key:
            return super().read_changes(at, since)
        with self._current() as (connection, sink):
            return read_at.read_changes(connection, sink, at, since)

    @contextmanager
    def _selected(self, at: Receipt, since: Receipt | None) -> Generator[tuple[Connection, Selection]]:
        from onceonly_sinks.postgres import read_at

        with self._current() as (connection, sink):
            yield connection, read_at.select(connection, sink, at, since)

    @contextmanager
    def _current(self) -> Generator[tuple[Connection, CurrentTable]]:
        from onceonly_sinks.postgres import read_at

        with self._refusals(), self._transactions.reading(snapshot=True) as connection:
            table, table_identity = self._table(connection), self._table_identity(connection)
            yield connection, read_at.CurrentTable(table, table_identity, self._writer, self._options)

    def count_windows(self, since: int) -> int:
        """Number of open windows (see ``WindowStore``). Raises E501 or E508: no answer."""
        from onceonly_sinks.postgres import window_state

        with self._refusals(), self._transactions.reading() as connection:
            table = self._table(connection)
            return window_state.count(connection, table, since) if table else 0

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> Iterator[OpenWindow]:
        """Open windows (see ``WindowStore``). Raises E501 or E508: no answer."""
        from onceonly_sinks.postgres import window_state

        with self._refusals(), self._transactions.reading() as connection:
            if table := self._table(connection):
                yield from window_state.open_windows(connection, table, since, key, limit)

    def external_changes(self, since: Receipt | None) -> tuple[ExternalChange, ...]:
        """Changes by others since a receipt: table recreated, failover, or the newest epoch's rows gone."""
        with self._refusals(), self._transactions.reading() as connection:
            current_head = head.read(connection, self._writer) if head.exists(connection) else None
            newest = head.epoch_at(connection, self._writer, current_head.epoch) if current_head else None
            return self._disturbances(
                connection, since, self._table_identity(connection), newest[1] if newest else None
            )

    def _disturbances(
        self, connection: Connection, since: Receipt | None, table_identity: head.TableIdentity, newest: Receipt | None
    ) -> tuple[ExternalChange, ...]:
        changes = survey.disturbances(since, table_identity)
        if any(event.fatal for event in changes):
            return changes  # another table holds other rows
        if self._options.merge.keeps:
            return *changes, *self._ids_gone(connection)
        if newest is None or not self._options.append:
            return changes
        from onceonly_sinks.postgres import replace_rows

        if not replace_rows.rows_gone(connection, self._aim, table_identity.oid, newest):
            return changes
        missing = f"of the {newest.rows} rows of epoch {newest.epoch} none is there"
        return *changes, ExternalChange("deleted", missing, fatal=True)

    def _ids_gone(self, connection: Connection) -> Iterator[ExternalChange]:
        from onceonly_sinks.postgres import seen_ids

        table = self._table(connection)
        newest, _ = head.newest_epoch(connection, self._writer)
        looked = head.epochs_after(connection, self._writer, max(0, newest - _LOOKED_AT), _LOOKED_AT)
        if table is not None:
            yield from seen_ids.gone(connection, table, self._id, [marker.epoch for marker, _ in looked])

    def pipelines(self) -> list[str]:
        """Pipelines with an epoch in the table, ours among them."""
        with self._refusals(), self._transactions.reading() as connection:
            return head.writers(connection, survey.oid(connection, self._aim.name))

    def newest_markers(self) -> list[Marker]:
        """The newest marker of each pipeline with an epoch in the table, ours among them, in one snapshot."""
        with self._refusals(), self._transactions.reading() as connection:
            return head.peers(connection, survey.oid(connection, self._aim.name))

    def close(self) -> None:
        """Release connections. May repeat."""
        if self._open is not None:
            self._open.close()

    def examine(self, observed: Observed) -> Sequence[Check]:
        """Check the role's rights, the markers and the key's index. The server is checked separately.

        Raises:
            DestinationError: E501 no answer, E506 no such epoch column, E508 rows cannot be kept in it safely.
        """
        from onceonly_sinks.postgres import health

        with self._refusals(), self._transactions.reading() as connection:
            role, table = health.read(connection, self._id, self._aim)
        checks = list(health.judge(self.address, self._aim.name, self._aim.merge, role, table))
        return [*checks, *health.judge_visibility(self.address, role.role, self._aim.visibility)]

    # ---- helpers

    @property
    def _transactions(self) -> Transactions:
        if self._open is None:
            raise RuntimeError("open the sink first")
        return self._open

    @property
    def _aim(self) -> Target:
        if self._target is None:
            raise RuntimeError("open the sink first")
        return self._target

    def _aiming_at(self, name: TableName) -> Target:
        options = self._options
        grows, triggers = options.schema == "add_columns", options.tuning.triggers == "allow"
        aim = Target(
            self._server, name, options.merge, options.tuning.epoch_column, self._writer, grows, options.apply, triggers
        )
        return replace(aim, keep_ms=self._keep_ms, sealed_view=options.sealed_view)

    @property
    def _writer(self) -> PostgresHeadScope:
        return PostgresHeadScope(self.pipeline, self._id)

    def _table_identity(self, connection: Connection) -> head.TableIdentity:
        return head.table_identity(connection, survey.oid(connection, self._aim.name), self._aim.visibility)

    def _table(self, connection: Connection) -> survey.Table | None:
        return survey.inspect(connection, self._aim.name, self._id, self._options.tuning.epoch_column)

    def _newest(self, connection: Connection) -> Epoch | None:
        _, marker = head.newest_epoch(connection, self._writer)
        return marker.epoch if marker else None

    def _numbers(self, connection: Connection, table: survey.Table) -> str | None:
        """The column in which we alone number a table's rows by epoch."""
        return None if head.shared(connection, self._writer, table.oid) else table.epoch_column

    @property
    def _translator(self) -> ErrorTranslator:
        if self._saying is None:
            raise RuntimeError("open the sink first")
        return self._saying

    def _refusals(self) -> AbstractContextManager[None]:
        """Translate a failure of the database. Use it only around work that certainly did not commit."""
        return self._translator.refusals()
