"""Of an epoch that was computed again, windows are told whose results or state are others than those that stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceonly.protocol.capabilities import GONE, OpenWindow, StateRow
from onceonly.windows.read_results import of_results, of_state
from onceonly.windows.results import UnreadableResults
from onceonly_checkpoints.epoch_time import ResultSchema

FORM = ResultSchema((("team", "string"),), (("total", "bigint"),), "retracting")
UPSERTS = replace(FORM, upserts=True)


def row(team: str, total: int, start: int = 0, **said: Any) -> dict[str, Any]:
    given = {"team": team, "total": total, "window_start": start, "window_end": start + 10, "kind": "+I", "sign": 1}
    return {**given, "pane": 0, "timing": "EARLY", "final": False, **said}


def window(team: str, start: int = 0) -> tuple[str, int, int]:
    return f'["{team}"]', start, start + 10


@pytest.mark.parametrize(
    ("computed", "stand", "told"),
    [
        ([row("a", 1), row("b", 2)], [row("b", 2), row("a", 1)], set()),
        ([row("a", 1), row("b", 2)], [row("a", 1), row("b", 3)], {window("b")}),
        ([row("a", 1), row("a", 1)], [row("a", 1)], {window("a")}),
        ([], [row("a", 1, 10)], {window("a", 10)}),
        ([row("a", 1, timing="LATE")], [row("a", 1)], {window("a")}),
        ([row("a", 1, kind="-U", sign=-1)], [row("a", 1)], {window("a")}),
    ],
)
def test_results_are_compared_as_bags(computed: list[Any], stand: list[Any], told: set[Any]) -> None:
    assert set(of_results(FORM, computed, stand)) == told


def test_of_rows_that_replace_one_another_those_are_compared_that_stand() -> None:
    assert not list(of_results(UPSERTS, [row("a", 1), row("b", 2)], [row("a", 1)]))
    assert list(of_results(UPSERTS, [row("a", 1)], [row("a", 2)])) == [window("a")]


def test_rows_of_something_else_cannot_be_compared() -> None:
    with pytest.raises(UnreadableResults):
        list(of_results(FORM, [], [{"id": 1}]))


def state(team: str, epoch: int, body: str = "{}") -> OpenWindow:
    return OpenWindow(StateRow(*window(team), body, epoch), None, 10)


def change(team: str, body: str = "{}", *, gone: bool = False) -> dict[str, Any]:
    key, start, stop = window(team)
    return {"key": key, "start": start, "stop": stop, "body": body, GONE: gone}


@pytest.mark.parametrize(
    ("computed", "stands", "differs"),
    [
        ([change("a")], state("a", 3), False),
        ([change("a", "[]")], state("a", 3), True),
        ([change("a", gone=True)], state("a", 3), True),
        ([], state("a", 3), True),
        ([], state("a", 2), False),
        ([change("a")], state("a", 2), True),
        ([change("a", gone=True)], state("a", 2), True),
        ([change("a", "[]")], state("a", 4), False),
    ],
)
def test_state_that_a_later_epoch_wrote_tells_nothing(computed: list[Any], stands: OpenWindow, differs: bool) -> None:
    assert list(of_state(3, computed, [stands])) == ([window("a")] if differs else [])
