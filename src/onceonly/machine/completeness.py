"""Completeness window of a dataset, now or at a position. Pure.

A reader draws no conclusion of its own. It joins those of commits, so that two readers of one state get the same
answer, whatever their clocks. Source of the idea: Pravega's TimeWindow (PDP-33), whose bounds refer to rows that were
read. These refer to committed rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from onceonly.errors.options import checks_arguments, misused
from onceonly.machine import writer_progress as progress
from onceonly_checkpoints.epoch_time import END, Unit, WriterProgress, milliseconds
from onceonly_checkpoints.model import ALWAYS, OPTIONAL, Record, members_of, pairs


@dataclass(frozen=True, slots=True)
class TimeWindow(Record):
    """Progress of a dataset in time: the complete part, and the latest time in it.

    Attributes:
        lower: every row before it is committed, except late ones, which are counted, and those of ``without``. ``None``
            if unknown.
        upper: no written row is later. ``None`` if unknown.
        closed: nothing before it changes any more. ``None`` if that is not enforced, and for several writers.
        without: writers that ``lower`` does not wait for: idle ones, and those that returned or joined later and have
            not passed it yet.
        lost: writers whose newest epochs were removed from the sink and that have not continued since. Conclusions from
            those epochs do not count.
        at: the newest mark of each writer, by name: the epochs of this window.
        silent: writers that a commit has timed out, and that have not returned since.
        unit: of the numbers, or ``None`` if nothing was recorded yet.
        basis: rows that the window refers to: committed ones.
    """

    lower: int | None = field(metadata=OPTIONAL)
    upper: int | None = field(metadata=OPTIONAL)
    closed: int | None = None
    without: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    at: progress.Vector = ()
    silent: tuple[str, ...] = ()
    unit: Unit | None = None
    basis: Literal["committed"] = field(default="committed", metadata=ALWAYS)

    @property
    def held(self) -> progress.Vector:
        """Writers that ``lower`` waits for: they have not passed it, and none has ended for good."""
        waited_for = (mark for mark in self.at if mark.writer not in self.silent and mark.complete_until != END)
        return tuple(mark for mark in waited_for if not passed(mark, self.lower))

    def to_json(self) -> dict[str, Any]:
        """Return field names to values, without unknown ones."""
        held = [mark.writer for mark in self.held]
        return {**members_of(self), **({"held": held} if held else {})}

    def _repr_html_(self) -> str:
        marks = "; ".join(f"{mark.writer}: epoch {mark.epoch}, noted {mark.complete_until}" for mark in self.at)
        return pairs({**self.to_json(), "at": marks}.items())

    def complete(self, until: int, *, allow_left_out: bool = False) -> bool:
        """Whether every row before ``until`` is committed. ``allow_left_out``: writers of ``without`` may lack rows."""
        return self.lower is not None and until <= self.lower and (allow_left_out or not self.without)


EMPTY = TimeWindow(None, None)
"""Where nobody has noted anything."""


def passed(mark: WriterProgress, lower: int | None) -> bool:
    """Whether a writer has noted more than ``lower``. With ``None``, anything is enough."""
    return mark.complete_until is not None and (lower is None or mark.complete_until > lower)


def window(newest: Sequence[progress.TimedMarker], lost_writers: Collection[str] = ()) -> TimeWindow:
    """Return the joint window of a dataset's writers, from the newest epoch of each (E134: units differ).

    ``lost_writers`` has writers whose newer epochs were removed from the sink. Their entry in ``newest`` is the rest.
    """
    if not newest:
        return replace(EMPTY, lost=tuple(sorted(lost_writers)))
    at = progress.by_name(progress.joined(*(marker.observed for marker in newest)))
    held = {marker.writer: marker.mark for marker in newest}
    lost = {*lost_writers, *(name for name, mark in held.items() if progress.age(mark) < progress.age(at[name]))}
    founded = [
        marker
        for marker in newest
        if progress.same_turns(marker, at) and not any(_gone(m, held, lost) for m in marker.observed)
    ]
    lower = progress.greatest(marker.time.dataset_complete_until for marker in founded)
    silent = {mark.writer for marker in founded for mark in marker.observed if _still_silent(mark, marker, at)}
    return TimeWindow(
        lower,
        progress.greatest(marker.time.max_time for marker in newest),
        newest[0].time.closed_until if len(at) == 1 else None,
        tuple(name for name, mark in at.items() if lower is not None and not reaches(mark, lower)),
        tuple(sorted(lost)),
        tuple(at.values()),
        tuple(sorted(silent)),
        progress.one_unit(newest),
    )


def _still_silent(mark: WriterProgress, marker: progress.TimedMarker, at: Mapping[str, WriterProgress]) -> bool:
    return mark.writer in marker.time.timed_out and mark == at[mark.writer]


def reaches(mark: WriterProgress, lower: int) -> bool:
    """Whether a writer has noted at least ``lower``."""
    return mark.complete_until is not None and mark.complete_until >= lower


def _gone(mark: WriterProgress, held: Mapping[str, WriterProgress], lost: Collection[str]) -> bool:
    """Whether an epoch that was seen was removed from the sink."""
    if mark.writer not in lost or not mark.epoch:
        return False
    return mark.writer not in held or progress.age(held[mark.writer]) < progress.age(mark)


def members(name: str, newest: Iterable[progress.TimedMarker]) -> tuple[progress.TimedMarker, ...]:
    """Return the writers of one writer's dataset: those that it has observed, and those that observed it."""
    left, member_markers = {marker.writer: marker for marker in newest}, dict[str, progress.TimedMarker]()
    writers = {name}
    while more := [marker for marker in left.values() if writers & {mark.writer for mark in marker.observed}]:
        for member in more:
            member_markers[member.writer] = left.pop(member.writer)
            writers |= {mark.writer for mark in member.observed}
    return tuple(member_markers[each] for each in sorted(member_markers))


