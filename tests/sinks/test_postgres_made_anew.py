"""A table that was dropped and made again beside markers that stayed: a rewind sets these back and fills it."""

from __future__ import annotations

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
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

NAMES = ("first", "second")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


class Job:
    """A query into two tables, of which every epoch stays staged."""

    def __init__(self, dsn: str, root: Path, **options: Any) -> None:
        self.dsn, self.root, self.options = dsn, root, options
        self.ledger = SqlLedger(str(root / "ledger.db"))

    def writes(self, *numbers: int) -> None:
        for number in numbers:
            sinks = [PostgresSink(self.dsn, NAMES[0], **self.options), PostgresSink(self.dsn, NAMES[1])]
            staging = StagedEpochs(str(self.root / "staging"), "orders", sinks, 9)
            ids = tuple(sink.id for sink in sinks)
            state = coordinator.start("orders", ids, f"driver {number}", offered(number), stages=True)
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
    plan = obeys(_run, job.refused(4), "queries rewind")
    assert "postgres:first" in plan
    assert "holds no row, and is put there" in plan
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
    command = printed(job.refused(4), "queries rewind")
    killed(["onceonly", *command], point, hit)
    obeys(_run, job.refused(4), "queries rewind")
    job.writes(4)
    job.holds(4)
    assert job.audited().startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_its_history_is_told_from_the_beginning_again(dsn: str, tmp_path: Path) -> None:
    job = Job(dsn, tmp_path, key="id", history=True)
    job.writes(1, 2, 3)
    sql(dsn, "DROP TABLE first")
    sql(dsn, "CREATE TABLE first (id bigint PRIMARY KEY, text text, _epoch bigint)")
    obeys(_run, job.refused(4), "queries rewind")
    job.writes(4)
    job.holds(4)
    assert sql(dsn, "SELECT _from, count(*), count(_to) FROM first_history GROUP BY 1 ORDER BY 1") == [
        (number, 10, 0) for number in (1, 2, 3, 4)
    ]
    assert job.audited("--uncounted-ok").startswith("NOT COUNTED")


@pytest.mark.slow
def test_a_table_that_is_gone_altogether_is_made_and_filled(job: Job) -> None:
    sql(job.dsn, "DROP TABLE first")
    obeys(_run, job.refused(4), "queries rewind")
    job.writes(4)
    job.holds(4)


def test_rows_in_its_place_are_not_taken_for_ours(job: Job) -> None:
    sql(job.dsn, "INSERT INTO first VALUES (7, 'a row of somebody', NULL)")
    said = job.refused(4)
    assert "queries rewind" not in said
    command = ("queries", "rewind", "orders", "--ledger", job.ledger.address, "--to", "0", "--sink", "postgres:first")
    for typed in (_run(*command), _run(*command, "--yes")):
        assert typed.exit_code == 2
        assert typed.stdout == ""
        assert "postgres:first was made anew" in typed.stderr
        assert printed(typed.stderr, "queries adopt") == printed(said, "queries adopt")

    sql(job.dsn, "TRUNCATE first")  # one of the two that it says; the other one is obeyed below
    assert _run(*command, "--yes").exit_code == 0
    job.writes(4)
    job.holds(4)


def test_rows_in_its_place_can_be_gone_on_from(job: Job) -> None:
    sql(job.dsn, "INSERT INTO first VALUES (7, 'a row of somebody', NULL)")
    obeys(_run, job.refused(4), "queries adopt")
    job.writes(4)
    counted = [sql(job.dsn, f"SELECT array_agg(DISTINCT _epoch ORDER BY _epoch) FROM {name}") for name in NAMES]
    assert counted == [[([5, None],)], [([1, 2, 3, 5],)]]
