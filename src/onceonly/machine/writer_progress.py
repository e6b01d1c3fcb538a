"""Progress of a dataset's writers, and exclusion of silent ones.

Pure. A commit carries the newest mark of every writer that its driver has seen. So knowledge of writers only grows, and
its order does not matter: the join of two views is their least upper bound (version vectors: Parker et al. 1983, state
that only joins: Shapiro et al. 2011). The dataset is complete through the least time that its active writers noted, as
a low watermark is over inputs (MillWheel). Pravega's controller keeps such marks and a window between them (PDP-33).
Here they refer to committed rows. A position reset starts a new turn of its writer, which voids conclusions from older
turns.
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
    """A rewind of the position to epoch ``to``, which is 0 if an epoch may have followed.

    ``aside`` has marks of the later epochs that were set aside. It is empty if the ledger has none.
    """

    to: int
    aside: tuple[WriterProgress, ...] = ()


Vector = tuple[WriterProgress, ...]
"""A mark for each writer that was seen, by name."""

_BEFORE_ALL = -(2**63)


@dataclass(frozen=True, slots=True)
class TimedMarker:
    """A committed epoch with a time, and the pipeline that wrote it."""

    writer: str
    epoch: int
    time: EpochTime

    @classmethod
    def of(cls, marker: Marker | None) -> Self | None:
        """Return the epoch of a marker, or ``None`` if it has no time."""
        if marker is None or marker.epoch.time is None:
            return None
        return cls(marker.pipeline, marker.epoch.number, marker.epoch.time)

    @property
    def mark(self) -> WriterProgress:
        """The writer's own mark."""
        time = self.time
        return WriterProgress(self.writer, self.epoch, time.complete_until, time.batch_timestamp_ms, time.resets)

    @property
    def observed(self) -> Vector:
        """Every known writer, itself included even if it is the only one."""
        return joined(self.time.writers, (self.mark,))


# ---- Joining what is known.


def joined(*vectors: Iterable[WriterProgress]) -> Vector:
    """Return the newest mark of each writer, by (turn, epoch): numbers of epochs that were cut off come again.

    Of two epochs 0, the one that was declared later is newer.
    """
    newest: dict[str, WriterProgress] = {}
    for mark in chain.from_iterable(vectors):
        newest[mark.writer] = max(newest.get(mark.writer, mark), mark, key=age)
    return tuple(newest[name] for name in sorted(newest))


def age(mark: WriterProgress) -> tuple[int, int, int, int]:
    """Key that orders the marks of one writer."""
    complete_until = _BEFORE_ALL if mark.complete_until is None else mark.complete_until
    return mark.resets, mark.epoch, mark.batch_timestamp_ms, complete_until


def by_name(vector: Vector) -> Mapping[str, WriterProgress]:
    """Index the marks of a vector by writer."""
    return {mark.writer: mark for mark in vector}


def next_reset(writer: str, *vectors: Iterable[WriterProgress]) -> int:
    """Return the turn after a position reset or of a new series. Any view may have a turn that was cut off here."""
    return 1 + max((mark.resets for mark in chain.from_iterable(vectors) if mark.writer == writer), default=0)


def one_unit(timed: Iterable[TimedMarker]) -> Unit | None:
    """Return the unit of all epochs, or ``None`` without any (E134: two of them count differently)."""
    first: TimedMarker | None = None
    for marker in timed:
        first = first or marker
        if marker.time.unit != first.time.unit:
            raise refuse(
                "E134", writer=marker.writer, unit=marker.time.unit, other=first.writer, theirs=first.time.unit
            )
    return first.time.unit if first else None


# ---- What a commit concludes.


@dataclass(frozen=True, slots=True)
class WriterSet:
    """Configuration of a dataset's writers. Without each ``declared`` one, seen or not, nothing is complete.

    After ``timeout`` milliseconds by the recorded clocks of epochs, others stop waiting for a silent writer. ``None``:
    never.
    """

    declared: tuple[str, ...] = ()
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class DatasetView:
    """One commit's view: all writers, those timed out at this commit, and ``lower``, its complete time, if known."""

    observed: Vector
    silent: tuple[str, ...]
    lower: int | None


def clamped(number: int | None, before: int | None) -> int | None:
    """Return the greater of two, so that the number never goes back. ``None`` is no value."""
    return greatest((number, before))


def known_lower(own: WriterProgress, last: TimedMarker | None, polled: Sequence[TimedMarker]) -> int | None:
    """Return the complete time before a commit. The turn of ``own`` counts, but its noted time does not yet.

    ``last`` is the epoch before it, in any turn.
    """
    markers = (*polled, last) if last else tuple(polled)
    return _concluded(markers, by_name(joined(*(marker.observed for marker in markers), (own,))))


def concluded(
    own: WriterProgress, last: TimedMarker | None, polled: Sequence[TimedMarker], writers: WriterSet
) -> DatasetView:
    """Return a commit's view of the dataset: observed and silent writers, and complete time.

    A writer that cannot read its peers continues with its last view. An old view lags but is not wrong, because a
    writer that was seen once is waited for until a commit records it as silent. ``last`` is of any turn.
    """
    markers = (*polled, last) if last else tuple(polled)
    before = joined(*(marker.observed for marker in markers))
    observed = joined((mark for mark in before if mark.writer != own.writer), _declared(own, before, writers), (own,))
    silent = _silent(own, observed, writers)
    active = [mark.complete_until for mark in observed if mark.writer not in silent]
    lower = greatest((_concluded(markers, by_name(observed)), least(active)))
    return DatasetView(observed, silent, lower)


def _declared(own: WriterProgress, before: Vector, writers: WriterSet) -> Vector:
    """Return declared writers that were never seen. Their timeout starts at the epoch that first declares them."""
    observed_writers = {mark.writer for mark in before} | {own.writer}
    return tuple(
        WriterProgress(name, 0, None, own.batch_timestamp_ms)
        for name in writers.declared
        if name not in observed_writers
    )


def _silent(own: WriterProgress, observed: Vector, writers: WriterSet) -> tuple[str, ...]:
    limit = writers.timeout
    if limit is None:
        return ()
    others = (mark for mark in observed if mark.writer != own.writer and mark.complete_until != END)
    return tuple(mark.writer for mark in others if own.batch_timestamp_ms - mark.batch_timestamp_ms >= limit)


def _concluded(markers: Iterable[TimedMarker], now: Mapping[str, WriterProgress]) -> int | None:
    """Return the greatest conclusion of other commits that is still valid."""
    return greatest(marker.time.dataset_complete_until for marker in markers if same_turns(marker, now))


def same_turns(marker: TimedMarker, now: Mapping[str, WriterProgress]) -> bool:
    """Whether no observed writer was reset since. A conclusion from an epoch that is cut off is void."""
    return all(not mark.epoch or now[mark.writer].resets == mark.resets for mark in marker.observed)


def least(bounds: Sequence[int | None]) -> int | None:
    """Return the least, or ``None`` as long as one has noted nothing."""
    defined_bounds = [each for each in bounds if each is not None]
    return min(defined_bounds) if defined_bounds and len(defined_bounds) == len(bounds) else None


def greatest(numbers: Iterable[int | None]) -> int | None:
    """Return the greatest, or ``None`` if there is none."""
    return max((each for each in numbers if each is not None), default=None)
