"""Completeness window of a dataset, now or at a position. Pure.

A reader concludes nothing of its own: it joins what commits have concluded, so that two readers of one state are told
the same, whatever their clocks say. Source of the idea: Pravega's TimeWindow (PDP-33), whose bounds are of what was
read. These are of what is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from onceonly.machine.writer_progress import (
    TimedMarker,
    Vector,
    age,
    by_name,
    greatest,
    joined,
    least,
    one_unit,
    same_turns,
)
from onceonly_checkpoints.epoch_time import END, Unit, WriterProgress
from onceonly_checkpoints.model import pairs, present


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """How far a dataset has come in time, between what is complete and what was seen at all.

    Attributes:
        lower: every row before it is there, but for late ones, which are counted, and those of ``without``; ``None``:
            not known.
        upper: no row that was written is later; ``None``: not known.
        closed: nothing before it changes any more; ``None`` where nobody enforces that, and for several writers.
        without: writers that ``lower`` does not wait for: those on record as silent, and those that came back or
            joined later and have not passed it yet.
        lost: writers whose newest epochs are gone from the sink, put back or taken by somebody else, and who have not
            gone on since: what was concluded from those epochs does not count.
        at: the newest mark of each writer, by name: the epochs that this is as of.
        silent: writers that some commit has timed out, and that have not come back since.
        unit: what the numbers count; ``None`` where nothing was noted yet.
        basis: what is promised of: rows that are committed.
    """

    lower: int | None
    upper: int | None
    closed: int | None = None
    without: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    at: Vector = ()
    silent: tuple[str, ...] = ()
    unit: Unit | None = None
    basis: Literal["committed"] = "committed"

    @property
    def held(self) -> Vector:
        """The writers for which ``lower`` waits: none of them has passed it, and none is gone for good."""
        waited_for = (mark for mark in self.at if mark.writer not in self.silent and mark.noted != END)
        return tuple(mark for mark in waited_for if not passed(mark, self.lower))

    def to_json(self) -> dict[str, Any]:
        """Field names to values; absent is what is not known."""
        return present(
            unit=self.unit,
            lower=self.lower,
            upper=self.upper,
            closed=self.closed,
            without=list(self.without),
            lost=list(self.lost),
            held=[mark.writer for mark in self.held],
            silent=list(self.silent),
            at=[mark.to_json() for mark in self.at],
            basis=self.basis,
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        marks = "; ".join(f"{mark.writer}: epoch {mark.epoch}, noted {mark.noted}" for mark in self.at)
        return pairs({**self.to_json(), "at": marks}.items())

    def complete(self, until: int, *, allow_left_out: bool = False) -> bool:
        """Whether every row before ``until`` is there.

        Args:
            until: a time, in ``unit``.
            allow_left_out: whether writers of ``without`` may lack rows.
        """
        return self.lower is not None and until <= self.lower and (allow_left_out or not self.without)


EMPTY = TimeWindow(None, None)
"""Where nobody has noted anything."""


def passed(mark: WriterProgress, lower: int | None) -> bool:
    """Whether a writer has noted more than ``lower``; with ``None``, anything."""
    return mark.noted is not None and (lower is None or mark.noted > lower)


def window(newest: Sequence[TimedMarker], taken: Collection[str] = ()) -> TimeWindow:
    """What the newest epochs of a dataset's writers say together.

    Args:
        newest: one for each writer whose marker was found, in any order.
        taken: writers whose newer epochs are known to be gone from the sink; in ``newest`` is what is left of them.

    Raises:
        ConfigurationError: E134, two of them count in different units.
    """
    if not newest:
        return replace(EMPTY, lost=tuple(sorted(taken)))
    at = by_name(joined(*(one.observed for one in newest)))
    held = {one.writer: one.mark for one in newest}
    lost = {*taken, *(name for name, mark in held.items() if age(mark) < age(at[name]))}
    founded = [one for one in newest if same_turns(one, at) and not any(_gone(m, held, lost) for m in one.observed)]
    lower = greatest(one.time.lower for one in founded)
    silent = {mark.writer for one in founded for mark in one.observed if _still_silent(mark, one, at)}
    return TimeWindow(
        lower,
        greatest(one.time.high for one in newest),
        newest[0].time.closed if len(at) == 1 else None,
        tuple(name for name, mark in at.items() if lower is not None and not reaches(mark, lower)),
        tuple(sorted(lost)),
        tuple(at.values()),
        tuple(sorted(silent)),
        one_unit(newest),
    )


def _still_silent(mark: WriterProgress, one: TimedMarker, at: Mapping[str, WriterProgress]) -> bool:
    return mark.writer in one.time.silent and mark == at[mark.writer]


def reaches(mark: WriterProgress, lower: int) -> bool:
    """Whether a writer has noted at least so much."""
    return mark.noted is not None and mark.noted >= lower


def _gone(mark: WriterProgress, held: Mapping[str, WriterProgress], lost: Collection[str]) -> bool:
    """Whether an epoch that was seen is no longer in the sink."""
    if mark.writer not in lost or not mark.epoch:
        return False
    return mark.writer not in held or age(held[mark.writer]) < age(mark)


def members(name: str, newest: Iterable[TimedMarker]) -> tuple[TimedMarker, ...]:
    """The writers of the dataset that one of them belongs to: those whom they know, and those who know them.

    Args:
        name: of one of its writers.
        newest: epochs of whoever may be another one.
    """
    left, found = {one.writer: one for one in newest}, dict[str, TimedMarker]()
    known = {name}
    while more := [one for one in left.values() if known & {mark.writer for mark in one.observed}]:
        for one in more:
            found[one.writer] = left.pop(one.writer)
            known |= {mark.writer for mark in one.observed}
    return tuple(found[each] for each in sorted(found))


# ---- The window at a position: what is complete for whoever has read so far.

Cut = Mapping[str, int]
"""A place in a dataset: the next offset by partition, or one version under one name."""


@dataclass(frozen=True, slots=True)
class PlacedEpoch:
    """An epoch and the place up to which its sink then held rows.

    Attributes:
        timed: the epoch.
        cut: after its last row, and the last row of every epoch that it has seen.
    """

    timed: TimedMarker
    cut: Cut


def after_all(cuts: Iterable[Cut]) -> Cut:
    """The least place that has passed all of these."""
    found: dict[str, int] = {}
    for part, offset in chain.from_iterable(cut.items() for cut in cuts):
        found[part] = max(found.get(part, offset), offset)
    return found


def passes(position: Cut, cut: Cut) -> bool:
    """Whether a position has passed a place: at equality, too, as both say what is to be read next.

    A partition that the position does not know is not passed.
    """
    return all(part in position and position[part] >= offset for part, offset in cut.items())


def started_before(placed: Iterable[PlacedEpoch], position: Cut) -> frozenset[str]:
    """Writers with an epoch before a position: their older ones lie before it as well, and change nothing there."""
    before = (one for one in placed if passes(position, one.cut) and not passes(one.cut, position))
    return frozenset(one.timed.writer for one in before)


def window_at(placed: Sequence[PlacedEpoch], position: Cut, taken: Collection[str] = ()) -> TimeWindow:
    """What is complete for whoever has read up to a position, and how late a row it can have read.

    Places have no order of their own, only one in each partition: what a position has passed is one side, what has
    passed the position the other, and the rest says nothing (Pravega's TimeWindow of a stream cut).

    Args:
        placed: epochs of all writers, in any order.
        position: the next offset by partition.
        taken: as in :func:`window`.

    Raises:
        ConfigurationError: E134, two of them count in different units.
    """
    unit = one_unit(each.timed for each in placed)
    below = window(newest_of(each.timed for each in placed if passes(position, each.cut)), taken)
    return replace(below, upper=_latest_before(placed, position), unit=unit)


def _latest_before(placed: Sequence[PlacedEpoch], position: Cut) -> int | None:
    """No row before a position is later; ``None`` where one writer has not passed it, so that its rows may be."""
    above: dict[str, list[int | None]] = {each.timed.writer: [] for each in placed}
    for each in placed:
        if passes(each.cut, position):
            above[each.timed.writer].append(each.timed.time.high)
    oldest = [least(highs) for highs in above.values()]
    return None if None in oldest else greatest(oldest)


def newest_of(timed: Iterable[TimedMarker]) -> tuple[TimedMarker, ...]:
    """The newest epoch of each writer, by name."""
    found: dict[str, TimedMarker] = {}
    for one in timed:
        found[one.writer] = max(found.get(one.writer, one), one, key=lambda each: age(each.mark))
    return tuple(found[name] for name in sorted(found))
