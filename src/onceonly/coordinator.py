"""One epoch as a pure state machine: ``next(state) -> Command``, ``apply(state, outcome) -> State``.

    PROBE     which generation is the highest anywhere               -> RECALL
    RECALL    what does the ledger remember                          -> INSTALL
    INSTALL   our fence into every sink, strictly greater only       -> READ
    READ      every sink's position under that fence                 -> INDEX | REFUSED
    INDEX     the ledger learns who opened and what the sinks know   -> COMPARE
    COMPARE   what is the engine's batch (decided at once, no I/O)   -> RECOLLECT | INTEND | EXECUTE | DONE | REFUSED
    RECOLLECT has this query's batch id been an epoch before         -> COMPARE
    EXECUTE   a skipped batch of a stateful query still runs         -> DONE | REFUSED
    INTEND    the ledger notes what is about to be written           -> PREPARE
    PREPARE   the batch's one action: rows near the sink, invisible  -> COMMIT
    COMMIT    rows and marker in one transaction, per sink           -> RECORD | LOOK_UP | REFUSED
    LOOK_UP   after a lost answer: did it land                       -> RECORD | PROBE (higher generation) | REFUSED
    RECORD    receipts into the ledger                               -> DONE

The state is frozen and holds everything; the machine imports no Spark, driver, clock or randomness, so that the runner, an explorer
and a fuzzer drive the same code. An unresolved or absent commit never repeats under its generation: the machine opens again,
higher, which kills whatever may still be in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from onceonly import recovery
from onceonly.commands import (
    Absent,
    Command,
    Commit,
    Committed,
    Done,
    Execute,
    Executed,
    Index,
    Install,
    Installed,
    Intend,
    LookUp,
    Note,
    Outcome,
    Overtaken,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Read,
    Recall,
    Recalled,
    Recollect,
    Recollected,
    Record,
    Refuse,
    Return,
    Unknown,
    Wait,
)
from onceonly.recovery import (
    Adopt,
    BatchFacts,
    Happening,
    NewEpoch,
    Offer,
    OpeningFacts,
    Proceed,
    Reading,
    Refusal,
    Skip,
)
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Digest, Epoch, EpochRecord, Fence, Lineage, Marker, Receipt
from onceonly_checkpoints.ledger import EventKind

MAX_OPENINGS = 5
"""How often an opening that met an equal generation, or a commit that was found absent, starts again higher."""

MAX_UNKNOWN = 5
"""How often a lost answer is looked up before the query stops."""


class Phase(Enum):
    """Where the machine stands; see the module's text."""

    PROBE = "probe"
    RECALL = "recall"
    INSTALL = "install"
    READ = "read"
    INDEX = "index"
    COMPARE = "compare"
    RECOLLECT = "recollect"
    EXECUTE = "execute"
    INTEND = "intend"
    PREPARE = "prepare"
    COMMIT = "commit"
    LOOK_UP = "look up"
    RECORD = "record"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class State:
    """Everything the machine knows. Build with :func:`start`, go on with :func:`resume`.

    Attributes:
        pipeline: its name.
        sinks: sink ids in commit order.
        owner: this opening's random token.
        offer: the engine's batch; ``None`` when a pipeline is only opened (``txn resolve``, ``queries adopt``).
        adopt: where a target stands that we have never written.
        accepted: R6 is known and taken (``queries adopt``).
        floor: the next generation must be greater than this.
        last: the newest epoch that every sink holds.
        lineage: the newest lineage on record.
        fence: our fence; ``None`` until proposed.
        index: which sink is next in a phase that goes through all of them.
        readings: what the sinks said under our fence.
        head: the ledger's newest record.
        unindexed: epochs that the ledger has to learn.
        descent: recorded epochs from the offered batch id on; ``None``: not looked up.
        epoch: the epoch being written, or the one that was proven to be written.
        number: number of the epoch being written; 0 for none.
        receipts: answers so far.
        openings: how often a generation was proposed.
        unknowns: lost answers in a row.
        waiting: whether to wait before the next command.
        happenings: events not yet noted.
        skipped: whether the batch was proven to be written already.
        refusal: why the machine stopped.
    """

    phase: Phase
    pipeline: str
    sinks: tuple[str, ...]
    owner: str
    offer: Offer | None = None
    adopt: Adopt = None
    accepted: bool = False
    floor: int = 0
    last: Epoch | None = None
    lineage: Lineage | None = None
    fence: Fence | None = None
    index: int = 0
    readings: tuple[Reading, ...] = ()
    head: EpochRecord | None = None
    unindexed: tuple[tuple[Marker, Receipt], ...] = ()
    descent: tuple[Epoch, ...] | None = None
    epoch: Epoch | None = None
    number: int = 0
    receipts: tuple[Receipt, ...] = ()
    openings: int = 0
    unknowns: int = 0
    waiting: bool = False
    happenings: tuple[Happening, ...] = ()
    skipped: bool = False
    refusal: Refusal | None = None


