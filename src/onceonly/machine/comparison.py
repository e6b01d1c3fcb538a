"""Compare a batch with recorded epochs.

Rules by name: RR a replay's own batch, R7 a batch id on record, RF a full refresh, R8s lost state, R8 the place in the
source, R11 deleted input. Pure decisions over frozen facts, tested in the order of this module. Numbers alone prove
nothing. A skip needs the whole identity of the batch and a chain from the recorded epoch to the marker in the sink.
Leaving a part out (``overlap="trim"``) needs the position of each row (``overlap.py``).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from onceonly.errors import caution
from onceonly.machine import acceptance, overlap, refresh
from onceonly.machine.facts import BatchFacts, Happening, NeedsInputFiles, NewEpoch, Offer, Refusal, Skip
from onceonly.machine.source_order import (
    Order,
    counted,
    describe,
    name_origins,
    order,
    other_parts,
    portable,
    same_inputs,
    same_origins,
)
from onceonly.protocol.batch import Trim, TrimmedBatch, plain
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, Lineage
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceKind, SourceOffsets, shorten_list


def _rr_replayed(facts: BatchFacts) -> NewEpoch | Skip | Refusal | None:
    from onceonly.machine import publish

    return publish.replayed(facts)


def _r7_known_batch(facts: BatchFacts) -> Skip | NewEpoch | NeedsInputFiles | Refusal | None:
    recorded, offer = facts.recorded, facts.offer
    if recorded is None or recorded.lineage is None or recorded.adoption or facts.last is None:
        return None
    kinds = {epoch.adoption.kind for epoch in facts.descent[1:] if epoch.adoption}
    if AdoptionKind.ACCEPT_DUPLICATES in kinds or (
        AdoptionKind.START in kinds and facts.last.written.end == offer.start
    ):
        return None  # an operator moved the position back over this batch: it is to be written again
    if lacking := _lacking(facts.descent):
        return _r7_forgotten(facts, recorded, facts.last, lacking)
    if not chain.descends(facts.last, facts.descent):
        return Refusal.of("E210", sink=facts.sink, epoch=recorded.number, pipeline=facts.pipeline)
    if same_batch(recorded, offer):
        return _other_state(facts, facts.preceding) or Skip(recorded, offer.stateful)
    return (facts.overlap == "trim" and _r8_trimmed(facts)) or _r7_another_batch(facts, recorded, recorded.lineage)


def _r7_another_batch(facts: BatchFacts, recorded: Epoch, lineage: Lineage) -> Refusal:
    """Refuse a batch id whose content differs from the one that became an epoch."""
    offer, newest = facts.offer, _before(facts)
    # Where an older entry is wrong, so is every later one: put back alone, the next of them would stop the query again.
    # Only state cannot be put back: it is computed again, one batch after the other.
    upto = newest.batch_id if newest else offer.lineage.batch_id
    alone = offer.stateful or upto == offer.lineage.batch_id
    return Refusal.of(
        "E205",
        batch=offer.lineage.batch_id,
        pipeline=facts.pipeline,
        epoch=recorded.number,
        recorded=_range(recorded.planned, lineage),
        offered=_range(offer.slice, offer.lineage),
        checkpoint=offer.lineage.checkpoint,
        each=f", one batch after the other up to {upto}" if alone and upto != offer.lineage.batch_id else "",
        alone=f" --entry {offer.lineage.batch_id}" if alone else "",
    )


def _lacking(descent: tuple[Epoch, ...]) -> int | None:
    """Return the first epoch that is missing from a ledger which was lost during writes, or ``None``."""
    return next((older.number + 1 for older, two in pairwise(descent) if two.number > older.number + 1), None)


def _r7_forgotten(facts: BatchFacts, recorded: Epoch, last: Epoch, lacking: int) -> Refusal:
    """Refuse a batch that is offered again if the ledger that would prove its epoch has a hole."""
    cause = (
        f"the checkpoint was rolled back or edited, and the ledger, which lacks epoch {lacking}, cannot prove that "
        f"this batch is epoch {recorded.number}"
    )
    offered = facts.offer.slice
    return Refusal.of(
        "E203",
        **_refusal_details(facts, last),
        range=f"{describe(offered.start)} to {describe(offered.end)}",
        cause=cause,
        hole=lacking,
        trim="",  # that needs the ledger, too
    )


def same_batch(recorded: Epoch, offer: Offer) -> bool:
    """Whether a batch is an epoch's, by the engine's clock, slice and sources. The caller checks names or digest."""
    before, now = recorded.lineage, offer.lineage
    if before is None:
        return False
    return (
        (before.batch_timestamp_ms, before.watermark_ms) == (now.batch_timestamp_ms, now.watermark_ms)
        and recorded.planned == offer.slice
        and same_inputs(recorded.sources, offer.sources)
    )


def _range(slice_: Slice, lineage: Lineage) -> str:
    return f"{describe(slice_.start)} to {describe(slice_.end)}, planned at {lineage.batch_timestamp_ms}"


def _before(facts: BatchFacts) -> Lineage | None:
    return facts.last.resume_point.lineage if facts.last else None


def _new_lineage(facts: BatchFacts) -> bool:
    before = _before(facts)
    return before is None or before.query_id != facts.offer.lineage.query_id


def _rf_refreshed(facts: BatchFacts) -> NewEpoch | Refusal | None:
    return refresh.refreshed(facts)


def _r8s_state_lost(facts: BatchFacts) -> Refusal | None:
    if not facts.offer.stateful or facts.last is None or not _new_lineage(facts):
        return None
    if facts.last.resume_point.accepts(AdoptionKind.ACCEPT_STATE_LOSS):
        return None
    offered = facts.offer.lineage.query_id
    then = decide_batch(replace(facts, last=_without_state(facts.last)))
    after = then if isinstance(then, Refusal) else None
    return Refusal.of("E206", pipeline=facts.pipeline, offered=offered, recorded=_query_before(facts), after=after)


def _r8s_other_state(facts: BatchFacts) -> Refusal | None:
    return _other_state(facts, facts.last)


def _other_state(facts: BatchFacts, preceding: Epoch | None) -> Refusal | None:
    """Refuse to begin with another state than the batch before left, or with one that is not there."""
    before, found, now = preceding.resume_point.lineage if preceding else None, facts.offer.state, facts.offer.lineage
    if (
        found is None
        or before is None
        or preceding is None
        or facts.newest.resume_point.accepts(AdoptionKind.ACCEPT_STATE_LOSS)
    ):
        return None
    recorded = before.state if (before.query_id, before.batch_id + 1) == (now.query_id, now.batch_id) else None
    if recorded is None or found == recorded or found.text in facts.left:
        return None
    return Refusal.of(
        "E248",
        pipeline=facts.pipeline,
        epoch=preceding.number,
        recorded=recorded.text,
        found=found.text,
        checkpoint=now.checkpoint,
    )


def _without_state(last: Epoch) -> Epoch:
    resume_point, end = last.resume_point, last.written.end
    carried = replace(resume_point, accepted=(*resume_point.accepted, Adoption(AdoptionKind.ACCEPT_STATE_LOSS)))
    return replace(last, number=last.number + 1, written=Slice(end, end), lineage=None, carried=carried)


def _query_before(facts: BatchFacts) -> str:
    before = _before(facts)
    return before.query_id if before else "unknown"


def _r8_first(facts: BatchFacts) -> NewEpoch | Refusal | None:
    if facts.last is not None:
        return None
    start = facts.offer.slice.start
    if facts.adopt is None and not start.unset:
        return Refusal.of("E217", pipeline=facts.pipeline, sink=facts.sink, start=describe(start))
    if facts.adopt is None:
        return NewEpoch(1)
    if isinstance(facts.adopt, SourceOffsets) and facts.adopt != facts.offer.start:
        stated = describe(facts.adopt)
        return Refusal.of("E218", pipeline=facts.pipeline, stated=stated, start=describe(facts.offer.start))
    return NewEpoch(1, (Happening(EventKind.ADOPTED, f"{facts.sink} taken over with its rows", 1),))


def keeps_recomputed_state(last: Epoch | None, number: int, offer: Offer | None) -> bool:
    """Whether an operator accepted recomputed state, or the loss of this batch's input, with no write since."""
    accepted = last.resume_point.accepted if last else ()
    without = offer is not None and bool(offer.missing) and acceptance.misses_input(accepted, offer.range)
    return without or any(
        adoption.kind is AdoptionKind.KEEP_RECOMPUTED_STATE and adoption.first == number for adoption in accepted
    )


