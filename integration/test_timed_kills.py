"""Drivers that are really killed while they commit time with their rows: in no sink does one show without the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from integration.processes import Drivers, was_killed
from integration.several import Several
from integration.stage import ROWS

from onceonly.faults import Point

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.long, pytest.mark.postgres, pytest.mark.kafka]

DEATHS = [f"{Point.STAGE_AFTER}:killgroup:2"]
DEATHS += [f"{Point.COMMIT_SENT}:killgroup:{3 + sink}" for sink in (1, 2, 3)]
DEATHS += [f"{Point.COMMIT_AFTER}:killgroup:5", f"{Point.FETCH_AFTER}:killgroup", f"{Point.RECORD_BEFORE}:killgroup:2"]


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
            said = [marker.epoch.time for marker in scene.markers()]
            assert [time and time.last for time in said] == [ROWS * at - 1 for at in range(1, len(said) + 1)], fault
            assert len(scene.rows()) == ROWS * len(said), fault
            assert [time and time.lower for time in said] == [ROWS * at - 1 for at in range(1, len(said) + 1)], fault
    warm_drivers.finish(job)
    several.hold_everything()
    assert [marker.epoch.time and marker.epoch.time.late for marker in several.postgres.markers()] == [
        0
    ] * several.inbox.files
