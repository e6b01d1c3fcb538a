"""``TimeReader``: completeness of a dataset at a position, and waiting."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from onceonly.errors.options import checks_arguments, misused
from onceonly.event_time import marker_sources
from onceonly.machine import completeness
from onceonly.machine.event_time import text
from onceonly.machine.writer_progress import TimedMarker
from onceonly.protocol import Sink
from onceonly.reading.points import ReadPoint, opened
from onceonly_checkpoints.epoch_time import Unit
from onceonly_checkpoints.ledger import Ledger

if TYPE_CHECKING:
    from typing_extensions import Self

# ---- Parse and print timestamps, and the numbers that epochs keep. Pure.

Moment = datetime | str | int
"""A datetime with a zone, the same in ISO 8601, or a number in the dataset's unit."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SHORT_ZONE = re.compile(r"([+-]\d{2})(\d{2})?$")
_NUMBER = re.compile(r"[+-]?\d+")


def number_of(moment: Moment, unit: Unit | None) -> int:
    """Return a moment as a number in a unit (E110: no moment, no zone, or a date among integers).

    A text of digits is a number. Before any epoch has a unit, ``unit`` is ``None`` and every moment is valid.
    """
    parsed_moment = parsed(moment)
    if isinstance(parsed_moment, int):
        return parsed_moment
    if unit == "integer":
        cause = "it counts no time, but block heights, versions or any number that only grows"
        raise misused(
            f"The dataset counts integers, and {moment} is a date.", cause, "give a number, as of: onceonly time show"
        )
    return (parsed_moment - _EPOCH) // timedelta(milliseconds=1)


def parsed(moment: Moment) -> datetime | int:
    """Return a moment as a datetime with a zone, or as a number (E110: it is neither)."""
    parsed_moment = moment if isinstance(moment, datetime | int) else _read(moment)
    if isinstance(parsed_moment, datetime) and parsed_moment.tzinfo is None:
        utc, local_time = f"{parsed_moment.isoformat()}Z", parsed_moment.astimezone().isoformat()
        raise misused(
            f"{moment} has no time zone.",
            "the same words are another moment in another zone",
            f"{utc} in UTC, or {local_time} by the clock of this machine",
        )
    if isinstance(parsed_moment, bool) or parsed_moment is None:
        raise misused(
            f"{moment!r} is no moment.",
            "a moment is a date and a time in ISO 8601 with its zone, or a whole number",
            "2026-01-31T12:00Z or 2026-01-31T13:00+01:00; of a dataset that counts integers, 1200",
        )
    return parsed_moment


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
    return date + mark + _SHORT_ZONE.sub(lambda zone: f"{zone[1]}:{zone[2] or '00'}", clock)


def spelled(number: int | None, unit: Unit | None) -> str:
    """Return a number as ISO 8601 in UTC, or its digits. ``not known`` for none."""
    return "not known" if number is None else text(number, unit or "integer")


# ---- ``TimeReader``: completeness of a dataset at a position, and waiting.

_LOOKS = 3
"""Reads of the writers until their epochs agree."""
_FIRST = 16
"""Epochs that are read at first: who reads along is a few behind at most."""

_WIDER = 8


class NotComplete(TimeoutError):
    """A dataset was not complete before the timeout. ``window`` is the last known completeness."""

    def __init__(self, words: str, time_window: completeness.TimeWindow) -> None:
        super().__init__(words)
        self.window = time_window


