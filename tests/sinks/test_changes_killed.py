"""A second program that reads changes is killed again and again, as printed: its totals are those of the table."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.flat_options import postgres_sink
from tests.sinks.postgres_writer import run
from tests.sinks.test_rows_by_epoch import One
from tests.test_docs import FILE, ROOT, SQL, blocks

pytestmark = [pytest.mark.kill, pytest.mark.postgres]

PAGE = ROOT / "docs" / "concepts" / "streams-and-tables.md"
KILLS, EPOCHS, CITIES = 10, 45, ("Bonn", "Rome", "Oslo")
MAIN = """
import sys
from totals import step
dsn, ledger, until = sys.argv[1:]
from psycopg import connect
with connect(dsn) as database:
    [(last,)] = database.execute("SELECT epoch FROM position").fetchall()
while last < int(until):
    print("adds", last + 1, flush=True)
    last = step(dsn, ledger, last + 1)
"""
HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';
CREATE TRIGGER hold BEFORE UPDATE ON position FOR EACH ROW EXECUTE FUNCTION hold();
"""
"""The test can hold a consumer up that has added totals, and is about to move its position."""

HELD = "FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"


@contextmanager
def held(dsn: str) -> Iterator[None]:
    """Wait until a consumer has added totals. Afterwards the server ends its connection, as of a dead client."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("SELECT pg_advisory_lock(1)")
        while not owner.execute(f"SELECT pid {HELD}".encode()).fetchall():
            time.sleep(0.01)
        yield
        owner.execute(f"SELECT pg_terminate_backend(pid, 5000) {HELD}".encode())


def started(folder: Path, dsn: str, ledger: str) -> subprocess.Popen[str]:
    command = [sys.executable, "main.py", dsn, ledger, str(EPOCHS)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def totals(dsn: str) -> dict[str, int]:
    return {city: amount for city, amount in run(dsn, "SELECT city, amount FROM totals") if amount}


def test_a_consumer_killed_ten_times_has_the_totals_of_the_table(dsn: str, tmp_path: Path) -> None:
    printed = list(blocks(PAGE.read_text()))
    [program] = [block.code for block in printed if FILE.fullmatch(block.info)]
    with psycopg.connect(dsn, autocommit=True) as owner:
        for block in printed:
            if block.info == SQL:
                owner.execute(block.code.encode())
    (tmp_path / "totals.py").write_text(program)
    (tmp_path / "main.py").write_text(MAIN)
    run(dsn, HOLD)
    dice = random.Random(8)
    query = One(tmp_path, lambda: postgres_sink(dsn, "orders", key="id", history="all"))
    driver = query.driver()
    for epoch in range(1, EPOCHS + 1):
        ids = dice.sample(range(30), 8)
        cities, amounts = [dice.choice(CITIES) for _ in ids], [dice.randrange(100) for _ in ids]
        driver.writes(epoch, table=pa.table({"id": ids, "city": cities, "amount": amounts}))
    driver.sinks[0].close()
    ledger, positions = query.ledger.address, list[int]()
    for kill in range(KILLS):
        with started(tmp_path, dsn, ledger) as consumer:
            assert consumer.stdout is not None
            for _ in range(dice.randrange(1, 4)):
                assert consumer.stdout.readline().startswith("adds")
            if kill % 2:
                time.sleep(dice.random() * 0.1)
                consumer.kill()
            else:
                with held(dsn):
                    consumer.kill()
        assert consumer.returncode == -9
        positions.append(run(dsn, "SELECT epoch FROM position")[0][0])
    assert positions[0] < positions[-1] < EPOCHS
    with started(tmp_path, dsn, ledger) as consumer:
        consumer.communicate(timeout=120)
    assert consumer.returncode == 0
    expected = Counter[str]()
    for city, amount in run(dsn, "SELECT city, amount FROM orders"):
        expected[city] += amount
    assert totals(dsn) == dict(expected)
    query.ledger.close()
