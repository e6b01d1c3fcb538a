"""Behind a real PgBouncer that pools by transaction, set as the recipe says, the sink does what it does without one.

``ONCEONLY_TEST_PGBOUNCER`` names the program where it is not on the path; ``make pooler`` brings one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.sinks.flat_options import postgres_sink
from tests.sinks.postgres_harness import PostgresHarness
from tests.sinks.postgres_writer import Writer, orders, rows, run
from tests.test_docs import ROOT, blocks

from onceonly.protocol import Superseded
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.conformance import SinkConformance, SinkHarness
from onceonly_lab.servers.ports import free_ports
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.postgres, pytest.mark.pooler]

FETCHED = ROOT / ".cache" / "pgbouncer" / "pgbouncer"
"""Where ``make pooler`` leaves it."""

PAGE = ROOT / "docs" / "reference" / "postgres.md"


def program() -> str:
    named = os.environ.get("ONCEONLY_TEST_PGBOUNCER")
    found = named or next(filter(None, map(shutil.which, ("pgbouncer", "/usr/sbin/pgbouncer", str(FETCHED)))), None)
    if not found:
        pytest.skip("there is no pgbouncer: the recipe for it was not tried; make pooler brings one")
    return found


def settings(port: int, servers: str) -> str:
    """Those of the page, at other addresses."""
    [said] = [block.code for block in blocks(PAGE.read_text()) if block.info == "ini"]
    replaced = {
        "shop = host=127.0.0.1 port=5432 dbname=shop": f"* = {servers}",
        "listen_port = 6432": f"listen_port = {port}",
    }
    for old, new in replaced.items():
        assert old in said
        said = said.replace(old, new)
    return said


@pytest.fixture(scope="module")
def pooler(postgres: EmbeddedPostgres) -> Iterator[str]:
    """Host and port of the pooler."""
    command = [program()]
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="onceonly-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "pooler.ini").write_text(settings(port, f"host=127.0.0.1 port={postgres.port}"))
        (folder / "users.txt").write_text('"postgres" ""\n')
        # As root it refuses to run. It changes the user itself: that one may not see the folder that the program is in.
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with (folder / "log").open("wb") as log:
            started = subprocess.Popen([*command, *user, "pooler.ini"], cwd=folder, stdout=log, stderr=log)
        try:
            await_answer(f"postgresql://postgres@127.0.0.1:{port}/postgres", started, folder / "log")
            yield f"127.0.0.1:{port}"
        finally:
            started.terminate()
            started.wait(20)


def await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=2).close()
            return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture
def pooled(dsn: str, pooler: str) -> str:
    """The address of the test's database behind the pooler."""
    return urlsplit(dsn)._replace(netloc=f"postgres@{pooler}").geturl()


@pytest.mark.parametrize("via", ["driver", "executors"])
def test_epochs_are_written_recorded_and_fenced_behind_it(dsn: str, pooled: str, via: str) -> None:
    ledger = SqlLedger(pooled)
    ledger.open()
    with Writer(pooled, load=via) as old, Writer(pooled, generation=2, load=via) as new:
        for number in (1, 2, 3):
            new.write(orders(number), ledger)
        assert [row[0] for row in rows(dsn)] == [1, 2, 3]
        old.last = new.last
        with pytest.raises(Superseded):
            old.write(orders(4))
        assert [row[0] for row in rows(dsn)] == [1, 2, 3]
        assert new.position().epoch == 3
    head = ledger.head("orders")
    assert head is None or head.epoch.number == 3
    ledger.close()


def test_one_connection_of_the_pool_serves_many(dsn: str, pooled: str) -> None:
    for generation in range(1, 6):
        with Writer(pooled, generation=generation) as writer:
            writer.write(orders(generation))
    [(connections,)] = run(
        dsn, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert 1 <= connections <= 3
    assert len(rows(dsn)) == 5


class PooledHarness(PostgresHarness):
    """The sink goes through the pooler; whoever looks at the table does not."""

    def __init__(self, dsn: str, pooled: str, **options: Any) -> None:
        super().__init__(dsn, **options)
        self._pooled = pooled

    def connect(self) -> PostgresSink:
        return postgres_sink(self._pooled, self._table, **self._options)

    def another(self) -> SinkHarness:
        return PooledHarness(self._dsn, self._pooled, **self._options)


@pytest.mark.slow
class TestAppendBehindPgBouncer(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres, pooler: str) -> PostgresHarness:
        return PooledHarness(postgres.database("pooled"), f"postgresql://postgres@{pooler}/pooled", load="driver")
