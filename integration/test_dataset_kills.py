"""Two writers of one table, both really killed: what is called complete is there, whenever somebody looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from integration.jobs import TABLE, Job
from integration.processes import Drivers, was_killed
from integration.stage import ROWS, Inbox
from integration.targets import PostgresTarget

from onceonly.faults import Point
from onceonly.reading import Reader
from onceonly_sinks.delta import DeltaSink

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.long, pytest.mark.postgres]

WRITERS = ("web", "app")
DEATHS = [f"{Point.INTEND_AFTER}:killgroup", f"{Point.STAGE_AFTER}:killgroup", f"{Point.COMMIT_SENT}:killgroup"]
DEATHS += [f"{Point.COMMIT_SENT}:killgroup:2", f"{Point.COMMIT_AFTER}:killgroup", f"{Point.RECORD_BEFORE}:killgroup"]
ALONE = [one for one in DEATHS if "stage" not in one and not one.endswith(":2")]
"""Where the writer of one sink can die: it stages nothing."""

_COMPLETE = f"""
SELECT w.lower, (SELECT count(*) FROM {TABLE} WHERE id < w.lower)
FROM onceonly.time_window w WHERE w.target = '{TABLE}'::regclass
"""


class Seen:
    """What readers were told, each time of one snapshot with the rows."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.lower = 0

    def look(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            found = connection.execute(_COMPLETE).fetchone()
        assert found is not None
        lower, rows = found
        if lower is None:
            assert self.lower == 0
            return
        assert lower >= self.lower
        assert rows == len(WRITERS) * lower, "each writer has a row of each number"
        self.lower = lower


def test_no_kill_of_either_writer_calls_complete_what_is_not_there(
    tmp_path: Path, pg: PostgresTarget, warm_rivals: Drivers
) -> None:
    inboxes = {name: Inbox(tmp_path / f"in-{name}") for name in WRITERS}
    table = str(tmp_path / "table")

    def job(name: str, **more: Any) -> Job:
        place = (str(inboxes[name].folder), str(tmp_path / f"ck-{name}"), str(tmp_path / f"{name}.db"))
        return Job(name, "postgres", pg.dsn, *place, writers=WRITERS, **more)

    web, app = job("web"), job("app", also=(("delta", table),))
    seen = Seen(pg.dsn)
    for inbox in inboxes.values():
        inbox.fill(2)
    warm_rivals.finish(web)
    seen.look()
    assert seen.lower == 0, "app was declared, and has not said anything"
    warm_rivals.finish(app)
    seen.look()
    killed = []
    for number, fault in enumerate(DEATHS):
        inboxes["web"].fill(2 * number + 4)
        inboxes["app"].fill(2 * number + 3)
        one = warm_rivals.start(app, fault=fault)
        other = warm_rivals.start(web, fault=ALONE[number % len(ALONE)])
        assert was_killed(one), f"{fault}: {one.last_words()}"
        killed.append(was_killed(other))
        seen.look()
    assert sum(killed) > len(DEATHS) // 2, killed
    for job_ in (web, app, web):
        warm_rivals.finish(job_)
        seen.look()
    assert seen.lower == ROWS * inboxes["app"].files - 1
    with Reader("app", DeltaSink(table)) as reader:
        # The table that one of them writes alone says the same of the dataset: it is in the epoch, not in the sink.
        assert reader.time_window().lower == seen.lower
