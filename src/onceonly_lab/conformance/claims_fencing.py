"""Claims: fences, zombies, and reads without side effects.

They cover who may install a fence, and the data that it leaves unchanged.
"""

from __future__ import annotations

import time
from contextlib import suppress

from onceonly.faults import Point
from onceonly.protocol import DetectsChanges, OutcomeUnknown, Peek, Superseded
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.conformance.harness import FENCES_NOBODY, NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import Scenario, expect, is_default, refused, superseded, unknown

# ---- Claims about fences: who may install one, and what it leaves standing.

_SHOWN_S = 20.0


def a_fresh_target_has_no_fence_and_no_marker(harness: SinkHarness) -> None:
    """A fresh target has no fence, no marker and no rows, and opening it installs none."""
    with Scenario(harness) as story:
        reader = story.reader()
        expect(reader.fence() is None, f"A fresh target has the fence {reader.fence()}.")
        expect(not list(reader.history()), "A fresh target has a history.")
        expect(not harness.rows(), "A fresh target has rows.")
        position = story.driver().position()
        expect(position.marker is None, f"Under the first fence stands the marker {position.marker}.")
        expect(position.epoch == 0, f"Under the first fence stands epoch {position.epoch}.")
        expect(not position.has_rows, "A fresh target is said to have rows.")


def installing_raises_the_fence(harness: SinkHarness) -> None:
    """A fence with a higher generation is installed, skipping any, and every handle sees it."""
    with Scenario(harness) as story:
        reader = story.reader()
        for generation in (1, 2, 7):
            driver = story.driver(generation)
            expect(driver.sink.fence() == driver.fence, f"After {driver.fence} its handle finds {driver.sink.fence()}.")
            expect(reader.fence() == driver.fence, f"After {driver.fence} another handle finds {reader.fence()}.")
            fence = driver.position().fence
            expect(fence == driver.fence, f"After {driver.fence} the position is under {fence}.")


def a_lower_generation_is_refused(harness: SinkHarness) -> None:
    """A fence with a lower generation is refused, naming the one that stands."""
    with Scenario(harness) as story:
        owner = story.driver(5)
        late = story.stranger(4, "late")
        superseded("Generation 4 after 5", lambda: late.sink.install(late.fence), by=owner.fence)
        expect(owner.position().fence == owner.fence, "The higher fence no longer stands.")


def an_equal_generation_of_another_owner_is_refused(harness: SinkHarness) -> None:
    """A fence with the same generation and another owner is refused, naming the one that stands."""
    with Scenario(harness) as story:
        owner = story.driver(5)
        rival = story.stranger(5, "rival")
        superseded("The same generation of another owner", lambda: rival.sink.install(rival.fence), by=owner.fence)
        expect(owner.position().fence == owner.fence, "The first fence no longer stands.")


def reinstalling_our_own_fence_succeeds(harness: SinkHarness) -> None:
    """Installing the fence that stands already succeeds, from the same handle and from another, and changes nothing."""
    with Scenario(harness) as story:
        driver = story.driver()
        first = driver.writes()
        driver.fences()
        second_driver = story.stranger(driver.fence.generation, driver.fence.owner)
        marker = second_driver.fences().marker
        expect(marker == driver.marker(first.epoch), f"After it the newest marker is {marker}.")
        story.holds(first)


def a_fence_leaves_the_newest_marker_standing(harness: SinkHarness) -> None:
    """After a new fence the newest marker is still readable, as it was written."""
    with Scenario(harness) as story:
        driver = story.driver(1)
        driver.writes()
        written = driver.marker(driver.writes().epoch)
        for generation in (2, 3):
            marker = story.driver(generation).position().marker
            expect(marker == written, f"Under generation {generation} the newest marker is {marker}, not {written}.")


