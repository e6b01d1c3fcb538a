"""Claims: one driver's epochs, and reading them back.

Rows and marker come in one step, in order, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from onceonly.protocol import DetectsChanges
from onceonly_checkpoints.chain import first_break, linked
from onceonly_checkpoints.epoch import Marker, ResumePoint
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceIdentity, SourceOffsets
from onceonly_lab.conformance.harness import NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import (
    PIPELINE,
    Driver,
    PlannedEpoch,
    Scenario,
    expect,
    is_default,
    plan,
    refused,
    refused_as,
    replayed,
)

# ---- One driver's epochs.

_AWKWARD = "naïve \"quoted\" 'single' back\\slash tab\t line\nbreak $1 {x} %s 日本 🧾 end "


def nothing_is_visible_before_the_commit(harness: SinkHarness) -> None:
    """What was prepared is not visible; after the commit rows and marker both are."""
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        story.holds()
        expect(prepared.rows == 3, f"Of 3 rows {prepared.rows} were counted.")
        driver.commits(planned, prepared)
        story.holds(planned)


def an_abandoned_preparation_leaves_nothing(harness: SinkHarness) -> None:
    """After abandon, which may repeat, nothing is visible, and the same epoch can be prepared again and committed."""
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        driver = story.driver()
        first = driver.writes()
        planned = driver.plan()
        refused("A batch that breaks off", lambda: driver.prepares(planned, breaks_off=True), Exception)
        story.holds(first)
        driver.tries(planned)
        story.holds(first, planned)


def an_empty_epoch_leaves_a_marker(harness: SinkHarness) -> None:
    """An epoch without rows is an epoch: it leaves a marker, and the next one follows it."""
    with Scenario(harness) as story:
        driver = story.driver()
        epochs = [driver.writes(rows) for rows in (0, 3, 0, 0, 2)]
        story.holds(*epochs)
        newest_epoch = driver.position().epoch
        expect(newest_epoch == 5, f"After five epochs the sink stands at {newest_epoch}.")


def a_marker_alone_can_be_committed(harness: SinkHarness) -> None:
    """A commit without a preparation writes the marker alone, as the first epoch and later."""
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        driver = story.driver()
        planned = _awkward(driver.plan())
        driver.tries(planned)
        written = driver.marker(planned.epoch)
        read = [story.driver().position().marker, *(marker for marker, _ in story.reader().history())]
        for marker in read:
            text = marker.text if marker else None
            expect(text == written.text, f"Written {written.text!r}, read {text!r}.")
            expect(marker == written, "The texts are equal, the markers are not.")


def _awkward(planned: PlannedEpoch) -> PlannedEpoch:
    end = SourceOffsets.of({"0": json.dumps({_AWKWARD: 2**63}), "1": _AWKWARD, "2": None})
    slice_ = Slice(planned.epoch.written.start, end)
    sources = (SourceIdentity("0", _AWKWARD), SourceIdentity("1", None, "0" * 16))
    adoption = Adoption(AdoptionKind.ACCEPT_LOSS, sinks=(_AWKWARD,), offsets=slice_, reason=_AWKWARD)
    carried = ResumePoint(planned.epoch.lineage, (adoption,), slice_)
    epoch = replace(planned.epoch, written=slice_, sources=sources, adoption=adoption, offered=slice_, carried=carried)
    return replace(planned, epoch=linked(epoch))


def duplicate_attempts_are_counted_once(harness: SinkHarness) -> None:
    """When every task ran twice, each row is there once, and counted once."""
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=50)
        prepared = driver.prepares(planned, duplicate_attempts=True)
        expect(prepared.rows == 50, f"Of 50 rows {prepared.rows} were counted.")
        receipt = driver.commits(planned, prepared)
        expect(receipt.rows == 50, f"Of 50 rows the receipt counts {receipt.rows}.")
        story.holds(planned)


def a_receipt_says_what_was_committed(harness: SinkHarness) -> None:
    """The receipt names sink, epoch, chain, rows and identity, and history repeats it."""
    with Scenario(harness) as story:
        driver = story.driver()
        for rows in (3, 0, 5):
            planned = driver.plan(rows)
            receipt = driver.tries(planned)
            receipt_facts = (receipt.sink, receipt.epoch, receipt.chain, receipt.rows, receipt.identity)
            epoch = planned.epoch
            true = (driver.sink.id, epoch.number, epoch.chain, rows, driver.position().identity)
            expect(receipt_facts == true, f"The receipt says {receipt_facts}; what was committed is {true}.")
            repeated = [repeated for _, repeated in story.reader().history(epoch.number - 1)]
            expect(repeated == [receipt], f"The receipt was {receipt}; history says {repeated}.")


def a_replayed_epoch_writes_nothing(harness: SinkHarness) -> None:
    """Committing the marker that already stands writes nothing; it is refused, or answered with the same receipt."""
    with Scenario(harness) as story:
        driver = story.driver()
        first = driver.plan()
        receipt = driver.tries(first)
        answer = replayed(driver, first)
        expect(answer in (None, receipt), f"The replay was answered with {answer}, not with {receipt}.")
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


def _of_another_history(first: PlannedEpoch, driver: Driver) -> PlannedEpoch:
    other = driver.plan(salt=1, after=first.epoch)
    return driver.plan(salt=2, after=other.epoch)


def a_gap_is_refused(harness: SinkHarness) -> None:
    """An epoch that leaves one out is refused."""
    _refuses_after_two(harness, "Epoch 4 after 2", "E207", lambda first, driver: driver.plan(after=driver.plan().epoch))


def _refuses_after_two(
    harness: SinkHarness, what: str, code: str, wrong: Callable[[PlannedEpoch, Driver], PlannedEpoch]
) -> None:
    """Write two epochs, have a wrong one refused by its code, and see that the handle can go on."""
    with Scenario(harness) as story:
        driver = story.driver()
        first, second = driver.writes(), driver.writes()
        planned = wrong(first, driver)
        refused_as(code, what, lambda: driver.tries(planned))
        story.holds(first, second)
        story.holds(first, second, driver.writes())


def a_first_epoch_with_another_number_is_refused(harness: SinkHarness) -> None:
    """On a target without a marker, only the sink's first epoch is taken."""
    with Scenario(harness) as story:
        driver = story.driver()
        second = driver.plan(after=driver.plan().epoch)
        refused_as("E207", "Epoch 2 on a fresh target", lambda: driver.tries(second))
        story.holds()
        story.holds(driver.writes())


