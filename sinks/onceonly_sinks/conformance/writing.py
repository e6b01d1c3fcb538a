"""Claims about one driver's epochs: rows and marker in one step, in order, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from onceonly_checkpoints.adoption import Adoption
from onceonly_checkpoints.chain import linked
from onceonly_checkpoints.epoch import Marker, Standing
from onceonly_checkpoints.slices import Slice, SourceIdentity, SourceOffsets
from onceonly_sinks.conformance.harness import SinkHarness, claims_of
from onceonly_sinks.conformance.story import Driver, Plan, Story, expect, plan, refused, refused_as, replayed

_AWKWARD = "naïve \"quoted\" 'single' back\\slash tab\t line\nbreak $1 {x} %s 日本 🧾 end "


def nothing_is_visible_before_the_commit(harness: SinkHarness) -> None:
    """What was prepared is not visible; after the commit rows and marker both are."""
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        story.holds()
        expect(prepared.rows == 3, f"Of 3 rows {prepared.rows} were counted.")
        driver.commits(planned, prepared)
        story.holds(planned)


def an_abandoned_preparation_leaves_nothing(harness: SinkHarness) -> None:
    """After abandon, which may repeat, nothing is visible, and the same epoch can be prepared again and committed."""
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.plan()
        for _ in range(2):
            prepared = driver.prepares(planned)
            prepared.abandon()
            prepared.abandon()
        story.holds()
        driver.tries(planned)
        story.holds(planned)


def a_batch_that_breaks_off_leaves_nothing(harness: SinkHarness) -> None:
    """An action that fails halfway leaves nothing, and the same handle can prepare the epoch again and commit it."""
    with Story(harness) as story:
        driver = story.driver()
        first = driver.writes()
        planned = driver.plan()
        refused("A batch that breaks off", lambda: driver.prepares(planned, breaks_off=True), Exception)
        story.holds(first)
        driver.tries(planned)
        story.holds(first, planned)


def an_empty_epoch_leaves_a_marker(harness: SinkHarness) -> None:
    """An epoch without rows is an epoch: it leaves a marker, and the next one follows it."""
    with Story(harness) as story:
        driver = story.driver()
        epochs = [driver.writes(rows) for rows in (0, 3, 0, 0, 2)]
        story.holds(*epochs)
        found = driver.position().epoch
        expect(found == 5, f"After five epochs the sink stands at {found}.")


def a_marker_alone_can_be_committed(harness: SinkHarness) -> None:
    """A commit without a preparation writes the marker alone, as the first epoch and later."""
    with Story(harness) as story:
        driver = story.driver()
        adopted = driver.plan(rows=0)
        receipt = driver.commits(adopted, None)
        expect(receipt.rows == 0, f"The receipt of a marker alone counts {receipt.rows} rows.")
        second = driver.writes()
        third = driver.plan(rows=0)
        driver.commits(third, None)
        story.holds(adopted, second, third)


def a_marker_comes_back_exactly(harness: SinkHarness) -> None:
    """A marker is read back exactly as it was written, whatever characters it holds."""
    with Story(harness) as story:
        driver = story.driver()
        planned = _awkward(driver.plan())
        driver.tries(planned)
        written = driver.marker(planned.epoch)
        read = [story.driver().position().marker, *(marker for marker, _ in story.reader().history())]
        for marker in read:
            text = marker.text if marker else None
            expect(text == written.text, f"Written {written.text!r}, read {text!r}.")
            expect(marker == written, "The texts are equal, the markers are not.")


def _awkward(planned: Plan) -> Plan:
    end = SourceOffsets.of({"0": json.dumps({_AWKWARD: 2**63}), "1": _AWKWARD, "2": None})
    slice_ = Slice(planned.epoch.slice.start, end)
    sources = (SourceIdentity("0", _AWKWARD), SourceIdentity("1", None, "0" * 16))
    said = Adoption(_AWKWARD, sinks=(_AWKWARD,), offsets=slice_, reason=_AWKWARD)
    carried = Standing(planned.epoch.lineage, (said,), slice_)
    epoch = replace(planned.epoch, slice=slice_, sources=sources, adoption=said, offered=slice_, carried=carried)
    return replace(planned, epoch=linked(epoch))


def duplicate_attempts_are_counted_once(harness: SinkHarness) -> None:
    """When every task ran twice, each row is there once, and counted once."""
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=50)
        prepared = driver.prepares(planned, duplicate_attempts=True)
        expect(prepared.rows == 50, f"Of 50 rows {prepared.rows} were counted.")
        receipt = driver.commits(planned, prepared)
        expect(receipt.rows == 50, f"Of 50 rows the receipt counts {receipt.rows}.")
        story.holds(planned)


def a_receipt_says_what_was_committed(harness: SinkHarness) -> None:
    """The receipt names sink, epoch, chain, rows and identity, and history repeats it."""
    with Story(harness) as story:
        driver = story.driver()
        for rows in (3, 0, 5):
            planned = driver.plan(rows)
            receipt = driver.tries(planned)
            said = (receipt.sink, receipt.epoch, receipt.chain, receipt.rows, receipt.identity)
            epoch = planned.epoch
            true = (driver.sink.id, epoch.number, epoch.chain, rows, driver.position().identity)
            expect(said == true, f"The receipt says {said}; what was committed is {true}.")
            repeated = [repeated for _, repeated in story.reader().history(epoch.number - 1)]
            expect(repeated == [receipt], f"The receipt was {receipt}; history says {repeated}.")


def a_replayed_epoch_writes_nothing(harness: SinkHarness) -> None:
    """Committing the marker that already stands writes nothing; it is refused, or answered with the same receipt."""
    with Story(harness) as story:
        driver = story.driver()
        first = driver.plan()
        receipt = driver.tries(first)
        again = replayed(driver, first)
        expect(again in (None, receipt), f"The replay was answered with {again}, not with {receipt}.")
        story.holds(first)
        story.holds(first, driver.writes())


def another_epoch_under_a_committed_number_is_refused(harness: SinkHarness) -> None:
    """An epoch with the number of the newest one and other content is refused: a number alone proves nothing."""
    _refuses_after_two(harness, "Another epoch 2", "E210", lambda first, driver: driver.plan(salt=1, after=first.epoch))


def an_older_epoch_is_refused(harness: SinkHarness) -> None:
    """An epoch with a lower number than the newest one is refused."""
    _refuses_after_two(harness, "Epoch 1 after 2", "E210", lambda first, driver: plan(None, driver.sink.id, salt=1))


def a_wrong_previous_chain_is_refused(harness: SinkHarness) -> None:
    """The next number with a previous chain that does not stand there is refused."""
    _refuses_after_two(harness, "A foreign history", "E210", _of_another_history)


def _of_another_history(first: Plan, driver: Driver) -> Plan:
    other = driver.plan(salt=1, after=first.epoch)
    return driver.plan(salt=2, after=other.epoch)


def a_gap_is_refused(harness: SinkHarness) -> None:
    """An epoch that leaves one out is refused."""
    _refuses_after_two(harness, "Epoch 4 after 2", "E207", lambda first, driver: driver.plan(after=driver.plan().epoch))


def _refuses_after_two(harness: SinkHarness, what: str, code: str, wrong: Callable[[Plan, Driver], Plan]) -> None:
    """Write two epochs, have a wrong one refused by its code, and see that the handle can go on."""
    with Story(harness) as story:
        driver = story.driver()
        first, second = driver.writes(), driver.writes()
        planned = wrong(first, driver)
        refused_as(code, what, lambda: driver.tries(planned))
        story.holds(first, second)
        story.holds(first, second, driver.writes())


def a_first_epoch_with_another_number_is_refused(harness: SinkHarness) -> None:
    """On a target without a marker, only the sink's first epoch is taken."""
    with Story(harness) as story:
        driver = story.driver()
        second = driver.plan(after=driver.plan().epoch)
        refused_as("E207", "Epoch 2 on a fresh target", lambda: driver.tries(second))
        story.holds()
        story.holds(driver.writes())


