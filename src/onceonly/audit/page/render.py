"""Writes the audit page: frozen facts in, one HTML file out that needs nothing else, no network and no server."""

from __future__ import annotations

import base64
import hashlib
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from onceonly.audit.catalogue import Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.page.charts import PHASES, clock
from onceonly.audit.page.embed import SCHEMA_VERSION, document_of, embedded
from onceonly.audit.page.figures import QUANTILES
from onceonly.audit.page.outcome import Outcome, grid_of
from onceonly.audit.page.view import KEYS, View, view_of
from onceonly.audit.result import AuditResult
from onceonly.audit.verdict import worst

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True)
class Taken:
    """When and with what an audit was taken.

    Attributes:
        at_ms: milliseconds since 1970.
        onceonly: version of this package.
        python: version of Python.
    """

    at_ms: int
    onceonly: str
    python: str

    @classmethod
    def now(cls) -> Taken:
        """Here and now."""
        return cls(time.time_ns() // 1_000_000, version("onceonly"), platform.python_version())


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
    page = render(audits, taken, runs)
    # A reader who reloads must never see half a page.
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_text(page, encoding="utf-8")
    unfinished.replace(path)


def _page(views: Sequence[View], taken: Taken, runs: Sequence[LabRun], document: dict[str, Any]) -> str:
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    verdict = _worst(views)
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            views=views,
            taken=taken,
            runs=runs,
            verdict=verdict,
            verdict_key=KEYS[verdict],
            keys=KEYS,
            outcomes=tuple(Outcome),
            phases=PHASES,
            quantiles=[name for name, _ in QUANTILES],
            facts=Markup(embedded(document)),
            style=Markup(_asset("page.css")),
            script=Markup(script),
            # Nothing but this very script may run, and nothing may be fetched, whatever else the page may hold.
            policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
            "base-uri 'none'; form-action 'none'",
        )
    )


def _worst(views: Sequence[View]) -> Verdict:
    return worst(view.result.verdict for view in views)


def _asset(name: str) -> str:
    return files("onceonly.audit.page").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("onceonly.audit.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(clock=clock, thousands=lambda number: f"{number:,}", ms=_milliseconds)
    return made


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}"
