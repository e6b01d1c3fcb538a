"""Claims about commits whose answer never came."""

from __future__ import annotations

from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.conformance.harness import SinkHarness, claims_of
from onceonly_sinks.conformance.story import Driver, Plan, Story, expect, unknown


def a_commit_whose_answer_was_lost_is_unknown_and_there_once(harness: SinkHarness) -> None:
    """A commit whose answer was lost is called unknown and is not sent again by the sink: its rows are there once."""
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, prepared))
        story.holds(planned)


def looking_up_finds_a_commit_whose_answer_was_lost(harness: SinkHarness) -> None:
    """Looking up a commit that landed returns its receipt, again and again, and the next epoch follows it."""
    with Story(harness) as story:
        driver = story.driver()
        first, planned = driver.writes(), driver.plan()
        _loses_the_answer(driver, planned)
        receipts = [driver.looks_up(planned), driver.looks_up(planned)]
        recorded = [recorded for _, recorded in story.reader().history(1)]
        for receipt in receipts:
            expect([receipt] == recorded, f"Looked up {receipt}; history says {recorded}.")
        story.holds(first, planned, driver.writes())


def looking_up_a_marker_alone_finds_it(harness: SinkHarness) -> None:
    """Looking up a marker that was committed without rows returns its receipt."""
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=0)
        unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, None))
        receipt = driver.looks_up(planned)
        expect(receipt and receipt.chain == planned.epoch.chain, f"Looked up {receipt}.")


def looking_up_what_was_never_sent_finds_nothing(harness: SinkHarness) -> None:
    """Looking up an epoch that was not committed returns None, and it can be committed then."""
    with Story(harness) as story:
        driver = story.driver()
        written: list[Plan] = []
        for _ in range(2):
            planned = driver.plan()
            driver.prepares(planned).abandon()
            receipt = driver.looks_up(planned)
            expect(receipt is None, f"Nothing was sent, but {receipt} was found.")
            driver.tries(planned)
            written.append(planned)
        story.holds(*written)


def looking_up_is_not_content_with_the_number(harness: SinkHarness) -> None:
    """Looking up an epoch that has the number of the newest one and another chain does not find it."""
    with Story(harness) as story:
        driver = story.driver()
        first = driver.writes()
        second = driver.writes()
        other = driver.plan(salt=1, after=first.epoch)
        receipt = _found(driver, other)
        expect(receipt is None, f"Epoch 2 with another chain was taken for ours: {receipt}.")
        story.holds(first, second)


def looking_up_does_not_take_anothers_epoch_for_ours(harness: SinkHarness) -> None:
    """The same epoch written by our successor under its own fence is not ours."""
    with Story(harness) as story:
        zombie = story.driver(1)
        planned = zombie.plan()
        zombie.prepares(planned).abandon()
        story.driver(2).tries(planned)
        receipt = _found(zombie, planned)
        expect(receipt is None, f"The successor's epoch was taken for ours: {receipt}.")
        story.holds(planned)


def the_next_driver_finds_a_commit_whose_answer_was_lost(harness: SinkHarness) -> None:
    """A commit whose driver died before the answer is in the position of the next driver, who goes on after it."""
    with Story(harness) as story:
        lost = story.driver(1)
        planned = lost.plan()
        _loses_the_answer(lost, planned)
        owner = story.driver(2)
        marker = owner.position().marker
        expect(marker == lost.marker(planned.epoch), f"The next driver finds {marker}.")
        story.holds(planned, owner.writes())


def _loses_the_answer(driver: Driver, planned: Plan) -> None:
    prepared = driver.prepares(planned)
    unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, prepared))


def _found(driver: Driver, planned: Plan) -> Receipt | None:
    """What looking up finds; that it cannot be said, or that somebody else stands there, is not finding it."""
    try:
        return driver.looks_up(planned)
    except (Superseded, OutcomeUnknown):
        return None


CLAIMS = claims_of(
    a_commit_whose_answer_was_lost_is_unknown_and_there_once,
    looking_up_finds_a_commit_whose_answer_was_lost,
    looking_up_a_marker_alone_finds_it,
    looking_up_what_was_never_sent_finds_nothing,
    looking_up_is_not_content_with_the_number,
    looking_up_does_not_take_anothers_epoch_for_ours,
    the_next_driver_finds_a_commit_whose_answer_was_lost,
)