def _moved(last: Epoch) -> bool:
    """Whether an operator set the position of the next batch after the last rows."""
    return acceptance.moved(last.resume_point.accepted, last.written.end)


def _bound(last: Epoch) -> bool:
    """Whether a position was read from a checkpoint: only that checkpoint is known to continue from it."""
    return last.resume_point.accepts(AdoptionKind.FROM_CHECKPOINT)


def _r8_other_sources(facts: BatchFacts) -> Refusal | None:
    last = facts.last
    if last is None or not last.sources:
        return None  # a decision that came before the first rows knows of no source
    is_accepted = last.resume_point.accepts(AdoptionKind.START, AdoptionKind.CONTINUE, AdoptionKind.FROM_CHECKPOINT)
    if is_accepted or same_origins(last.sources, facts.offer.sources):
        return None
    return Refusal.of(
        "E212",
        pipeline=facts.pipeline,
        epoch=last.number,
        was=name_origins(last.sources),
        now=name_origins(facts.offer.sources),
    )


def _r8_continues(facts: BatchFacts) -> NewEpoch | NeedsInputFiles | Refusal | None:
    last, offer = facts.last, facts.offer
    if last is None or last.written.end != offer.start or (_bound(last) and _new_lineage(facts)):
        return None
    if not _moved(last) and _new_lineage(facts):
        return _r8_continues_elsewhere(facts, last)
    if last.resume_point.offered is not None and overlap.reads_files(offer.sources):
        return _r8_continues_by_file(facts, last)
    # A source may begin there by its own note alone, and then its batch has no start.
    return NewEpoch(last.number + 1, (), _written(facts, Slice(last.written.end, offer.slice.end)))