def a_sink_can_join_a_running_pipeline(harness: SinkHarness) -> None:
    """A sink whose first epoch, by its marker, is a later one takes that epoch first."""
    with Story(harness) as story:
        driver = story.driver()
        before = plan(None, driver.sink.id, first=6)
        joined = plan(before.epoch, driver.sink.id, first=7)
        driver.tries(joined)
        story.holds(joined, driver.writes())
        marker: Marker | None = driver.position().marker
        expect(marker and marker.epoch.number == 8, f"After epochs 7 and 8 the newest marker is {marker}.")


def a_sink_can_join_again_above_what_it_holds(harness: SinkHarness) -> None:
    """A sink that was out of the pipeline for a while takes, as its first epoch, any number above those it holds."""
    with Story(harness) as story:
        driver = story.driver()
        old = driver.writes()
        before = plan(None, driver.sink.id, first=6)
        joined = plan(before.epoch, driver.sink.id, first=7)
        driver.tries(joined)
        story.holds(old, joined, driver.writes())


CLAIMS = claims_of(
    nothing_is_visible_before_the_commit,
    an_abandoned_preparation_leaves_nothing,
    a_batch_that_breaks_off_leaves_nothing,
    an_empty_epoch_leaves_a_marker,
    a_marker_alone_can_be_committed,
    a_marker_comes_back_exactly,
    duplicate_attempts_are_counted_once,
    a_receipt_says_what_was_committed,
    a_replayed_epoch_writes_nothing,
    another_epoch_under_a_committed_number_is_refused,
    an_older_epoch_is_refused,
    a_wrong_previous_chain_is_refused,
    a_gap_is_refused,
    a_first_epoch_with_another_number_is_refused,
    a_sink_can_join_a_running_pipeline,
    a_sink_can_join_again_above_what_it_holds,
)
