"""What an outcome makes of the state: one small function per phase and outcome, listed in ``APPLY`` at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onceonly import comparison, look, recovery
from onceonly.acceptance import covers, stop_of
from onceonly.commands import (
    Absent,
    Again,
    Committed,
    Done,
    Executed,
    Gathered,
    Installed,
    Looked,
    Missing,
    Overtaken,
    Prepared,
    Probed,
    Recalled,
    Recollected,
    Staged,
    Unknown,
)
from onceonly.facts import (
    BatchFacts,
    Happening,
    Heal,
    Needed,
    NewEpoch,
    Offer,
    OpeningFacts,
    Proceed,
    Reading,
    Refusal,
    Seen,
    Skip,
)
from onceonly.sources import carried
from onceonly.state import MAX_OPENINGS, MAX_UNKNOWN, Phase, State
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Digest, Epoch, Fence
from onceonly_checkpoints.ledger import EventKind


def _sink(state: State) -> str:
    return state.targets[state.index]


def _stop(state: State, code: str, **details: object) -> State:
    return replace(state, phase=Phase.REFUSED, refusal=Refusal.of(code, **details))


def _probed(state: State, outcome: Probed) -> State:
    before = max((fence for fence in outcome.fences if fence), key=lambda fence: fence.generation, default=None)
    fence = Fence(1 + max(before.generation if before else 0, state.floor), state.owner)
    return replace(
        state, phase=Phase.RECALL, before=before, fence=fence, openings=state.openings + 1, index=0, readings=()
    )


def _recalled(state: State, outcome: Recalled) -> State:
    state = replace(state, head=outcome.head, ended=outcome.ended, index=0, unknowns=0)
    # Who opens without a batch does so to settle what is there: nothing that a look shows would keep him from it.
    return replace(state, phase=Phase.INSTALL if state.offer is None else Phase.LOOK)


def _looked(state: State, outcome: Looked) -> State:
    for sink, sight in zip(state.sinks, outcome.sights, strict=True):
        if refusal := recovery.not_ours(state.pipeline, sink, (sight.marker,) if sight.marker else ()):
            return _refused(_unfenced(state), refusal)
    found = look.facts(state.pipeline, state.sinks, outcome.sights, state.head, adopt=state.adopt is not None)
    match look.opening(found, outcome.ahead, [sight.identity for sight in outcome.sights]):
        case None:
            return _fences(state)
        case Refusal() as refusal:
            return _refused(_unfenced(state), refusal)
        case Seen() as seen:
            return compare(replace(state, seen=seen, last=seen.last, descent=None if seen.last else (), held=None))


def _unfenced(state: State) -> State:
    """Refused before any fence: the generation that was proposed stands nowhere, and another opening may take it."""
    assert state.fence is not None
    return replace(state, fence=None, floor=state.fence.generation)


def _fences(state: State) -> State:
    """Nothing that was seen refuses the batch, and nothing else follows from it."""
    return replace(state, phase=Phase.INSTALL, index=0, seen=None, last=None, descent=None, held=None)


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
    sink = _sink(state)
    if theirs > ours:
        reason = f"{sink} is owned by {outcome.found.text}, ours was {ours}"
        fenced = Happening(EventKind.FENCED, reason, state.number)
        stopped = _stop(state, "E401", sink=sink, theirs=theirs, ours=ours, by=outcome.found.who or "a newer driver")
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
        held=None,
        slice=None,
        trim=None,
        healing=(),
        lost=0,
    )


def _read_one(state: State, reading: Reading) -> State:
    newest = (reading.position.marker,) if reading.position.marker else ()
    told = (*newest, *(marker for marker, _ in reading.ahead))
    if refusal := recovery.not_ours(state.pipeline, reading.sink, told):
        return _refused(state, refusal)
    state = replace(state, readings=(*state.readings, reading))
    if len(state.readings) < len(state.sinks):
        return replace(state, index=state.index + 1)
    return _decide_opening(replace(state, index=0))


def _decide_opening(state: State) -> State:
    head = state.head.epoch if state.head else None
    adopt = state.adopt is not None
    facts = OpeningFacts(
        state.pipeline, state.readings, head, adopt, state.accepted, state.dropped, state.lost, state.heals
    )
    match recovery.decide_opening(facts):
        case Refusal() as refusal:
            return _refused(state, refusal)
        case Proceed() as found:
            number = found.last.number if found.last else 0
            stand = "stand" if len(state.sinks) > 1 else "stands"
            reason = f"{', '.join(state.sinks)} {stand} at epoch {number}{_by_whom(state)}"
            opened = Happening(EventKind.OPENED, reason, number)
            return replace(
                state,
                phase=Phase.INDEX,
                last=found.last,
                unindexed=found.index,
                happenings=(*state.happenings, opened, *found.happenings),
            )
        case Heal() as heal:
            return _heal(state, heal)


def _by_whom(state: State) -> str:
    """Who opens, and whom that fences out: a driver that did not say that it ended may be running."""
    assert state.fence is not None
    said, before = f", by {state.fence.who}" if state.fence.who else "", state.before
    if before is None or before.owner == state.owner or before.generation in state.ended:
        return said
    return f"{said}; {before.text} ended without a word, and is fenced out if it still runs"


def _heal(state: State, heal: Heal) -> State:
    """R3: the sinks that are behind get the epoch, copied from the marker of those that are not, under our fence."""
    epoch = heal.marker.epoch
    if state.healed == epoch.number:
        return _not_healed(state, heal.sinks, epoch, "they were brought to it and do not hold it")
    state = replace(state, healing=heal.sinks, epoch=epoch, number=epoch.number, index=0)
    if epoch.adoption:
        return replace(state, phase=Phase.COMMIT)  # an adoption brings no rows
    if epoch.manifest is None:
        return _not_healed(state, heal.sinks, epoch, "its bytes were not staged")
    return replace(state, phase=Phase.FETCH)


def _not_healed(state: State, sinks: tuple[str, ...], epoch: Epoch, reason: str) -> State:
    refusal = Refusal.of(
        "E219",
        sinks=", ".join(sinks),
        pipeline=state.pipeline,
        epoch=epoch.number,
        reason=reason,
        lacking=sinks,
        first=epoch.number,
        last=epoch.number,
    )
    if covers(state.accepted, stop_of(refusal)):
        what = f"{', '.join(sinks)} cannot be brought to epoch {epoch.number} ({reason}); the loss is accepted"
        diverged = Happening(EventKind.DIVERGED, what, epoch.number)
        without = replace(state, lost=epoch.number, healing=(), epoch=None, number=0, index=0)
        return _decide_opening(replace(without, happenings=(*state.happenings, diverged)))
    return _refused(state, refusal)


def _missing(state: State, outcome: Missing) -> State:
    """The bytes are gone: a batch that is proven to be the same may be computed anew, and must give the same digest."""
    assert state.epoch is not None
    if state.offer is not None and comparison.same_batch(state.epoch, state.offer):
        return replace(state, phase=Phase.STAGE)
    return _not_healed(state, state.healing, state.epoch, outcome.reason)


def _staged(state: State, outcome: Staged) -> State:
    if outcome.rows != outcome.digest.rows:
        return _miscounted(state, "the staged files", outcome.rows, outcome.digest.rows)
    if state.healing:
        assert state.epoch is not None
        if outcome.digest != state.epoch.digest:
            part = ", of which a part had been left out," if state.epoch.offered else ""
            return _not_healed(state, state.healing, state.epoch, f"the batch{part} gave other rows, computed again")
        return replace(state, phase=Phase.PREPARE)
    return replace(state, phase=Phase.PREPARE, epoch=_epoch(state, outcome.digest, outcome.manifest))


def _refused(state: State, refusal: Refusal) -> State:
    return replace(state, phase=Phase.REFUSED, refusal=refusal)


def _indexed(state: State, _: Done) -> State:
    return compare(replace(state, phase=Phase.COMPARE, unindexed=()))


def compare(state: State) -> State:
    """Leave COMPARE: a decision without I/O, taken as soon as the phase is reached."""
    offer = state.offer
    if offer is None:
        return replace(state, phase=Phase.DONE, epoch=state.last)
    if state.descent is None and not _plainly_next(state, offer):
        return replace(state, phase=Phase.RECOLLECT)
    decision = comparison.decide_batch(_batch_facts(state, offer))
    if state.seen is not None and not isinstance(decision, Refusal):
        return _not_refused(state, decision)
    return _decided(state, offer, decision)


def _not_refused(state: State, decision: NewEpoch | Skip | Needed) -> State:
    """A look neither skips nor writes; only what a refusal may still hang on is asked for."""
    assert state.seen is not None
    # Without the newest epoch in the ledger its file lists would seem incomplete.
    whole = state.last is not None and state.seen.recorded == state.last.number
    return replace(state, phase=Phase.GATHER) if isinstance(decision, Needed) and whole else _fences(state)


def _decided(state: State, offer: Offer, decision: NewEpoch | Skip | Needed | Refusal) -> State:
    match decision:
        case Needed():
            return replace(state, phase=Phase.GATHER)
        case Refusal() as refusal:
            refused = _unfenced(state) if state.seen else state
            return _refused(refused, refusal)
        case Skip() as skip:
            what = f"batch {offer.lineage.batch_id}: same query, batch id, slice and clock"
            skipped = Happening(EventKind.SKIPPED, what, skip.epoch.number)
            phase = Phase.EXECUTE if skip.execute else Phase.RECORD
            return replace(state, phase=phase, epoch=skip.epoch, skipped=True, happenings=(*state.happenings, skipped))
        case NewEpoch() as new:
            happenings = (*state.happenings, *new.happenings)
            written = replace(state, number=new.number, slice=new.slice, trim=new.trim)
            return replace(written, phase=Phase.INTEND, index=0, happenings=happenings)


def _batch_facts(state: State, offer: Offer) -> BatchFacts:
    descent = state.descent or ()
    return BatchFacts(
        state.pipeline,
        state.sinks[0],
        state.last,
        offer,
        descent[0] if descent else None,
        descent,
        state.adopt,
        state.overlap,
        state.held,
    )


def _plainly_next(state: State, offer: Offer) -> bool:
    """Whether the batch id cannot have been an epoch before, so that the ledger need not be asked."""
    newest = state.last.standing.lineage if state.last else None
    return newest is not None and newest.query_id == offer.lineage.query_id and newest.batch_id < offer.lineage.batch_id


def _recollected(state: State, outcome: Recollected) -> State:
    descent: tuple[Epoch, ...] | None = outcome.descent
    if state.seen is not None:
        assert state.offer is not None
        descent = look.descent(state.seen, state.offer, outcome.descent)
        if descent is None:
            return _fences(state)
    return compare(replace(state, phase=Phase.COMPARE, descent=descent))


def _gathered(state: State, outcome: Gathered) -> State:
    return compare(replace(state, phase=Phase.COMPARE, held=outcome.held))


def _executed(state: State, outcome: Executed) -> State:
    assert state.epoch is not None
    if outcome.digest == state.epoch.digest:
        return replace(state, phase=Phase.RECORD)
    batch = state.epoch.lineage.batch_id if state.epoch.lineage else 0
    was, now = (f"{digest.rows} rows, {digest.text}" for digest in (state.epoch.digest, outcome.digest))
    if comparison.keeps_recomputed_state(state.last, state.epoch.number, state.offer):
        what = f"batch {batch} was run again and gave {now} where the epoch holds {was}; Spark's state is kept"
        diverged = Happening(EventKind.DIVERGED, what, state.epoch.number)
        return replace(state, phase=Phase.RECORD, happenings=(*state.happenings, diverged))
    number = state.epoch.number
    said = {"batch": batch, "pipeline": state.pipeline, "epoch": number, "first": number, "last": number}
    return _stop(state, "E215", was=was, now=now, **said)


def _intended(state: State, _: Done) -> State:
    return replace(state, phase=Phase.STAGE if state.staged else Phase.PREPARE)


def _prepared(state: State, outcome: Prepared) -> State:
    epoch = state.epoch or _epoch(state, outcome.digest)
    if outcome.rows != epoch.digest.rows:
        return _miscounted(state, _sink(state), outcome.rows, epoch.digest.rows)
    if state.index + 1 < len(state.targets):
        return replace(state, index=state.index + 1)
    return replace(state, phase=Phase.COMMIT, index=0, epoch=epoch)


def _miscounted(state: State, where: str, written: int, counted: int) -> State:
    return _stop(state, "E510", sink=where, written=written, epoch=state.number, counted=counted)


def _epoch(state: State, digest: Digest, manifest: str | None = None) -> Epoch:
    offer = state.offer
    assert offer is not None
    previous = state.last.chain if state.last else chain.GENESIS
    first = dict(state.last.sinks) if state.last else {}
    slice_, offered = (state.slice, offer.slice) if state.slice else (offer.slice, None)
    before = state.last.sources if state.last and state.last.adoption is None else ()
    epoch = Epoch(
        number=state.number,
        slice=slice_,
        chain="",
        previous_chain=previous,
        digest=digest,
        schema=offer.schema,
        sinks=tuple((sink, first.get(sink, state.number)) for sink in state.sinks),
        lineage=offer.lineage,
        sources=carried(before, offer.sources),
        manifest=manifest,
        offered=offered,
    )
    return chain.linked(epoch)


def _committed(state: State, outcome: Committed) -> State:
    receipts, happenings = (*state.receipts, outcome.receipt), (*state.happenings, *_foreign(outcome))
    state = replace(state, receipts=receipts, unknowns=0, happenings=happenings)
    if state.index + 1 < len(state.targets):
        return replace(state, phase=Phase.COMMIT, index=state.index + 1)
    return _read_again(state) if state.healing else replace(state, phase=Phase.RECORD)


def _foreign(outcome: Committed) -> tuple[Happening, ...]:
    sink, number = outcome.receipt.sink, outcome.receipt.epoch
    return tuple(Happening(EventKind.FOREIGN, f"{sink}: {event.detail}", number) for event in outcome.passed)


def _read_again(state: State) -> State:
    """Sinks were brought to the epoch of the others: what stands now is read, not assumed."""
    what = f"{', '.join(state.healing)} brought to epoch {state.number}, which the other sinks held already"
    return replace(
        state,
        phase=Phase.READ,
        index=0,
        readings=(),
        receipts=(),
        healing=(),
        healed=state.number,
        epoch=None,
        number=0,
        happenings=(*state.happenings, Happening(EventKind.RESOLVED, what, state.number)),
    )


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
    what = f"the answer of {_sink(state)} was lost; it holds the epoch"
    found = _committed(state, outcome)
    return replace(found, happenings=(Happening(EventKind.RESOLVED, what, state.number), *found.happenings))


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


def _conflict(state: State, outcome: Again) -> State:
    """Nothing of the epoch stands in the sink: the opening starts again, so that it is written from what stands now."""
    what = f"{_sink(state)} took the epoch back ({outcome.reason}; {outcome.blocker}); it is written again"
    conflicts = state.conflicts + 1
    # Each of them opens again, so openings are what is limited; a driver that has written before began without one.
    state = replace(state, conflicts=conflicts, openings=max(state.openings, conflicts))
    details = {"sink": _sink(state), "epoch": state.number, "times": state.conflicts}
    details |= {"reason": outcome.reason, "blocker": outcome.blocker}
    opened = _open_again(state, "E526", **details)
    return replace(opened, happenings=(Happening(EventKind.RESOLVED, what, state.number),))


def _recorded(state: State, _: Done) -> State:
    if state.skipped:
        return replace(state, phase=Phase.DONE)
    return replace(state, phase=Phase.DONE, last=state.epoch)


APPLY: dict[tuple[Phase, type], Callable[..., State]] = {
    (Phase.PROBE, Probed): _probed,
    (Phase.RECALL, Recalled): _recalled,
    (Phase.LOOK, Looked): _looked,
    (Phase.INSTALL, Installed): _installed,
    (Phase.INSTALL, Unknown): _install_unknown,
    (Phase.INSTALL, Overtaken): _overtaken,
    (Phase.READ, Reading): _read_one,
    (Phase.READ, Overtaken): _overtaken,
    (Phase.INDEX, Done): _indexed,
    (Phase.RECOLLECT, Recollected): _recollected,
    (Phase.GATHER, Gathered): _gathered,
    (Phase.EXECUTE, Executed): _executed,
    (Phase.INTEND, Done): _intended,
    (Phase.FETCH, Staged): _staged,
    (Phase.FETCH, Missing): _missing,
    (Phase.STAGE, Staged): _staged,
    (Phase.PREPARE, Prepared): _prepared,
    (Phase.PREPARE, Overtaken): _overtaken,
    (Phase.PREPARE, Again): _conflict,
    (Phase.COMMIT, Committed): _committed,
    (Phase.COMMIT, Unknown): _commit_unknown,
    (Phase.COMMIT, Overtaken): _overtaken,
    (Phase.COMMIT, Again): _conflict,
    (Phase.LOOK_UP, Committed): _found,
    (Phase.LOOK_UP, Absent): _absent,
    (Phase.LOOK_UP, Unknown): _commit_unknown,
    (Phase.LOOK_UP, Overtaken): _overtaken,
    (Phase.RECORD, Done): _recorded,
}