def start(
    pipeline: str,
    sinks: tuple[str, ...],
    owner: str,
    offer: Offer | None,
    *,
    adopt: Adopt = None,
    accepted: bool = False,
) -> State:
    """The state before an opening. ``owner`` is a fresh random token."""
    return State(Phase.PROBE, pipeline, sinks, owner, offer, adopt, accepted)


def resume(state: State, offer: Offer) -> State:
    """The state for the next batch of the same opening: the fence stands, the position is the epoch just finished."""
    fresh = State(
        Phase.COMPARE,
        state.pipeline,
        state.sinks,
        state.owner,
        offer,
        fence=state.fence,
        last=state.last,
        lineage=state.lineage,
        floor=state.floor,
    )
    return _compare(fresh)


def marker(state: State, sink: str) -> Marker:
    """Return the marker that ``sink`` gets for the epoch being written."""
    assert state.fence is not None
    assert state.epoch is not None
    return Marker(state.pipeline, sink, state.fence, state.epoch)


# ---- next: which command the state asks for


def next(state: State) -> Command:
    """The one command that brings the state forward; pending events and waits come first."""
    if state.happenings:
        return Note(state.happenings)
    if state.waiting:
        return Wait(state.openings + state.unknowns)
    return _NEXT[state.phase](state)


def _sink(state: State) -> str:
    return state.sinks[state.index]


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


def _record(state: State) -> Command:
    assert state.epoch is not None
    return Record(state.epoch, state.receipts)


def _refuse(state: State) -> Command:
    assert state.refusal is not None
    return Refuse(state.refusal)


_NEXT: dict[Phase, Callable[[State], Command]] = {
    Phase.PROBE: lambda state: Probe(),
    Phase.RECALL: lambda state: Recall(),
    Phase.INSTALL: _install,
    Phase.READ: _read,
    Phase.INDEX: _index,
    Phase.RECOLLECT: _recollect,
    Phase.EXECUTE: lambda state: Execute(),
    Phase.INTEND: lambda state: Intend(state.number),
    Phase.PREPARE: lambda state: Prepare(_sink(state), state.number),
    Phase.COMMIT: lambda state: Commit(marker(state, _sink(state))),
    Phase.LOOK_UP: lambda state: LookUp(marker(state, _sink(state))),
    Phase.RECORD: _record,
    Phase.DONE: lambda state: Return(),
    Phase.REFUSED: _refuse,
}


# ---- apply: what an outcome makes of the state


def apply(state: State, outcome: Outcome) -> State:
    """The state after the command of :func:`next` had this outcome.

    Raises:
        TypeError: the outcome does not answer the command.
    """
    if isinstance(outcome, Done) and state.happenings:
        return replace(state, happenings=())
    if isinstance(outcome, Done) and state.waiting:
        return replace(state, waiting=False)
    handler = _APPLY.get((state.phase, type(outcome)))
    if handler is None:
        raise TypeError(f"{type(outcome).__name__} does not answer {state.phase.value}")
    return handler(state, outcome)


def _stop(state: State, code: str, **details: object) -> State:
    return replace(state, phase=Phase.REFUSED, refusal=Refusal.of(code, **details))


def _probed(state: State, outcome: Probed) -> State:
    highest = max((fence.generation for fence in outcome.fences if fence), default=0)
    fence = Fence(1 + max(highest, state.floor), state.owner)
    return replace(state, phase=Phase.RECALL, fence=fence, openings=state.openings + 1, index=0, readings=())


def _recalled(state: State, outcome: Recalled) -> State:
    return replace(state, phase=Phase.INSTALL, head=outcome.head, lineage=outcome.lineage, index=0, unknowns=0)


def _installed(state: State, _: Installed) -> State:
    state = replace(state, unknowns=0)
    if state.index + 1 < len(state.sinks):
        return replace(state, index=state.index + 1)
    return replace(state, phase=Phase.READ, index=0)


def _install_unknown(state: State, _: Unknown) -> State:
    if state.unknowns + 1 >= MAX_UNKNOWN:
        return _stop(state, "E302", sink=_sink(state), times=MAX_UNKNOWN)
    return replace(state, unknowns=state.unknowns + 1, waiting=True)


