"""State transitions by phase and outcome, listed in ``APPLY``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from onceonly.machine import admission, callback_rules, comparison, division_rules, event_time, precheck
from onceonly.machine import commands as c
from onceonly.machine.acceptance import amount, covers, stop_of
from onceonly.machine.division_rules import allowed, rows_in, unbalanced
from onceonly.machine.facts import (
    BatchFacts,
    Happening,
    Heal,
    NeedsInputFiles,
    NewEpoch,
    Offer,
    OpeningFacts,
    OutOfPhase,
    PeekFacts,
    Proceed,
    Reading,
    Refusal,
    Skip,
)
from onceonly.machine.opening import decide_opening, not_ours
from onceonly.machine.source_order import carried
from onceonly.machine.state import MAX_OPENINGS, MAX_UNKNOWN, Phase, State, Work
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import OutputDigest, bad_in, redefined
from onceonly_checkpoints.epoch import Epoch, Fence
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.ledger import EventKind


def _stop(state: State, code: str, **details: object) -> State:
    return replace(state, phase=Phase.REFUSED, refusal=Refusal.of(code, **details))


def _probed(state: State, outcome: c.Probed) -> State:
    before = max((fence for fence in outcome.fences if fence), key=lambda fence: fence.generation, default=None)
    # The one proposed before was met in a sink, or stands in some: it is never proposed again.
    highest = max(before.generation if before else 0, state.opening.fence.generation)
    opening = state.opening.next_opening(Fence(1 + highest, state.job.owner), before)
    return replace(state, phase=Phase.RECALL, opening=opening)


def _recalled(state: State, outcome: c.Recalled) -> State:
    opening = replace(state.opening, head=outcome.head, ended=outcome.ended, cut=outcome.cut, left=outcome.left)
    # Who opens without a batch does so to settle what is there: nothing that a look shows would keep him from it.
    return replace(state, phase=Phase.INSTALL if state.job.offer is None else Phase.LOOK, opening=opening)


def _looked(state: State, outcome: c.Looked) -> State:
    job = state.job
    for sink, sight in zip(job.sinks, outcome.sights, strict=True):
        if refusal := not_ours(job.pipeline, sink, (sight.marker,) if sight.marker else ()):
            return _refused(_unfenced(state), refusal)
    opening_facts = precheck.facts(
        job.pipeline, job.sinks, outcome.sights, state.opening.head, adopt=job.adopt is not None
    )
    match precheck.check_opening(opening_facts, outcome.ahead, [sight.identity for sight in outcome.sights]):
        case None:
            return _fences(state)
        case Refusal() as refusal:
            return _refused(_unfenced(state), refusal)
        case PeekFacts() as seen:
            opening = replace(state.opening, peek=seen, last=seen.last)
            return compare(replace(state, opening=opening, work=Work(descent=None if seen.last else ())))


def _unfenced(state: State) -> State:
    """Refuse before any fence. No sink has the proposed generation, so another opening may take it."""
    return replace(state, opening=replace(state.opening, fence=Fence(0, state.job.owner)))


def _fences(state: State) -> State:
    """Install the fence: the peek refused nothing, and no other conclusion may be drawn from it."""
    opening = replace(state.opening, peek=None, last=None, held=None)
    return replace(state, phase=Phase.INSTALL, opening=opening, work=Work())


def _installed(state: State, _: c.Installed) -> State:
    following = state.work.index + 1
    if following < len(state.job.sinks):
        return replace(state, work=Work(following))
    return replace(state, phase=Phase.READ, work=Work())


def _install_unknown(state: State, _: c.Unknown) -> State:
    if state.work.unknowns + 1 >= MAX_UNKNOWN:
        return _stop(state, "E302", sink=state.sink, times=MAX_UNKNOWN)
    return replace(state, work=replace(state.work, unknowns=state.work.unknowns + 1), waiting=True)


def _overtaken(state: State, outcome: c.Overtaken) -> State:
    """Stop for a higher generation. An equal one of another owner is a tie: open again with a higher one."""
    ours, theirs = state.opening.fence.generation, outcome.current_fence.generation
    sink = state.sink
    if theirs > ours:
        reason = f"{sink} is owned by {outcome.current_fence.text}, ours was {ours}"
        fenced = Happening(EventKind.FENCED, reason, state.work.number)
        stopped = _stop(
            state, "E401", sink=sink, theirs=theirs, ours=ours, by=outcome.current_fence.who or "a newer driver"
        )
        return replace(stopped, happenings=(*state.happenings, fenced))
    return _open_again(state, "E403", pipeline=state.job.pipeline, times=MAX_OPENINGS)


def _open_again(state: State, code: str, **details: object) -> State:
    if state.opening.attempt >= MAX_OPENINGS:
        return _stop(state, code, **details)
    return replace(state, phase=Phase.PROBE, work=Work(), waiting=True)


def _read_one(state: State, reading: Reading) -> State:
    newest = (reading.position.marker,) if reading.position.marker else ()
    markers = (*newest, *(marker for marker, _ in reading.ahead))
    if refusal := not_ours(state.job.pipeline, reading.sink, markers):
        return _refused(state, refusal)
    readings = (*state.opening.readings, reading)
    state = replace(state, opening=replace(state.opening, readings=readings))
    if len(readings) < len(state.job.sinks):
        return replace(state, work=Work(len(readings)))
    return _decide_opening(replace(state, work=Work()))


def _decide_opening(state: State) -> State:
    job, opening = state.job, state.opening
    head = opening.head.epoch if opening.head else None
    adopt = job.adopt is not None
    facts = OpeningFacts(
        job.pipeline, opening.readings, head, adopt, job.accepted, job.dropped, opening.lost, job.heals, job.rewound
    )
    match decide_opening(facts):
        case Refusal() as refusal:
            return _refused(state, refusal)
        case Proceed() as found:
            number = found.last.number if found.last else 0
            stand = "stand" if len(job.sinks) > 1 else "stands"
            reason = f"{', '.join(job.sinks)} {stand} at epoch {number}{_by_whom(state)}"
            opened = Happening(EventKind.OPENED, reason, number)
            return replace(
                state,
                phase=Phase.INDEX,
                opening=replace(opening, last=found.last, unindexed=found.index),
                happenings=(*state.happenings, opened, *found.happenings, *_unindexed_columns(found)),
            )
        case Heal() as heal:
            return _heal(state, heal)


def _unindexed_columns(found: Proceed) -> Iterator[Happening]:
    """Note columns that a driver changed which died before it could note them."""
    return (change for marker, _ in found.index for change in admission.columns_changed(marker.epoch))


def _by_whom(state: State) -> str:
    """Name the owner, and the driver that it fences out: one without a recorded end may still run."""
    opening = state.opening
    opener, before = f", by {opening.fence.who}" if opening.fence.who else "", opening.before
    if before is None or before.owner == state.job.owner or before.generation in opening.ended:
        return opener
    return f"{opener}; {before.text} ended without a word, and is fenced out if it still runs"


def _heal(state: State, heal: Heal) -> State:
    """R3: write the epoch to the sinks that are behind, from another sink's marker, under our fence."""
    epoch = heal.marker.epoch
    if state.opening.healed == epoch.number:
        return _not_healed(state, heal.sinks, epoch, "they were brought to it and do not hold it")
    work = Work(healing=heal.sinks, number=epoch.number, epoch=epoch, replaces=epoch.replaces)
    state = replace(state, work=work)
    if epoch.adoption:
        return replace(state, phase=Phase.COMMIT)  # an adoption brings no rows
    if epoch.manifest is None:
        return _not_healed(state, heal.sinks, epoch, "its bytes were not staged")
    return replace(state, phase=Phase.FETCH)


