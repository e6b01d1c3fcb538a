"""State machine of an epoch: ``next(state)``, ``apply(state, outcome)``. Pure.

    PROBE     find the highest generation anywhere                   -> RECALL
    RECALL    read the ledger's head                                 -> LOOK
    LOOK      peek at the sinks without a fence                      -> COMPARE, only to refuse; else INSTALL
    INSTALL   our fence into every sink, strictly greater only       -> READ
    READ      every sink's position under that fence                 -> INDEX | FETCH | COMMIT | REFUSED
    FETCH     the staged bytes that some sinks lack (R3)             -> PREPARE | STAGE (if they are gone)
    INDEX     the ledger learns who opened and epochs of the sinks   -> COMPARE
    COMPARE   decide on the engine's batch (at once, no I/O)         -> RECOLLECT | INTEND | EXECUTE | RECORD | REFUSED
                                                                        | GATHER
    RECOLLECT find an earlier epoch of this query's batch id         -> COMPARE
    GATHER    read the input files of recorded epochs                -> COMPARE
    EXECUTE   a skipped batch of a stateful query still runs         -> RECORD | REFUSED
    INTEND    the ledger notes the epoch about to be written         -> STAGE | PREPARE
    STAGE     several sinks, or outputs: the batch's one action      -> PREPARE
    PREPARE   rows near each sink, invisible; of one sink the action -> COMMIT | PROBE (higher generation)
    COMMIT    rows and markers, transaction by transaction           -> RECORD | LOOK_UP | READ (healed) | REFUSED
                                                                        | PROBE (higher generation)
    LOOK_UP   after a lost answer: was it committed                  -> as COMMIT | PROBE (higher generation)
    RECORD    receipts into the ledger; of a skip, its input files   -> DONE

The state is frozen and holds everything. The machine imports no Spark, driver, clock or randomness, so that the runner,
an explorer and a fuzzer drive the same code. A commit that is unresolved, absent or rolled back for another writer's
sake never repeats under its generation. The machine opens again with a higher one, which kills transactions in flight,
and reads the current positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onceonly.machine import commands as c
from onceonly.machine import division_rules
from onceonly.machine import event_time as times
from onceonly.machine.facts import Offer, OutOfPhase
from onceonly.machine.state import Job, Opening, Phase, State
from onceonly.machine.transitions import APPLY, compare
from onceonly.protocol.batch import AsOf, Bound
from onceonly.protocol.row_times import Clock
from onceonly_checkpoints.epoch import Fence, Marker, receipts_of


def start(job: Job) -> State:
    """Return the state before an opening. Its job's ``owner`` is a fresh random token."""
    return State(Phase.PROBE, job, Opening(Fence(0, job.owner)))


def resume(state: State, offer: Offer) -> State:
    """Return the state for the next batch of the same opening: same fence, position of the epoch just finished."""
    return compare(State(Phase.COMPARE, state.job.of(offer), state.opening.for_next_batch))


def marker(state: State, sink: str) -> Marker:
    """Return the marker that ``sink`` gets for the epoch being written."""
    return Marker(state.job.pipeline, sink, state.opening.fence, state.current)


def next(state: State) -> c.Command:
    """Return the one command that brings the state forward. Pending events and waits come first."""
    if state.happenings:
        return c.Note(state.happenings)
    if state.waiting:
        return c.Wait(state.opening.attempt + state.work.unknowns)
    return _NEXT[state.phase](state)


def _read(state: State) -> c.Command:
    head = state.opening.head
    receipts = receipts_of(head)
    return c.Read(state.sink, receipts.get(state.sink), head.epoch.number if head else 0)


def _recollect(state: State) -> c.Command:
    lineage = state.offered.lineage
    last = state.opening.last
    return c.Recollect(lineage.query_id, lineage.batch_id, last.number if last else 0)


def _index(state: State) -> c.Command:
    opening, offer = state.opening, state.job.offer
    newest = opening.last or (opening.head.epoch if opening.head else None)
    lineage = newest.resume_point.lineage if newest else None
    manifest = opening.last.manifest if opening.last else None
    since = opening.last.columns_epoch if opening.last else 0
    return c.Index(opening.fence, opening.unindexed, offer.lineage if offer else lineage, manifest, since)


