"""Heals and moves a pipeline without Spark: what ``txn resolve`` and ``queries adopt`` do.

An adoption is an epoch of its own: no rows, a slice from the last end to the adopted start, and the operator's
reason, committed into the sink like any other. So it is fenced, chained, audited and never half-done, and nothing
pending has to be remembered anywhere else.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from onceonly import coordinator
from onceonly.errors import refuse
from onceonly.protocol import Sink
from onceonly.runner import REFUSED_OFFER, Runner
from onceonly.state import State
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Digest, Epoch, EpochRecord, Marker, Slice, SourceOffsets
from onceonly_checkpoints.ledger import Event, EventKind, Ledger

KINDS = ("accept-loss", "accept-duplicates", "accept-state-loss", "accept-change", "continue", "start")
"""What an operator can say about the position of a pipeline."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What ``txn resolve`` found and did.

    Attributes:
        epoch: number of the epoch that every sink holds; 0 for none.
        generation: our generation: every older driver is fenced out now.
        said: what was found, in sentences.
    """

    epoch: int
    generation: int
    said: tuple[str, ...]


def resolve(sinks: Sequence[Sink], ledger: Ledger, pipeline: str) -> Resolution:
    """Open a pipeline without a batch: fence older drivers out, settle what is in doubt, bring the ledger up to date.

    Raises:
        OnceOnlyError: what a restart of the query would raise, too.
    """
    state = _open(sinks, ledger, pipeline, accepted=False)
    number = state.last.number if state.last else 0
    generation = state.fence.generation if state.fence else 0
    said = [
        f"every sink holds epoch {number}; generation {generation} is installed, older drivers can write nothing more"
    ]
    intent = ledger.intent(pipeline, number + 1)
    if intent is not None:
        said.append(
            f"epoch {number + 1} was begun by generation {intent.fence.generation} and left no trace in any sink"
        )
    ledger.note(Event(pipeline, EventKind.RESOLVED, said[0], number, generation))
    return Resolution(number, generation, tuple(said))


def adopt(
    sinks: Sequence[Sink],
    ledger: Ledger,
    pipeline: str,
    kind: str,
    *,
    start: SourceOffsets | None = None,
    reason: str = "",
) -> Epoch:
    """Move a pipeline's position by an epoch without rows.

    Args:
        sinks: every sink of the pipeline.
        ledger: its ledger.
        pipeline: its name.
        kind: one of :data:`KINDS`.
        start: where the next batch starts; default: where the batch started that was refused last, else where the
            pipeline stands.
        reason: for the record.

    Returns:
        The adoption.

    Raises:
        OnceOnlyError: E110 nothing to adopt; or what opening raises.
    """
    state = _open(sinks, ledger, pipeline, accepted=True)
    assert state.fence is not None
    head = ledger.head(pipeline)
    last, known = state.last, head.epoch if head else state.last
    target = start or _refused_start(ledger, pipeline) or (known.slice.end if known else None)
    if known is None or target is None:
        raise refuse(
            "E110",
            problem=f'Pipeline "{pipeline}" has no epoch yet, so there is nothing to adopt.',
            cause="the name or the ledger is another one",
            next="onceonly queries list",
        )
    epoch = _adoption(last, known, target, sinks, f"{kind}: {reason}" if reason else kind)
    ledger.discard(pipeline, epoch.number)
    receipts = tuple(sink.commit(None, Marker(pipeline, sink.id, state.fence, epoch)) for sink in sinks)
    ledger.record(EpochRecord(pipeline, state.fence, epoch, receipts))
    ledger.note(Event(pipeline, EventKind.ADOPTED, epoch.adoption or "", epoch.number, state.fence.generation))
    return epoch


def _open(sinks: Sequence[Sink], ledger: Ledger, pipeline: str, *, accepted: bool) -> State:
    state = coordinator.start(
        pipeline,
        tuple(sink.id for sink in sinks),
        secrets.token_hex(8),
        None,
        adopt="here" if accepted else None,
        accepted=accepted,
    )
    return Runner(sinks, ledger).run(state)


def _refused_start(ledger: Ledger, pipeline: str) -> SourceOffsets | None:
    intent, head = ledger.intent(pipeline, REFUSED_OFFER), ledger.head(pipeline)
    if intent is None or (head and head.fence.generation > intent.fence.generation):
        return None  # the pipeline has written since: that refusal was settled
    return intent.slice.start


def _adoption(last: Epoch | None, known: Epoch, target: SourceOffsets, sinks: Sequence[Sink], why: str) -> Epoch:
    previous = last.chain if last else chain.GENESIS
    begin = last.slice.end if last else SourceOffsets(tuple((source, None) for source in target.sources))
    number = last.number + 1 if last else 1
    slice_, nothing = Slice(begin, target), Digest(0)
    first = dict(last.sinks) if last else {}
    template = last or known
    return replace(
        template,
        number=number,
        slice=slice_,
        chain=chain.link(previous, slice_, nothing, "", why),
        previous_chain=previous,
        digest=nothing,
        schema="",
        sinks=tuple((sink.id, first.get(sink.id, number)) for sink in sinks),
        lineage=None,
        manifest=None,
        adoption=why,
        offered=None,
    )