def _not_healed(
    state: State, sinks: tuple[str, ...], epoch: Epoch, reason: str, others: tuple[OutputDigest, ...] = ()
) -> State:
    calls = ", ".join(other.call for other in others)
    refusal = Refusal.of(
        "E219",
        sinks=", ".join(sinks),
        pipeline=state.job.pipeline,
        epoch=epoch.number,
        reason=reason,
        lacking=sinks,
        first=epoch.number,
        last=epoch.number,
        changed=", and the call was changed since" if others else "",
        former=f"start once with the old call, which loses nothing: {calls}\nor " if others else "",
        lost=amount(1, epoch.rows_in(sinks)),  # the ledger learns an epoch once all sinks hold it
    )
    if covers(state.job.accepted, stop_of(refusal)):
        what = f"{', '.join(sinks)} cannot be brought to epoch {epoch.number} ({reason}); the loss is accepted"
        diverged = Happening(EventKind.DIVERGED, what, epoch.number)
        opening = replace(state.opening, lost=epoch.number)
        happenings = (*state.happenings, diverged)
        return _decide_opening(replace(state, opening=opening, work=Work(), happenings=happenings))
    return _refused(state, refusal)


def _missing(state: State, outcome: c.Missing) -> State:
    """Compute the batch again if it is proven to be the same. It must give the same digest."""
    epoch, offer = state.current, state.job.offer
    if not division_rules.computable(epoch, state.work.healing, state.before):
        return _not_healed(state, state.work.healing, epoch, f"{outcome.reason}; its windows have continued since")
    if offer is not None and comparison.same_batch(epoch, offer):
        return replace(state, phase=Phase.STAGE)
    return _not_healed(state, state.work.healing, epoch, outcome.reason)


