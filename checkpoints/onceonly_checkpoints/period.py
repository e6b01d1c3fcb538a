"""Parse periods such as ``7 days`` or ``500 milliseconds``, as Spark does.

Spark's watermarks take the same spelling. Pure.
"""

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
    """Length of a period, or ``None`` if it is none.

    A period is a whole number and a unit, in full (``2 minutes``) or short (``2min``, ``0s``).
    """
    found = _PERIOD.fullmatch(period) if isinstance(period, str) else None
    unit = _MILLISECONDS.get(found[2]) if found else None
    return int(found[1]) * unit if found and unit else None
