"""What a table of ways that take turns says follows from its rounds; a limit may be in times, or in milliseconds."""

from __future__ import annotations

import pytest
from benchmarks.data import Shape
from benchmarks.panestate import Touched
from benchmarks.rounds import Job, More, table_of

FEW = Shape("few", 1, 100)


@pytest.mark.parametrize(("most", "verdict"), [(15, "holds"), (5, "missed")])
def test_a_limit_in_milliseconds_is_of_the_differences_within_rounds(most: float, verdict: str) -> None:
    # The machine slows down by the round; the medians of the sides alone would say the same of all.
    found = {"plain": [100.0, 200.0, 300.0], "ours": [110.0, 220.0, 340.0]}
    [_, line] = table_of(Job(FEW, 0, "plain", {"ours": More(most)}), found)
    figures = "1.10, +20.0 ms | 1.10-1.13, +10.0 to +40.0 ms"
    assert line == f"| 100 | ours | 220 ms | plain | {figures} | {most} ms more, {verdict} |"


@pytest.mark.parametrize(("limit", "said"), [(1.1, "1.1"), (1.05, "1.05, missed"), (None, "")])
def test_a_limit_in_times_is_of_the_quotients_within_rounds(limit: float | None, said: str) -> None:
    found = {"plain": [100.0, 200.0, 300.0], "ours": [110.0, 220.0, 330.0]}
    [_, line] = table_of(Job(FEW, 0, "plain", {"ours": limit}), found)
    assert line == f"| 100 | ours | 220 ms | plain | 1.10 | 1.10-1.10 | {said} |"


@pytest.mark.parametrize(("each", "verdict"), [(490.0, "holds"), (510.0, "missed")])
def test_recalling_and_writing_are_held_to_one_limit(each: float, verdict: str) -> None:
    assert Touched([each] * 3, [each] * 3).line.endswith(f"(limit 1,000, {verdict}).")
