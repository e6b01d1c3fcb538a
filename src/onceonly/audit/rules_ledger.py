"""Rules that compare a sink, the authority, with what the ledger once saw confirmed. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from onceonly.audit.facts import Facts, LedgerFacts
from onceonly.audit.finding import Finding, found
from onceonly.audit.line import Line, ranges
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Marker, Receipt


def ledger_there(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A106, A131: no ledger to compare with."""
    ledger = facts.ledger
    sink = facts.sinks[0] if facts.sinks else None
    if ledger is not None and ledger.unreadable is not None:
        yield found("A106", facts.pipeline, sink, None, f"{ledger.address}: {ledger.unreadable}")
    elif any(line.held for line in lines) and (ledger is None or not (ledger.records or ledger.pipeline)):
        where = "no ledger was given" if ledger is None else f"{ledger.address} does not know the pipeline"
        yield found("A131", facts.pipeline, sink, None, where)


def records_sound(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A136: a record that is not the hash of what it says."""
    sink = facts.sinks[0] if facts.sinks else None
    for record in facts.ledger.records if facts.ledger else ():
        if not chain.sound(record.epoch):
            number = record.epoch.number
            evidence = f"record of epoch {number}: chain {record.epoch.chain[:12]} does not match its content"
            yield found("A136", facts.pipeline, sink, number, evidence)


def compare(pipeline: str, line: Line, ledger: LedgerFacts) -> Iterator[Finding]:
    """A130, A132, A133, A134, A135 for one sink."""
    records = {record.epoch.number: record for record in ledger.records}
    if not records:
        return
    yield from _behind(pipeline, line, records)
    yield from _ahead(pipeline, line, ledger)
    for marker, receipt in line.sink.history:
        record = records.get(marker.epoch.number)
        if record is not None:
            yield from _same(pipeline, line, record, marker, receipt)


def _behind(pipeline: str, line: Line, records: dict[int, EpochRecord]) -> Iterator[Finding]:
    unknown = tuple(epoch.number for epoch in line.held if epoch.number not in records)
    if unknown:
        yield found(
            "A130",
            pipeline,
            line.sink,
            unknown[0],
            f"epochs {ranges(unknown)} stand in the sink and not in the ledger",
            last=unknown[-1],
        )


def _ahead(pipeline: str, line: Line, ledger: LedgerFacts) -> Iterator[Finding]:
    confirmed = [record.epoch for record in ledger.records if _concerns(record, line.sink.id)]
    gone = tuple(epoch.number for epoch in confirmed if epoch.number > line.newest)
    if gone:
        rows = sum(epoch.digest.rows for epoch in confirmed if epoch.number > line.newest)
        stands = f"stands at epoch {line.newest}" if line.held else "holds no marker"
        evidence = f"the sink {stands}; the ledger confirms epochs {ranges(gone)} with {rows} rows"
        yield found("A132", pipeline, line.sink, gone[0], evidence, last=gone[-1])


def _concerns(record: EpochRecord, sink: str) -> bool:
    return any(receipt.sink == sink for receipt in record.receipts)


def _same(pipeline: str, line: Line, record: EpochRecord, marker: Marker, receipt: Receipt) -> Iterator[Finding]:
    number = marker.epoch.number
    if record.epoch.chain != marker.epoch.chain:
        evidence = f"ledger: {_sketch(record.epoch)}; sink: {_sketch(marker.epoch)}"
        yield found("A133", pipeline, line.sink, number, evidence)
        return
    noted = next((known for known in record.receipts if known.sink == line.sink.id), None)
    if noted is None:
        return
    if noted.identity != receipt.identity:
        yield found(
            "A134",
            pipeline,
            line.sink,
            number,
            f"the ledger's receipt is of {noted.identity}, the sink now says {receipt.identity}",
        )
    elif noted.position != receipt.position:
        evidence = f"the ledger's receipt says {_spell(noted)}, the sink {_spell(receipt)}"
        yield found("A135", pipeline, line.sink, number, evidence)


def _sketch(epoch: Epoch) -> str:
    return f"{epoch.digest.rows} rows, chain {epoch.chain[:12]}"


def _spell(receipt: Receipt) -> str:
    return ", ".join(f"{name} {value}" for name, value in receipt.position) or "nothing"