def _overtaken(state: State, outcome: Overtaken) -> State:
    """A higher generation owns the pipeline; an equal one of another owner is a tie, and ties are run again higher."""
    assert state.fence is not None
    ours, theirs = state.fence.generation, outcome.found.generation
    if theirs > ours:
        reason = f"{_sink(state)} is owned by generation {theirs} (owner {outcome.found.owner}), ours was {ours}"
        fenced = Happening(EventKind.FENCED, reason, state.number)
        stopped = _stop(state, "E401", sink=_sink(state), theirs=theirs, ours=ours)
        return replace(stopped, happenings=(*state.happenings, fenced))
    return _open_again(state, "E403", pipeline=state.pipeline, times=MAX_OPENINGS)


def _open_again(state: State, code: str, **details: object) -> State:
    assert state.fence is not None
    if state.openings >= MAX_OPENINGS:
        return _stop(state, code, **details)
    return replace(
        state,
        phase=Phase.PROBE,
        floor=state.fence.generation,
        index=0,
        waiting=True,
        unknowns=0,
        receipts=(),
        epoch=None,
        number=0,
        descent=None,
    )


def _read_one(state: State, reading: Reading) -> State:
    state = replace(state, readings=(*state.readings, reading))
    if len(state.readings) < len(state.sinks):
        return replace(state, index=state.index + 1)
    return _decide_opening(replace(state, index=0))


def _decide_opening(state: State) -> State:
    head = state.head.epoch if state.head else None
    facts = OpeningFacts(state.pipeline, state.readings, head, state.adopt is not None, state.accepted)
    match recovery.decide_opening(facts):
        case Refusal() as refusal:
            return _refused(state, refusal, refusal.code)
        case Proceed() as found:
            number = found.last.number if found.last else 0
            opened = Happening(EventKind.OPENED, f"{', '.join(state.sinks)} stand at epoch {number}", number)
            return replace(
                state,
                phase=Phase.INDEX,
                last=found.last,
                lineage=_newest_lineage(found, state.lineage),
                unindexed=found.index,
                happenings=(*state.happenings, opened, *found.happenings),
            )
        case heal:
            # Every epoch of this version goes to one sink directly, so there are no staged bytes to heal from.
            return _stop(
                state,
                "E219",
                sinks=", ".join(heal.sinks),
                pipeline=state.pipeline,
                epoch=heal.marker.epoch.number,
            )


def _refused(state: State, refusal: Refusal, what: str) -> State:
    diverged = Happening(EventKind.DIVERGED, what)
    return replace(state, phase=Phase.REFUSED, refusal=refusal, happenings=(*state.happenings, diverged))


def _newest_lineage(found: Proceed, recalled: Lineage | None) -> Lineage | None:
    epochs = [marker.epoch for marker, _ in found.index]
    if found.last:
        epochs.append(found.last)
    known = [epoch.lineage for epoch in epochs if epoch.lineage]
    return known[-1] if known else recalled


def _indexed(state: State, _: Done) -> State:
    return _compare(replace(state, phase=Phase.COMPARE, unindexed=()))


def _compare(state: State) -> State:
    offer = state.offer
    if offer is None:
        return replace(state, phase=Phase.DONE, epoch=state.last)
    if state.descent is None and not _plainly_next(state, offer):
        return replace(state, phase=Phase.RECOLLECT)
    descent = state.descent or ()
    facts = BatchFacts(
        state.pipeline,
        state.sinks[0],
        state.last,
        state.lineage,
        offer,
        descent[0] if descent else None,
        descent,
        state.adopt,
    )
    match recovery.decide_batch(facts):
        case Refusal() as refusal:
            return _refused(state, refusal, f"{refusal.code}: batch {offer.lineage.batch_id}")
        case Skip() as skip:
            what = f"batch {offer.lineage.batch_id}: same query, batch id, slice and clock"
            skipped = Happening(EventKind.SKIPPED, what, skip.epoch.number)
            phase = Phase.EXECUTE if skip.execute else Phase.DONE
            return replace(state, phase=phase, epoch=skip.epoch, skipped=True, happenings=(*state.happenings, skipped))
        case NewEpoch() as new:
            happenings = (*state.happenings, *new.happenings)
            return replace(state, phase=Phase.INTEND, number=new.number, index=0, happenings=happenings)


def _plainly_next(state: State, offer: Offer) -> bool:
    """Whether the batch id cannot have been an epoch before, so that the ledger need not be asked."""
    newest = state.last.lineage if state.last else None
    return newest is not None and newest.query_id == offer.lineage.query_id and newest.batch_id < offer.lineage.batch_id


def _recollected(state: State, outcome: Recollected) -> State:
    return _compare(replace(state, phase=Phase.COMPARE, descent=outcome.descent))


