"""The facts as JSON inside the page: what the epoch reader shows, and what a program can take out again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceonly.audit.findings import foremost
from onceonly.audit.page.outcome import Grid, Outcome
from onceonly.audit.result import AuditResult
from onceonly.sources import describe

SCHEMA_VERSION = 1
"""Version of the embedded form."""

FINDINGS = 300
"""About so many findings of a pipeline are embedded and shown, the first of each kind among them."""

_OFFSETS = 1_500_000
"""Characters of offsets, the newest epochs first: a source of hundreds of partitions must not make the page heavy."""

_CHAIN = 16


def document_of(result: AuditResult, grid: Grid, allowance: int = _OFFSETS) -> dict[str, Any]:
    """One pipeline: its summary, its findings, its epochs as columns of equal length."""
    shown = foremost(result.findings, FINDINGS)
    return {
        **result.summary(),
        "findings": [one.to_json() for one in shown],
        "findings_left_out": len(result.findings) - len(shown),
        "outcomes": [str(outcome) for outcome in Outcome],
        "epoch_columns": _epochs(result, grid, allowance),
    }


def _epochs(result: AuditResult, grid: Grid, allowance: int) -> dict[str, Any]:
    known = {line.epoch.number: line for line in result.epochs}
    epochs = [known[column.first].epoch if column.first in known else None for column in grid.columns]
    ends = [None if epoch is None else describe(epoch.slice.end) for epoch in epochs]
    ranks = {outcome: rank for rank, outcome in enumerate(Outcome)}
    lineages = [epoch.lineage if epoch else None for epoch in epochs]
    return {
        "number": [column.first for column in grid.columns],
        "rows": [None if epoch is None else epoch.digest.rows for epoch in epochs],
        "up_to": _newest(ends, allowance),
        "began_ms": [column.began_ms or None for column in grid.columns],
        "ended_ms": [column.ended_ms or None for column in grid.columns],
        "batch": [lineage.batch_id if lineage else None for lineage in lineages],
        "chain": [None if epoch is None else epoch.chain[:_CHAIN] for epoch in epochs],
        "adoption": {str(one.number): one.adoption.words for one in epochs if one and one.adoption},
        "codes": {str(column.first): list(column.codes) for column in grid.columns if column.codes},
        "outcome": {
            sink: [ranks[column.outcomes[index]] for column in grid.columns] for index, sink in enumerate(grid.sinks)
        },
        "surplus": {sink: [column.surplus[index] for column in grid.columns] for index, sink in enumerate(grid.sinks)},
    }


def _newest(texts: Sequence[str | None], allowance: int) -> list[str | None]:
    kept: list[str | None] = []
    for text in reversed(texts):
        allowance -= len(text or "")
        kept.append(text if allowance >= 0 else None)
    return kept[::-1]
