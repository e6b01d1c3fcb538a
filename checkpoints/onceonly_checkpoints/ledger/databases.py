"""SQLite and Postgres engines of a ledger, and their failures in words."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_checkpoints.storage import file_in_the_way

# ---- A database that a server does not have, told from a login that it refuses: libpq gives neither an SQLSTATE.

_ALWAYS_THERE = ("postgres", "template1")
_SECONDS = "5"


def absent_database(error: BaseException) -> str:
    """Name of the database that a failed psycopg connection wanted, if the server does not have it.

    The same login asks in another database of the server. Empty if the database exists, or the server cannot be asked.
    """
    import psycopg

    pgconn: Any = getattr(error, "pgconn", None)
    if pgconn is None:
        return ""
    tried: dict[str, Any] = {option.keyword.decode(): option.val.decode() for option in pgconn.info if option.val}
    database = tried.get("dbname") or tried.get("user", "")
    for other in _ALWAYS_THERE:
        try:
            parameters: dict[str, Any] = {**tried, "dbname": other, "connect_timeout": _SECONDS}
            with psycopg.connect(**parameters) as connection:
                query = "SELECT 1 FROM pg_catalog.pg_database WHERE datname = %s"
                return "" if connection.execute(query, [database]).fetchone() else database
        except psycopg.Error:
            continue
    return ""


# ---- The homes themselves.

PATIENCE_S = 10
"""How long to wait for a lock or a connection, seconds."""

READ_ONLY = "onceonly_read_only"
"""Execution option of connections that only read."""


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A SQLite file of this machine. Drivers on several machines need Postgres."""

    path: Path

    dialect = "sqlite"
    schema = None

    @property
    def address(self) -> str:
        """The absolute path."""
        return str(self.path)

    @property
    def driver_error(self) -> type[Exception]:
        """SQLite's."""
        return sqlite3.Error

    def _mode(self) -> str:
        """Mode to open the file: for writing if that is allowed, and never creating it."""
        if _may_write(self.path) and _may_write(self.path.parent):
            return "rw"
        # A write-ahead log is shared through a file beside it: needed only where a driver has made one.
        return "ro" if self.path.with_name(f"{self.path.name}-wal").exists() else "ro&immutable=1"

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=PATIENCE_S,
            isolation_level=None,  # else the module begins and ends transactions of its own beside ours
            check_same_thread=False,
        )

    def engine(self) -> Engine:
        """Engine whose transactions are real ones: writing takes the lock first, committing flushes."""
        # Never creates the file: one that has vanished must not come back empty by itself.
        engine = create_engine(
            URL.create("sqlite", database=str(self.path)),
            creator=lambda: self._connect(self._mode()),
            pool_size=2,
            max_overflow=2,
            pool_timeout=PATIENCE_S,
        )
        event.listen(engine, "connect", self._prepare)
        event.listen(engine, "begin", _begin)
        return engine

    def single(self, engine: Engine) -> Engine:
        """The same engine: here a transaction around one statement costs next to nothing."""
        return engine

    def _prepare(self, connection: sqlite3.Connection, record: Any) -> None:
        # With a write-ahead log a lower setting flushes at no commit: a power cut takes epochs that were confirmed.
        connection.execute("PRAGMA synchronous=FULL").close()
        record.info["file"] = self._file()

    def _file(self) -> tuple[int, int] | None:
        try:
            file_stat = self.path.stat()
        except FileNotFoundError:
            return None
        return file_stat.st_dev, file_stat.st_ino

    def create(self) -> None:
        """Create the file.

        A write-ahead log costs one flush per commit (a rollback journal: three or four), and readers never make a
        driver wait. It works on one machine only, like the locks of SQLite on most network file systems.
        """
        until = time.monotonic() + PATIENCE_S
        with closing(self._connect("rwc")) as connection:
            while not _write_ahead(connection):
                if time.monotonic() > until:
                    raise LedgerUnavailable(_SQLITE_WORDS[_Result.BUSY])
                time.sleep(0.02)

    def check(self, connection: Connection) -> None:
        """Refuse to write into a file that has been deleted or replaced while it was open."""
        if connection.info["file"] != self._file():
            raise LedgerUnavailable("the file was deleted or replaced while it was in use; start the query again")

    def words(self, error: BaseException) -> str:
        """Describe a failure by SQLite's result code."""
        if not isinstance(error, sqlite3.Error):
            return type(error).__name__
        code = _result_code(error)
        if code is _Result.CANTOPEN:
            return self._why_not_opened()
        if code is None:
            return f"SQLite failed with {getattr(error, 'sqlite_errorname', type(error).__name__)}"
        return _SQLITE_WORDS[code]

    def _why_not_opened(self) -> str:
        if blocking_file := file_in_the_way(self.path.parent):
            return f"{blocking_file} is a file, where a directory is wanted"
        if not self.path.parent.is_dir():
            return f"the directory {self.path.parent} does not exist"
        if self.path.is_dir():
            return "it is a directory"
        if not self.path.exists() and _may_write(self.path.parent):
            return "there is no such file"
        return f"{os.strerror(errno.EACCES).lower()} in {self.path.parent}"


