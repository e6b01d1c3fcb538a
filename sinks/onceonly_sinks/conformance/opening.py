"""Claims about fences: who may install one, and what it leaves standing."""

from __future__ import annotations

from onceonly.faults import Point
from onceonly.protocol import Superseded
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.conformance.harness import SinkHarness, claims_of
from onceonly_sinks.conformance.story import Story, expect, superseded, unknown


def a_fresh_target_has_no_fence_and_no_marker(harness: SinkHarness) -> None:
    """A fresh target has no fence, no marker and no rows, and opening it installs none."""
    with Story(harness) as story:
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
    with Story(harness) as story:
        reader = story.reader()
        for generation in (1, 2, 7):
            driver = story.driver(generation)
            expect(driver.sink.fence() == driver.fence, f"After {driver.fence} its handle finds {driver.sink.fence()}.")
            expect(reader.fence() == driver.fence, f"After {driver.fence} another handle finds {reader.fence()}.")
            stands = driver.position().fence
            expect(stands == driver.fence, f"After {driver.fence} the position is under {stands}.")


def a_lower_generation_is_refused(harness: SinkHarness) -> None:
    """A fence with a lower generation is refused, naming the one that stands."""
    with Story(harness) as story:
        owner = story.driver(5)
        late = story.stranger(4, "late")
        superseded("Generation 4 after 5", lambda: late.sink.install(late.fence), by=owner.fence)
        expect(owner.position().fence == owner.fence, "The higher fence no longer stands.")


def an_equal_generation_of_another_owner_is_refused(harness: SinkHarness) -> None:
    """A fence with the same generation and another owner is refused, naming the one that stands."""
    with Story(harness) as story:
        owner = story.driver(5)
        rival = story.stranger(5, "rival")
        superseded("The same generation of another owner", lambda: rival.sink.install(rival.fence), by=owner.fence)
        expect(owner.position().fence == owner.fence, "The first fence no longer stands.")


def reinstalling_our_own_fence_succeeds(harness: SinkHarness) -> None:
    """Installing the fence that stands already succeeds, from the same handle and from another, and changes nothing."""
    with Story(harness) as story:
        driver = story.driver()
        first = driver.writes()
        driver.fences()
        again = story.stranger(driver.fence.generation, driver.fence.owner)
        marker = again.fences().marker
        expect(marker == driver.marker(first.epoch), f"After it the newest marker is {marker}.")
        story.holds(first)


def a_fence_leaves_the_newest_marker_standing(harness: SinkHarness) -> None:
    """After a new fence the newest marker is still readable, as it was written."""
    with Story(harness) as story:
        driver = story.driver(1)
        driver.writes()
        written = driver.marker(driver.writes().epoch)
        for generation in (2, 3):
            marker = story.driver(generation).position().marker
            expect(marker == written, f"Under generation {generation} the newest marker is {marker}, not {written}.")


def a_lost_answer_to_an_install_is_found_by_installing_again(harness: SinkHarness) -> None:
    """An install whose answer was lost is unknown; installing the same fence again finds it."""
    with Story(harness) as story:
        driver = story.stranger(3, "unlucky")
        unknown(Point.INSTALL_SENT, lambda: driver.sink.install(driver.fence))
        expect(story.reader().fence() == driver.fence, "The fence whose answer was lost does not stand.")
        expect(driver.fences().fence == driver.fence, "Installed again, the fence does not stand.")
        late = story.stranger(2, "late")
        superseded("A lower generation", lambda: late.sink.install(late.fence), by=driver.fence)
        story.holds(driver.writes())


def position_is_refused_to_a_superseded_driver(harness: SinkHarness) -> None:
    """A driver that was fenced out cannot read its position any more."""
    with Story(harness) as story:
        zombie, owner = story.driver(1), story.driver(2)
        superseded("The position of a zombie", zombie.position, by=owner.fence)


def a_handle_can_be_opened_again(harness: SinkHarness) -> None:
    """After an answer that could not be resolved the same handle opens again under a higher fence of its own."""
    with Story(harness) as story:
        driver = story.driver(1)
        first = driver.writes()
        driver.prepares(driver.plan()).abandon()
        driver.opens_again(Fence(2, "owner-2"))
        stands = driver.position()
        expect(stands.fence == driver.fence, f"Opened again under {driver.fence}, it stands under {stands.fence}.")
        story.holds(first, driver.writes())


def another_pipeline_sees_nothing_of_ours(harness: SinkHarness) -> None:
    """Another pipeline on the same target finds rows, but no fence and no marker, and neither fences the other."""
    with Story(harness) as story:
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
    with Story(harness) as story:
        harness.connect().close()
        driver = story.driver()
        driver.sink.close()
        driver.sink.close()
        stands = story.reader().fence()
        expect(stands == Fence(driver.fence.generation, driver.fence.owner), f"After closing stands {stands}.")


CLAIMS = claims_of(
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
