"""Claims: full refreshes replace all rows in one transaction, or nothing.

Rows of older epochs leave in the transaction that brings the new ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from onceonly.errors import OnceOnlyError
from onceonly.protocol import ReplacesRows, Sink, Superseded
from onceonly.protocol.capabilities import Span
from onceonly_checkpoints.chain import linked
from onceonly_checkpoints.epoch import Epoch
from onceonly_lab.conformance.claims_kills import BEYOND, Life, usual_seconds, within_budget
from onceonly_lab.conformance.harness import SHOWS_PARTS, NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import PIPELINE, Driver, PlannedEpoch, Scenario, expect, plan, refused, replayed


def an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own(harness: SinkHarness) -> None:
    """An epoch that replaces all before it takes their rows away and brings its own; the next epoch adds to these."""
    with Scenario(harness) as story:
        driver = _refreshed(story)
        driver.writes()
        driver.writes()
        planned = _replacing(driver)
        driver.tries(planned)
        story.has_rows_of(planned)
        following = driver.writes()
        story.has_rows_of(planned, following)
        second_replacement = _replacing(driver)
        driver.tries(second_replacement)
        story.has_rows_of(second_replacement)


def an_empty_epoch_replaces_too(harness: SinkHarness) -> None:
    """An epoch without rows takes the old rows away all the same."""
    with Scenario(harness) as story:
        driver = _refreshed(story)
        driver.writes()
        driver.tries(_replacing(driver, rows=0))
        story.has_rows_of()
        story.has_rows_of(driver.writes())


def nothing_leaves_before_an_epoch_that_replaces_is_committed(harness: SinkHarness) -> None:
    """While an epoch that replaces others is only prepared their rows stand, and after it was abandoned."""
    with Scenario(harness) as story:
        driver = _refreshed(story)
        old = [driver.writes(), driver.writes()]
        prepared = driver.prepares(_replacing(driver))
        story.holds(*old)
        prepared.abandon()
        story.holds(*old, driver.writes())


def a_marker_that_replaces_is_obeyed_however_its_rows_were_prepared(harness: SinkHarness) -> None:
    """Rows leave because the marker says so: also where its rows were prepared as those of any other epoch."""
    with Scenario(harness) as story:
        driver = _refreshed(story)
        driver.writes()
        planned = _replacing(driver)
        prepared = driver.sink.prepare(harness.batch(planned.table), planned.epoch.number)
        driver.commits(planned, prepared)
        story.has_rows_of(planned)


def markers_of_replaced_epochs_stand(harness: SinkHarness) -> None:
    """Markers of replaced epochs stand, that of the new one says what it replaced, and no old row is counted."""
    with Scenario(harness) as story:
        driver = _refreshed(story)
        old = [driver.writes(), driver.writes()]
        planned = _replacing(driver)
        driver.tries(planned)
        successor = story.driver()
        newest, written = successor.position().marker, driver.marker(planned.epoch)
        expect(newest == written, f"The next driver finds the marker {newest}, not {written}.")
        following = successor.writes()
        epochs = [marker.epoch for marker, _ in story.reader().history()]
        expected = [planned_epoch.epoch for planned_epoch in (*old, planned, following)]
        expect(epochs == expected, f"History lists {_series(epochs)}; expected {_series(expected)}.")
        counted: Mapping[int, int] | None = story.reader().recount()
        if counted is not None:
            rows = {number: count for number, count in counted.items() if count}
            expect(rows == {3: 3, 4: 3}, f"Recounted {rows}; epochs 3 and 4 have 3 rows each, others none.")


def rows_that_stand_are_not_replaced_again(harness: SinkHarness) -> None:
    """Neither a replay of an epoch that replaced others, nor a new fence, takes rows away again."""
    with Scenario(harness) as story:
        driver = _refreshed(story)
        driver.writes()
        planned = _replacing(driver)
        driver.tries(planned)
        story.driver()
        story.has_rows_of(planned)
        owner = story.driver()
        replayed(owner, planned)
        story.has_rows_of(planned)
        following = owner.writes()
        replayed(owner, planned)
        story.has_rows_of(planned, following)


def a_zombie_replaces_nothing(harness: SinkHarness) -> None:
    """A driver that was fenced out takes no row away, and what its successor wrote stands."""
    with Scenario(harness) as story:
        zombie = _refreshed(story)
        old = zombie.writes()
        planned = _replacing(zombie)
        prepared = zombie.prepares(planned)
        owner = story.driver()
        refused("A replacement by a zombie", lambda: zombie.commits(planned, prepared), Superseded)
        prepared.abandon()
        story.holds(old)
        story.holds(old, owner.writes())


def rows_of_another_pipeline_stay_or_the_replacement_is_refused(harness: SinkHarness) -> str:
    """Rows that another pipeline wrote to the target stand after a replacement, or it is refused and all rows stand."""
    with Scenario(harness) as story:
        driver = _refreshed(story)
        other = story.stranger(1, "other", pipeline=f"{PIPELINE}-other")
        other.fences()
        theirs = plan(None, other.sink.id, salt=1)
        other.tries(theirs)
        return _beside(story, driver, theirs)


def rows_of_a_stranger_stay_or_the_replacement_is_refused(harness: SinkHarness) -> str:
    """Rows that somebody added without any sink stand after a replacement, or it is refused and all rows stand."""
    with Scenario(harness) as story:
        driver = _refreshed(story)
        driver.writes(rows=0)
        theirs = plan(None, driver.sink.id, salt=1)
        harness.intrude(theirs.table)
        return _beside(story, driver, theirs)


def _beside(story: Scenario, driver: Driver, theirs: PlannedEpoch) -> str:
    """Replace an epoch beside rows of others; return what became of it."""
    old = driver.writes()
    planned = _replacing(driver)
    if reason := _able(driver.sink).cannot_replace((1, old.epoch.number)):
        refused(f"A replacement although {reason}", lambda: driver.tries(planned), OnceOnlyError)
        story.has_rows_of(old, theirs)
        return f"refused: {reason}"
    driver.tries(planned)
    story.has_rows_of(theirs, planned)
    return "rows of others stand"


CLAIMS = claims_of(
    an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own,
    an_empty_epoch_replaces_too,
    nothing_leaves_before_an_epoch_that_replaces_is_committed,
    a_marker_that_replaces_is_obeyed_however_its_rows_were_prepared,
    markers_of_replaced_epochs_stand,
    rows_that_stand_are_not_replaced_again,
    a_zombie_replaces_nothing,
    rows_of_another_pipeline_stay_or_the_replacement_is_refused,
    rows_of_a_stranger_stay_or_the_replacement_is_refused,
    of=ReplacesRows,
)


def a_driver_killed_while_it_replaces_leaves_all_old_rows_or_all_new_ones(harness: SinkHarness) -> str:
    """A driver that is killed at any moment while it replaces leaves all old rows, or all new ones and their marker."""
    with Scenario(harness) as story:
        _refreshed(story)
        life = _Refreshing(story)
        usual = usual_seconds(life.commits, harness.moments)
        tried = within_budget(harness.moments, lambda part: life.dies(part * usual * BEYOND))
        life.goes_on()
    return f"killed at {tried} moments of a replacement of {usual * 1000:.1f} ms"


def a_driver_killed_between_two_statements_of_a_replacement_leaves_all_old_rows_or_all_new_ones(
    harness: SinkHarness,
) -> str:
    """A driver that is killed before any statement of a replacement leaves all old rows, or all new ones."""
    with harness.wire() as wire, Scenario(harness) as story:
        _refreshed(story)
        life = _Refreshing(story, wire.connect)
        life.commits()
        number = life.dies_before_each(wire.hold)
        life.goes_on()
    return f"killed before each of {number} statements"


KILLING_CLAIMS = claims_of(
    a_driver_killed_while_it_replaces_leaves_all_old_rows_or_all_new_ones,
    a_driver_killed_between_two_statements_of_a_replacement_leaves_all_old_rows_or_all_new_ones,
    transaction=SHOWS_PARTS,
    of=ReplacesRows,
)


class _Refreshing(Life):
    """Drivers each of which replaces all that the one before it left."""

    def planned(self) -> PlannedEpoch:
        """The next epoch, in place of all before; the first has none before."""
        following = super().planned()
        return _in_place_of_all(following) if self.last else following

    def look(self, planned: PlannedEpoch, when: str) -> None:
        """Fence, and see that the rows are those of the newest marker's epoch, and no others."""
        marker_state = (
            f"the marker of epoch {planned.epoch.number} {'stands' if self.landed(planned) else 'does not stand'}"
        )
        actual = Counter(row["id"] for row in self.story.harness.rows())
        expected = Counter(self.last.ids if self.last else [])
        surplus, missing = (actual - expected).total(), (expected - actual).total()
        expect(actual == expected, f"{when}, {marker_state}; {surplus} rows are too many and {missing} are missing.")


def _refreshed(story: Scenario) -> Driver:
    """A driver that fenced the target and can replace there."""
    driver = story.driver()
    if reason := _able(driver.sink).cannot_replace((1, 1)):
        raise NotTested(f"The sink says what keeps it from replacing rows: {reason}.")
    return driver


def _able(sink: Sink) -> ReplacesRows:
    assert isinstance(sink, ReplacesRows)
    return sink


def _replacing(driver: Driver, rows: int = 3) -> PlannedEpoch:
    return _in_place_of_all(driver.plan(rows))


def _in_place_of_all(planned: PlannedEpoch) -> PlannedEpoch:
    number = planned.epoch.number
    span: Span = (1, number - 1)
    return replace(planned, epoch=linked(replace(planned.epoch, series=number, replaces=span)))


def _series(epochs: list[Epoch]) -> str:
    return ", ".join(f"{epoch.number} (series {epoch.series}, replaces {epoch.replaces})" for epoch in epochs)
