"""Parse and print timestamps, and the numbers that epochs keep. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from onceonly.errors import refuse
from onceonly.machine.event_time import text
from onceonly_checkpoints.epoch_time import Unit

Moment = datetime | str | int
"""A datetime with a zone, the same in ISO 8601, or a number in the dataset's unit."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SHORT_ZONE = re.compile(r"([+-]\d{2})(\d{2})?$")
_NUMBER = re.compile(r"[+-]?\d+")


def number_of(moment: Moment, unit: Unit | None) -> int:
    """Return a moment as a number in a unit. A text of digits is a number.

    Before any epoch has a unit, ``unit`` is ``None`` and every moment is valid.

    Raises:
        ConfigurationError: E110, no moment, one without a zone, or a date for a dataset that counts integers.
    """
    said = parsed(moment)
    if isinstance(said, int):
        return said
    if unit == "integer":
        cause = "what it counts is no time: block heights, versions, any number that only grows"
        raise refuse(
            "E110",
            problem=f"The dataset counts integers, and {moment} is a date.",
            cause=cause,
            next="give a number, as of: onceonly time show",
        )
    return (said - _EPOCH) // timedelta(milliseconds=1)


def parsed(moment: Moment) -> datetime | int:
    """Return a moment as a datetime with a zone, or as a number.

    Raises:
        ConfigurationError: E110, it is neither.
    """
    found = moment if isinstance(moment, datetime | int) else _read(moment)
    if isinstance(found, datetime) and found.tzinfo is None:
        utc, here = f"{found.isoformat()}Z", found.astimezone().isoformat()
        raise refuse(
            "E110",
            problem=f"{moment} has no time zone.",
            cause="the same words are another moment in another zone",
            next=f"{utc} in UTC, or {here} by the clock of this machine",
        )
    if isinstance(found, bool) or found is None:
        raise refuse(
            "E110",
            problem=f"{moment!r} is no moment.",
            cause="a moment is a date and a time in ISO 8601 with its zone, or a whole number",
            next="2026-01-31T12:00Z or 2026-01-31T13:00+01:00; of a dataset that counts integers, 1200",
        )
    return found


def _read(text: str) -> datetime | int | None:
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return datetime.fromisoformat(_long_zone(text))
    except ValueError:
        return None


def _long_zone(text: str) -> str:
    """Write the zone as Python 3.10 reads it: ``+00:00`` for ``Z``, ``+01:00`` for ``+01`` and ``+0100``."""
    date, mark, clock = re.sub("[Zz]$", "+00:00", text).partition("T" if "T" in text else " ")
    return f"{date}{mark}{_SHORT_ZONE.sub(_with_minutes, clock)}"


def _with_minutes(zone: re.Match[str]) -> str:
    return f"{zone[1]}:{zone[2] or '00'}"


def spelled(number: int | None, unit: Unit | None) -> str:
    """Return a number as ISO 8601 in UTC, or its digits. ``not known`` for none."""
    return "not known" if number is None else text(number, unit or "integer")
