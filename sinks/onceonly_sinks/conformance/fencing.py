"""Claims about zombies: drivers that were fenced out and do not know it yet."""

from __future__ import annotations

from contextlib import suppress

from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly_sinks.conformance.harness import FENCES_NOBODY, SinkHarness, claims_of
from onceonly_sinks.conformance.story import Story, expect, refused, superseded


def a_zombie_fenced_before_it_prepares_writes_nothing(harness: SinkHarness) -> None:
    """A driver fenced out before its action is refused by then or at the commit, and writes nothing."""
    with Story(harness) as story:
        zombie = story.driver(1)
        first, planned = zombie.writes(), zombie.plan()
        owner = story.driver(2)
        superseded("The epoch of a zombie", lambda: zombie.tries(planned), by=owner.fence)
        story.holds(first)
        story.holds(first, owner.writes())


def a_zombie_fenced_between_prepare_and_commit_writes_nothing(harness: SinkHarness) -> None:
    """A driver fenced out after its last check is refused at the commit, and writes nothing."""
    with Story(harness) as story:
        zombie = story.driver(1)
        first, planned = zombie.writes(), zombie.plan()
        prepared = zombie.prepares(planned)
        owner = story.driver(2)
        superseded("The commit of a zombie", lambda: zombie.commits(planned, prepared), by=owner.fence)
        prepared.abandon()
        story.holds(first)
        story.holds(first, owner.writes())


def a_zombie_does_not_repeat_what_its_successor_wrote(harness: SinkHarness) -> None:
    """A driver that wakes up after its successor wrote the very same epoch writes nothing."""
    with Story(harness) as story:
        zombie = story.driver(1)
        planned = zombie.plan()
        prepared = zombie.prepares(planned)
        owner = story.driver(2)
        owner.tries(planned)
        superseded("The commit of a zombie", lambda: zombie.commits(planned, prepared), by=owner.fence)
        prepared.abandon()
        story.holds(planned)
        story.holds(planned, owner.writes())


def a_zombie_with_a_marker_alone_writes_nothing(harness: SinkHarness) -> None:
    """A driver that was fenced out cannot move the position without rows either."""
    with Story(harness) as story:
        zombie = story.driver(1)
        planned = zombie.plan(rows=0)
        owner = story.driver(2)
        superseded("The marker of a zombie", lambda: zombie.commits(planned, None), by=owner.fence)
        story.holds()
        story.holds(owner.writes())


def a_stale_generation_with_a_fresh_handle_writes_nothing(harness: SinkHarness) -> None:
    """A handle made after the newest fence does not make an old generation new: neither install nor commit is taken."""
    with Story(harness) as story:
        first = story.driver(1).writes()
        owner = story.driver(2)
        stale = story.stranger(1, "owner-1")
        planned = owner.plan()
        superseded("Generation 1 after 2", lambda: stale.sink.install(stale.fence), by=owner.fence)
        refused("An epoch of generation 1 after 2", lambda: stale.tries(planned), Exception)
        story.holds(first)
        story.holds(first, owner.writes())


def a_rival_of_the_same_generation_writes_nothing(harness: SinkHarness) -> None:
    """Where two drivers picked one generation, the one whose owner does not stand writes nothing."""
    with Story(harness) as story:
        owner = story.driver(1)
        first = owner.writes()
        rival = story.stranger(1, "rival")
        planned = owner.plan()
        refused("An epoch of the rival", lambda: rival.tries(planned), Exception)
        story.holds(first)
        story.holds(first, owner.writes())


def a_lower_generation_is_refused_after_maintenance(harness: SinkHarness) -> None:
    """Cleaning the target's history up does not make an old generation new."""
    with Story(harness) as story:
        zombie = story.driver(3)
        written = [zombie.writes() for _ in range(3)]
        planned = zombie.plan()
        prepared = zombie.prepares(planned)
        owner = story.driver(5)
        harness.maintain()
        late = story.stranger(4, "late")
        superseded("Generation 4 after 5", lambda: late.sink.install(late.fence), by=owner.fence)
        superseded("The commit of a zombie", lambda: zombie.commits(planned, prepared), by=owner.fence)
        prepared.abandon()
        story.has_rows_of(*written)


def a_driver_that_hangs_with_a_preparation_holds_nobody_up(harness: SinkHarness) -> None:
    """While a driver hangs between prepare and commit another one opens, writes and is not held up."""
    with Story(harness) as story:
        hanging = story.driver(1)
        planned = hanging.plan(rows=50)
        prepared = hanging.prepares(planned)
        owner = story.driver(2)
        owner.sink.sweep()
        owner.tries(planned)
        second = owner.writes()
        superseded("The commit of a zombie", lambda: hanging.commits(planned, prepared), by=owner.fence)
        prepared.abandon()
        story.holds(planned, second)


def what_a_lost_driver_prepared_never_appears(harness: SinkHarness) -> None:
    """A preparation whose driver is gone stays invisible, before and after the sweep of the next driver."""
    with Story(harness) as story:
        lost = story.driver(1)
        first = lost.writes()
        lost.prepares(lost.plan(rows=50, salt=1))
        lost.sink.close()
        owner = story.driver(2)
        story.holds(first)
        owner.sink.sweep()
        story.holds(first)
        second = owner.writes()
        owner.sink.sweep()
        story.holds(first, second)


def a_zombie_cannot_sweep_its_successor_away(harness: SinkHarness) -> None:
    """A sweep by a driver that was fenced out leaves what its successor prepared."""
    with Story(harness) as story:
        zombie, owner = story.driver(1), story.driver(2)
        planned = owner.plan(rows=50)
        prepared = owner.prepares(planned, duplicate_attempts=True)
        with suppress(Superseded, OutcomeUnknown):
            zombie.sink.sweep()
        receipt = owner.commits(planned, prepared)
        expect(receipt.rows == 50, f"Of 50 rows {receipt.rows} were committed after the sweep.")
        story.holds(planned)


CLAIMS = (
    *claims_of(
        a_zombie_fenced_before_it_prepares_writes_nothing,
        a_zombie_fenced_between_prepare_and_commit_writes_nothing,
        a_zombie_does_not_repeat_what_its_successor_wrote,
        a_zombie_with_a_marker_alone_writes_nothing,
        a_stale_generation_with_a_fresh_handle_writes_nothing,
        a_rival_of_the_same_generation_writes_nothing,
        a_lower_generation_is_refused_after_maintenance,
        a_driver_that_hangs_with_a_preparation_holds_nobody_up,
        transaction=FENCES_NOBODY,
    ),
    *claims_of(what_a_lost_driver_prepared_never_appears, a_zombie_cannot_sweep_its_successor_away),
)
