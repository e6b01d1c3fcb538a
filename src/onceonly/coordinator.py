"""One epoch as a pure state machine: ``next(state) -> Command``, ``apply(state, outcome) -> State``.

    PROBE     which generation is the highest anywhere               -> RECALL
    RECALL    what does the ledger remember                          -> LOOK
    LOOK      what do the sinks show to anybody                      -> COMPARE, only to refuse; else INSTALL
    INSTALL   our fence into every sink, strictly greater only       -> READ
    READ      every sink's position under that fence                 -> INDEX | FETCH | COMMIT | REFUSED
    FETCH     the staged bytes that some sinks lack (R3)             -> PREPARE | STAGE (if they are gone)
    INDEX     the ledger learns who opened and what the sinks know   -> COMPARE
    COMPARE   what is the engine's batch (decided at once, no I/O)   -> RECOLLECT | INTEND | EXECUTE | RECORD | REFUSED
                                                                        | GATHER
    RECOLLECT has this query's batch id been an epoch before         -> COMPARE
    GATHER    which input files do recorded epochs hold              -> COMPARE
    EXECUTE   a skipped batch of a stateful query still runs         -> RECORD | REFUSED
    INTEND    the ledger notes what is about to be written           -> STAGE | PREPARE
    STAGE     several sinks: the batch's one action, into files      -> PREPARE
    PREPARE   rows near each sink, invisible; of one sink the action -> COMMIT | PROBE (higher generation)
    COMMIT    rows and marker in one transaction, per sink           -> RECORD | LOOK_UP | READ (healed) | REFUSED
                                                                        | PROBE (higher generation)
    LOOK_UP   after a lost answer: did it land                       -> as COMMIT | PROBE (higher generation)
    RECORD    receipts into the ledger; of a skip, its input files   -> DONE

The state is frozen and holds everything; the machine imports no Spark, driver, clock or randomness, so that the
runner, an explorer and a fuzzer drive the same code. An unresolved or absent commit never repeats under its
generation, nor does one that the sink took back for another writer's sake: the machine opens again, higher, which kills
whatever may still be in flight, and reads what stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onceonly.commands import (
    Command,
    Commit,
    Done,
    Execute,
    Fetch,
    Gather,
    Index,
    Install,
    Intend,
    Look,
    LookUp,
    Note,
    Outcome,
    Prepare,
    Probe,
    Read,
    Recall,
    Recollect,
    Record,
    Refuse,
    Return,
    Stage,
    Wait,
)
from onceonly.facts import Adopt, Offer, Overlap
from onceonly.state import Phase, State
from onceonly.transitions import APPLY, compare
from onceonly_checkpoints.adoption import Adoption
from onceonly_checkpoints.epoch import Marker, Receipt


def start(
    pipeline: str,
    sinks: tuple[str, ...],
    owner: str,
    offer: Offer | None,
    *,
    adopt: Adopt = None,
    accepted: Adoption | None = None,
    dropped: str = "",
    heals: bool = False,
    overlap: Overlap = "stop",
    stages: bool = False,
) -> State:
    """The state before an opening. ``owner`` is a fresh random token."""
    return State(Phase.PROBE, pipeline, sinks, owner, offer, adopt, accepted, dropped, heals, overlap, stages)


def resume(state: State, offer: Offer) -> State:
    """The state for the next batch of the same opening: the fence stands, the position is the epoch just finished."""
    fresh = State(
        Phase.COMPARE,
        state.pipeline,
        state.sinks,
        state.owner,
        offer,
        overlap=state.overlap,
        stages=state.stages,
        held=state.held,
        fence=state.fence,
        last=state.last,
        floor=state.floor,
        healed=state.healed,
    )
    return compare(fresh)


def marker(state: State, sink: str) -> Marker:
    """Return the marker that ``sink`` gets for the epoch being written."""
    assert state.fence is not None
    assert state.epoch is not None
    return Marker(state.pipeline, sink, state.fence, state.epoch)


def next(state: State) -> Command:
    """The one command that brings the state forward; pending events and waits come first."""
    if state.happenings:
        return Note(state.happenings)
    if state.waiting:
        return Wait(state.openings + state.unknowns)
    return _NEXT[state.phase](state)


def _sink(state: State) -> str:
    return state.targets[state.index]


def _install(state: State) -> Command:
    assert state.fence is not None
    return Install(_sink(state), state.fence)


def _receipt(state: State, sink: str) -> Receipt | None:
    receipts = state.head.receipts if state.head else ()
    return {receipt.sink: receipt for receipt in receipts}.get(sink)


def _read(state: State) -> Command:
    after = state.head.epoch.number if state.head else 0
    return Read(_sink(state), _receipt(state, _sink(state)), after)


def _index(state: State) -> Command:
    assert state.fence is not None
    return Index(state.fence, state.unindexed)


def _recollect(state: State) -> Command:
    assert state.offer is not None
    return Recollect(state.offer.lineage.query_id, state.offer.lineage.batch_id)


def _fetch(state: State) -> Command:
    assert state.epoch is not None
    assert state.epoch.manifest is not None
    return Fetch(state.epoch.manifest)


def _record(state: State) -> Command:
    assert state.epoch is not None
    return Record(state.epoch, state.receipts)


def _refuse(state: State) -> Command:
    assert state.refusal is not None
    return Refuse(state.refusal)


_NEXT: dict[Phase, Callable[[State], Command]] = {
    Phase.PROBE: lambda state: Probe(),
    Phase.RECALL: lambda state: Recall(),
    Phase.LOOK: lambda state: Look(),
    Phase.INSTALL: _install,
    Phase.READ: _read,
    Phase.INDEX: _index,
    Phase.RECOLLECT: _recollect,
    Phase.GATHER: lambda state: Gather(),
    Phase.EXECUTE: lambda state: Execute(),
    Phase.INTEND: lambda state: Intend(state.number),
    Phase.FETCH: _fetch,
    Phase.STAGE: lambda state: Stage(state.number, state.trim),
    Phase.PREPARE: lambda state: Prepare(_sink(state), state.number, state.trim),
    Phase.COMMIT: lambda state: Commit(marker(state, _sink(state))),
    Phase.LOOK_UP: lambda state: LookUp(marker(state, _sink(state))),
    Phase.RECORD: _record,
    Phase.DONE: lambda state: Return(),
    Phase.REFUSED: _refuse,
}


def apply(state: State, outcome: Outcome) -> State:
    """The state after the command of :func:`next` had this outcome.

    Raises:
        TypeError: the outcome does not answer the command.
    """
    if isinstance(outcome, Done) and state.happenings:
        return replace(state, happenings=())
    if isinstance(outcome, Done) and state.waiting:
        return replace(state, waiting=False)
    handler = APPLY.get((state.phase, type(outcome)))
    if handler is None:
        raise TypeError(f"{type(outcome).__name__} does not answer {state.phase.value}")
    return handler(state, outcome)
