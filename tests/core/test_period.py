"""A period is a whole number and a unit, and nothing else is one."""

from __future__ import annotations

import pytest

from onceonly_checkpoints import epoch_time


@pytest.mark.parametrize(
    ("said", "long"),
    [
        ("0s", 0),
        ("1 millisecond", 1),
        ("500 ms", 500),
        (" 90 seconds ", 90_000),
        ("2min", 120_000),
        ("1 hour", 3_600_000),
        ("7 days", 604_800_000),
        ("1 week", 604_800_000),
    ],
)
def test_a_period_is_so_many_milliseconds(said: str, long: int) -> None:
    assert epoch_time.milliseconds(said) == long


@pytest.mark.parametrize("said", ["", "7", "days", "-1 day", "1.5 hours", "07 days", "7 years", "7 days 2 h", 7, None])
def test_what_is_no_period_is_none(said: object) -> None:
    assert epoch_time.milliseconds(said) is None
