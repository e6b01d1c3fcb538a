"""Publish a rerun: rules for swapping rows in one epoch.

Pure. The epoch is a full refresh without a batch: where the pipeline stands in its source and in the engine's log stays
as it is. Its rows are those of the rerun's epochs, whose digests add up to its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from onceonly.machine import event_time
from onceonly.machine.event_time import PreviousTime
from onceonly.machine.facts import Refusal
from onceonly.machine.writer_progress import RewoundPosition
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, ReplayedEpochs
from onceonly_checkpoints.model import Slice


@dataclass(frozen=True, slots=True)
class PublishFacts:
    """Everything that a publication is decided on.

    Attributes:
        pipeline: whose rows leave.
        sink: id of its sink.
        last: the newest epoch that the sink holds; ``None`` for none.
        epochs: the pipeline's epochs on record, by number.
        name: of the rerun.
        held: each epoch of the rerun, with what it ran again; oldest first.
        unfit: why the rows of one of the two cannot be moved or taken away, in words; empty where they can.
        ledger: address of the ledger, for commands.
        into: address of the rerun's target, for commands.
        cut: that a rewind put the position back to some epoch; ``None`` where none is known.
    """

    pipeline: str
    sink: str
    last: Epoch | None
    epochs: Mapping[int, Epoch]
    name: str
    held: tuple[tuple[Epoch, ReplayedEpochs], ...]
    unfit: str
    ledger: str
    into: str
    cut: RewoundPosition | None = None


def decide(facts: PublishFacts) -> Epoch | Refusal:
    """The epoch that publishes a rerun, or why it is not published: the first of these that speaks."""
    last, held = facts.last, facts.held
    if last is None or not held:
        return _unfit(facts, "the rerun holds no epoch" if last else f"{facts.sink} holds no epoch")
    whole = ReplayedEpochs(facts.name, held[0][0].number, held[-1][0].number, held[-1][0].chain)
    found = [epoch for epoch in (*facts.epochs.values(), last) if epoch.replays == whole]
    if found:
        where = {"name": facts.name, "epoch": found[0].number, "ledger": facts.ledger}
        return Refusal.of("E241", pipeline=facts.pipeline, **where)
    if reason := facts.unfit or _split(last, facts):
        return _unfit(facts, reason)
    return _behind(facts, last) or _epoch(facts, last, whole)


def _split(last: Epoch, facts: PublishFacts) -> str:
    """Why rows of a rerun are not what the pipeline's sink holds."""
    if len(last.sinks) > 1:
        others = ", ".join(sink for sink, _ in last.sinks if sink != facts.sink)
        return f"the pipeline also writes to {others}, and both would have to be swapped at once"
    # An operator's epoch says nothing of outputs: those before it do.
    standing = (epoch for number, epoch in facts.epochs.items() if number >= last.series)
    if any(_divides(epoch) for epoch in (last, *standing, *(epoch for epoch, _ in facts.held))):
        return "its rows are split, looked up or put into windows, and what is kept for that speaks of the old rows"
    return ""


def _divides(epoch: Epoch) -> bool:
    """Whether rows of an epoch went elsewhere than into its sink alone."""
    return epoch.outputs != () or epoch.panes is not None


def _unfit(facts: PublishFacts, reason: str) -> Refusal:
    said = {"name": facts.name, "sink": facts.sink, "into": facts.into, "ledger": facts.ledger}
    return Refusal.of("E242", pipeline=facts.pipeline, reason=reason, **said)


def _behind(facts: PublishFacts, last: Epoch) -> Refusal | None:
    """What the rerun lacks of the epochs whose rows stand, or has beyond them; ``None``: nothing."""
    first, ran = facts.held[0][1].first, facts.held[-1][1]
    begun = standing_since(last, facts.epochs)
    if begun is None or first < begun:
        return _early(facts, last, begun)
    for number in range(begun, first):
        epoch = facts.epochs.get(number)
        if epoch is None:
            return _unfit(facts, f"it begins with epoch {first}, and the ledger does not say what epoch {number} was")
        if epoch.lineage or epoch.digest.rows:
            return _unfit(facts, f"it begins with epoch {first}, and rows of epochs from {number} on stand as well")
    known, here = facts.epochs.get(ran.last), facts.pipeline
    ahead = [number for number, epoch in facts.epochs.items() if epoch.lineage and number > ran.last]
    if known is None or known.chain != ran.chain:
        return _lags(facts, ahead, f"epoch {ran.last} of {here} is another one now than the one that was run again")
    if ahead:
        return _lags(facts, ahead, f"{here} has gone on to epoch {max(ahead)}, and the rerun ends with {ran.last}")
    return None


def _lags(facts: PublishFacts, ahead: Sequence[int], reason: str) -> Refusal:
    newest = facts.last.number if facts.last else 0
    said = {"name": facts.name, "first": facts.held[0][1].first, "last": max(ahead, default=newest)}
    where = {"into": facts.into, "ledger": facts.ledger}
    return Refusal.of("E240", pipeline=facts.pipeline, reason=reason, **said, **where)


def _early(facts: PublishFacts, last: Epoch, begun: int | None) -> Refusal:
    """The refusal of a rerun that begins before what stands, or may do so."""
    begins = f"it begins with epoch {facts.held[0][1].first}"
    if begun not in {last.number, *facts.epochs}:
        return _unfit(facts, f"{begins}, and the ledger has forgotten which one comes first of those whose rows stand")
    again = f"run epochs {begun}..{last.number} again, by another name, into another target"
    return _unfit(facts, f"{begins}, and what stands with epoch {begun}, which replaced all before: {again}")


def standing_since(last: Epoch, epochs: Mapping[int, Epoch]) -> int | None:
    """The first epoch whose input stands: rows that were published before are of the epochs that had been run again.

    Args:
        last: the newest epoch.
        epochs: those that are known, by number.

    Returns:
        Its number; ``None`` where what was published has epochs before it that are not known.
    """
    begun = last.series
    while begun > 1 and (epoch := last if begun == last.number else epochs.get(begun)) and epoch.replays:
        before = epochs.get(begun - 1)
        if before is None:
            return None
        begun = before.series
    return begun


def _epoch(facts: PublishFacts, last: Epoch, whole: ReplayedEpochs) -> Epoch:
    end, number = last.written.end, last.number + 1
    return chain.linked(
        Epoch(
            number=number,
            written=Slice(end, end),
            chain="",
            previous_chain=last.chain,
            digest=reduce(add, (epoch.digest for epoch, _ in facts.held)),
            schema=facts.held[-1][0].schema,
            sinks=last.sinks,
            lineage=None,
            sources=last.sources,
            carried=last.standing,
            series=number,
            replaces=(1, last.number),
            time=event_time.carried(last.time, turn=PreviousTime(facts.pipeline, number, last, cut=facts.cut).turn),
            replays=whole,
        )
    )
