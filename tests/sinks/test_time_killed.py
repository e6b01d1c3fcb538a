"""Crash after crash on real stores: what was said of time never goes back, and is what epochs' own words make of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from tests.sinks import timed_driver
from tests.sinks.timed_driver import PIPELINE, ROWS, TABLE, Job, make_sink, noted

from onceonly.event_time import TimeReader
from onceonly.faults import Point
from onceonly_checkpoints import chain
from onceonly_lab.driver import Driver
from onceonly_lab.forkserver import ForkServer
from onceonly_lab.servers.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.kill, pytest.mark.postgres]

REPOSITORY = Path(__file__).resolve().parents[2]
SEED = 20261125

NEVER = (Point.EXECUTE_AFTER, Point.LOOK_UP_AFTER, Point.RETURN_BEFORE, Point.DISCOVER_AFTER, Point.FETCH_AFTER)
"""Points that no driver of this test is sure to pass: it loses no answer, and Spark is not there."""

STAGED = (Point.STAGE_BEFORE, Point.STAGE_AFTER)
OPENING = (Point.PROBE_AFTER, Point.RECALL_AFTER, Point.INSTALL_BEFORE, Point.INSTALL_SENT, Point.INSTALL_AFTER)
OPENING += (Point.READ_AFTER, Point.REINDEX_AFTER)
"""Passed once by each driver; the others, in each epoch."""

LATEST_S = 0.4
"""Until when a driver dies that is killed by the clock: in its opening, or a few epochs later."""

_SHOWN = f"""
SELECT w.lower, (SELECT count(*) FROM {TABLE}) FROM onceonly.time_window w WHERE w.target = '{TABLE}'::regclass
"""


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    log = tmp_path_factory.mktemp("fork server") / "log"
    with ForkServer("tests.sinks.timed_driver", log, {"PYTHONPATH": str(REPOSITORY)}) as made:
        yield made


class Watch:
    """One who looks all the time, and must never be told less than before.

    Args:
        dsn: of the database; each look is one statement, and so of one snapshot.
        seed: of the drivers' words.
    """

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn, self._seed = dsn, seed
        self.looks = 0
        self.wrong: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._look, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _look(self, over: threading.Event) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            lower = -1_000_000
            while not over.wait(0.005):
                there = connection.execute("SELECT to_regclass('onceonly.time_window'), to_regclass(%s)", (TABLE,))
                if None in (there.fetchone() or (None,)):
                    continue
                shown = connection.execute(_SHOWN).fetchone()
                if shown is None:
                    continue
                told, rows = shown
                self.looks += 1
                if told < lower or told != noted(self._seed, rows // ROWS)[-1]:
                    self.wrong.append(f"{told} after {lower}, beside {rows} rows")
                lower = max(lower, told)


def drawn(draw: random.Random, points: list[Point]) -> str:
    """Where the next driver dies, in its first epochs; empty: at a moment of the clock."""
    point, hit = draw.choice(points), draw.randint(1, 3)
    return f"{point}:kill:{1 if point in OPENING else hit}" if draw.random() < 0.6 else ""


def dies(server: ForkServer, job: Job, log: Path, draw: random.Random) -> bool:
    """Start a driver and have it killed; whether a SIGKILL was what ended it."""
    with Driver.forked(server, job.text, log=log) as driver:
        if not job.fault:
            driver.wait_for(lambda line: line == "up", 30)
            time.sleep(draw.random() * LATEST_S)
            return driver.kill() == -9
        code = driver.wait(60)
        assert code == -9, driver.last_words()
        return True


def judge(job: Job, before: Sequence[int | None]) -> list[int | None]:
    """Hold each sink against the words of its epochs, and what its readers are told against what they were told."""
    with job.opened() as sinks:
        for sink in sinks:
            shown = [marker.epoch for marker, _ in sink.history()]
            assert chain.first_break(shown) is None
            said = noted(job.seed, len(shown))
            times = [epoch.time for epoch in shown if epoch.time]
            assert [(time.complete_until, time.dataset_complete_until) for time in times] == [
                (one, one) for one in said
            ]
            assert sink.recount() == dict.fromkeys(range(1, len(shown) + 1), ROWS)
    told = [read(kind, target) for kind, target in job.sinks]
    for was, now in zip(before, told, strict=False):
        assert was is None or (now is not None and now >= was), f"{now} after {was}"
    return told


def read(kind: str, target: str) -> int | None:
    with TimeReader(PIPELINE, make_sink(kind, target)) as reader:
        return reader.time_window().lower


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kinds", [pytest.param(("postgres",), marks=pytest.mark.slow), ("postgres", "delta")], ids="-".join
)
def test_after_no_kill_is_less_complete_than_was_said_and_what_is_said_is_what_epochs_make_it(
    postgres: EmbeddedPostgres, fork_server: ForkServer, tmp_path: Path, kinds: tuple[str, ...], kills: int
) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    dsn = postgres.database(f"killed_{len(kinds)}_{kills}")
    targets = {"postgres": dsn, "delta": str(tmp_path / "table")}
    job = Job(tuple((kind, targets[kind]) for kind in kinds), str(tmp_path), SEED)
    points = [point for point in Point if point not in NEVER and (len(kinds) > 1 or point not in STAGED)]
    watch, struck = Watch(dsn, SEED), 0
    told: list[int | None] = []
    with watch.watching():
        for number in range(kills):
            dying = Job(job.sinks, job.folder, SEED, drawn(draw, points))
            struck += dies(fork_server, dying, tmp_path / f"driver-{number:03d}", draw)
            told = judge(job, told)
    assert struck == kills
    assert watch.wrong == []
    assert watch.looks > kills
    end = newest(job) + 3
    last = Job(job.sinks, job.folder, SEED, until=end)
    with Driver.forked(fork_server, last.text, log=tmp_path / "last") as driver:
        assert driver.wait(60) == 0, driver.last_words()
    assert judge(job, told) == [noted(SEED, end)[-1]] * len(kinds)


def newest(job: Job) -> int:
    """Number of the newest epoch in the sink that is furthest."""
    with job.opened() as sinks:
        return max(marker.epoch.number for sink in sinks for marker, _ in sink.history())


def test_the_drivers_words_go_back_as_often_as_not() -> None:
    words = [timed_driver.word(SEED, str(ROWS * number)) for number in range(1, 201)]
    back = sum(later < earlier for earlier, later in pairwise(words))
    assert 60 < back < 140, back
