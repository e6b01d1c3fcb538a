"""How long a table remembers what was written to it, against how long its pipeline stands still. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceonly.doctor import Check, Observed, State, spot
from onceonly.doctor.observed import spell

_TRANSACTIONS = "delta.setTransactionRetentionDuration"
_LOG = "delta.logRetentionDuration"
_LOG_DEFAULT = "interval 30 days"
_DAY_S = 86400.0
_HEADROOM = 2

_PART = re.compile(r"(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?")
_SECONDS: Mapping[str, float] = {
    "week": 7 * _DAY_S,
    "day": _DAY_S,
    "hour": 3600.0,
    "minute": 60.0,
    "second": 1.0,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
}


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as it is.

    Attributes:
        version: its newest.
        properties: those that are set.
    """

    version: int
    properties: Mapping[str, str]


def judge(name: str, table: TableFacts | None, observed: Observed) -> Iterator[Check]:
    """D301, D302.

    Args:
        name: the sink's address.
        table: ``None`` where there is none yet.
        observed: what past epochs took.
    """
    if table is None:
        yield Check(name, State.HINT, "there is no such table yet; the first epoch creates it")
        return
    yield Check(name, State.OK, f"readable at version {table.version}")
    if kept := table.properties.get(_TRANSACTIONS):
        yield spot("D301", name, retention=kept)
    retention = table.properties.get(_LOG, _LOG_DEFAULT)
    seconds = interval_s(retention)
    if seconds is not None and observed.epochs and observed.longest_gap_s * _HEADROOM >= seconds:
        state = State.PROBLEM if observed.longest_gap_s >= seconds else State.HINT
        days = max(30, int(-(-observed.longest_gap_s * 3 // _DAY_S)))
        yield spot("D302", name, state, retention=retention, longest=spell(observed.longest_gap_s), enough_days=days)


def interval_s(text: str) -> float | None:
    """Seconds of an interval as Delta spells it, ``interval 2 weeks 1 day``; ``None`` where it is not one."""
    parts = _PART.findall(text.lower())
    return sum(int(number) * _SECONDS[unit] for number, unit in parts) if parts else None
