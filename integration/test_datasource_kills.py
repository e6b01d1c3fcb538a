"""Drivers of ``format("onceonly")``, SIGKILLed while tasks write, around each sink's commit and after it."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from integration.processes import PATIENCE_S, kill_session, stopped_in, until
from integration.stage import ROWS, Inbox
from integration.targets import DeltaTarget, PostgresTarget

from onceonly.faults import Point
from onceonly_lab.driver import Driver

pytestmark = [pytest.mark.source, pytest.mark.kill, pytest.mark.postgres]

SEED = int(os.environ.get("SOURCE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)

BEFORE = (Point.DISCOVER_AFTER, Point.STAGE_AFTER, Point.PREPARE_SENT, Point.COMMIT_BEFORE)
BETWEEN = (Point.COMMIT_SENT, Point.COMMIT_AFTER)
AFTER = (Point.RECORD_AFTER, Point.RETURN_BEFORE)

ONCE_PER_EPOCH = (Point.DISCOVER_AFTER, Point.STAGE_AFTER, Point.RECORD_AFTER, Point.RETURN_BEFORE)
"""The other points are passed once for each sink."""

SINKS = 2


class Lives:
    """Drivers of one query into two sinks, one life after the other.

    Args:
        root: a directory of its own.
        pg: a table.
    """

    def __init__(self, root: Path, pg: PostgresTarget) -> None:
        self.root, self.pg = root, pg
        self.delta = DeltaTarget(str(root / "orders"))
        self.inbox = Inbox(root / "in")
        self.checkpoint = root / "ck"
        self.driver: Driver | None = None
        self.number = 0

    def begin(self, fault: str = "", naps_at: int | None = None) -> Driver:
        """Start the next life."""
        self.number += 1
        log = self.root / f"life-{self.number}"
        options = {
            "to": json.dumps([self.pg.sink().address, self.delta.sink().address]),
            "checkpointLocation": str(self.checkpoint),
        }
        task = log.with_suffix(".json")
        task.write_text(json.dumps({"inbox": str(self.inbox.folder), "options": options, "naps_at": naps_at}))
        self.driver = Driver.module("integration.datasource_job", task, log=log, env={"ONCEONLY_FAULT": fault})
        return self.driver

    def kill_when(self, holds: Callable[[], bool], what: str) -> None:
        """SIGKILL the driver once something holds."""
        assert self.driver is not None
        kill_when(self.driver, holds, what)

    def finish(self) -> None:
        """Let a life go on to the end of the input."""
        driver = self.begin()
        assert driver.wait(PATIENCE_S) == 0, driver.last_words()
        driver.close()

    def batches(self, log: str) -> int:
        """How many batches Spark has noted in a log."""
        folder = self.checkpoint / log
        return len([path for path in folder.iterdir() if path.name.isdigit()]) if folder.exists() else 0

    def held(self) -> tuple[int, int]:
        """Whole epochs of each sink; rows that are missing or doubled among them are none."""
        counts = []
        for ids in (self.pg.ids() if self._made() else [], self.delta.ids() if self._exists() else []):
            assert ids == [*range(len(ids))], "a row is missing or doubled"
            assert len(ids) % ROWS == 0, "a part of an epoch is visible"
            counts.append(len(ids) // ROWS)
        return counts[0], counts[1]

    def _made(self) -> bool:
        return self.pg.says("select to_regclass('orders') is not null") == [(True,)]

    def _exists(self) -> bool:
        # The first fence makes a table without columns.
        return DeltaTable.is_deltatable(self.delta.path) and "id" in [
            field.name for field in self.delta.table.schema().fields
        ]


@pytest.fixture
def lives(tmp_path: Path, pg: PostgresTarget) -> Iterator[Lives]:
    made = Lives(tmp_path, pg)
    yield made
    if made.driver is not None:
        made.driver.close()


def kill_when(driver: Driver, holds: Callable[[], bool], what: str) -> None:
    """SIGKILL a program and its JVM, and demand that Spark's workers, stopped or not, go with them."""
    until(lambda: driver.poll() is not None or holds(), what)
    assert driver.poll() is None, f"{what}: not reached\n{driver.last_words(40)}"
    kill_session(driver.pid)
    assert driver.wait(PATIENCE_S) == -signal.SIGKILL
    driver.close()


def test_no_kill_loses_or_doubles_a_row(lives: Lives, capsys: pytest.CaptureFixture[str]) -> None:
    luck = random.Random(SEED)
    with capsys.disabled():
        print(f" seed {SEED}", end="", flush=True)
    points = [luck.choice(BEFORE), *BETWEEN, luck.choice(AFTER)]
    luck.shuffle(points)
    fired = 0
    lives.inbox.fill(3)
    # In write: the second batch of this life never gets out of its task.
    lives.begin(naps_at=ROWS + 7)
    lives.kill_when(lambda: lives.batches("offsets") == 2 and lives.batches("commits") == 1, "a task writes batch 1")
    assert lives.held() == (1, 1)
    fired += 1
    for point in points:
        whole = lives.batches("commits")
        lives.inbox.fill(whole + 4)
        passed = 1 if point in ONCE_PER_EPOCH else SINKS
        # The first epoch of a life may be skipped, which passes few points: the second one is struck, in either sink.
        hit = passed + luck.randint(1, passed)
        driver = lives.begin(fault=f"{point}:stop:{hit}")
        lives.kill_when(lambda: bool(stopped_in(driver.pid)), f"{point} is passed {hit} times")  # noqa: B023
        in_postgres, in_delta = lives.held()
        assert 0 <= in_postgres - in_delta <= 1, "sinks stand one epoch apart, in commit order"
        fired += 1
    lives.finish()
    assert lives.held() == (lives.inbox.files, lives.inbox.files)
    assert fired == len(points) + 1
    with capsys.disabled():
        print(f" {fired} kills: {', '.join(points)}", end="", flush=True)
