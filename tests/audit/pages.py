"""Facts for pages: a pipeline of several sinks and partitions that ran for a while, was killed, and can be damaged."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from tests.audit.histories import epoch_after

from onceonly.audit import AuditResult, Facts, SinkFacts, judge
from onceonly.audit.facts import LedgerFacts
from onceonly.audit.page import Provenance
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, Receipt
from onceonly_checkpoints.ledger import Event, EventKind, Pipeline
from onceonly_checkpoints.model import Slice, SourceOffsets

SINKS = ("postgres:orders", "kafka:orders", "delta:orders")
BEGAN_MS = 1_790_000_000_000
TAKEN = Provenance(BEGAN_MS + 3_600_000, "0.1.0", "3.11.0")
_PHASES = ("open", "stage", "prepare", "commit", "record")


def offsets(positions: Sequence[int], topic: str = "orders") -> SourceOffsets:
    return SourceOffsets.of({"0": json.dumps({topic: {str(index): at for index, at in enumerate(positions)}})})


def line_of(count: int, *, sinks: Sequence[str] = SINKS, partitions: int = 3, topic: str = "orders") -> list[Epoch]:
    chance = random.Random(count)
    positions, line, at = [0] * partitions, list[Epoch](), BEGAN_MS
    for number in range(1, count + 1):
        ahead = [position + chance.randint(200, 900) for position in positions]
        slice_ = Slice(offsets(positions, topic), offsets(ahead, topic))
        rows = sum(ahead) - sum(positions)
        at += chance.randint(1_800, 4_200) + (9_000 if number % 17 == 0 else 0)
        batch = Lineage("q-1", f"r-{number // 17}", "file:/ck", number - 1, at, 0)
        line.append(epoch_after(line[-1] if line else None, rows, written=slice_, sinks=sinks, lineage=batch))
        positions = ahead
    return line


def sink_facts(line: Sequence[Epoch], sink: str) -> SinkFacts:
    history = tuple(
        (
            Marker("orders", sink, Fence(1 + epoch.number // 17, "a" * 32), epoch),
            Receipt(sink, epoch.number, epoch.chain, "table-1", (("version", epoch.number),), epoch.digest.rows),
        )
        for epoch in line
    )
    rows = {epoch.number: epoch.digest.rows for epoch in line}
    return SinkFacts(sink, f"{sink}#x", True, Fence(1 + len(line) // 17, "a" * 32), history, rows, len(line))


def ledger_facts(line: Sequence[Epoch], sinks: Sequence[SinkFacts], name: str = "orders") -> LedgerFacts:
    chance = random.Random(7)
    records = []
    for index, epoch in enumerate(line):
        phases = tuple((phase, chance.lognormvariate(-3, 0.4)) for phase in _PHASES)
        at = (epoch.lineage.batch_timestamp_ms if epoch.lineage else BEGAN_MS) + 900
        receipts = tuple(sink.history[index][1] for sink in sinks if index < len(sink.history))
        records.append(EpochRecord(name, Fence(1, "a" * 32), epoch, receipts, (), phases, at))
    row = Pipeline(name, tuple((sink.id, sink.address) for sink in sinks), "q-1", "file:/ck", 3, BEGAN_MS)
    return LedgerFacts("/var/lib/ledger.db", row, tuple(records), None, tuple(_events(line, name)))


def _events(line: Sequence[Epoch], name: str) -> list[Event]:
    found = [Event(name, EventKind.OPENED, "the sinks stand at epoch 0", 0, 1, BEGAN_MS)]
    for epoch in line[16::17]:
        at = epoch.lineage.batch_timestamp_ms if epoch.lineage else 0
        number, life = epoch.number, 1 + epoch.number // 17
        found.append(Event(name, EventKind.OPENED, f"the sinks stand at epoch {number - 1}", number, life, at - 4_000))
        what = "kafka:orders brought to the epoch, which the other sinks held already"
        found.append(Event(name, EventKind.RESOLVED, what, number - 1, life, at - 3_500))
        what = f"batch {number - 2}: same query id, batch id, offset range and batch timestamp"
        found.append(Event(name, EventKind.SKIPPED, what, number - 1, life, at - 3_000))
    return found


def story(count: int = 48, *, sinks: Sequence[str] = SINKS, partitions: int = 3, name: str = "orders") -> Facts:
    """A pipeline that is exactly once."""
    line = line_of(count, sinks=sinks, partitions=partitions)
    held = tuple(sink_facts(line, sink) for sink in sinks)
    return Facts(name, held, ledger_facts(line, held, name))


def damaged(count: int = 48) -> Facts:
    """The same with a hole in the offsets, rows deleted in one sink and doubled in another."""
    line = line_of(count)
    torn = line[:30]
    for epoch in line[31:]:
        rows, batch = epoch.digest.rows, epoch.lineage
        torn.append(epoch_after(torn[-1], rows, written=epoch.written, sinks=SINKS, lineage=batch))
    held = [sink_facts(torn, sink) for sink in SINKS]
    short = {**(held[2].rows or {}), 12: 40, 13: 0}
    double = {**(held[0].rows or {}), 21: 2 * torn[20].digest.rows}
    held[2], held[0] = replace(held[2], rows=short), replace(held[0], rows=double)
    return Facts("orders", tuple(held), ledger_facts(torn, held))


def judged(*facts: Facts) -> list[tuple[Facts, AuditResult]]:
    return [(fact, judge(fact)) for fact in facts]
