"""Rules to rerun epochs, and to publish the rerun. Pure.

Pure. The epoch is a full refresh without a batch. The pipeline's position in its source and in the engine's log stays.
Its rows are those of the rerun's epochs, whose digests add up to its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from onceonly.machine import event_time
from onceonly.machine.event_time import PreviousTime
from onceonly.machine.facts import BatchFacts, NewEpoch, Refusal, Skip
from onceonly.machine.writer_progress import RewoundPosition
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, ReplayedEpochs
from onceonly_checkpoints.model import Slice

# ---- Rerun rules: another pipeline's epochs into an own target (RR).
#
# Pure. Neither offsets nor the engine's names prove a write: they are those of a checkpoint that was made for one
# batch. The target does: its newest epoch names its replayed epochs by their chain.


def replayed(facts: BatchFacts) -> NewEpoch | Skip | Refusal | None:
    """Decide on a batch that runs epochs again. ``None`` if it runs none."""
    offered, last = facts.offer.replays, facts.last
    if offered is None:
        return None
    if last is None:
        return NewEpoch(1)
    last_replayed = last.replays
    if last_replayed == offered.replayed:
        return Skip(last, facts.offer.stateful)
    if last_replayed is not None and last_replayed.chain == offered.after:
        return NewEpoch(last.number + 1)
    return Refusal.of(
        "E239",
        pipeline=facts.pipeline,
        sink=facts.sink,
        epoch=last.number,
        stands=last_replayed.text if last_replayed else "not a backfilled epoch",
        offered=offered.replayed.text,
    )


# ---- Publish: the rerun's rows take the place of all rows of its pipeline.


@dataclass(frozen=True, slots=True)
class PublishFacts:
    """Everything that a publication is decided on.

    Attributes:
        last: the newest epoch that the sink holds, or ``None`` for none.
        epochs: the pipeline's epochs on record, by number.
        held: each epoch of the rerun with its replayed epochs, oldest first.
        unfit: why the rows of one of the two cannot be moved or removed, in words, or empty.
        cut: rewind that moved the position back, or ``None`` for no known one.
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
    """Return the epoch that publishes a rerun, or its refusal. The first rule that applies decides."""
    last, held = facts.last, facts.held
    if last is None or not held:
        return _unfit(facts, "the backfill holds no epoch" if last else f"{facts.sink} holds no epoch")
    replayed = ReplayedEpochs(facts.name, held[0][0].number, held[-1][0].number, held[-1][0].chain)
    published_epochs = [epoch for epoch in (*facts.epochs.values(), last) if epoch.replays == replayed]
    if published_epochs:
        where = {"name": facts.name, "epoch": published_epochs[0].number, "ledger": facts.ledger}
        return Refusal.of("E241", pipeline=facts.pipeline, **where)
    if reason := facts.unfit or _split(last, facts):
        return _unfit(facts, reason)
    return _behind(facts, last) or _epoch(facts, last, replayed)


def _split(last: Epoch, facts: PublishFacts) -> str:
    """Explain why the rows of a rerun cannot replace those of the pipeline's sink."""
    if len(last.sinks) > 1:
        others = ", ".join(sink for sink, _ in last.sinks if sink != facts.sink)
        return f"the pipeline also writes to {others}, and both would have to change at once"
    # An operator's epoch says nothing of outputs: those before it do.
    current_epochs = (epoch for number, epoch in facts.epochs.items() if number >= last.series)
    if any(_divides(epoch) for epoch in (last, *current_epochs, *(epoch for epoch, _ in facts.held))):
        return "its rows are split, deduplicated or put into windows, and that state belongs to the old rows"
    return ""


def _divides(epoch: Epoch) -> bool:
    """Whether rows of an epoch went elsewhere than into its sink alone."""
    return epoch.outputs != () or epoch.windows is not None


def _unfit(facts: PublishFacts, reason: str) -> Refusal:
    details = {"name": facts.name, "sink": facts.sink, "into": facts.into, "ledger": facts.ledger}
    return Refusal.of("E242", pipeline=facts.pipeline, reason=reason, **details)


def _behind(facts: PublishFacts, last: Epoch) -> Refusal | None:
    """Refuse a rerun that lacks epochs of the pipeline's current rows, or has more."""
    first, ran = facts.held[0][1].first, facts.held[-1][1]
    begun = standing_since(last, facts.epochs)
    if begun is None or first < begun:
        return _early(facts, last, begun)
    for number in range(begun, first):
        epoch = facts.epochs.get(number)
        if epoch is None:
            return _unfit(facts, f"it begins with epoch {first}, and the ledger does not hold epoch {number}")
        if epoch.lineage or epoch.digest.rows:
            return _unfit(
                facts, f"it begins with epoch {first}, and rows of epochs from {number} on are current as well"
            )
    recorded, pipeline = facts.epochs.get(ran.last), facts.pipeline
    ahead = [number for number, epoch in facts.epochs.items() if epoch.lineage and number > ran.last]
    if recorded is None or recorded.chain != ran.chain:
        return _lags(facts, ahead, f"epoch {ran.last} of {pipeline} is no longer the one that was backfilled")
    if ahead:
        return _lags(
            facts, ahead, f"{pipeline} has continued to epoch {max(ahead)}, and the backfill ends with {ran.last}"
        )
    return None


def _lags(facts: PublishFacts, ahead: Sequence[int], reason: str) -> Refusal:
    newest = facts.last.number if facts.last else 0
    details = {"name": facts.name, "first": facts.held[0][1].first, "last": max(ahead, default=newest)}
    where = {"into": facts.into, "ledger": facts.ledger}
    return Refusal.of("E240", pipeline=facts.pipeline, reason=reason, **details, **where)


def _early(facts: PublishFacts, last: Epoch, begun: int | None) -> Refusal:
    begins = f"it begins with epoch {facts.held[0][1].first}"
    if begun not in {last.number, *facts.epochs}:
        return _unfit(facts, f"{begins}, and the ledger has forgotten the first epoch whose rows are current")
    remedy = f"run epochs {begun}..{last.number} again, by another name, into another target"
    return _unfit(facts, f"{begins}, and the current rows with epoch {begun}, which replaced all before: {remedy}")


def standing_since(last: Epoch, epochs: Mapping[int, Epoch]) -> int | None:
    """Return the first epoch whose input is in the sink: of published rows, the epochs that were run again.

    ``None`` if a publication follows unknown epochs.
    """
    begun = last.series
    while begun > 1 and (epoch := last if begun == last.number else epochs.get(begun)) and epoch.replays:
        before = epochs.get(begun - 1)
        if before is None:
            return None
        begun = before.series
    return begun


def _epoch(facts: PublishFacts, last: Epoch, replayed: ReplayedEpochs) -> Epoch:
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
            carried=last.resume_point,
            series=number,
            replaces=(1, last.number),
            time=event_time.carried(last.time, turn=PreviousTime(facts.pipeline, number, last, cut=facts.cut).turn),
            replays=replayed,
            columns_since=last.columns_epoch,
        )
    )
