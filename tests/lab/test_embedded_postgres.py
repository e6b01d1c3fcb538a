"""The embedded server starts, crashes and comes back on the same port; it never outlives who started it."""

import signal
import subprocess
import sys
import time

import psutil
import psycopg
import pytest

from onceonly_lab.servers import postgres
from onceonly_lab.servers.ports import free_ports
from onceonly_lab.servers.postgres import EmbeddedPostgres, temporary_postgres

pytestmark = pytest.mark.postgres

PARENT = """
import sys, time
from onceonly_lab.servers.postgres import EmbeddedPostgres
server = EmbeddedPostgres(sys.argv[1])
server.start()
print(server.port, flush=True)
time.sleep(600)
"""


def count(dsn: str, table: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row
    return int(row[0])


def test_what_was_committed_survives_a_crash_and_an_unlogged_table_does_not(server: EmbeddedPostgres) -> None:
    dsn, port = server.database("crash"), server.port
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS x")
        connection.execute("CREATE UNLOGGED TABLE wiped AS SELECT 1 AS x")
    server.kill()
    assert not server.running
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
    server.start()
    assert (server.port, count(dsn, "kept"), count(dsn, "wiped")) == (port, 1, 0)


def test_starting_and_stopping_may_repeat_and_durability_is_on(server: EmbeddedPostgres) -> None:
    server.start()
    server.start()
    server.stop()
    server.stop()
    server.kill()
    server.restart()
    assert server.running
    with psycopg.connect(server.dsn) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            assert connection.execute("SELECT current_setting(%s)", [setting]).fetchone() == ("on",)


def test_a_server_does_not_outlive_a_killed_parent_and_its_data_starts_again(server: EmbeddedPostgres) -> None:
    server.stop()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(server.data_dir)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    assert int(parent.stdout.readline())
    pid = int((server.data_dir / "postmaster.pid").read_text().split("\n", 1)[0])
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    server.start()  # waits for, or ends, what is left
    assert count(server.dsn, "pg_class") > 0
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def directory(dsn: str) -> str:
    """Where the server that answers there has its data."""
    with psycopg.connect(dsn) as connection:
        (place,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    return str(place)


def test_a_port_that_another_server_took_meanwhile_is_left_to_it(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "free_ports", lambda count: [server.port, *free_ports(count)])
    with temporary_postgres() as other:
        assert other.port != server.port
        found = {directory(one.dsn): str(one.data_dir) for one in (other, server)}
    assert [*found] == [*found.values()]
    assert len(found) == 2
