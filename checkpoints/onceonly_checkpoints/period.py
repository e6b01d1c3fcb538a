"""Periods in words, as Spark's watermarks take them: ``7 days``. Pure."""

from __future__ import annotations

import re

_PERIOD = re.compile(r"\s*(0|[1-9][0-9]{0,8}) *([a-z]+)\s*")
_MILLISECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 604_800_000),
}


def milliseconds(period: object) -> int | None:
    """How long a period is; ``None`` where it is none.

    Args:
        period: a whole number and a unit, in full (``2 minutes``) or short (``2min``, ``0s``).
    """
    found = _PERIOD.fullmatch(period) if isinstance(period, str) else None
    unit = _MILLISECONDS.get(found[2]) if found else None
    return int(found[1]) * unit if found and unit else None
