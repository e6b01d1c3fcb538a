"""Whether a query gives again, from its source, the rows that its epochs recorded: a certificate by ranges. Pure.

Digests add up. Where rows hang on nothing but the input, many epochs are computed as one batch and compared with the
sum of their digests; a difference is located by halves, of which only one has to be computed. Where they hang on state
or on the time of the batch, each epoch is computed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Protocol

from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.strenum import StrEnum

MOST = 1000
"""At most so many epochs are computed as one batch."""

LOCATING = 11
"""Batches that are spent on locating differences among so many epochs; a single one is found exactly."""


NAMED = 5
"""Windows that are named in a certificate."""


class RecomputedRange(StrEnum):
    """What is known of the epochs of a range."""

    EQUAL = "RECOMPUTED EQUAL"
    DIFFERS = "DIFFERS"
    CANNOT = "CANNOT"


class Unreadable(Exception):
    """Epochs cannot be computed again; the text says why.

    Attributes:
        first: the first of them.
        last: the last one.
    """

    def __init__(self, first: int, last: int, why: str) -> None:
        super().__init__(why)
        self.first = first
        self.last = last


@dataclass(frozen=True, slots=True)
class Query:
    """What of the query's plan decides how it is computed again.

    Attributes:
        stateful: whether it keeps state.
        clock: whether rows hang on the time of their batch.
        nondeterministic: SQL of an expression that another run computes otherwise; ``None`` for none.
        settings: settings of the session on which values hang, ``(name, value)``. No record says what they were.
        windows: whether the windows over its rows are computed, too.
    """

    stateful: bool
    clock: bool
    nondeterministic: str | None
    settings: tuple[tuple[str, str], ...] = ()
    windows: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether rows of an epoch hang on those before it."""
        return self.stateful or self.windows


class Recomputing(Protocol):
    """Runs the query over recorded epochs again."""

    def together(self, epochs: range, left_out: frozenset[str]) -> Digest:
        """Digest of the rows of epochs that are run as one batch, or as few.

        Raises:
            Unreadable: some cannot be.
        """
        ...

    def apart(self, epochs: range, take: Callable[[int, Digest], None]) -> None:
        """Hand the digest of each epoch to a function, oldest first; epochs without a batch have none.

        Raises:
            Unreadable: one cannot be computed; those before it were handed on.
        """
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Epochs in a row of which the same is known.

    Attributes:
        first: the first epoch.
        last: the last one.
        answer: what is known.
        recorded: digest on record, of all of them.
        found: digest that was computed; ``None`` where none could be.
        why: why none could be.
        windows: the first of those that are others, in words, as far as sinks tell them.
    """

    first: int
    last: int
    answer: RecomputedRange
    recorded: Digest
    found: Digest | None = None
    why: str = ""
    windows: tuple[str, ...] = ()

    @property
    def epochs(self) -> str:
        """``epoch 3``, ``epochs 3..7``."""
        return f"epoch {self.first}" if self.first == self.last else f"epochs {self.first}..{self.last}"

    @property
    def text(self) -> str:
        """What is known, in words."""
        if self.found is None:
            return f"{self.epochs}: {self.why}"
        if self.answer is RecomputedRange.EQUAL:
            unseen = f", but for what no digest sees: {', '.join(self.recorded.left_out)}"
            return f"{self.epochs}: {self.recorded.rows} rows{unseen if self.recorded.left_out else ''}"
        others = f"; what differs: {', '.join(self.windows)}" if self.windows else ""
        if self.found.rows == self.recorded.rows:
            return f"{self.epochs}: {self.found.rows} rows as on record, of which some have other values{others}"
        return f"{self.epochs}: {self.found.rows} rows, and {self.recorded.rows} on record{others}"

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {
            "first": self.first,
            "last": self.last,
            "answer": str(self.answer),
            "recorded_rows": self.recorded.rows,
            "computed_rows": None if self.found is None else self.found.rows,
            "left_out": list(self.recorded.left_out),
            "why": self.why,
            "windows": list(self.windows),
        }


@dataclass(frozen=True, slots=True)
class Certificate:
    """What computing epochs again has shown.

    Attributes:
        pipeline: the user's stable name.
        spans: all epochs that were asked for, oldest first.
        query: what was computed.
    """

    pipeline: str
    spans: tuple[Span, ...]
    query: Query = field(repr=False)

    def naming(self, windows: Mapping[int, Sequence[str]]) -> Certificate:
        """The same, with windows that are others, in words, by the epoch: the first :data:`NAMED` of all.

        Args:
            windows: of each epoch, in their order.
        """
        left, spans = NAMED, list[Span]()
        for span in self.spans:
            numbers = [number for number in sorted(windows) if span.first <= number <= span.last]
            told = [f"{one} in epoch {number}" for number in numbers for one in windows[number]][:left]
            spans.append(replace(span, windows=tuple(told)) if told else span)
            left -= len(told)
        return replace(self, spans=tuple(spans))

    @property
    def equal(self) -> bool:
        """Whether every epoch was computed, and is what is on record."""
        return all(span.answer is RecomputedRange.EQUAL for span in self.spans)

    def count(self, answer: RecomputedRange) -> int:
        """Epochs of which that is known."""
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
    pipeline: str, records: Sequence[EpochRecord], epochs: range, query: Query, again: Recomputing
) -> Certificate:
    """Compute epochs again and compare them with what is on record.

    Args:
        pipeline: the user's stable name.
        records: its epochs, all of ``epochs`` among them.
        epochs: their numbers, dense.
        query: what of the plan decides how.
        again: runs the query.
    """
    known = {record.epoch.number: record for record in records}
    spans: list[Span] = []
    for part, why in _parts([known[number] for number in epochs], query):
        if why:
            spans.append(_cannot(part, why))
        elif query.goes_on or query.clock:
            spans += _apart(part, query, again)
        else:
            for at in range(0, len(part), MOST):
                spans += _together(part[at : at + MOST], again)
    return Certificate(pipeline, _merged(spans), query)


_Records = Sequence[EpochRecord]


def _parts(records: _Records, query: Query) -> Iterator[tuple[_Records, str]]:
    """Epochs in a row that can be compared by one sum, or for one reason cannot be at all."""
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
    """Why the query alone does not give an epoch's rows; empty where it does."""
    epoch = record.epoch
    if query.nondeterministic:
        return f"the query is not deterministic: {query.nondeterministic}"
    if epoch.panes is not None and not query.windows:
        return "its rows are results of windows, and the definition of these is not at hand: --panes MODULE:NAME"
    if epoch.bad is not None and epoch.bad.digest.rows:
        return "bad rows were set aside by expectations, which are no part of the query"
    return ""


