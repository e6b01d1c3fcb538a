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
    """A row that came behind the horizon of its epoch.

    Attributes:
        epoch: the one that brought it.
        time: when it is of, in the dataset's unit.
        worst: how far behind the horizon that is.
        row: all of it, by the names of its columns.
    """

    epoch: int
    time: int
    worst: int
    row: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Field names to values; what JSON has no form for as text."""
        return {
            "epoch": self.epoch,
            "time": self.time,
            "worst": self.worst,
            "row": {name: plain(value) for name, value in self.row.items()},
        }


@dataclass(frozen=True, slots=True)
class LateRows:
    """Late rows that stand in a sink.

    Attributes:
        sink: its id.
        rows: the latest of all first, at most as many as were asked for.
        found: how many there are.
        counted: how many the epochs that were looked at say there are.
        unknown: epochs with late rows whose rows this sink does not tell, and why.
    """

    sink: str
    rows: tuple[LateRow, ...]
    found: int
    counted: int
    unknown: tuple[tuple[int, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {
            "sink": self.sink,
            "found": self.found,
            "counted": self.counted,
            "rows": [row.to_json() for row in self.rows],
            "unknown": [{"epoch": epoch, "why": why} for epoch, why in self.unknown],
        }


def late_rows(sink: Sink, epochs: Sequence[Epoch], limit: int) -> LateRows:
    """Look for the late rows of epochs in a sink.

    Args:
        sink: opened for reading.
        epochs: those to look at, of which some may have no late rows.
        limit: at most so many rows, which is what lies in memory.

    Raises:
        DestinationError: it does not answer.
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
    """The answer where a sink says nothing at all."""
    late = [epoch.number for epoch in epochs if epoch.time is not None and epoch.time.late]
    return LateRows(sink, (), 0, 0, tuple((number, why) for number in late))


def _untold(sink: str, epoch: Epoch, time: EpochTime) -> str:
    """Why a sink cannot tell which rows of an epoch were late; empty where it may."""
    if time.column is None or time.horizon is None:
        return "the epoch does not say which column its rows say their time in"
    output = epoch.output(sink)
    return f"the sink holds output {output.name}, not all the rows" if output else ""


class _Search:
    """Late rows among those that are read, one after the other.

    Attributes:
        unknown: epochs whose rows the sink does not tell, and why.
        found: how many late rows were seen.
    """

    def __init__(self, late: Mapping[int, EpochTime]) -> None:
        self._late = late
        self.unknown: dict[int, str] = {}
        self.found = 0

    @property
    def told(self) -> Mapping[int, EpochTime]:
        """What the other epochs say."""
        return {number: time for number, time in self._late.items() if number not in self.unknown}

    def among(self, sink: Sink) -> Iterator[LateRow]:
        """The late rows that stand in a sink, in any order."""
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
    """What a row says its time in, as a number, by floor.

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
    """A value as JSON has it; what JSON has no form for as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, int | str) else str(value)