@checks_arguments
class TimeReader:
    """Reads the completeness of a dataset. It reads markers only: no fence, no Spark, no write.

    Sinks are read as other readers see them, so a complete range is visible. If several pipelines write one dataset,
    each knows the others: name any of them.

    Args:
        name: of a pipeline that writes the dataset.
        source: a sink of its own on the target (``DeltaSink(path)``), or the pipeline's ledger: URL, path, or an open
            one. A ledger knows no more than it has recorded, and less if it was lost.

    Raises:
        ConfigurationError: E110, a query writes with this sink.
    """

    def __init__(self, name: str, source: Sink | Ledger | str | os.PathLike[str]) -> None:
        self.name = name
        self._source = _source(source)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release connections."""
        self.close()

    def time_window(self, at: marker_sources.At | None = None) -> completeness.TimeWindow:
        """Return the completeness of the dataset, now or at a position.

        Args:
            at: a read point, a Delta version, the next offsets (``{"clicks": {"0": 5}}``, or the same as text), or the
                newest epoch read of each pipeline (``{"web": 7}``). Default: now.

        Raises:
            ConfigurationError: E110, no position in this dataset. E134, writers count in different units.
            DestinationError: the target does not answer.
            LedgerUnavailable: the ledger cannot be read.
        """
        return self._now() if at is None else self._at(at)

    def windows(self, size: completeness.FixedWindows, *, since: Moment) -> Iterator[completeness.FixedWindow]:
        """Return windows of one size up to the latest row. Oldest first, all from one read.

        ``since`` is a datetime with a zone, ISO 8601 with a zone, or a number in the dataset's unit.

        Raises:
            ConfigurationError: E110, no moment, or a size of another unit.
        """
        time_window = self._now()
        if time_window.unit is not None and time_window.unit != size.unit:
            raise misused(
                f"{size} counts {size.unit}, and the dataset {time_window.unit}.",
                "a period in words is a time, a whole number is a count",
                'FixedWindows("2 minutes")' if time_window.unit == "ms" else "FixedWindows(1000)",
            )
        return size.over(time_window, number_of(since, time_window.unit))

    def wait_complete(
        self, until: Moment, *, timeout: float = 60.0, poll: float = 1.0, allow_left_out: bool = False
    ) -> completeness.TimeWindow:
        """Wait until every row before a moment is committed.

        Args:
            until: a datetime with a zone, ISO 8601 with a zone, or a number in the dataset's unit.
            timeout: seconds.
            poll: seconds between two reads.
            allow_left_out: accept missing rows of writers that were left out, as idle or as late to join.

        Returns:
            The completeness that was read last.

        Raises:
            NotComplete: the timeout expired. It carries the last :class:`TimeWindow`.
            ConfigurationError: E110, no moment of this dataset.
        """
        deadline = time.monotonic() + timeout
        while True:
            time_window = self._now()
            if time_window.complete(number_of(until, time_window.unit), allow_left_out=allow_left_out):
                return time_window
            left = deadline - time.monotonic()
            if left <= 0:
                raise NotComplete(_not_complete(self.name, until, time_window), time_window)
            time.sleep(min(poll, left))

    def close(self) -> None:
        """Release connections. Idempotent."""
        self._source.close()

    # ---- helpers

    def _newest(self) -> dict[str, int]:
        """Newest epoch number of each writer of the dataset, 0 for a writer that only others know."""
        markers, _ = self._looked()
        own = completeness.members(self.name, markers)
        named = {self.name: 0, **{mark.writer: 0 for marker in own for mark in marker.observed}}
        return {**named, **{marker.writer: marker.epoch for marker in own}}

    def _now(self) -> completeness.TimeWindow:
        # Writers are read one after the other: one that commits meanwhile may have seen a newer epoch of another than
        # this read. Only an epoch that stays missing was removed.
        time_window = completeness.TimeWindow(None, None)
        for _ in range(_LOOKS):
            markers, lost_writers = self._looked()
            time_window = completeness.window(completeness.members(self.name, markers), lost_writers)
            if set(time_window.lost) <= lost_writers:
                break
        return time_window

    def _looked(self) -> tuple[list[TimedMarker], set[str]]:
        """Newest epochs of pipelines that may belong to the dataset, and names of those that lost newer ones."""
        newest = marker_sources.newest_of_all(self._source, self.name)
        return [newest_epoch.timed for newest_epoch in newest.values() if newest_epoch.timed], {
            name for name, newest_epoch in newest.items() if newest_epoch.has_removed_epochs
        }

    def _at(self, at: marker_sources.At) -> completeness.TimeWindow:
        until = at if isinstance(at, int) else None
        # Only the epochs may show the position of a read point.
        cut = None if isinstance(at, ReadPoint) else marker_sources.position_of(at, self._source.sink, ())
        epochs, lost_writers = _back_to(self._source, self._newest(), cut, until)
        position = marker_sources.position_of(at, self._source.sink, epochs)
        return completeness.window_at(marker_sources.placed(epochs, position), position, lost_writers)


def _source(source: Any) -> marker_sources.Source:
    if isinstance(source, Sink):
        return marker_sources.OfSink(source)
    if isinstance(source, str | os.PathLike | Ledger):
        held = ExitStack()
        return marker_sources.OfLedger(held.enter_context(opened(source)), held.close)
    raise misused(
        f"TimeReader cannot read from {source!r}.",
        "it is neither a sink nor a ledger",
        'TimeReader("clicks", DeltaSink("/tables/clicks")), or TimeReader("clicks", "sqlite:////path/ledger.db")',
    )


def _not_complete(name: str, until: Moment, time_window: completeness.TimeWindow) -> str:
    through = f"complete until {spelled(time_window.lower, time_window.unit)}"
    without = f"without {', '.join(time_window.without)}" if time_window.without else ""
    return (
        f'"{name}" is not complete until {until}: {", ".join(filter(None, (through, without, waits_for(time_window))))}'
    )


def waits_for(time_window: completeness.TimeWindow) -> str:
    """Words for the writers that a dataset waits for. Empty if there are none."""
    held = ", ".join(mark.writer for mark in time_window.held)
    return f"which waits for {held}" if held else ""


def _back_to(
    source: marker_sources.Source, newest: Mapping[str, int], position: completeness.Cut | None, until: int | None
) -> tuple[tuple[marker_sources.MarkerWithReceipt, ...], frozenset[str]]:
    """Return epochs that decide the completeness at a position, and writers whose newer epochs were removed.

    Each writer is read back to an epoch that certainly lies before the position. Older ones lie there too, and add
    nothing. If there is none yet, the next read is eight times as long. So the cost is proportional to the distance of
    the position from the newest epoch.

    Args:
        source: of the markers.
        newest: epoch number by writer, 0 if unknown.
        position: the next offset by partition. ``None`` reads everything.
        until: the last version of the target to read.
    """
    step = _FIRST
    pairs_by_writer: dict[str, tuple[Sequence[marker_sources.MarkerWithReceipt], bool]] = {}
    left = dict(newest)
    while True:
        after = {name: max(0, number - step) if position is not None else 0 for name, number in left.items()}
        pairs_by_writer |= {name: source.all(name, until, after[name]) for name in left}
        all_pairs = tuple(pair for pairs, _ in pairs_by_writer.values() for pair in pairs)
        lost_writers = frozenset(name for name, (_, gone) in pairs_by_writer.items() if gone)
        reached = frozenset[str]()
        if position is not None:
            reached = completeness.started_before(marker_sources.placed(all_pairs, position), position)
        left = {name: number for name, number in left.items() if after[name] and name not in reached}
        if not left:
            return all_pairs, lost_writers
        step *= _WIDER