def _recorded(part: _Records) -> Digest:
    """What the plan gave of these epochs, by the record."""
    digests = [record.epoch.computed for record in part if record.epoch.lineage is not None]
    return reduce(add, digests, Digest(0))


def _ends(part: _Records) -> tuple[int, int]:
    return part[0].epoch.number, part[-1].epoch.number


def _numbers(part: _Records) -> range:
    return range(part[0].epoch.number, part[-1].epoch.number + 1)


def _cannot(part: _Records, why: str) -> Span:
    return Span(*_ends(part), RecomputedRange.CANNOT, _recorded(part), why=why)


def _compared(part: _Records, found: Digest) -> Span:
    recorded = _recorded(part)
    return Span(*_ends(part), RecomputedRange.EQUAL if found == recorded else RecomputedRange.DIFFERS, recorded, found)


# ---- As one batch.


def _together(part: _Records, again: Recomputing) -> Iterator[Span]:
    try:
        # All of it before any is told: a source may lose epochs meanwhile.
        found = list(_located(part, _sum(part, again), again, [LOCATING]))
    except Unreadable as error:
        yield from _readable(part, again, str(error))
    else:
        yield from found


def _sum(part: _Records, again: Recomputing) -> Digest:
    left_out = _recorded(part).left_out
    # A sum over nothing has left out the same, so that it can be compared.
    return Digest(0, left_out=left_out) + again.together(_numbers(part), frozenset(left_out))


def _readable(part: _Records, again: Recomputing, why: str) -> Iterator[Span]:
    """Which of the epochs can be computed, though not all can: sources lose the oldest first."""
    if len(part) > 1:
        try:
            _sum(part[-1:], again)
        except Unreadable:
            yield _cannot(part, why)
            return
        half = len(part) // 2
        yield from _together(part[:half], again)
        yield from _together(part[half:], again)
        return
    yield _cannot(part, why)


def _located(part: _Records, found: Digest, again: Recomputing, left: list[int]) -> Iterator[Span]:
    """Where a difference is: the first exactly, others as far as batches are left for it."""
    whole = _compared(part, found)
    if whole.answer is RecomputedRange.EQUAL or len(part) == 1 or not left[0]:
        yield whole
        return
    left[0] -= 1
    half = len(part) // 2
    older = _sum(part[:half], again)
    yield from _located(part[:half], older, again, left)
    yield from _located(part[half:], found - older, again, left)


# ---- One by one.


def _apart(part: _Records, query: Query, again: Recomputing) -> Iterator[Span]:
    while part:
        found: dict[int, Digest] = {}
        try:
            again.apart(_numbers(part), found.__setitem__)
        except Unreadable as error:
            done = [record for record in part if record.epoch.number <= max(found, default=0)]
            yield from _each(done, found)
            # What comes after an epoch that is left out would begin with another state.
            past = part[-1].epoch.number if query.goes_on else error.last
            yield _cannot([record for record in part[len(done) :] if record.epoch.number <= past], str(error))
            part = [record for record in part if record.epoch.number > past]
        else:
            yield from _each(part, found)
            return


def _each(part: _Records, found: Mapping[int, Digest]) -> Iterator[Span]:
    for record in part:
        yield _compared([record], found.get(record.epoch.number, Digest(0)))


def _merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    made: list[Span] = []
    for span in spans:
        if made and (made[-1].answer, made[-1].why) == (span.answer, span.why):
            before = made[-1]
            found = before.found + span.found if before.found and span.found else None
            made[-1] = replace(before, last=span.last, recorded=before.recorded + span.recorded, found=found)
        else:
            made.append(span)
    return tuple(made)
