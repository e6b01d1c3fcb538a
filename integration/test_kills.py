"""Real drivers, SIGKILLed with their JVM at every fault point there is, in a chain: each restart heals one kill and runs into the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.stage import (
    Company,
    Inbox,
    Scene,
    begun,
    interleave,
    quick_jvm,
    scratch,
    story,
    was_killed,
)

from onceonly.faults import Point
from onceonly.lab.driver import Driver
from onceonly.lab.postgres import EmbeddedPostgres

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
"""Passed once per start, before any batch is looked at. The first kill of the chain meets a target that does not exist yet."""

STATEFUL = (Point.EXECUTE_AFTER,)
"""Passed only where a skipped batch still has to be executed: a chain of its own."""

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

PER_EPOCH = tuple(point for point in Point if point not in (*OPENING, *STATEFUL))

CHAIN = tuple(interleave(OPENING, PER_EPOCH))
"""An opening is killed in turn with an epoch, so that openings also die while they meet what a dead epoch left."""

LONGEST_LIFE = 4
"""Files that one life may need: a skip, an epoch, the epoch it dies in, and one that is never reached."""


@dataclass(frozen=True)
class Target:
    """Where a chain writes to."""

    scenes: tuple[Scene, ...]
    company: Company


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[EmbeddedPostgres, Company]]:
    with scratch("onceonly-kills-") as folder, EmbeddedPostgres(folder / "data") as server:
        company = Company(folder / "log", quick_jvm())
        try:
            yield server, company
        finally:
            company.close()


@pytest.fixture
def target(place, tmp_path: Path) -> Target:
    """One pipeline into Delta and one into Postgres, over the same files."""
    server, company = place
    inbox = Inbox(tmp_path / "in")
    delta = Scene(tmp_path, "delta", str(tmp_path / "table"), inbox)
    postgres = Scene(tmp_path, "postgres", server.database(f"db{tmp_path.name}"[-40:]), inbox)
    import os

    return Target((postgres,) if os.environ.get("ONLYPG") else (delta, postgres), company)


def deadly(point: Point) -> str:
    """The fault of a driver that dies at a point: in its opening, else in its second epoch."""
    if point is Point.LOOK_UP_AFTER:
        return f"{Point.COMMIT_SENT}:raise:2,{point}:killgroup"
    return f"{point}:killgroup:{1 if point in OPENING else 2}"


def died_at(driver: Driver, point: Point, scenes: tuple[Scene, ...]) -> dict[str, int]:
    """Demand that SIGKILL ended the driver while every query stood at the point; return the batch that each of them was in."""
    assert was_killed(driver), driver.last_words()
    stood = {said["query"]: said["point"] for said in story(driver) if said["event"] == "at"}
    assert stood == {scene.name: point for scene in scenes}
    return begun(driver)


def test_every_point_is_in_a_chain():
    assert sorted([*CHAIN, *STATEFUL]) == sorted(Point)


def test_no_kill_loses_or_doubles_a_row(target):
    scenes, company = target.scenes, target.company
    jobs = [scene.job() for scene in scenes]
    held = dict.fromkeys((scene.name for scene in scenes), 0)
    for point in CHAIN:
        scenes[0].inbox.fill(max(held.values()) + LONGEST_LIFE)
        batches = died_at(company.start(*jobs, fault=deadly(point)), point, scenes)
        for scene in scenes:
            batch = batches[scene.name]
            held[scene.name] = held[scene.name] if point in OPENING else batch + (point in VISIBLE)
            scene.holds_exactly(held[scene.name])
            assert batch not in scene.batches("commits"), "Spark believes that the batch was written"
    company.finish(*jobs)
    for scene in scenes:
        scene.holds_everything()
        scene.has_one_owner_per_generation()


def test_a_stateful_query_killed_while_it_executes_a_skipped_batch_goes_on(target):
    scenes, company = target.scenes, target.company
    jobs = [scene.job(unique=True) for scene in scenes]
    scenes[0].inbox.fill(2)
    died_at(company.start(*jobs, fault="return.before:killgroup"), Point.RETURN_BEFORE, scenes)
    for scene in scenes:
        scene.holds_exactly(1)
    died_at(company.start(*jobs, fault="execute.after:killgroup"), Point.EXECUTE_AFTER, scenes)
    company.finish(*jobs)
    for scene in scenes:
        scene.holds_everything()
