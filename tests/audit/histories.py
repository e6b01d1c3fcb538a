"""Builds true histories out of the real nouns, so that a test can then damage exactly one thing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from onceonly.audit.facts import Facts, LedgerFacts, SinkFacts
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, Receipt, ResumePoint
from onceonly_checkpoints.epoch_time import EpochTime, EpochWindows
from onceonly_checkpoints.ledger import Intent, Pipeline
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceIdentity, SourceOffsets

PIPELINE = "orders"
SINK = "memory:orders"
FENCE = Fence(1, "a" * 32)
ROWS = (10, 0, 7, 12)


def at(offset: int) -> SourceOffsets:
    return SourceOffsets.of({"0": json.dumps({"events": {"0": offset}})})


def slice_(start: int, end: int) -> Slice:
    return Slice(at(start), at(end))


def epoch_after(
    previous: Epoch | None,
    rows: int,
    *,
    written: Slice | None = None,
    adoption: str | Adoption | None = None,
    sinks: Sequence[str] = (SINK,),
    lineage: Lineage | None = None,
    outputs: tuple[OutputDigest, ...] = (),
    time: EpochTime | None = None,
    panes: EpochWindows | None = None,
) -> Epoch:
    number = previous.number + 1 if previous else 1
    begin = previous.written.end if previous else at(0)
    covered = written or Slice(begin, at(100 * number))
    digest = Digest(rows, rows * 31, rows * 17)
    lineage = None if adoption else lineage or Lineage("q-1", "r-1", "file:/ck", number - 1, 1000 * number, 0)
    if isinstance(adoption, str):
        kind, _, reason = adoption.partition(": ")
        adoption = Adoption(AdoptionKind(kind), sinks=tuple(sinks), reason=reason)
    before = previous.resume_point if previous else ResumePoint()
    epoch = Epoch(
        number=number,
        written=covered,
        chain="",
        previous_chain=previous.chain if previous else chain.GENESIS,
        digest=digest,
        schema="schema",
        sinks=tuple((sink, 1) for sink in sinks),
        lineage=lineage,
        sources=(SourceIdentity("0", "kafka:cluster/events"),),
        adoption=adoption,
        carried=ResumePoint(before.lineage, (*before.accepted, adoption)) if adoption else None,
        outputs=outputs,
        time=time,
        windows=panes,
    )
    return chain.linked(epoch)


def relinked(line: Sequence[Epoch]) -> list[Epoch]:
    """The same epochs with chains that fit what they say now."""
    made: list[Epoch] = []
    for epoch in line:
        before = made[-1].chain if made else epoch.previous_chain
        made.append(chain.linked(replace(epoch, previous_chain=before)))
    return made


def epochs(rows: Sequence[int] = ROWS, sinks: Sequence[str] = (SINK,)) -> tuple[Epoch, ...]:
    line: list[Epoch] = []
    for count in rows:
        line.append(epoch_after(line[-1] if line else None, count, sinks=sinks))
    return tuple(line)


def entry(epoch: Epoch, sink: str = SINK, fence: Fence = FENCE) -> tuple[Marker, Receipt]:
    place = (("entry", epoch.number),)
    receipt = Receipt(sink, epoch.number, epoch.chain, "table-1", place, epoch.digest.rows)
    return Marker(PIPELINE, sink, fence, epoch), receipt


def sink_of(line: Sequence[Epoch], sink: str = SINK) -> SinkFacts:
    rows = {epoch.number: epoch.digest.rows for epoch in line}
    history = tuple(entry(epoch, sink) for epoch in line)
    return SinkFacts(sink, f"{sink}#x", True, FENCE, history, rows, line[-1].number if line else 0)


def record_of(epoch: Epoch, sinks: Sequence[str] = (SINK,)) -> EpochRecord:
    receipts = tuple(entry(epoch, sink)[1] for sink in sinks)
    return EpochRecord(PIPELINE, FENCE, epoch, receipts, phases=(("commit", 0.01),), recorded_ms=1)


def ledger_of(line: Sequence[Epoch], sinks: Sequence[str] = (SINK,)) -> LedgerFacts:
    row = Pipeline(PIPELINE, tuple((sink, f"{sink}#x") for sink in sinks), "q-1", "file:/ck", 1, 1)
    return LedgerFacts("sqlite:///l.db", row, tuple(record_of(epoch, sinks) for epoch in line))


def true_facts(rows: Sequence[int] = ROWS) -> Facts:
    line = epochs(rows)
    return Facts(PIPELINE, (sink_of(line),), ledger_of(line))


def with_rows(facts: Facts, **changed: int) -> Facts:
    """Change counted rows: ``with_rows(facts, e3=6)``."""
    sink = facts.sinks[0]
    rows = {**(sink.rows or {}), **{int(name[1:]): count for name, count in changed.items()}}
    return with_sink(facts, rows=rows)


def with_sink(facts: Facts, **changed: object) -> Facts:
    return replace(facts, sinks=(replace(facts.sinks[0], **changed), *facts.sinks[1:]))  # type: ignore[arg-type]


def with_history(facts: Facts, line: Sequence[Epoch]) -> Facts:
    return with_sink(facts, history=tuple(entry(epoch) for epoch in line))


def with_ledger(facts: Facts, **changed: object) -> Facts:
    assert facts.ledger is not None
    return replace(facts, ledger=replace(facts.ledger, **changed))  # type: ignore[arg-type]


def without_ledger(facts: Facts) -> Facts:
    return replace(facts, ledger=None)


def intent(number: int, fence: Fence = FENCE) -> Intent:
    return Intent(PIPELINE, number, fence, slice_(100 * (number - 1), 100 * number), 5)
