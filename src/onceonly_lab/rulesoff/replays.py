"""Drawn batches that replay recorded epochs into a target.

The target holds some of them, or something else. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from onceonly.machine import publish
from onceonly.machine.facts import BatchFacts, NewEpoch, Offer, Refusal, Replays, Skip
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Lineage, ReplayedEpochs
from onceonly_checkpoints.model import Slice
from onceonly_lab.model.parts import PIPELINE, offsets

_OURS, _THEIRS = "of this history", "of another history"


@dataclass(frozen=True, slots=True)
class _Span:
    """Recorded epochs in a row, of one history of a pipeline."""

    first: int
    last: int
    history: str = _OURS

    @property
    def replayed(self) -> ReplayedEpochs:
        return ReplayedEpochs(PIPELINE, self.first, self.last, f"{self.last} {self.history}")


@dataclass(frozen=True, slots=True)
class Case:
    """What is so, and what is told of it.

    Attributes:
        facts: what is told.
        newest: what the newest epoch of the target has run again; ``None`` where it ran nothing.
        offered: what the batch runs again; ``None`` where it is one of the query's own.
    """

    facts: BatchFacts
    newest: _Span | None
    offered: _Span | None

    @property
    def held(self) -> bool:
        """Whether the target holds it, and nothing after it."""
        return self.offered is not None and self.offered == self.newest

    @property
    def follows(self) -> bool:
        """Whether what the target holds ends where it begins."""
        newest, offered = self.newest, self.offered
        if offered is None or newest is None:
            return offered is not None and self.facts.last is None
        return (newest.history, newest.last + 1) == (offered.history, offered.first)


def play(chance: Random) -> str:
    """What is wrong in one case; empty: nothing."""
    case = drawn(chance)
    return next(judged(case, publish.replayed(case.facts)), "")


def drawn(chance: Random) -> Case:
    """A target, and a batch that may go on in it."""
    newest, offered = (_span(chance) if chance.random() < 0.8 else None for _ in range(2))
    if newest and chance.random() < 0.6:
        offered = newest if chance.random() < 0.5 else _Span(newest.last + 1, newest.last + chance.randint(1, 2))
        offered = replace(offered, history=newest.history)
    last = _epoch(chance.randint(1, 3), newest) if newest or chance.random() < 0.5 else None
    lineage = Lineage("query", "run", "checkpoint", 7, 7, 0)
    offer = Offer(Slice(offsets(7), offsets(9)), lineage, (), "columns", stateful=chance.random() < 0.5)
    if offered:
        before = replace(offered, last=offered.first - 1).replayed.chain if offered.first > 1 else None
        offer = replace(offer, replays=Replays(offered.replayed, before))
    return Case(BatchFacts(f"{PIPELINE}~v2", "table", last, offer, None), newest, offered)


def _span(chance: Random) -> _Span:
    first = chance.randint(1, 4)
    return _Span(first, first + chance.randint(0, 1), _OURS if chance.random() < 0.8 else _THEIRS)


def _epoch(number: int, ran: _Span | None) -> Epoch:
    written, lineage = Slice(offsets(0), offsets(7)), Lineage("query", "run", "checkpoint", 6, 6, 0)
    before = "of the epoch before" if number > 1 else chain.GENESIS
    made = Epoch(number, written, "", before, Digest(1, 1, 1), "columns", (("table", 1),), lineage)
    return chain.linked(replace(made, replays=ran.replayed if ran else None))


def judged(case: Case, verdict: object) -> Iterator[str]:
    """What is wrong with a verdict."""
    match verdict:
        case None:
            if case.offered:
                yield f"X-DUP: {_spelled(case.offered)}: taken for a batch of the query's own"
        case _ if case.offered is None:
            yield "X-STUCK: a batch of the query's own is taken for one that runs epochs again"
        case NewEpoch():
            yield from _of_new(case, verdict)
        case Skip():
            yield from _of_skip(case, verdict)
        case Refusal():
            if case.held or case.follows:
                yield f"X-STUCK: {_spelled(case.offered)}: refused after {_spelled(case.newest)}"
        case _:
            yield f"X-STUCK: {verdict!r} is no verdict"


def _of_new(case: Case, new_epoch: NewEpoch) -> Iterator[str]:
    last = case.facts.last
    if case.held:
        yield f"X-DUP: {_spelled(case.offered)}: written twice"
    elif not case.follows:
        yield f"X-LOSS: {_spelled(case.offered)}: written after {_spelled(case.newest)}"
    if new_epoch.number != (last.number + 1 if last else 1):
        yield f"X-GAP: epoch {new_epoch.number} follows {last.number if last else 'none'}"


def _of_skip(case: Case, skip: Skip) -> Iterator[str]:
    if not case.held:
        yield f"X-LOSS: {_spelled(case.offered)}: skipped, and the newest epoch is {_spelled(case.newest)}"
    if skip.execute != case.facts.offer.stateful:
        yield "X-LOSS: what a skipped batch leaves in the state is not asked for"


def _spelled(span: _Span | None) -> str:
    return span.replayed.text + f" {span.history}" if span else "nothing run again"
