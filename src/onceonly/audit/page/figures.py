"""Page figures: phase times, protocol paths, embedded JSON for programs. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onceonly.audit.facts import Facts
from onceonly.audit.page.outcomes import Grid, Outcome
from onceonly.audit.page.time_charts import up_to_when, windows_of
from onceonly.audit.result import AuditResult, foremost
from onceonly.machine.source_order import describe
from onceonly.quality.quarantine import set_aside
from onceonly_checkpoints.ledger import Event, EventKind

# ---- Numbers beside the pictures: phase times, replays, how epochs went through the protocol. Pure.

QUANTILES = (("min", 0.0), ("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
"""Columns of the table of phase times."""

TOTAL = "all"
"""Name of the row over all phases of an epoch."""

_ATTEMPTS = {
    EventKind.SKIPPED: "offered again, proven to be written, not written again",
    EventKind.TRIMMED: "offered with rows of earlier epochs, which were left out",
    EventKind.REPLACED: "begun anew by a full refresh, in place of all before",
    EventKind.RESOLVED: "found unfinished and settled",
    EventKind.DIVERGED: "diverged, and taken as it is",
    EventKind.FAILED: "refused, or stopped by an error",
    EventKind.FENCED: "stopped: a newer driver owns the pipeline",
    EventKind.ADOPTED: "moved by an operator",
    EventKind.REBUILT: "learnt by the ledger from the markers",
    EventKind.QUARANTINED: "committed, with bad rows set aside",
    EventKind.SCHEMA_CHANGED: "committed, with other columns than before",
    EventKind.EXTERNAL_CHANGE: "preceded by an external change that you tolerate",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """Times of one phase: one value per quantile of ``QUANTILES``, and the number of epochs with a known time."""

    name: str
    seconds: tuple[float, ...]
    epochs: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """An event besides ordinary epochs. ``digest``: all sinks hold the epoch under one chain, which covers it."""

    epoch: int
    at_ms: int
    what: str
    detail: str
    digest: str


@dataclass(frozen=True, slots=True)
class Journey:
    """Counts of each path through the protocol, as far as markers and events record it.

    Attributes:
        skipped: batches offered again and proven.
        resolved: unknown or half-finished epochs that were settled.
    """

    openings: int
    fenced: int
    epochs: int
    skipped: int
    trimmed: int
    refused: int
    resolved: int
    adopted: int
    recorded: int
    open: int


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def phases_of(facts: Facts) -> tuple[Phase, ...]:
    """Phases in the order of their first appearance, then all of them together."""
    times: dict[str, list[float]] = {}
    for record in facts.ledger.records if facts.ledger else ():
        for name, seconds in record.phases:
            times.setdefault(name, []).append(seconds)
        if record.phases:
            times.setdefault(TOTAL, []).append(sum(seconds for _, seconds in record.phases))
    totals = times.pop(TOTAL, None)
    return tuple(_phase(name, values) for name, values in (*times.items(), *([(TOTAL, totals)] if totals else [])))


def _phase(name: str, values: Sequence[float]) -> Phase:
    ordered = sorted(values)
    return Phase(name, tuple(quantile(ordered, share) for _, share in QUANTILES), len(values))


def attempts_of(facts: Facts) -> tuple[Attempt, ...]:
    """Return events other than openings and ordinary epochs, newest first."""
    chains = _chains(facts)
    events = facts.ledger.events if facts.ledger else ()
    return tuple(_attempt(event, chains) for event in reversed(events) if event.kind in _ATTEMPTS)


def _attempt(event: Event, chains: dict[int, list[str]]) -> Attempt:
    held = chains.get(event.epoch, [])
    alike = "the same in all sinks" if len(set(held)) == 1 else "differs between sinks"
    digest = "" if not held else "in one sink" if len(held) == 1 else alike
    return Attempt(event.epoch, event.at_ms, _ATTEMPTS[event.kind], event.reason, digest)


def _chains(facts: Facts) -> dict[int, list[str]]:
    chains: dict[int, list[str]] = {}
    for sink in facts.sinks:
        for epoch in sink.epochs:
            chains.setdefault(epoch.number, []).append(epoch.chain)
    return chains


def journey_of(facts: Facts, result: AuditResult) -> Journey:
    """Count the paths through the protocol."""
    ledger = facts.ledger
    kinds = Counter(event.kind for event in (ledger.events if ledger else ()))
    adopted = sum(line.epoch.adoption is not None for line in result.epochs)
    return Journey(
        openings=kinds[EventKind.OPENED],
        fenced=kinds[EventKind.FENCED],
        epochs=len(result.epochs) - adopted,
        skipped=kinds[EventKind.SKIPPED],
        trimmed=kinds[EventKind.TRIMMED],
        refused=kinds[EventKind.FAILED] + kinds[EventKind.DIVERGED],
        resolved=kinds[EventKind.RESOLVED],
        adopted=adopted,
        recorded=len(ledger.records) if ledger else 0,
        open=sum(finding.code in ("A141", "A150") for finding in result.findings),
    )


# ---- The facts as JSON inside the page: what the epoch reader shows, and what a program can take out again. Pure.

SCHEMA_VERSION = 1
"""Version of the embedded form."""

FINDINGS = 300
"""About so many findings of a pipeline are embedded and shown, the first of each kind among them."""

_OFFSETS = 1_500_000
"""Characters of offsets, the newest epochs first: a source of hundreds of partitions must not make the page heavy."""

_CHAIN = 16


def document_of(result: AuditResult, grid: Grid, allowance: int = _OFFSETS) -> dict[str, Any]:
    """Return one pipeline's summary, findings, and epochs as columns of equal length."""
    shown = foremost(result.findings, FINDINGS)
    return {
        **result.summary(),
        "findings": [finding.to_json() for finding in shown],
        "findings_left_out": len(result.findings) - len(shown),
        "outcomes": [str(outcome) for outcome in Outcome],
        "epoch_columns": _epochs(result, grid, allowance),
    }


