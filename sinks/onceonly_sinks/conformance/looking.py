"""Claims about a look: what it shows, and that nobody notices it."""

from __future__ import annotations

from onceonly.protocol import Identified, Sight
from onceonly_sinks.conformance.harness import SinkHarness, claims_of
from onceonly_sinks.conformance.story import Story, expect


def a_look_shows_the_newest_marker(harness: SinkHarness) -> None:
    """A look shows the newest marker to whoever asks, to another pipeline rows without one, and the same target."""
    with Story(harness) as story:
        reader = story.reader()
        expect(reader.look() == Sight(None, 0), f"On a fresh target a look shows {reader.look()}.")
        driver = story.driver(1)
        driver.writes()
        newest = driver.marker(driver.writes().epoch)
        shown = reader.look()
        expect(shown == Sight(newest, newest.epoch.number), f"After two epochs a look shows {shown}.")
        if isinstance(reader, Identified):
            *_, (_, receipt) = reader.history()
            told = reader.identity_beside(receipt.identity)
            expect(told == receipt.identity, f"A look tells that the target is {told}, its receipt {receipt.identity}.")
        shown = story.driver(2).sink.look()
        expect(shown.marker == newest, f"Under the next fence a look shows {shown.marker}, not {newest}.")
        other = story.stranger(1, "other", pipeline="conformance-other").sink.look()
        expect(other == Sight(None, 0, strangers=True), f"Another pipeline, where there are rows, is shown {other}.")


def a_look_changes_nothing(harness: SinkHarness) -> None:
    """A look while a driver is writing shows the epoch before, leaves its fence, and its epoch is committed."""
    with Story(harness) as story:
        driver = story.driver()
        first = driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        shown = story.stranger(driver.fence.generation + 1, "other").sink.look()
        expect(shown.epoch == first.epoch.number, f"While epoch 2 is being written a look shows epoch {shown.epoch}.")
        stands = story.reader().fence()
        expect(stands == driver.fence, f"After a look the fence is {stands}, not {driver.fence}.")
        driver.commits(planned, prepared)
        story.holds(first, planned)


CLAIMS = claims_of(a_look_shows_the_newest_marker, a_look_changes_nothing)
