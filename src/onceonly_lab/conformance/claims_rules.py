"""Claims: row rules withhold the rows that the destination refuses, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from onceonly.errors import DestinationError
from onceonly.protocol import HasConstraints, Sink
from onceonly.protocol.row_rules import Condition, Rule
from onceonly_lab.conformance.harness import ConformanceFailure, NotTested, SinkHarness, claims_of, told
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario, expect, plan, refused

if TYPE_CHECKING:
    import pyarrow as pa


def rows_that_the_destination_takes_break_no_rule(harness: SinkHarness) -> str:
    """Rows that the destination takes break no rule of the sink, and each rule fits a column of theirs."""
    most = 0
    with Scenario(harness) as story:
        for driver, rows in _epochs(story):
            rules = [rule for rule in rules_of(driver.sink, rows) if isinstance(rule, Rule)]
            most = max(most, len(rules))
            for rule in rules:
                broken = breaking(rule, rows)
                expect(not broken, f'The destination takes {broken[:1]}, and the rule "{rule.says}" withholds it.')
    return f"rules: {most}"


def rows_that_the_destination_takes_meet_every_condition(harness: SinkHarness) -> str:
    """Rows that the destination takes meet every condition of the sink, in Spark SQL."""
    evaluated, left = set[Condition](), set[Condition]()
    with Scenario(harness) as story:
        for driver, rows in _epochs(story):
            for condition, met in _evaluate(harness, driver.sink, rows):
                (left if met is None else evaluated).add(condition)
                expect(met is None or all(met), f"The {condition.says} withholds a row that the destination takes.")
    if not evaluated:
        raise NotTested("No condition can be evaluated on these rows." if left else "The sink has no condition.")
    return f"conditions: {len(evaluated)}" + (f", not evaluated: {len(left)}" if left else "")


def a_row_that_the_destination_refuses_breaks_a_rule(harness: SinkHarness) -> str:
    """A row that the destination refuses breaks a rule of the sink, so that a quarantine keeps it."""
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        note = harness.forbid_by_rule()
        planned = driver.plan(rows=1).with_note(0, note)
        rows = _table(harness, planned)
        rules = rules_of(driver.sink, rows)
        broken = [rule.says for rule in rules if isinstance(rule, Rule) and breaking(rule, rows)]
        if not broken:
            answers = _evaluate(harness, driver.sink, rows)
            broken = [condition.says for condition, met in answers if met == [False]]
            if not broken and any(met is None for _, met in answers):
                raise NotTested("No rule withholds the refused row, and a condition cannot be evaluated.")
        refused("A row that the destination refuses", lambda: driver.tries(planned), DestinationError)
        expect(broken, f"The destination refuses a row that breaks none of the {len(rules)} rules of the sink.")
    return f"withheld by {', '.join(broken)}"


CLAIMS = claims_of(
    rows_that_the_destination_takes_break_no_rule,
    rows_that_the_destination_takes_meet_every_condition,
    a_row_that_the_destination_refuses_breaks_a_rule,
    of=HasConstraints,
)


def rules_of(sink: Sink, rows: pa.Table) -> Sequence[Rule | Condition]:
    """Return the sink's rules for these rows. Each must be a rule, and on one of their columns."""
    rules = tuple(sink.row_rules(rows.schema)) if isinstance(sink, HasConstraints) else ()
    names = ", ".join(rows.column_names)
    for rule in rules:
        known = isinstance(rule, Rule | Condition)  # pyright: ignore[reportUnnecessaryIsInstance]
        expect(known, f"row_rules() returns {rule!r}, which is neither a Rule nor a Condition.")
        there = isinstance(rule, Condition) or rule.column in rows.column_names
        expect(there, f'The rule "{rule.says}" is on a column that the rows do not have. They have {names}.')
    return rules


def breaking(rule: Rule, rows: pa.Table) -> list[object]:
    """Return the values that break a rule."""
    values = rows.column(rule.column)
    try:
        return [value for value in values.to_pylist() if not rule.met(value)]
    except Exception as error:
        raise ConformanceFailure(f'The rule "{rule.says}" does not fit values of type {values.type}.') from error


def _epochs(story: Scenario) -> Iterator[tuple[Driver, pa.Table]]:
    """Yield rows that the target then takes: before the first fence, later, and once it refuses others."""
    driver = story.newcomer()
    planned = plan(None, driver.sink.id)
    steps: list[Callable[[], object]] = [driver.fences, lambda: None]
    for step in steps:
        yield driver, _table(story.harness, planned)
        step()
        driver.tries(planned)
        planned = driver.plan()
    with suppress(NotTested):
        story.harness.forbid_by_rule()
    yield driver, _table(story.harness, planned)
    driver.tries(planned)


def _table(harness: SinkHarness, planned: PlannedEpoch) -> pa.Table:
    """Rows as the sink gets them."""
    import pyarrow as pa

    batch = harness.batch(planned.table)
    return pa.Table.from_batches(list(batch.arrow()), batch.schema)


def _evaluate(harness: SinkHarness, sink: Sink, rows: pa.Table) -> Sequence[tuple[Condition, list[bool] | None]]:
    conditions = [rule for rule in rules_of(sink, rows) if isinstance(rule, Condition)]
    try:
        return [*zip(conditions, harness.evaluate(conditions, rows) if conditions else (), strict=True)]
    except NotTested:
        raise
    except Exception as error:
        names = ", ".join(condition.name for condition in conditions)
        raise ConformanceFailure(f"Of the conditions {names} one cannot be evaluated: {told(error)}.") from error
