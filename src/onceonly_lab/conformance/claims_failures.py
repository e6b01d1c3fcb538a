"""Claims: destinations that refuse, lock, answer late or never."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from onceonly.errors import DestinationError, OnceOnlyError
from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown, Sink, Superseded
from onceonly.protocol.row_rules import Condition
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_lab.conformance.child_process import Child, Order
from onceonly_lab.conformance.claims_rules import breaking, rules_of
from onceonly_lab.conformance.harness import LANDS_LATE, SHOWS_PARTS, NotTested, SinkHarness, claims_of, told
from onceonly_lab.conformance.scenario import PIPELINE, Driver, PlannedEpoch, Scenario, expect, plan, refused, unknown
from onceonly_lab.conformance.type_table import KINDS, Case, Cell, Kind, TypeResult, alike, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa


# ---- Claims about commits whose answer never came.


def a_commit_whose_answer_was_lost_is_unknown_and_there_once(harness: SinkHarness) -> None:
    """A commit whose answer was lost is called unknown and is not sent again by the sink: its rows are there once."""
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, prepared))
        story.holds(planned)


def looking_up_finds_a_commit_whose_answer_was_lost(harness: SinkHarness) -> None:
    """Looking up a commit that landed returns its receipt, again and again, and the next epoch follows it."""
    with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=0)
        unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, None))
        receipt = driver.looks_up(planned)
        expect(receipt and receipt.chain == planned.epoch.chain, f"Looked up {receipt}.")


def looking_up_what_was_never_sent_finds_nothing(harness: SinkHarness) -> None:
    """Looking up an epoch that was not committed returns None, and it can be committed then."""
    with Scenario(harness) as story:
        driver = story.driver()
        written: list[PlannedEpoch] = []
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
    with Scenario(harness) as story:
        driver = story.driver()
        first = driver.writes()
        second = driver.writes()
        other = driver.plan(salt=1, after=first.epoch)
        receipt = _found(driver, other)
        expect(receipt is None, f"Epoch 2 with another chain was taken for ours: {receipt}.")
        story.holds(first, second)


def looking_up_does_not_take_anothers_epoch_for_ours(harness: SinkHarness) -> None:
    """The same epoch written by our successor under its own fence is not ours."""
    with Scenario(harness) as story:
        zombie = story.driver(1)
        planned = zombie.plan()
        zombie.prepares(planned).abandon()
        story.driver(2).tries(planned)
        receipt = _found(zombie, planned)
        expect(receipt is None, f"The successor's epoch was taken for ours: {receipt}.")
        story.holds(planned)


def the_next_driver_finds_a_commit_whose_answer_was_lost(harness: SinkHarness) -> None:
    """A commit whose driver died before the answer is in the position of the next driver, who goes on after it."""
    with Scenario(harness) as story:
        lost = story.driver(1)
        planned = lost.plan()
        _loses_the_answer(lost, planned)
        owner = story.driver(2)
        marker = owner.position().marker
        expect(marker == lost.marker(planned.epoch), f"The next driver finds {marker}.")
        story.holds(planned, owner.writes())


def _loses_the_answer(driver: Driver, planned: PlannedEpoch) -> None:
    prepared = driver.prepares(planned)
    unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, prepared))


def _found(driver: Driver, planned: PlannedEpoch) -> Receipt | None:
    """What looking up finds; that it cannot be said, or that somebody else stands there, is not finding it."""
    try:
        return driver.looks_up(planned)
    except (Superseded, OutcomeUnknown):
        return None


UNKNOWN_CLAIMS = claims_of(
    a_commit_whose_answer_was_lost_is_unknown_and_there_once,
    looking_up_finds_a_commit_whose_answer_was_lost,
    looking_up_a_marker_alone_finds_it,
    looking_up_what_was_never_sent_finds_nothing,
    looking_up_is_not_content_with_the_number,
    looking_up_does_not_take_anothers_epoch_for_ours,
    the_next_driver_finds_a_commit_whose_answer_was_lost,
)


# ---- Claims about what destinations do to a driver: they refuse, are locked, are replaced, deadlock, answer late.

_LOCKED_S = 3.0
_PATIENCE_S = 60.0


def a_row_that_the_destination_refuses_is_refused_with_a_code(harness: SinkHarness) -> None:
    """An epoch with a row that the destination refuses leaves nothing, has a code, and is never called unknown."""
    with Scenario(harness) as story:
        driver = story.driver()
        first = driver.writes()
        note = harness.forbid()
        poisoned = driver.plan(rows=6).with_note(3, note)
        refused("A row that the destination refuses", lambda: driver.tries(poisoned), DestinationError)
        story.holds(first)
        story.holds(first, driver.writes())


def a_target_that_is_replaced_after_prepare_takes_nothing_in_silence(harness: SinkHarness) -> str:
    """An epoch prepared for a target that was replaced since is refused: what was lost with the old one is told."""
    with Scenario(harness) as story:
        driver = story.driver()
        first, planned = driver.writes(), driver.plan()
        prepared = driver.prepares(planned)
        with ThreadPoolExecutor(1) as pool:
            replaced = pool.submit(harness.replace).result(_PATIENCE_S)
        if not replaced:
            driver.commits(planned, prepared)
            story.holds(first, planned)
            return "the destination does not let a target be replaced that an epoch is prepared for"
        refused("An epoch for the old target", lambda: driver.commits(planned, prepared), OnceOnlyError, Superseded)
        prepared.abandon()
        expect(not harness.rows(), "The new target holds rows.")
    return "the target was replaced"


def a_locked_target_is_waited_for_or_refused_with_a_code(harness: SinkHarness) -> str:
    """An epoch for a target that others keep locked waits and lands, or is refused with a code and lands later."""
    with Scenario(harness) as story:
        driver = story.driver()
        first, planned = driver.writes(), driver.plan()
        with ThreadPoolExecutor(1) as pool:
            with harness.locked():
                writing = pool.submit(_tries, driver, planned)
                waited = not wait([writing], _LOCKED_S).done
            error = writing.result(_PATIENCE_S)
        if error is None:
            story.holds(first, planned)
        else:
            expect(isinstance(error, OnceOnlyError), f"A locked target was answered with {told(error)}.")
            story.holds(first)
            driver.tries(planned)
        story.holds(first, planned)
    if isinstance(error, OnceOnlyError):
        return f"refused with {error.code}"
    if not waited:
        raise NotTested("The lock kept nobody out: the epoch landed while the target was locked.")
    return "waited for"


def _tries(driver: Driver, planned: PlannedEpoch) -> Exception | None:
    try:
        driver.tries(planned)
    except Exception as error:  # noqa: BLE001  judged by the claim
        return error
    return None


def a_failure_that_passes_is_no_end(harness: SinkHarness) -> str:
    """After a commit that failed in passing nothing is there, its outcome is known, and the same epoch lands again."""
    with Scenario(harness) as story:
        driver = story.driver()
        first, planned = driver.writes(), driver.plan()
        with harness.deadlocked():
            error = _tries(driver, planned)
        expect(not isinstance(error, OutcomeUnknown), "A refusal that was answered is called unknown.")
        if error is not None:
            story.holds(first)
            driver.tries(planned)
        story.holds(first, planned)
    if error is None:
        raise NotTested("Nothing failed: the epoch landed although its commit was to fail in passing.")
    return f"refused as {type(error).__name__}"


def two_pipelines_beside_each_other_keep_their_own_epochs(harness: SinkHarness) -> None:
    """Two pipelines that write to one target in turns each have their own epochs, and all rows are there once."""
    with Scenario(harness) as story:
        ours, theirs = story.driver(), story.stranger(1, "other", pipeline=f"{PIPELINE}-other")
        theirs.fences()
        written: dict[Driver, list[PlannedEpoch]] = {ours: [], theirs: []}
        for number in range(3):
            for salt, driver in enumerate((ours, theirs)):
                last = written[driver][-1].epoch if number else None
                planned = plan(last, driver.sink.id, salt=salt)
                driver.tries(planned)
                written[driver].append(planned)
        story.has_rows_of(*written[ours], *written[theirs])
        for driver, plans in written.items():
            epochs = [marker.epoch for marker, _ in driver.sink.history()]
            expect(
                epochs == [planned_epoch.epoch for planned_epoch in plans],
                f"A pipeline that wrote 3 epochs has {len(epochs)} in history.",
            )


def looking_up_waits_for_a_commit_that_is_late(harness: SinkHarness) -> str:
    """What looking up said stays true when a commit that was still on its way arrives, from a driver that has died."""
    with harness.wire() as wire, Scenario(harness) as story:
        driver = story.driver()
        first, planned = driver.writes(), driver.plan()
        held = threading.Event()
        with Child(Order(harness, driver.fence, planned, wire.connect)) as child:
            release = wire.hold_commit(held.set)
            try:
                child.go()
                expect(held.wait(_PATIENCE_S), "The commit never passed the wire.")
                child.kill()
                answer = _looks_up(driver, driver.marker(planned.epoch))
            finally:
                release()
        # The next fence waits for whatever may still land.
        owner = story.driver()
        landed = owner.position().epoch == planned.epoch.number
        if answer == "nothing":
            expect(not landed, "Looking up found nothing, and then the commit landed.")
        story.has_rows_of(first, *([planned] if landed else []))
    return f"looking up found {answer}"


def _looks_up(driver: Driver, marker: Marker) -> str:
    try:
        return "nothing" if driver.sink.look_up(marker) is None else "the epoch"
    except OutcomeUnknown:
        return "that it cannot be said"


def every_type_comes_back_or_is_refused(harness: SinkHarness) -> str:
    """Every value of the type table comes back as the sink says, or is refused with a code and leaves nothing.

    What came back breaks no rule of a sink that says what its destination demands: else it would be kept from it.
    """
    expect(not harness.values(), "A fresh target has values.")
    came, refusals = 0, list[str]()
    for kind in KINDS:
        for case in kind.all_cases:
            fresh = harness.another()
            try:
                refusal = _refusal(fresh, kind, case)
            finally:
                fresh.close()
            came += not refusal
            refusals += [refusal] if refusal else []
    expect(came, f"Every value was refused; the first: {', '.join(refusals[:1])}.")
    return f"{came} values came back, {len(refusals)} were refused"


def _refusal(harness: SinkHarness, kind: Kind, case: Case) -> str:
    """How a value was refused, as it may be; empty: it came back as the sink says."""
    import pyarrow as pa

    what, cell = f"{kind.spark}, {case.name}", harness.cell(kind, case)
    with Scenario(harness) as story:
        driver = story.driver()
        template = driver.plan(rows=1)
        planned = PlannedEpoch(template.epoch, pa.table({"value": pa.array([case.value], arrow_type(kind))}))
        error = _tries(driver, planned)
        if error is None:
            _is_said(what, harness.values(), kind, case, cell)
            _is_as_demanded(what, driver.sink, planned.table)
            return ""
        expect(isinstance(error, OnceOnlyError), f"{what} was answered with {told(error)}.")
        expected = cell.code if cell else getattr(error, "code", "")
        expect(getattr(error, "code", "") == expected, f"{what} was refused with {told(error)}, not with {expected}.")
        expect(cell is None or cell.answer is TypeResult.REFUSED, f"{what} was refused: {told(error)}.")
        expect(not list(story.reader().history()), f"{what} was refused, and a marker stands.")
        expect(not harness.values(), f"{what} was refused, and rows stand.")
        return f"{what}, {told(error)}"


def _is_said(what: str, values: list[object], kind: Kind, case: Case, cell: Cell | None) -> None:
    expect(len(values) == 1, f"{what}: of one row {len(values)} are there.")
    expect(cell is None or cell.answer is not TypeResult.REFUSED, f"{what} was not refused.")
    expected = cell.becomes if cell and cell.becomes is not ... else case.value
    expect(alike(expected, values[0], kind), f"{what}: {expected!r} was read back as {values[0]!r}.")


def _is_as_demanded(what: str, sink: Sink, table: pa.Table) -> None:
    for rule in rules_of(sink, table):
        met = isinstance(rule, Condition) or not breaking(rule, table)
        expect(met, f"{what} is held, and the sink says that it cannot be: {rule.says}.")


CLAIMS = (
    *claims_of(a_row_that_the_destination_refuses_is_refused_with_a_code, transaction=SHOWS_PARTS),
    *claims_of(a_target_that_is_replaced_after_prepare_takes_nothing_in_silence),
    *claims_of(
        a_locked_target_is_waited_for_or_refused_with_a_code, a_failure_that_passes_is_no_end, transaction=SHOWS_PARTS
    ),
    *claims_of(two_pipelines_beside_each_other_keep_their_own_epochs),
    *claims_of(looking_up_waits_for_a_commit_that_is_late, transaction=LANDS_LATE),
    *claims_of(every_type_comes_back_or_is_refused),
)
