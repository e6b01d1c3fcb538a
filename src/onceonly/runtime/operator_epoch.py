"""Commit an operator's decision as an epoch without rows.

It has the operator's reason, and no rows unless a repair brings some. Its slice is empty, or ends at the new position.
So it is fenced, chained, audited and atomic, and no pending decision has to be kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from onceonly.errors import OnceOnlyError
from onceonly.errors.options import misused
from onceonly.machine import coordinator, event_time, opening
from onceonly.machine.event_time import PreviousTime
from onceonly.machine.facts import Happening, Refusal
from onceonly.machine.state import Job, State
from onceonly.protocol import Conflict, OutcomeUnknown, Prepared, Sink, Superseded
from onceonly.runtime import ledger_sync, remedies, runs, staging
from onceonly.runtime.runner import Runner
from onceonly.runtime.sink_refusals import histories, naming
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Lineage, Marker, Receipt, ResumePoint
from onceonly_checkpoints.epoch_time import EpochTime, EpochWindows
from onceonly_checkpoints.ledger import Event, EventKind, Ledger
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceIdentity

MOVING = (AdoptionKind.ACCEPT_DUPLICATES, AdoptionKind.CONTINUE, AdoptionKind.START)
"""Kinds of decisions after which a source's own count of what it handed out begins anew."""


def opened(
    sinks: Sequence[Sink],
    ledger: Ledger,
    pipeline: str,
    *,
    accepted: Adoption | None = None,
    dropped: str = "",
    heals: bool = False,
) -> State:
    """Fence every driver of a pipeline out, and return its state. ``OnceOnlyError``: it cannot be opened."""
    state = coordinator.start(
        Job(
            pipeline,
            tuple(sink.id for sink in sinks),
            runs.owner("onceonly"),
            None,
            adopt="here" if accepted and accepted.kind is AdoptionKind.FROM_CHECKPOINT else None,
            accepted=accepted,
            dropped=dropped,
            heals=heals,
        )
    )
    return Runner(sinks, ledger).run(state)


def went_on(pipeline: str, newest_epoch: int, shown: int) -> OnceOnlyError:
    """Error if the newest epoch is not the one of the plan that the operator saw."""
    return misused(
        f'Pipeline "{pipeline}" is at epoch {newest_epoch}, and the plan was for epoch {shown}.',
        "the query continued, or a sink was restored, after the plan was printed",
        "stop every driver; run the command once more without --yes and read its plan",
    )


def recorded(ledger: Ledger, pipeline: str, number: int) -> Epoch | None:
    """Return the ledger's epoch of this number."""
    return next((record.epoch for record in ledger.epochs(pipeline, number, number)), None)


def write(
    state: State,
    sinks: Sequence[Sink],
    ledger: Ledger,
    epoch: Epoch,
    newest: Epoch | None = None,
    *,
    rows: Mapping[str, Prepared] | None = None,
) -> Epoch:
    """Commit an operator's epoch to every sink, in commit order, and record it.

    ``newest`` is the epoch before it, or ``None`` if it has no bearing on event time. ``rows`` are prepared rows by
    sink id, by default none. A sink that is healed later gets none. Raises as :func:`committed`.
    """
    receipts = tuple(committed(state, sink, sinks, ledger, epoch, rows=(rows or {}).get(sink.id)) for sink in sinks)
    # Only now: until a sink holds the decision, only the old records prove the loss.
    _forget(sinks, ledger, state, epoch)
    ledger.record(EpochRecord(state.job.pipeline, state.opening.fence, epoch, receipts))
    ledger_sync.seal(sinks, state.job.pipeline, epoch, ledger)
    why = Happening(EventKind.ADOPTED, epoch.adoption.words if epoch.adoption else "", epoch.number)
    back = event_time.given_up(epoch, newest) or put_back(state, epoch, newest)
    pipeline, generation = state.job.pipeline, state.opening.fence.generation
    for happening in (why, *back):
        ledger.note(Event(pipeline, happening.kind, happening.reason, happening.epoch, generation))
    return epoch


def put_back(state: State, epoch: Epoch, newest: Epoch | None) -> Sequence[Happening]:
    """Return the event that event time was set back, if the epoch is the first after a rewind or of a new series."""
    if epoch.time is None:
        return ()
    return event_time.reset_time(PreviousTime(state.job.pipeline, epoch.number, newest, cut=state.opening.cut))


