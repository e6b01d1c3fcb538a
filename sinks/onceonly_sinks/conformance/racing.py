"""Claims about drivers that act at the same time, each with its own handle in its own thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from onceonly.protocol import Superseded
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.conformance.harness import ConformanceFailure, SinkHarness, claims_of
from onceonly_sinks.conformance.story import Driver, Plan, Story, expect

_RACERS = 4
_EPOCH_LIMIT = 200


def _race[Answer](racers: int, run: Callable[[int, threading.Barrier], Answer]) -> list[Answer]:
    """Run a function in several threads that can wait for each other at a barrier."""
    barrier = threading.Barrier(racers, timeout=60)
    with ThreadPoolExecutor(racers) as pool:
        return [running.result() for running in [pool.submit(run, racer, barrier) for racer in range(racers)]]


def one_of_racing_commits_lands(harness: SinkHarness) -> None:
    """When several handles commit the same epoch under the same fence at once, it lands once, and the chain goes on."""
    with Story(harness) as story:
        driver = story.driver()
        written: list[Plan] = []
        for _ in range(3):
            planned = driver.plan()
            answers = _race(_RACERS, lambda _, barrier: _commits_at_once(story, driver, planned, barrier))
            written.append(planned)
            story.holds(*written)
            receipts = {answer for answer in answers if isinstance(answer, Receipt)}
            expect(len(receipts) <= 1, f"One epoch was answered with {len(receipts)} different receipts.")


def _commits_at_once(story: Story, owner: Driver, planned: Plan, barrier: threading.Barrier) -> object:
    twin = story.stranger(owner.fence.generation, owner.fence.owner)
    twin.fences()
    prepared = twin.prepares(planned)
    barrier.wait()
    try:
        return twin.commits(planned, prepared)
    except Exception as error:  # noqa: BLE001  how a loser is refused is its sink's business; the target is the judge
        return error
    finally:
        prepared.abandon()


def one_of_racing_installs_owns_the_generation(harness: SinkHarness) -> None:
    """When several drivers install the same generation at once, one owns it and the others are told so."""
    with Story(harness) as story:
        for generation in (1, 2, 3):
            drivers = _race(_RACERS, lambda racer, barrier: _installs_at_once(story, generation, racer, barrier))
            owners = [driver for driver in drivers if driver is not None]
            expect(len(owners) == 1, f"Generation {generation} has {len(owners)} owners.")
            stands = story.reader().fence()
            expect(stands == owners[0].fence, f"{owners[0].fence} was told that it stands; {stands} does.")
            owners[0].writes()


def _installs_at_once(story: Story, generation: int, racer: int, barrier: threading.Barrier) -> Driver | None:
    driver = story.stranger(generation, f"racer-{racer}")
    barrier.wait()
    try:
        driver.fences()
    except Superseded:
        return None
    return driver


def nothing_of_an_older_fence_appears_after_an_install(harness: SinkHarness) -> None:
    """While a driver commits as fast as it can another one fences; once that has returned nothing of the first appears."""
    with Story(harness) as story:
        running, fenced = threading.Event(), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(_writes_until_refused, story, running, fenced)
            running.wait(60)
            owner = story.driver(2)
            seen = Counter(row["id"] for row in harness.rows())
            stands = owner.position().epoch
            fenced.set()
            refusal = writing.result()
        expect(refusal, "The older driver was never refused.")
        later = Counter(row["id"] for row in harness.rows())
        expect(later == seen, f"After the install {(later - seen).total()} more rows appeared.")
        history = [marker.epoch.number for marker, _ in story.reader().history()]
        expect(history == list(range(1, stands + 1)), f"Under the fence stood epoch {stands}; history lists {history}.")
        owner.writes()


def _writes_until_refused(story: Story, running: threading.Event, fenced: threading.Event) -> Exception | None:
    driver = story.driver(1)
    left = _EPOCH_LIMIT
    epoch = None
    while left:
        left = left - 1 if not fenced.is_set() else min(left, 3) - 1
        try:
            planned = driver.plan(after=epoch)
            driver.tries(planned)
        except Exception as error:  # noqa: BLE001  how the loser is refused is its sink's business
            return error
        epoch = planned.epoch
        if epoch.number == 3:
            running.set()
    return None


def rows_and_marker_appear_together(harness: SinkHarness) -> None:
    """Whoever looks while epochs are committed sees an epoch's rows all or not at all, and never without the marker."""
    with Story(harness) as story:
        driver = story.driver()
        done = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(_watches, story, done)
            try:
                written = [driver.writes(rows=_WATCHED_ROWS) for _ in range(5)]
            finally:
                done.set()
            watching.result()
        story.holds(*written)


_WATCHED_ROWS = 200


def _watches(story: Story, done: threading.Event) -> None:
    """Look at rows, then markers, then rows: what is seen may only grow, so each order proves one direction."""
    reader = story.reader()
    while not done.is_set():
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


def _rows_per_epoch(story: Story) -> Counter[int]:
    return Counter(row["step"] for row in story.harness.rows())


def a_driver_is_not_held_up_by_readers(harness: SinkHarness) -> None:
    """A history that somebody has begun to read and left open does not hold a driver up."""
    with Story(harness) as story:
        driver = story.driver()
        first, second = driver.writes(), driver.writes()
        reading = story.reader().history()
        if next(reading, None) is None:
            raise ConformanceFailure("History is empty after two epochs.")
        third = story.driver().writes()
        story.holds(first, second, third)


CLAIMS = claims_of(
    one_of_racing_commits_lands,
    one_of_racing_installs_owns_the_generation,
    nothing_of_an_older_fence_appears_after_an_install,
    rows_and_marker_appear_together,
    a_driver_is_not_held_up_by_readers,
)
