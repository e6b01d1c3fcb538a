"""Windows: which stretches a time is in, whole days of a zone, sessions that overlap, and sizes that are none."""

from __future__ import annotations

import itertools
import random
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.panes.making import refused

from onceonly.windows import Global, Sessions, Sliding, Tumbling
from onceonly.windows.rules.assigners import DAY, LEAST, local_days, merged
from onceonly_checkpoints.epoch_time import END

HOUR = 3_600_000
TIMES = st.integers(-(10**12), 10**12)
SIZES = st.integers(1, 10**6)


def utc(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


# ---- one size


@given(time=TIMES, size=SIZES, data=st.data())
def test_fixed_windows_cover_time_without_a_gap_and_without_an_overlap(time: int, size: int, data: Any) -> None:
    offset = data.draw(st.integers(0, size - 1))
    ((start, end),) = Tumbling(size, offset=offset).of(time)
    assert start <= time < end == start + size
    assert (start - offset) % size == 0


def test_the_end_of_a_window_is_in_the_next_one() -> None:
    assert Tumbling(10).of(9) == [(0, 10)]
    assert Tumbling(10).of(10) == [(10, 20)]
    assert Tumbling(10).of(-1) == [(-10, 0)]
    assert Tumbling("2 minutes").of(119_999) == [(0, 120_000)]
    assert Tumbling("2 minutes", offset="30 seconds").of(29_999) == [(-90_000, 30_000)]


@given(time=TIMES, size=SIZES, data=st.data())
def test_a_time_is_in_every_sliding_window_that_holds_it_and_in_no_other(time: int, size: int, data: Any) -> None:
    every = data.draw(st.integers(max(1, size // 50), size * 3))
    found = Sliding(size, every).of(time)
    near = range(time // every - size // every - 2, time // every + 3)
    assert found == [(at * every, at * every + size) for at in near if at * every <= time < at * every + size]


def test_sliding_windows_that_begin_less_often_than_they_last_leave_gaps() -> None:
    assert Sliding(1, 2).of(2) == [(2, 3)]
    assert Sliding(1, 2).of(3) == []
    assert Sliding(4, 2).of(0) == [(-2, 2), (0, 4)]


def test_the_global_window_holds_every_time() -> None:
    assert Global().of(LEAST) == Global().of(0) == Global().of(END - 1) == [(LEAST, END)]


# ---- days of a zone


@pytest.mark.parametrize(
    ("zone", "time", "start", "hours"),
    [
        ("Europe/Berlin", "2024-03-31T12:00", "2024-03-30T23:00", 23),
        ("Europe/Berlin", "2024-10-27T12:00", "2024-10-26T22:00", 25),
        ("Europe/Berlin", "2024-07-01T12:00", "2024-06-30T22:00", 24),
        ("America/New_York", "2024-03-10T12:00", "2024-03-10T05:00", 23),
        ("America/New_York", "2024-11-03T12:00", "2024-11-03T04:00", 25),
        ("Australia/Lord_Howe", "2024-10-06T06:00", "2024-10-05T13:30", 23.5),
        ("America/Sao_Paulo", "2018-11-04T12:00", "2018-11-04T03:00", 23),
        ("America/Sao_Paulo", "2018-02-17T12:00", "2018-02-17T02:00", 25),
        ("America/Havana", "2024-11-03T12:00", "2024-11-03T04:00", 25),
        ("Asia/Kolkata", "2024-03-31T12:00", "2024-03-30T18:30", 24),
    ],
)
def test_a_local_day_has_the_hours_that_its_clocks_give_it(zone: str, time: str, start: str, hours: float) -> None:
    found = Tumbling("1 day", timezone=zone).of(utc(time))
    assert found == [(utc(start), utc(start) + int(hours * HOUR))]
    (span,) = found
    assert Tumbling("1 day", timezone=zone).of(span[0]) == Tumbling("1 day", timezone=zone).of(span[1] - 1) == found


def test_a_day_that_a_zone_left_out_has_no_window() -> None:
    day = Tumbling("1 day", timezone="Pacific/Apia")
    (before,), (after,) = day.of(utc("2011-12-30T09:00")), day.of(utc("2011-12-30T11:00"))
    assert before[1] == after[0] == utc("2011-12-30T10:00")
    assert after[1] == utc("2011-12-31T10:00")


CHANGES = [
    ("Europe/Berlin", "2024-10-27T00:00"),
    ("Europe/Berlin", "2024-03-31T00:00"),
    ("America/Havana", "2024-11-03T04:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),
    ("America/Sao_Paulo", "2018-02-18T02:00"),
    ("Australia/Lord_Howe", "2024-04-06T15:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
]


def test_days_that_begin_at_any_minute_cover_the_hours_in_which_clocks_change() -> None:
    offsets = (0, 15, 30, 60, 90, 120, 135, 150, 180)
    shapes = [(zone, around, offset, days) for zone, around in CHANGES for offset in offsets for days in (1, 2, 7)]
    assert {shape: wrong for shape in shapes if (wrong := uncovered(*shape))} == {}


def uncovered(zone: str, around: str, offset: int, days: int) -> list[int]:
    """Minutes around an instant that are outside of their own day, or whose day does not follow the one before."""
    wrong, last = [], None
    middle = utc(around)
    for minute in range(-36 * 60, 36 * 60, 15):
        time = middle + minute * 60_000
        start, end = local_days(time, days, offset * 60_000, zone)
        if not start <= time < end or not (last in (None, (start, end)) or last[1] == start):
            wrong.append(minute)
        last = (start, end)
    return wrong


def test_several_days_are_counted_by_the_calendar_of_the_zone() -> None:
    week = Tumbling("7 days", timezone="Europe/Berlin")
    ((start, end),) = week.of(utc("2024-03-29T12:00"))
    assert (end - start) // HOUR == 7 * 24 - 1
    local = datetime.fromtimestamp(start / 1000, ZoneInfo("Europe/Berlin"))
    assert (local.hour, local.weekday()) == (0, 3)  # as 1970-01-01, a Thursday


def test_random_times_are_in_the_day_that_their_clocks_show() -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    draw, zone = random.Random(seed), ZoneInfo("America/New_York")
    for _ in range(2_000):
        time = draw.randrange(utc("1970-01-01T00:00"), utc("2037-01-01T00:00"))
        start, end = local_days(time, 1, 0, "America/New_York")
        assert start <= time < end
        shown = datetime.fromtimestamp(time // 1000, zone).date()
        assert datetime.fromtimestamp(start // 1000, zone).date() == shown
        assert datetime.fromtimestamp(end // 1000, zone).date() == shown + timedelta(days=1)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_days_go_on_behind_the_years_that_a_calendar_of_four_digits_has(zone: str) -> None:
    ((start, end),) = Tumbling("1 day", timezone=zone).of(utc("9999-12-31T12:00"))
    assert (start < utc("9999-12-31T12:00") < end, end - start) == (True, 24 * HOUR)
    cycle = 146_097 * 24 * HOUR  # 400 years, after which calendar and clocks are the same again
    for year in range(2100, 2500):
        time = utc(f"{year}-03-31T05:00")
        day, *far = (local_days(time + times * cycle, 1, 0, zone) for times in (0, 10, 19, 20, 1_000))
        for times, (first, last) in zip((10, 19, 20, 1_000), far, strict=True):
            assert (first - times * cycle, last - times * cycle) == day
    old = local_days(utc("0001-01-01T12:00"), 1, 0, zone)
    assert old[1] - old[0] == 24 * HOUR
    assert local_days(old[0] - 1, 1, 0, zone)[1] == old[0]
    for time in range(-9 * cycle, 30 * cycle, 7_777 * 24 * HOUR + 12_345):
        start, end = local_days(time, 3, 90 * 60_000, zone)
        assert start <= time < end
        assert local_days(end, 3, 90 * 60_000, zone)[0] == end


# ---- sessions


@pytest.mark.parametrize(
    "zone",
    [
        "UTC",
        "Europe/Berlin",
        "America/St_Johns",
        "America/Sao_Paulo",
        "Pacific/Apia",
        "Africa/Casablanca",
        "Asia/Manila",
    ],
)
@pytest.mark.parametrize("offset", ["0s", "150 minutes"])
def test_every_day_of_a_zone_begins_at_one_of_its_cuts(zone: str, offset: str) -> None:
    """By them Spark groups rows, and rows of a group must be in one day."""
    days, draw = Tumbling("1 day", offset=offset, timezone=zone), random.Random(zone)
    eras = [(-5_400_000_000_000, 4_500_000_000_000), (-62_000_000_000_000, 250_000_000_000_000)]
    begins = {days.of(draw.randint(*era))[0][0] % DAY for era in eras for _ in range(2_000)}
    assert begins <= set(days.cuts), sorted(begins - set(days.cuts))
    assert len(days.cuts) < 25


def test_sessions_that_overlap_are_one_and_those_that_touch_are_two() -> None:
    assert merged([(0, 10), (9, 19)]) == [((0, 19), [0, 1])]
    assert merged([(0, 10), (10, 20)]) == [((0, 10), [0]), ((10, 20), [1])]
    assert merged([(0, 30), (5, 10), (29, 31)]) == [((0, 31), [0, 1, 2])]
    assert merged([(20, 30), (0, 10), (9, 21)]) == [((0, 30), [1, 2, 0])]
    assert merged([]) == []


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=12), st.randoms())
def test_sessions_are_the_same_in_whatever_order_they_come(spans: list[tuple[int, int]], draw: random.Random) -> None:
    given_spans = [(start, start + size) for start, size in spans]
    shuffled = draw.sample(given_spans, len(given_spans))
    found = [span for span, _ in merged(given_spans)]
    assert found == [span for span, _ in merged(shuffled)]
    seconds = {second for start, end in given_spans for second in range(start, end)}
    assert {second for start, end in found for second in range(start, end)} == seconds
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(found))


def test_a_row_alone_makes_a_session_of_one_gap() -> None:
    assert Sessions(10).of(7) == [(7, 17)]
    assert Sessions("1 minute").of(0) == [(0, 60_000)]


# ---- what is no window, and the way out


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (lambda: Tumbling("2 fortnights"), lambda: Tumbling("2 minutes")),
        (lambda: Tumbling("1 month"), lambda: Tumbling("1 hour")),
        (lambda: Tumbling("0 minutes"), lambda: Tumbling("2 minutes")),
        (lambda: Tumbling(0), lambda: Tumbling(1)),
        (lambda: Tumbling(-5), lambda: Tumbling(5)),
        (lambda: Tumbling(True), lambda: Tumbling(1)),
        (lambda: Tumbling(2.5), lambda: Tumbling(2)),  # type: ignore[arg-type]
        (lambda: Tumbling(None), lambda: Tumbling(2)),  # type: ignore[arg-type]
        (lambda: Tumbling(10, offset=-1), lambda: Tumbling(10, offset=1)),
        (lambda: Tumbling("2 minutes", offset="a while"), lambda: Tumbling("2 minutes", offset="1 minute")),
        (lambda: Sliding("2 minutes", "0s"), lambda: Sliding("2 minutes", "1 hour")),
        (lambda: Sliding(0, 5), lambda: Sliding(5, 5)),
        (lambda: Sessions("a pause"), lambda: Sessions("2 minutes")),
        (lambda: Sessions(0), lambda: Sessions(1)),
    ],
)
def test_a_size_that_is_none_is_refused_and_one_as_it_is_printed_is_taken(make: Any, way: Any) -> None:
    error = refused("E140", make)
    assert 'give "2 minutes", "1 hour", or, for times that are integers, a whole number' in str(error)
    way()


@pytest.mark.parametrize(
    ("make", "printed", "way"),
    [
        (
            lambda: Tumbling("2 minutes", offset=30),
            "give both alike",
            lambda: Tumbling("2 minutes", offset="30 seconds"),
        ),
        (lambda: Tumbling(10, offset="1 s"), "give both alike", lambda: Tumbling(10, offset=1)),
        (lambda: Sliding("2 minutes", 60), "give both alike", lambda: Sliding("2 minutes", "1 minute")),
        (lambda: Tumbling(10, offset=10), "give less than one window", lambda: Tumbling(10, offset=9)),
        (
            lambda: Tumbling("2 hours", timezone="Europe/Berlin"),
            'Tumbling("1 day", timezone=...), or leave timezone= out',
            lambda: (Tumbling("1 day", timezone="Europe/Berlin"), Tumbling("2 hours")),
        ),
        (
            lambda: Tumbling(86_400_000, timezone="Europe/Berlin"),
            'Tumbling("1 day", timezone=...), or leave timezone= out',
            lambda: Tumbling(86_400_000),
        ),
        (
            lambda: Tumbling("1 day", timezone="Europe/Nowhere"),
            'timezone="Europe/Berlin"',
            lambda: Tumbling("1 day", timezone="Europe/Berlin"),
        ),
        (
            lambda: Tumbling("1 day", timezone="../etc"),
            'timezone="Europe/Berlin"',
            lambda: Tumbling("1 day", timezone="Europe/Berlin"),
        ),
        (
            lambda: Tumbling("1 day", timezone=3),  # type: ignore[arg-type]
            'timezone="Europe/Berlin"',
            lambda: Tumbling("1 day", timezone="Europe/Berlin"),
        ),
    ],
)
def test_windows_that_cannot_mean_anything_are_refused_with_a_way_out(make: Any, printed: str, way: Any) -> None:
    assert printed in str(refused("E140", make))
    way()
