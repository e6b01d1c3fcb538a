"""Designs about event time: the shipped rules, each switched off.

The shipped rules are played as they are, and with one off at a time, from outside. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onceonly.machine import completeness, writer_progress
from onceonly.machine.completeness import TimeWindow
from onceonly.machine.writer_progress import DatasetView, TimedMarker, Vector, WriterSet
from onceonly_checkpoints.epoch_time import WriterProgress

Conclude = Callable[[WriterProgress, TimedMarker | None, Sequence[TimedMarker], WriterSet], DatasetView]


@dataclass(frozen=True, slots=True)
class Design:
    """How writers conclude what is complete, and how readers read it.

    Attributes:
        id: ``shipped``, or the number of a mutant.
        broken: what is, in words; empty for what ships.
        conclude: as :func:`onceonly.machine.writer_progress.concluded`.
        clamped: what is noted, of what was said and what was noted before.
        turn: of an epoch: its writer, whether its position was put back, and what is known of turns.
        recorded: the clock of an epoch: of when its batch was planned, and of its commit.
        read: what a reader at some clock is told by the newest epochs.
    """

    id: str
    broken: str
    conclude: Conclude
    clamped: Callable[[int | None, int | None], int | None]
    turn: Callable[[str, bool, Sequence[Vector]], int]
    recorded: Callable[[int, int], int]
    read: Callable[[Sequence[TimedMarker], int], TimeWindow]


def _turn(writer: str, back: bool, vectors: Sequence[Vector]) -> int:
    return max(0, writer_progress.next_reset(writer, *vectors) - (0 if back else 1))


SHIPPED = Design(
    "shipped",
    "",
    writer_progress.concluded,
    writer_progress.clamped,
    turn=_turn,
    recorded=lambda planned, now: planned,
    read=lambda newest, clock: completeness.window(newest),
)


def _greatest_of_the_active(
    own: WriterProgress, last: TimedMarker | None, polled: Sequence[TimedMarker], writers: WriterSet
) -> DatasetView:
    view = writer_progress.concluded(own, last, polled, writers)
    active = (mark.complete_until for mark in view.observed if mark.writer not in view.silent)
    return replace(view, lower=writer_progress.greatest((view.lower, *active)))


def _replaced_by_polled(
    own: WriterProgress, last: TimedMarker | None, polled: Sequence[TimedMarker], writers: WriterSet
) -> DatasetView:
    if last is not None and polled:
        last = replace(last, time=replace(last.time, writers=()))
    return writer_progress.concluded(own, last, polled, writers)


def _without_a_past(
    own: WriterProgress, last: TimedMarker | None, polled: Sequence[TimedMarker], writers: WriterSet
) -> DatasetView:
    markers = [
        replace(marker, time=replace(marker.time, dataset_complete_until=None))
        for marker in (*polled, *((last,) if last else ()))
    ]
    return writer_progress.concluded(own, markers.pop() if last else None, markers, writers)


PATIENCE = 40
"""How long the reader that has a clock of its own waits for a writer."""


def _by_its_own_clock(newest: Sequence[TimedMarker], clock: int) -> TimeWindow:
    time_window = completeness.window(newest)
    active = [mark.complete_until for mark in time_window.at if clock - mark.batch_timestamp_ms < PATIENCE]
    return replace(time_window, lower=writer_progress.greatest((time_window.lower, writer_progress.least(active))))


MUTANTS = (
    replace(SHIPPED, id="MT1", broken="the greatest of what active writers noted", conclude=_greatest_of_the_active),
    replace(SHIPPED, id="MT2", broken="what peers know takes the place of ours", conclude=_replaced_by_polled),
    replace(
        SHIPPED, id="MT3", broken="noted follows what was said", clamped=lambda complete_until, before: complete_until
    ),
    replace(SHIPPED, id="MT4", broken="lower follows what is noted now", conclude=_without_a_past),
    replace(
        SHIPPED,
        id="MT5",
        broken="declared writers are not waited for",
        conclude=lambda own, last, polled, writers: writer_progress.concluded(
            own, last, polled, replace(writers, declared=())
        ),
    ),
    replace(SHIPPED, id="MT6", broken="the clock at the commit is recorded", recorded=lambda planned, now: now),
    replace(SHIPPED, id="MT9", broken="a reader leaves writers out by its own clock", read=_by_its_own_clock),
    replace(
        SHIPPED,
        id="MT10",
        broken="epochs are joined by number, whatever was cut off",
        turn=lambda writer, back, vectors: 0,
    ),
)
"""Each must be called X-TIME."""
