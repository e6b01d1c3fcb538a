"""A real database set back together with its own ledger, and one that moved to another server by dump and restore."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from integration.printed import command, obey, refused, run
from integration.targets import Backup, PostgresTarget, events
from typer.testing import CliRunner

from onceonly import EventTime, Storage, exactly_once
from onceonly.cli.app import app
from onceonly.event_time import TimeReader
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.servers.postgres import EmbeddedPostgres, temporary_postgres

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def audit(target: PostgresTarget, code: int = 0, ledger: str = "") -> str:
    done = CliRunner().invoke(app, ["audit", "--query", "orders", "--ledger", ledger or target.dsn])
    assert done.exit_code == code, done.output
    return done.stdout


# ---- a database that was set back, and its ledger with it


def set_back_by_two(stream, pg) -> None:
    """The second and third epoch of a query are gone from its database, the ledger with them."""
    stream.receive(range(5)).run(exactly_once(pg.sink()))
    backup = Backup(pg.dsn)
    stream.receive(range(5, 10), range(10, 15)).run(exactly_once(pg.sink()))
    assert audit(pg).startswith("EXACTLY ONCE")
    backup.put_back()


def refused_as_set_back(stream, pg) -> str:
    said = stream.receive(range(15, 20)).fail(exactly_once(pg.sink()))
    assert "[ONCE-E229]" in said
    return said


def test_a_database_restored_with_its_own_ledger_is_called_that_before_and_after_a_restart_and_loses_nothing(
    stream, pg
):
    set_back_by_two(stream, pg)
    assert "A180" in audit(pg, code=1)
    said = refused_as_set_back(stream, pg)
    assert pg.ids() == list(range(5))
    found = audit(pg, code=1)
    assert found.startswith("GAPS")
    assert "A180" in found
    run(command(said, "recover rewind"), "--yes")
    stream.run(exactly_once(pg.sink()))
    assert pg.ids() == list(range(20))
    assert audit(pg).startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_input_of_batches_that_only_the_checkpoint_knows_is_looked_for_before_it_is_cut(stream, pg):
    set_back_by_two(stream, pg)
    said = refused_as_set_back(stream, pg)
    (stream.inbox / "part-0001.parquet").unlink()
    told = refused(command(said, "recover rewind"), "--yes")
    assert "[ONCE-E230]" in told
    assert "the input of epochs 2..2: file:" in told
    assert "part-0001.parquet" in told
    planned = run(command(told, "--accept-loss 2..2"), code=4)
    assert "epoch 2: file:" in planned
    assert "not asked" not in planned
    run(command(told, "--accept-loss 2..2"), "--yes")
    stream.run(exactly_once(pg.sink()))
    assert pg.ids() == [*range(5), *range(10, 20)]
    assert audit(pg).startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_a_cut_back_whose_checkpoint_is_gone_says_that_no_file_was_looked_for(stream, pg):
    stream.receive(range(5)).run(exactly_once(pg.sink()))
    backup = Backup(pg.dsn)
    stream.receive(range(5, 10)).run(exactly_once(pg.sink()))
    backup.put_back()
    said = stream.receive(range(10, 15)).fail(exactly_once(pg.sink()))
    stream.lose_checkpoint()
    assert "checkpoint is not to be found; any that is gone is lost" in run(command(said, "recover rewind"), code=4)
    run(command(said, "recover rewind"), "--yes")
    stream.run(exactly_once(pg.sink()))
    assert pg.ids() == list(range(15))
    assert audit(pg).startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_a_database_that_is_restored_to_the_same_epoch_after_a_cut_back_is_cut_back_to_it_again(stream, pg):
    stream.receive(range(5)).run(exactly_once(pg.sink()))
    backup = Backup(pg.dsn)
    stream.receive(range(5, 10), range(10, 15)).run(exactly_once(pg.sink()))
    for more in (range(15, 20), range(20, 25)):
        backup.put_back()
        said = stream.receive(more).fail(exactly_once(pg.sink()))
        assert "[ONCE-E229]" in said
        obey(said, "recover rewind orders")
        backup = Backup(pg.dsn)
        stream.run(exactly_once(pg.sink()))
    assert pg.ids() == list(range(25))
    assert audit(pg).startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_time_goes_on_in_the_next_turn_behind_a_restored_database_and_that_is_said_once(stream, pg, ledger):
    def wrapped():
        return exactly_once(
            pg.sink(), storage=Storage(ledger=ledger), event_time=EventTime("id", max_delay=1, unit="integer")
        )

    stream.receive(range(5)).run(wrapped())
    backup = Backup(pg.dsn)
    stream.receive(range(5, 10), range(10, 15)).run(wrapped())
    backup.put_back()
    said = stream.receive(range(15, 20)).fail(wrapped())
    assert "[ONCE-E207]" in said
    run(command(said, "--accept-loss"), "--yes")
    stream.run(wrapped())
    stream.receive(range(20, 25)).run(wrapped())
    times = {record.epoch.number: record.epoch.time for record in ledger.epochs("orders")}
    assert [(number, time.complete_until, time.resets) for number, time in times.items()] == [
        (1, 3, 0),
        (2, 13, 1),
        (3, 18, 1),
        (4, 23, 1),
    ]
    assert events(ledger, EventKind.TIME_BACK) == [
        "epochs 2 to 3 are gone and will be numbered again: conclusions of other writers are void; turn 1"
    ]
    with TimeReader("orders", pg.sink()) as reader:
        assert reader.time_window().lower == 23
    assert pg.ids() == [*range(5), *range(15, 25)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own_ledger", "seen"),
    [(False, ", and readers may have seen epoch 3"), (True, "")],
    ids=["ledger apart", "ledger restored as well"],
)
def test_behind_a_rewind_time_goes_back_once_in_the_next_turn_and_that_is_said(stream, pg, tmp_path, own_ledger, seen):
    place = pg.dsn if own_ledger else str(tmp_path / "ledger.db")

    def wrapped():
        noted = EventTime("id", max_delay=1, unit="integer")
        return exactly_once(pg.sink(), storage=Storage(ledger=None if own_ledger else place), event_time=noted)

    lowers = []

    def read() -> None:
        with TimeReader("orders", pg.sink()) as reader:
            lowers.append(reader.time_window().lower)

    stream.receive(range(5)).run(wrapped())
    backup = Backup(pg.dsn)
    for batch in (range(5, 10), range(10, 15)):
        stream.receive(batch).run(wrapped())
        read()
    backup.put_back()
    said = stream.receive(range(15, 20)).fail(wrapped())
    read()
    obey(said, "recover rewind")
    read()
    for batch in (range(20, 25), range(25, 30)):
        stream.receive(batch).run(wrapped())
        read()
    assert lowers == [8, 13, 3, 3, 23, 28]
    with closing(SqlLedger(place)) as ledger:
        turns = [record.epoch.time.resets for record in ledger.epochs("orders")]
        assert turns == [0, *[1] * (len(turns) - 1)]
        told = events(ledger, EventKind.TIME_BACK)
    assert told == [f"the position was reset to epoch 1{seen}; turn 1"]
    assert pg.ids() == list(range(30))
    assert audit(pg, ledger=place).startswith("EXACTLY ONCE")


# ---- a database on another server


@pytest.fixture
def home(postgres: EmbeddedPostgres, tmp_path: Path) -> PostgresTarget:
    return PostgresTarget(postgres.database(f"home_{abs(hash(tmp_path)):x}"))


@pytest.fixture
def elsewhere() -> Iterator[PostgresTarget]:
    """An empty database of the same name on a server that has another identifier."""
    with temporary_postgres() as server:
        yield PostgresTarget(server.dsn)


@pytest.fixture
def move(postgres: EmbeddedPostgres, home: PostgresTarget, elsewhere: PostgresTarget) -> Callable[[], PostgresTarget]:
    """What a major upgrade does: dump here, restore there."""

    def moved() -> PostgresTarget:
        dump = [postgres.program("pg_dump"), "-d", home.dsn]
        restore = [postgres.program("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-d", elsewhere.dsn]
        said = subprocess.run(dump, check=True, capture_output=True)
        subprocess.run(restore, check=True, capture_output=True, input=said.stdout)
        return elsewhere

    return moved


@pytest.mark.slow
def test_a_database_that_was_moved_by_dump_and_restore_goes_on_once_no_row_is_missing(stream, home, move):
    stream.receive(range(5), range(5, 10)).run(exactly_once(home.sink()))
    there = move()
    [(word, epoch)] = there.says("delete from orders where id = 7 returning word, _epoch")
    said = stream.receive(range(10, 15)).fail(exactly_once(there.sink()))
    assert "[ONCE-E208]" in said
    assert "ONCE-E228" in refused(command(said, "--same-data"), "--yes")
    assert there.ids() == [number for number in range(10) if number != 7]
    there.says(f"insert into orders (id, word, _epoch) values (7, '{word}', {epoch})")
    run(command(said, "--same-data"), "--yes")
    stream.run(exactly_once(there.sink()))
    assert there.ids() == list(range(15))
    assert audit(there).startswith("EXACTLY ONCE")