def _staged(state: State, outcome: c.Staged) -> State:
    if outcome.manifest is None and state.job.lasting:
        raise OutOfPhase(state.phase.value, "rows that outlive this process")
    rows = rows_in(outcome.digest, outcome.outputs)
    if outcome.rows != (there := division_rules.staged_in(outcome.digest, outcome.outputs)):
        return _miscounted(state, "the staged files", outcome.rows, there)
    if imbalance := unbalanced(outcome.digest, outcome.outputs, outcome.panes):
        name, claimed_rows, there = imbalance
        return _miscounted(state, f"output {name}", claimed_rows, there)
    if outcome.broken and state.job.aside and not state.work.aside:
        names = tuple(dict.fromkeys(broken.check.name for broken in outcome.broken))
        return replace(state, work=replace(state.work, aside=names))
    if state.work.healing:
        return _the_same_again(state, outcome)
    bad = bad_in(outcome.outputs)
    if bad and not state.work.aside and bad.digest.rows > (most := allowed(state.job.max_bad, rows)):
        return _refused(state, _too_many(state, bad, rows, most))
    state = _as_epoch(state, outcome)
    return state if state.refusal else replace(state, phase=Phase.PREPARE)


def _as_epoch(state: State, staged: c.Staged) -> State:
    """Make an epoch of rows, or refuse them. Nothing of them is visible yet."""
    job, number = state.job, state.work.number
    if many := division_rules.too_many(job.windows, job.pipeline, number, staged.panes):
        return _refused(state, many)
    if ahead := event_time.too_far_ahead(job.noting, job.pipeline, number, state.offered.lineage, staged.times):
        return _refused(state, ahead)
    if broken := division_rules.broken(job.pipeline, number, staged.broken):
        return _refused(state, broken)
    return _with_epoch(state, staged)


def _the_same_again(state: State, outcome: c.Staged) -> State:
    """Continue only if the rows are those that the other sinks hold."""
    epoch = state.current
    others = redefined(epoch.outputs, outcome.outputs)
    if outcome.digest == epoch.digest and outcome.outputs != epoch.outputs:
        return _not_healed(state, state.work.healing, epoch, "computed again, its side outputs differ", others)
    if outcome.panes != epoch.windows and outcome.panes is not None:
        return _not_healed(state, state.work.healing, epoch, "computed again, its windows differ")
    if outcome.digest != epoch.digest:
        part = ", of which a part had been left out," if epoch.offered else ""
        reason = f"the batch{part} gave other rows, computed again"
        return _not_healed(state, state.work.healing, epoch, reason, others)
    return replace(state, phase=Phase.PREPARE)


