"""Claims: concurrent drivers, each with its own handle and thread."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from onceonly.protocol import OutcomeUnknown, Prepared, Superseded
from onceonly_checkpoints.epoch import Receipt
from onceonly_lab.conformance.harness import (
    FENCES_NOBODY,
    SHOWS_PARTS,
    ConformanceFailure,
    SinkHarness,
    claims_of,
)
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario, expect, plan

_RACERS = 4
_LATE_EPOCHS = 3
_MOMENTS = 5
_TRIES = 5


Answer = TypeVar("Answer")


def _at_once(acts: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """Start every act in its own thread at the same moment; return the answers."""
    barrier = threading.Barrier(len(acts), timeout=60)

    def run(act: Callable[[], Answer]) -> Answer:
        barrier.wait()
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def one_of_racing_commits_lands(harness: SinkHarness) -> None:
    """When several handles commit the same epoch under the same fence at once, it lands once, and the chain goes on."""
    with Scenario(harness) as story:
        driver = story.driver()
        written = [driver.writes()]
        for _ in range(3):
            planned = driver.plan()
            answers = _at_once([_commit_of_a_twin(story, driver, planned) for _ in range(_RACERS)])
            written.append(planned)
            story.holds(*written)
            receipts = {answer for answer in answers if isinstance(answer, Receipt)}
            expect(len(receipts) <= 1, f"One epoch was answered with {len(receipts)} different receipts.")


def _commit_of_a_twin(story: Scenario, owner: Driver, planned: PlannedEpoch) -> Callable[[], object]:
    twin = story.stranger(owner.fence.generation, owner.fence.owner)
    twin.fences()
    return partial(_commits, twin, planned, twin.prepares(planned))


def _commits(twin: Driver, planned: PlannedEpoch, prepared: Prepared) -> object:
    try:
        return twin.commits(planned, prepared)
    except Exception as error:  # noqa: BLE001  how a loser is refused is its sink's business; the target is the judge
        return error
    finally:
        prepared.abandon()


def one_of_racing_installs_owns_the_generation(harness: SinkHarness) -> None:
    """When several drivers install the same generation at once, one owns it and the others are told so."""
    with Scenario(harness) as story:
        for generation in (1, 2, 3):
            rivals = [story.stranger(generation, f"rival-{number}") for number in range(_RACERS)]
            owners = [driver for driver in _at_once([partial(_installs, rival) for rival in rivals]) if driver]
            expect(len(owners) == 1, f"Generation {generation} has {len(owners)} owners.")
            fence = story.reader().fence()
            expect(fence == owners[0].fence, f"{owners[0].fence} was told that it stands; {fence} does.")
            owners[0].writes()


def _installs(driver: Driver) -> Driver | None:
    for _ in range(_TRIES):
        try:
            driver.fences()
        except Superseded:
            return None
        except OutcomeUnknown:
            continue
        return driver
    raise ConformanceFailure(f"The outcome of an install stayed unknown {_TRIES} times.")


def nothing_of_an_older_fence_appears_after_an_install(harness: SinkHarness) -> None:
    """Once a fence is installed nothing of an older one appears, at whatever moment it came between."""
    with Scenario(harness) as story:
        for moment in range(_MOMENTS):
            _fences_between(story, moment / _MOMENTS)


def _fences_between(story: Scenario, moment: float) -> None:
    """Have a driver write as fast as it can, fence it out at a fraction of an epoch, and see nothing change."""
    writer, owner = _Writer(story.driver()), story.newcomer()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer.writes_until_refused)
        try:
            writer.running.wait(60)
            time.sleep(moment * writer.seconds)
            expect(_installs(owner), "A higher fence was refused.")
            earlier = Counter(row["id"] for row in story.harness.rows())
            epoch = owner.position().epoch
        finally:
            writer.fenced.set()
        expect(writing.result(), "The older driver was never refused.")
    later = Counter(row["id"] for row in story.harness.rows())
    expect(later == earlier, f"After the install {(later - earlier).total()} more rows appeared.")
    history = [marker.epoch.number for marker, _ in story.reader().history()]
    expect(history == list(range(1, epoch + 1)), f"Under the fence stood epoch {epoch}; history lists {history}.")
    owner.writes()


class _Writer:
    """A driver that writes epoch after epoch until it is refused; after it was fenced, a few more at most."""

    def __init__(self, driver: Driver) -> None:
        self.running = threading.Event()
        self.fenced = threading.Event()
        self.seconds = 0.0
        self._driver = driver
        self._newest = driver.position().marker

    def writes_until_refused(self) -> Exception | None:
        epoch, late = self._newest.epoch if self._newest else None, 0
        while late < _LATE_EPOCHS:
            late += self.fenced.is_set()
            begun = time.monotonic()
            planned = plan(epoch, self._driver.sink.id)
            try:
                self._driver.tries(planned)
            except Exception as error:  # noqa: BLE001  how the loser is refused is its sink's business
                return error
            finally:
                self.seconds = time.monotonic() - begun
                self.running.set()
            epoch = planned.epoch
        return None


def rows_and_marker_appear_together(harness: SinkHarness) -> str:
    """Whoever looks while epochs are committed sees an epoch's rows all or not at all, and never without the marker."""
    with Scenario(harness) as story, _switching_often():
        driver = story.driver()
        done = threading.Event()
        with ThreadPoolExecutor(_WATCHERS) as pool:
            watching = [pool.submit(_watches, story, done) for _ in range(_WATCHERS)]
            try:
                written = _writes_watched(driver, watching, min(_WATCHED_COMMITS, 4 * harness.moments))
            finally:
                done.set()
            looks = sum(watch.result() for watch in watching)
        story.holds(*written)
    return f"{len(written)} commits, looked at {looks} times"


