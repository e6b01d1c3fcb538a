"""How a transaction of the SQL base ends: on a file of SQLite whose connection fails where a test says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.epochs import epoch_after

from onceonly.errors import ConfigurationError, DestinationError, OnceOnlyError
from onceonly.protocol import Conflict, OutcomeUnknown
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.sql import Database, Failure, SqlSink

FENCE = Fence(1, "owner")


def nothing() -> None:
    """Let it go well."""


def lost() -> None:
    raise sqlite3.OperationalError("the connection is lost")


class Connection(sqlite3.Connection):
    committed: Callable[[], None]
    closed: Callable[[], None]

    def cursor(self, *args: Any) -> Any:
        return super().cursor(Cursor)

    def close(self) -> None:
        super().close()
        self.closed()


class Cursor(sqlite3.Cursor):
    connection: Connection

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        super().execute(sql, parameters)
        if sql == "COMMIT":
            self.connection.committed()
        return self


class Lite(SqlSink):
    """The base over SQLite; ``committed`` runs behind each COMMIT, ``closed`` behind each close()."""

    kind = "lite"
    begin = "BEGIN IMMEDIATE"
    errors = (sqlite3.Error,)

    def __init__(self, where: Path, table: str = "orders", id: str | None = None) -> None:
        super().__init__(where, table, id)
        self.committed: Callable[[], None] = nothing
        self.closed: Callable[[], None] = nothing

    def connect(self) -> Any:
        connection = sqlite3.connect(self.where, timeout=0, isolation_level=None, factory=Connection)
        connection.committed, connection.closed = self.committed, self.closed
        return connection

    def columns(self, db: Database, table: str) -> Sequence[str]:
        found = db.execute("SELECT name FROM pragma_table_info(%(table)s)", {"table": table})
        return [name for (name,) in found.fetchall()]


def opened(sink: SqlSink) -> Any:
    sink.open("orders")
    sink.install(FENCE)
    sink.position(None)
    return sink


@pytest.fixture
def sink(tmp_path: Path) -> Lite:
    lite: Lite = opened(Lite(tmp_path / "orders.db"))
    return lite


def marker(sink: SqlSink, rows: int = 2) -> Marker:
    return Marker("orders", sink.id, FENCE, epoch_after(None, sink.id, rows))


def commit(sink: SqlSink, **columns: list[Any]) -> Receipt:
    table = pa.table(columns or {"id": [1, 2]})
    return sink.commit(sink.prepare(ArrowBatch(table), 1), marker(sink, table.num_rows))


def ids(sink: SqlSink) -> list[int]:
    with closing(sqlite3.connect(sink.where)) as db:
        return [id for (id,) in db.execute("SELECT id FROM orders ORDER BY id")]


def test_an_epoch_whose_commit_was_answered_has_its_receipt_where_the_connection_does_not_close(sink: Lite) -> None:
    sink.closed = lost
    assert commit(sink).rows == 2
    assert ids(sink) == [1, 2]


def test_a_commit_without_an_answer_is_unknown_where_the_connection_does_not_close_either(sink: Lite) -> None:
    sink.committed = sink.closed = lost
    with pytest.raises(OutcomeUnknown):
        commit(sink)
    assert ids(sink) == [1, 2]


def test_what_failed_is_told_where_the_connection_does_not_close(sink: Lite) -> None:
    sink.closed = lost
    with pytest.raises(ZeroDivisionError):
        failing(sink, ZeroDivisionError)


def failing(sink: Lite, error: type[BaseException]) -> None:
    """Write an epoch whose rows reach the table before something goes wrong."""
    write = sink.write

    def fails(db: Database, rows: pa.Table, epoch: int) -> int | None:
        write(db, rows, epoch)
        raise error

    sink.__dict__["write"] = fails
    try:
        commit(sink)
    finally:
        del sink.__dict__["write"]


class Kept:
    """A connection of a pool, which goes back there as it is; only statements end its transaction."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None)

    def cursor(self) -> Any:
        return self._connection.cursor()

    def close(self) -> None:
        return


class Pooled(Lite):
    kept: Kept | None = None

    def connect(self) -> Any:
        self.kept = self.kept or Kept(self.where)
        return self.kept


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_rows_of_an_attempt_that_died_are_not_committed_by_the_next_on_the_same_connection(
    tmp_path: Path, error: type[BaseException]
) -> None:
    sink = opened(Pooled(tmp_path / "orders.db"))
    with pytest.raises(error):
        failing(sink, error)
    assert commit(sink).rows == 2
    assert ids(sink) == [1, 2]


def test_a_position_whose_transaction_does_not_end_is_refused_and_leaves_nothing_unknown(sink: Lite) -> None:
    sink.committed = lost
    with pytest.raises(DestinationError) as caught:
        sink.position(None)
    assert caught.value.code == "E508"


class Yielding(Lite):
    """What SQLite refuses for the sake of another one is told as such."""

    def read(self, error: Exception) -> Failure | None:
        if not isinstance(error, sqlite3.Error):
            return None
        return Failure("busy", transaction_is_over=True, conflicts="locked" in str(error))


MEMBERS: dict[str, Callable[[Lite], object]] = {
    "open": lambda sink: sink.open("orders"),
    "fence": lambda sink: sink.fence(),
    "look": lambda sink: sink.look(),
    "install": lambda sink: sink.install(Fence(2, "owner")),
    "position": lambda sink: sink.position(None),
    "history": lambda sink: list(sink.history()),
    "recount": lambda sink: sink.recount(),
    "pipelines": lambda sink: sink.pipelines(),
    "identity_now": lambda sink: sink.identity_now(""),
}


@pytest.fixture
def yielding(tmp_path: Path) -> Lite:
    sink: Lite = opened(Yielding(tmp_path / "orders.db"))
    return sink


