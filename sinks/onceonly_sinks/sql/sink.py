"""Base class of an SQL sink over any DB-API connection.

A driver adds the parts that only its database has. The sink appends to one table, each epoch in one transaction with
its marker. Rows wait in the driver's memory between ``prepare`` and ``commit``, so the prepared rows of a killed driver
are gone with it.
"""

from __future__ import annotations

import logging
import os
import uuid
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly import faults, protocol
from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.faults import Point
from onceonly.protocol.batch import ArrowRows
from onceonly.protocol.guard import NewestEpoch, check_fence, check_follows
from onceonly.protocol.sink import check_prepared_by
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.model import shorten_list
from onceonly_checkpoints.storage import resolved
from onceonly_sinks.sql import commit_outcome, tables
from onceonly_sinks.sql.commit_outcome import Failed, Failure
from onceonly_sinks.sql.tables import Database, Head, HeadScope, Paramstyle, Row, Tables, quote

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

log = logging.getLogger(__name__)

_PAGE = 500


class SqlSink(protocol.SinkBase, protocol.DetectsChanges, protocol.Inspectable):
    """Appends to one table of an SQL database. Subclass it with :meth:`connect`, :meth:`columns` and your differences.

    The database must roll DDL back with its transaction, and know ``ON CONFLICT``, ``RETURNING`` and ``WITH``. Postgres
    and SQLite do. If DDL commits the statements before it, create the target by hand, with its epoch column. Then no
    epoch runs any DDL.

    Args:
        where: location of the database, without secrets, as in the address.
        table: the target. The first epoch creates it if there is none.
        id: the sink's id, by default ``<kind>:<table>``.
    """

    kind: ClassVar[str]
    """What stands before the colon of the address."""
    paramstyle: ClassVar[Paramstyle] = "named"
    """How the driver wants parameters."""
    tables: ClassVar[Tables] = Tables()
    """Names of the head and epoch tables."""
    begin: ClassVar[str] = "BEGIN"
    """Begins a writing transaction; best one that keeps every other writer out until it ends."""
    lock: ClassVar[str] = ""
    """Stands behind the read of the head in a writing transaction: ``FOR UPDATE``, where the database has it."""
    errors: ClassVar[tuple[type[Exception], ...]]
    """What the driver raises for a failure of the database, its base class."""
    cause: ClassVar[str] = "the database reports it"
    """What may be behind such a failure, for the words of E508."""
    epoch_column: ClassVar[str] = "_epoch"
    """The target's column for the epoch's number."""

    def __init__(self, where: str | os.PathLike[str], table: str, id: str | None = None) -> None:
        super().__init__(id or f"{self.kind}:{table}")
        self.where, self.table = os.fspath(where), table
        self.named = id is not None
        self._fence: Fence | None = None

    # ---- what a driver adds

    @abstractmethod
    def connect(self) -> Any:
        """A DB-API connection in autocommit mode. It is closed after every transaction, or given back to a pool."""

    @abstractmethod
    def columns(self, db: Database, table: str) -> Sequence[str]:
        """Columns of a table, as named in the catalogue. Empty if there is no such table."""

    def read(self, error: Exception) -> Failed | None:
        """Facts of a failure, or ``None`` if it is not the database's.

        Call a transaction over only if the *database* reported it: an uncertain outcome is looked up.
        """
        return Failure(type(error).__name__) if isinstance(error, self.errors) else None

    def type_of(self, field: pa.Field[Any]) -> str:
        """Type of a new table's column, empty if it needs none."""
        return ""

    def write(self, db: Database, rows: pa.Table, epoch: int) -> int | None:
        """Insert the rows. Return how many of the epoch are then in the target, or ``None`` if that is unknown.

        Runs in the transaction of the epoch: it must not commit, nor swallow an error. Your own version calls
        :meth:`fit` first, which makes the table. It may get no rows at all.
        """
        self.fit(db, rows.schema)
        names = [*rows.column_names, self.epoch_column]
        values = ", ".join(f"%(v{at})s" for at in range(len(names)))
        listed = ", ".join(quote(name) for name in names)
        parameters = ({f"v{at}": value for at, value in enumerate([*row.values(), epoch])} for row in rows.to_pylist())
        driver_count = db.executemany(f"INSERT INTO {quote(self.table)} ({listed}) VALUES ({values})", parameters)
        return driver_count if driver_count == rows.num_rows else self._counted(db, epoch, driver_count)

    def _counted(self, db: Database, epoch: int, driver_count: int) -> int | None:
        """Count the rows of an epoch in the table, as a trigger may explain the driver's other number, or none.

        In a table of several sinks only the driver's number counts, as others use the same epoch numbers.
        """
        if self.tables.shared(db.execute, self._writer, self.table):
            return driver_count if driver_count >= 0 else None
        query = f"SELECT count(*) FROM {quote(self.table)} WHERE {quote(self.epoch_column)} = %(epoch)s"
        return int(db.execute(query, {"epoch": epoch}).fetchall()[0][0])

    def fit(self, db: Database, schema: pa.Schema) -> None:
        """Create the target, or check that it takes the columns. Rows that were there before us belong to no epoch.

        Raises E506: the table lacks columns, or one of the batch has the name of the epoch column.
        """
        if clashes := [name for name in schema.names if name.lower() == self.epoch_column.lower()]:
            difference = f"column {clashes[0]} is the one that takes the epoch's number"
            cause, next_ = "the query delivers a column of that name", "rename it in the query, then restart the query"
            raise refuse("E506", sink=self.id, difference=difference, because=cause, next=next_)
        column, columns = quote(self.epoch_column), self.columns(db, self.table)
        if not columns:
            made = [f"{quote(field.name)} {self.type_of(field)}".rstrip() for field in schema]
            db.execute(f"CREATE TABLE {quote(self.table)} ({', '.join([*made, f'{column} bigint'])})")
            return
        if missing := [field for field in schema if field.name not in columns]:
            absent = tuple(field.name for field in missing)
            difference = f"the table lacks {shorten_list(absent)}"
            adding = f"ALTER TABLE {quote(self.table)} ADD COLUMN"
            remedy = "; ".join(f"{adding} {quote(field.name)} {self.type_of(field)}".rstrip() for field in missing)
            next_ = f"{remedy}; then restart the query"
            raise refuse("E506", sink=self.id, difference=difference, next=next_, absent=absent)
        if self.epoch_column not in columns:
            db.execute(f"ALTER TABLE {quote(self.table)} ADD COLUMN {column} bigint")

    # ---- what it is

    @property
    def address(self) -> str:
        """Kind, place, table and id."""
        return f"{self.kind}:{self.where}#{self.table}#{self.id}"

    @property
    def capabilities(self) -> protocol.Capabilities:
        """An append that can be recounted."""
        readers = "nothing to do: a reader sees whole epochs, as each is one transaction"
        return protocol.Capabilities(
            True, True, carries_ledger=False, committer=f"{self.kind} transaction", readers=readers
        )

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a sink again for reading. Raises E110: it is no address of this kind."""
        parts = address.removeprefix(f"{cls.kind}:").rsplit("#", 2)  # a place may hold the sign, as a folder's name
        if len(parts) != 3 or not all(parts[1:]):
            raise misused(
                f"{address!r} does not lead to a sink.",
                f"an address of this kind is {cls.kind}:<place>#<table>#<id>",
                "see the addresses of every pipeline: onceonly status",
            )
        return cls(*parts)

    # ---- opening

    def place(self) -> str:
        """Database and table. A file's path has its links resolved."""
        where = resolved(self.where) if Path(self.where).exists() else self.where
        return f"{self.kind}:{where}#{self.table}"

    def open(self, pipeline: str) -> None:
        """Check that the database answers. Creates nothing."""
        super().open(pipeline)
        with self._reading() as db:
            self._has_head(db)

    def fence(self) -> Fence | None:
        """Read the newest installed fence, without a lock."""
        with self._reading() as db:
            return self.tables.newest_fence(db.execute, self._writer) if self._has_head(db) else None

    def look(self) -> protocol.Peek:
        """Read the head's epoch, or whether there are rows without one, without a lock."""
        with self._reading() as db:

            def newest() -> tuple[int, Marker | None]:
                return self.tables.newest_epoch(db.execute, self._writer) if self._has_head(db) else (0, None)

            return tables.peek_target(newest, lambda: self._has_rows(db))

    def identity_now(self, recorded: str) -> str:
        """The target's identity, empty if our tables are missing."""
        with self._reading() as db:
            return self.identity(db) if self._has_head(db) else ""

    def install(self, fence: Fence) -> None:
        """Create our tables, and make ``fence`` the newest if it is strictly greater or already installed."""
        with self._refusals(), self._transaction(Point.INSTALL_SENT) as db:
            self.create(db)
            self.tables.install(db.execute, self._writer, fence)
        self._fence = fence

    def position(self, since: Receipt | None) -> protocol.Position:
        """Return the sink's head and identity, under our fence. Raises E508 if our fence is not installed."""
        if self._fence is None:
            raise RuntimeError("install a fence first")
        with self._refusals(), self._begun() as db:
            head = self._under(db, self._fence)
            newest = self.tables.epoch_at(db.execute, self._writer, head.epoch) if head.epoch else None
            identity, rows = self.identity(db), self._has_rows(db)
            db.execute("COMMIT")  # nothing was written: one that fails leaves nothing unknown
        return protocol.Position(self._fence, newest.marker if newest else None, head.epoch, identity, rows)

    # ---- writing

    def prepare(self, batch: protocol.Batch, epoch: int) -> ArrowRows:
        """Bring the rows into this process."""
        import pyarrow as pa

        rows = ArrowRows(pa.Table.from_batches(list(batch.arrow()), batch.schema))
        faults.fire(Point.PREPARE_SENT)
        return rows

    def commit(
        self, prepared: protocol.Prepared | None, marker: Marker, ledger: protocol.Recorder | None = None
    ) -> Receipt:
        """Commit rows and marker in one transaction, if our fence and the previous chain still hold.

        Raises E207, E208 or E210 if the epoch does not follow this sink or table. After ``Conflict`` (the database
        rolled back because of others) and ``DestinationError`` nothing was written.
        """
        rows = check_prepared_by(prepared, ArrowRows)
        translator = self._taken_back
        with self._refusals(translator), self._transaction(Point.COMMIT_SENT, translator) as db:
            head = self._under(db, marker.fence)
            self._follows(head, self.identity(db), marker)
            written = self.write(db, rows.table, marker.epoch.number) if rows else None
            count = rows.rows if rows else 0
            if refused := commit_outcome.check_counted(self.id, marker.epoch.number, count, written):
                raise refused
            identity_values = {"identity": self.identity(db), "target": self.table}  # the first epoch made the target
            if not self.tables.advance(db.execute, self._writer, marker, count, identity_values):
                raise protocol.Conflict(self.id, "the head moved while the epoch was being written", "another driver")
        return self._receipt(marker, count, identity_values["identity"])

    def look_up(self, marker: Marker) -> Receipt | None:
        """Find out whether an epoch was committed. Afterwards it cannot be committed any more."""
        # The head is written before the epoch is looked for: without a lock of the read, only that waits for a commit
        # that is under way, and each statement may see what was committed before it began.
        receipts: list[Receipt | None] = []
        with commit_outcome.settling(self.id, self.read, receipts), self._transaction() as db:
            self._under(db, marker.fence)
            self.tables.touch(db.execute, self._writer)
            row = self.tables.epoch_at(db.execute, self._writer, marker.epoch.number)
            receipts.append(commit_outcome.landed((row.marker, self._recorded(row)) if row else None, marker))
        return receipts[-1]

    # ---- reading

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first."""
        while True:
            with self._reading() as db:
                has_tables = self._has_head(db)
                page = self.tables.epochs_after(db.execute, self._writer, after, _PAGE) if has_tables else []
            yield from ((row.marker, self._recorded(row)) for row in page)
            if len(page) < _PAGE:
                return
            after = page[-1].number

    def recount(self) -> Mapping[int, int] | None:
        """Rows per epoch, counted in the table, or ``None`` if another sink numbers rows there too."""
        with self._reading() as db:
            columns = self.columns(db, self.table)
            if self._has_head(db) and self.tables.shared(db.execute, self._writer, self.table):
                return None
            column = quote(self.epoch_column) if self.epoch_column in columns else "0"
            return tables.recount(db.execute, quote(self.table), column) if columns else {}

    def pipelines(self) -> list[str]:
        """Pipelines with an epoch in the table, ours among them."""
        with self._reading() as db:
            return self.tables.writers(db.execute, self.table) if self._has_head(db) else []

    def close(self) -> None:
        """Forget the fence."""
        self._fence = None

    # ---- how it is done

    def create(self, db: Database) -> None:
        """Create missing head and epoch tables, and the database's identity."""
        for statement in self.tables.ddl:
            db.execute(statement)
        db.execute("CREATE TABLE IF NOT EXISTS onceonly_identity (id text NOT NULL, one bigint PRIMARY KEY)")
        # The key lets one of two first installs at once through; a table that was made without one has its row already.
        fresh = "(id) SELECT %(id)s WHERE NOT EXISTS (SELECT 1 FROM onceonly_identity)"
        if "one" in (name.lower() for name in self.columns(db, "onceonly_identity")):
            fresh = "(id, one) VALUES (%(id)s, 1) ON CONFLICT DO NOTHING"
        db.execute(f"INSERT INTO onceonly_identity {fresh}", {"id": uuid.uuid4().hex})

    def identity(self, db: Database) -> str:
        """The target's identity, by default the database's. It changes with a new database.

        A driver that can also name the table (an oid) returns that, and an empty text while there is no table. By
        default a table that was dropped and created again does not differ from the old one.
        """
        return str(db.execute("SELECT id FROM onceonly_identity").fetchall()[0][0])

    @property
    def _writer(self) -> HeadScope:
        return HeadScope(self.pipeline, self.id)

    def _has_head(self, db: Database) -> bool:
        return bool(self.columns(db, self.tables.head))

    def _has_rows(self, db: Database) -> bool:
        there = self.columns(db, self.table)
        return bool(there and db.execute(f"SELECT 1 FROM {quote(self.table)} LIMIT 1").fetchall())

    def _under(self, db: Database, fence: Fence) -> Head:
        """The head, if its fence is ``fence``. A writing transaction keeps it so until it ends."""
        head = self.tables.read(db.execute, self._writer, self.lock) if self._has_head(db) else None
        refused = check_fence(self.id, head.fence if head else None, fence)
        if refused is not None or head is None:
            raise refused or AssertionError("there is a fence without a head")
        return head

    def _follows(self, head: Head, identity: str, marker: Marker) -> None:
        old_identity = self._identity_in(head.target_identity)
        follows = check_follows(marker, NewestEpoch(head.epoch, head.chain))
        if refused := follows or commit_outcome.check_identity(old_identity, identity, marker):
            raise refused

    def _recorded(self, row: Row) -> Receipt:
        return self._receipt(row.marker, row.rows, self._identity_in(row.target_identity))

    def _identity_in(self, identity_values: Sequence[Any]) -> str:
        return str(dict(zip(self.tables.target_columns, identity_values, strict=True))["identity"])

    def _receipt(self, marker: Marker, rows: int, identity: str) -> Receipt:
        epoch = marker.epoch
        return Receipt(self.id, epoch.number, epoch.chain, identity, (("epoch", epoch.number),), rows)

    @contextmanager
    def _connection(self) -> Generator[Database]:
        db = Database(self.connect(), self.paramstyle)
        try:
            yield db
        finally:
            self._let_go(db)

    def _let_go(self, db: Database) -> None:
        """Close a connection. Rows already read and the outcome of a COMMIT hold, however that ends."""
        try:
            db.close()
        except Exception as error:  # noqa: BLE001  whatever a driver raises; its words may hold a value or a password
            log.warning("%s: the connection was not closed: %s", self.id, type(error).__name__)

    @contextmanager
    def _reading(self) -> Generator[Database]:
        with self._refusals(), self._connection() as db:
            yield db

    @contextmanager
    def _begun(self) -> Generator[Database]:
        """A writing transaction, to be committed within, and rolled back if anything fails.

        By a statement, not by closing alone. A pooled connection may keep its open transaction, and the next COMMIT on
        it would commit the rows of this attempt. After a COMMIT that took effect it changes nothing.
        """
        with self._connection() as db:
            try:
                db.execute(self.begin)
                yield db
            except BaseException:
                with suppress(Exception):  # the transaction, or the connection, may be gone already
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _transaction(
        self, sent: Point | None = None, refused: Callable[[Failed], Exception] | None = None
    ) -> Generator[Database]:
        with self._begun() as db:
            yield db
            with commit_outcome.sending(self.id, sent, self.read, refused or self._refused):
                db.execute("COMMIT")

    @contextmanager
    def _refusals(self, refused: Callable[[Failed], Exception] | None = None) -> Generator[None]:
        """Within, a failure of the database is certain, and is translated."""
        try:
            yield
        except Exception as error:
            failure = self.read(error)
            if failure is None:
                raise
            raise (refused or self._refused)(failure) from (None if failure.quotes else error)

    def _taken_back(self, failure: Failed) -> OnceOnlyError | protocol.Conflict:
        """Translate an epoch's failure: a rollback because of others may be retried."""
        if failure.conflicts:
            return protocol.Conflict(self.id, failure.reason, "another transaction")
        return self._refused(failure)

    def _refused(self, failure: Failed) -> OnceOnlyError:
        details = {"reason": failure.reason, "cause": self.cause, "next": "remove the cause, restart the query"}
        return refuse("E508", sink=self.id, **details)