def a_lost_answer_to_an_install_is_found_by_installing_again(harness: SinkHarness) -> None:
    """An install whose answer was lost is unknown; installing the same fence again finds it."""
    with Scenario(harness) as story:
        driver = story.stranger(3, "unlucky")
        unknown(Point.INSTALL_SENT, lambda: driver.sink.install(driver.fence))
        expect(_comes_to_stand(story, driver.fence), "The fence whose answer was lost does not stand.")
        expect(driver.fences().fence == driver.fence, "Installed again, the fence does not stand.")
        late = story.stranger(2, "late")
        superseded("A lower generation", lambda: late.sink.install(late.fence), by=driver.fence)
        story.holds(driver.writes())


def _comes_to_stand(story: Scenario, fence: Fence) -> bool:
    """Whether readers find a fence in the end: an install that was decided may show a moment after its answer."""
    until = time.monotonic() + _SHOWN_S
    while story.reader().fence() != fence:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def position_is_refused_to_a_superseded_driver(harness: SinkHarness) -> None:
    """A driver that was fenced out cannot read its position any more."""
    with Scenario(harness) as story:
        zombie, owner = story.driver(1), story.driver(2)
        superseded("The position of a zombie", zombie.position, by=owner.fence)


def a_handle_can_be_opened_again(harness: SinkHarness) -> None:
    """After an answer that could not be resolved the same handle opens again under a higher fence of its own."""
    with Scenario(harness) as story:
        driver = story.driver(1)
        first = driver.writes()
        driver.prepares(driver.plan()).abandon()
        driver.opens_again(Fence(2, "owner-2"))
        position = driver.position()
        expect(position.fence == driver.fence, f"Opened again under {driver.fence}, it stands under {position.fence}.")
        story.holds(first, driver.writes())


def another_pipeline_sees_nothing_of_ours(harness: SinkHarness) -> None:
    """Another pipeline on the same target finds rows, but no fence and no marker, and neither fences the other."""
    with Scenario(harness) as story:
        ours = story.driver(4)
        first = ours.writes()
        other = story.stranger(1, "other", pipeline="conformance-other")
        expect(other.sink.fence() is None, f"It finds our fence {other.sink.fence()}.")
        position = other.fences()
        expect(position.marker is None, f"It finds our marker {position.marker}.")
        expect(position.has_rows, "It does not find that there are rows.")
        expect(not list(other.sink.history()), "It finds our history.")
        try:
            second = ours.writes()
        except Superseded as error:
            expect(False, f"It fenced us: {error}.")
            return
        story.holds(first, second)


def closing_may_repeat_and_the_fence_stays(harness: SinkHarness) -> None:
    """A handle may be closed twice and before it was opened; the fence it installed stays."""
    with Scenario(harness) as story:
        harness.connect().close()
        driver = story.driver()
        driver.sink.close()
        driver.sink.close()
        fence = story.reader().fence()
        expect(fence == Fence(driver.fence.generation, driver.fence.owner), f"After closing stands {fence}.")


OPENING_CLAIMS = claims_of(
    a_fresh_target_has_no_fence_and_no_marker,
    installing_raises_the_fence,
    a_lower_generation_is_refused,
    an_equal_generation_of_another_owner_is_refused,
    reinstalling_our_own_fence_succeeds,
    a_fence_leaves_the_newest_marker_standing,
    a_lost_answer_to_an_install_is_found_by_installing_again,
    position_is_refused_to_a_superseded_driver,
    a_handle_can_be_opened_again,
    another_pipeline_sees_nothing_of_ours,
    closing_may_repeat_and_the_fence_stays,
)


# ---- Claims about a look: what it shows, and that nobody notices it.