def _epochs(result: AuditResult, grid: Grid, allowance: int) -> dict[str, Any]:
    by_number = {line.epoch.number: line for line in result.epochs}
    epochs = [by_number[column.first].epoch if column.first in by_number else None for column in grid.columns]
    ends = [None if epoch is None else describe(epoch.written.end) for epoch in epochs]
    ranks = {outcome: rank for rank, outcome in enumerate(Outcome)}
    lineages = [epoch.lineage if epoch else None for epoch in epochs]
    there = [epoch for epoch in epochs if epoch]
    aside, time, windows = set_aside(there), up_to_when(there), windows_of(there)
    return {
        "number": [column.first for column in grid.columns],
        "rows": [None if epoch is None else epoch.rows for epoch in epochs],
        "up_to": _newest(ends, allowance),
        "began_ms": [column.began_ms or None for column in grid.columns],
        "ended_ms": [column.ended_ms or None for column in grid.columns],
        "batch": [lineage.batch_id if lineage else None for lineage in lineages],
        "chain": [None if epoch is None else epoch.chain[:_CHAIN] for epoch in epochs],
        "adoption": {str(epoch.number): epoch.adoption.words for epoch in epochs if epoch and epoch.adoption},
        "bad": {str(epoch.number): {"rows": bad.digest.rows, "reasons": dict(bad.reasons)} for epoch, bad in aside},
        "time": time.to_json([column.first for column in grid.columns]) if time else None,
        "windows": windows.to_json([column.first for column in grid.columns]) if windows else None,
        "codes": {str(column.first): list(column.codes) for column in grid.columns if column.codes},
        "outcome": {
            sink: [ranks[column.outcomes[index]] for column in grid.columns] for index, sink in enumerate(grid.sinks)
        },
        "surplus": {sink: [column.surplus[index] for column in grid.columns] for index, sink in enumerate(grid.sinks)},
    }


def _newest(texts: Sequence[str | None], allowance: int) -> list[str | None]:
    newest_texts: list[str | None] = []
    for text in reversed(texts):
        allowance -= len(text or "")
        newest_texts.append(text if allowance >= 0 else None)
    return newest_texts[::-1]