def _executed(state: State, outcome: Executed) -> State:
    assert state.epoch is not None
    if outcome.digest == state.epoch.digest:
        return replace(state, phase=Phase.DONE)
    batch = state.epoch.lineage.batch_id if state.epoch.lineage else 0
    return _stop(
        state,
        "E215",
        batch=batch,
        pipeline=state.pipeline,
        epoch=state.epoch.number,
        was=f"{state.epoch.digest.rows} rows, {state.epoch.digest.text}",
        now=f"{outcome.digest.rows} rows, {outcome.digest.text}",
    )


def _intended(state: State, _: Done) -> State:
    return replace(state, phase=Phase.PREPARE)


def _prepared(state: State, outcome: Prepared) -> State:
    if outcome.rows != outcome.digest.rows:
        return _stop(
            state,
            "E510",
            sink=_sink(state),
            written=outcome.rows,
            epoch=state.number,
            counted=outcome.digest.rows,
        )
    return replace(state, phase=Phase.COMMIT, epoch=_epoch(state, outcome.digest))


def _epoch(state: State, digest: Digest) -> Epoch:
    offer = state.offer
    assert offer is not None
    previous = state.last.chain if state.last else chain.GENESIS
    first = dict(state.last.sinks) if state.last else {}
    return Epoch(
        number=state.number,
        slice=offer.slice,
        chain=chain.link(previous, offer.slice, digest, offer.schema),
        previous_chain=previous,
        digest=digest,
        schema=offer.schema,
        sinks=tuple((sink, first.get(sink, state.number)) for sink in state.sinks),
        lineage=offer.lineage,
        sources=offer.sources,
    )


def _committed(state: State, outcome: Committed) -> State:
    state = replace(state, receipts=(*state.receipts, outcome.receipt), unknowns=0)
    if state.index + 1 < len(state.sinks):
        return replace(state, phase=Phase.COMMIT, index=state.index + 1)
    return replace(state, phase=Phase.RECORD)


def _commit_unknown(state: State, outcome: Unknown) -> State:
    if state.unknowns + 1 >= MAX_UNKNOWN:
        return _stop(
            state,
            "E301",
            epoch=state.number,
            sink=_sink(state),
            reason=outcome.reason,
            pipeline=state.pipeline,
        )
    # The first look-up follows at once; only one that was itself left without an answer waits.
    waiting = state.phase is Phase.LOOK_UP
    return replace(state, phase=Phase.LOOK_UP, unknowns=state.unknowns + 1, waiting=waiting)


def _found(state: State, outcome: Committed) -> State:
    happening = Happening(
        EventKind.RESOLVED, f"the answer of {_sink(state)} was lost; it holds the epoch", state.number
    )
    return replace(_committed(state, outcome), happenings=(happening,))


def _absent(state: State, _: Absent) -> State:
    what = f"the answer of {_sink(state)} was lost; it does not hold the epoch"
    happening = Happening(EventKind.RESOLVED, what, state.number)
    opened = _open_again(
        state,
        "E301",
        epoch=state.number,
        sink=_sink(state),
        reason="lost again and again",
        pipeline=state.pipeline,
    )
    return replace(opened, happenings=(happening,))


def _recorded(state: State, _: Done) -> State:
    lineage = state.offer.lineage if state.offer else state.lineage
    return replace(state, phase=Phase.DONE, last=state.epoch, lineage=lineage)


_APPLY: dict[tuple[Phase, type], Callable[..., State]] = {
    (Phase.PROBE, Probed): _probed,
    (Phase.RECALL, Recalled): _recalled,
    (Phase.INSTALL, Installed): _installed,
    (Phase.INSTALL, Unknown): _install_unknown,
    (Phase.INSTALL, Overtaken): _overtaken,
    (Phase.READ, Reading): _read_one,
    (Phase.READ, Overtaken): _overtaken,
    (Phase.INDEX, Done): _indexed,
    (Phase.RECOLLECT, Recollected): _recollected,
    (Phase.EXECUTE, Executed): _executed,
    (Phase.INTEND, Done): _intended,
    (Phase.PREPARE, Prepared): _prepared,
    (Phase.COMMIT, Committed): _committed,
    (Phase.COMMIT, Unknown): _commit_unknown,
    (Phase.COMMIT, Overtaken): _overtaken,
    (Phase.LOOK_UP, Committed): _found,
    (Phase.LOOK_UP, Absent): _absent,
    (Phase.LOOK_UP, Unknown): _commit_unknown,
    (Phase.LOOK_UP, Overtaken): _overtaken,
    (Phase.RECORD, Done): _recorded,
}
