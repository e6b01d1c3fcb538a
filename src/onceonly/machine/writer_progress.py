"""Progress of a dataset's writers, and exclusion of silent ones.

Pure. A commit carries the newest mark of every writer that its driver has seen, so what is known of writers only grows,
and the order in which it is learned does not matter: the join of two views is their least upper bound (version vectors:
Parker et al. 1983; state that only joins: Shapiro et al. 2011). What the dataset is complete through is the least that
its active writers noted, as a low watermark is over inputs (MillWheel); Pravega's controller keeps such marks and a
window between them (PDP-33). Here they are of what was committed, and a position that is put back counts as a new turn
of its writer: whatever was concluded from an older turn of it stands no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly_checkpoints.epoch_time import END, EpochTime, Unit, WriterProgress

if TYPE_CHECKING:
    from typing_extensions import Self

    from onceonly_checkpoints.epoch import Marker


@dataclass(frozen=True, slots=True)
class RewoundPosition:
    """That a position was cut back.

    Attributes:
        to: number of the epoch at which it stands since; 0 where an epoch may have followed.
        aside: marks of the epochs beyond that were set aside; empty where the ledger knows of none.
    """

    to: int
    aside: tuple[WriterProgress, ...] = ()


Vector = tuple[WriterProgress, ...]
"""A mark for each writer that was seen, by name."""

_BEFORE_ALL = -(2**63)


@dataclass(frozen=True, slots=True)
class TimedMarker:
    """A committed epoch that says something of time, and whose it is.

    Attributes:
        writer: name of its pipeline.
        epoch: its number.
        time: what it says.
    """

    writer: str
    epoch: int
    time: EpochTime

    @classmethod
    def of(cls, marker: Marker | None) -> Self | None:
        """The epoch of a marker; ``None`` where it says nothing of time."""
        if marker is None or marker.epoch.time is None:
            return None
        return cls(marker.pipeline, marker.epoch.number, marker.epoch.time)

    @property
    def mark(self) -> WriterProgress:
        """The writer's own mark."""
        time = self.time
        return WriterProgress(self.writer, self.epoch, time.noted, time.ingest, time.turn)

    @property
    def observed(self) -> Vector:
        """Every writer that it knows of, itself included: also where it is the only one."""
        return joined(self.time.observed, (self.mark,))


# ---- Joining what is known.


def joined(*vectors: Iterable[WriterProgress]) -> Vector:
    """The newest mark of each writer, whoever saw it and in whatever order.

    Marks are compared as (turn, epoch): epochs that were cut off have numbers that come again. Of two epochs 0 the one
    that was declared later is newer.
    """
    found: dict[str, WriterProgress] = {}
    for mark in chain.from_iterable(vectors):
        found[mark.writer] = max(found.get(mark.writer, mark), mark, key=age)
    return tuple(found[name] for name in sorted(found))


def age(mark: WriterProgress) -> tuple[int, int, int, int]:
    """What marks of one writer are compared by."""
    noted = _BEFORE_ALL if mark.noted is None else mark.noted
    return mark.turn, mark.epoch, mark.ingest, noted


def by_name(vector: Vector) -> Mapping[str, WriterProgress]:
    """The marks of a vector by the names of their writers."""
    return {mark.writer: mark for mark in vector}


def next_reset(writer: str, *vectors: Iterable[WriterProgress]) -> int:
    """The turn of the epoch with which a writer goes on after its position was put back, or with a new series.

    Args:
        writer: its name.
        vectors: what it knew itself and what its peers know: one of them may remember a turn that was cut off here.
    """
    return 1 + max((mark.turn for mark in chain.from_iterable(vectors) if mark.writer == writer), default=0)


def one_unit(timed: Iterable[TimedMarker]) -> Unit | None:
    """The unit in which all of them count; ``None`` without any.

    Raises:
        ConfigurationError: E134, two of them count differently.
    """
    first: TimedMarker | None = None
    for one in timed:
        first = first or one
        if one.time.unit != first.time.unit:
            raise refuse("E134", writer=one.writer, unit=one.time.unit, other=first.writer, theirs=first.time.unit)
    return first.time.unit if first else None


