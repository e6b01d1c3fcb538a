"""Heals, begins and moves a pipeline without Spark: what ``txn resolve``, ``queries adopt`` and ``drop-sink`` do.

An adoption is an epoch of its own: no rows, a slice from the last end to the adopted start, and the operator's
reason, committed into the sink like any other. So it is fenced, chained, audited and never half-done, and nothing
pending has to be remembered anywhere else.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onceonly import comparison, coordinator
from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Sink
from onceonly.runner import REFUSED_OFFER, Runner
from onceonly.sources import Order, order
from onceonly.state import State
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Digest, Epoch, EpochRecord, Lineage, Marker
from onceonly_checkpoints.ledger import Event, EventKind, Ledger
from onceonly_checkpoints.slices import Slice, SourceIdentity, SourceOffsets

KINDS = (
    "accept-loss",
    "accept-duplicates",
    "accept-state-loss",
    "accept-change",
    "keep-recomputed-state",
    "continue",
    "start",
)
"""What an operator can say about a pipeline without changing its sinks."""

FROM_CHECKPOINT = "from-checkpoint"
"""What an operator says of a pipeline that has no epoch yet."""

_NEVER_BACK = ("accept-loss", "accept-change")
"""Kinds that take a hole or a change as it is; what stands is not written again for that."""


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


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch of a job that is taken over.

    Attributes:
        written: its slice.
        lineage: the engine's names for it.
    """

    written: Slice
    lineage: Lineage


