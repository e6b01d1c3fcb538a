"""Addresses are understood in every spelling; failures are told apart in words; secrets stay inside."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.checkpoints.samples import history

from onceonly_checkpoints.install import hint
from onceonly_checkpoints.ledger import LedgerUnavailable, databases
from onceonly_checkpoints.ledger.databases import PostgresDatabase, SqliteFile
from onceonly_checkpoints.ledger.location import place_of
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.servers.postgres import EmbeddedPostgres

SECRET = "s3cret word"


@pytest.mark.parametrize(
    ("spelling", "path"),
    [
        ("/data/ledger.db", "/data/ledger.db"),
        ("/data/date=2024/ledger.db", "/data/date=2024/ledger.db"),
        ("sqlite:////data/ledger.db", "/data/ledger.db"),
        ("file:/data/my%20ledger.db", "/data/my ledger.db"),
        ("file:///data/ledger.db", "/data/ledger.db"),
        ("ledger.db", f"{Path.cwd()}/ledger.db"),
        ("date=2024/ledger.db", f"{Path.cwd()}/date=2024/ledger.db"),
        ("sqlite:///ledger.db", f"{Path.cwd()}/ledger.db"),
    ],
)
def test_a_path_is_sqlite(spelling: str, path: str) -> None:
    assert place_of(spelling) == SqliteFile(Path(path))
    assert place_of(spelling).address == path


@pytest.mark.parametrize(
    "spelling",
    [
        "postgresql://ann:s3cret%20word@db:5433/shop",
        "postgres://ann:s3cret%20word@db:5433/shop",
        "postgresql+psycopg://ann:s3cret%20word@db:5433/shop",
        "host=db port=5433 dbname=shop user=ann password='s3cret word'",
    ],
)
def test_every_spelling_of_a_postgres_database_is_the_same_place_without_its_password(spelling: str) -> None:
    place = place_of(spelling)
    assert isinstance(place, PostgresDatabase)
    assert dict(place.settings)["password"] == SECRET
    assert place.address == "postgresql://ann@db:5433/shop"
    assert place == place_of("postgresql://ann:s3cret%20word@db:5433/shop")


def test_a_socket_directory_is_understood() -> None:
    place = place_of("postgresql://postgres:@/postgres?host=/tmp/sockets")
    assert isinstance(place, PostgresDatabase)
    assert dict(place.settings)["host"] == "/tmp/sockets"


@pytest.mark.parametrize("spelling", ["", ":memory:", "sqlite://", "sqlite:///:memory:", "mysql://u:p@h/d"])
def test_what_cannot_hold_a_ledger_is_refused(spelling: str) -> None:
    with pytest.raises(ValueError, match="ledger"):
        place_of(spelling)


def test_an_address_of_several_hosts_leads_to_the_one_that_was_meant() -> None:
    place = place_of("postgresql://ann:secret@one:5433,two:5434/shop?target_session_attrs=read-write")
    assert place.address == "postgresql://ann@one:5433,two:5434/shop?target_session_attrs=read-write"
    assert place_of(place.address).address == place.address
    assert place_of("host=one,two port=5433 dbname=shop").address == "postgresql://one:5433,two:5433/shop"


def test_a_malformed_address_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValueError, match="malformed") as error:
        place_of(f"postgresql://ann:{SECRET}@db/shop?nosuch=1")
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None


def test_the_ledger_can_be_imported_without_any_postgres_driver(tmp_path: Path) -> None:
    program = f"""
import sys
import threading
sys.modules["psycopg"] = None
from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_checkpoints.ledger.sql import SqlLedger
ledger = SqlLedger({str(tmp_path / "ledger.db")!r})
ledger.open()
assert ledger.pipelines() == []
try:
    SqlLedger("postgresql://h/d")
except LedgerUnavailable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert hint("postgres") in done.stdout


