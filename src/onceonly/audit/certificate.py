"""Certify that a query recomputes the recorded rows of its epochs. Pure.

Digests add up. Where rows depend on nothing but the input, many epochs are computed as one batch and compared with the
sum of their digests. A difference is located by bisection: only one half has to be computed. Where rows depend on state
or on the time of the batch, each epoch is computed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Protocol

from onceonly_checkpoints.digests import Digest, beside_windows
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.strenum import StrEnum

MOST = 1000
"""At most so many epochs are computed as one batch."""

LOCATING = 11
"""Batches that are spent on locating differences among so many epochs; a single one is found exactly."""

NAMED = 5
"""Windows that are named in a certificate."""


class RecomputedRange(StrEnum):
    """Result for the epochs of a range."""

    EQUAL = "RECOMPUTED EQUAL"
    DIFFERS = "DIFFERS"
    CANNOT = "CANNOT"


class Unreadable(Exception):
    """Epochs ``first`` to ``last`` cannot be computed again, for the reason in the text."""

    def __init__(self, first: int, last: int, why: str) -> None:
        super().__init__(why)
        self.first = first
        self.last = last


@dataclass(frozen=True, slots=True)
class Query:
    """Properties of the query's plan that decide how it is computed again.

    Attributes:
        clock: whether rows depend on the time of their batch.
        nondeterministic: SQL of a nondeterministic expression, or ``None`` for none.
        settings: settings of the session on which values depend, ``(name, value)``. No record holds their old values.
        windows: whether the windows over its rows are computed, too.
    """

    stateful: bool
    clock: bool
    nondeterministic: str | None
    settings: tuple[tuple[str, str], ...] = ()
    windows: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether rows of an epoch depend on earlier epochs."""
        return self.stateful or self.windows


class Recomputing(Protocol):
    """Runs the query over recorded epochs again."""

    def compute_combined(self, epochs: range, left_out: frozenset[str]) -> Digest:
        """Return the digest of epochs that run as one batch, or as few. ``Unreadable``: some cannot be computed."""
        ...

    def apart(self, epochs: range, take: Callable[[int, Digest], None]) -> None:
        """Hand the digest of each epoch with a batch on, oldest first. ``Unreadable`` ends it at the first failure."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive epochs with the same answer.

    ``recorded`` and ``found`` are digests of all of them. ``why`` is the reason if none could be computed. ``windows``
    has the first ones that differ, in words, as far as sinks separate them.
    """

    first: int
    last: int
    answer: RecomputedRange
    recorded: Digest
    recomputed: Digest | None = None
    why: str = ""
    windows: tuple[str, ...] = ()

    @property
    def epochs(self) -> str:
        """``epoch 3``, ``epochs 3..7``."""
        return f"epoch {self.first}" if self.first == self.last else f"epochs {self.first}..{self.last}"

    @property
    def text(self) -> str:
        """The answer in words."""
        if self.recomputed is None:
            return f"{self.epochs}: {self.why}"
        if self.answer is RecomputedRange.EQUAL:
            unseen = f", but for what no digest sees: {', '.join(self.recorded.left_out)}"
            return f"{self.epochs}: {self.recorded.rows} rows{unseen if self.recorded.left_out else ''}"
        others = f"; what differs: {', '.join(self.windows)}" if self.windows else ""
        if self.recomputed.rows == self.recorded.rows:
            return f"{self.epochs}: {self.recomputed.rows} rows as on record, of which some have other values{others}"
        return f"{self.epochs}: {self.recomputed.rows} rows, and {self.recorded.rows} on record{others}"

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {
            "first": self.first,
            "last": self.last,
            "answer": str(self.answer),
            "recorded_rows": self.recorded.rows,
            "computed_rows": None if self.recomputed is None else self.recomputed.rows,
            "left_out": list(self.recorded.left_out),
            "why": self.why,
            "windows": list(self.windows),
        }


