"""Charts show what the facts say at the place where a reader looks for it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.audit.pages import damaged, story

from onceonly import page
from onceonly.audit import Facts, judge
from onceonly.audit.page import charts, outcomes
from onceonly.audit.page.outcomes import Grid, grid_of
from onceonly_checkpoints.ledger import Event, EventKind


def grid(facts: Facts) -> Grid:
    return grid_of(facts, judge(facts))


def bands(facts: Facts) -> list[tuple[int, int]]:
    assert facts.ledger is not None
    shades, edges, *_ = charts.ribbon(grid(facts), facts.ledger.events)["layer"]
    shown = sorted((one["from"], one["to"]) for one in (*shades["data"]["values"], *edges["data"]["values"]))
    return list(dict.fromkeys(shown))


def opened(generation: int, at_ms: int) -> Event:
    return Event("orders", EventKind.OPENED, "the sinks stand", 0, generation, at_ms)


def with_events(facts: Facts, *events: Event) -> Facts:
    assert facts.ledger is not None
    return replace(facts, ledger=replace(facts.ledger, events=events))


def test_over_the_column_of_an_epoch_stand_the_rows_up_to_it() -> None:
    laid = grid(damaged())
    steps = charts.conservation(laid)["vconcat"][0]
    drawn = {one["from"]: one["rows"] for one in steps["data"]["values"]}
    total = 0
    for column in laid.columns:
        total += column.rows
        assert drawn[column.first - 0.5] == total
    assert drawn[laid.columns[-1].last + 0.5] == total
    assert steps["mark"]["interpolate"] == "step-after"


def test_the_first_driver_lives_from_the_left_edge_on_and_each_until_the_next() -> None:
    facts = story(40)
    columns = grid(facts).columns
    begin, end = columns[0].began_ms, max(column.ended_ms for column in columns)
    told = with_events(facts, opened(1, begin + 900), opened(2, begin + 20_000))
    assert bands(told) == [(begin, begin + 20_000), (begin + 20_000, end)]


def test_a_driver_that_was_gone_before_the_picture_begins_is_not_shown() -> None:
    facts = story(40)
    columns = grid(facts).columns
    begin, end = columns[0].began_ms, max(column.ended_ms for column in columns)
    told = with_events(facts, opened(1, begin - 90_000), opened(2, begin - 5), opened(3, begin + 7))
    assert bands(told) == [(begin, begin + 7), (begin + 7, end)]


def test_without_openings_there_are_no_bands() -> None:
    assert len(charts.ribbon(grid(story(5)), ())["layer"]) == 1


def ticks(svg: str) -> list[str]:
    """Numbers on a chart whose only numbers are those of its epochs, as they are drawn."""
    return re.findall(r">([\d,]+)</text>", svg)


@pytest.mark.parametrize(("epochs", "drawn"), [(1, ["1"]), (2, ["1", "2"]), (48, [str(at) for at in range(5, 49, 5)])])
def test_each_epoch_on_an_axis_is_named_once(epochs: int, drawn: list[str]) -> None:
    facts = story(epochs)
    laid = grid(facts)
    assert ticks(str(page.svg(charts.matrix(laid), "matrix"))) == drawn
    for steps in outcomes.offset_charts([line.epoch for line in judge(facts).epochs]):
        numbers = charts.offset_chart(steps)["layer"][0]["encoding"]["x"]["axis"]["values"]
        assert len(set(numbers)) == len(numbers) <= 5
        assert {*numbers} <= {epoch for epoch, _ in steps.points}
