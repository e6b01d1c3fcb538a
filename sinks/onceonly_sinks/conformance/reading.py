"""Claims about the reading half, and about what maintenance and sweeping leave."""

from __future__ import annotations

from collections.abc import Mapping

from onceonly.protocol import Witness
from onceonly_checkpoints.chain import first_break
from onceonly_sinks.conformance.harness import SinkHarness, claims_of
from onceonly_sinks.conformance.story import PIPELINE, Plan, Story, expect, replayed


def history_lists_each_epoch_once_in_order(harness: SinkHarness) -> None:
    """History lists each epoch once, oldest first, with an unbroken chain, however many fences lie between."""
    with Story(harness) as story:
        written: list[Plan] = []
        for epochs in (1, 2, 0, 0, 1):
            driver = story.driver()
            written += [driver.writes() for _ in range(epochs)]
        story.driver()
        story.holds(*written)
        broken = first_break([marker.epoch for marker, _ in story.reader().history()])
        expect(broken is None, f"The chain is broken at entry {broken} of the history.")
        after = [marker.epoch.number for marker, _ in story.reader().history(2)]
        expect(after == [3, 4], f"After epoch 2 history lists {after}; expected [3, 4].")


def history_names_the_fence_that_wrote(harness: SinkHarness) -> None:
    """Each marker in history names the fence under which it was written, not the one that stands now."""
    with Story(harness) as story:
        first = story.driver(1)
        first.writes()
        second = story.driver(4)
        second.writes()
        story.driver(5)
        found = [marker.fence for marker, _ in story.reader().history()]
        expect(found == [first.fence, second.fence], f"History names {found}.")


def recount_equals_the_committed_rows(harness: SinkHarness) -> None:
    """Recounting gives the rows of each committed epoch and nothing else, or says that it cannot tell."""
    with Story(harness) as story:
        driver = story.driver()
        sizes = (3, 0, 7, 1)
        for rows in sizes:
            driver.writes(rows)
        driver.prepares(driver.plan(rows=4)).abandon()
        story.driver()
        reader = story.reader()
        counted = _without_empty(reader.recount())
        wanted = {number: rows for number, rows in enumerate(sizes, start=1) if rows}
        if reader.capabilities.recountable:
            expect(counted == wanted, f"Recounted {counted}; committed were {wanted}.")
        else:
            expect(counted is None, f"The sink declares that it cannot recount, and recounts {counted}.")


def _without_empty(counted: Mapping[int, int] | None) -> dict[int, int] | None:
    return None if counted is None else {number: rows for number, rows in counted.items() if rows}


def a_position_names_identity_and_rows(harness: SinkHarness) -> None:
    """The position says whether there are rows, and what the target is, the same for every driver."""
    with Story(harness) as story:
        driver = story.driver()
        driver.writes(rows=0)
        expect(not driver.position().has_rows, "After an empty epoch rows are said to be there.")
        receipt = driver.tries(driver.plan())
        position = driver.position()
        expect(position.has_rows, "After an epoch of 3 rows none are said to be there.")
        expect(position.epoch == 2, f"After two epochs the sink stands at {position.epoch}.")
        expect(position.identity, "The target has no identity.")
        expect(
            receipt.identity == position.identity, f"Receipt of {receipt.identity}, position of {position.identity}."
        )
        harness.maintain()
        identity = story.driver().position().identity
        expect(identity == position.identity, f"For the next driver the target is {identity}, not {position.identity}.")


def our_own_doings_are_no_disturbance(harness: SinkHarness) -> None:
    """Fences, epochs and maintenance are not reported as somebody else's doing, since a receipt or without one."""
    with Story(harness) as story:
        driver = story.driver()
        receipt = driver.tries(driver.plan())
        driver.writes()
        harness.maintain()
        later = story.driver()
        for since in (receipt, None):
            fatal = [found for found in later.sink.position(since).disturbances if found.fatal]
            expect(not fatal, f"Since {since} these are reported: {fatal}.")
        reader = story.reader()
        told = reader.disturbances(receipt) if isinstance(reader, Witness) else ()
        expect(not [found for found in told if found.fatal], f"To a handle without a fence these are reported: {told}.")


def the_reading_half_needs_no_fence(harness: SinkHarness) -> None:
    """A handle that never fenced reads fence, history and recount, also while a driver is writing."""
    with Story(harness) as story:
        reader = story.reader()
        expect(reader.fence() is None, f"On a fresh target it finds the fence {reader.fence()}.")
        expect(not list(reader.history()), "On a fresh target it finds a history.")
        reader.recount()
        driver = story.driver()
        first = driver.writes()
        prepared = driver.prepares(driver.plan())
        found = [marker.epoch for marker, _ in reader.history()]
        expect(found == [first.epoch], f"History lists {len(found)} epochs; one was committed.")
        expect(reader.fence() == driver.fence, f"It finds the fence {reader.fence()}.")
        reader.recount()
        prepared.abandon()


def the_address_finds_the_target_again(harness: SinkHarness) -> None:
    """The sink's address leads another handle to the same history under the same id."""
    with Story(harness) as story:
        driver = story.driver()
        first = driver.writes()
        found = type(driver.sink).from_address(driver.sink.address)
        try:
            found.open(PIPELINE)
            expect(found.id == driver.sink.id, f"At {driver.sink.address} the sink is called {found.id}.")
            history = [marker.epoch for marker, _ in found.history()]
            expect(history == [first.epoch], f"At {driver.sink.address} history lists {len(history)} epochs of 1.")
        finally:
            found.close()


def the_marker_survives_maintenance(harness: SinkHarness) -> None:
    """After maintenance rows, fence and newest marker stand, a replay writes nothing, and the next epoch follows."""
    with Story(harness) as story:
        driver = story.driver()
        written = [driver.writes() for _ in range(4)]
        harness.maintain()
        newest = story.reader().fence()
        expect(newest == driver.fence, f"After maintenance stands {newest}.")
        owner = story.driver()
        position = owner.position()
        expect(position.epoch == 4, f"After maintenance the sink stands at epoch {position.epoch}.")
        marker = position.marker
        expect(marker == driver.marker(written[-1].epoch), f"After maintenance the newest marker is {marker}.")
        replayed(owner, written[-1])
        story.has_rows_of(*written)
        story.has_rows_of(*written, owner.writes())


def sweeping_leaves_what_was_committed(harness: SinkHarness) -> None:
    """A sweep, which may repeat, leaves rows, markers and history as they are."""
    with Story(harness) as story:
        story.driver().sink.sweep()
        driver = story.driver()
        written = [driver.writes(rows=20), driver.writes()]
        driver.sink.sweep()
        story.holds(*written)
        owner = story.driver()
        owner.sink.sweep()
        owner.sink.sweep()
        story.holds(*written, owner.writes())


CLAIMS = claims_of(
    history_lists_each_epoch_once_in_order,
    history_names_the_fence_that_wrote,
    recount_equals_the_committed_rows,
    a_position_names_identity_and_rows,
    our_own_doings_are_no_disturbance,
    the_reading_half_needs_no_fence,
    the_address_finds_the_target_again,
    the_marker_survives_maintenance,
    sweeping_leaves_what_was_committed,
)