def _stage(state: State) -> c.Command:
    work = state.work
    fence, healing, lasting = state.opening.fence, bool(work.healing), state.job.lasting
    lineage = work.epoch.lineage if work.epoch else state.offered.lineage
    as_of = AsOf(state.series, work.number, lineage.batch_timestamp_ms if lineage else 0, state.job.pipeline)
    clock = None if healing else _clock(state)
    return c.Stage(
        work.number, fence, state.written, work.trim, healing, lasting, as_of, clock, _bound(state, as_of), work.aside
    )


def _bound(state: State, as_of: AsOf) -> Bound | None:
    if state.job.windows is None:
        return None
    return division_rules.bound(as_of, state.before, begins=state.begins, previous=state.offered.previous_clock)


def _clock(state: State) -> Clock | None:
    return times.clock(state.job.noting, state.previous_time)


def _poll(state: State) -> c.Command:
    noting, last_time = state.job.noting, state.previous_time.recorded_time
    declared = noting.writers.declared if noting and noting.writers else ()
    writers = [mark.writer for mark in last_time.writers] if last_time else []
    return c.Poll(tuple(name for name in dict.fromkeys((*declared, *writers)) if name != state.job.pipeline))


def _prepare(state: State) -> c.Command:
    work = state.work
    output = work.epoch.output(state.sink) if work.epoch else None  # without outputs the epoch is made of the answer
    (transaction_sinks,) = (transaction for transaction in state.transactions if state.sink in transaction)
    siblings = tuple(sink for sink in state.targets[: work.index] if sink in transaction_sinks)
    clock = None if work.epoch else _clock(state)
    return c.Prepare(
        state.sink, work.number, work.trim, work.replaces, output.name if output else None, siblings, clock
    )


def _sibling_markers(state: State) -> tuple[Marker, ...]:
    return tuple(marker(state, sink) for sink in state.transaction[1:])


def _record(state: State) -> c.Command:
    before = state.opening.last.manifest if state.opening.last else None
    replaced = None if state.work.skipped else before
    return c.Record(state.current, state.opening.fence, state.work.receipts, state.work.skipped, replaced)


def _fetch(state: State) -> c.Command:
    manifest = state.current.manifest
    if manifest is None:
        raise OutOfPhase(state.phase.value, "staged bytes")
    return c.Fetch(manifest)


def _refuse(state: State) -> c.Command:
    if state.refusal is None:
        raise OutOfPhase(state.phase.value, "a reason")
    return c.Refuse(state.refusal)


_NEXT: dict[Phase, Callable[[State], c.Command]] = {
    Phase.PROBE: lambda state: c.Probe(),
    Phase.RECALL: lambda state: c.Recall(),
    Phase.LOOK: lambda state: c.Look(),
    Phase.INSTALL: lambda state: c.Install(state.sink, state.opening.fence),
    Phase.READ: _read,
    Phase.INDEX: _index,
    Phase.RECOLLECT: _recollect,
    Phase.GATHER: lambda state: c.Gather(state.past),
    Phase.EXECUTE: lambda state: c.Execute(division_rules.set_aside(state.current)),
    Phase.INTEND: lambda state: c.Intend(state.work.number, state.opening.fence, state.written, state.work.replaces),
    Phase.POLL: _poll,
    Phase.FETCH: _fetch,
    Phase.STAGE: _stage,
    Phase.PREPARE: _prepare,
    Phase.COMMIT: lambda state: c.Commit(marker(state, state.sink), _sibling_markers(state)),
    Phase.LOOK_UP: lambda state: c.LookUp(marker(state, state.sink), _sibling_markers(state)),
    Phase.RECORD: _record,
    Phase.DONE: lambda state: c.Return(),
    Phase.REFUSED: _refuse,
}


def apply(state: State, outcome: c.Outcome) -> State:
    """Return the state after this outcome. ``TypeError``: it does not answer the command of :func:`next`."""
    if isinstance(outcome, c.Done) and state.happenings:
        return replace(state, happenings=())
    if isinstance(outcome, c.Done) and state.waiting:
        return replace(state, waiting=False)
    handler = APPLY.get((state.phase, type(outcome)))
    if handler is None:
        raise TypeError(f"{type(outcome).__name__} does not answer {state.phase.value}")
    return handler(state, outcome)