def resolve(sinks: Sequence[Sink], ledger: Ledger, pipeline: str) -> Resolution:
    """Open a pipeline without a batch: fence older drivers out, settle what is in doubt, bring the ledger up to date.

    Raises:
        OnceOnlyError: what a restart of the query would raise, too.
    """
    state = _open(sinks, ledger, pipeline)
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
        start: where the next batch starts; default: see :func:`target`, else where the pipeline stands.
        reason: for the record.

    Returns:
        The adoption.

    Raises:
        OnceOnlyError: E110 nothing to adopt, or it is not known where; or what opening raises.
    """
    state = _open(sinks, ledger, pipeline, accepted=kind)
    head, refused = ledger.head(pipeline), refused_start(ledger, pipeline)
    end = target(kind, state.last, refused) if start is None else start
    if end is None and not _forgotten(state):
        end = head.epoch.slice.end if head else None
    if end is None:
        raise nothing_to_adopt(pipeline)
    return _adopt(state, sinks, ledger, end, f"{kind}: {reason}" if reason else kind)


def take_over(sinks: Sequence[Sink], ledger: Ledger, pipeline: str, batch: LastBatch, reason: str = "") -> Epoch:
    """Begin a pipeline where an older job's checkpoint stands: epoch 1, without rows, is that job's last batch.

    Args:
        sinks: every sink of the pipeline.
        ledger: its ledger.
        pipeline: its name.
        batch: the last one that the older job has written; only its checkpoint may go on from here.
        reason: for the record.

    Returns:
        The adoption.

    Raises:
        OnceOnlyError: E110 the pipeline has epochs already; or what opening raises.
    """
    state = _open(sinks, ledger, pipeline, accepted=FROM_CHECKPOINT)
    if newest := max(reading.position.epoch for reading in state.readings):
        raise begun_already(pipeline, newest)
    why = f"{FROM_CHECKPOINT}: {reason}" if reason else FROM_CHECKPOINT
    return _commit(state, sinks, ledger, _adoption(state, batch.written, why, (), batch.lineage))


def begun_already(pipeline: str, newest: int) -> OnceOnlyError:
    """What is raised where a pipeline is to begin that has epochs."""
    return refuse(
        "E110",
        problem=f'Pipeline "{pipeline}" stands at epoch {newest} already.',
        cause="the name is that of a running pipeline, or it was taken over before",
        next=f"onceonly epochs list --query {shlex.quote(pipeline)}; a pipeline to be begun needs a name of its own",
    )


def drop_sink(sinks: Sequence[Sink], ledger: Ledger, pipeline: str, sink: str, *, reason: str = "") -> Epoch:
    """Take a sink out of a pipeline by an epoch without rows in all others; it is not touched itself.

    Args:
        sinks: every other sink of the pipeline.
        ledger: its ledger.
        pipeline: its name.
        sink: id of the sink that goes.
        reason: for the record.

    Returns:
        The adoption: the first epoch that does not list the sink.

    Raises:
        OnceOnlyError: E110 there is no epoch yet; or what opening raises.
    """
    state = _open(sinks, ledger, pipeline, dropped=sink)
    if state.last is None:
        raise nothing_to_adopt(pipeline)
    why = f"drop-sink {sink}"
    return _adopt(state, sinks, ledger, state.last.slice.end, f"{why}: {reason}" if reason else why)


def target(kind: str, last: Epoch | None, refused: SourceOffsets | None) -> SourceOffsets | None:
    """Where an adoption moves to by itself.

    Args:
        kind: one of :data:`KINDS`.
        last: the newest epoch of the sinks; ``None`` where they hold none.
        refused: where the batch starts that was refused last; ``None`` if there was none since.

    Returns:
        Offsets; ``None`` where neither tells.
    """
    if last is None or (refused is not None and kind != "keep-recomputed-state" and not _back(kind, last, refused)):
        return refused
    return last.slice.end


def _back(kind: str, last: Epoch, refused: SourceOffsets) -> bool:
    """Whether a position would go back where only the replay of a batch was refused, which is skipped from now on."""
    return kind in _NEVER_BACK and order(refused, last.slice.end) is Order.BEFORE


def refused_start(ledger: Ledger, pipeline: str) -> SourceOffsets | None:
    """Where the batch starts that was refused last; ``None`` if none was, or the pipeline has written since."""
    intent, head = ledger.intent(pipeline, REFUSED_OFFER), ledger.head(pipeline)
    if intent is None or (head and head.fence.generation > intent.fence.generation):
        return None
    return intent.slice.start


def nothing_to_adopt(pipeline: str) -> OnceOnlyError:
    """The error for a pipeline of which nobody knows where it stands."""
    return refuse(
        "E110",
        problem=f'Pipeline "{pipeline}" has no epoch yet that tells where it stands, so there is nothing to adopt.',
        cause="the name or the ledger is another one, or the query was not restarted since",
        next="onceonly queries list; where it stands can also be said: --start OFFSETS",
    )


def _open(sinks: Sequence[Sink], ledger: Ledger, pipeline: str, *, accepted: str = "", dropped: str = "") -> State:
    state = coordinator.start(
        pipeline,
        tuple(sink.id for sink in sinks),
        secrets.token_hex(8),
        None,
        adopt="here" if accepted else None,
        accepted=accepted,
        dropped=dropped,
    )
    return Runner(sinks, ledger).run(state)


def _forgotten(state: State) -> bool:
    """Whether a sink holds epochs whose text is gone, and nothing else tells where they ended."""
    return state.last is None and any(reading.position.epoch for reading in state.readings)


def _adopt(state: State, sinks: Sequence[Sink], ledger: Ledger, end: SourceOffsets, why: str) -> Epoch:
    head = ledger.head(state.pipeline)
    sources = head.epoch.sources if head else ()
    begin = state.last.slice.end if state.last else SourceOffsets(tuple((source, None) for source in end.sources))
    moved = _adoption(state, Slice(begin, end), why, state.last.sources if state.last else sources)
    return _commit(state, sinks, ledger, moved)


def _commit(state: State, sinks: Sequence[Sink], ledger: Ledger, epoch: Epoch) -> Epoch:
    assert state.fence is not None
    ledger.discard(state.pipeline, epoch.number)
    receipts = tuple(sink.commit(None, Marker(state.pipeline, sink.id, state.fence, epoch)) for sink in sinks)
    ledger.record(EpochRecord(state.pipeline, state.fence, epoch, receipts))
    why = epoch.adoption or ""
    ledger.note(Event(state.pipeline, EventKind.ADOPTED, why, epoch.number, state.fence.generation))
    return epoch


def _adoption(
    state: State, slice_: Slice, why: str, sources: tuple[SourceIdentity, ...], lineage: Lineage | None = None
) -> Epoch:
    last, nothing = state.last, Digest(0)
    previous = last.chain if last else chain.GENESIS
    number = 1 + max(reading.position.epoch for reading in state.readings)
    # A pipeline whose batches are compared by file stays one, unless it is said where it goes on.
    offered = last.offered if last and why.startswith(comparison.LEAVE_THE_SOURCE) else None
    offered = Slice(offered.end, offered.end) if offered else None
    return Epoch(
        number=number,
        slice=slice_,
        chain=chain.link(previous, slice_, nothing, "", why, offered=offered),
        previous_chain=previous,
        digest=nothing,
        schema="",
        sinks=tuple(_listed(state, number)),
        lineage=lineage,
        sources=sources,
        adoption=why,
        offered=offered,
    )


def _listed(state: State, number: int) -> Iterator[tuple[str, int]]:
    """Sinks with their first epochs; one that does not hold the last epoch begins anew with the adoption."""
    last, first = state.last, dict(state.last.sinks) if state.last else {}
    for reading in state.readings:
        holds = last is not None and reading.position.epoch == last.number
        yield reading.sink, first.get(reading.sink, number) if holds else number
