"""Whether a place can be written, a table remembers what was written, and who can commit to it. Rules are pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onceonly.doctor import Check, Observed, State, spot
from onceonly.doctor.observed import spell
from onceonly_sinks.delta.table import Table

_TRANSACTIONS = "delta.setTransactionRetentionDuration"
_LOG = "delta.logRetentionDuration"
_LOG_DEFAULT = "interval 30 days"
_APPEND_ONLY = "delta.appendOnly"
_MANY_FILES = 1000
_SMALL = 4 * 1024 * 1024
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
class PlaceFacts:
    """A directory of this machine.

    Attributes:
        nearest: the table's, or the nearest above it that is there.
        writable: whether this user may create files in it.
    """

    nearest: str
    writable: bool


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as it is.

    Attributes:
        version: its newest.
        properties: those that are set.
        beyond: why deltalake cannot commit to it, in words; ``None`` if it can.
        files: how many data files it has.
        size: bytes in them.
    """

    version: int
    properties: Mapping[str, str]
    beyond: str | None = None
    files: int = 0
    size: int = 0


def read(table: Table) -> tuple[PlaceFacts | None, TableFacts | None]:
    """Look at a place, which only a local one lets us judge, and at the table in it, if there is one."""
    place = None
    if table.is_local:
        root = Path(table.root)
        nearest = next(path for path in (root, *root.parents) if path.exists())
        place = PlaceFacts(str(nearest), os.access(nearest, os.W_OK | os.X_OK))
    handle = table.reopen()
    if handle is None:
        return place, None
    sizes = handle.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    properties = dict(handle.metadata().configuration)
    return place, TableFacts(handle.version(), properties, table.needs_spark(), len(sizes), sum(sizes))


def judge(
    name: str, place: PlaceFacts | None, table: TableFacts | None, observed: Observed, *, merges: bool
) -> Iterator[Check]:
    """D301 to D306.

    Args:
        name: the sink's address.
        place: ``None`` where it cannot be judged.
        table: ``None`` where there is none yet.
        observed: what past epochs took.
        merges: whether rows are replaced.
    """
    if place is not None and place.writable:
        yield Check(name, State.OK, f"{place.nearest} can be written")
    elif place is not None:
        yield spot("D303", name, place=place.nearest)
    if table is None:
        yield Check(name, State.HINT, "there is no such table yet; the first epoch creates it")
        return
    yield Check(name, State.OK, f"readable at version {table.version}")
    yield from _remembering(name, table.properties, observed)
    if table.beyond:
        yield spot("D304", name, State.HINT, beyond=table.beyond)
    else:
        yield Check(name, State.OK, "deltalake can commit there")
    if merges and table.properties.get(_APPEND_ONLY) == "true":
        yield spot("D305", name)
    if table.files >= _MANY_FILES and table.size < table.files * _SMALL:
        yield spot(
            "D306", name, State.HINT, files=f"{table.files:,}", size=f"{table.size // table.files // 1024:,} KiB"
        )


def _remembering(name: str, properties: Mapping[str, str], observed: Observed) -> Iterator[Check]:
    """How long the table remembers what was written to it, against how long its pipeline stands still."""
    if kept := properties.get(_TRANSACTIONS):
        yield spot("D301", name, retention=kept)
    else:
        yield Check(name, State.OK, "application versions are kept for ever")
    retention = properties.get(_LOG, _LOG_DEFAULT)
    seconds = interval_s(retention)
    if seconds is not None and observed.epochs and observed.longest_gap_s * _HEADROOM >= seconds:
        state = State.PROBLEM if observed.longest_gap_s >= seconds else State.HINT
        days = max(30, int(-(-observed.longest_gap_s * 3 // _DAY_S)))
        yield spot("D302", name, state, retention=retention, longest=spell(observed.longest_gap_s), enough_days=days)


def interval_s(text: str) -> float | None:
    """Seconds of an interval as Delta spells it, ``interval 2 weeks 1 day``; ``None`` where it is not one."""
    parts = _PART.findall(text.lower())
    return sum(int(number) * _SECONDS[unit] for number, unit in parts) if parts else None
