"""Rules over operators' decisions: each must be on record. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding, found
from onceonly.audit.sink_history import SinkHistory, ranges
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.model import AdoptionKind


def decisions_said(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A197: an epoch of no batch records neither a decision nor a publication."""
    for line in lines:
        for epoch in line.epochs:
            if epoch.lineage is None and epoch.adoption is None and epoch.replays is None:
                evidence = f"epoch {epoch.number} is of no batch, and says of nobody who decided on it"
                yield found("A197", facts.pipeline, line.sink, epoch.number, evidence)


def sinks_that_left(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A195: rows of a removed sink are in no other sink, and no operator gave them up."""
    records = facts.ledger.records if facts.ledger else ()
    known = {record.epoch.number: record.epoch for record in records}
    known |= {epoch.number: epoch for line in lines for epoch in line.epochs}
    for number in sorted(known):
        before = known.get(number - 1)
        left = set(dict(before.sinks)) - set(dict(known[number].sinks)) if before else set[str]()
        for sink in sorted(left):
            reached = [receipt.epoch for record in records for receipt in record.receipts if receipt.sink == sink]
            yield from _left(facts, sink, known, number, max(reached, default=0))


def _left(facts: Facts, sink: str, known: Mapping[int, Epoch], number: int, reached: int) -> Iterator[Finding]:
    decision = known[number].adoption
    if decision is None or decision.kind is not AdoptionKind.DROP_SINK or sink not in decision.sinks:
        evidence = f"epoch {number} does not list {sink} any more, and says of nobody who took it out"
        yield found("A195", facts.pipeline, None, number, evidence)
        return
    # A ledger that was made again from other sinks has no receipt of this one, and says nothing of it.
    missing = range(reached + 1, number) if reached else ()
    lost = {at: rows for at in missing if at in known and (rows := known[at].only_in(sink))}
    if unnamed := tuple(at for at in lost if not decision.first <= at <= decision.last):
        rows = sum(lost[at] for at in unnamed)
        evidence = f"{sink} left with epoch {number} and had not confirmed epochs {ranges(unnamed)}: {rows} rows"
        yield found("A195", facts.pipeline, None, unnamed[0], evidence, last=unnamed[-1])