def _write_ahead(connection: sqlite3.Connection) -> bool:
    """Switch the file to a write-ahead log. ``False`` while others lock it: here SQLite itself does not wait."""
    try:
        connection.execute("PRAGMA journal_mode=WAL").close()
    except sqlite3.OperationalError as error:
        if _result_code(error) is not _Result.BUSY:
            raise
        return False
    return True


def _may_write(path: Path) -> bool:
    # The kernel looks at the effective user.
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


class _Result(IntEnum):
    """SQLite's result codes that are distinguished: numbers of its C interface, which never change."""

    ERROR = 1
    PERM = 3
    BUSY = 5
    LOCKED = 6
    READONLY = 8
    IOERR = 10
    CORRUPT = 11
    FULL = 13
    CANTOPEN = 14
    NOTADB = 26


# Before Python 3.11 an error carries no result code. It does carry SQLite's own text of it (sqlite3_errstr), one
# for each and never translated; all else is told by code.
_TEXTS = {
    "SQL logic error": _Result.ERROR,
    "access permission denied": _Result.PERM,
    "database is locked": _Result.BUSY,
    "database table is locked": _Result.LOCKED,
    "attempt to write a readonly database": _Result.READONLY,
    "disk I/O error": _Result.IOERR,
    "database disk image is malformed": _Result.CORRUPT,
    "database or disk is full": _Result.FULL,
    "unable to open database file": _Result.CANTOPEN,
    "file is not a database": _Result.NOTADB,
}

HOLDS_NONE = "it holds no ledger"
"""What is said of a place in which nothing was recorded yet."""

_SQLITE_WORDS = {
    _Result.READONLY: "the file or its directory is read-only",
    _Result.FULL: "the disk is full",
    _Result.BUSY: f"another process kept it locked for {PATIENCE_S} s",
    _Result.LOCKED: f"another process kept it locked for {PATIENCE_S} s",
    _Result.CORRUPT: "the file is damaged",
    _Result.NOTADB: "the file is no SQLite database",
    _Result.IOERR: "the disk failed to read or write it",
    _Result.PERM: "permission denied",
    # Of a statement that is right, it means that a table is not there.
    _Result.ERROR: "it holds no ledger that can be read (SQLITE_ERROR)",
}


def _result_code(error: sqlite3.Error) -> _Result | None:
    """SQLite's result code without the details of an extended one, or ``None`` for other codes."""
    number = getattr(error, "sqlite_errorcode", None)
    if number is None:
        return _TEXTS.get(str(error))
    # The low byte: what an extended code adds (of which read or write, which lock) changes nothing for a reader.
    return next((code for code in _Result if code == number & 0xFF), None)