_WATCHERS = 2
_WATCHED_COMMITS = 200
"""Fewer where few moments are enough for the harness."""

_WATCHED_ROWS = 8
_WATCHED_S = 30.0
"""Half of what a claim is given: a loaded machine writes fewer epochs and does not run out of time."""


@contextmanager
def _switching_often() -> Generator[None]:
    """Let threads take turns within a commit of microseconds, or nobody sees the middle of one in this process."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _writes_watched(driver: Driver, watching: Sequence[Future[int]], commits: int) -> list[PlannedEpoch]:
    """Write epochs until there are enough, nobody watches any more, or time is up."""
    written: list[PlannedEpoch] = []
    ends = time.monotonic() + _WATCHED_S
    while len(written) < commits and time.monotonic() < ends and not any(future.done() for future in watching):
        planned = plan(written[-1].epoch if written else None, driver.sink.id, _WATCHED_ROWS)
        driver.tries(planned)
        written.append(planned)
    return written


def _watches(story: Scenario, done: threading.Event) -> int:
    """Look at rows, then markers, then rows: what is seen may only grow, so each order proves one direction."""
    reader, looks = story.reader(), 0
    while not done.is_set():
        looks += 1
        before = _rows_per_epoch(story)
        marked = [marker.epoch.number for marker, _ in reader.history()]
        after = _rows_per_epoch(story)
        for number, rows in before.items():
            expect(rows == _WATCHED_ROWS, f"Of epoch {number} {rows} of {_WATCHED_ROWS} rows were visible.")
            expect(number in marked, f"The rows of epoch {number} were visible without its marker.")
        for number in marked:
            expect(
                after[number] == _WATCHED_ROWS, f"The marker of epoch {number} was visible with {after[number]} rows."
            )
    return looks


def _rows_per_epoch(story: Scenario) -> Counter[int]:
    return Counter(row["step"] for row in story.harness.rows())


def a_driver_is_not_held_up_by_readers(harness: SinkHarness) -> None:
    """A history that somebody has begun to read and left open does not hold a driver up."""
    with Scenario(harness) as story:
        driver = story.driver()
        first, second = driver.writes(), driver.writes()
        reading = story.reader().history()
        if next(reading, None) is None:
            raise ConformanceFailure("History is empty after two epochs.")
        third = story.driver().writes()
        story.holds(first, second, third)


CLAIMS = (
    *claims_of(
        one_of_racing_commits_lands,
        one_of_racing_installs_owns_the_generation,
        nothing_of_an_older_fence_appears_after_an_install,
        transaction=FENCES_NOBODY,
    ),
    *claims_of(rows_and_marker_appear_together, transaction=SHOWS_PARTS),
    *claims_of(a_driver_is_not_held_up_by_readers),
)
