"""Read late rows from a sink, without Spark."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from onceonly.protocol import Readable, Sink
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochTime, Unit

_BEGIN = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class LateRow:
    """A row behind the horizon of the epoch that wrote it.

    ``time`` and ``worst``, the distance from the horizon, are in the dataset's unit.
    """

    epoch: int
    time: int
    worst: int
    row: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return field names and values, as text if JSON has no form."""
        return {
            "epoch": self.epoch,
            "time": self.time,
            "worst": self.worst,
            "row": {name: plain(value) for name, value in self.row.items()},
        }


@dataclass(frozen=True, slots=True)
class LateRows:
    """Late rows in a sink.

    Attributes:
        rows: the latest first, up to the limit.
        counted: number of late rows in the markers of these epochs.
        unknown: epochs whose late rows this sink does not show, with the reason.
    """

    sink: str
    rows: tuple[LateRow, ...]
    found: int
    counted: int
    unknown: tuple[tuple[int, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return field names and values."""
        return {
            "sink": self.sink,
            "found": self.found,
            "counted": self.counted,
            "rows": [row.to_json() for row in self.rows],
            "unknown": [{"epoch": epoch, "why": why} for epoch, why in self.unknown],
        }


def late_rows(sink: Sink, epochs: Sequence[Epoch], limit: int) -> LateRows:
    """Find the late rows of epochs in a sink that is open for reading.

    At most ``limit`` rows are returned and kept in memory.

    Raises:
        DestinationError: the sink does not answer.
    """
    late = [(epoch, epoch.time) for epoch in epochs if epoch.time is not None and epoch.time.late]
    search = _Search({one.number: time for one, time in late})
    for one, time in late:
        if why := _untold(sink.id, one, time):
            search.unknown[one.number] = why
    rows = search.among(sink)
    foremost = heapq.nlargest(limit, rows, key=lambda one: (one.worst, -one.epoch))
    counted = sum(time.late for time in search.told.values())
    return LateRows(sink.id, tuple(foremost), search.found, counted, tuple(sorted(search.unknown.items())))


def nothing_told(sink: str, epochs: Sequence[Epoch], why: str) -> LateRows:
    """Result for a sink that shows no rows."""
    late = [epoch.number for epoch in epochs if epoch.time is not None and epoch.time.late]
    return LateRows(sink, (), 0, 0, tuple((number, why) for number in late))


def _untold(sink: str, epoch: Epoch, time: EpochTime) -> str:
    """Reason why a sink cannot show the late rows of an epoch. Empty if it may."""
    if time.column is None or time.horizon is None:
        return "the epoch does not say which column its rows say their time in"
    output = epoch.output(sink)
    return f"the sink holds output {output.name}, not all the rows" if output else ""


class _Search:
    """Search for late rows in a stream of rows. ``unknown`` are epochs that the sink does not show, with the reason."""

    def __init__(self, late: Mapping[int, EpochTime]) -> None:
        self._late = late
        self.unknown: dict[int, str] = {}
        self.found = 0

    @property
    def told(self) -> Mapping[int, EpochTime]:
        """Event times of the other epochs."""
        return {number: time for number, time in self._late.items() if number not in self.unknown}

    def among(self, sink: Sink) -> Iterator[LateRow]:
        """Yield the late rows of a sink, in any order."""
        told = self.told
        if not told:
            return
        rows = sink.read_rows((min(told), max(told))) if isinstance(sink, Readable) else None
        if rows is None:
            mixed = isinstance(sink, Readable)
            why = "the target does not tell which epoch brought a row" if mixed else "such a sink is only written"
            self.unknown.update(dict.fromkeys(told, why))
            return
        for number, row in rows:
            if number in told and (one := self._late_row(number, told[number], row)) is not None:
                self.found += 1
                yield one

    def _late_row(self, number: int, time: EpochTime, row: Mapping[str, Any]) -> LateRow | None:
        try:
            at = _number(row[time.column or ""], time.unit)
        except (KeyError, TypeError):
            self.unknown[number] = f"its rows lie there without a time in {time.column}"
            return None
        if at is None or time.horizon is None or at >= time.horizon:
            return None
        return LateRow(number, at, time.horizon - at, row)


def _number(value: Any, unit: Unit) -> int | None:
    """Return a row's time as a number, rounded down.

    Raises:
        TypeError: it is no time.
    """
    if value is None:
        return None
    if unit == "integer" and isinstance(value, int):
        return value
    if unit == "ms" and isinstance(value, datetime) and value.tzinfo:
        return (value - _BEGIN) // timedelta(milliseconds=1)
    raise TypeError(type(value).__name__)


def plain(value: Any) -> Any:
    """Return a value for JSON, as text if JSON has no form."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, int | str) else str(value)