def _r8_continues_elsewhere(facts: BatchFacts, last: Epoch) -> NewEpoch | None:
    offer = facts.offer
    if offer.start.unset or not all(portable(source) for source in (*last.sources, *offer.sources)):
        return None
    warning = caution("W703", pipeline=facts.pipeline, offered=offer.lineage.query_id, recorded=_query_before(facts))
    happenings = (Happening(EventKind.WARNED, warning, last.number + 1),)
    return NewEpoch(last.number + 1, happenings, _written(facts, Slice(last.written.end, offer.slice.end)))


def _written(facts: BatchFacts, slice_: Slice) -> Slice | None:
    return None if slice_ == facts.offer.slice else slice_


def _r8_continues_by_file(facts: BatchFacts, last: Epoch) -> NewEpoch | NeedsInputFiles | Refusal:
    """Accept more files of a checkpoint that began with files of recorded epochs, regardless of its own count."""
    if facts.held is None:
        return NeedsInputFiles()
    if facts.held.lacking:
        return Refusal.of("E220", reason=facts.held.lacking, **_refusal_details(facts, last))
    if not overlap.trim_files(facts.offer, facts.held).held:
        plain_again = overlap.past_all(facts.offer, facts.held)
        return NewEpoch(last.number + 1, (), None if plain_again else facts.offer.slice)
    return _r8_trimmed(facts) or _r8_mismatch(facts)


def _other_parts(facts: BatchFacts) -> Refusal | None:
    """Refuse if topics or partitions were added or removed while all others continue, as nothing is read twice."""
    last, offer = facts.newest, facts.offer
    kafka = all(source.kind is SourceKind.KAFKA for source in (*last.sources, *offer.sources))
    parts = other_parts(last.written.end, offer.start) if kafka and not _bound(last) else None
    if parts is None:
        return None
    gone, new = parts
    differences = [f"no longer reads {', '.join(gone)}"] if gone else []
    differences += [f"also reads {', '.join(new)}"] if new else []
    details = {"pipeline": facts.pipeline, "sink": facts.sink, "epoch": last.number}
    return Refusal.of("E250", difference=" and ".join(differences), **details)


def _r8_trimmed(facts: BatchFacts) -> NewEpoch | NeedsInputFiles | Refusal | None:
    last, offer = facts.last, facts.offer
    if facts.overlap == "stop" or last is None:
        return None
    if facts.held is None and not offer.stateful and overlap.reads_files(offer.sources):
        return NeedsInputFiles()
    match overlap.cut(last, offer, facts.held):
        case None:
            return None
        case str() as reason:
            return Refusal.of("E220", reason=reason, **_refusal_details(facts, last))
        case TrimmedBatch(slice_, trim):
            number = last.number + 1
            what = f"batch {offer.lineage.batch_id}, {_range(offer.slice, offer.lineage)}: {trim.summary} are in epochs"
            left_out = f"{what} up to {last.number} and are left out"
            return NewEpoch(number, (Happening(EventKind.TRIMMED, left_out, number),), slice_, trim)


def _refusal_details(facts: BatchFacts, last: Epoch) -> dict[str, object]:
    return {
        "pipeline": facts.pipeline,
        "sink": facts.sink,
        "epoch": last.number,
        "end": describe(last.written.end),
    }