def _too_many(state: State, bad: OutputDigest, rows: int, most: int) -> Refusal:
    """Refuse an epoch with more bad rows than allowed. An operator decides."""
    aside = f"to set them aside all the same, start once with quality=Quality(..., max_bad={bad.digest.rows})"
    nowhere = "to quarantine invalid rows, give them a sink: quality=Quality(..., quarantine=sink)"
    return Refusal.of(
        "E522",
        pipeline=state.job.pipeline,
        epoch=state.work.number,
        bad=bad.digest.rows,
        rows=rows,
        most=most,
        reasons=bad.why,
        next=f"mend the source or the expectation and restart; {aside if bad.sinks else nowhere}",
    )


def _refused(state: State, refusal: Refusal) -> State:
    return replace(state, phase=Phase.REFUSED, refusal=refusal)


def _indexed(state: State, outcome: c.Indexed) -> State:
    opening = replace(state.opening, unindexed=(), columns=outcome.columns)
    return compare(replace(state, phase=Phase.COMPARE, opening=opening))


def compare(state: State) -> State:
    """Leave COMPARE: a decision without I/O, taken as soon as the phase is reached."""
    offer = state.job.offer
    if offer is None:
        return replace(state, phase=Phase.DONE, work=replace(state.work, epoch=state.opening.last))
    if state.work.descent is None and not _plainly_next(state, offer):
        return replace(state, phase=Phase.RECOLLECT)
    decision = comparison.decide_batch(_batch_facts(state, offer))
    peek = state.opening.peek
    if peek is not None and not isinstance(decision, Refusal):
        return _not_refused(state, peek, decision)
    return _decided(state, offer, decision)


def _not_refused(state: State, peek: PeekFacts, decision: NewEpoch | Skip | NeedsInputFiles) -> State:
    """Ask for input files only if a refusal may depend on them. A peek neither skips nor writes."""
    # Without the newest epoch in the ledger its file lists would seem incomplete.
    is_complete = peek.last is not None and peek.recorded == peek.last.number
    return (
        replace(state, phase=Phase.GATHER) if isinstance(decision, NeedsInputFiles) and is_complete else _fences(state)
    )


def _decided(state: State, offer: Offer, decision: NewEpoch | Skip | NeedsInputFiles | Refusal) -> State:
    match decision:
        case NeedsInputFiles():
            return replace(state, phase=Phase.GATHER)
        case Refusal() as refusal:
            refused = _unfenced(state) if state.opening.peek else state
            return _refused(refused, refusal)
        case Skip() as skip:
            what = f"batch {offer.lineage.batch_id}: same query id, batch id, offset range and batch timestamp"
            skipped = Happening(EventKind.SKIPPED, what, skip.epoch.number)
            last = state.opening.last or skip.epoch
            other = callback_rules.replayed(state.job.pipeline, skip.epoch, last, offer.lineage.code)
            phase = Phase.EXECUTE if skip.execute else Phase.RECORD
            work = replace(state.work, epoch=skip.epoch, skipped=True)
            return replace(state, phase=phase, work=work, happenings=(*state.happenings, skipped, *other))
        case NewEpoch() as new:
            other = callback_rules.followed(state.job.pipeline, state.opening.last, offer.lineage.code)
            happenings = (*state.happenings, *new.happenings, *other)
            work = replace(state.work, number=new.number, written=new.written, trim=new.trim, replaces=new.replaces)
            state = replace(state, phase=Phase.INTEND, work=work)
            if untimely := event_time.refused(state.job.noting, state.previous_time):
                return _refused(state, untimely)
            job = state.job
            if unfit := division_rules.refused(job.windows, job.pipeline, state.opening.last, begins=state.begins):
                return _refused(state, unfit)
            return replace(state, happenings=happenings)


def _batch_facts(state: State, offer: Offer) -> BatchFacts:
    job, opening, descent = state.job, state.opening, state.work.descent or ()
    recorded = descent[0] if descent else None
    return BatchFacts(
        job.pipeline,
        job.sinks[0],
        opening.last,
        offer,
        recorded,
        descent,
        job.adopt,
        job.overlap,
        opening.held,
        job.on_refresh,
        opening.left,
        state.work.preceding,
    )


