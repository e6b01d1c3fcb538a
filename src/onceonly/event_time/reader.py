"""``TimeReader``: completeness of a dataset at a position, and waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.event_time.marker_sources import OfLedger, OfSink, Source, newest_of_all
from onceonly.event_time.positions import At, placed, position_of
from onceonly.event_time.scan import back_to
from onceonly.event_time.timestamps import Moment, number_of, spelled
from onceonly.machine.completeness import TimeWindow, members, window, window_at
from onceonly.machine.fixed_windows import FixedWindow, FixedWindows
from onceonly.machine.writer_progress import TimedMarker
from onceonly.protocol import Sink
from onceonly.reading.read_point import ReadPoint, opened
from onceonly_checkpoints.ledger import Ledger

if TYPE_CHECKING:
    from typing_extensions import Self

_LOOKS = 3
"""Reads of the writers until their epochs agree."""


class NotComplete(TimeoutError):
    """A dataset was not complete before the timeout.

    ``window`` is the last known completeness.
    """

    def __init__(self, words: str, known: TimeWindow) -> None:
        super().__init__(words)
        self.window = known


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

    def time_window(self, at: At | None = None) -> TimeWindow:
        """Return the completeness of the dataset, now or for a reader at a position.

        Args:
            at: a read point, a Delta version, the next offsets (``{"clicks": {"0": 5}}``, or the same as text), or the
                newest epoch read of each pipeline (``{"web": 7}``). Default: now.

        Raises:
            ConfigurationError: E110, no position in this dataset. E134, writers count in different units.
            DestinationError: the target does not answer.
            LedgerUnavailable: the ledger cannot be read.
        """
        return self._now() if at is None else self._at(at)

    def windows(self, size: FixedWindows, *, since: Moment) -> Iterator[FixedWindow]:
        """Return windows of one size up to the latest row, oldest first, all from one read.

        ``since`` is a datetime with a zone, ISO 8601 with a zone, or a number in the dataset's unit.

        Raises:
            ConfigurationError: E110, no moment, or a size of another unit.
        """
        known = self._now()
        if known.unit is not None and known.unit != size.unit:
            raise refuse(
                "E110",
                problem=f"{size} counts {size.unit}, and the dataset {known.unit}.",
                cause="a period in words is a time, a whole number is a count",
                next='FixedWindows("2 minutes")' if known.unit == "ms" else "FixedWindows(1000)",
            )
        return size.over(known, number_of(since, known.unit))

    def wait_complete(
        self, until: Moment, *, timeout: float = 60.0, poll: float = 1.0, allow_left_out: bool = False
    ) -> TimeWindow:
        """Wait until every row before a moment is committed.

        Args:
            until: a datetime with a zone, ISO 8601 with a zone, or a number in the dataset's unit.
            timeout: seconds.
            poll: seconds between two reads.
            allow_left_out: accept missing rows of writers that were left out, as silent or as late to join.

        Returns:
            The completeness that was read last.

        Raises:
            NotComplete: the timeout expired. It carries the last :class:`TimeWindow`.
            ConfigurationError: E110, no moment of this dataset.
        """
        deadline = time.monotonic() + timeout
        while True:
            known = self._now()
            if known.complete(number_of(until, known.unit), allow_left_out=allow_left_out):
                return known
            left = deadline - time.monotonic()
            if left <= 0:
                raise NotComplete(_not_complete(self.name, until, known), known)
            time.sleep(min(poll, left))

    def close(self) -> None:
        """Release connections. Idempotent."""
        self._source.close()

    # ---- helpers

    def _newest(self) -> dict[str, int]:
        """Newest epoch number of each writer of the dataset, 0 for a writer that only others know."""
        found, _ = self._looked()
        own = members(self.name, found)
        named = {self.name: 0, **{mark.writer: 0 for one in own for mark in one.observed}}
        return {**named, **{one.writer: one.epoch for one in own}}

    def _now(self) -> TimeWindow:
        # Writers are read one after the other: one that commits meanwhile may have seen a newer epoch of another than
        # this read. Only an epoch that stays missing was removed.
        known = TimeWindow(None, None)
        for _ in range(_LOOKS):
            found, taken = self._looked()
            known = window(members(self.name, found), taken)
            if set(known.lost) <= taken:
                break
        return known

    def _looked(self) -> tuple[list[TimedMarker], set[str]]:
        """Newest epochs of pipelines that may belong to the dataset, and names of those that lost newer ones."""
        found = newest_of_all(self._source, self.name)
        return [one.timed for one in found.values() if one.timed], {name for name, one in found.items() if one.taken}

    def _at(self, at: At) -> TimeWindow:
        until = at if isinstance(at, int) else None
        # Only the epochs may show the position of a read point.
        known = None if isinstance(at, ReadPoint) else position_of(at, self._source.sink, ())
        found, taken = back_to(self._source, self._newest(), known, until)
        position = position_of(at, self._source.sink, found)
        return window_at(placed(found, position), position, taken)


def _source(given: Any) -> Source:
    if isinstance(given, Sink):
        return OfSink(given)
    if isinstance(given, str | os.PathLike | Ledger):
        held = ExitStack()
        return OfLedger(held.enter_context(opened(given)), held.close)
    raise refuse(
        "E110",
        problem=f"TimeReader cannot read from {given!r}.",
        cause="it is neither a sink nor a ledger",
        next='TimeReader("clicks", DeltaSink("/tables/clicks")), or TimeReader("clicks", "sqlite:////path/ledger.db")',
    )


def _not_complete(name: str, until: Moment, known: TimeWindow) -> str:
    through = f"complete through {spelled(known.lower, known.unit)}"
    without = f"without {', '.join(known.without)}" if known.without else ""
    return f'"{name}" is not complete until {until}: {", ".join(filter(None, (through, without, waits_for(known))))}'


def waits_for(known: TimeWindow) -> str:
    """Words for the writers that a dataset waits for. Empty if there are none."""
    held = ", ".join(mark.writer for mark in known.held)
    return f"which waits for {held}" if held else ""