def a_sink_can_join_a_running_pipeline(harness: SinkHarness) -> None:
    """A sink whose first epoch, by its marker, is a later one takes that epoch first."""
    with Scenario(harness) as story:
        driver = story.driver()
        before = plan(None, driver.sink.id, first=6)
        joined = plan(before.epoch, driver.sink.id, first=7)
        driver.tries(joined)
        story.holds(joined, driver.writes())
        marker: Marker | None = driver.position().marker
        expect(marker and marker.epoch.number == 8, f"After epochs 7 and 8 the newest marker is {marker}.")


def a_sink_can_join_again_above_what_it_holds(harness: SinkHarness) -> None:
    """A sink that was out of the pipeline for a while takes, as its first epoch, any number above those it holds."""
    with Scenario(harness) as story:
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


# ---- Claims about the reading half, and about what maintenance and sweeping leave.


def history_lists_each_epoch_once_in_order(harness: SinkHarness) -> None:
    """History lists each epoch once, oldest first, with an unbroken chain, however many fences lie between."""
    with Scenario(harness) as story:
        written: list[PlannedEpoch] = []
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
    with Scenario(harness) as story:
        first = story.driver(1)
        first.writes()
        second = story.driver(4)
        second.writes()
        story.driver(5)
        fences = [marker.fence for marker, _ in story.reader().history()]
        expect(fences == [first.fence, second.fence], f"History names {fences}.")


