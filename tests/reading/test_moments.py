"""Moments are read with their zone or not at all, and are spelled so that they can be read again."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.errors import OnceOnlyError
from onceonly.event_time.reader import number_of, spelled
from onceonly_checkpoints.epoch_time import END

NOON = 1_767_268_800_000


@pytest.mark.parametrize(
    "said",
    [
        "2026-01-01T12:00Z",
        "2026-01-01T12:00:00z",
        "2026-01-01 12:00:00.000+00:00",
        "2026-01-01T13:00+01:00",
        "2026-01-01T13:00+01",
        "2026-01-01T13:00:00+0100",
        "2026-01-01T07:00-05:00",
        str(NOON),
        NOON,
        datetime(2026, 1, 1, 12, tzinfo=timezone.utc),
        datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_moment_is_the_same_in_every_zone(said: datetime | str | int) -> None:
    assert number_of(said, "ms") == NOON


def test_a_part_of_a_millisecond_is_cut_off_before_1970_too() -> None:
    assert number_of("1970-01-01T00:00:00.000900Z", "ms") == 0
    assert number_of("1969-12-31T23:59:59.999900Z", "ms") == -1


@pytest.mark.parametrize("said", ["2026-01-01T12:00", datetime(2026, 1, 1, 12)])
def test_without_a_zone_both_spellings_are_offered_and_can_be_used(said: datetime | str) -> None:
    with pytest.raises(OnceOnlyError) as caught:
        number_of(said, "ms")
    assert caught.value.code == "E110"
    utc, here = caught.value.remedy.split(" in UTC, or ")
    assert number_of(utc, "ms") == NOON
    number_of(here.removesuffix(" by the clock of this machine"), "ms")


@pytest.mark.parametrize("said", ["noon", "", "2026-13-01T00:00Z", "12:00Z", True])
def test_what_is_no_moment_is_refused(said: str) -> None:
    with pytest.raises(OnceOnlyError, match="is no moment"):
        number_of(said, "ms")


def test_a_date_for_a_dataset_that_counts_is_refused() -> None:
    with pytest.raises(OnceOnlyError, match="counts integers"):
        number_of("2026-01-01T12:00Z", "integer")


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_what_is_spelled_can_be_read(number: int) -> None:
    assert number_of(spelled(number, "ms"), "ms") == number
    assert number_of(spelled(number, "integer"), "integer") == number


def test_what_is_no_date_is_spelled_too() -> None:
    assert [spelled(None, "ms"), spelled(END, "ms"), spelled(10**17, "ms")] == ["not known", "the end", f"{10**17} ms"]