# ---- What a commit concludes.


@dataclass(frozen=True, slots=True)
class WriterSet:
    """What is said of a dataset's writers.

    Attributes:
        declared: those without whom nothing is complete, seen or not.
        timeout: after so long, by the recorded clocks of epochs, others do not wait for one that is silent;
            milliseconds. ``None``: they wait for ever.
    """

    declared: tuple[str, ...] = ()
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class DatasetView:
    """What one commit knows of the dataset.

    Attributes:
        observed: every writer that was ever seen or declared.
        silent: those of them that are timed out at this commit.
        lower: what the dataset is complete through; ``None``: not known.
    """

    observed: Vector
    silent: tuple[str, ...]
    lower: int | None


def clamped(said: int | None, before: int | None) -> int | None:
    """A number that never goes back: the greater of two; ``None`` counts as nothing said."""
    return greatest((said, before))


def known_lower(own: WriterProgress, last: TimedMarker | None, polled: Sequence[TimedMarker]) -> int | None:
    """What the dataset is complete through before a commit, for its horizon: as its writer and its peers have noted.

    Args:
        own: what is known of the commit: its turn counts, what it notes does not yet.
        last: the epoch before it, in whatever turn; ``None`` for the first one.
        polled: newest epochs of peers, as far as they answered.
    """
    told = (*polled, last) if last else tuple(polled)
    return _concluded(told, by_name(joined(*(one.observed for one in told), (own,))))


def concluded(
    own: WriterProgress, last: TimedMarker | None, polled: Sequence[TimedMarker], writers: WriterSet
) -> DatasetView:
    """What a commit knows of the dataset: writers seen and silent, and what it is complete through.

    A writer whose peers cannot be asked goes on with what it knows: an old view lags, it says nothing wrong, because
    a writer that was seen once is waited for until it is on record as silent.

    Args:
        own: what this commit says of its own writer.
        last: the epoch before it, in whatever turn; ``None`` for the first one.
        polled: newest epochs of peers, as far as they answered.
        writers: what is said of the dataset's writers.
    """
    told = (*polled, last) if last else tuple(polled)
    before = joined(*(one.observed for one in told))
    observed = joined((mark for mark in before if mark.writer != own.writer), _declared(own, before, writers), (own,))
    silent = _silent(own, observed, writers)
    active = [mark.noted for mark in observed if mark.writer not in silent]
    lower = greatest((_concluded(told, by_name(observed)), least(active)))
    return DatasetView(observed, silent, lower)


def _declared(own: WriterProgress, before: Vector, writers: WriterSet) -> Vector:
    """Those who were never seen; their time begins with the epoch that declares them, and is not begun again."""
    known = {mark.writer for mark in before} | {own.writer}
    return tuple(WriterProgress(name, 0, None, own.ingest) for name in writers.declared if name not in known)


def _silent(own: WriterProgress, observed: Vector, writers: WriterSet) -> tuple[str, ...]:
    limit = writers.timeout
    if limit is None:
        return ()
    others = (mark for mark in observed if mark.writer != own.writer and mark.noted != END)
    return tuple(mark.writer for mark in others if own.ingest - mark.ingest >= limit)


def _concluded(told: Iterable[TimedMarker], now: Mapping[str, WriterProgress]) -> int | None:
    """The greatest conclusion that others have drawn and that still stands."""
    return greatest(one.time.lower for one in told if same_turns(one, now))


def same_turns(one: TimedMarker, now: Mapping[str, WriterProgress]) -> bool:
    """Whether no writer was put back since; what was concluded from an epoch that is cut off is void.

    A writer of which no epoch was seen was not concluded from.
    """
    return all(not mark.epoch or now[mark.writer].turn == mark.turn for mark in one.observed)


def least(noted: Sequence[int | None]) -> int | None:
    """The least of them; ``None`` as long as one has noted nothing."""
    found = [each for each in noted if each is not None]
    return min(found) if found and len(found) == len(noted) else None


def greatest(numbers: Iterable[int | None]) -> int | None:
    """The greatest of them; ``None`` if there is none."""
    return max((each for each in numbers if each is not None), default=None)
