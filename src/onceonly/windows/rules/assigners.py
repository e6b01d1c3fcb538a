"""Window assigners: ``Fixed``, ``Sliding``, ``Sessions`` and ``Global``.

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
from onceonly_checkpoints.epoch_time import END, Unit
from onceonly_checkpoints.period import milliseconds

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
class Fixed:
    """Windows of one size, one after the other. Spark calls them tumbling.

    Args:
        size: ``"2 minutes"``, or a number if times are integers.
        offset: start of a window after a multiple of the size.
        timezone: ``"Europe/Berlin"``, for days by its clocks and sizes of whole days. A day in which clocks go forward
            has 23 hours. Default: days of UTC.

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
            way = 'give whole days, Fixed("1 day", timezone=...), or leave timezone= out: hours are as long everywhere'
            raise wrong(f"timezone= beside size={self.size!r}", "only days are longer or shorter by the zone", way)
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
        """The one window of a time."""
        size, offset = self.numbers
        if self.timezone is not None:
            return [local_days(time, size // DAY, offset, self.timezone)]
        start = (time - offset) // size * size + offset
        return [(start, start + size)]


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size that begin at a step ``every``. They overlap, or leave gaps if ``every`` is larger.

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
        """The windows of a time, the earliest first. Empty in a gap."""
        size, every = self.numbers
        last = time // every * every
        first = (time - size) // every * every + every
        return [(start, start + size) for start in range(first, last + 1, every)]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Windows that end when no row of a key follows for ``gap``. A row between two sessions joins them.

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
        """The session of a single row."""
        return [(time, time + self.number)]


@dataclass(frozen=True, slots=True)
class Global:
    """One window for all times of a key. It closes when nothing follows."""

    @property
    def unit(self) -> Unit | None:
        """It fits any unit."""
        return None

    @property
    def spelled(self) -> list[Any]:
        """Canonical form, equal for equal meaning."""
        return ["global"]

    def of(self, time: int) -> list[Span]:
        """The one window."""
        return [(LEAST, END)]


Window = Fixed | Sliding | Sessions | Global


def merged(spans: Iterable[Span]) -> list[tuple[Span, list[int]]]:
    """Merge overlapping spans to sessions, each with the indexes of its spans.

    Two that only touch are two sessions, because an end is not in its window.
    """
    found: list[tuple[Span, list[int]]] = []
    for at, (start, end) in sorted(enumerate(spans), key=lambda one: (one[1], one[0])):
        if found and start < found[-1][0][1]:
            (first, last), members = found[-1]
            found[-1] = ((first, max(last, end)), [*members, at])
        else:
            found.append(((start, end), [at]))
    return found


def local_days(time: int, days: int, offset: int, zone: str) -> Span:
    """The window of ``days`` days by the clocks of a zone, counted from 1970-01-01.

    A day begins ``offset`` milliseconds after midnight by those clocks. ``time`` is in milliseconds since 1970.
    """
    known = _zone(zone)
    cycles = _cycles(time // DAY)
    wall = datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=time - cycles * _CYCLE * DAY)
    local = wall.astimezone(known).replace(tzinfo=None) - timedelta(milliseconds=offset)
    number = ((local.date() - _1970).days + cycles * _CYCLE) // days * days
    start, end = _instant(number, offset, known), _instant(number + days, offset, known)
    # Clocks that leave out the minutes in which a day begins show later ones before it, and clocks that are put back
    # show earlier ones after it: there the instants decide, so that each time is in one window.
    if time < start:
        return _instant(number - days, offset, known), start
    if time >= end:
        return end, _instant(number + 2 * days, offset, known)
    return start, end


def _instant(day: int, offset: int, zone: ZoneInfo) -> int:
    cycles = _cycles(day)
    midnight = datetime.combine(_1970 + timedelta(days=day - cycles * _CYCLE), datetime.min.time())
    wall = (midnight + timedelta(milliseconds=offset)).replace(tzinfo=zone)
    instant = (wall - datetime.fromtimestamp(0, timezone.utc)) // timedelta(milliseconds=1)
    return instant + cycles * _CYCLE * DAY


@cache
def _cuts(offset: int, zone: str) -> tuple[int, ...]:
    """Starts of days by each offset that a zone ever had. An offset of less than a day is ignored.

    Before these 300 years a zone has solar time, and after them the offsets of its last rule.
    """
    known, first = _zone(zone), datetime(1800, 1, 1, 12, tzinfo=timezone.utc)
    days = (first + timedelta(days=number) for number in range(300 * 366))
    ahead = {day.astimezone(known).utcoffset() or timedelta() for day in days}
    return tuple(sorted({(offset - one // timedelta(milliseconds=1)) % DAY for one in ahead}))


def _cycles(day: int) -> int:
    """Number of 400-year cycles between a day and Python's calendar, of the years 1 to 9999.

    Calendar and clocks repeat with them. So rows of 9999-12-31, which mean "never", have a window as any.
    """
    return min(day - _FIRST, 0) // _CYCLE + -(-max(day - _LAST, 0) // _CYCLE)


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise wrong(f"timezone={name!r}", "no such zone is known here", 'name one: timezone="Europe/Berlin"') from error


def drain(_: object) -> int:
    """Declare the end of the stream in a last run.

    ``note_time=EventTime("event_time", says=drain)`` closes all windows. The pipeline ends with that epoch (E135). It
    needs a batch, if an empty one: :func:`onceonly.heartbeat` gives one.
    """
    return END


def unit_of(size: Size) -> Unit:
    """Unit of a size: milliseconds, or integers for a number."""
    return "ms" if isinstance(size, str) else "integer"


def length(name: str, said: object, *, least: int = 1) -> int:
    """A size in its unit.

    Raises:
        ConfigurationError: E140, an invalid size.
    """
    found = _number(said) if isinstance(said, str | int) else None
    if found is None or found < least or found > END // 2:
        way = 'give "2 minutes", "1 hour", or, for times that are integers, a whole number'
        raise wrong(f"{name}={said!r}", "it is no size in a unit", way)
    return found


@lru_cache(typed=True)
def _number(said: object) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) else milliseconds(said)


def wrong(problem: str, cause: str, way: str) -> Exception:
    """E140, the refusal of invalid panes."""
    return refuse("E140", problem=problem, cause=cause, next=way)