def _plainly_next(state: State, offer: Offer) -> bool:
    """Whether the batch id cannot have been an epoch, so that the ledger need not be read."""
    newest = state.opening.last.resume_point.lineage if state.opening.last else None
    return newest is not None and newest.query_id == offer.lineage.query_id and newest.batch_id < offer.lineage.batch_id


def _recollected(state: State, outcome: c.Recollected) -> State:
    descent: tuple[Epoch, ...] | None = outcome.descent
    if state.opening.peek is not None:
        descent = precheck.descent(state.opening.peek, state.offered, outcome.descent)
        if descent is None:
            return _fences(state)
    work = replace(state.work, descent=descent, preceding=outcome.preceding)
    return compare(replace(state, phase=Phase.COMPARE, work=work))


def _gathered(state: State, outcome: c.Gathered) -> State:
    return compare(replace(state, phase=Phase.COMPARE, opening=replace(state.opening, held=outcome.held)))


def _executed(state: State, outcome: c.Executed) -> State:
    epoch = state.current
    state = replace(state, happenings=(*state.happenings, *admission.state_left(epoch, outcome.state)))
    # It is run without asking for ids: those that were known then may have been forgotten since.
    if outcome.digest == epoch.computed:
        return replace(state, phase=Phase.RECORD)
    batch = epoch.lineage.batch_id if epoch.lineage else 0
    before, now = (f"{digest.rows} rows, {digest.text}" for digest in (epoch.computed, outcome.digest))
    if comparison.keeps_recomputed_state(state.opening.last, epoch.number, state.job.offer):
        what = f"the replay of batch {batch} gave {now}, the epoch holds {before}; Spark's state is kept"
        diverged = Happening(EventKind.DIVERGED, what, epoch.number)
        return replace(state, phase=Phase.RECORD, happenings=(*state.happenings, diverged))
    details = {"batch": batch, "pipeline": state.job.pipeline, "epoch": epoch.number}
    details["cause"] = callback_rules.cause(epoch.lineage, state.offered.lineage.code)
    return _stop(state, "E215", was=before, now=now, first=epoch.number, last=epoch.number, **details)


def _intended(state: State, _: c.Done) -> State:
    time_config = state.job.noting
    if time_config and time_config.writers:
        return replace(state, phase=Phase.POLL)
    return _executing(state)


def _polled(state: State, outcome: c.Polled) -> State:
    """Keep the progress of other writers. It must be known before the rows are, because it decides if they are late."""
    state = replace(state, work=replace(state.work, polled=outcome.timed))
    if untimely := event_time.refused(state.job.noting, state.previous_time):
        return _refused(state, untimely)
    if outcome.unanswered:
        what = f"other writers could not be read, their last known times are kept: {outcome.unanswered}"
        state = replace(state, happenings=(*state.happenings, Happening(EventKind.UNPOLLED, what, state.work.number)))
    return _executing(state)


def _executing(state: State) -> State:
    return replace(state, phase=Phase.STAGE if state.job.staged else Phase.PREPARE)


def _prepared(state: State, outcome: c.Prepared) -> State:
    staged = c.Staged(None, outcome.rows, outcome.digest, times=outcome.times, state=outcome.state)
    state = state if state.work.epoch else _as_epoch(state, staged)
    if state.refusal:
        return state
    epoch = state.current
    if outcome.rows != (expected_rows := epoch.digest_in(state.sink).rows):
        return _miscounted(state, state.sink, outcome.rows, expected_rows)
    if state.work.index + 1 < len(state.targets):
        return replace(state, work=replace(state.work, index=state.work.index + 1))
    return replace(state, phase=Phase.COMMIT, work=replace(state.work, index=0))


def _miscounted(state: State, where: str, written: int, counted: int) -> State:
    return _stop(state, "E510", sink=where, written=written, epoch=state.work.number, counted=counted)


def _with_epoch(state: State, staged: c.Staged) -> State:
    decision = event_time.timed(state.job.noting, state.previous_time, state.offered, staged.times)
    time = division_rules.closed(decision.time, state.job.windows)
    epoch = _epoch(state, staged, time)
    many = division_rules.many(state.job.windows, state.job.pipeline, state.opening.last, epoch)
    other = callback_rules.ids_forgotten(state.job.pipeline, state.opening.last, epoch)
    happenings = (*state.happenings, *decision.happenings, *many, *other)
    return replace(state, work=replace(state.work, epoch=epoch), happenings=happenings)


