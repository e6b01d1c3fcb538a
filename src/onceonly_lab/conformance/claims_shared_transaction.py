"""Claims: several sinks in one shared transaction.

Each is fenced by itself. Either all hold the epoch, or none does.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from onceonly.errors import OnceOnlyError
from onceonly.faults import Point
from onceonly.protocol import JoinsTransaction, Prepared, Sink
from onceonly_checkpoints.epoch import Epoch, Marker, Receipt
from onceonly_lab.conformance.harness import NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario, expect, plan, refused, superseded, unknown


def nothing_of_two_sinks_is_seen_until_they_commit_together(harness: SinkHarness) -> None:
    """Rows that are prepared beside those of another sink are seen by nobody, and then all of them are."""
    with _pair(harness) as pair:
        driver = pair.driver()
        first, prepared = driver.prepares()
        pair.hold()
        driver.commits(first, prepared)
        pair.hold(first)
        second, prepared = driver.prepares()
        driver.commits(second, prepared)
        pair.hold(first, second)


def what_is_given_up_leaves_nothing_in_either(harness: SinkHarness) -> None:
    """Rows of two sinks that are abandoned leave nothing behind, and the next epoch of both is written."""
    with _pair(harness) as pair:
        driver = pair.driver()
        _, prepared = driver.prepares()
        for preparation in prepared:
            preparation.abandon()
        pair.hold()
        pair.hold(driver.writes())


def either_of_two_sinks_may_have_no_rows(harness: SinkHarness) -> None:
    """An epoch of two sinks holds where the first has no rows, where the second has none, and where neither has any."""
    with _pair(harness) as pair:
        driver = pair.driver()
        written = [driver.writes(rows) for rows in ((0, 3), (3, 0), (0, 0), (2, 4))]
        pair.hold(*written)


def a_newer_fence_in_either_stops_both(harness: SinkHarness) -> None:
    """A commit of two sinks fails as a whole where a newer fence stands in one of them, whichever that is."""
    for at in (0, 1):
        with _pair(harness) as pair:
            zombie = pair.driver()
            first = zombie.writes()
            planned, prepared = zombie.prepares()
            owner = pair.stories[at].driver(2)
            superseded("The commit of both", lambda: zombie.commits(planned, prepared), owner.fence)  # noqa: B023
            pair.hold(first)
            superseded("Another epoch of both", lambda: zombie.tries(planned), owner.fence)  # noqa: B023
            pair.hold(first)


def both_follow_what_stands_in_them(harness: SinkHarness) -> None:
    """A commit of two sinks fails as a whole where the epoch does not follow what one of them holds."""
    for at in (0, 1):
        with _pair(harness) as pair:
            driver = pair.driver()
            first = driver.writes()
            # One of them gets an epoch 2 that the other one has not.
            alone = driver.drivers[at].writes()
            planned, prepared = driver.prepares(after=first)
            what = "An epoch that does not follow what one of two sinks holds"
            refused(what, lambda: driver.commits(planned, prepared), OnceOnlyError)  # noqa: B023
            held = [[first.plans[which]] for which in (0, 1)]
            held[at].append(alone)
            for story, plans in zip(pair.stories, held, strict=True):
                story.holds(*plans)


def a_lost_answer_is_looked_up_in_each(harness: SinkHarness) -> None:
    """When the answer to a commit of two sinks is lost, both look-ups find the epoch, and it is not doubled."""
    with _pair(harness) as pair:
        driver = pair.driver()
        planned, prepared = driver.prepares()
        unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, prepared))
        for sink_driver, each in zip(driver.drivers, planned.plans, strict=True):
            receipt = sink_driver.looks_up(each)
            expect(
                receipt and receipt.chain == each.epoch.chain, f"The look-up in {sink_driver.sink.id} found {receipt}."
            )
        pair.hold(planned)
        pair.hold(planned, driver.writes())


def one_that_was_in_a_transaction_of_two_goes_on_alone(harness: SinkHarness) -> None:
    """A sink that wrote in a transaction with another writes its next epoch alone, and then with it again."""
    with _pair(harness) as pair:
        driver = pair.driver()
        first = driver.writes()
        alone = [sink_driver.writes() for sink_driver in driver.drivers]
        for story, before, after in zip(pair.stories, first.plans, alone, strict=True):
            story.holds(before, after)


CLAIMS = claims_of(
    nothing_of_two_sinks_is_seen_until_they_commit_together,
    what_is_given_up_leaves_nothing_in_either,
    either_of_two_sinks_may_have_no_rows,
    a_newer_fence_in_either_stops_both,
    both_follow_what_stands_in_them,
    a_lost_answer_is_looked_up_in_each,
    one_that_was_in_a_transaction_of_two_goes_on_alone,
    of=JoinsTransaction,
)


# ---- two targets, and a driver of both


@dataclass(frozen=True, slots=True)
class Both:
    """An epoch of two sinks: what each of them gets."""

    plans: tuple[PlannedEpoch, PlannedEpoch]


class _Two:
    """A driver of two sinks that share a transaction."""

    def __init__(self, drivers: Sequence[Driver], harnesses: Sequence[SinkHarness]) -> None:
        self.drivers = tuple(drivers)
        self._harnesses = tuple(harnesses)
        leader = self.drivers[0].sink
        assert isinstance(leader, JoinsTransaction)
        self._leader = leader

    def plan(self, rows: tuple[int, int] = (3, 3), after: Both | None = None) -> Both:
        plans: list[PlannedEpoch] = []
        for at, (driver, count) in enumerate(zip(self.drivers, rows, strict=True)):
            last = after.plans[at].epoch if after else self._newest(driver)
            plans.append(plan(last, driver.sink.id, count))
        return Both((plans[0], plans[1]))

    @staticmethod
    def _newest(driver: Driver) -> Epoch | None:
        marker = driver.position().marker
        return marker.epoch if marker else None

    def prepares(self, rows: tuple[int, int] = (3, 3), after: Both | None = None) -> tuple[Both, list[Prepared]]:
        planned = self.plan(rows, after)
        return planned, self.prepared(planned)

    def prepared(self, planned: Both) -> list[Prepared]:
        first = self.drivers[0].prepares(planned.plans[0])
        other, each = self.drivers[1].sink, planned.plans[1]
        assert isinstance(other, JoinsTransaction)
        try:
            batch = self._harnesses[1].batch(each.table)
            return [first, other.prepare_joined(batch, each.epoch.number, [(self.drivers[0].sink, first)])]
        except BaseException:
            first.abandon()
            raise

    def commits(self, planned: Both, prepared: Sequence[Prepared]) -> tuple[Receipt, ...]:
        markers = [driver.marker(each.epoch) for driver, each in zip(self.drivers, planned.plans, strict=True)]
        other: tuple[Sink, Prepared | None, Marker] = self.drivers[1].sink, prepared[1], markers[1]
        receipts = self._leader.commit_joined(prepared[0], markers[0], [other])
        actual = [(receipt.sink, receipt.epoch, receipt.chain, receipt.rows) for receipt in receipts]
        expected = [
            (marker.sink, marker.epoch.number, marker.epoch.chain, len(each.ids))
            for marker, each in zip(markers, planned.plans, strict=True)
        ]
        expect(actual == expected, f"The receipts are {actual}; expected {expected}.")
        return receipts

    def tries(self, planned: Both) -> tuple[Receipt, ...]:
        prepared = self.prepared(planned)
        try:
            return self.commits(planned, prepared)
        except BaseException:
            for preparation in prepared:
                preparation.abandon()
            raise

    def writes(self, rows: tuple[int, int] = (3, 3)) -> Both:
        planned = self.plan(rows)
        self.tries(planned)
        return planned


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two targets of one destination, and the lives of both."""

    first: SinkHarness
    second: SinkHarness
    stories: tuple[Scenario, Scenario]

    def driver(self) -> _Two:
        return _Two([story.driver() for story in self.stories], (self.first, self.second))

    def hold(self, *epochs: Both) -> None:
        """Check that each target holds its rows and markers of these epochs, and nothing else."""
        for at, story in enumerate(self.stories):
            story.holds(*(epoch.plans[at] for epoch in epochs))


@contextmanager
def _pair(harness: SinkHarness) -> Generator[_Pair]:
    """Two fresh targets whose sinks share a transaction."""
    with closing(harness.another()) as first, closing(harness.another()) as second:
        with closing(first.connect()) as sink, closing(second.connect()) as other:
            assert isinstance(sink, JoinsTransaction)
            assert isinstance(other, JoinsTransaction)
            if not sink.can_join(other):
                raise NotTested("Two targets that another() makes share no transaction.")
            expect(other.can_join(sink), "A sink shares a transaction with another one, which does not share it.")
            expect(sink.id != other.id, "Two targets have one id.")
        with Scenario(first) as ours, Scenario(second) as theirs:
            yield _Pair(first, second, (ours, theirs))