@dataclass(frozen=True, slots=True)
class Certificate:
    """Result of computing epochs again: a span for each run of them, oldest first."""

    pipeline: str
    spans: tuple[Span, ...]
    query: Query = field(repr=False)

    def naming(self, windows: Mapping[int, Sequence[str]]) -> Certificate:
        """Return a copy that names the first :data:`NAMED` of the windows that differ, by epoch in their order."""
        left, spans = NAMED, list[Span]()
        for span in self.spans:
            numbers = [number for number in sorted(windows) if span.first <= number <= span.last]
            names = [f"{window} in epoch {number}" for number in numbers for window in windows[number]][:left]
            spans.append(replace(span, windows=tuple(names)) if names else span)
            left -= len(names)
        return replace(self, spans=tuple(spans))

    @property
    def equal(self) -> bool:
        """Whether every epoch was computed and equals the record."""
        return all(span.answer is RecomputedRange.EQUAL for span in self.spans)

    def count(self, answer: RecomputedRange) -> int:
        """Count epochs with this answer."""
        return sum(span.last - span.first + 1 for span in self.spans if span.answer is answer)

    @property
    def text(self) -> str:
        """A line of coverage, and one for each range."""
        total = sum(map(self.count, RecomputedRange))
        under = ", ".join(f"{name}={value}" for name, value in self.query.settings)
        head = f"{self.count(RecomputedRange.EQUAL)} of {total} epochs of {self.pipeline} computed again are equal"
        lines = [f"{head} (under {under})" if under else head]
        return "\n".join([*lines, *(f"{span.answer}: {span.text}" for span in self.spans)])

    def to_json(self) -> dict[str, Any]:
        """Field names to values, nested."""
        return {
            "pipeline": self.pipeline,
            "equal": self.equal,
            "epochs": {str(answer): self.count(answer) for answer in RecomputedRange},
            "settings": dict(self.query.settings),
            "ranges": [span.to_json() for span in self.spans],
        }


def certify(
    pipeline: str, records: Sequence[EpochRecord], epochs: range, query: Query, recomputer: Recomputing
) -> Certificate:
    """Compute epochs again, whose numbers are dense, and compare them with the record."""
    by_number = {record.epoch.number: record for record in records}
    spans: list[Span] = []
    for part, why in _parts([by_number[number] for number in epochs], query):
        if why:
            spans.append(_cannot(part, why))
        elif query.goes_on or query.clock:
            spans += _apart(part, query, recomputer)
        else:
            for at in range(0, len(part), MOST):
                spans += _recompute_spans(part[at : at + MOST], recomputer)
    return Certificate(pipeline, _merged(spans), query)


_Records = Sequence[EpochRecord]


def _parts(records: _Records, query: Query) -> Iterator[tuple[_Records, str]]:
    """Split epochs into runs that one sum compares, or that cannot be compared for one reason."""
    part: list[EpochRecord] = []
    like: tuple[str, tuple[str, ...]] | None = None
    for record in records:
        # An epoch without a batch has no rows, and goes with any.
        own = (_why_not(record, query), record.epoch.digest.left_out) if record.epoch.lineage else like
        if part and like is not None and own != like:
            yield part, like[0]
            part = []
        part.append(record)
        like = own
    if part:
        yield part, like[0] if like else ""


def _why_not(record: EpochRecord, query: Query) -> str:
    """Return why the query alone does not give an epoch's rows, or empty if it does."""
    epoch = record.epoch
    if query.nondeterministic:
        return f"the query is not deterministic: {query.nondeterministic}"
    if epoch.windows is not None and not query.windows:
        return "its rows are results of windows, and the definition of these is not at hand: --windows MODULE:NAME"
    if beside_windows(epoch.outputs):
        return "its windows took the rows that outputs, quality= or dedupe= had left, which are no part of the query"
    if epoch.bad is not None and epoch.bad.digest.rows:
        return "invalid rows were quarantined by expectations, which are no part of the query"
    return ""


