"""Claims: targets that were reset under our markers.

The sink reports the epoch of the rows, and can be set to it.
"""

from __future__ import annotations

from onceonly.errors import OnceOnlyError
from onceonly.protocol import ReplacesRows, Superseded
from onceonly.protocol.capabilities import implements
from onceonly_lab.conformance.harness import NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario, expect, refused


def a_target_that_was_set_back_stands_at_the_epoch_of_its_rows_and_gets_the_later_ones(harness: SinkHarness) -> None:
    """A target that was set back is put at the epoch of its rows, and takes and tells each later one again."""
    with Scenario(harness) as story:
        written, at = _set_back(story)
        driver, sink = _newcomer(story)
        content = sink.content_epoch()
        expect(content == at, f"It says that it holds the rows of epoch {content}; they are those of epoch {at}.")
        sink.reset_to(driver.fence, at)
        position = driver.position()
        expected = driver.marker(written[at - 1].epoch).epoch if at else None
        marker_epoch = position.marker.epoch if position.marker else None
        expect(position.fence == driver.fence, f"The fence {position.fence} stands, not {driver.fence}.")
        expect(
            position.epoch == at and marker_epoch == expected,
            f"It stands at epoch {position.epoch}, not at epoch {at}.",
        )
        fatal = [disturbance.detail for disturbance in position.disturbances if disturbance.fatal]
        expect(not fatal, f"What set it back is told once more: {', '.join(fatal)}.")
        story.holds(*written[:at])
        later_content = sink.content_epoch()
        expect(later_content == at, f"Put at epoch {at} it says that it holds the rows of epoch {later_content}.")
        for planned in written[at:]:
            driver.tries(planned)
        story.holds(*written, driver.writes())


def a_sink_stands_at_no_epoch_but_that_of_its_rows(harness: SinkHarness) -> None:
    """What is put at an epoch whose rows it does not hold refuses that, and nothing has happened."""
    with Scenario(harness) as story:
        written, at = _set_back(story)
        driver, sink = _newcomer(story)
        before = driver.sink.fence()
        for epoch in {0, 1, 2, 3} - {at, len(written)}:
            refused(f"To stand at epoch {epoch}", lambda epoch=epoch: sink.reset_to(driver.fence, epoch), OnceOnlyError)  # type: ignore[misc]
        after = driver.sink.fence()
        expect(after == before, f"It was refused, and the fence {after} stands in the place of {before}.")


def a_sink_stands_elsewhere_under_a_greater_fence_alone(harness: SinkHarness) -> None:
    """Under an older fence a sink is not put at another epoch; once it was, no older driver commits to it."""
    with Scenario(harness) as story:
        zombie = story.driver()
        _able(zombie)
        written, at = _set_back(story)
        older = zombie.sink
        assert isinstance(older, ReplacesRows)
        refused("To stand at an epoch under an older fence", lambda: older.reset_to(zombie.fence, at), Superseded)
        late = story.driver()
        planned = late.plan(after=written[-1].epoch)
        driver, sink = _newcomer(story)
        sink.reset_to(driver.fence, at)
        sink.reset_to(driver.fence, at)  # as after an answer that was lost
        refused("An epoch of a driver from before", lambda: late.tries(planned), Superseded)
        story.holds(*written[:at])


def _set_back(story: Scenario) -> tuple[list[PlannedEpoch], int]:
    """Three epochs of a driver; then the target is set back. The epochs, and the number of the one whose rows stand."""
    driver = story.driver()
    _able(driver)
    written = [driver.writes() for _ in range(3)]
    driver.sink.close()
    return written, story.harness.set_back(1)


def _newcomer(story: Scenario) -> tuple[Driver, ReplacesRows]:
    driver = story.newcomer()
    return driver, _able(driver)


def _able(driver: Driver) -> ReplacesRows:
    if not isinstance(driver.sink, ReplacesRows) or not implements(driver.sink, ReplacesRows, "reset_to"):
        raise NotTested("The sink is put at no epoch but that of its newest marker: it has no reset_to().")
    return driver.sink


CLAIMS = claims_of(
    a_target_that_was_set_back_stands_at_the_epoch_of_its_rows_and_gets_the_later_ones,
    a_sink_stands_at_no_epoch_but_that_of_its_rows,
    a_sink_stands_elsewhere_under_a_greater_fence_alone,
    of=ReplacesRows,
)