def _r8_mismatch(facts: BatchFacts) -> Refusal:
    last, offer, anew = facts.newest, facts.offer, _new_lineage(facts)  # _r8_first has taken the case without one
    # The old checkpoint can be written anew, but for the state in it.
    details = {**_refusal_details(facts, last), "state_lost": offer.stateful and anew}
    comparable = not _bound(last) and all(portable(source) for source in (*last.sources, *offer.sources))
    if anew and (offer.start.unset or not comparable):
        ids = {"offered": offer.lineage.query_id[:8], "recorded": _query_before(facts)[:8]}
        return Refusal.of("E211", **ids, **details, trim=_trim_hint(offer))
    range_ = f"{describe(offer.start)} to {describe(offer.slice.end)}"
    ordering = order(offer.start, last.written.end)
    if ordering != Order.AFTER:
        return Refusal.of("E203", **details, range=range_, cause=_cause(facts, ordering), trim=_trim_hint(offer))
    if not anew and (more := _finished_more(facts, last)) > 0:
        done = {"batch": offer.lineage.batch_id - 1}
        return _gap("E229", last, offer, more, **_refusal_details(facts, last), **done, range=range_)
    return _gap("E204", last, offer, 1, **details, range=range_, cause=_cause(facts, ordering))


def _cause(facts: BatchFacts, ordering: Order) -> str:
    """Explain why a batch does not start at the end of the last epoch, by its position."""
    if _new_lineage(facts):
        recorded, offered = _query_before(facts), facts.offer.lineage.query_id
        return f"the checkpoint was deleted or moved (before: query id {recorded[:8]}, now {offered[:8]})"
    if ordering == Order.AFTER:
        return "Spark jumped ahead because commit entries are missing from the checkpoint"
    if ordering == Order.SAME:
        return 'the checkpoint hands out files that epochs before it hold; overlap="trim" was given before'
    return "the checkpoint was rolled back or edited, and the ledger no longer knows these batches"


def _gap(code: str, last: Epoch, offer: Offer, epochs: int, /, **details: object) -> Refusal:
    """Refuse a gap of ``epochs`` numbers without an epoch. If the gap is given up, it becomes an epoch without rows."""
    offsets = counted(last.written.end, offer.start, offer.sources)
    rows = "" if offsets is None else f"{offsets} offset{'' if offsets == 1 else 's'}"
    many = f"{epochs} epoch{'' if epochs == 1 else 's'}"
    gap = (f"{many}, {rows}" if rows else many) if code == "E229" else rows or "the range"
    return Refusal.of(code, **details, first=last.number + 1, last=last.number + epochs, gap=gap)


def _finished_more(facts: BatchFacts, last: Epoch) -> int:
    """Count batches that Spark finished, that no sink or ledger knows and that were not given up."""
    newest = last.resume_point.lineage
    if newest is None:
        return 0
    given_up = acceptance.batches_given_up(last.resume_point.accepted)
    return facts.offer.lineage.batch_id - newest.batch_id - 1 - given_up


_TRIM_COLUMNS = {
    True: 'with .selectExpr("*", "_metadata.file_path") right after load()',
    False: 'where the rows still have .selectExpr("topic", "partition", "offset", ...)',
}
"""What the rows must still have, by whether the source is of files."""


def _trim_hint(offer: Offer) -> str:
    """Suggest the option that continues without an operator, for plans to which it may apply."""
    if offer.stateful or overlap.columns(offer.sources) is None:
        return ""
    files = overlap.reads_files(offer.sources)
    columns = _TRIM_COLUMNS[files]
    return f'\nor leave out rows that epochs hold: exactly_once(..., recovery=Recovery(overlap="trim")), {columns}'


def _r11_input_gone(facts: BatchFacts, number: int, trim: Trim | None = None) -> Refusal | None:
    accepted = facts.last is not None and acceptance.misses_input(facts.last.resume_point.accepted, facts.offer.range)
    left_out = trim.left_out if trim else frozenset[str]()
    gone = [path for path in facts.offer.missing if plain(path) not in left_out]
    if not gone or accepted:
        return None
    missing = shorten_list(gone, 3)
    return Refusal.of("E214", pipeline=facts.pipeline, epoch=number, missing=missing, first=number, last=number)


def decide_batch(facts: BatchFacts) -> NewEpoch | Skip | NeedsInputFiles | Refusal:
    """Decide what becomes of the engine's batch. The first rule that applies decides."""
    decision: NewEpoch | Skip | NeedsInputFiles | Refusal = (
        _rr_replayed(facts)
        or _r7_known_batch(facts)
        or _rf_refreshed(facts)
        or _r8s_state_lost(facts)
        or _r8s_other_state(facts)
        or _r8_first(facts)
        or _r8_other_sources(facts)
        or _r8_continues(facts)
        or _other_parts(facts)
        or _r8_trimmed(facts)
        or _r8_mismatch(facts)
    )
    if isinstance(decision, NewEpoch):
        return _r11_input_gone(facts, decision.number, decision.trim) or decision
    if isinstance(decision, Skip) and decision.execute:
        return _r11_input_gone(facts, decision.epoch.number) or decision
    return decision