def _recorded(part: _Records) -> Digest:
    digests = [record.epoch.computed for record in part if record.epoch.lineage is not None]
    return reduce(add, digests, Digest(0))


def _ends(part: _Records) -> tuple[int, int]:
    return part[0].epoch.number, part[-1].epoch.number


def _numbers(part: _Records) -> range:
    return range(part[0].epoch.number, part[-1].epoch.number + 1)


def _cannot(part: _Records, why: str) -> Span:
    return Span(*_ends(part), RecomputedRange.CANNOT, _recorded(part), why=why)


def _compared(part: _Records, computed: Digest) -> Span:
    recorded = _recorded(part)
    return Span(
        *_ends(part), RecomputedRange.EQUAL if computed == recorded else RecomputedRange.DIFFERS, recorded, computed
    )


# ---- As one batch.


def _recompute_spans(part: _Records, recomputer: Recomputing) -> Iterator[Span]:
    try:
        # All of it before any is told: a source may lose epochs meanwhile.
        spans = list(_located(part, _sum(part, recomputer), recomputer, [LOCATING]))
    except Unreadable as error:
        yield from _readable(part, recomputer, str(error))
    else:
        yield from spans


def _sum(part: _Records, recomputer: Recomputing) -> Digest:
    left_out = _recorded(part).left_out
    # A sum over nothing has left out the same, so that it can be compared.
    return Digest(0, left_out=left_out) + recomputer.compute_combined(_numbers(part), frozenset(left_out))


def _readable(part: _Records, recomputer: Recomputing, why: str) -> Iterator[Span]:
    """Find the epochs that can be computed, by bisection: sources lose the oldest first."""
    if len(part) > 1:
        try:
            _sum(part[-1:], recomputer)
        except Unreadable:
            yield _cannot(part, why)
            return
        half = len(part) // 2
        yield from _recompute_spans(part[:half], recomputer)
        yield from _recompute_spans(part[half:], recomputer)
        return
    yield _cannot(part, why)


def _located(part: _Records, computed: Digest, recomputer: Recomputing, left: list[int]) -> Iterator[Span]:
    """Locate differences: the first exactly, others while batches are left."""
    span = _compared(part, computed)
    if span.answer is RecomputedRange.EQUAL or len(part) == 1 or not left[0]:
        yield span
        return
    left[0] -= 1
    half = len(part) // 2
    older = _sum(part[:half], recomputer)
    yield from _located(part[:half], older, recomputer, left)
    yield from _located(part[half:], computed - older, recomputer, left)


# ---- One by one.


def _apart(part: _Records, query: Query, recomputer: Recomputing) -> Iterator[Span]:
    while part:
        digests: dict[int, Digest] = {}
        try:
            recomputer.apart(_numbers(part), digests.__setitem__)
        except Unreadable as error:
            done = [record for record in part if record.epoch.number <= max(digests, default=0)]
            yield from _each(done, digests)
            # What comes after an epoch that is left out would begin with another state.
            past = part[-1].epoch.number if query.goes_on else error.last
            yield _cannot([record for record in part[len(done) :] if record.epoch.number <= past], str(error))
            part = [record for record in part if record.epoch.number > past]
        else:
            yield from _each(part, digests)
            return


def _each(part: _Records, digests: Mapping[int, Digest]) -> Iterator[Span]:
    for record in part:
        yield _compared([record], digests.get(record.epoch.number, Digest(0)))


def _merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    made: list[Span] = []
    for span in spans:
        if made and (made[-1].answer, made[-1].why) == (span.answer, span.why):
            before = made[-1]
            computed = before.recomputed + span.recomputed if before.recomputed and span.recomputed else None
            made[-1] = replace(before, last=span.last, recorded=before.recorded + span.recorded, recomputed=computed)
        else:
            made.append(span)
    return tuple(made)
