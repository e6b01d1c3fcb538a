"""A query whose sources fall silent, with a heartbeat, really killed: windows are complete once a commit says so."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from integration.jobs import TABLE, make_sink
from integration.processes import PATIENCE_S, Drivers, until, was_killed
from integration.stage import ROWS, Inbox, Scene

from onceonly.event_time import FixedWindows, TimeReader
from onceonly.faults import Point
from onceonly_checkpoints.epoch import Epoch

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres]

DEATHS = [Point.INTEND_AFTER, Point.PREPARE_AFTER, Point.COMMIT_SENT, Point.COMMIT_AFTER, Point.RECORD_BEFORE]
"""Each in the third epoch of a driver: by then its sources have nothing more to give."""

_SHOWN = f"""
SELECT w.lower, (SELECT count(*) FROM {TABLE}) FROM onceonly.time_window w WHERE w.target = '{TABLE}'::regclass
"""


class Idle:
    """Two sources, of which one has said all that it ever says, into Postgres."""

    def __init__(self, root: Path, dsn: str) -> None:
        self.scene, self.quiet = Scene(root, "postgres", dsn), Inbox(root / "quiet")
        self.quiet.files = 1000  # ids that the other source never comes to
        self.quiet.fill(1001)
        self.job = self.scene.job(ingest=True, quiet=str(self.quiet.folder))
        self.lower = 0

    @property
    def epochs(self) -> list[Epoch]:
        return [marker.epoch for marker in self.scene.markers()]

    def look(self) -> None:
        """Hold what one statement shows against what epochs say: rows and time of the same epochs, and never less."""
        with psycopg.connect(self.scene.target) as connection:
            found = connection.execute(_SHOWN.encode()).fetchone()
        assert found is not None
        epochs = self.epochs
        times = [epoch.time for epoch in epochs if epoch.time]
        assert [time.complete_until for time in times] == [
            epoch.lineage and epoch.lineage.batch_timestamp_ms for epoch in epochs
        ]
        assert found == (times[-1].complete_until, sum(epoch.digest.rows for epoch in epochs))
        assert found[0] >= self.lower
        self.lower = found[0]


@pytest.mark.parametrize(
    "deaths", [pytest.param(DEATHS[2:4], id="two"), pytest.param(DEATHS, id="five", marks=pytest.mark.slow)]
)
def test_no_kill_in_silence_loses_what_was_complete_and_silence_goes_on_completing_windows(
    deaths: list[Point], tmp_path: Path, any_postgres: Any, warm_drivers: Drivers
) -> None:
    idle = Idle(tmp_path, any_postgres.database(f"idle{len(deaths)}"))
    for number, point in enumerate(deaths):
        idle.scene.inbox.fill(number + 1)
        assert was_killed(warm_drivers.start(idle.job, fault=f"{point}:killgroup:3")), point
        idle.look()
    last = max(epoch.number for epoch in idle.epochs if epoch.digest.rows)
    driver = warm_drivers.start(idle.job, graceful=True)
    until(lambda: idle.epochs[-1].number >= last + 4, "epochs without rows")
    os.kill(driver.pid, signal.SIGTERM)
    assert driver.wait(PATIENCE_S) == 0, driver.last_words()
    idle.look()
    wanted = sorted([*range(len(deaths) * ROWS), *range(1000 * ROWS, 1001 * ROWS)])
    assert [id_ for id_, _ in idle.scene.rows()] == wanted, "each row once"
    assert sum(epoch.digest.rows == 0 for epoch in idle.epochs) > len(deaths)
    planned = idle.epochs[last - 1].time
    assert planned is not None
    assert planned.complete_until is not None
    with TimeReader(idle.job.name, make_sink("postgres", idle.job.target)) as reader:
        windows = list(reader.windows(FixedWindows("1 second"), since=planned.complete_until))
    # The window of the newest rows is one that only epochs without rows could complete.
    assert windows[0].start <= planned.complete_until < windows[0].end <= idle.lower
    assert windows[0].status == "complete"
