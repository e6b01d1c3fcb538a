"""A driver that is fenced out while its epoch is staged: its successor removes the files, and it says what happened."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.core.paned import Paned, Query, drawn
from tests.core.several import CRASHES, Pipeline, left_behind

from onceonly import faults
from onceonly.errors import FencedOut
from onceonly.faults import Point
from onceonly_checkpoints.ledger import EventKind

BEFORE_IT_COMMITS = [
    (point, hit)
    for point, hit in CRASHES
    if point not in {Point.COMMIT_SENT, Point.COMMIT_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER}
    and (point, hit) not in {(Point.COMMIT_BEFORE, 2), (Point.COMMIT_BEFORE, 3)}
    and not (point in {Point.PREPARE_BEFORE, Point.PREPARE_AFTER} and hit > 1)
]


@pytest.fixture(autouse=True)
def disarmed() -> Generator[None]:
    yield
    faults.disarm()


@pytest.mark.parametrize(("point", "hit"), BEFORE_IT_COMMITS)
def test_a_driver_whose_staged_files_are_gone_says_who_owns_the_pipeline(
    tmp_path: Path, point: Point, hit: int
) -> None:
    pipeline = Pipeline(tmp_path)
    zombie = pipeline.driver()
    zombie.writes(1)

    def successor() -> None:
        faults.disarm()
        pipeline.driver().writes(2, 3)

    faults.arm(point, successor, hit)
    with pytest.raises(FencedOut, match=r"is owned by .* \(generation 2, ours was 1\)") as fenced:
        zombie.writes(2)
    assert fenced.value.code == "E401"
    assert len(pipeline.events(EventKind.FENCED)) == 1
    pipeline.holds(3)


@pytest.mark.parametrize("point", [Point.STAGE_BEFORE, Point.STAGE_AFTER, Point.PREPARE_BEFORE, Point.COMMIT_BEFORE])
def test_and_so_does_one_with_windows_whose_state_has_moved_on(tmp_path: Path, point: Point) -> None:
    pipeline, (rules, epochs) = Paned(tmp_path), drawn(3)
    zombie = Query(pipeline, rules, epochs)
    zombie.writes(1)

    def successor() -> None:
        faults.disarm()
        Query(pipeline, rules, epochs).writes(2, 3, 4)

    faults.arm(point, successor)
    with pytest.raises(FencedOut, match=r"is owned by .* \(generation 2, ours was 1\)"):
        zombie.writes(2)
    assert pipeline.epochs("a") == pipeline.epochs("state") == [1, 2, 3, 4]


def test_and_so_does_one_that_heals_from_files_that_are_needed_no_more(tmp_path: Path) -> None:
    pipeline = left_behind(tmp_path)
    zombie = pipeline.driver()

    def successor() -> None:
        faults.disarm()
        pipeline.driver().writes(2, 3, 4)

    faults.arm(Point.REINDEX_AFTER, successor)
    with pytest.raises(FencedOut, match=r"is owned by .* \(generation 3, ours was 2\)"):
        zombie.writes(3)
    pipeline.holds(4)


def test_files_that_somebody_else_removed_are_not_taken_for_a_newer_driver(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    driver = pipeline.driver()
    driver.writes(1)

    def remove() -> None:
        for path in tmp_path.glob("staging/*/e000000000002-*/*"):
            path.unlink()

    faults.arm(Point.PREPARE_BEFORE, remove)
    with pytest.raises(FileNotFoundError):
        driver.writes(2)
    faults.disarm()
    pipeline.driver().writes(2)
    pipeline.holds(2)
