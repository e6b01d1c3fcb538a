"""Rules across sinks, unfinished epochs and the ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onceonly.audit.facts import Facts, LedgerFacts
from onceonly.audit.sink_history import Evidence, SinkHistory, ranges
from onceonly.machine import in_doubt
from onceonly.machine.in_doubt import PipelineSnapshot, Progress
from onceonly.machine.source_order import describe
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Marker, Receipt, receipts_of

# ---- Rules over the sinks of one pipeline together, and over what was begun and not finished. Pure.


def sinks_readable(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A101: sinks that did not answer."""
    for sink in facts.sinks:
        if sink.unreadable is not None:
            yield Evidence("A101", None, sink.unreadable, sink=sink)


def anything_written(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A102, A105: nothing to compare, known or unknown."""
    ledger = facts.ledger
    if any(line.held for line in lines) or len(lines) < len(facts.sinks) or (ledger and ledger.records):
        return
    if ledger is not None and ledger.pipeline is not None:
        yield Evidence("A105", None, f'"{facts.pipeline}" was opened and has no epoch')
        return
    looked = ", ".join(sink.address for sink in facts.sinks) or "no sink was named"
    yield Evidence("A102", None, f'no marker of "{facts.pipeline}" in: {looked}')


def anything_since(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A108: every epoch comes before the first one to judge."""
    newest = _newest(lines)
    if newest is not None and newest.number < facts.since:
        evidence = f"the newest is epoch {newest.number}, and epochs from {facts.since} on were asked for"
        yield Evidence("A108", None, evidence)


def sinks_complete(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A107: a sink that the newest marker lists was not among the audited ones."""
    newest = _newest(lines)
    audited = {sink.id for sink in facts.sinks}
    for sink, _ in newest.sinks if newest else ():
        if sink not in audited:
            yield Evidence("A107", None, f"{sink} is listed by epoch {newest.number if newest else 0} and was not read")


def batches_without_epochs(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A180: Spark committed batches that neither a sink nor the ledger knows."""
    heads = [line.held[-1] for line in lines if line.held]
    heads += [record.epoch for record in facts.ledger.records[-1:]] if facts.ledger else []
    newest = max(heads, key=lambda epoch: epoch.number, default=None)
    engine, lineage = facts.engine, newest.resume_point.lineage if newest else None
    if newest is None or engine is None or lineage is None or engine.query_id != lineage.query_id:
        return
    if engine.batch > lineage.batch_id and engine.end is not None and engine.end != newest.reached:
        evidence = (
            f"the checkpoint has finished batch {engine.batch}, up to {describe(engine.end)}; epoch {newest.number} "
            f"came from batch {lineage.batch_id} and ends at {describe(newest.reached)}"
        )
        yield Evidence("A180", newest.number, evidence)


def sinks_agree(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A140: the first epoch at which two sinks hold different chains."""
    first_epochs: dict[int, tuple[str, Epoch]] = {}
    for line in lines:
        for epoch in line.held:
            other, other_epoch = first_epochs.setdefault(epoch.number, (line.sink.id, epoch))
            if other_epoch.chain != epoch.chain:
                evidence = f"{other} has chain {other_epoch.chain[:12]}, {line.sink.id} has {epoch.chain[:12]}"
                yield Evidence("A140", epoch.number, evidence, sink=line.sink)
                break


def sinks_level(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A141, A142: a sink that lacks the newest epochs of the others."""
    newest = _newest(lines)
    for line in lines:
        first = dict(newest.sinks).get(line.sink.id) if newest else None
        sink_epoch = max(line.newest, (first or 1) - 1)
        if newest is None or first is None or sink_epoch >= newest.number:
            continue
        code = (
            "A142" if sink_epoch < newest.number - 1 else "A143" if _under_way(facts, lines, newest.number) else "A141"
        )
        evidence = f"{line.sink.id} is at epoch {sink_epoch}, the newest is {newest.number}"
        yield Evidence(code, sink_epoch + 1, evidence, last=newest.number, sink=line.sink)


def begun(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A143, A150, A151: an intent beyond every marker."""
    intent = facts.ledger.intent if facts.ledger else None
    newest = _newest(lines)
    if intent is None or (newest is not None and intent.epoch <= newest.number):
        return
    if facts.ledger and any(record.epoch.number >= intent.epoch for record in facts.ledger.records):
        return
    begun = in_doubt.begun(_moment(facts, lines, intent.epoch - 1))
    assert begun is not None
    range_ = f"{describe(intent.slice.start)} to {describe(intent.slice.end)}"
    evidence = f"{intent.fence.text} began epoch {intent.epoch}: {range_}; {begun.why}"
    yield Evidence(_BEGUN[begun.state], intent.epoch, evidence)


_BEGUN = {Progress.WRITING: "A143", Progress.DEAD: "A151", Progress.UNKNOWN: "A150"}


def _under_way(facts: Facts, lines: tuple[SinkHistory, ...], newest: int) -> bool:
    sink_epochs = {line.sink.id: line.newest for line in lines}
    begun = in_doubt.begun(_moment(facts, lines, newest, sink_epochs))
    return begun is not None and begun.state is Progress.WRITING


def _moment(
    facts: Facts, lines: tuple[SinkHistory, ...], newest: int, sink_epochs: Mapping[str, int] | None = None
) -> PipelineSnapshot:
    ledger = facts.ledger
    assert ledger is not None or sink_epochs is not None
    fences = [line.sink.fence.generation if line.sink.fence else 0 for line in lines]
    entered = ledger.pipeline.generation if ledger and ledger.pipeline else 0
    return PipelineSnapshot(
        generation=max(entered, min(fences, default=0)),
        newest=newest,
        intents=(ledger.intent if ledger else None,),
        events=ledger.events if ledger else (),
        records=ledger.records[-in_doubt.RECENT :] if ledger else (),
        now_ms=facts.now_ms,
        sink_epochs=sink_epochs or {},
        grace_s=facts.grace_s,
    )


def _newest(lines: tuple[SinkHistory, ...]) -> Epoch | None:
    heads = [line.held[-1] for line in lines if line.held]
    return max(heads, key=lambda epoch: epoch.number, default=None)


# ---- Rules that compare a sink, the authority, with what the ledger once saw confirmed. Pure.


def ledger_there(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A106, A131: no ledger to compare with."""
    ledger = facts.ledger
    sink = facts.sinks[0] if facts.sinks else None
    if ledger is not None and ledger.unreadable is not None:
        yield Evidence("A106", None, f"{ledger.address}: {ledger.unreadable}", sink=sink)
    elif any(line.held for line in lines) and (ledger is None or not (ledger.records or ledger.pipeline)):
        where = "no ledger was given" if ledger is None else f"{ledger.address} does not know the pipeline"
        yield Evidence("A131", None, where, sink=sink)


def records_sound(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A136: a record whose chain is not the hash of its content."""
    sink = facts.sinks[0] if facts.sinks else None
    for record in facts.ledger.records if facts.ledger else ():
        if not chain.sound(record.epoch):
            number = record.epoch.number
            evidence = f"record of epoch {number}: chain {record.epoch.chain[:12]} does not match its content"
            yield Evidence("A136", number, evidence, sink=sink)


def compare(line: SinkHistory, ledger: LedgerFacts) -> Iterator[Evidence]:
    """A130, A132, A133, A134, A135 for one sink."""
    records = {record.epoch.number: record for record in ledger.records}
    if not records:
        return
    yield from _behind(line, records)
    yield from _ahead(line, ledger)
    for marker, receipt in line.sink.history:
        record = records.get(marker.epoch.number)
        if record is not None:
            yield from _same(line, record, marker, receipt)


def _behind(line: SinkHistory, records: dict[int, EpochRecord]) -> Iterator[Evidence]:
    unknown = tuple(epoch.number for epoch in line.held if epoch.number not in records)
    if unknown:
        evidence = f"epochs {ranges(unknown)} are in the sink and not in the ledger"
        yield Evidence("A130", unknown[0], evidence, last=unknown[-1])


def _ahead(line: SinkHistory, ledger: LedgerFacts) -> Iterator[Evidence]:
    confirmed = [record.epoch for record in ledger.records if line.sink.id in receipts_of(record)]
    gone = tuple(epoch.number for epoch in confirmed if epoch.number > line.newest)
    if gone:
        rows = sum(epoch.digest.rows for epoch in confirmed if epoch.number > line.newest)
        status = f"is at epoch {line.newest}" if line.held else "holds no marker"
        evidence = f"the sink {status}; the ledger confirms epochs {ranges(gone)} with {rows} rows"
        yield Evidence("A132", gone[0], evidence, last=gone[-1])


def _same(line: SinkHistory, record: EpochRecord, marker: Marker, receipt: Receipt) -> Iterator[Evidence]:
    number = marker.epoch.number
    if record.epoch.chain != marker.epoch.chain:
        evidence = f"ledger: {_sketch(record.epoch)}; sink: {_sketch(marker.epoch)}"
        yield Evidence("A133", number, evidence)
        return
    ledger_receipt = receipts_of(record).get(line.sink.id)
    if ledger_receipt is None:
        return
    if ledger_receipt.identity != receipt.identity:
        evidence = f"the ledger's receipt is of {ledger_receipt.identity}, the sink now says {receipt.identity}"
        yield Evidence("A134", number, evidence)
    elif ledger_receipt.position != receipt.position:
        evidence = f"the ledger's receipt has {_spell(ledger_receipt)}, the sink {_spell(receipt)}"
        yield Evidence("A135", number, evidence)


def _sketch(epoch: Epoch) -> str:
    return f"{epoch.digest.rows} rows, chain {epoch.chain[:12]}"


def _spell(receipt: Receipt) -> str:
    return ", ".join(f"{name} {value}" for name, value in receipt.position) or "nothing"
