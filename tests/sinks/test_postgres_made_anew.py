"""A table that was dropped and made again beside markers that stayed: a rewind sets these back and fills it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.printed import killed
from tests.cli.test_ways_out import obeys, printed
from tests.core.several import offered, rows
from tests.sinks.postgres_writer import run as sql
from typer.testing import CliRunner, Result

from onceonly.cli.app import app
from onceonly.errors import IdentityError
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.facts import Offer
from onceonly.machine.state import Job as MachineJob
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import Keep, PostgresSink

pytestmark = pytest.mark.postgres

NAMES = ("first", "second")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def _offered(number: int, checkpoint: str) -> Offer:
    """An epoch of a query with a checkpoint of its own: a rewind writes there."""
    made = offered(number)
    return replace(made, lineage=replace(made.lineage, checkpoint=checkpoint))


class Job:
    """A query into two tables, of which every epoch stays staged."""

    def __init__(self, dsn: str, root: Path, **options: Any) -> None:
        self.dsn, self.root, self.options = dsn, root, options
        self.ledger = SqlLedger(str(root / "ledger.db"))
        self.checkpoint = (root / "checkpoint").as_uri()

    def writes(self, *numbers: int) -> None:
        for number in numbers:
            sinks = [PostgresSink(self.dsn, NAMES[0], **self.options), PostgresSink(self.dsn, NAMES[1])]
            staging = StagedEpochs(str(self.root / "staging"), "orders", sinks, 9)
            ids = tuple(sink.id for sink in sinks)
            state = coordinator.start(
                MachineJob("orders", ids, f"driver {number}", _offered(number, self.checkpoint), stages=True)
            )
            try:
                Runner(sinks, self.ledger, staging=staging).run(state, ArrowBatch(rows(number)))
            finally:
                for sink in sinks:
                    sink.close()

    def refused(self, number: int) -> str:
        with pytest.raises(IdentityError) as stopped:
            self.writes(number)
        assert stopped.value.code == "E208"
        return str(stopped.value)

    def holds(self, epochs: int) -> None:
        for name in NAMES:
            counted = sql(self.dsn, f"SELECT count(*), count(DISTINCT id), max(_epoch) FROM {name}")
            assert counted == [(epochs * 10, epochs * 10, epochs)], name

    def audited(self, *more: str) -> str:
        found = _run("audit", "--ledger", self.ledger.address, *more)
        assert found.exit_code == 0, found.output
        return found.stdout


@pytest.fixture
def job(dsn: str, tmp_path: Path) -> Job:
    """Three epochs in each table; then the first one is dropped and made again, as the markers stay."""
    made = Job(dsn, tmp_path)
    made.writes(1, 2, 3)
    sql(dsn, "DROP TABLE first")
    sql(dsn, "CREATE TABLE first (id bigint, text text, _epoch bigint)")
    return made


def test_a_table_that_was_made_anew_beside_its_markers_is_filled_again(job: Job) -> None:
    plan = obeys(_run, job.refused(4), "recover rewind")
    assert "postgres:first" in plan
    assert "holds no row, and is reset" in plan
    assert "gets epochs 1..3, 30 rows: 3 from stage" in plan
    job.writes(4)
    job.holds(4)
    assert job.audited().startswith("EXACTLY ONCE")


@pytest.mark.parametrize(
    ("point", "hit"),
    [
        pytest.param(Point.INSTALL_BEFORE, 1, marks=pytest.mark.slow),
        pytest.param(Point.INSTALL_AFTER, 1, marks=pytest.mark.slow),
        pytest.param(Point.INSTALL_AFTER, 2, marks=pytest.mark.slow),
        pytest.param(Point.PREPARE_BEFORE, 1, marks=pytest.mark.slow),
        (Point.COMMIT_AFTER, 1),
        pytest.param(Point.COMMIT_AFTER, 3, marks=pytest.mark.slow),
        pytest.param(Point.RECORD_BEFORE, 1, marks=pytest.mark.slow),
    ],
)
def test_it_is_filled_although_the_rewind_is_killed_between(job: Job, point: Point, hit: int) -> None:
    command = printed(job.refused(4), "recover rewind")
    killed(["onceonly", *command], point, hit)
    obeys(_run, job.refused(4), "recover rewind")
    job.writes(4)
    job.holds(4)
    assert job.audited().startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_its_history_is_told_from_the_beginning_again(dsn: str, tmp_path: Path) -> None:
    job = Job(dsn, tmp_path, key="id", keep=Keep(history="all"))
    job.writes(1, 2, 3)
    sql(dsn, "DROP TABLE first")
    sql(dsn, "CREATE TABLE first (id bigint PRIMARY KEY, text text, _epoch bigint)")
    obeys(_run, job.refused(4), "recover rewind")
    job.writes(4)
    job.holds(4)
    assert sql(dsn, "SELECT _from, count(*), count(_to) FROM first_history GROUP BY 1 ORDER BY 1") == [
        (number, 10, 0) for number in (1, 2, 3, 4)
    ]
    assert job.audited("--uncounted-ok").startswith("NOT COUNTED")


@pytest.mark.slow
def test_a_table_that_is_gone_altogether_is_made_and_filled(job: Job) -> None:
    sql(job.dsn, "DROP TABLE first")
    obeys(_run, job.refused(4), "recover rewind")
    job.writes(4)
    job.holds(4)


def test_rows_in_its_place_are_not_taken_for_ours(job: Job) -> None:
    sql(job.dsn, "INSERT INTO first VALUES (7, 'a row of somebody', NULL)")
    said = job.refused(4)
    assert "if no row in it is worth keeping, drop it" in said
    command = printed(said, "recover rewind")
    for typed in (_run(*command), _run(*command, "--yes")):
        assert typed.exit_code == 2
        assert typed.stdout == ""
        assert "postgres:first was created again" in typed.stderr
        assert [printed(typed.stderr, way) for way in ("recover rewind", "recover adopt")] == [
            command,
            printed(said, "recover adopt"),
        ]

    sql(job.dsn, "TRUNCATE first")  # one of the two that it says; the other one is obeyed below
    assert _run(*command, "--yes").exit_code == 0
    job.writes(4)
    job.holds(4)


def test_rows_in_its_place_can_be_gone_on_from(job: Job) -> None:
    sql(job.dsn, "INSERT INTO first VALUES (7, 'a row of somebody', NULL)")
    obeys(_run, job.refused(4), "recover adopt")
    job.writes(4)
    counted = [sql(job.dsn, f"SELECT array_agg(DISTINCT _epoch ORDER BY _epoch) FROM {name}") for name in NAMES]
    assert counted == [[([5, None],)], [([1, 2, 3, 5],)]]


# ---- filled from a dump


SINGLE = "postgres:single"


class Alone:
    """A query into one table, whose input is there still: what is cut back is written again."""

    def __init__(self, dsn: str, root: Path, **options: Any) -> None:
        self.dsn, self.options = dsn, options
        self.ledger = SqlLedger(str(root / "ledger.db"))
        self.checkpoint = (root / "checkpoint").as_uri()

    def writes(self, *numbers: int) -> None:
        for number in numbers:
            sink = PostgresSink(self.dsn, "single", **self.options)
            state = coordinator.start(
                MachineJob("orders", (sink.id,), f"driver {number}", _offered(number, self.checkpoint))
            )
            try:
                Runner([sink], self.ledger).run(state, ArrowBatch(rows(number)))
            finally:
                sink.close()

    def refused(self, number: int, code: str) -> str:
        with pytest.raises(IdentityError) as stopped:
            self.writes(number)
        assert stopped.value.code == code, stopped.value
        return str(stopped.value)

    def counted(self) -> list[tuple[int, int]]:
        return sql(self.dsn, "SELECT _epoch, count(*) FROM single GROUP BY 1 ORDER BY 1")


def dumped(dsn: str, *, upto: int) -> None:
    """The table as it was after an epoch, under an id of its own."""
    sql(dsn, f"CREATE TABLE again AS SELECT * FROM single WHERE _epoch <= {upto}")
    sql(dsn, "DROP TABLE single")
    sql(dsn, "ALTER TABLE again RENAME TO single")


def with_markers(dsn: str, *, upto: int) -> None:
    """The whole database as it was then: its markers went back with the rows."""
    dumped(dsn, upto=upto)
    sql(dsn, f"DELETE FROM onceonly.epoch WHERE epoch > {upto}")
    chain = f"(SELECT chain FROM onceonly.epoch WHERE epoch = {upto})"
    sql(dsn, f"UPDATE onceonly.head SET epoch = {upto}, chain = {chain}")


def data_alone(dsn: str, *, upto: int) -> None:
    """The rows of then, in the table that is there."""
    sql(dsn, f"DELETE FROM single WHERE _epoch > {upto}")


@pytest.mark.parametrize(
    ("wreck", "code"),
    [(dumped, "E208"), (with_markers, "E208"), (data_alone, "E209")],
    ids=["a dump of the table", "of the database", "of its rows"],
)
def test_rows_that_a_dump_lacks_are_read_again_and_no_others(dsn: str, tmp_path: Path, wreck: Any, code: str) -> None:
    job = Alone(dsn, tmp_path)
    job.writes(1, 2, 3, 4)
    wreck(dsn, upto=2)
    said = job.refused(5, code)
    [first, *_] = [line for line in said.splitlines() if "onceonly " in line]
    assert "recover rewind" in first
    obeys(_run, said, "recover rewind")
    job.writes(3, 4, 5)
    assert job.counted() == [(number, 10) for number in (1, 2, 3, 4, 5)]
    found = _run("audit", "--ledger", job.ledger.address)
    assert found.stdout.startswith("EXACTLY ONCE"), found.stdout


def test_only_the_epochs_that_a_dump_lacks_are_given_up(dsn: str, tmp_path: Path) -> None:
    job = Alone(dsn, tmp_path)
    job.writes(1, 2, 3, 4)
    dumped(dsn, upto=2)
    said = job.refused(5, "E208")
    assert "It holds the rows of epochs 1 to 2: restored from a dump" in said
    assert "give up 2 epochs, 20 rows" in said
    assert "--accept-loss 3..4" in said
    obeys(_run, said, "--accept-loss")
    job.writes(5)
    assert job.counted() == [(1, 10), (2, 10), (6, 10)]


def test_a_dump_of_the_newest_epoch_is_the_same_data(dsn: str, tmp_path: Path) -> None:
    job = Alone(dsn, tmp_path)
    job.writes(1, 2)
    dumped(dsn, upto=2)
    obeys(_run, job.refused(3, "E208"), "--same-data")
    job.writes(3)
    assert job.counted() == [(1, 10), (2, 10), (4, 10)]


def test_rows_of_no_epoch_are_no_dump(dsn: str, tmp_path: Path) -> None:
    job = Alone(dsn, tmp_path)
    job.writes(1, 2, 3)
    dumped(dsn, upto=2)
    sql(dsn, "DELETE FROM single WHERE id = (SELECT min(id) FROM single)")
    said = job.refused(4, "E208")
    assert "this loses nothing" not in said
    assert "--to 0 --sink postgres:single" in said, "once it is empty"
    assert "--accept-loss 1..3" in said


def replaced_by_key(job: Alone) -> str:
    """Three epochs, then the table alone as it was after two, beside markers that stayed. What the next start says."""
    job.writes(1, 2, 3)
    sql(job.dsn, "CREATE TABLE again AS SELECT * FROM single WHERE id < 20")
    sql(job.dsn, "DROP TABLE single")
    sql(job.dsn, "ALTER TABLE again RENAME TO single")
    sql(job.dsn, "ALTER TABLE single ADD PRIMARY KEY (id)")
    return job.refused(4, "E208")


def test_a_table_with_a_key_that_was_restored_alone_is_not_taken_for_the_same_data(dsn: str, tmp_path: Path) -> None:
    job = Alone(dsn, tmp_path, key="id")
    assert "--same-data" not in replaced_by_key(job)
    given = _run("recover", "adopt", "orders", "--ledger", job.ledger.address, "--same-data", "--sink", SINGLE, "--yes")
    assert given.exit_code == 2
    assert "ONCE-E228" in given.stderr
    assert "made anew beside its markers, and its rows belong to no epoch" in given.stderr
    assert job.refused(4, "E208"), "nothing was accepted"


def test_no_cut_back_is_planned_over_a_table_that_was_restored_alone(dsn: str, tmp_path: Path) -> None:
    job = Alone(dsn, tmp_path, key="id")
    replaced_by_key(job)
    for to in ("0", "2", "3"):
        given = _run("recover", "rewind", "orders", "--ledger", job.ledger.address, "--to", to)
        assert given.exit_code == 2
        assert "was created again" in given.stderr
        assert "--to 0 --sink postgres:single" in given.stderr


@pytest.mark.parametrize("way", ["TRUNCATE single", "DROP TABLE single"])
def test_a_table_with_a_key_that_was_restored_alone_is_filled_from_the_source(
    dsn: str, tmp_path: Path, way: str
) -> None:
    job = Alone(dsn, tmp_path, key="id")
    command = printed(replaced_by_key(job), "recover rewind")
    sql(dsn, way)
    asks = _run(*command)
    assert asks.exit_code == 2
    assert "--to 0 --sink postgres:single --with MODULE:FUNCTION" in asks.stderr
    assert printed(job.refused(4, "E208"), "recover rewind") == command


def test_deleted_rows_of_the_newest_epoch_stop_a_start_once(dsn: str, tmp_path: Path) -> None:
    job = Alone(dsn, tmp_path)
    job.writes(1, 2)
    sql(dsn, "DELETE FROM single WHERE id = (SELECT max(id) FROM single)")
    job.writes(3)  # one row is nothing that a start looks at
    sql(dsn, "DELETE FROM single WHERE _epoch >= 2")
    sql(dsn, "DELETE FROM single WHERE id = (SELECT min(id) FROM single)")  # so that it was no dump
    said = job.refused(4, "E209")
    assert "of the 10 rows of epoch 3 none is there" in said
    assert "recover rewind" not in said
    obeys(_run, said, "--accept-change")
    job.writes(4)
    assert job.counted() == [(1, 9), (5, 10)]


@pytest.mark.parametrize(
    ("point", "hit"), [(Point.INSTALL_AFTER, 1), (Point.RECORD_BEFORE, 1), (Point.RECORD_AFTER, 1)]
)
@pytest.mark.slow
def test_a_rewind_of_a_dump_that_is_killed_is_given_again(dsn: str, tmp_path: Path, point: Point, hit: int) -> None:
    job = Alone(dsn, tmp_path)
    job.writes(1, 2, 3, 4)
    dumped(dsn, upto=2)
    killed(["onceonly", *printed(job.refused(5, "E208"), "recover rewind"), "--yes"], point, hit)
    with pytest.raises(IdentityError) as stopped:
        job.writes(5)
    obeys(_run, str(stopped.value), "recover rewind")
    job.writes(3, 4, 5)
    assert job.counted() == [(number, 10) for number in (1, 2, 3, 4, 5)]
