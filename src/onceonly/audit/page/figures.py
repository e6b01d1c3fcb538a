"""Numbers beside the pictures: phase times, replays, how epochs went through the protocol. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from onceonly.audit.facts import Facts
from onceonly.audit.result import AuditResult
from onceonly_checkpoints.ledger import Event, EventKind

QUANTILES = (("min", 0.0), ("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
"""Columns of the table of phase times."""

TOTAL = "all"
"""Name of the row over all phases of an epoch."""

_ATTEMPTS = {
    EventKind.SKIPPED: "offered again, proven to be written, not written again",
    EventKind.TRIMMED: "offered with rows of earlier epochs, which were left out",
    EventKind.RESOLVED: "found unfinished and settled",
    EventKind.DIVERGED: "diverged, and taken as it is",
    EventKind.FAILED: "refused, or stopped by an error",
    EventKind.FENCED: "stopped: a newer driver owns the pipeline",
    EventKind.REGRESSED: "found behind its receipts",
    EventKind.ADOPTED: "moved by an operator",
    EventKind.REBUILT: "learnt by the ledger from the markers",
    EventKind.FOREIGN: "preceded by a change of somebody else's, which they may make",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """Times of one phase over all epochs.

    Attributes:
        name: of the phase.
        seconds: one value per quantile of ``QUANTILES``.
        epochs: how many epochs it is known of.
    """

    name: str
    seconds: tuple[float, ...]
    epochs: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """Something else than one epoch after the other.

    Attributes:
        epoch: which one; 0 for none.
        at_ms: when, milliseconds since 1970.
        what: in words.
        detail: the driver's own words.
        digest: whether all sinks hold the epoch under one chain, which covers its digest.
    """

    epoch: int
    at_ms: int
    what: str
    detail: str
    digest: str


@dataclass(frozen=True, slots=True)
class Journey:
    """How often each way through the protocol was taken, as far as markers and events say.

    Attributes:
        openings: drivers that took the pipeline over.
        fenced: drivers that were stopped by a newer one.
        epochs: ordinary epochs that stand.
        skipped: batches offered again and proven.
        trimmed: batches whose known rows were left out.
        refused: refusals.
        resolved: unknown or half-finished epochs that were settled.
        adopted: positions moved by an operator.
        recorded: epochs that the ledger holds.
        open: begun and without a marker.
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
    whole = times.pop(TOTAL, None)
    return tuple(_phase(name, values) for name, values in (*times.items(), *([(TOTAL, whole)] if whole else [])))


def _phase(name: str, values: Sequence[float]) -> Phase:
    ordered = sorted(values)
    return Phase(name, tuple(quantile(ordered, share) for _, share in QUANTILES), len(values))


def attempts_of(facts: Facts) -> tuple[Attempt, ...]:
    """What happened besides openings and ordinary epochs, newest first."""
    chains = _chains(facts)
    events = facts.ledger.events if facts.ledger else ()
    return tuple(_attempt(event, chains) for event in reversed(events) if event.kind in _ATTEMPTS)


def _attempt(event: Event, chains: dict[int, list[str]]) -> Attempt:
    held = chains.get(event.epoch, [])
    alike = "the same in all sinks" if len(set(held)) == 1 else "differs between sinks"
    digest = "" if not held else "in one sink" if len(held) == 1 else alike
    return Attempt(event.epoch, event.at_ms, _ATTEMPTS[event.kind], event.reason, digest)


def _chains(facts: Facts) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for sink in facts.sinks:
        for epoch in sink.epochs:
            found.setdefault(epoch.number, []).append(epoch.chain)
    return found


def journey_of(facts: Facts, result: AuditResult) -> Journey:
    """Count the ways."""
    ledger = facts.ledger
    kinds = Counter(event.kind for event in (ledger.events if ledger else ()))
    adopted = sum(line.epoch.adoption is not None for line in result.epochs)
    return Journey(
        openings=kinds[EventKind.OPENED],
        fenced=kinds[EventKind.FENCED],
        epochs=len(result.epochs) - adopted,
        skipped=kinds[EventKind.SKIPPED],
        trimmed=kinds[EventKind.TRIMMED],
        refused=kinds[EventKind.FAILED] + kinds[EventKind.DIVERGED] + kinds[EventKind.REGRESSED],
        resolved=kinds[EventKind.RESOLVED],
        adopted=adopted,
        recorded=len(ledger.records) if ledger else 0,
        open=sum(one.code in ("A141", "A150") for one in result.findings),
    )