def recount_equals_the_committed_rows(harness: SinkHarness) -> None:
    """Recounting gives the rows of each committed epoch and nothing else, or says that it cannot tell."""
    with Scenario(harness) as story:
        driver = story.driver()
        sizes = (3, 0, 7, 1)
        for rows in sizes:
            driver.writes(rows)
        driver.prepares(driver.plan(rows=4)).abandon()
        story.driver()
        reader = story.reader()
        counted = _without_empty(reader.recount())
        expected = {number: rows for number, rows in enumerate(sizes, start=1) if rows}
        if reader.capabilities.recountable:
            expect(counted == expected, f"Recounted {counted}; committed were {expected}.")
        else:
            expect(counted is None, f"The sink declares that it cannot recount, and recounts {counted}.")


def _without_empty(counted: Mapping[int, int] | None) -> dict[int, int] | None:
    return None if counted is None else {number: rows for number, rows in counted.items() if rows}


def a_position_names_identity_and_rows(harness: SinkHarness) -> None:
    """The position says whether there are rows, and what the target is, the same for every driver."""
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        driver = story.driver()
        receipt = driver.tries(driver.plan())
        driver.writes()
        harness.maintain()
        later = story.driver()
        for since in (receipt, None):
            fatal = [change for change in later.sink.position(since).disturbances if change.fatal]
            expect(not fatal, f"Since {since} these are reported: {fatal}.")
        reader = story.reader()
        changes = reader.external_changes(receipt) if isinstance(reader, DetectsChanges) else ()
        expect(
            not [change for change in changes if change.fatal],
            f"To a handle without a fence these are reported: {changes}.",
        )


def the_reading_half_needs_no_fence(harness: SinkHarness) -> None:
    """A handle that never fenced reads fence, history and recount, also while a driver is writing."""
    with Scenario(harness) as story:
        reader = story.reader()
        expect(reader.fence() is None, f"On a fresh target it finds the fence {reader.fence()}.")
        expect(not list(reader.history()), "On a fresh target it finds a history.")
        reader.recount()
        driver = story.driver()
        first = driver.writes()
        prepared = driver.prepares(driver.plan())
        epochs = [marker.epoch for marker, _ in reader.history()]
        expect(epochs == [first.epoch], f"History lists {len(epochs)} epochs; one was committed.")
        expect(reader.fence() == driver.fence, f"It finds the fence {reader.fence()}.")
        reader.recount()
        prepared.abandon()


def the_address_finds_the_target_again(harness: SinkHarness) -> None:
    """The sink's address leads another handle to the same history under the same id."""
    with Scenario(harness) as story:
        driver = story.driver()
        if is_default(driver.sink, "from_address"):
            raise NotTested("No address leads to the target: the sink has no from_address().")
        first = driver.writes()
        sink = type(driver.sink).from_address(driver.sink.address)
        try:
            sink.open(PIPELINE)
            expect(sink.id == driver.sink.id, f"At {driver.sink.address} the sink is called {sink.id}.")
            history = [marker.epoch for marker, _ in sink.history()]
            expect(history == [first.epoch], f"At {driver.sink.address} history lists {len(history)} epochs of 1.")
        finally:
            sink.close()


def the_marker_survives_maintenance(harness: SinkHarness) -> None:
    """After maintenance rows, fence and newest marker stand, a replay writes nothing, and the next epoch follows."""
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        story.driver().sink.sweep()
        driver = story.driver()
        written = [driver.writes(rows=20), driver.writes()]
        driver.sink.sweep()
        story.holds(*written)
        owner = story.driver()
        owner.sink.sweep()
        owner.sink.sweep()
        story.holds(*written, owner.writes())


READING_CLAIMS = claims_of(
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
