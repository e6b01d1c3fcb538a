"""Windows of one size lie side by side over all of time, and nothing else is a size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.errors import OnceOnlyError
from onceonly.machine.completeness import FixedWindow, FixedWindows, TimeWindow


@given(st.integers(1, 50), st.integers(0, 49), st.integers(-300, 300), st.integers(-300, 300))
def test_every_moment_is_in_one_window(size: int, offset: int, since: int, upper: int) -> None:
    found = list(FixedWindows(size, offset % size).over(TimeWindow(None, upper), since))
    for moment in range(since, upper + 1):
        assert sum(one.start <= moment < one.end for one in found) == 1
    assert all((one.end - one.start, (one.start - offset) % size) == (size, 0) for one in found)


def test_a_window_is_complete_at_its_end_and_not_a_moment_before() -> None:
    assert [one.status for one in FixedWindows(10).over(TimeWindow(10, 19, closed=9), 0)] == ["complete", "open"]
    assert [one.status for one in FixedWindows(10).over(TimeWindow(9, 9), 0)] == ["open"]
    assert list(FixedWindows("2 minutes").over(TimeWindow(None, 130_000, 120_000), 0)) == [
        FixedWindow(0, 120_000, "closed"),
        FixedWindow(120_000, 240_000, "open"),
    ]


def test_where_nothing_was_seen_there_is_no_window() -> None:
    assert list(FixedWindows(10).over(TimeWindow(None, None), 0)) == []


@pytest.mark.parametrize(
    "said", [(0,), ("0 s",), (-1,), ("soon",), (10, 10), (10, -1), ("1 hour", 5), (10, "1 s"), ("1 s", "2 s")]
)
def test_what_is_no_size_is_refused(said: tuple[str | int, ...]) -> None:
    with pytest.raises(OnceOnlyError, match="is no size of windows"):
        FixedWindows(*said)


def test_a_period_in_words_counts_milliseconds_and_a_number_integers() -> None:
    assert (FixedWindows("1 hour", "15 minutes").unit, FixedWindows(1000).unit) == ("ms", "integer")