class TestSqlite:
    """What goes wrong with files."""

    def test_a_missing_directory_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(LedgerUnavailable, match=f"the directory {tmp_path}/nowhere does not exist"):
            SqlLedger(str(tmp_path / "nowhere" / "ledger.db")).open()

    def test_reading_never_creates_a_file(self, tmp_path: Path) -> None:
        with pytest.raises(LedgerUnavailable, match="there is no such file"):
            SqlLedger(str(tmp_path / "ledger.db")).head("orders")
        assert list(tmp_path.iterdir()) == []

    def test_a_directory_is_no_ledger(self, tmp_path: Path) -> None:
        with pytest.raises(LedgerUnavailable, match="it is a directory"):
            SqlLedger(str(tmp_path)).open()

    def test_a_file_that_is_no_database_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "ledger.db").write_text("a diary, and a long one" * 100)
        with pytest.raises(LedgerUnavailable, match="no SQLite database"):
            SqlLedger(str(tmp_path / "ledger.db")).open()
        assert (tmp_path / "ledger.db").read_text().startswith("a diary")

    def test_a_database_without_a_ledger_says_so(self, tmp_path: Path) -> None:
        sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (a)").connection.close()
        address = str(tmp_path / "other.db")
        with closing(SqlLedger(address)) as ledger, pytest.raises(LedgerUnavailable, match="no ledger"):
            ledger.head("orders")

    def test_a_ledger_that_another_process_keeps_locked_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("onceonly_checkpoints.ledger.databases.PATIENCE_S", 0.2)
        ledger = SqlLedger(str(tmp_path / "ledger.db"))
        ledger.open()
        holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="kept it locked"):
            ledger.record(next(iter(history(1))))
        assert ledger.head("orders") is None, "a reader does not wait for a writer"
        holder.execute("ROLLBACK")
        ledger.record(next(iter(history(1))))
        holder.close()
        ledger.close()

    def test_a_first_start_waits_for_another_first_start(self, tmp_path: Path) -> None:
        holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)
        holder.execute("BEGIN EXCLUSIVE")
        releasing = threading.Timer(0.3, holder.close)
        releasing.start()
        with closing(SqlLedger(str(tmp_path / "ledger.db"))) as ledger:
            ledger.open()
            assert ledger.pipelines() == []
        releasing.join()

    def test_a_first_start_does_not_wait_for_ever(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("onceonly_checkpoints.ledger.databases.PATIENCE_S", 0.2)
        holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerUnavailable, match="kept it locked"):
            SqlLedger(str(tmp_path / "ledger.db")).open()
        holder.close()

    def test_a_reader_never_keeps_a_driver_waiting(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("onceonly_checkpoints.ledger.databases.PATIENCE_S", 0.2)
        ledger = SqlLedger(str(tmp_path / "ledger.db"))
        ledger.open()
        reader = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM ledger_epochs").fetchall()
        ledger.record(next(iter(history(1))))
        assert reader.in_transaction, "it still reads"
        assert len(ledger.epochs("orders")) == 1
        reader.close()
        ledger.close()

    @pytest.mark.parametrize("how", ["deleted", "replaced"])
    def test_a_file_that_vanishes_under_a_driver_stops_it_and_a_new_start_makes_a_new_one(
        self, tmp_path: Path, how: str
    ) -> None:
        ledger = SqlLedger(str(tmp_path / "ledger.db"))
        ledger.open()
        first, second = history(2)
        ledger.record(first)
        for path in tmp_path.glob("ledger.db*"):
            path.unlink()
        if how == "replaced":
            other = SqlLedger(str(tmp_path / "ledger.db"))
            other.open()
            other.close()

        with pytest.raises(LedgerUnavailable, match=r"deleted or replaced|no such file"):
            ledger.record(second)
        if how == "deleted":
            assert list(tmp_path.glob("ledger.db*")) == []

        ledger.open()
        assert ledger.head("orders") is None
        ledger.record(first)
        assert ledger.head("orders") == first
        ledger.close()

    def test_what_was_recorded_is_on_the_disk(self, tmp_path: Path) -> None:
        ledger = SqlLedger(str(tmp_path / "ledger.db"))
        ledger.open()
        engine = place_of(str(tmp_path / "ledger.db")).engine()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        engine.dispose()
        ledger.close()

    def test_a_driver_killed_while_it_writes_leaves_whole_epochs(self, tmp_path: Path) -> None:
        program = f"""
import sys
import threading
from onceonly_checkpoints.ledger.sql import SqlLedger
from tests.checkpoints.samples import history
ledger = SqlLedger({str(tmp_path / "ledger.db")!r})
ledger.open()
for record in history(100_000):
    ledger.record(record)
    print(record.epoch.number, flush=True)
"""
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            while int(driver.stdout.readline()) < 25:
                pass
            driver.kill()
            told = [int(line) for line in driver.stdout if line.strip()] or [25]
        ledger = SqlLedger(str(tmp_path / "ledger.db"))
        found = list(ledger.epochs("orders"))
        assert len(found) >= told[-1]
        assert found == list(history(len(found)))
        ledger.close()


NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")


class TestPermissions:
    """As somebody who may not write."""

    @pytest.fixture
    def shared(self, tmp_path: Path) -> Path:
        # pytest's own directories are closed to others.
        for directory in (tmp_path, *list(tmp_path.parents)[:3]):
            if directory != Path("/tmp"):
                directory.chmod(0o755)
        return tmp_path

    def run_as_nobody(self, path: Path, action: str) -> str:
        program = f"""
import os, sys
from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_checkpoints.ledger.sql import SqlLedger
from tests.checkpoints.samples import history
SqlLedger({str(path.parent / "warm.db")!r})
os.setegid({NOBODY}); os.seteuid({NOBODY})
ledger = SqlLedger({str(path)!r})
try:
    {action}
except LedgerUnavailable as error:
    print(error)
os.seteuid(0)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @as_root
    def test_a_read_only_directory_is_told_from_a_missing_one(self, shared: Path) -> None:
        assert self.run_as_nobody(shared / "ledger.db", "ledger.open()") == f"permission denied in {shared}"

    @as_root
    def test_a_read_only_file_can_be_read_but_not_written(self, shared: Path) -> None:
        ledger = SqlLedger(str(shared / "ledger.db"))
        ledger.open()
        ledger.record(next(iter(history(1))))
        ledger.close()
        action = "print(ledger.head('orders').epoch.number); ledger.record(next(iter(history(1))))"
        assert self.run_as_nobody(shared / "ledger.db", action) == "1\nthe file or its directory is read-only"

    @as_root
    def test_a_full_disk_is_told(self, tmp_path: Path) -> None:
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mount.returncode:
            pytest.skip(f"cannot mount a small disk: {mount.stderr.strip()}")
        try:
            ledger = SqlLedger(str(tmp_path / "ledger.db"))
            ledger.open()
            with pytest.raises(LedgerUnavailable, match="the disk is full"):
                self.write_on(ledger)
            ledger.close()
        finally:
            subprocess.run(["umount", "-l", str(tmp_path)], check=True)

    @staticmethod
    def write_on(ledger: SqlLedger) -> None:
        for record in history(5_000):
            ledger.record(record)


@pytest.mark.postgres
class TestPostgres:
    """What goes wrong with servers."""

    def test_a_server_that_is_not_there_does_not_answer(self) -> None:
        with pytest.raises(LedgerUnavailable, match="does not answer") as error:
            SqlLedger(f"postgresql://ann:{SECRET.replace(' ', '')}@127.0.0.1:1/shop").open()
        assert SECRET.replace(" ", "") not in str(error.value)

    def test_a_database_that_is_not_there_is_told(self, postgres: EmbeddedPostgres) -> None:
        with pytest.raises(LedgerUnavailable, match=r'the server has no database "nosuch"'):
            SqlLedger(postgres.dsn.rpartition("/")[0] + "/nosuch").open()

    def test_a_database_without_a_ledger_says_so(self, postgres_url: str) -> None:
        with closing(SqlLedger(postgres_url)) as ledger, pytest.raises(LedgerUnavailable, match="it holds no ledger"):
            ledger.head("orders")

    def test_a_read_only_database_is_told(self, postgres_url: str) -> None:
        ledger = SqlLedger(postgres_url)
        ledger.open()
        ledger.close()
        separator = "&" if "?" in postgres_url else "?"
        reader = SqlLedger(f"{postgres_url}{separator}options=-c%20default_transaction_read_only%3Don")
        assert reader.head("orders") is None
        with pytest.raises(LedgerUnavailable, match="read-only"):
            reader.record(next(iter(history(1))))
        reader.close()

    def test_statements_are_never_prepared_on_the_server(self, postgres_url: str) -> None:
        ledger = SqlLedger(postgres_url)
        ledger.open()
        for record in history(12):
            ledger.record(record)
        engine = place_of(postgres_url).engine()
        with engine.connect() as connection:
            assert connection.connection.driver_connection.prepare_threshold is None  # type: ignore[union-attr]
        engine.dispose()
        ledger.close()


class OlderError(sqlite3.OperationalError):
    """An error as Python 3.10 raises it: a text, and no result code."""


def failing(directory: Path) -> Iterator[sqlite3.Error]:
    """What SQLite raises for a directory, for no database, and for a file that somebody else is writing."""
    (directory / "text.db").write_text("this is no database, but long enough to be one" * 40)
    with pytest.raises(sqlite3.Error) as caught:
        sqlite3.connect(directory)
    yield caught.value
    with closing(sqlite3.connect(directory / "text.db")) as damaged, pytest.raises(sqlite3.Error) as caught:
        damaged.execute("SELECT * FROM sqlite_master")
    yield caught.value
    busy = directory / "busy.db"
    with closing(sqlite3.connect(busy)) as one, closing(sqlite3.connect(busy, timeout=0)) as other:
        one.execute("CREATE TABLE t (x)")
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.Error) as caught:
            other.execute("INSERT INTO t VALUES (1)")
        yield caught.value


def test_an_error_of_sqlite_without_a_code_is_told_by_sqlites_own_text(tmp_path: Path) -> None:
    for error in failing(tmp_path):
        told = databases._result_code(error)
        assert told is not None
        assert databases._result_code(OlderError(str(error))) is told
