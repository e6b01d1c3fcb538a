"""Window assigners: ``Tumbling``, ``Sliding``, ``Sessions``, ``Global`` and ``Custom``.

All windows are half-open, ``[start, end)``, in milliseconds or integers. Ideas: the Dataflow model's window
assignment (fixed, sliding, sessions) and Beam's global window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from functools import cache, lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from onceonly.errors import refuse
from onceonly_checkpoints.epoch_time import END, Unit, milliseconds

LEAST = -END - 1
"""Where the one window begins that never does."""

Span = tuple[int, int]
"""Start and end of a window."""

Size = str | int
"""How long: ``"2 minutes"``; a number where times are integers."""

DAY = 24 * 60 * 60 * 1000
"""Milliseconds of a day of UTC."""
_1970 = date(1970, 1, 1)
_CYCLE = 146_097
"""Days of 400 years."""

_FIRST, _LAST = -700_000, 2_700_000
"""Days since 1970, well within the calendar that Python has."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one size, one after the other. Spark calls them tumbling.

    Args:
        size: ``"2 minutes"``, or a number if times are integers.
        offset: by how much they begin after a multiple of their size.
        timezone: ``"Europe/Berlin"``, for sizes of whole days. A day in which clocks are put forward has 23 hours.
            Default: days of UTC.

    Raises:
        ConfigurationError: E140, an invalid size.
    """

    size: Size
    offset: Size = field(default=0, kw_only=True)
    timezone: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        size, offset = length("size", self.size), length("offset", self.offset or 0, least=0)
        if isinstance(self.size, str) != isinstance(self.offset, str) and self.offset:
            raise wrong(
                f"size={self.size!r} and offset={self.offset!r}", "one is a time and one a number", "give both alike"
            )
        if offset >= size:
            raise wrong(f"offset={self.offset!r}", "it is no less than the size", "give less than one window")
        if self.timezone is None:
            return
        if not isinstance(self.size, str) or size % DAY:
            remedy = (
                'give whole days, Tumbling("1 day", timezone=...), or leave timezone= out: hours are as long everywhere'
            )
            raise wrong(f"timezone= with size={self.size!r}", "only days are longer or shorter by the zone", remedy)
        _zone(self.timezone)

    @property
    def unit(self) -> Unit | None:
        """Unit of its numbers."""
        return unit_of(self.size)

    @property
    def numbers(self) -> tuple[int, int]:
        """Size and offset in the unit."""
        return length("size", self.size), length("offset", self.offset or 0, least=0)

    @property
    def cuts(self) -> tuple[int, ...]:
        """Milliseconds of a day of UTC at which a day of its zone may begin."""
        return _cuts(self.numbers[1], self.timezone or "UTC")

    @property
    def spelled(self) -> list[Any]:
        """Canonical form, equal for equal meaning."""
        return ["fixed", *self.numbers, self.timezone]

    def of(self, time: int) -> list[Span]:
        """Return the one window of a time."""
        size, offset = self.numbers
        if self.timezone is not None:
            return [local_days(time, size // DAY, offset, self.timezone)]
        start = (time - offset) // size * size + offset
        return [(start, start + size)]


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size that overlap. A larger ``every`` leaves gaps.

    Args:
        size: of each.
        every: from the beginning of one to that of the next.

    Raises:
        ConfigurationError: E140, an invalid size.
    """

    size: Size
    every: Size

    def __post_init__(self) -> None:
        length("size", self.size)
        length("every", self.every)
        if isinstance(self.size, str) != isinstance(self.every, str):
            raise wrong(
                f"size={self.size!r} and every={self.every!r}", "one is a time and one a number", "give both alike"
            )

    @property
    def unit(self) -> Unit | None:
        """Unit of its numbers."""
        return unit_of(self.size)

    @property
    def numbers(self) -> tuple[int, int]:
        """Size and step in the unit."""
        return length("size", self.size), length("every", self.every)

    @property
    def spelled(self) -> list[Any]:
        """Canonical form, equal for equal meaning."""
        return ["sliding", *self.numbers]

    def of(self, time: int) -> list[Span]:
        """Return the windows of a time, the earliest first, or none in a gap."""
        size, every = self.numbers
        last = time // every * every
        first = (time - size) // every * every + every
        return [(start, start + size) for start in range(first, last + 1, every)]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Windows that end where a key has no row for ``gap``. A row in between joins two windows.

    Raises:
        ConfigurationError: E140, an invalid gap.
    """

    gap: Size

    def __post_init__(self) -> None:
        length("gap", self.gap)

    @property
    def unit(self) -> Unit | None:
        """Unit of its numbers."""
        return unit_of(self.gap)

    @property
    def number(self) -> int:
        """The gap in the unit."""
        return length("gap", self.gap)

    @property
    def spelled(self) -> list[Any]:
        """Canonical form, equal for equal meaning."""
        return ["sessions", self.number]

    def of(self, time: int) -> list[Span]:
        """Return the session of a row alone."""
        return [(time, time + self.number)]


@dataclass(frozen=True, slots=True)
class Global:
    """One window for all times of a key. It closes when the writer ends."""

    @property
    def unit(self) -> Unit | None:
        """No unit, because it fits any."""
        return None

    @property
    def spelled(self) -> list[Any]:
        """Canonical form, equal for equal meaning."""
        return ["global"]

    def of(self, time: int) -> list[Span]:
        """Return the one window."""
        return [(LEAST, END)]


@dataclass(frozen=True, slots=True)
class Custom:
    """Windows of your own: a row names the one that it is in, as a bid its auction.

    ``start`` and ``end`` are columns, or Spark SQL on one row, of the kind of ``time=``. A window holds the times of
    its rows: a row with another time, or without a bound, is in no window. Idea: Streaming 102's custom windowing.
    """

    start: str
    end: str

    @property
    def unit(self) -> Unit | None:
        """No unit of its own."""
        return None

    @property
    def spelled(self) -> list[Any]:
        """Canonical form, equal for equal meaning."""
        return ["custom", self.start, self.end]


Window = Tumbling | Sliding | Sessions | Global | Custom


def merged(spans: Iterable[Span]) -> list[tuple[Span, list[int]]]:
    """Merge spans that overlap into sessions, each with the indexes of its spans.

    Two that only touch are two sessions: an end is not in its window.
    """
    sessions: list[tuple[Span, list[int]]] = []
    for at, (start, end) in sorted(enumerate(spans), key=lambda indexed_span: (indexed_span[1], indexed_span[0])):
        if sessions and start < sessions[-1][0][1]:
            (first, last), members = sessions[-1]
            sessions[-1] = ((first, max(last, end)), [*members, at])
        else:
            sessions.append(((start, end), [at]))
    return sessions


def local_days(time: int, days: int, offset: int, zone: str) -> Span:
    """Return the window of ``days`` days by the clocks of a zone, counted from 1970-01-01.

    ``time`` is in milliseconds since 1970. A day begins ``offset`` milliseconds after midnight by those clocks.
    """
    zone_info = _zone(zone)
    cycles = _cycles(time // DAY)
    wall = datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=time - cycles * _CYCLE * DAY)
    local = wall.astimezone(zone_info).replace(tzinfo=None) - timedelta(milliseconds=offset)
    number = ((local.date() - _1970).days + cycles * _CYCLE) // days * days
    start, end = _instant(number, offset, zone_info), _instant(number + days, offset, zone_info)
    # Clocks that leave out the minutes in which a day begins show later ones before it, and clocks that are put back
    # show earlier ones after it: there the instants decide, so that each time is in one window.
    if time < start:
        return _instant(number - days, offset, zone_info), start
    if time >= end:
        return end, _instant(number + 2 * days, offset, zone_info)
    return start, end


def _instant(day: int, offset: int, zone: ZoneInfo) -> int:
    cycles = _cycles(day)
    midnight = datetime.combine(_1970 + timedelta(days=day - cycles * _CYCLE), datetime.min.time())
    wall = (midnight + timedelta(milliseconds=offset)).replace(tzinfo=zone)
    instant = (wall - datetime.fromtimestamp(0, timezone.utc)) // timedelta(milliseconds=1)
    return instant + cycles * _CYCLE * DAY


@cache
def _cuts(offset: int, zone: str) -> tuple[int, ...]:
    """Return the starts of days by each of the clocks that a zone ever had for a day or longer.

    Before the first of these days a zone has the clock of its sun, and after the last one those of its last rule.
    """
    zone_info, first = _zone(zone), datetime(1800, 1, 1, 12, tzinfo=timezone.utc)
    days = (first + timedelta(days=number) for number in range(300 * 366))
    ahead = {day.astimezone(zone_info).utcoffset() or timedelta() for day in days}
    return tuple(sorted({(offset - utc_offset // timedelta(milliseconds=1)) % DAY for utc_offset in ahead}))


def _cycles(day: int) -> int:
    """Return the number of 400-year cycles between a day and Python's calendar of the years 1 to 9999.

    Calendar and clocks repeat with them. Rows of 9999-12-31, which mean "never", have a window as any.
    """
    return min(day - _FIRST, 0) // _CYCLE + -(-max(day - _LAST, 0) // _CYCLE)


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise wrong(f"timezone={name!r}", "no such zone is known here", 'name one: timezone="Europe/Berlin"') from error


def drain(_: object) -> int:
    """End the pipeline's time in a last run: ``event_time=EventTime("event_time", callback=drain)`` closes all windows.

    The pipeline ends with that epoch (E135). It takes a batch, if an empty one:
    :func:`onceonly.event_time.heartbeat` gives one.
    """
    return END


def unit_of(size: Size) -> Unit:
    """Return the unit of a size: milliseconds, or integers for a number."""
    return "ms" if isinstance(size, str) else "integer"


def length(name: str, size: object, *, least: int = 1) -> int:
    """Return a size in its unit.

    Raises:
        ConfigurationError: E140, an invalid size.
    """
    number = _number(size) if isinstance(size, str | int) else None
    if number is None or number < least or number > END // 2:
        remedy = 'give "2 minutes", "1 hour", or, for times that are integers, a whole number'
        raise wrong(f"{name}={size!r}", "it is no size in a unit", remedy)
    return number


@lru_cache(typed=True)
def _number(size: object) -> int | None:
    return size if isinstance(size, int) and not isinstance(size, bool) else milliseconds(size)


def wrong(problem: str, cause: str, remedy: str) -> Exception:
    """Return the refusal of invalid panes."""
    return refuse("E140", problem=problem, cause=cause, next=remedy)