def _epoch(state: State, staged: c.Staged, time: EpochTime | None) -> Epoch:
    offer, last, work = state.offered, state.opening.last, state.work
    first = dict(last.sinks) if last else {}
    slice_, offered = (work.written, offer.slice) if work.written else (offer.slice, None)
    before = last.sources if last and last.adoption is None and not work.replaces else ()
    columns = admission.columns_to_record(state.opening.columns, (*offer.columns, *staged.columns))
    epoch = Epoch(
        number=work.number,
        written=slice_,
        chain="",
        previous_chain=last.chain if last else chain.GENESIS,
        digest=staged.digest,
        schema=offer.schema,
        sinks=tuple((sink, first.get(sink, work.number)) for sink in state.job.sinks),
        lineage=replace(offer.lineage, state=staged.state),
        sources=carried(before, offer.sources),
        manifest=staged.manifest,
        offered=offered,
        series=state.series,
        replaces=work.replaces,
        outputs=staged.outputs,
        time=time,
        windows=staged.panes,
        replays=offer.replays.replayed if offer.replays else None,
        columns=columns,
        columns_since=last.columns_epoch if last and not columns else 0,
    )
    return chain.linked(epoch)


def _committed(state: State, outcome: c.Committed) -> State:
    following = state.work.index + 1
    work = replace(state.work, receipts=(*state.work.receipts, outcome.receipt, *outcome.sibling_receipts), unknowns=0)
    state = replace(state, work=work, happenings=(*state.happenings, *_foreign(outcome)))
    if following < len(state.transactions):
        return replace(state, phase=Phase.COMMIT, work=replace(work, index=following))
    dropped = division_rules.dropped(state.job.windows, state.job.pipeline, state.current)
    notes = (*_set_aside(state), *event_time.late(state.current), *dropped, *admission.columns_changed(state.current))
    happenings = (*state.happenings, *notes)
    state = replace(state, happenings=happenings)
    return _read_again(state) if work.healing else replace(state, phase=Phase.RECORD)


def _foreign(outcome: c.Committed) -> tuple[Happening, ...]:
    sink, number = outcome.receipt.sink, outcome.receipt.epoch
    return tuple(Happening(EventKind.EXTERNAL_CHANGE, f"{sink}: {event.detail}", number) for event in outcome.passed)


def _set_aside(state: State) -> tuple[Happening, ...]:
    """Note quarantined rows once every sink holds the epoch, even if another driver wrote it to the last one."""
    epoch = state.current
    if epoch.bad is None or not epoch.bad.digest.rows:
        return ()
    bad, rows = epoch.bad.digest.rows, rows_in(epoch.digest, epoch.outputs)
    what = f"{bad} of {rows} rows quarantined: {epoch.bad.why}"
    most = allowed(state.job.max_bad, rows)
    if state.job.max_bad is not None and not state.work.aside and 2 * bad > most:
        what += f"; more than half of the {most} that max_bad allows"
    return (Happening(EventKind.QUARANTINED, what, epoch.number),)


def _read_again(state: State) -> State:
    """Read the healed sinks again instead of assuming their position."""
    what = f"{', '.join(state.work.healing)} brought to epoch {state.work.number}, which the other sinks held already"
    resolved = Happening(EventKind.RESOLVED, what, state.work.number)
    opening = replace(state.opening, readings=(), healed=state.work.number)
    happenings = (*state.happenings, resolved)
    return replace(state, phase=Phase.READ, opening=opening, work=Work(), happenings=happenings)


def _commit_unknown(state: State, outcome: c.Unknown) -> State:
    if state.work.unknowns + 1 >= MAX_UNKNOWN:
        return _stop(
            state,
            "E301",
            epoch=state.work.number,
            sink=state.sink,
            reason=outcome.reason,
            pipeline=state.job.pipeline,
        )
    # The first look-up follows at once; only one that was itself left without an answer waits.
    waiting = state.phase is Phase.LOOK_UP
    work = replace(state.work, unknowns=state.work.unknowns + 1)
    return replace(state, phase=Phase.LOOK_UP, work=work, waiting=waiting)


