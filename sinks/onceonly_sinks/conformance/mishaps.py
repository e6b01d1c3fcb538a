"""Claims about what destinations do to a driver: they refuse, are locked, are replaced, deadlock, answer late."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from onceonly.errors import DestinationError, OnceOnlyError
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly_checkpoints.epoch import Marker
from onceonly_sinks.conformance.child import Child, Order
from onceonly_sinks.conformance.harness import LANDS_LATE, SHOWS_PARTS, NotTested, SinkHarness, claims_of, told
from onceonly_sinks.conformance.story import PIPELINE, Driver, Plan, Story, expect, plan, refused
from onceonly_sinks.conformance.typetable import KINDS, Answer, Case, Cell, Kind, alike, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

_LOCKED_S = 3.0
_PATIENCE_S = 60.0


def a_row_that_the_destination_refuses_is_refused_with_a_code(harness: SinkHarness) -> None:
    """An epoch with a row that the destination refuses leaves nothing, has a code, and is never called unknown."""
    with Story(harness) as story:
        driver = story.driver()
        first = driver.writes()
        note = harness.forbid()
        planned = driver.plan(rows=6)
        poisoned = Plan(planned.epoch, _with_note(planned.table, 3, note))
        refused("A row that the destination refuses", lambda: driver.tries(poisoned), DestinationError)
        story.holds(first)
        story.holds(first, driver.writes())


def _with_note(table: pa.Table, row: int, note: str) -> pa.Table:
    import pyarrow as pa

    notes = table.column("note").to_pylist()
    notes[row] = note
    return table.set_column(table.schema.get_field_index("note"), "note", pa.array(notes, pa.string()))


def a_target_that_is_replaced_after_prepare_takes_nothing_in_silence(harness: SinkHarness) -> str:
    """An epoch prepared for a target that was replaced since is refused: what was lost with the old one is told."""
    with Story(harness) as story:
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
    with Story(harness) as story:
        driver = story.driver()
        first, planned = driver.writes(), driver.plan()
        with ThreadPoolExecutor(1) as pool:
            with harness.locked():
                writing = pool.submit(_tries, driver, planned)
                waited = not _ended(writing.done, _LOCKED_S)
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


def _tries(driver: Driver, planned: Plan) -> Exception | None:
    try:
        driver.tries(planned)
    except Exception as error:  # noqa: BLE001  judged by the claim
        return error
    return None


def _ended(done: object, seconds: float) -> bool:
    waiting = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if callable(done) and done():
            return True
        waiting.wait(0.05)
    return False


def a_failure_that_passes_is_no_end(harness: SinkHarness) -> str:
    """After a commit that failed in passing nothing is there, its outcome is known, and the same epoch lands again."""
    with Story(harness) as story:
        driver = story.driver()
        first, planned = driver.writes(), driver.plan()
        with harness.deadlocked():
            error = _tries(driver, planned)
        expect(not isinstance(error, OutcomeUnknown), "A refusal that was answered is called unknown.")
        if error is not None:
            story.holds(first)
            driver.tries(planned)
        story.holds(first, planned)
    return "tried again by the sink" if error is None else f"refused as {type(error).__name__}"


def two_pipelines_beside_each_other_keep_their_own_epochs(harness: SinkHarness) -> None:
    """Two pipelines that write to one target in turns each have their own epochs, and all rows are there once."""
    with Story(harness) as story:
        ours, theirs = story.driver(), story.stranger(1, "other", pipeline=f"{PIPELINE}-other")
        theirs.fences()
        written: dict[Driver, list[Plan]] = {ours: [], theirs: []}
        for number in range(3):
            for salt, driver in enumerate((ours, theirs)):
                last = written[driver][-1].epoch if number else None
                planned = plan(last, driver.sink.id, salt=salt)
                driver.tries(planned)
                written[driver].append(planned)
        story.has_rows_of(*written[ours], *written[theirs])
        for driver, plans in written.items():
            found = [marker.epoch for marker, _ in driver.sink.history()]
            expect(
                found == [one.epoch for one in plans], f"A pipeline that wrote 3 epochs has {len(found)} in history."
            )


def looking_up_waits_for_a_commit_that_is_late(harness: SinkHarness) -> str:
    """What looking up said stays true when a commit that was still on its way arrives, from a driver that has died."""
    with harness.wire() as wire, Story(harness) as story:
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
    """Every value of the type table comes back as the sink says, or is refused with a code and leaves nothing."""
    expect(not harness.values(), "A fresh target has values.")
    tried = 0
    for kind in KINDS:
        for case in kind.all_cases:
            fresh = harness.another()
            try:
                _comes_back(fresh, kind, case)
            finally:
                fresh.close()
            tried += 1
    return f"{tried} values of {len(KINDS)} types"


def _comes_back(harness: SinkHarness, kind: Kind, case: Case) -> None:
    import pyarrow as pa

    what, said = f"{kind.spark}, {case.name}", harness.cell(kind, case)
    with Story(harness) as story:
        driver = story.driver()
        one = driver.plan(rows=1)
        planned = Plan(one.epoch, pa.table({"value": pa.array([case.value], arrow_type(kind))}))
        error = _tries(driver, planned)
        if error is None:
            _is_said(what, harness.values(), kind, case, said)
            return
        expect(isinstance(error, OnceOnlyError), f"{what} was answered with {told(error)}.")
        expected = said.code if said else getattr(error, "code", "")
        expect(getattr(error, "code", "") == expected, f"{what} was refused with {told(error)}, not with {expected}.")
        expect(said is None or said.answer is Answer.REFUSED, f"{what} was refused: {told(error)}.")
        expect(not list(story.reader().history()), f"{what} was refused, and a marker stands.")


def _is_said(what: str, values: list[object], kind: Kind, case: Case, said: Cell | None) -> None:
    expect(len(values) == 1, f"{what}: of one row {len(values)} are there.")
    expect(said is None or said.answer is not Answer.REFUSED, f"{what} was not refused.")
    wanted = said.becomes if said and said.becomes is not ... else case.value
    expect(alike(wanted, values[0], kind), f"{what}: {wanted!r} was read back as {values[0]!r}.")


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
