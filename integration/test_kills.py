"""Real drivers, SIGKILLed at every fault point: each restart heals one kill and runs into the next.

By default the JVM lives on, with whatever the driver had it do; the ``slow`` chains kill it together with the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from deltalake import write_deltalake
from integration.processes import Drivers, begun, story, was_killed
from integration.stage import ROWS, Inbox, Scene, rows_of
from integration.test_several_sinks import EVERYWHERE

from onceonly.faults import Point
from onceonly_lab.driver import Driver

pytestmark = [pytest.mark.kill, pytest.mark.postgres]

OPENING = (
    Point.INSTALL_SENT,
    Point.PROBE_AFTER,
    Point.RECALL_AFTER,
    Point.INSTALL_BEFORE,
    Point.INSTALL_AFTER,
    Point.READ_AFTER,
    Point.REINDEX_AFTER,
)
"""Passed once per start, before a batch is looked at. The first kill meets a target that does not exist yet."""

STATEFUL = (Point.PREPARE_SENT, Point.COMMIT_SENT, Point.EXECUTE_AFTER)
"""A chain of its own: a query whose skipped batch still has to be executed, whose batches go through executors."""

VISIBLE = frozenset(
    {
        Point.COMMIT_SENT,
        Point.COMMIT_AFTER,
        Point.LOOK_UP_AFTER,
        Point.RECORD_BEFORE,
        Point.RECORD_AFTER,
        Point.RETURN_BEFORE,
    }
)
"""Points at which the epoch's rows stand in the sink already."""

STAGED = (Point.STAGE_BEFORE, Point.STAGE_AFTER, Point.FETCH_AFTER)
"""Passed where there are several sinks: killed in ``test_several_sinks``."""

PER_EPOCH = tuple(point for point in Point if point not in (*OPENING, *STAGED, Point.EXECUTE_AFTER))

CHAIN = tuple(point for point in chain.from_iterable(zip_longest(OPENING, PER_EPOCH)) if point)
"""An opening is killed in turn with an epoch, so that openings also die while they meet what a dead epoch left."""

WORST = (
    Point.INSTALL_SENT,
    Point.PREPARE_SENT,
    Point.INSTALL_AFTER,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
    Point.RETURN_BEFORE,
)
"""Where a driver can die that leaves the most: a fence without an owner, rows without a marker, a commit whose answer
nobody heard, an epoch that no ledger knows, and one of which Spark does not know. ``CHAIN`` has every other point."""

LONGEST_LIFE = 4
"""Files that one life may need: a skip, an epoch, the epoch it dies in, and one that is never reached."""


@dataclass(frozen=True)
class Target:
    """Where a chain writes to."""

    scenes: tuple[Scene, ...]
    processes: Drivers


DRIVERS = [
    pytest.param("warm_drivers", id="driver"),
    pytest.param("processes", marks=pytest.mark.slow, id="and-its-jvm"),
]


@pytest.fixture(params=DRIVERS)
def killed(request) -> Drivers:
    """Whom to kill."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def target(any_postgres, killed, tmp_path: Path, request) -> Target:
    """A pipeline into each kind of sink, over the same files."""
    inbox = Inbox(tmp_path / "in")
    tables = [Scene(tmp_path, kind, str(tmp_path / kind), inbox) for kind in request.param if kind != "postgres"]
    database = any_postgres.database(f"kills_{abs(hash(request.node.name)):x}")
    return Target((*tables, Scene(tmp_path, "postgres", database, inbox)), killed)


def deadly(point: Point) -> str:
    """The fault of a driver that dies at a point: in its opening, else in its second epoch."""
    if point is Point.LOOK_UP_AFTER:
        return f"{Point.COMMIT_SENT}:raise:2,{point}:killgroup"
    return f"{point}:killgroup:{1 if point in OPENING else 2}"


def died_at(driver: Driver, point: Point, scenes: tuple[Scene, ...]) -> dict[str, int]:
    """Demand that SIGKILL ended the driver while every query stood at the point; return the batch of each."""
    assert was_killed(driver), driver.last_words()
    stood = {said["query"]: said["point"] for said in story(driver) if said["event"] == "at"}
    assert stood == {scene.name: point for scene in scenes}
    return begun(driver)


def test_every_point_is_in_a_chain():
    assert {*CHAIN, *STATEFUL, *STAGED} == {*Point}
    assert {*WORST} <= {*CHAIN}
    assert {fault.split(":")[0] for fault in EVERYWHERE} >= {*STAGED}


@pytest.mark.parametrize(
    ("ids", "verdict"), [(range(ROWS - 1), "1 rows missing"), ([*range(ROWS), 7], "1 rows too many")]
)
def test_the_judgement_sees_a_single_row_that_is_missing_or_doubled(tmp_path, ids, verdict):
    scene = Scene(tmp_path, "delta", str(tmp_path / "table"))
    write_deltalake(scene.target, rows_of(ids))
    with pytest.raises(AssertionError, match=verdict):
        scene.holds_exactly(1)


def live_through(points: Sequence[Point], scenes: tuple[Scene, ...], processes: Drivers) -> None:
    """Have a driver die at each point, look at the sinks after each, and run the last to the end of the input."""
    jobs = [scene.job() for scene in scenes]
    held = dict.fromkeys((scene.name for scene in scenes), 0)
    for point in points:
        scenes[0].inbox.fill(max(held.values()) + LONGEST_LIFE)
        batches = died_at(processes.start(*jobs, fault=deadly(point)), point, scenes)
        for scene in scenes:
            batch = batches[scene.name]
            held[scene.name] = held[scene.name] if point in OPENING else batch + (point in VISIBLE)
            scene.holds_exactly(held[scene.name])
            assert batch not in scene.batches("commits"), "Spark believes that the batch was written"
    processes.finish(*jobs)
    for scene in scenes:
        scene.holds_everything()
        scene.has_one_owner_per_generation()


@pytest.mark.parametrize(
    "points", [pytest.param(WORST, id="worst"), pytest.param(CHAIN, id="every", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("target", [("delta", "postgres")], indirect=True, ids=["delta-and-postgres"])
def test_no_kill_loses_or_doubles_a_row(target, points):
    live_through(points, target.scenes, target.processes)


@pytest.mark.slow
@pytest.mark.parametrize("target", [("delta", "delta-spark", "postgres")], indirect=True, ids=["both-and-by-spark"])
def test_no_kill_of_a_stateful_query_loses_or_doubles_a_row(target):
    scenes, processes = target.scenes, target.processes
    jobs = [scene.job(unique=True) for scene in scenes]
    scenes[0].inbox.fill(2)
    for point, held in zip(STATEFUL, (0, 1, 1), strict=True):
        died_at(processes.start(*jobs, fault=f"{point}:killgroup"), point, scenes)
        for scene in scenes:
            scene.holds_exactly(held)
    processes.finish(*jobs)
    for scene in scenes:
        scene.holds_everything()