def _resolve_committed(state: State, outcome: c.Committed) -> State:
    what = f"the answer of {state.sink} was lost; it holds the epoch"
    committed_state = _committed(state, outcome)
    return replace(
        committed_state,
        happenings=(Happening(EventKind.RESOLVED, what, state.work.number), *committed_state.happenings),
    )


def _absent(state: State, _: c.Absent) -> State:
    what = f"the answer of {state.sink} was lost; it does not hold the epoch"
    happening = Happening(EventKind.RESOLVED, what, state.work.number)
    opened = _open_again(
        state,
        "E301",
        epoch=state.work.number,
        sink=state.sink,
        reason="lost at each attempt",
        pipeline=state.job.pipeline,
    )
    return replace(opened, happenings=(happening,))


def _conflict(state: State, outcome: c.RolledBack) -> State:
    """Open again: the sink holds nothing of the epoch, and the next attempt starts from its current position."""
    what = f"{state.sink} took the epoch back ({outcome.reason}; {outcome.blocker}); it is written again"
    conflicts = state.opening.conflicts + 1
    details = {"sink": state.sink, "epoch": state.work.number, "times": conflicts}
    details |= {"reason": outcome.reason, "blocker": outcome.blocker}
    # Each of them opens again, so openings are what is limited; a driver that has written before began without one.
    opening = replace(state.opening, conflicts=conflicts, attempt=max(state.opening.attempt, conflicts))
    opened = _open_again(replace(state, opening=opening), "E526", **details)
    return replace(opened, happenings=(Happening(EventKind.RESOLVED, what, state.work.number),))


def _recorded(state: State, _: c.Done) -> State:
    if state.work.skipped:
        return replace(state, phase=Phase.DONE)
    # Files that a replaced epoch held are held no more.
    held = None if state.current.replaces else state.opening.held
    columns = state.current.columns or state.opening.columns
    opening = replace(state.opening, last=state.work.epoch, held=held, columns=columns)
    return replace(state, phase=Phase.DONE, opening=opening)


APPLY: dict[tuple[Phase, type], Callable[..., State]] = {
    (Phase.PROBE, c.Probed): _probed,
    (Phase.RECALL, c.Recalled): _recalled,
    (Phase.LOOK, c.Looked): _looked,
    (Phase.INSTALL, c.Installed): _installed,
    (Phase.INSTALL, c.Unknown): _install_unknown,
    (Phase.INSTALL, c.Overtaken): _overtaken,
    (Phase.READ, Reading): _read_one,
    (Phase.READ, c.Overtaken): _overtaken,
    (Phase.INDEX, c.Indexed): _indexed,
    (Phase.RECOLLECT, c.Recollected): _recollected,
    (Phase.GATHER, c.Gathered): _gathered,
    (Phase.EXECUTE, c.Executed): _executed,
    (Phase.INTEND, c.Done): _intended,
    (Phase.POLL, c.Polled): _polled,
    (Phase.FETCH, c.Staged): _staged,
    (Phase.FETCH, c.Missing): _missing,
    (Phase.STAGE, c.Staged): _staged,
    (Phase.STAGE, c.Overtaken): _overtaken,
    (Phase.PREPARE, c.Prepared): _prepared,
    (Phase.PREPARE, c.Overtaken): _overtaken,
    (Phase.PREPARE, c.RolledBack): _conflict,
    (Phase.COMMIT, c.Committed): _committed,
    (Phase.COMMIT, c.Unknown): _commit_unknown,
    (Phase.COMMIT, c.Overtaken): _overtaken,
    (Phase.COMMIT, c.RolledBack): _conflict,
    (Phase.LOOK_UP, c.Committed): _resolve_committed,
    (Phase.LOOK_UP, c.Absent): _absent,
    (Phase.LOOK_UP, c.Unknown): _commit_unknown,
    (Phase.LOOK_UP, c.Overtaken): _overtaken,
    (Phase.RECORD, c.Done): _recorded,
}