@contextmanager
def locked(sink: SqlSink) -> Iterator[None]:
    with closing(sqlite3.connect(sink.where, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.parametrize("member", MEMBERS)
def test_a_database_that_others_hold_is_refused_with_a_code_where_nothing_is_written(
    yielding: Lite, member: str
) -> None:
    with locked(yielding), pytest.raises(OnceOnlyError) as caught:
        MEMBERS[member](yielding)
    assert caught.value.code == "E508"


def test_a_commit_that_the_database_took_back_for_others_may_be_repeated(yielding: Lite) -> None:
    with locked(yielding), pytest.raises(Conflict):
        commit(yielding)
    yielding.committed = refused
    with pytest.raises(Conflict):
        commit(yielding)


def test_an_install_that_the_database_took_back_for_others_is_refused_with_a_code(yielding: Lite) -> None:
    yielding.committed = refused
    with pytest.raises(OnceOnlyError) as caught:
        yielding.install(Fence(2, "owner"))
    assert caught.value.code == "E508"


def refused() -> None:
    raise sqlite3.OperationalError("database is locked")


def runs(sink: SqlSink, *statements: str) -> None:
    with closing(sqlite3.connect(sink.where, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def test_rows_that_a_trigger_leaves_out_without_a_word_stop_the_epoch(sink: Lite) -> None:
    runs(
        sink,
        "CREATE TABLE orders (id bigint)",
        "CREATE TRIGGER two BEFORE INSERT ON orders WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END",
    )
    with pytest.raises(DestinationError, match="took 2 rows of epoch 1, but 3 were computed") as caught:
        commit(sink, id=[1, 2, 3])
    assert caught.value.code == "E510"
    assert ids(sink) == []


def test_rows_that_a_trigger_puts_elsewhere_are_counted_where_they_are_read(sink: Lite) -> None:
    runs(
        sink,
        "CREATE TABLE parts (id bigint, _epoch bigint)",
        "CREATE VIEW orders AS SELECT id, _epoch FROM parts",
        "CREATE TRIGGER put INSTEAD OF INSERT ON orders BEGIN INSERT INTO parts VALUES (NEW.id, NEW._epoch); END",
    )
    assert commit(sink).rows == 2
    assert ids(sink) == [1, 2]


class Mute(Lite):
    """Its driver counts no rows."""

    def connect(self) -> Any:
        return _Mute(super().connect())


class _Mute:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def cursor(self) -> Any:
        return _MuteCursor(self._connection.cursor())

    def close(self) -> None:
        self._connection.close()


class _MuteCursor:
    rowcount = -1

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def test_rows_that_a_driver_does_not_count_are_counted_in_the_table(tmp_path: Path) -> None:
    sink: Lite = opened(Mute(tmp_path / "orders.db"))
    runs(
        sink,
        "CREATE TABLE orders (id bigint)",
        "CREATE TRIGGER two BEFORE INSERT ON orders WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END",
    )
    with pytest.raises(DestinationError) as caught:
        commit(sink, id=[1, 2, 3])
    assert caught.value.code == "E510"
    assert commit(sink, id=[1, 3]).rows == 2


@pytest.mark.parametrize("name", ["_epoch", "_Epoch"])
@pytest.mark.parametrize("there", [True, False], ids=["a table with the column", "no table"])
def test_a_column_of_the_batch_that_takes_the_epochs_number_is_refused(sink: Lite, name: str, there: bool) -> None:
    if there:
        runs(sink, "CREATE TABLE orders (id bigint, _epoch bigint)")
    with pytest.raises(DestinationError, match=f"column {name} is the one that takes the epoch's number") as caught:
        commit(sink, id=[1, 2], **{name: [7, 7]})
    assert caught.value.code == "E506"
    assert sink.recount() == {}


class Apart(Lite):
    """Each cursor is a connection of its own, as DuckDB's are."""

    def connect(self) -> Any:
        return _Apart(self.where)


class _Apart:
    def __init__(self, path: str) -> None:
        self._path = path
        self._connections: list[sqlite3.Connection] = []

    def cursor(self) -> Any:
        self._connections.append(sqlite3.connect(self._path, timeout=0, isolation_level=None))
        return self._connections[-1].cursor()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def test_an_epoch_is_one_transaction_where_cursors_share_none(tmp_path: Path) -> None:
    sink: Lite = opened(Apart(tmp_path / "orders.db"))
    assert commit(sink).rows == 2
    assert ids(sink) == [1, 2]


def test_a_place_whose_name_holds_what_parts_an_address_is_found_again(tmp_path: Path) -> None:
    sink = Lite(tmp_path / "a#b" / "x.db", "orders", "shop")
    found = Lite.from_address(sink.address)
    assert (found.where, found.table, found.id) == (sink.where, "orders", "shop")


@pytest.mark.parametrize("address", ["lite:", "lite:x.db", "lite:x.db#orders", "lite:##", "lite:x.db#orders#"])
def test_an_address_that_lacks_a_part_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="lite:<place>#<table>#<id>") as caught:
        Lite.from_address(address)
    assert caught.value.code == "E110"


def test_a_database_whose_identity_was_made_without_a_key_keeps_it(tmp_path: Path) -> None:
    sink = Lite(tmp_path / "orders.db")
    runs(sink, "CREATE TABLE onceonly_identity (id text NOT NULL)", "INSERT INTO onceonly_identity VALUES ('old')")
    opened(sink)
    assert commit(sink).identity == "old"


def test_a_database_whose_identity_went_with_its_row_is_given_another(sink: Lite) -> None:
    runs(sink, "DELETE FROM onceonly_identity")
    sink.install(Fence(2, "owner"))
    assert sink.identity_now("")
