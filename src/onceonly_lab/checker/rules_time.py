"""Checker rules for event time in markers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from onceonly_lab.checker.case import Read
from onceonly_lab.checker.finding import Anomaly, Finding, found
from onceonly_lab.checker.reading import Reading
from onceonly_lab.history import Mark, MarkTime


def untimely(reading: Reading) -> Iterator[Finding]:
    """Rows and what is said of their time appear together, and nothing that was said of time goes back.

    A pipeline says it from its first such epoch on in every one; what nobody says anything of is not judged. Numbers
    begin anew where a position was put back, in a turn of its own. That two sinks say different things of one epoch is
    :func:`~onceonly_lab.checker.rules_run.crossed`'s.
    """
    for sink in reading.case.sinks:
        reads = reading.case.seen(sink)
        for read in reads:
            yield from _in_one(read)
        yield from _said_anew(reading, sink, reads)


def _in_one(read: Read) -> Iterator[Finding]:
    marks = [mark for _, mark in sorted((read.markers or {}).items())]
    for before, mark in pairwise(marks):
        if what := _broken(before, mark):
            yield found(Anomaly.TIME, read.sink, mark.epoch, what, lines=(read.at,))


def _broken(before: Mark, mark: Mark) -> str:
    """What an epoch takes back of what the one before it said, in words."""
    previous, now = before.time, mark.time
    if previous is None:
        return ""
    if now is None:
        return f"says nothing of time, and epoch {before.epoch} does"
    back = now.turn < previous.turn or (now.turn == previous.turn and _less(previous, now))
    return f"says {spelled(mark)}, and epoch {before.epoch} {spelled(before)}" if back else ""


def _less(previous: MarkTime, now: MarkTime) -> bool:
    pairs = ((previous.noted, now.noted), (previous.lower, now.lower))
    return any(old is not None and (new is None or new < old) for old, new in pairs)


def _said_anew(reading: Reading, sink: str, reads: Sequence[Read]) -> Iterator[Finding]:
    """Markers that say another time than a reader has seen them say; a sink that was restored holds others."""
    first_marks: dict[int, tuple[Mark, int]] = {}
    for read in reads:
        restored = reading.case.last_restore(sink, read.at)
        for epoch, mark in (read.markers or {}).items():
            first, at = first_marks.setdefault(epoch, (mark, read.at))
            if at < restored:
                first_marks[epoch] = (mark, read.at)
            elif first.time != mark.time:
                what = f"says {spelled(mark)}, and said {spelled(first)}"
                yield found(Anomaly.TIME, sink, epoch, what, lines=(at, read.at))


def spelled(mark: Mark) -> str:
    """What a marker says of time, in words."""
    if mark.time is None:
        return "nothing of time"
    complete_until, lower = (_number(number) for number in (mark.time.noted, mark.time.lower))
    turn = f" in turn {mark.time.turn}" if mark.time.turn else ""
    return f"noted {complete_until}, complete through {lower}{turn}"


def _number(number: int | None) -> str:
    return "nothing" if number is None else str(number)
