"""Assign rows to windows: half-open, in milliseconds or integers.

Ideas: the Dataflow model's window assignment (fixed, sliding, sessions) and Beam's global window.
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
    """Windows of one size, one after the other; Spark calls them tumbling.

    Args:
        size: of each, ``"2 minutes"``, or a number where times are integers.
        offset: by how much they begin after a multiple of their size.
        timezone: of whose days they are, ``"Europe/Berlin"``, for sizes of whole days: a day in which clocks are put
            forward has 23 hours. Default: days of UTC.

    Raises:
        ConfigurationError: E140, a size that is none.
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
        """What its numbers count."""
        return unit_of(self.size)

    @property
    def numbers(self) -> tuple[int, int]:
        """Size and offset in the unit."""
        return length("size", self.size), length("offset", self.offset or 0, least=0)

    @property
    def cuts(self) -> tuple[int, ...]:
        """At which milliseconds of a day of UTC a day of its zone may begin."""
        return _cuts(self.numbers[1], self.timezone or "UTC")

    @property
    def spelled(self) -> list[Any]:
        """The same for all that mean the same."""
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
    """Windows of one size that begin every so often, so that they overlap; or, ``every`` larger, leave gaps.

    Args:
        size: of each.
        every: from the beginning of one to that of the next.

    Raises:
        ConfigurationError: E140, a size that is none.
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
        """What its numbers count."""
        return unit_of(self.size)

    @property
    def numbers(self) -> tuple[int, int]:
        """Size and step in the unit."""
        return length("size", self.size), length("every", self.every)

    @property
    def spelled(self) -> list[Any]:
        """The same for all that mean the same."""
        return ["sliding", *self.numbers]

    def of(self, time: int) -> list[Span]:
        """The windows of a time, the earliest first; none for one in a gap."""
        size, every = self.numbers
        last = time // every * every
        first = (time - size) // every * every + every
        return [(start, start + size) for start in range(first, last + 1, every)]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Windows that last as long as no gap of this size is between two rows of a key; rows in between join two of them.

    Args:
        gap: after the last row of a session, until its end.

    Raises:
        ConfigurationError: E140, a gap that is none.
    """

    gap: Size

    def __post_init__(self) -> None:
        length("gap", self.gap)

    @property
    def unit(self) -> Unit | None:
        """What its numbers count."""
        return unit_of(self.gap)

    @property
    def number(self) -> int:
        """The gap in the unit."""
        return length("gap", self.gap)

    @property
    def spelled(self) -> list[Any]:
        """The same for all that mean the same."""
        return ["sessions", self.number]

    def of(self, time: int) -> list[Span]:
        """What a row alone makes of a session."""
        return [(time, time + self.number)]


@dataclass(frozen=True, slots=True)
class Global:
    """One window for all times of a key: it closes when nothing follows."""

    @property
    def unit(self) -> Unit | None:
        """It fits any."""
        return None

    @property
    def spelled(self) -> list[Any]:
        """The same for all that mean the same."""
        return ["global"]

    def of(self, time: int) -> list[Span]:
        """The one window there is."""
        return [(LEAST, END)]


Window = Fixed | Sliding | Sessions | Global


def merged(spans: Iterable[Span]) -> list[tuple[Span, list[int]]]:
    """Sessions out of spans that overlap, each with the places of its spans among those given.

    Two that only touch are two sessions: an end is not in its window.
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
    """The window of so many days by the clocks of a zone; of 1970-01-01 and each so many days after it.

    Args:
        time: milliseconds since 1970.
        days: of the window.
        offset: milliseconds by those clocks after midnight at which a day begins.
        zone: name in the database of time zones.
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
    """When days begin by each of the clocks that a zone ever had: one that it has for less than a day is none.

    Before the first of these days a zone has the clock of its sun, and after the last one those of its last rule.
    """
    known, first = _zone(zone), datetime(1800, 1, 1, 12, tzinfo=timezone.utc)
    days = (first + timedelta(days=number) for number in range(300 * 366))
    ahead = {day.astimezone(known).utcoffset() or timedelta() for day in days}
    return tuple(sorted({(offset - one // timedelta(milliseconds=1)) % DAY for one in ahead}))


def _cycles(day: int) -> int:
    """How many times 400 years lie between a day and one that Python's calendar, of the years 1 to 9999, has.

    Calendar and clocks repeat with them; rows of 9999-12-31, which stand for "never", have a window as any.
    """
    return min(day - _FIRST, 0) // _CYCLE + -(-max(day - _LAST, 0) // _CYCLE)


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise wrong(f"timezone={name!r}", "no such zone is known here", 'name one: timezone="Europe/Berlin"') from error


def drain(_: object) -> int:
    """Say, in a last run, that nothing follows: ``note_time=EventTime("event_time", says=drain)`` closes all windows.

    The pipeline ends with that epoch (E135). It takes a batch, if an empty one: :func:`onceonly.heartbeat` gives one.
    """
    return END


def unit_of(size: Size) -> Unit:
    """What a size counts: milliseconds, or integers where it is a number."""
    return "ms" if isinstance(size, str) else "integer"


def length(name: str, said: object, *, least: int = 1) -> int:
    """A size in its unit.

    Raises:
        ConfigurationError: E140, it is none.
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
    """The refusal of panes that cannot mean anything."""
    return refuse("E140", problem=problem, cause=cause, next=way)
