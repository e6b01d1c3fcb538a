"""Render the audit page as one offline HTML file. Extra ``report``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from onceonly.audit.catalogue import Severity, Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding, first_disagreement, worst
from onceonly.audit.page import charts, figures, time_charts
from onceonly.audit.page.charts import PHASES
from onceonly.audit.page.outcomes import Column, Grid, OffsetChart, Outcome, grid_of, offset_charts
from onceonly.audit.page.time_charts import EventTimeChart, WindowsChart, up_to_when, windows_of
from onceonly.audit.result import AuditResult, foremost
from onceonly.page import Provenance, Shell, facts, put, svg
from onceonly.quality import quarantine
from onceonly_checkpoints.digests import OutputDigest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochTime

__all__ = ["LabRun", "Provenance", "commands_in", "render", "write"]

# ---- Finds the commands in a remedy, so that each gets a copy button. Pure.

_QUOTED = r"'[^']*'|\"[^\"]*\""
_COMMAND = re.compile(rf"\bonceonly (?=[a-z])(?:{_QUOTED}|[^;'\"\n])*")


def commands_in(remedy: str) -> tuple[str, ...]:
    """Return the commands in a remedy, ready to paste. One ends with the text or at a semicolon outside of quotes."""
    return tuple(match[0].rstrip(" .,") for match in _COMMAND.finditer(remedy))


# ---- What one pipeline's part of the page says, ready for the template: every text and picture in its place. Pure.

COLUMNS = 600
"""At most so many columns in a picture as wide as the page: more are thinner than a pixel and a half."""

STEPS = 300
"""The same for an offset chart, which is half as wide, and for stacked phases, which are many marks."""

OFFSET_CHARTS = 8
ATTEMPTS = 100
ASIDE = 60
"""Epochs with bad rows, and with late ones, that are listed, the newest."""

KEYS = {
    Verdict.EXACTLY_ONCE: "exact",
    Verdict.DUPLICATES: "doubled",
    Verdict.GAPS: "gap",
    Verdict.IN_DOUBT: "doubt",
    Verdict.CANNOT_TELL: "unknown",
    Verdict.NOT_COUNTED: "marked",
}
"""Which outcome's colour and texture a verdict has."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding with the commands in its remedy."""

    finding: Finding
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrawnOffsets:
    """One drawn offset chart."""

    chart: OffsetChart
    picture: Markup


@dataclass(frozen=True, slots=True)
class View:
    """One pipeline.

    Attributes:
        first: the first disagreement, or ``None`` without any.
        advice: about ``FINDINGS`` findings, the most urgent first.
        ribbon: picture over time, or empty if no epoch has a time.
        offset_charts: drawn offset charts, broken ones first.
        torn: number of offset charts with a hole or an overlap.
        aside: the newest epochs with bad rows, at most ``ASIDE``, each with its output of bad rows.
        broken: bad rows per broken rule, the most frequent first.
        setting: number of epochs with bad rows.
        late: the newest epochs with late rows, at most ``ASIDE``.
        attempts: the newest ``ATTEMPTS``, newest first.
    """

    facts: Facts
    result: AuditResult
    grid: Grid
    first: Advice | None
    advice: tuple[Advice, ...]
    hidden: int
    legend: tuple[Outcome, ...]
    ribbon: Markup
    matrix: Markup
    width: int
    offset_charts: tuple[DrawnOffsets, ...]
    flat: int
    torn: int
    conservation: Markup
    aside: tuple[tuple[Epoch, OutputDigest], ...]
    bad: int
    broken: Mapping[str, int]
    setting: int
    time: EventTimeChart | None
    through: Markup
    late: tuple[tuple[Epoch, EpochTime], ...]
    windows: WindowsChart | None
    panes: Markup
    latency: Markup
    phases: tuple[figures.Phase, ...]
    attempts: tuple[figures.Attempt, ...]
    unlisted: int
    journey: figures.Journey

    @property
    def key(self) -> str:
        """Colour and texture of the verdict."""
        return KEYS[self.result.verdict]

    @property
    def serious(self) -> int:
        """Findings above ``info``."""
        return sum(finding.severity is not Severity.INFO for finding in self.result.findings)

    @property
    def rows(self) -> int:
        """Committed rows."""
        return sum(line.epoch.rows for line in self.result.epochs)

    @property
    def untimed(self) -> int:
        """Epochs without phase times."""
        return len(self.result.epochs) - max((phase.epochs for phase in self.phases), default=0)

    @property
    def pace(self) -> int:
        """Epochs in a column of the phases' picture."""
        return self.grid.pooled(STEPS).width

    @property
    def audit_command(self) -> str:
        """The command that repeats this audit."""
        ledger = self.facts.ledger.address if self.facts.ledger and self.facts.ledger.unreadable is None else None
        sinks = () if ledger else tuple(part for sink in self.facts.sinks for part in ("--sink", sink.address))
        where = ("--ledger", ledger) if ledger else sinks
        return shlex.join(("onceonly", "audit", "--query", self.facts.pipeline, *where, "--html", "report.html"))

    @property
    def notable(self) -> tuple[Column, ...]:
        """Epochs for the table: those with findings, and the newest. At most 60, oldest first."""
        marked = [column for column in self.grid.columns if column.codes][:40]
        newest = self.grid.columns[-20:]
        return tuple(sorted({*marked, *newest}, key=lambda column: column.first))


