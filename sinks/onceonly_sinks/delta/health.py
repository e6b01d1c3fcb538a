"""Check a Delta table: can it be written, does it remember markers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onceonly.doctor import Check, Observed, State, spot
from onceonly.protocol.health import spell
from onceonly_sinks.delta.table import Table

_TRANSACTIONS = "delta.setTransactionRetentionDuration"
_LOG = "delta.logRetentionDuration"
_LOG_DEFAULT = "interval 30 days"
_FILES = "delta.deletedFileRetentionDuration"
_FILES_DEFAULT = "interval 1 week"
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
    """The nearest existing directory at or above the place, and whether this user may create files in it."""

    nearest: str
    writable: bool


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Version, set properties, number of data files and their bytes.

    ``beyond`` is the reason why deltalake cannot commit to the table. ``None`` if it can.
    """

    version: int
    properties: Mapping[str, str]
    unsupported: str | None = None
    files: int = 0
    size: int = 0


def read(table: Table) -> tuple[PlaceFacts | None, TableFacts | None]:
    """Look at the place, if it is local, and at the table in it, if there is one."""
    directory = None
    if table.is_local:
        root = Path(table.root)
        nearest = next(path for path in (root, *root.parents) if path.exists())
        directory = PlaceFacts(str(nearest), os.access(nearest, os.W_OK | os.X_OK))
    handle = table.reopen()
    if handle is None:
        return directory, None
    sizes = handle.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    properties = dict(handle.metadata().configuration)
    return directory, TableFacts(handle.version(), properties, table.needs_spark(), len(sizes), sum(sizes))


def judge(
    name: str, directory: PlaceFacts | None, table: TableFacts | None, observed: Observed, *, merges: bool
) -> Iterator[Check]:
    """Run the checks D301 to D307.

    ``directory`` is ``None`` if it cannot be judged, and ``table`` before the first epoch. ``observed`` holds durations
    of past epochs.
    """
    if directory is not None and directory.writable:
        yield Check(name, State.OK, f"{directory.nearest} can be written")
    elif directory is not None:
        yield spot("D303", name, place=directory.nearest)
    if table is None:
        yield Check(name, State.HINT, "there is no such table yet; the first epoch creates it")
        return
    yield Check(name, State.OK, f"readable at version {table.version}")
    yield from _remembering(name, table.properties, observed)
    yield from _outlasting(name, table.properties, observed)
    if table.unsupported:
        yield spot("D304", name, State.HINT, beyond=table.unsupported)
    else:
        yield Check(name, State.OK, "deltalake can commit there")
    if merges and table.properties.get(_APPEND_ONLY) == "true":
        yield spot("D305", name)
    if table.files >= _MANY_FILES and table.size < table.files * _SMALL:
        yield spot(
            "D306", name, State.HINT, files=f"{table.files:,}", size=f"{table.size // table.files // 1024:,} KiB"
        )


def _remembering(name: str, properties: Mapping[str, str], observed: Observed) -> Iterator[Check]:
    """Compare the table's retention of markers with the pipeline's longest pause."""
    if marker_retention := properties.get(_TRANSACTIONS):
        yield spot("D301", name, retention=marker_retention)
    else:
        yield Check(name, State.OK, "application versions are kept for ever")
    retention = properties.get(_LOG, _LOG_DEFAULT)
    seconds = interval_s(retention)
    if seconds is not None and observed.epochs and observed.longest_gap_s * _HEADROOM >= seconds:
        state = State.PROBLEM if observed.longest_gap_s >= seconds else State.HINT
        days = max(30, int(-(-observed.longest_gap_s * 3 // _DAY_S)))
        yield spot("D302", name, state, retention=retention, longest=spell(observed.longest_gap_s), enough_days=days)


def _outlasting(name: str, properties: Mapping[str, str], observed: Observed) -> Iterator[Check]:
    """Check that files of a version are retained for as long as readers need it."""
    retention = properties.get(_FILES, _FILES_DEFAULT)
    seconds = interval_s(retention)
    if seconds is not None and observed.longest_pin_s * _HEADROOM >= seconds:
        state = State.PROBLEM if observed.longest_pin_s >= seconds else State.HINT
        hours = max(1, int(-(-observed.longest_pin_s * 3 // 3600)))
        yield spot("D307", name, state, kept=retention, pinned=spell(observed.longest_pin_s), enough_hours=hours)


def interval_s(text: str) -> float | None:
    """Seconds of an interval in Delta's spelling, ``interval 2 weeks 1 day``. ``None`` for anything else."""
    parts = _PART.findall(text.lower())
    return sum(int(number) * _SECONDS[unit] for number, unit in parts) if parts else None