def committed(
    state: State, sink: Sink, sinks: Sequence[Sink], ledger: Ledger, epoch: Epoch, *, rows: Prepared | None = None
) -> Receipt:
    """Commit an operator's epoch and return its receipt. A repeated command finds the outcome of a failed one.

    Raises E301, E401, E526, or an error of the sink.
    """
    pipeline, ours = state.job.pipeline, state.opening.fence

    def stopped(code: str, **details: object) -> OnceOnlyError:
        refused = remedies.Context(pipeline, ours, state.opening.last, None)
        return remedies.error_of(Refusal.of(code, sink=sink.id, **details), refused, ledger, sinks, staging.fetch)

    try:
        with naming(sink):
            return sink.commit(rows, Marker(pipeline, sink.id, ours, epoch))
    except Superseded as fenced:
        theirs, by = fenced.current_fence.generation, fenced.current_fence.who or "a newer driver"
        raise stopped("E401", theirs=theirs, ours=ours.generation, by=by) from fenced
    except OutcomeUnknown as lost:
        raise stopped("E301", epoch=epoch.number, reason=lost.reason, pipeline=pipeline) from lost
    except Conflict as conflict:
        conflict_details = {"reason": conflict.reason, "blocker": conflict.blocker}
        raise stopped("E526", epoch=epoch.number, times=1, **conflict_details) from conflict
    except BaseException:
        if rows:
            rows.abandon()
        raise


def _forget(sinks: Sequence[Sink], ledger: Ledger, state: State, epoch: Epoch) -> None:
    """Discard records that this adoption replaces, and those that an earlier, unrecorded adoption replaced."""
    last = state.opening.last
    recorded_epoch = recorded(ledger, state.job.pipeline, last.number) if last else None
    if last is None or recorded_epoch is None or recorded_epoch.chain == last.chain:
        ledger.discard(state.job.pipeline, epoch.number)
        return
    chains = {record.epoch.number: record.epoch.chain for record in ledger.epochs(state.job.pipeline, 1, last.number)}
    held = opening.by_epoch(list(histories(sinks)))
    lost = [entry for entry in held if chains.get(entry[0].epoch.number, entry[0].epoch.chain) != entry[0].epoch.chain]
    ledger.discard(state.job.pipeline, lost[0][0].epoch.number)
    for marker, receipts in held:
        if lost[0][0].epoch.number <= marker.epoch.number < epoch.number:
            ledger.record(EpochRecord(state.job.pipeline, marker.fence, marker.epoch, receipts))


def decision(
    state: State,
    slice_: Slice,
    accepted: Adoption,
    *,
    resume_point: ResumePoint,
    sources: tuple[SourceIdentity, ...] = (),
    lineage: Lineage | None = None,
    base: Epoch | None = None,
    time: EpochTime | None = None,
) -> Epoch:
    """Build the epoch without rows that holds an operator's decision."""
    last = state.opening.last
    number = 1 + max(reading.position.epoch for reading in state.opening.readings)
    previous_time = PreviousTime(state.job.pipeline, number, base, cut=state.opening.cut)
    comes_again = base is not None and number <= base.number
    epoch = Epoch(
        number=number,
        written=slice_,
        chain="",
        previous_chain=last.chain if last else chain.GENESIS,
        digest=Digest(0),
        schema="",
        sinks=tuple(_listed(state, number)),
        lineage=lineage,
        sources=sources,
        adoption=accepted,
        carried=_carried(resume_point, accepted),
        series=base.series if base else 1,
        time=time or event_time.carried(previous_time.recorded_time, turn=previous_time.turn + comes_again),
        windows=_panes(base, accepted, number),
        columns_since=last.columns_epoch if last else 0,
    )
    return chain.linked(epoch)


def _panes(base: Epoch | None, accepted: Adoption, number: int) -> EpochWindows | None:
    """Return the open windows, unless this decision gives them up."""
    windows = base.windows if base else None
    return windows.given_up(number) if windows and accepted.kind is AdoptionKind.RESET_PANES else windows


def _carried(resume_point: ResumePoint, accepted: Adoption) -> ResumePoint:
    """Add the decision to the resume point. One that moves the position also ends the old offered range."""
    offered = None if accepted.kind in MOVING else resume_point.offered
    offered = Slice(offered.end, offered.end) if offered else None
    return replace(resume_point, accepted=(*resume_point.accepted, accepted), offered=offered)


def _listed(state: State, number: int) -> Iterator[tuple[str, int]]:
    """Yield sinks with their first epochs. A sink without the last epoch begins anew with the adoption."""
    last, first = state.opening.last, dict(state.opening.last.sinks) if state.opening.last else {}
    for reading in state.opening.readings:
        holds = last is not None and reading.position.epoch == last.number
        yield reading.sink, first.get(reading.sink, number) if holds else number