def a_look_shows_the_newest_marker(harness: SinkHarness) -> None:
    """A look shows the newest marker to whoever asks, to another pipeline rows without one, and the same target."""
    with Scenario(harness) as story:
        reader = story.reader()
        own = not is_default(reader, "look")
        expect(reader.look() == Peek(None, 0), f"On a fresh target a look shows {reader.look()}.")
        driver = story.driver(1)
        driver.writes()
        newest = driver.marker(driver.writes().epoch)
        shown = reader.look()
        expect(shown == Peek(newest, newest.epoch.number), f"After two epochs a look shows {shown}.")
        *_, (_, receipt) = reader.history()
        identity = reader.identity_now(receipt.identity) if isinstance(reader, DetectsChanges) else None
        if identity is not None:
            expect(
                identity == receipt.identity,
                f"A look tells that the target is {identity}, its receipt {receipt.identity}.",
            )
        shown = story.driver(2).sink.look()
        expect(shown.marker == newest, f"Under the next fence a look shows {shown.marker}, not {newest}.")
        other = story.stranger(1, "other", pipeline="conformance-other").sink.look()
        expect(other == Peek(None, 0, strangers=own), f"Another pipeline, where there are rows, is shown {other}.")
    if not own:
        raise NotTested("A look of the sink shows the newest marker, and no rows of a stranger: it has no look().")


def a_look_changes_nothing(harness: SinkHarness) -> None:
    """A look while a driver is writing shows the epoch before, leaves its fence, and its epoch is committed."""
    with Scenario(harness) as story:
        driver = story.driver()
        first = driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        shown = story.stranger(driver.fence.generation + 1, "other").sink.look()
        expect(shown.epoch == first.epoch.number, f"While epoch 2 is being written a look shows epoch {shown.epoch}.")
        fence = story.reader().fence()
        expect(fence == driver.fence, f"After a look the fence is {fence}, not {driver.fence}.")
        driver.commits(planned, prepared)
        story.holds(first, planned)


LOOKING_CLAIMS = claims_of(a_look_shows_the_newest_marker, a_look_changes_nothing)


# ---- Claims about zombies: drivers that were fenced out and do not know it yet.


def a_zombie_fenced_before_it_prepares_writes_nothing(harness: SinkHarness) -> None:
    """A driver fenced out before its action is refused by then or at the commit, and writes nothing."""
    with Scenario(harness) as story:
        zombie = story.driver(1)
        first, planned = zombie.writes(), zombie.plan()
        owner = story.driver(2)
        superseded("The epoch of a zombie", lambda: zombie.tries(planned), by=owner.fence)
        story.holds(first)
        story.holds(first, owner.writes())


def a_zombie_fenced_between_prepare_and_commit_writes_nothing(harness: SinkHarness) -> None:
    """A driver fenced out after its last check is refused at the commit, and writes nothing."""
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        zombie = story.driver(1)
        planned = zombie.plan(rows=0)
        owner = story.driver(2)
        superseded("The marker of a zombie", lambda: zombie.commits(planned, None), by=owner.fence)
        story.holds()
        story.holds(owner.writes())


def a_stale_generation_with_a_fresh_handle_writes_nothing(harness: SinkHarness) -> None:
    """A handle made after the newest fence does not make an old generation new: neither install nor commit is taken."""
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        owner = story.driver(1)
        first = owner.writes()
        rival = story.stranger(1, "rival")
        planned = owner.plan()
        refused("An epoch of the rival", lambda: rival.tries(planned), Exception)
        story.holds(first)
        story.holds(first, owner.writes())


def a_lower_generation_is_refused_after_maintenance(harness: SinkHarness) -> None:
    """Cleaning the target's history up does not make an old generation new."""
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        lost = story.driver(1)
        first = lost.writes()
        left = lost.prepares(lost.plan(rows=50, salt=1))
        lost.sink.close()
        owner = story.driver(2)
        story.holds(first)
        owner.sink.sweep()
        story.holds(first)
        second = owner.writes()
        owner.sink.sweep()
        story.holds(first, second)
        left.abandon()


def a_zombie_cannot_sweep_its_successor_away(harness: SinkHarness) -> None:
    """A sweep by a driver that was fenced out leaves what its successor prepared."""
    with Scenario(harness) as story:
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
