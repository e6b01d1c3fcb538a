"""Postgres sink: rows, marker and ledger record in one transaction.

The ledger's record joins the transaction if the ledger is in the same database.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly import faults
from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.faults import Point
from onceonly.protocol import (
    AsOf,
    Batch,
    Capabilities,
    Changes,
    Conflict,
    Estimate,
    Names,
    Peek,
    Position,
    Prepared,
    Recorder,
    Sink,
    check_prepared_by,
)
from onceonly.protocol.capabilities import Span, StateRow, StateWanted
from onceonly.protocol.guard import elsewhere
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt
from onceonly_sinks.postgres import (
    commit,
    expiry,
    head,
    history,
    prune,
    replace_rows,
    sealed_views,
    seen_ids,
    transaction,
    window_state,
)
from onceonly_sinks.postgres import schema as survey
from onceonly_sinks.postgres.load import Loader, PostgresPrepared, TooLarge
from onceonly_sinks.postgres.options import (
    DRIVER_LIMIT,
    LOCK_TIMEOUT,
    PATIENCE,
    Holds,
    Mode,
    Options,
    SchemaChange,
    Triggers,
    Via,
    from_described,
)
from onceonly_sinks.postgres.prune import MARKERS
from onceonly_sinks.postgres.reader import Handle
from onceonly_sinks.postgres.server import NAME_BYTES, Server, TableName, read_address
from onceonly_sinks.postgres.transaction import raw
from onceonly_sinks.sql.tables import seen

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from typing_extensions import Self

    from onceonly_sinks.postgres.apply_sql import Apply

_READERS = "nothing to do: an ordinary SELECT sees whole epochs, as each is one transaction"


@checks_arguments
class PostgresSink(Handle):
    """Writes each epoch to a Postgres table in one transaction with its marker.

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
    creates it if need be. It is part of your program, so ``onceonly txn resolve`` leaves such a sink to the query's
    restart. ::

        def latest(cursor, staged, epoch):
            cursor.execute(f"INSERT INTO stock SELECT item, count FROM {staged} ON CONFLICT (item) DO UPDATE ...")

        PostgresSink(dsn, table="stock", apply=latest)

    Args:
        dsn: libpq URL or key-value string. Prefer PGPASSWORD or ``~/.pgpass`` for the password.
        table: ``table`` or ``schema.table``, exactly as in the catalogue. The first epoch creates a missing table.
        mode: ``append`` or ``upsert``, by default decided by ``key``.
        key: columns that identify a row. The table needs a unique index on exactly these.
        sequence: column that orders the changes of a key. A lower value changes nothing. Of two equal ones the later
            epoch wins, and within one epoch they are refused (E505).
        delete: boolean column of the batch. A row with true removes its key, under the same rule of ``sequence``. The
            column is not stored. Without ``tombstones`` nothing of a removed key is stored either, so an older change
            in a later epoch brings it back.
        id: the sink's id, if one pipeline writes to one table twice. Default ``postgres:<table>``.
        epoch_column: bigint column for the epoch's number. ``auto`` is ``_epoch`` if the table has it, and ``None`` is
            no column.
        driver_limit: bytes in Arrow form that may go through the driver.
        via: ``driver`` or ``executors``, to decide it for good.
        patience: seconds that the answer to a COMMIT may take, waiting for standbys and deferred triggers included.
            Then the sink drops the connection and looks up whether the epoch was committed.
        lock_timeout: seconds to wait for a lock of another session, in reading and in writing. Then the error names the
            session that holds it. An epoch is retried a few times before the query stops.
        schema: ``fail`` refuses a batch with columns that the table lacks. ``add_columns`` adds them, nullable, in the
            transaction of the first epoch that has rows with them. A column's type is never changed.
        apply: function that brings the rows into the table. Not together with ``key``, ``epoch_column`` or ``schema``.
        triggers: ``refuse`` a table with triggers before each row, as they may keep rows back or change them. ``allow``
            them: you answer for their changes. An epoch is still refused if they keep a row back.
        markers: rows of ``onceonly.epoch`` to keep, at least 200, or ``None`` for all. Older ones are deleted once a
            ledger has their epochs, and ``onceonly.pruned`` sums them up.
        tombstones: time to remember a removed key, such as ``7 days``, by the clock of the epochs. Within it no older
            change brings the row back. Needs ``sequence`` and ``delete``. They are in a table of schema ``onceonly``.
        keeps: time to keep rows in a table of seen ids, such as ``7 days``, by the clock of the epochs.
            :class:`onceonly.Dedupe` makes such a table of a sink that has no options for its rows.
        sealed_view: whether a view ``<table>_sealed`` hides an epoch until all sinks of the pipeline hold it, for
            readers in SQL. One statement over several such views of a database sees one epoch. Needs an append or
            ``history``. While the view exists, its columns keep their types.
        history: whether a table ``<table>_history`` keeps rows that an upsert replaced or removed, so that you can read
            the rows as of any epoch since the history began.
        keep_history: epochs of history to keep, at least 64, or ``None`` for all. Epochs that a reader has pinned stay.
        holds: ``rows``, or the ``state`` of windows, of which :class:`onceonly.windows.Panes` makes a table of its own.

    Raises:
        ConfigurationError: E108 a package is missing, E110 the arguments do not fit together.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        mode: Mode | None = None,
        key: str | Sequence[str] | None = None,
        sequence: str | None = None,
        id: str | None = None,
        epoch_column: str | None = "auto",
        driver_limit: int = DRIVER_LIMIT,
        via: Via = "auto",
        patience: float = PATIENCE,
        lock_timeout: float = LOCK_TIMEOUT,
        delete: str | None = None,
        schema: SchemaChange = "fail",
        apply: Apply | None = None,
        triggers: Triggers = "refuse",
        markers: int | None = MARKERS,
        tombstones: str | None = None,
        keeps: str | None = None,
        holds: Holds = "rows",
        sealed_view: bool = False,
        history: bool = False,
        keep_history: int | None = None,
    ) -> None:
        server, name = Server.parse(dsn), TableName.parse(table)
        options = Options.check(
            mode=mode,
            key=key,
            sequence=sequence,
            delete=delete,
            epoch_column=epoch_column,
            via=via,
            driver_limit=driver_limit,
            patience=patience,
            lock_timeout=lock_timeout,
            schema=schema,
            apply=apply,
            triggers=triggers,
            markers=markers,
            tombstones=tombstones,
            keeps=keeps,
            holds=holds,
            sealed_view=sealed_view,
            history=history,
            keep_history=keep_history,
        )
        options.check_names(name)
        super().__init__(server, name, options, id)
        self._fence: Fence | None = None
        self._recorded = 0
        self._loader: Loader | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Report that an append with an epoch column can be recounted, and that the ledger can join the transaction."""
        append, merge = self._options.append, self._options.merge
        recountable = append and self._options.epoch_column is not None
        return Capabilities(
            append,
            recountable,
            True,
            committer="transaction",
            readers=_READERS,
            dangers=self._dangers(),
            names=Names(most=NAME_BYTES),
            changes=Changes(merge.key, merge.sequence, merge.delete, remembers=bool(merge.tombstones)),
        )

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a sink again for reading, with the password from PGPASSWORD or ``~/.pgpass``.

        Raises:
            ConfigurationError: E110, not an address of a Postgres sink.
        """
        dsn, table, said = read_address(address)
        arguments: dict[str, Any] = from_described(said)
        return cls(dsn, table, **arguments)

    def table(self, name: str, **options: Any) -> Self:
        """Return a sink for another table of this database. In one query the two commit in one transaction.

        ``name`` and ``options`` are those of the class. Only ``patience`` and ``lock_timeout`` carry over from this
        sink.

        Raises:
            ConfigurationError: E110, as by the class.
        """
        said: dict[str, Any] = {"patience": self._options.patience, "lock_timeout": self._options.lock_timeout}
        return type(self)(self._server.dsn, name, **{**said, **options})

    def keeper(self, seconds: int) -> Self:
        """Return this table as one of seen ids (see ``Keeps``).

        Raises:
            ConfigurationError: E122, the sink has options for other rows.
        """
        said = self._options
        if not said.unsaid:
            problem = f"{self._id} was told what stands in its table"
            raise refuse("E122", problem=problem, next=f'give the table alone: keep=pg.table("{self._name.text}")')
        return type(self)(self._server.dsn, self._name.text, id=self._id, keeps=f"{seconds} seconds", **said.ways)

    def lookup(self, as_of: AsOf) -> seen_ids.SeenIdsLookup:
        """Return a lookup of seen ids for executors, once the table can hold ids (see ``Remembers``).

        Raises:
            DestinationError: E501, E506, E508: no answer, or no such table.
        """
        session = self._writer.session(self._standing)
        with self._refusals(), self._transactions.reading() as connection:
            table = self._aim.plan(connection, seen_ids.columns()).table
            server = self._server.resolved(raw(connection))
        name = table.name if table.oid else None
        return seen_ids.SeenIdsLookup(self._id, server, session, name, self.address, as_of, self._options.merge.keeps)

    def state_keeper(self, *, beside: bool) -> Self:
        """Return a table for the state of windows, beside this one or this very one (see ``KeepsState``).

        Raises:
            ConfigurationError: E143, the sink has options for other rows, or the table's name would be too long.
        """
        said = self._options
        if not (beside or said.unsaid):
            problem = f"{self._id} was told what stands in its table"
            raise refuse("E143", problem=problem, next=f'give the table alone: state=pg.table("{self._name.text}")')
        name, id_ = (window_state.beside(self._name), None) if beside else (self._name.text, self._id)
        return type(self)(self._server.dsn, name, id=id_, holds="state", **said.ways)

    def recall(self, wanted: StateWanted, as_of: AsOf) -> list[StateRow]:
        """Read the wanted rows of window state (see ``RecallsState``).

        Raises:
            DestinationError: E501, E506, E508: no answer, or no such table.
            IdentityError: E226, a row is of the epoch in question, or a later one.
        """
        with self._refusals(), self._transactions.reading() as connection:
            table = self._aim.plan(connection, window_state.columns()).table
            return window_state.recall(connection, table, self._id, wanted, as_of)

    # ---- opening

    def fence(self) -> Fence | None:
        """Read the newest installed fence, without a lock."""
        with self._refusals(), self._transactions.reading() as connection:
            return head.newest_fence(connection, self._writer) if head.exists(connection) else None

    def look(self) -> Peek:
        """Read the head's epoch, or whether there are rows without one, without a lock."""
        with self._refusals(), self._transactions.reading() as connection:
            newest = partial(head.newest_epoch, connection, self._writer)
            return seen(newest, partial(survey.has_any_row, connection, self._aim.name))

    def install(self, fence: Fence) -> None:
        """Create our tables, and make ``fence`` the newest if it is strictly greater or already installed.

        Raises:
            Superseded: the installed fence is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            DestinationError: certainly not installed.
        """
        self._install(fence)

    def _install(self, fence: Fence, then: Callable[[Connection], None] | None = None) -> None:
        with self._refusals():
            transaction.install(self._transactions, self._writer, fence, self._create, then)
        self._fence = fence
        self._loader = Loader(self._aim, fence, self._transactions)

    def content(self) -> int | None:
        """Return the newest epoch's number, or that of rows that others restored. Without rows it is 0.

        ``None`` if the rows belong to no epoch, are not only added, or come from the user's function.
        """
        with self._refusals(), self._transactions.reading() as connection:
            return self._content(connection)

    def _content(self, connection: Connection) -> int | None:
        found = head.read(connection, self._writer) if head.exists(connection) else None
        if found is None:
            return None
        now, was = self._here(connection), found.place.identity
        if (not was or now.beside(was) == was) and not self._lacks_newest(connection, found):
            return found.epoch
        if self._options.apply:
            return None
        if not (now.oid and survey.has_rows(connection, self._aim.name)):
            return 0
        table = self._table(connection) if self._options.append else None
        return replace_rows.content(connection, self._aim, table) if table else None

    def _lacks_newest(self, connection: Connection, found: head.Head) -> bool:
        """Whether no row of the newest epoch is there. Always false unless the sink only appends."""
        newest = head.epoch_at(connection, self._writer, found.epoch) if self._options.append else None
        return newest is not None and replace_rows.rows_gone(connection, self._aim, found.place.oid, newest[1])

    def stand_at(self, fence: Fence, epoch: int) -> None:
        """Make ``fence`` the newest, and delete the markers of missing rows (see ``Settable``).

        Raises:
            Superseded: the installed fence is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            ConfigurationError: E110, the table holds rows of another epoch, or of an unknown one.
        """

        def stand(connection: Connection) -> None:
            head.read(connection, self._writer, lock="FOR UPDATE")
            if (holds := self._content(connection)) != epoch:
                raise elsewhere(self._id, epoch, holds)
            replace_rows.stand(connection, self._aim, epoch, self._here(connection))

        self._install(fence, stand)

    def _create(self, connection: Connection) -> None:
        """Create our missing tables and the view, in the transaction of a fence."""
        (expiry.create if self._keep_ms else head.create)(connection)
        if self._options.sealed_view and (table := self._aim.look(connection)):
            if head.shared(connection, self._writer, table.oid):
                problem = f"sealed_view=True of {self._id}, to whose table another sink writes too"
                cause = "both number rows by epoch, so the number does not say whose epoch it is"
                raise refuse("E110", problem=f"{problem}.", cause=cause, next="write to a table of its own")
            history_made = history.kept(connection, self._writer, table) is not None
            if history_made or not self._options.merge.history:
                self._aim.show(connection, table)

    def position(self, since: Receipt | None) -> Position:
        """Return the sink's head, identity and disturbances, under our fence.

        Raises:
            Superseded: another fence is installed.
            DestinationError: E508, ours is not installed.
        """
        fence = self._standing
        self._recorded = since.epoch if since else 0
        with self._refusals(), self._transactions.reading() as connection:
            found = head.read(connection, self._writer)
            refused = head.fenced(found, fence, self._id)
            if refused is not None or found is None:
                raise refused or AssertionError("a fence stands without a head")
            newest = head.epoch_at(connection, self._writer, found.epoch) if found.epoch else None
            now = self._here(connection)
            rows = bool(now.oid) and survey.has_rows(connection, self._aim.name)
            known = since or (newest[1] if newest else None)
            disturbances = self._disturbances(connection, known, now, newest[1] if newest else None)
        identity = now.beside(known.identity if known else "")
        return Position(fence, newest[0] if newest else None, found.epoch, identity, rows, disturbances)

    # ---- writing

    def prepare(self, batch: Batch, epoch: int) -> PostgresPrepared:
        """Bring the rows into an open transaction or a staging table.

        Raises:
            DestinationError: E501 to E530: the table cannot take the rows, and none of them is left.
            Superseded: a newer driver ended our session, or took our staging away.
            Conflict: another session blocked the write, and a retry may succeed.
        """
        return self._prepared(batch, epoch)

    def keeps_from_replacing(self, span: Span) -> str:
        """Explain why rows of epochs are not distinguishable or deletable in the table, or empty if they are both."""
        with self._refusals(), self._transactions.reading() as connection:
            return replace_rows.obstacle(connection, self._aim, span)

    def prepare_replacing(self, batch: Batch, epoch: int, span: Span) -> PostgresPrepared:
        """As :meth:`prepare`. Rows through the driver come after the rows of ``span`` are deleted.

        Raises:
            IdentityError: E247, they are not distinguishable from others, or some of them stay.
        """
        return self._prepared(batch, epoch, span)

    def shares(self, other: Sink) -> bool:
        """Whether database, login and timeouts are the same. A sink with ``apply`` never shares a transaction."""
        if not isinstance(other, PostgresSink) or self._options.apply or other._options.apply:
            return False
        ours, theirs = ((one._server, one._options.patience, one._options.lock_timeout) for one in (self, other))
        return ours == theirs

    def holds(self, size: Estimate) -> bool:
        """Whether it is no larger than ``driver_limit``. Always false with ``via="executors"``."""
        return self._options.in_memory(size)

    def prepare_beside(
        self, batch: Batch, epoch: int, beside: Sequence[tuple[Sink, Prepared]], span: Span | None = None
    ) -> PostgresPrepared:
        """As :meth:`prepare`, in the transaction of the others if they have opened one."""
        ready = [(_own_kind(sink), check_prepared_by(rows, PostgresPrepared)) for sink, rows in beside]
        within = next((rows.connection for _, rows in ready if rows and rows.connection), None)
        with self._fenced_in_any([sink for sink, _ in ready]):
            return self._prepared(batch, epoch, span, within)

    def _prepared(
        self, batch: Batch, epoch: int, span: Span | None = None, within: Connection | None = None
    ) -> PostgresPrepared:
        with self._said.attempt(self._fenced, self._types):
            prepared = self._load(batch, epoch, span, within)
        try:
            faults.fire(Point.PREPARE_SENT)
        except BaseException:
            prepared.abandon()
            raise
        return prepared

    def _fenced(self, found: head.Head | None) -> Exception | None:
        return head.fenced(found, self._standing, self._id)

    @contextmanager
    def _fenced_in_any(self, others: Sequence[PostgresSink]) -> Generator[None]:
        """Within, a rolled back transaction counts as superseded if one of the others is fenced.

        A newer driver installs its fence in one sink after the other. With the first, it ends the session that all of
        them write in.
        """
        try:
            yield
        except Conflict:
            for sink in others:
                if (refused := sink._said.against(sink._fenced)) is not None:
                    raise refused from None
            raise

    def _load(self, batch: Batch, epoch: int, span: Span | None, within: Connection | None) -> PostgresPrepared:
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
        replace_rows.clear(connection, self._aim, span)
        return span

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Commit rows and marker in one transaction, if our fence and the previous chain still hold.

        Raises:
            Superseded: another fence is installed.
            OutcomeUnknown: the answer was lost.
            Conflict: another session blocked the write. Nothing was written, and a retry may succeed.
            IdentityError: E207, E208, E210: the epoch does not follow this sink or table.
            DestinationError: E501 to E519: nothing was written.
        """
        return self.commit_beside(prepared, marker, (), ledger)[0]

    def commit_beside(
        self,
        prepared: Prepared | None,
        marker: Marker,
        beside: Sequence[tuple[Sink, Prepared | None, Marker]],
        ledger: Recorder | None = None,
    ) -> tuple[Receipt, ...]:
        """As :meth:`commit`, with the rows and markers of other sinks in the same transaction."""
        given = [(self, prepared, marker), *((_own_kind(sink), rows, one) for sink, rows, one in beside)]
        parts = [(sink, check_prepared_by(rows, PostgresPrepared), one) for sink, rows, one in given]
        open_ = next((rows.connection for _, rows, _ in parts if rows and rows.connection), None)
        receipts: tuple[Receipt, ...] = ()
        with self._fenced_in_any([sink for sink, _, _ in parts]):
            ids = frozenset(one.sink for _, _, one in parts)
            for sink, rows, one in parts:
                open_, receipt = sink._fill(open_, rows, one, ids)
                receipts = (*receipts, receipt)
            assert open_ is not None
            with self._said.attempt(lambda found: head.judge(found, marker), dict):
                commit.send(self._transactions, open_, marker, receipts, ledger)
        for sink, rows, one in parts:
            if rows is not None:
                rows.abandon()
            sink._prune(one)
        return receipts

    def _fill(
        self, within: Connection | None, rows: PostgresPrepared | None, marker: Marker, sinks: frozenset[str]
    ) -> tuple[Connection, Receipt]:
        types = rows.plan.types if rows else {}
        with self._said.attempt(lambda found: head.judge(found, marker), lambda: types):
            session = self._writer.session(marker.fence)
            connection = within or self._transactions.begin(session, self._transactions.lock_seconds)
            return connection, commit.write_epoch(connection, self._transactions, self._aim, rows, marker, sinks=sinks)

    def seal(self, epoch: Epoch, pinned: int | None) -> None:
        """Show an epoch in the view once all sinks hold it, and keep pinned history (see ``Seals``)."""
        if pinned is not None:
            self._target = replace(self._aim, pinned=pinned)
        if self._options.sealed_view and sealed_views.sealed_by(epoch, frozenset({self._id})) < epoch.number:
            sealed_views.seal(self._transactions, self._writer, epoch)

    def _prune(self, marker: Marker) -> None:
        epoch = marker.epoch.number
        if self._options.markers is not None and prune.due(epoch):
            upto = prune.last_to_go(epoch, self._options.markers, self._recorded)
            prune.prune(self._transactions, self._writer, marker.fence, upto)
        self._recorded = epoch  # by the next commit: an epoch is recorded before the next one is committed

    def look_up(self, marker: Marker) -> Receipt | None:
        """Find out whether an epoch was committed. Afterwards it cannot be committed any more.

        Raises:
            Superseded: another fence is installed.
            OutcomeUnknown: neither can be proved.
        """
        self._transactions.close()
        return transaction.look_up(self._transactions, marker)

    def sweep(self) -> None:
        """Drop staging tables of lower generations."""
        if self._loader is not None:
            with self._refusals():
                self._loader.sweep()

    def _dangers(self) -> tuple[str, ...]:
        """Guarantees that this server or these options take away."""
        allowed = "triggers of the table change rows before they are written; audit --deep compares them as they stand"
        unseen = self._target.visibility.lost if self._target else ()
        return (*([allowed] if self._options.triggers == "allow" else []), *unseen)

    @property
    def _standing(self) -> Fence:
        if self._fence is None:
            raise RuntimeError("install a fence first")
        return self._fence

    def _types(self) -> Mapping[str, str]:
        plan = self._loader.plan if self._loader else None
        return plan.types if plan else {}


def _own_kind(sink: Sink) -> PostgresSink:
    if not isinstance(sink, PostgresSink):
        raise TypeError(f"{type(sink).__name__} shares no transaction with a Postgres sink")
    return sink