def _begin(connection: Connection) -> None:
    # The lock first: a transaction that reads and then writes fails at once where another has written meanwhile
    # (SQLITE_BUSY_SNAPSHOT), whatever timeout there is.
    read_only = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """A Postgres database. ``settings`` are libpq keywords and values."""

    settings: tuple[tuple[str, str], ...]

    dialect = "postgres"
    schema = "onceonly"

    @property
    def address(self) -> str:
        """URL without password. Of several hosts it leads to the one that was meant."""
        settings = dict(self.settings)
        user = f"{settings['user']}@" if "user" in settings else ""
        hosts, ports = settings.get("host", "").split(","), settings.get("port", "").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        where = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
        session_attrs = settings.get("target_session_attrs")
        which = f"?target_session_attrs={session_attrs}" if session_attrs else ""
        return f"postgresql://{user}{where}/{settings.get('dbname', '')}{which}"

    @property
    def driver_error(self) -> type[Exception]:
        """Postgres has none: its driver is used through SQLAlchemy alone."""
        return DBAPIError

    def engine(self) -> Engine:
        """Engine with a small pool and no statement that a connection pooler would trip over."""
        # A ping before each use would cost a round trip per epoch; a dead connection is noticed by its first statement.
        arguments = {"application_name": "onceonly-ledger", **_IMPATIENT, **dict(self.settings)}
        return create_engine(
            "postgresql+psycopg://",
            # A statement that is prepared in one session of a transaction pooler is not there in the next.
            connect_args={**arguments, "prepare_threshold": None},
            pool_size=2,
            max_overflow=2,
            pool_timeout=PATIENCE_S,
        )

    def single(self, engine: Engine) -> Engine:
        """The engine for work of one statement, which is its own transaction: one trip in place of three."""
        return engine.execution_options(isolation_level="AUTOCOMMIT")

    def create(self) -> None:
        """Nothing: the database is there, or it is not ours to create."""

    def check(self, connection: Connection) -> None:
        """Nothing: the server knows its own files."""

    def _without_state(self, error: BaseException) -> str:
        """A refused login has no SQLSTATE in libpq, but a ping without login shows whether the server is there."""
        from psycopg.conninfo import make_conninfo
        from psycopg.pq import PGconn, Ping

        connection = getattr(error, "pgconn", None)
        if connection is None or not (connection.used_password or connection.needs_password):
            address = make_conninfo("", **{**dict(self.settings), "connect_timeout": "2"})
            answer = PGconn.ping(address.encode())
            if answer != Ping.OK:
                return "the server rejects connections" if answer == Ping.REJECT else "the server does not answer"
        if absent := absent_database(error):
            return f'the server has no database "{absent}"'
        return "the server refused the login: wrong password, role or database"

    def words(self, error: BaseException) -> str:
        """Describe a failure by SQLSTATE. Without one there was no answer, or the server refused the login."""
        state = getattr(error, "sqlstate", None)
        if state is None:
            return self._without_state(error)
        return _SQLSTATE_WORDS.get(state) or _SQLSTATE_WORDS.get(state[:2]) or f"Postgres failed with SQLSTATE {state}"


_IMPATIENT = {
    "connect_timeout": str(PATIENCE_S),
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Notice a server that vanished without a word within half a minute, instead of after hours."""

# A whole state goes before its class, the first two digits. For people alone: a call is sent again where its connection
# was lost, whatever the words.
_SQLSTATE_WORDS = {
    "08": "the server does not answer",
    "25006": "the database is read-only",
    "28": "the server refused the role or its password",
    "3D000": "there is no such database",
    "3F000": HOLDS_NONE,
    "40": "the server chose to undo the transaction",
    "42501": "the role lacks a permission",
    "42P01": HOLDS_NONE,  # a schema without our tables; 3F000 without the schema
    "53100": "the disk of the server is full",
    "53300": "the server has no connection left",
    "55P03": f"another transaction kept it locked for {PATIENCE_S} s",
    "57": "the server is shutting down or cancelled the statement",
}
