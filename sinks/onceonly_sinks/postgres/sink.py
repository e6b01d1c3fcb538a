"""The Postgres sink: rows, marker and ledger record in one transaction."""

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

    Rows are appended; with ``key=`` upserted; with ``apply=`` brought there by SQL of your own.

    Rows are loaded by a binary COPY: small epochs through the driver, large ones by executors into a staging table.
    What another program does to the rows in between (TRUNCATE, DELETE, UPDATE) the sink does not see, but that the
    newest epoch has no row left when it is opened; ``onceonly audit`` recounts them.

    ``apply(cursor, staged, epoch)`` is called once for each epoch that has rows, in the transaction in which the marker
    is written, after the rows were loaded and before the commit. ``cursor`` is a psycopg cursor of that transaction.
    ``staged`` names a table with the batch's columns, in the types that the sink would create, and the epoch's rows: a
    ``psycopg.sql.Identifier``, which gives its quoted name where it is put into an f-string. ``epoch`` is the epoch's
    number. What the function writes is there exactly if the epoch is, and it is called again for an epoch that did not
    come to be; so it must leave the transaction open (COMMIT and ROLLBACK are refused) and touch nothing outside of it.
    Deferred constraints are made immediate by name, not with ALL: the sink holds one open that refuses a COMMIT.
    Identity and rows are still looked for in ``table``: the function writes to it, never replaces it, and creates it if
    need be. It lives in your program, so ``onceonly txn resolve`` leaves such a sink to the query's restart. ::

        def latest(cursor, staged, epoch):
            cursor.execute(f"INSERT INTO stock SELECT item, count FROM {staged} ON CONFLICT (item) DO UPDATE ...")

        PostgresSink(dsn, table="stock", apply=latest)

    Args:
        dsn: libpq URL or key-value string. A password is better left to PGPASSWORD or ``~/.pgpass``.
        table: ``table`` or ``schema.table``, exactly as in the catalogue; made with the first epoch if there is none.
        mode: ``append`` or ``upsert``; follows from ``key``.
        key: columns that identify a row. The table needs a unique index on exactly these.
        sequence: column that orders the changes of a key: one with a lower value changes nothing; of two equal ones
            the later epoch wins, and in one epoch they are refused (E505).
        delete: boolean column of the batch; a row with true removes its key, under the same rule of ``sequence``. The
            column is not stored, and of a removed key nothing is, unless ``tombstones`` says so: an older change in a
            later epoch brings it back.
        id: the sink's id, if one pipeline writes to one table twice; default ``postgres:<table>``.
        epoch_column: bigint column for the epoch's number; ``auto``: ``_epoch`` if the table has it; ``None``: none.
        driver_limit: bytes in Arrow form that may go through the driver.
        via: ``driver`` or ``executors``, to decide it for good.
        patience: seconds that the server's answer to a COMMIT may take, waiting for standbys and deferred triggers
            included. Then the connection is given up, and whether the epoch landed is looked up.
        lock_timeout: seconds that a lock of somebody else is waited for, in reading and in writing. Then whoever holds
            it is named; an epoch is written again a few times before the query stops.
        schema: ``fail`` refuses a batch with columns that the table lacks; ``add_columns`` adds them, nullable, in the
            transaction of the first epoch that brings rows with them. A column's type is never changed.
        apply: function that brings the rows into the table; not together with ``key``, ``epoch_column`` or ``schema``.
        triggers: ``refuse`` a table with triggers before each row, as they may keep rows back or change them;
            ``allow`` them: what they change is theirs to answer for, an epoch of which they keep a row back is refused.
        markers: rows of ``onceonly.epoch`` that are kept, at least 200; ``None``: all. Older ones go once a ledger has
            their epochs, and ``onceonly.pruned`` says what they were.
        tombstones: for how long a removed key is remembered, ``7 days``, by the clock of the epochs: within that time
            no older change brings its row back. With ``sequence`` and ``delete``; in a table of schema ``onceonly``.
        keeps: for how long rows stay, ``7 days``, in a table of ids that were seen, which :class:`onceonly.Dedupe`
            makes of a sink that was told nothing of its rows; by the clock of the epochs.
        sealed_view: whether a view ``<table>_sealed`` shows no epoch before all sinks of the pipeline hold it, for
            readers in SQL: one statement over several such views of a database sees one epoch. The table is appended
            to, or keeps its history. While the view stands, its columns keep their types.
        history: whether a table ``<table>_history`` keeps what an upsert replaced or removed, so that the rows as of
            any epoch can be read; from the epoch on with which it begins.
        keep_history: for how many epochs, at least 64; ``None``: for ever. What a reader has pinned stays.
        holds: ``rows``, or the ``state`` of windows, of which :class:`onceonly.windows.Panes` makes a table of its own.

    Raises:
        ConfigurationError: E108 a package is missing; E110 the arguments do not fit together.
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
        """An append can be recounted if an epoch column is wanted; the ledger can ride in the transaction."""
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
        """Find a sink again for reading; the password comes from PGPASSWORD or ``~/.pgpass``.

        Raises:
            ConfigurationError: E110, not an address of a Postgres sink.
        """
        dsn, table, said = read_address(address)
        arguments: dict[str, Any] = from_described(said)
        return cls(dsn, table, **arguments)

    def table(self, name: str, **options: Any) -> Self:
        """A sink for another table of this database; in one query the two commit in one transaction.

        Args:
            name: as ``table`` of the class.
            options: as those of the class; without them as by default, but for ``patience`` and ``lock_timeout``.

        Raises:
            ConfigurationError: E110, as by the class.
        """
        said: dict[str, Any] = {"patience": self._options.patience, "lock_timeout": self._options.lock_timeout}
        return type(self)(self._server.dsn, name, **{**said, **options})

    def keeper(self, seconds: int) -> Self:
        """This table as one of ids that were seen; see ``Keeps``.

        Raises:
            ConfigurationError: E122, the sink was told of other rows.
        """
        said = self._options
        if not said.unsaid:
            problem = f"{self._id} was told what stands in its table"
            raise refuse("E122", problem=problem, next=f'give the table alone: keep=pg.table("{self._name.text}")')
        return type(self)(self._server.dsn, self._name.text, id=self._id, keeps=f"{seconds} seconds", **said.ways)

    def lookup(self, as_of: AsOf) -> seen_ids.SeenIdsLookup:
        """What executors ask for ids, once the table can hold them; see ``Remembers``.

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
        """A table of the state of windows, beside this one or this very one; see ``KeepsState``.

        Raises:
            ConfigurationError: E143, the sink was told of other rows, or the table's name would be too long.
        """
        said = self._options
        if not (beside or said.unsaid):
            problem = f"{self._id} was told what stands in its table"
            raise refuse("E143", problem=problem, next=f'give the table alone: state=pg.table("{self._name.text}")')
        name, id_ = (window_state.beside(self._name), None) if beside else (self._name.text, self._id)
        return type(self)(self._server.dsn, name, id=id_, holds="state", **said.ways)

    def recall(self, wanted: StateWanted, as_of: AsOf) -> list[StateRow]:
        """Rows of state that are asked for; see ``RecallsState``.

        Raises:
            DestinationError: E501, E506, E508: no answer, or no such table.
            IdentityError: E226, a row is of the epoch that is asked for, or a later one.
        """
        with self._refusals(), self._transactions.reading() as connection:
            table = self._aim.plan(connection, window_state.columns()).table
            return window_state.recall(connection, table, self._id, wanted, as_of)

    # ---- opening

    def fence(self) -> Fence | None:
        """The newest installed fence, read without a lock."""
        with self._refusals(), self._transactions.reading() as connection:
            return head.newest_fence(connection, self._writer) if head.exists(connection) else None

    def look(self) -> Peek:
        """Where the head points, read without a lock."""
        with self._refusals(), self._transactions.reading() as connection:
            newest = partial(head.newest_epoch, connection, self._writer)
            return seen(newest, partial(survey.has_any_row, connection, self._aim.name))

    def install(self, fence: Fence) -> None:
        """Make ``fence`` the newest where it is strictly greater, or find it standing; our tables are made here.

        Raises:
            Superseded: a fence stands that is neither lower nor this one.
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
        """The newest epoch's number, or that of the rows that others put in their place: 0 where there are none.

        ``None`` where they are no epoch's, are not only added, or a function of the user's brings them where it likes.
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
        """Whether no row of the newest epoch is there; told of what is appended alone."""
        newest = head.epoch_at(connection, self._writer, found.epoch) if self._options.append else None
        return newest is not None and replace_rows.rows_gone(connection, self._aim, found.place.oid, newest[1])

    def stand_at(self, fence: Fence, epoch: int) -> None:
        """Make ``fence`` the newest, and let the markers go whose rows are not there; see ``Settable``.

        Raises:
            Superseded: a fence stands that is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            ConfigurationError: E110, the table holds rows of another epoch, or of none that is known.
        """

        def stand(connection: Connection) -> None:
            head.read(connection, self._writer, lock="FOR UPDATE")
            if (holds := self._content(connection)) != epoch:
                raise elsewhere(self._id, epoch, holds)
            replace_rows.stand(connection, self._aim, epoch, self._here(connection))

        self._install(fence, stand)

    def _create(self, connection: Connection) -> None:
        """Make what is missing of our tables and of the view, in the transaction of a fence."""
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
        """Where the sink stands, under our fence.

        Raises:
            Superseded: another fence stands.
            DestinationError: E508, ours does not.
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
            DestinationError: E501 to E530: the table cannot take the rows; nothing of them is left.
            Superseded: a newer driver ended our session, or took our staging away.
            Conflict: others stood in the way. It may be tried again.
        """
        return self._prepared(batch, epoch)

    def keeps_from_replacing(self, span: Span) -> str:
        """Why rows of epochs cannot be told from all others in the table, or not be deleted; empty where they can."""
        with self._refusals(), self._transactions.reading() as connection:
            return replace_rows.obstacle(connection, self._aim, span)

    def prepare_replacing(self, batch: Batch, epoch: int, span: Span) -> PostgresPrepared:
        """As :meth:`prepare`; rows that go through the driver meet a table from which those of ``span`` have left.

        Raises:
            IdentityError: E247, they cannot be told from others, or some of them stay.
        """
        return self._prepared(batch, epoch, span)

    def shares(self, other: Sink) -> bool:
        """Whether the other one is of the same database, login and patience; a function of the user's is left alone."""
        if not isinstance(other, PostgresSink) or self._options.apply or other._options.apply:
            return False
        ours, theirs = ((one._server, one._options.patience, one._options.lock_timeout) for one in (self, other))
        return ours == theirs

    def holds(self, size: Estimate) -> bool:
        """Whether it is no larger than ``driver_limit``; what executors are to bring never is."""
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
        """Within, a transaction that was taken back is a newer driver's doing where one of the others is fenced.

        He has its fence put into one sink after the other, and ends the session that all of them write in at the first.
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
        """Rows and marker in one transaction, where our fence and the previous chain stand.

        Raises:
            Superseded: another fence stands.
            OutcomeUnknown: the answer was lost.
            Conflict: others stood in the way; nothing was written, and it may be tried again.
            IdentityError: E207, E208, E210: the sink or the table is not what the epoch follows.
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
        """Have the view show an epoch that all sinks hold, and let no history go that is pinned; see ``Seals``."""
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
        """Whether an epoch landed after all; afterwards it cannot land any more.

        Raises:
            Superseded: another fence stands.
            OutcomeUnknown: it cannot be said.
        """
        self._transactions.close()
        return transaction.look_up(self._transactions, marker)

    def sweep(self) -> None:
        """Drop staging tables of lower generations."""
        if self._loader is not None:
            with self._refusals():
                self._loader.sweep()

    def _dangers(self) -> tuple[str, ...]:
        """What of the promise this server or these options take away."""
        allowed = "triggers of the table change rows before they are written; audit --deep compares them as they stand"
        unseen = self._target.visibility.lost if self._target else ()
        return (*([allowed] if self._options.triggers == "allow" else []), *unseen)

    @property
    def _standing(self) -> Fence:
        if self._fence is None:
            raise RuntimeError("install a fence first")
        return self._fence

    def _types(self) -> Mapping[str, str]:
        """Spark's types by column of the batch that was prepared last."""
        plan = self._loader.plan if self._loader else None
        return plan.types if plan else {}


def _own_kind(sink: Sink) -> PostgresSink:
    """A sink that shares our transaction.

    Raises:
        TypeError: it is of another kind.
    """
    if not isinstance(sink, PostgresSink):
        raise TypeError(f"{type(sink).__name__} shares no transaction with a Postgres sink")
    return sink
