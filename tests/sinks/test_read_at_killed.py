"""Readers of several sinks while their writer is killed again and again: none of them ever sees two epochs at once."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.sinks.read_driver import PIPELINE, ROWS, ledger_of, sinks_of

from onceonly.audit import Verdict, audit
from onceonly.reading import read_at, read_point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.driver import Driver
from onceonly_lab.forkserver import ForkServer
from onceonly_lab.servers.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.kill, pytest.mark.postgres]

REPOSITORY = Path(__file__).resolve().parents[2]
SEED = 20261125
_FOR_EVER = 1_000_000

_VIEWS = """
SELECT (SELECT count(*) / 10 FROM changes_sealed), (SELECT max(id) / 10 + 1 FROM state_sealed),
       (SELECT count(*) / 10 FROM changes), (SELECT max(id) / 10 + 1 FROM state)
"""


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    log = tmp_path_factory.mktemp("fork server") / "log"
    with ForkServer("tests.sinks.read_driver", log, {"PYTHONPATH": str(REPOSITORY)}) as made:
        yield made


class Writer:
    """A driver that is killed by the clock and started anew, until it is told to end."""

    def __init__(self, server: ForkServer, folder: Path, dsn: str) -> None:
        self._server, self._folder, self._dsn = server, folder, dsn
        self.kills = 0
        self._failed: list[str] = []

    def run(self, until: int) -> None:
        """Let a driver come to its end."""
        said = (str(self._folder), self._dsn, str(until))
        with Driver.forked(self._server, *said, log=self._folder / f"driver-{until}") as driver:
            assert driver.wait(120) == 0, driver.last_words()

    @contextmanager
    def dying(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._die, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert self._failed == []

    def _die(self, over: threading.Event) -> None:
        draw = random.Random(SEED)
        said = (str(self._folder), self._dsn, str(_FOR_EVER))
        while not over.is_set():
            with Driver.forked(self._server, *said, log=self._folder / f"driver-k{self.kills}") as driver:
                if draw.random() < 0.75:  # else it dies in its opening
                    driver.wait_for(str.isdigit, 60)
                over.wait(draw.random())
                if driver.kill() != -9:
                    self._failed.append(driver.last_words())
                self.kills += 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def epochs_in(tables: dict[str, pa.Table]) -> list[int]:
    """The newest epoch of each table, all of whose rows must be there and no other."""
    found: list[int] = []
    for sink, table in tables.items():
        ids = sorted(row["id"] for row in table.to_pylist())
        first = 0 if sink == "postgres:changes" else max(0, len(ids) and ids[-1] + 1 - ROWS)
        assert ids == list(range(first, ids[-1] + 1)), sink
        found.append((ids[-1] + 1) // ROWS)
    return found


def read_each_by_itself(folder: Path, dsn: str) -> tuple[int, int]:
    """The newest epoch of a table of Delta and of one of Postgres, each as it stands when it is read."""
    newest = max(DeltaTable(folder / "newest").to_pyarrow_table().column("id").to_pylist())
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT max(id) FROM changes").fetchone()
    assert row is not None
    return newest // ROWS + 1, row[0] // ROWS + 1


@pytest.mark.parametrize(("reads", "kills"), [(20, 3), pytest.param(1000, 20, marks=pytest.mark.slow)])
def test_no_read_at_a_point_sees_two_epochs_and_reads_without_one_do(
    postgres: EmbeddedPostgres, fork_server: ForkServer, folder: Path, reads: int, kills: int
) -> None:
    dsn = postgres.database(f"read_at_{reads}")
    writer = Writer(fork_server, folder, dsn)
    writer.run(6)
    ledger, known, seen = ledger_of(folder), set[str](), set[int]()
    mixed, done = 0, 0
    with writer.dying():
        while done < reads or writer.kills < kills:
            done += 1
            point = read_point(PIPELINE, ledger=ledger)
            assert epochs_in(read_at(PIPELINE, point, ledger=ledger)) == [point.epoch] * 3
            seen.add(point.epoch)
            known.add(digest(ledger))
            delta, table = read_each_by_itself(folder, dsn)
            mixed += delta != table
    print(f"{done} reads at {len(seen)} points, {writer.kills} kills: 0 mixed; {mixed} of {done} without a point")
    assert mixed > 0
    assert len(seen) > 5
    assert len(known) == 1, "epoch 5 has the same rows each time"
    whole(folder, dsn)


def digest(ledger: str) -> str:
    """Of all rows as of epoch 5."""
    found = read_at(PIPELINE, 5, ledger=ledger)
    rows = sorted(f"{sink} {row}" for sink, table in found.items() for row in table.to_pylist())
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize(("reads", "kills"), [(300, 3), pytest.param(20_000, 20, marks=pytest.mark.slow)])
def test_no_statement_over_two_views_sees_two_epochs_and_one_over_the_tables_does(
    postgres: EmbeddedPostgres, fork_server: ForkServer, folder: Path, reads: int, kills: int
) -> None:
    dsn = postgres.database(f"views_{reads}")
    writer = Writer(fork_server, folder, dsn)
    writer.run(2)
    mixed, done, shown = 0, 0, 0
    with writer.dying(), psycopg.connect(dsn, autocommit=True) as connection:
        while done < reads or writer.kills < kills:
            done += 1
            row = connection.execute(_VIEWS).fetchone()
            assert row is not None
            changes, state, *plain = row
            assert changes == state >= shown, row
            shown = changes
            mixed += plain[0] != plain[1]
            time.sleep(0.001)
    print(f"{done} statements, {writer.kills} kills, up to epoch {shown}: 0 mixed; {mixed} of {done} over the tables")
    assert mixed > 0
    whole(folder, dsn)


def whole(folder: Path, dsn: str) -> None:
    """The writer was exact all the while: nothing that readers are compared with was lost or doubled."""
    ledger, sinks = SqlLedger(ledger_of(folder)), sinks_of(folder, dsn)
    with ExitStack() as stack:
        for each in (ledger, *sinks):
            stack.callback(each.close)
        judged = audit(ledger, PIPELINE, sinks)
        assert judged.verdict is Verdict.NOT_COUNTED, judged.text  # rows by key are in no count; the rest is right