# ---- The window at a position: what is complete for whoever has read so far.

Cut = Mapping[str, int]
"""A place in a dataset: the next offset by partition, or one version under one name."""


@dataclass(frozen=True, slots=True)
class PlacedEpoch:
    """An epoch. ``cut`` is after the last row that its sink then held, its own and those of every epoch seen."""

    timed: progress.TimedMarker
    cut: Cut


def after_all(cuts: Iterable[Cut]) -> Cut:
    """Return the least position that has passed all of these."""
    offsets: dict[str, int] = {}
    for part, offset in chain.from_iterable(cut.items() for cut in cuts):
        offsets[part] = max(offsets.get(part, offset), offset)
    return offsets


def passes(position: Cut, cut: Cut) -> bool:
    """Whether a position has passed another. Equality counts, because both name the next row to read.

    A partition that the position does not name is not passed.
    """
    return all(part in position and position[part] >= offset for part, offset in cut.items())


def started_before(placed: Iterable[PlacedEpoch], position: Cut) -> frozenset[str]:
    """Return writers with an epoch before a position. Older epochs of theirs change nothing there."""
    before = (epoch for epoch in placed if passes(position, epoch.cut) and not passes(epoch.cut, position))
    return frozenset(epoch.timed.writer for epoch in before)


def window_at(placed: Sequence[PlacedEpoch], position: Cut, lost_writers: Collection[str] = ()) -> TimeWindow:
    """Return the window of a reader at a position, the next offset by partition (E134: units differ).

    Positions are ordered in each partition only. Epochs that the position has passed are one side. Epochs that have
    passed the position are the other. The rest is undecided (Pravega's TimeWindow of a stream cut).
    """
    unit = progress.one_unit(each.timed for each in placed)
    below = window(newest_of(each.timed for each in placed if passes(position, each.cut)), lost_writers)
    return replace(below, upper=_latest_before(placed, position), unit=unit)


def _latest_before(placed: Sequence[PlacedEpoch], position: Cut) -> int | None:
    """Return the latest time of rows before a position, or ``None`` if a writer has not passed it yet."""
    above: dict[str, list[int | None]] = {each.timed.writer: [] for each in placed}
    for each in placed:
        if passes(each.cut, position):
            above[each.timed.writer].append(each.timed.time.max_time)
    oldest = [progress.least(highs) for highs in above.values()]
    return None if None in oldest else progress.greatest(oldest)


def newest_of(timed: Iterable[progress.TimedMarker]) -> tuple[progress.TimedMarker, ...]:
    """The newest epoch of each writer, by name."""
    newest: dict[str, progress.TimedMarker] = {}
    for marker in timed:
        newest[marker.writer] = max(newest.get(marker.writer, marker), marker, key=lambda each: progress.age(each.mark))
    return tuple(newest[name] for name in sorted(newest))


# ---- Fixed windows over time, and whether rows can still arrive. Pure.


Status = Literal["open", "complete", "closed"]
"""Rows may be missing, as of a writer that was left out; all are there but late ones; none is added or changed."""


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """A period from ``start`` to before ``end``. ``complete``: only late rows may come. ``closed``: none may."""

    start: int
    end: int
    status: Status


@checks_arguments
@dataclass(frozen=True, slots=True)
class FixedWindows:
    """Windows of one size, side by side: ``FixedWindows("2 minutes")``, or of integers ``FixedWindows(1000)``.

    Attributes:
        size: a period in words, or a whole number.
        offset: how far after 0 a window begins, as ``size``.

    Raises:
        ConfigurationError: E110, a size that is no period, or an offset that is not less than the size.
    """

    size: str | int
    offset: str | int = 0

    def __post_init__(self) -> None:
        """Refuse invalid periods."""
        size, offset = (_number(period) for period in (self.size, self.offset))
        mixed = self.offset != 0 and isinstance(self.size, str) != isinstance(self.offset, str)
        if size is None or offset is None or not 0 <= offset < size or mixed:
            raise misused(
                f"FixedWindows({self.size!r}, offset={self.offset!r}) is no size of windows.",
                "a size is a period in words or a whole number above 0, an offset the same and less than it",
                'FixedWindows("2 minutes"), FixedWindows("1 hour", offset="15 minutes"); '
                "of integers: FixedWindows(1000)",
            )

    @property
    def unit(self) -> Unit:
        """Unit of its numbers."""
        return "ms" if isinstance(self.size, str) else "integer"

    def over(self, time_window: TimeWindow, since: int) -> Iterator[FixedWindow]:
        """Return windows from ``since``, in the dataset's unit, to the latest row. Oldest first."""
        size, offset = _number(self.size) or 1, _number(self.offset) or 0
        start = (since - offset) // size * size + offset
        while time_window.upper is not None and start <= time_window.upper:
            yield FixedWindow(start, start + size, status(time_window, start + size))
            start += size


def status(time_window: TimeWindow, end: int) -> Status:
    """Whether rows can still come before ``end``."""
    if time_window.closed is not None and end <= time_window.closed:
        return "closed"
    return "complete" if time_window.complete(end) else "open"


def _number(size: str | int) -> int | None:
    return milliseconds(size) if isinstance(size, str) else size
