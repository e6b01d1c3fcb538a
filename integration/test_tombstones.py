"""Tombstones over real kills: changes come the newest first, and no older one brings a removed row back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from integration.jobs import LATE, Job
from integration.processes import Drivers, was_killed
from integration.stage import ROWS, Inbox
from integration.targets import PostgresTarget

from onceonly.faults import Point

DEATHS = [f"{Point.PREPARE_SENT}:killgroup", f"{Point.COMMIT_SENT}:killgroup", f"{Point.COMMIT_AFTER}:killgroup"]
DEATHS += [f"{Point.COMMIT_SENT}:killgroup:2", f"{Point.COMMIT_BEFORE}:killgroup:2"]


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.kill
def test_no_kill_lets_a_late_change_bring_a_removed_row_back(
    any_postgres: Any, tmp_path: Path, warm_drivers: Drivers, spark: Any
) -> None:
    inbox, database = Inbox(tmp_path / "in"), any_postgres.database("late")
    job = Job("late", "postgres", database, str(inbox.folder), str(tmp_path / "ck"), late=True)
    for number, fault in enumerate(DEATHS):
        inbox.fill(3 * number + 4)
        assert was_killed(warm_drivers.start(job, fault=fault)), fault
    warm_drivers.finish(job)
    changes = spark.range(inbox.files * ROWS).selectExpr(*LATE).collect()
    newest: dict[int, Any] = {}
    for change in changes:
        if change["key"] not in newest or change["seq"] > newest[change["key"]]["seq"]:
            newest[change["key"]] = change
    there = sorted((one["key"], one["seq"]) for one in newest.values() if not one["gone"])
    assert 50 < len(there) < 100
    assert PostgresTarget(database).says("select key, seq from arrivals order by key") == there
