"""Delta's RESTORE under our markers: what E209 prints first is obeyed, killed, obeyed again, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from integration.printed import killed
from tests.cli.conftest import Run, document
from tests.cli.test_rewind_command import Job
from tests.cli.test_ways_out import obeys, printed
from tests.core.several import Crash, Pipeline, crash, rows

from onceonly import faults
from onceonly.faults import Point
from onceonly_sinks.delta import DeltaSink

NAMES = ("first", "second")


class Tables(Pipeline):
    """The same into tables on disk."""

    options: Mapping[str, Any] = {}

    def sinks(self) -> list[DeltaSink]:  # type: ignore[override]
        return [DeltaSink(self.root / name, **self.options) for name in self.stores]


class TableJob(Job):
    """The same into tables on disk.

    Args:
        root: for its files.
        names: of the tables.
        keep: staged epochs that stay.
        options: of the sinks.
    """

    def __init__(self, root: Path, names: tuple[str, ...] = NAMES, keep: int = 9, **options: Any) -> None:
        super().__init__(root, names, keep)
        self.pipeline = Tables(root, names)
        self.pipeline.options = options

    def restores(self, epoch: int, name: str = "first") -> None:
        """RESTORE a table to the version that brought an epoch."""
        sink = DeltaSink(self.pipeline.root / name)
        sink.open("orders")
        [version] = [one.at("version") for marker, one in sink.history(epoch - 1) if marker.epoch.number == epoch]
        assert isinstance(version, int)
        DeltaTable(self.pipeline.root / name).restore(version)

    def holds(self, epochs: int) -> None:
        for name in self.pipeline.stores:
            table = DeltaTable(self.pipeline.root / name).to_pyarrow_table()
            assert sorted(table["id"].to_pylist()) == list(range(epochs * 10)), name


def test_a_table_that_was_restored_gets_its_epochs_again(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path)
    job.writes(1, 2, 3, 4)
    job.restores(2)
    said = job.said("E209", 5)
    assert said.index("recover rewind") < said.index("onceonly audit")
    plan = obeys(run, said, "recover rewind orders")
    assert "holds the rows of epoch 2, and is reset" in plan
    assert "gets epochs 3..4, 20 rows: 2 from stage" in plan
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_a_table_that_was_restored_to_a_moment_gets_its_epochs_again(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path)
    job.writes(1, 2)
    table = DeltaTable(tmp_path / "first")
    # A commit is of the moment at which its file was written, which may be later than the one it tells.
    written = max((tmp_path / "first" / "_delta_log").glob("*.json")).stat().st_mtime_ns // 1_000_000
    noon = max(int(table.history(1)[0]["timestamp"]), written) + 1
    time.sleep(0.02)
    job.writes(3, 4)
    DeltaTable(tmp_path / "first").restore(datetime.fromtimestamp(noon / 1000, UTC))
    plan = obeys(run, job.said("E209", 5), "recover rewind orders")
    assert "holds the rows of epoch 2, and is reset" in plan
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def left_behind_and_restored(root: Path) -> TableJob:
    """A job whose second table lacks epoch 3, since a driver died, and the rows of epoch 2, since it was restored."""
    job = TableJob(root)
    job.writes(1, 2)
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        job.writes(3)
    faults.disarm()
    job.restores(1, "second")
    return job


def test_a_change_of_a_table_that_is_healed_as_well_is_accepted_on_record(run: Run, tmp_path: Path) -> None:
    job = left_behind_and_restored(tmp_path)
    assert "nothing to accept" not in obeys(run, job.said("E209", 3), "--accept-change")
    [accepted] = [epoch.epoch for epoch in job.pipeline.ledger.epochs("orders") if epoch.epoch.adoption]
    assert accepted.number == 4
    job.writes(3, 4)
    table = DeltaTable(tmp_path / "second").to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == [*range(10), *range(20, 40)]


def test_a_table_that_a_crash_left_behind_and_that_was_restored_gets_both_epochs(run: Run, tmp_path: Path) -> None:
    job = left_behind_and_restored(tmp_path)
    plan = obeys(run, job.said("E209", 3), "recover rewind orders")
    assert "holds the rows of epoch 1, and is reset" in plan
    assert "gets epochs 2..3" in plan
    job.writes(3, 4)
    job.holds(4)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_an_audit_prints_the_rewind_that_the_query_prints(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path)
    job.writes(1, 2, 3)
    job.restores(2)
    found = document(run("audit", "--ledger", str(tmp_path / "ledger.db"), "--output", "json"))
    [remedy] = [one["remedy"] for one in found["findings"] if one["code"] == "A126"]
    assert printed(remedy, "recover rewind") == printed(job.said("E209", 4), "recover rewind")
    obeys(run, remedy, "recover rewind")
    job.writes(4)
    job.holds(4)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_it_is_restored_below_its_first_epoch_and_gets_all_of_them_again(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path)
    job.writes(1, 2, 3)
    DeltaTable(tmp_path / "first").restore(0)
    obeys(run, job.said("E209", 4), "recover rewind orders")
    job.writes(4)
    job.holds(4)
    assert job.audited(run).startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_an_upsert_that_was_restored_gets_its_changes_again(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path, key="id")
    job.writes(1, 2, 3, 4)
    job.restores(2)
    obeys(run, job.said("E209", 5), "recover rewind orders")
    job.writes(5)
    job.holds(5)
    assert job.audited(run, "--uncounted-ok").startswith("NOT COUNTED")


def test_the_only_table_is_gone_on_from_and_the_source_is_read_again(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path, ("first",), keep=1)
    job.writes(1, 2, 3, 4)
    job.restores(2)
    plan = obeys(run, job.said("E209", 5), "recover rewind orders")
    assert "2 epochs, 20 rows of the ledger" in plan
    job.writes(3, 4, 5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


@pytest.mark.parametrize(
    ("point", "hit"),
    [
        pytest.param(Point.INSTALL_BEFORE, 1, marks=pytest.mark.slow),
        (Point.INSTALL_SENT, 1),
        pytest.param(Point.INSTALL_AFTER, 1, marks=pytest.mark.slow),
        pytest.param(Point.INSTALL_AFTER, 2, marks=pytest.mark.slow),
        pytest.param(Point.PREPARE_AFTER, 1, marks=pytest.mark.slow),
        pytest.param(Point.COMMIT_BEFORE, 1, marks=pytest.mark.slow),
        pytest.param(Point.COMMIT_SENT, 1, marks=pytest.mark.slow),
        pytest.param(Point.COMMIT_AFTER, 1, marks=pytest.mark.slow),
        (Point.COMMIT_AFTER, 2),
        pytest.param(Point.RECORD_BEFORE, 1, marks=pytest.mark.slow),
        pytest.param(Point.RECORD_AFTER, 1, marks=pytest.mark.slow),
    ],
)
def test_a_rewind_of_it_that_is_killed_is_given_again(run: Run, tmp_path: Path, point: Point, hit: int) -> None:
    job = TableJob(tmp_path)
    job.writes(1, 2, 3, 4)
    job.restores(2)
    command = printed(job.said("E209", 5), "recover rewind")
    killed(["onceonly", *command], point, hit)
    assert run(*command, "--yes").exit_code == 0
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_a_query_that_starts_after_a_rewind_was_killed_prints_the_rest_of_it(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path)
    job.writes(1, 2, 3, 4)
    job.restores(1)
    command = printed(job.said("E209", 5), "recover rewind")
    killed(["onceonly", *command], Point.COMMIT_AFTER)
    obeys(run, job.said("E207", 5), "recover rewind orders")
    job.writes(5)
    job.holds(5)


def test_rows_that_are_nowhere_are_given_up_as_the_change_that_took_them(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path, keep=1)
    job.writes(1, 2, 3, 4)
    job.restores(2)
    command = printed(job.said("E209", 5), "recover rewind")
    said = run(*command, "--from", "stage", "--yes").stderr
    assert "[ONCE-E232]" in said
    obeys(run, said, "--accept-change")
    job.writes(5)
    table = DeltaTable(tmp_path / "first").to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == [*range(20), *range(40, 50)]


def _delete(path: Path) -> None:
    DeltaTable(path).delete("id < 5")


def _overwrite(path: Path) -> None:
    write_deltalake(path, rows(1), mode="overwrite")


@pytest.mark.parametrize("changes", [_delete, _overwrite])
@pytest.mark.parametrize("before", [True, False])
def test_rows_that_are_no_epochs_are_not_taken_for_one(
    run: Run, tmp_path: Path, changes: Callable[[Path], None], before: bool
) -> None:
    job = TableJob(tmp_path)
    job.writes(1, 2, 3)
    path = tmp_path / "first"
    if before:
        changes(path)
        changed = DeltaTable(path).version()
        write_deltalake(path, rows(9), mode="append")
        DeltaTable(path).restore(changed)
    else:
        job.restores(2)
        changes(path)
    assert "recover rewind" not in job.said("E209", 4)


def test_a_table_that_was_restored_again_and_again_holds_the_rows_of_the_last_time(run: Run, tmp_path: Path) -> None:
    job = TableJob(tmp_path)
    job.writes(1, 2, 3, 4)
    job.restores(3)
    again = DeltaTable(tmp_path / "first").version()
    job.restores(1)
    DeltaTable(tmp_path / "first").restore(again)
    plan = obeys(run, job.said("E209", 5), "recover rewind orders")
    assert "holds the rows of epoch 3" in plan
    job.writes(5)
    job.restores(4)  # of the rows that were brought again
    obeys(run, job.said("E209", 6), "recover rewind orders")
    job.writes(6)
    job.holds(6)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_a_restore_to_files_that_vacuum_took_stops_and_says_that_only_a_backup_has_them(
    run: Run, tmp_path: Path
) -> None:
    job = TableJob(tmp_path, ("first",))
    job.writes(1, 2)
    table = DeltaTable(tmp_path / "first")
    before = table.version()
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    table.restore(before, ignore_missing_files=True)
    said = job.said("E209", 3)
    assert "VACUUM took 4 of its data files, which only a backup brings back" in " ".join(said.split())
    assert "recover rewind" not in said
    obeys(run, said, "--accept-change")
    job.writes(3)
    assert "EXACTLY ONCE" not in run("audit", "--ledger", str(tmp_path / "ledger.db")).stdout
