"""Writes the audit page: frozen facts in, one HTML file out that needs nothing else, no network and no server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceonly.audit.catalogue import Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.page.charts import PHASES
from onceonly.audit.page.embed import SCHEMA_VERSION, document_of
from onceonly.audit.page.figures import QUANTILES
from onceonly.audit.page.outcome import grid_of
from onceonly.audit.page.view import KEYS, View, view_of
from onceonly.audit.result import AuditResult
from onceonly.audit.verdict import worst
from onceonly.page import Shell, Taken, put

_SHELL = Shell("onceonly.audit.page", "audit")


@dataclass(frozen=True, slots=True)
class LabRun:
    """One run of the lab that produced what is audited.

    Attributes:
        name: what was run.
        verdict: of the run's own judge, who compares rows and does not read markers.
        sentence: its counts.
        moments: the faults that were injected, in order.
    """

    name: str
    verdict: Verdict
    sentence: str
    moments: tuple[str, ...]


def render(audits: Sequence[tuple[Facts, AuditResult]], taken: Taken, runs: Sequence[LabRun] = ()) -> str:
    """The page over one or several pipelines.

    Args:
        audits: what was gathered, and what was judged from it.
        taken: when.
        runs: lab runs behind these facts, if any.
    """
    grids = [grid_of(facts, result) for facts, result in audits]
    views = [view_of(facts, result, grid) for (facts, result), grid in zip(audits, grids, strict=True)]
    share = 1_500_000 // max(1, len(audits))
    document = {
        "schema_version": SCHEMA_VERSION,
        "taken_ms": taken.at_ms,
        "onceonly": taken.onceonly,
        "verdict": str(_worst(views)),
        "pipelines": [document_of(result, grid, share) for (_, result), grid in zip(audits, grids, strict=True)],
    }
    return _page(views, taken, runs, document)


def write(path: Path, audits: Sequence[tuple[Facts, AuditResult]], taken: Taken, runs: Sequence[LabRun] = ()) -> None:
    """Render into a file, which is there completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    put(path, render(audits, taken, runs))


def _page(views: Sequence[View], taken: Taken, runs: Sequence[LabRun], document: dict[str, Any]) -> str:
    verdict = _worst(views)
    return _SHELL.render(
        taken,
        document,
        views=views,
        runs=runs,
        verdict=verdict,
        keys=KEYS,
        phases=PHASES,
        quantiles=[name for name, _ in QUANTILES],
    )


def _worst(views: Sequence[View]) -> Verdict:
    return worst(view.result.verdict for view in views)
