"""What a picture says of an epoch: never better than the findings, and nothing lost when epochs share a column."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.audit.histories import (
    SINK,
    entry,
    epochs,
    intent,
    ledger_of,
    relinked,
    sink_of,
    true_facts,
    with_history,
    with_ledger,
    with_rows,
    with_sink,
    without_ledger,
)
from tests.audit.pages import damaged, story

from onceonly.audit import Facts, Verdict, judge
from onceonly.audit.page.outcomes import Grid, Outcome, grid_of


def lane(facts: Facts, sink: str = SINK) -> list[Outcome]:
    grid = grid_of(facts, judge(facts))
    return [column.outcomes[grid.sinks.index(sink)] for column in grid.columns]


def test_epochs_that_agree_are_exactly_once() -> None:
    assert lane(true_facts()) == [Outcome.EXACT] * 4


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (with_rows(true_facts(), e3=6), [Outcome.EXACT, Outcome.EXACT, Outcome.GAP, Outcome.EXACT]),
        (with_rows(true_facts(), e4=24), [Outcome.EXACT] * 3 + [Outcome.DOUBLED]),
        (with_sink(true_facts(), rows=None), [Outcome.MARKED] * 4),
        (with_sink(true_facts(), unreadable="gone"), [Outcome.UNKNOWN] * 4),
        (with_history(true_facts(), epochs()[2:]), [Outcome.PROVEN] * 2 + [Outcome.EXACT] * 2),
        (without_ledger(with_history(true_facts(), epochs()[2:])), [Outcome.EXACT] * 2),
        (
            without_ledger(with_rows(with_history(true_facts(), (epochs()[0], epochs()[2])), e4=0)),
            [Outcome.EXACT, Outcome.GAP, Outcome.EXACT],
        ),
        (with_history(true_facts(), epochs()[:2]), [Outcome.EXACT] * 2 + [Outcome.GAP] * 2),
        (with_ledger(true_facts(), intent=intent(5)), [Outcome.EXACT] * 4 + [Outcome.DOUBT]),
    ],
)
def test_an_epoch_is_shown_as_what_was_found(facts: Facts, expected: list[Outcome]) -> None:
    assert lane(facts) == expected


def test_a_sink_that_joined_later_has_no_gap_before() -> None:
    line = relinked([replace(epoch, sinks=((SINK, 1), ("memory:late", 3))) for epoch in epochs()])
    late = replace(sink_of(line[2:], "memory:late"), history=tuple(entry(one, "memory:late") for one in line[2:]))
    facts = Facts("orders", (sink_of(line), late), ledger_of(line))
    assert lane(facts, "memory:late") == [Outcome.ABSENT] * 2 + [Outcome.EXACT] * 2


def test_a_pipeline_without_epochs_has_an_empty_grid() -> None:
    empty = with_sink(with_ledger(true_facts(), records=()), history=(), rows={})
    assert grid_of(empty, judge(empty)).columns == ()


def test_no_damage_is_lost_when_epochs_share_a_column() -> None:
    facts = damaged(480)
    result = judge(facts)
    grid = grid_of(facts, result)
    drawn = grid.pooled(60)
    assert (len(drawn.columns), drawn.width) == (60, 8)
    assert sum(column.rows for column in drawn.columns) == sum(column.rows for column in grid.columns)
    for column in grid.columns:
        shared = drawn.columns[(column.first - 1) // 8]
        for own, worst in zip(column.outcomes, shared.outcomes, strict=True):
            assert tuple(Outcome).index(worst) <= tuple(Outcome).index(own)
    assert {code for column in drawn.columns for code in column.codes} == {
        code for column in grid.columns for code in column.codes
    }


def test_a_gap_and_a_double_side_by_side_do_not_cancel_out() -> None:
    facts = with_rows(true_facts(), e3=6, e4=13)
    (column,) = grid_of(facts, judge(facts)).pooled(1).columns
    assert abs(column.surplus[0] or 0) == 1


def test_a_clean_page_and_a_clean_verdict_go_together() -> None:
    for facts in (story(), damaged()):
        result = judge(facts)
        shown = {outcome for column in grid_of(facts, result).columns for outcome in column.outcomes}
        assert (shown == {Outcome.EXACT}) == (result.verdict is Verdict.EXACTLY_ONCE)


def test_pooling_leaves_what_fits_alone() -> None:
    grid = grid_of(story(), judge(story()))
    assert grid.pooled(48) is grid
    assert isinstance(grid.pooled(7), Grid)
    assert len(grid.pooled(7).columns) == 7
