"""Postgres sink: rows, marker and ledger record in one transaction.

The ledger's record joins the transaction if the ledger is in the same database.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly import faults, protocol
from onceonly.errors import refuse
from onceonly.errors.options import Column, Columns, checks_arguments, misused, typed
from onceonly.faults import Point
from onceonly.protocol.batch import AsOf
from onceonly.protocol.capabilities import SeenIdsStore, Span, StateRow, StateWanted
from onceonly.protocol.guard import elsewhere
from onceonly.protocol.row_rules import Check
from onceonly.protocol.sink import check_prepared_by
from onceonly.protocol.values import Changes, Names
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt
from onceonly_sinks.postgres import commit, head, prune, transaction
from onceonly_sinks.postgres import schema as survey
from onceonly_sinks.postgres.load import Loader, PostgresPrepared, TooLarge
from onceonly_sinks.postgres.options import (
    KEEP,
    TUNING,
    Keep,
    Options,
    PostgresTuning,
    SchemaChange,
    merge_of,
    read_options,
)
from onceonly_sinks.postgres.reader import Handle
from onceonly_sinks.postgres.server import NAME_BYTES, Server, TableName, address_of, read_address
from onceonly_sinks.postgres.transaction import raw
from onceonly_sinks.sql.tables import peek_target

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from typing_extensions import Self

    from onceonly_sinks.postgres.apply_sql import Apply
    from onceonly_sinks.postgres.seen_ids import SeenIdsLookup

_READERS = "nothing to do: an ordinary SELECT sees whole epochs, as each is one transaction"

_TIMEOUTS = ("commit_timeout", "lock_timeout")


@checks_arguments
class PostgresSink(Handle, SeenIdsStore, protocol.JoinsTransaction, protocol.ReplacesRows, protocol.HostsStores):
    """Writes each epoch and its marker to Postgres in one transaction.

    Rows are appended, upserted with ``key=``, or written by your own SQL with ``apply=``.

    Rows are loaded by a binary COPY: small epochs through the driver, large ones by executors into a staging table. The
    sink does not see changes by other programs in between (TRUNCATE, DELETE, UPDATE). When it opens, it only notices
    that the newest epoch has no row left. ``onceonly audit`` recounts the rows.

    ``apply(cursor, staged, epoch)`` is called once for each epoch that has rows. The call is in the marker's
    transaction, after the rows were loaded and before the commit. ``cursor`` is a psycopg cursor of that transaction.
    ``staged`` is a ``psycopg.sql.Identifier`` and gives its quoted name in an f-string. It names a table with the
    epoch's rows and the batch's columns, in the types that the sink would create. ``epoch`` is the epoch's number.

    The function's writes are there exactly if the epoch is. The sink calls the function again for an epoch that was not
    committed. So the function must leave the transaction open (COMMIT and ROLLBACK are refused) and touch nothing
    outside of it. Make deferred constraints immediate by name, not with ALL: the sink holds one open that refuses a
    COMMIT. The sink still looks for identity and rows in ``table``. The function writes to it, never replaces it, and
    creates it if need be. It is part of your program, so ``onceonly recover resolve`` leaves such a sink to the query's
    restart. ::

        def latest(cursor, staged, epoch):
            cursor.execute(f"INSERT INTO stock SELECT item, count FROM {staged} ON CONFLICT (item) DO UPDATE ...")

        PostgresSink(dsn, table="stock", apply=latest)

    Args:
        dsn: libpq URL or key-value string. Prefer PGPASSWORD or ``~/.pgpass`` for the password.
        table: ``table`` or ``schema.table``, exactly as in the catalogue. The first epoch creates a missing table.
        key: columns that identify a row. The table needs a unique index on exactly these.
        sequence: column that orders the changes of a key. A lower value changes nothing. Of two equal ones the later
            epoch wins, and within one epoch they are refused (E505).
        delete_flag: boolean column of the batch. A row with true removes its key, under the same rule of ``sequence``.
            The column is not stored. Without ``Keep(tombstones=)`` nothing of a removed key is stored either, so an
            older change in a later epoch brings it back.
        schema: ``fail`` refuses a batch with columns that the table lacks. ``add_columns`` adds them, nullable, in the
            transaction of the first epoch that has rows with them. A column's type is never changed.
        apply: function that brings the rows into the table. Not together with ``key``, ``schema`` or
            ``PostgresTuning(epoch_column=)``.
        order: column by which appended rows are inserted, so that an identity column counts them in that order, or
            ``source`` for the offsets of the topic that is read. One task then reads each epoch.
        check_table: conditions on the whole table after each epoch that has rows, by name, in the server's SQL:
            ``{"balanced": "sum(amount) = 0"}``. They are evaluated in the epoch's transaction, also over other tables
            that it writes. One that is not true refuses the epoch (E531), so the first transaction of a call has such
            tables. Each reads the table: index what it needs.
        id: the sink's id, if one pipeline writes to one table twice. Default ``postgres:<table>``.
        sealed_view: whether a view ``<table>_sealed`` hides an epoch until all sinks of the pipeline hold it, for
            readers in SQL. One statement over several such views of a database sees one epoch. Needs an append or
            ``Keep(history=)``. While the view exists, its columns keep their types.
        keep: how long markers, replaced rows and removed keys are kept.
        tuning: the way of the rows, and the longest waits.

    Raises:
        ConfigurationError: E108 a package is missing, E110 the arguments do not fit together.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: Columns | None = None,
        sequence: Column | None = None,
        delete_flag: Column | None = None,
        schema: SchemaChange = "fail",
        apply: Apply | None = None,
        order: Column | None = None,
        check_table: Mapping[str, str] | None = None,
        id: str | None = None,
        sealed_view: bool = False,
        keep: Keep = KEEP,
        tuning: PostgresTuning = TUNING,
    ) -> None:
        merge = merge_of(key, sequence, delete_flag, keep, order)
        checks = tuple(Check(name, sql) for name, sql in (check_table or {}).items())
        options = Options(merge, schema, apply, sealed_view, keep, tuning, checks)
        self._set_up(Server.parse(dsn), TableName.parse(table), options, id)

    @classmethod
    def _of(cls, server: Server, name: TableName, options: Options, id: str | None) -> Self:
        sink: Self = object.__new__(cls)
        sink._set_up(server, name, options, id)
        return sink

    def _set_up(self, server: Server, name: TableName, options: Options, id: str | None) -> None:
        options.check_names(name)
        Handle.__init__(self, server, name, options, id)
        self._fence: Fence | None = None
        self._recorded = 0
        self._loader: Loader | None = None

    def __repr__(self) -> str:
        public = {**self._arguments, "dsn": self._server.public}
        return typed(type(self).__name__, PostgresSink.__init__, public) if self._arguments else super().__repr__()

    @property
    def address(self) -> str:
        """Connection string without secrets, table, and options that differ from the defaults."""
        id_ = None if self._id == f"postgres:{self._name.text}" else self._id
        return address_of(self._server, self._name, self._options.texts(id_, PostgresSink.__init__))

    @property
    def capabilities(self) -> protocol.Capabilities:
        """Report that an append with an epoch column can be recounted, and that the ledger can join the transaction."""
        append, merge = self._options.append, self._options.merge
        recountable = append and self._options.tuning.epoch_column is not None
        return protocol.Capabilities(
            append,
            recountable,
            True,
            committer=f"transaction{''.join(f', if {check.name}: {check.sql}' for check in self._options.checks)}",
            readers=_READERS,
            dangers=self._dangers(),
            names=Names(most=NAME_BYTES),
            changes=Changes(merge.key, merge.sequence, merge.delete, remembers=bool(merge.tombstones)),
            order=merge.order or "",
            judges=bool(self._options.checks),
        )

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a sink again for reading. The password comes from PGPASSWORD or ``~/.pgpass``.

        Raises E110: not an address of a Postgres sink.
        """
        dsn, table, texts = read_address(address)
        id_, options = read_options(texts, PostgresSink.__init__)
        return cls._of(Server.parse(dsn), TableName.parse(table), options, id_)

    def table(self, name: str, *, tuning: PostgresTuning = TUNING, **options: Any) -> Self:
        """Return a sink for another table of this database. In one query the two commit in one transaction.

        A timeout that ``tuning`` leaves at its default is that of this sink. Raises E110: as by the class.
        """
        left = [name for name in _TIMEOUTS if getattr(tuning, name) == getattr(TUNING, name)]
        tuning = replace(tuning, **{name: getattr(self._options.tuning, name) for name in left})
        return type(self)(self._server.dsn, name, tuning=tuning, **options)

    def seen_ids_store(self, seconds: int) -> Self:
        """Return this table as one of seen ids. Raises E122: the sink has options for other rows."""
        options = self._options
        if not options.unsaid:
            problem = f"{self._id} was given options of its table"
            remedy = f'give the table alone: store=pg.table("{self._name.text}")'
            raise refuse("E122", problem=problem, next=remedy)
        return self._of(self._server, self._name, options.for_ids(seconds), self._id)

    def lookup(self, as_of: AsOf) -> SeenIdsLookup:
        """Return a lookup of seen ids for executors. Raises E501, E506 or E508: no answer, or no such table."""
        from onceonly_sinks.postgres import seen_ids

        session = self._writer.session(self._installed_fence)
        with self._refusals(), self._transactions.reading() as connection:
            table = self._aim.plan(connection, seen_ids.columns()).table
            server = self._server.resolved(raw(connection))
        name = table.name if table.oid else None
        return seen_ids.SeenIdsLookup(self._id, server, session, name, self.address, as_of, self._options.merge.keeps)

    def window_store(self, *, separate: bool) -> Self:
        """Return a table for the state of windows, beside this one or this very one (see ``HostsStores``).

        Raises E143: the sink has options for other rows, or the table's name would be too long.
        """
        options = self._options
        if not (separate or options.unsaid):
            problem = f"{self._id} was given options of its table"
            remedy = f'give the table alone: state_sink=pg.table("{self._name.text}")'
            raise refuse("E143", problem=problem, next=remedy)
        from onceonly_sinks.postgres import window_state

        name, id_ = (window_state.state_table_name(self._name), None) if separate else (self._name, self._id)
        return self._of(self._server, name, options.for_state(), id_)

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        """Read the wanted rows of window state (see ``WindowStore``).

        Raises E501, E506 or E508: no answer, or no such table. Raises E226: a row is of this epoch or a later one.
        """
        from onceonly_sinks.postgres import window_state

        with self._refusals(), self._transactions.reading() as connection:
            table = self._aim.plan(connection, window_state.columns()).table
            return window_state.recall(connection, table, self._id, request, as_of)

    # ---- opening

    def fence(self) -> Fence | None:
        """Read the newest installed fence, without a lock."""
        with self._refusals(), self._transactions.reading() as connection:
            return head.newest_fence(connection, self._writer)

    def look(self) -> protocol.Peek:
        """Read the head's epoch, or whether there are rows without one, without a lock."""
        with self._refusals(), self._transactions.reading() as connection:
            newest = partial(head.newest_epoch, connection, self._writer)
            return peek_target(newest, partial(survey.has_any_row, connection, self._aim.name))

    def install(self, fence: Fence) -> None:
        """Create our tables, and make ``fence`` the newest if it is strictly greater or already installed."""
        self._install(fence)

    def _install(self, fence: Fence, then: Callable[[Connection], None] | None = None) -> None:
        with self._refusals():
            transaction.install(self._transactions, self._writer, fence, self._create, then)
        self._fence = fence
        self._loader = Loader(self._aim, fence, self._transactions)

    def content_epoch(self) -> int | None:
        """Return the newest epoch's number, or that of rows that others restored. Without rows it is 0.

        ``None`` if the rows belong to no epoch, are not only added, or come from the user's function.
        """
        with self._refusals(), self._transactions.reading() as connection:
            return self._content(connection)

    def _content(self, connection: Connection) -> int | None:
        head_row = head.read(connection, self._writer) if head.exists(connection) else None
        if head_row is None:
            return None
        now, old_identity = self._table_identity(connection), head_row.target_identity.identity
        if (not old_identity or now.identity_now(old_identity) == old_identity) and not self._lacks_newest(
            connection, head_row
        ):
            return head_row.epoch
        if self._options.apply:
            return None
        if not (now.oid and survey.has_rows(connection, self._aim.name)):
            return 0
        table = self._table(connection) if self._options.append else None
        if table is None:
            return None
        from onceonly_sinks.postgres import replace_rows

        return replace_rows.content(connection, self._aim, table)

    def _lacks_newest(self, connection: Connection, head_row: head.Head) -> bool:
        """Whether no row of the newest epoch is there. Always false unless the sink only appends."""
        newest = head.epoch_at(connection, self._writer, head_row.epoch) if self._options.append else None
        if newest is None:
            return False
        from onceonly_sinks.postgres import replace_rows

        return replace_rows.rows_gone(connection, self._aim, head_row.target_identity.oid, newest[1])

    def reset_to(self, fence: Fence, epoch: int) -> None:
        """Make ``fence`` the newest, and delete the markers of missing rows (see ``ReplacesRows``)."""
        from onceonly_sinks.postgres import replace_rows

        def stand(connection: Connection) -> None:
            head.read(connection, self._writer, lock="FOR UPDATE")
            if (holds := self._content(connection)) != epoch:
                raise elsewhere(self._id, epoch, holds)
            replace_rows.stand(connection, self._aim, epoch, self._table_identity(connection))

        self._install(fence, stand)

    def _create(self, connection: Connection) -> None:
        """Create our missing tables and the view, in the transaction of a fence."""
        head.create(connection)
        if self._keep_ms:
            from onceonly_sinks.postgres import expiry

            expiry.create(connection)
        if self._options.sealed_view and (table := self._aim.look(connection)):
            if head.shared(connection, self._writer, table.oid):
                problem = f"sealed_view=True of {self._id}, to whose table another sink writes too"
                cause = "both number rows by epoch, so the number does not say whose epoch it is"
                raise misused(f"{problem}.", cause, "write to a table of its own")
            from onceonly_sinks.postgres import history

            history_made = history.history_span(connection, self._writer, table) is not None
            if history_made or not self._options.merge.history:
                self._aim.show(connection, table)

    def position(self, since: Receipt | None) -> protocol.Position:
        """Return the sink's head, identity and disturbances, under our fence.

        Raises E508 if our fence is not installed.
        """
        fence = self._installed_fence
        self._recorded = since.epoch if since else 0
        with self._refusals(), self._transactions.reading() as connection:
            head_row = head.read(connection, self._writer)
            refused = head.fenced(head_row, fence, self._id)
            if refused is not None or head_row is None:
                raise refused or AssertionError("there is a fence without a head")
            newest = head.epoch_at(connection, self._writer, head_row.epoch) if head_row.epoch else None
            now = self._table_identity(connection)
            rows = bool(now.oid) and survey.has_rows(connection, self._aim.name)
            receipt = since or (newest[1] if newest else None)
            disturbances = self._disturbances(connection, receipt, now, newest[1] if newest else None)
        identity = now.identity_now(receipt.identity if receipt else "")
        return protocol.Position(fence, newest[0] if newest else None, head_row.epoch, identity, rows, disturbances)

    # ---- writing

    def prepare(self, batch: protocol.Batch, epoch: int) -> PostgresPrepared:
        """Bring the rows into an open transaction or a staging table.

        Raises E501 to E530: the table cannot take the rows, and none of them is left. Raises ``Superseded``: a newer
        driver ended our session, or took our staging away. Raises ``Conflict``: another session blocked the write, and
        a retry may succeed.
        """
        return self._prepared(batch, epoch)

    def cannot_replace(self, span: Span) -> str:
        """Explain why rows of epochs are not distinguishable or deletable in the table, or empty if they are both."""
        from onceonly_sinks.postgres import replace_rows

        with self._refusals(), self._transactions.reading() as connection:
            return replace_rows.obstacle(connection, self._aim, span)

    def prepare_replacement(self, batch: protocol.Batch, epoch: int, span: Span) -> PostgresPrepared:
        """As :meth:`prepare`. Rows through the driver come after the rows of ``span`` are deleted.

        Raises E247: they are not distinguishable from others, or some of them stay.
        """
        return self._prepared(batch, epoch, span)

    def can_join(self, other: protocol.Sink) -> bool:
        """Whether database, login and timeouts are the same. A sink with ``apply`` never shares a transaction."""
        if not isinstance(other, PostgresSink) or self._options.apply or other._options.apply:
            return False
        ours, theirs = self._options.tuning, other._options.tuning
        return self._server == other._server and all(getattr(ours, name) == getattr(theirs, name) for name in _TIMEOUTS)

    def fits_in_driver(self, size: protocol.Estimate) -> bool:
        """Whether it is no larger than ``driver_limit``. Always false with ``load="executors"``."""
        return self._options.in_memory(size)

    def prepare_joined(
        self,
        batch: protocol.Batch,
        epoch: int,
        siblings: Sequence[tuple[protocol.Sink, protocol.Prepared]],
        span: Span | None = None,
    ) -> PostgresPrepared:
        """As :meth:`prepare`, in the transaction of the others if they have opened one."""
        ready = [(_own_kind(sink), check_prepared_by(rows, PostgresPrepared)) for sink, rows in siblings]
        within = next((rows.connection for _, rows in ready if rows and rows.connection), None)
        with self._fenced_in_any([sink for sink, _ in ready]):
            return self._prepared(batch, epoch, span, within)

    def _prepared(
        self, batch: protocol.Batch, epoch: int, span: Span | None = None, within: Connection | None = None
    ) -> PostgresPrepared:
        with self._translator.attempt(self._fenced, self._types):
            prepared = self._load(batch, epoch, span, within)
        try:
            faults.fire(Point.PREPARE_SENT)
        except BaseException:
            prepared.abandon()
            raise
        return prepared

    def _fenced(self, head_row: head.Head | None) -> Exception | None:
        return head.fenced(head_row, self._installed_fence, self._id)

    @contextmanager
    def _fenced_in_any(self, others: Sequence[PostgresSink]) -> Generator[None]:
        """Within, a rolled back transaction counts as superseded if one of the others is fenced.

        A newer driver installs its fence in one sink after the other. With the first, it ends the session that all of
        them write in.
        """
        try:
            yield
        except protocol.Conflict:
            for sink in others:
                if (refused := sink._translator.against(sink._fenced)) is not None:
                    raise refused from None
            raise

    def _load(
        self, batch: protocol.Batch, epoch: int, span: Span | None, within: Connection | None
    ) -> PostgresPrepared:
        loader = self._loader
        if loader is None:
            raise RuntimeError("install a fence before an epoch is prepared")
        if self._options.through_driver(batch.estimate):
            try:
                # What lies still has been measured; given up, it would take the rows of the others along.
                limit = self._options.limit if within is None else None
                return loader.load(batch, epoch, limit, partial(self._clear, span) if span else None, within)
            except TooLarge:
                pass  # rolled back: the estimate was too low, executors do it
        return loader.stage(batch, epoch)

    def _clear(self, span: Span, connection: Connection) -> Span:
        from onceonly_sinks.postgres import replace_rows

        replace_rows.clear(connection, self._aim, span)
        return span

    def commit(
        self, prepared: protocol.Prepared | None, marker: Marker, ledger: protocol.Recorder | None = None
    ) -> Receipt:
        """Commit rows and marker in one transaction, if our fence and the previous chain still hold.

        Raises E207, E208 or E210 if the epoch does not follow this sink or table. After E501 to E519 and ``Conflict``
        nothing was written.
        """
        return self.commit_joined(prepared, marker, (), ledger)[0]

    def commit_joined(
        self,
        prepared: protocol.Prepared | None,
        marker: Marker,
        siblings: Sequence[tuple[protocol.Sink, protocol.Prepared | None, Marker]],
        ledger: protocol.Recorder | None = None,
    ) -> tuple[Receipt, ...]:
        """As :meth:`commit`, with the rows and markers of other sinks in the same transaction."""
        joined = [
            (self, prepared, marker),
            *((_own_kind(sink), rows, sink_marker) for sink, rows, sink_marker in siblings),
        ]
        parts = [(sink, check_prepared_by(rows, PostgresPrepared), sink_marker) for sink, rows, sink_marker in joined]
        open_ = next((rows.connection for _, rows, _ in parts if rows and rows.connection), None)
        receipts: tuple[Receipt, ...] = ()
        with self._fenced_in_any([sink for sink, _, _ in parts]):
            ids = frozenset(sink_marker.sink for _, _, sink_marker in parts)
            for sink, rows, sink_marker in parts:
                open_, receipt = sink._fill(open_, rows, sink_marker, ids)
                receipts = (*receipts, receipt)
            assert open_ is not None
            with self._translator.attempt(lambda read_head: head.judge(read_head, marker), dict):
                for sink, rows, _ in parts:
                    checks = sink._options.checks if rows and rows.rows else ()
                    commit.check_table(self._transactions, open_, sink._name, checks, marker)
                commit.send(self._transactions, open_, marker, receipts, ledger)
        for sink, rows, sink_marker in parts:
            if rows is not None:
                rows.abandon()
            sink._prune(sink_marker)
        return receipts

    def _fill(
        self, within: Connection | None, rows: PostgresPrepared | None, marker: Marker, sinks: frozenset[str]
    ) -> tuple[Connection, Receipt]:
        types = rows.plan.types if rows else {}
        with self._translator.attempt(lambda head_row: head.judge(head_row, marker), lambda: types):
            session = self._writer.session(marker.fence)
            connection = within or self._transactions.begin(session, self._transactions.lock_seconds)
            return connection, commit.write_epoch(connection, self._transactions, self._aim, rows, marker, sinks=sinks)

    def seal(self, epoch: Epoch, pinned: int | None) -> None:
        """Show an epoch in the view once all sinks hold it, and delete history that is old and not pinned."""
        if pinned is not None and (keep := self._aim.merge.keep_history):
            from onceonly_sinks.postgres import history

            first = min(epoch.number - keep, pinned or epoch.number)
            history.trim(self._transactions, self._writer, self._installed_fence, self._aim.name, first)
        if self._options.sealed_view and commit.sealed_by(epoch, frozenset({self._id})) < epoch.number:
            from onceonly_sinks.postgres import sealed_views

            sealed_views.seal(self._transactions, self._writer, epoch)

    def _prune(self, marker: Marker) -> None:
        epoch = marker.epoch.number
        markers = self._options.keep.markers
        if markers != "all" and prune.due(epoch):
            upto = prune.last_to_go(epoch, markers, self._recorded)
            prune.prune(self._transactions, self._writer, marker.fence, upto)
        self._recorded = epoch  # by the next commit: an epoch is recorded before the next one is committed

    def look_up(self, marker: Marker) -> Receipt | None:
        """Find out whether an epoch was committed. Afterwards it cannot be committed any more."""
        self._transactions.close()
        return transaction.look_up(self._transactions, marker)

    def sweep(self) -> None:
        """Drop staging tables of lower generations."""
        if self._loader is not None:
            with self._refusals():
                self._loader.sweep()

    def _dangers(self) -> tuple[str, ...]:
        """Guarantees that this server or these options take away."""
        allowed = "triggers of the table change rows before they are written; audit --deep compares them as they are"
        unseen = self._target.visibility.lost if self._target else ()
        return (*([allowed] if self._options.tuning.triggers == "allow" else []), *unseen)

    @property
    def _installed_fence(self) -> Fence:
        if self._fence is None:
            raise RuntimeError("install a fence first")
        return self._fence

    def _types(self) -> Mapping[str, str]:
        plan = self._loader.plan if self._loader else None
        return plan.types if plan else {}


def _own_kind(sink: protocol.Sink) -> PostgresSink:
    if not isinstance(sink, PostgresSink):
        raise TypeError(f"{type(sink).__name__} shares no transaction with a Postgres sink")
    return sink