def view_of(facts: Facts, result: AuditResult, grid: Grid) -> View:
    """Draw and lay out one pipeline."""
    events = facts.ledger.events if facts.ledger else ()
    records = facts.ledger.records if facts.ledger else ()
    drawn = grid.pooled(COLUMNS)
    partition_charts = offset_charts([line.epoch for line in result.epochs])
    phases, attempts = figures.phases_of(facts), figures.attempts_of(facts)
    first = first_disagreement(result.findings)
    names = [phase.name for phase in phases if phase.name != figures.TOTAL]
    some, shown = bool(drawn.columns), foremost(result.findings, figures.FINDINGS)
    aside = quarantine.set_aside(line.epoch for line in result.epochs)
    bad, broken = quarantine.in_all(aside)
    time = up_to_when([line.epoch for line in result.epochs])
    windows = windows_of([line.epoch for line in result.epochs])
    latency = charts.latency(grid.pooled(STEPS), records, names) if some and names else {}
    return View(
        facts=facts,
        result=result,
        grid=grid,
        first=_advice(first) if first else None,
        advice=tuple(map(_advice, shown)),
        hidden=len(result.findings) - len(shown),
        legend=tuple(outcome for outcome in Outcome if any(outcome in column.outcomes for column in grid.columns)),
        ribbon=_draw(charts.ribbon(drawn, events), f"Epochs of {facts.pipeline} over time, a lane per sink."),
        matrix=_draw(charts.matrix(drawn) if some else {}, "Outcome of each epoch in each sink."),
        width=drawn.width,
        offset_charts=tuple(DrawnOffsets(chart, _offset_chart(chart)) for chart in partition_charts[:OFFSET_CHARTS]),
        flat=max(0, len(partition_charts) - OFFSET_CHARTS),
        torn=sum(not chart.sound for chart in partition_charts),
        conservation=_draw(charts.conservation(drawn) if some else {}, "Rows committed, and the difference per sink."),
        aside=aside[-ASIDE:],
        bad=bad,
        broken=broken,
        setting=len(aside),
        time=time,
        through=_draw(
            time_charts.event_time_picture(time, COLUMNS) if time else {}, "Complete through, and latest row, by epoch."
        ),
        late=time.late[-ASIDE:] if time else (),
        windows=windows,
        panes=_draw(
            time_charts.windows_picture(windows, STEPS) if windows else {},
            "Open windows, and results by when, by epoch.",
        ),
        latency=_draw(latency, "Seconds of each phase, by epoch."),
        phases=phases,
        attempts=attempts[:ATTEMPTS],
        unlisted=max(0, len(attempts) - ATTEMPTS),
        journey=figures.journey_of(facts, result),
    )


def _offset_chart(chart: OffsetChart) -> Markup:
    state = "contiguous" if chart.sound else f"{len(chart.breaks)} breaks"
    return svg(charts.offset_chart(chart.thinned(STEPS)), f"Offsets of {chart.name} by epoch: {state}.")


def _draw(spec: charts.Spec, label: str) -> Markup:
    return svg(spec, label) if spec else Markup("")


def _advice(finding: Finding) -> Advice:
    return Advice(finding, commands_in(finding.remedy))


# ---- Writes the audit page: frozen facts in, one HTML file out that needs nothing else, no network and no server.

_SHELL = Shell("onceonly.audit.page", "audit")


@dataclass(frozen=True, slots=True)
class LabRun:
    """A run of the lab that produced the audited data, with the injected faults in order.

    Its verdict comes from the run's own judge, which compares rows and reads no markers.
    """

    name: str
    verdict: Verdict
    sentence: str
    moments: tuple[str, ...]


def render(audits: Sequence[tuple[Facts, AuditResult]], taken: Provenance, runs: Sequence[LabRun] = ()) -> str:
    """Return the page over one or several pipelines, with the lab runs behind them, if any."""
    grids = [grid_of(gathered, result) for gathered, result in audits]
    views = [view_of(gathered, result, grid) for (gathered, result), grid in zip(audits, grids, strict=True)]
    share = 1_500_000 // max(1, len(audits))
    pipelines = [figures.document_of(result, grid, share) for (_, result), grid in zip(audits, grids, strict=True)]
    verdict = worst(view.result.verdict for view in views)
    return _SHELL.render(
        taken,
        facts(figures.SCHEMA_VERSION, taken, str(verdict), pipelines=pipelines),
        views=views,
        runs=runs,
        verdict=verdict,
        keys=KEYS,
        phases=PHASES,
        said=time_charts.time_text,
        timings=time_charts.TIMINGS,
        quantiles=[name for name, _ in figures.QUANTILES],
    )


def write(
    path: Path, audits: Sequence[tuple[Facts, AuditResult]], provenance: Provenance, runs: Sequence[LabRun] = ()
) -> None:
    """Render into a file, atomically. ``OSError``: it cannot be written."""
    put(path, render(audits, provenance, runs))
