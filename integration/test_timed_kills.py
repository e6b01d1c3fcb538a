"""Drivers that are really killed while they commit time with their rows: in no sink does one show without the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from integration.jobs import make_sink
from integration.processes import Drivers, was_killed
from integration.several import Several
from integration.stage import ROWS, Scene

from onceonly.event_time import TimeReader
from onceonly.faults import Point
from onceonly_checkpoints.epoch_time import EpochTime

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.kafka]

DEATHS = [f"{Point.STAGE_AFTER}:killgroup:2"]
DEATHS += [f"{Point.COMMIT_SENT}:killgroup:{3 + sink}" for sink in (1, 2, 3)]
DEATHS += [f"{Point.COMMIT_AFTER}:killgroup:5", f"{Point.FETCH_AFTER}:killgroup", f"{Point.RECORD_BEFORE}:killgroup:2"]

IN_ONE_EPOCH = [
    f"{Point.STAGE_AFTER}:killgroup",
    f"{Point.COMMIT_SENT}:killgroup:2",
    f"{Point.COMMIT_AFTER}:killgroup:2",
]
"""Before any commit, and with one or two of three sinks written."""


def expected(files: int) -> Iterator[tuple[int | None, ...]]:
    """What epochs of one file each say, by a loop over the files."""
    before = None
    for number in range(files):
        greatest = (number + 1) * ROWS - 1
        yield number * ROWS, greatest, greatest, greatest, before, 0
        before = greatest


def said(time: EpochTime | None) -> tuple[int | None, ...]:
    assert time is not None
    assert time.complete_until == time.max_time
    return (
        time.earliest,
        time.latest,
        time.complete_until,
        time.dataset_complete_until,
        time.late_before,
        time.late_rows,
    )


def times(scene: Scene) -> list[tuple[int | None, ...]]:
    return [said(marker.epoch.time) for marker in scene.markers()]


def test_no_kill_shows_rows_without_their_time_or_time_without_its_rows(
    any_postgres: Any, any_kafka: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    several = Several(tmp_path, any_postgres.database("timed"), f"{any_kafka.servers} {any_kafka.topic('timed')}")
    job = several.job(timed=True)
    for number, fault in enumerate(DEATHS):
        several.inbox.fill(2 * number + 3)
        assert was_killed(warm_drivers.start(job, fault=fault)), fault
        several.newest()
        for scene in several.scenes:
            found = times(scene)
            assert found == list(expected(len(found))), fault
            assert len(scene.rows()) == ROWS * len(found), fault
    warm_drivers.finish(job)
    several.hold_everything()
    assert times(several.postgres) == list(expected(several.inbox.files))


# ---- and what becomes of ledgers, files and logs in between


def lose_ledger(dsn: str) -> None:
    """All that the ledger knew goes, and nothing of the sink's beside it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'ledger%'").fetchall()
        assert ("ledger_epochs",) in found
        for (name,) in found:
            connection.execute(f"DROP TABLE onceonly.{name} CASCADE".encode())


def compact(path: str) -> None:
    """Few files out of many, and the many gone from the disk."""
    table = DeltaTable(path)
    table.optimize.compact()
    DeltaTable(path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def keep_no_log(path: str) -> None:
    """Whatever is older than the checkpoint that is made here may go."""
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()


def clean_log(path: str) -> None:
    """It goes."""
    log = Path(path) / "_delta_log"
    before = len(list(log.glob("*.json")))
    DeltaTable(path).cleanup_metadata()
    assert 0 < len(list(log.glob("*.json"))) < before


def lower(scene: Scene) -> int | None:
    with TimeReader("arrivals", make_sink(scene.kind, scene.target)) as reader:
        return reader.time_window().lower


@pytest.mark.slow
def test_what_is_said_of_time_outlives_the_ledger_compaction_and_cleaning_between_kills(
    any_postgres: Any, any_kafka: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    several = Several(tmp_path, any_postgres.database("tended"), f"{any_kafka.servers} {any_kafka.topic('tended')}")
    job = several.job(timed=True)
    several.inbox.fill(1)
    warm_drivers.finish(job)
    for fault in IN_ONE_EPOCH:
        several.inbox.fill(several.inbox.files + 2)
        assert was_killed(warm_drivers.start(job, fault=fault)), fault
        before = [times(scene) for scene in several.scenes]
        lose_ledger(several.postgres.target)
        compact(several.delta.target)
        assert [times(scene) for scene in several.scenes] == before, fault
        warm_drivers.finish(job)
        for scene in several.scenes:
            assert times(scene) == list(expected(several.inbox.files)), f"{scene.kind}: {fault}"
    several.hold_everything()
    keep_no_log(several.delta.target)
    several.inbox.fill(several.inbox.files + 2)
    assert was_killed(warm_drivers.start(job, fault=f"{Point.COMMIT_AFTER}:killgroup:5"))
    stood = [lower(scene) for scene in several.scenes]
    assert len(set(stood)) == 2, "one sink is behind"
    clean_log(several.delta.target)
    assert [lower(scene) for scene in several.scenes] == stood
    warm_drivers.finish(job)
    assert [lower(scene) for scene in several.scenes] == [several.inbox.files * ROWS - 1] * 3
    assert len({id_ for id_, _ in several.delta.rows()}) == len(several.delta.rows()) == several.inbox.files * ROWS
