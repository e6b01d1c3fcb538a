"""What one pipeline's part of the page says, ready for the template: every text and picture in its place. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from markupsafe import Markup

from onceonly.audit.catalogue import Severity, Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding
from onceonly.audit.findings import foremost
from onceonly.audit.page import charts
from onceonly.audit.page.embed import FINDINGS
from onceonly.audit.page.figures import TOTAL, Attempt, Journey, Phase, attempts_of, journey_of, phases_of
from onceonly.audit.page.outcome import Column, Grid, Outcome
from onceonly.audit.page.stairs import Stair, stairs
from onceonly.audit.page.words import commands_in
from onceonly.audit.result import AuditResult
from onceonly.audit.verdict import first_disagreement
from onceonly.page import svg

COLUMNS = 600
"""At most so many columns in a picture as wide as the page: more are thinner than a pixel and a half."""

STEPS = 300
"""The same for a staircase, which is half as wide, and for stacked phases, which are many marks."""

STAIRS = 8
ATTEMPTS = 100

KEYS = {
    Verdict.EXACTLY_ONCE: "exact",
    Verdict.DUPLICATES: "doubled",
    Verdict.GAPS: "gap",
    Verdict.IN_DOUBT: "doubt",
    Verdict.CANNOT_TELL: "unknown",
}
"""Which outcome's colour and texture a verdict has."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding with the commands in its remedy."""

    finding: Finding
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """One drawn staircase."""

    stair: Stair
    picture: Markup


@dataclass(frozen=True, slots=True)
class View:
    """One pipeline.

    Attributes:
        facts: what was gathered.
        result: what was judged.
        grid: every epoch.
        first: the first disagreement; ``None`` if there is none.
        advice: findings, the most urgent first; ``FINDINGS`` of them.
        hidden: findings beyond these.
        legend: the outcomes that occur.
        ribbon: picture over time; empty where nothing says when epochs were.
        matrix: picture, sink by epoch.
        width: epochs in a column of the pictures.
        stairs: drawn staircases, broken ones first.
        flat: staircases that are not drawn.
        torn: how many staircases have a hole or an overlap.
        conservation: picture of the rows; empty where there is no epoch.
        latency: picture of the phases; empty where the ledger has none.
        phases: their quantiles.
        attempts: newest first; at most ``ATTEMPTS``.
        unlisted: attempts beyond these.
        journey: counts for the state diagram.
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
    stairs: tuple[Steps, ...]
    flat: int
    torn: int
    conservation: Markup
    latency: Markup
    phases: tuple[Phase, ...]
    attempts: tuple[Attempt, ...]
    unlisted: int
    journey: Journey

    @property
    def key(self) -> str:
        """Colour and texture of the verdict."""
        return KEYS[self.result.verdict]

    @property
    def serious(self) -> int:
        """Findings that need something done."""
        return sum(one.severity is not Severity.INFO for one in self.result.findings)

    @property
    def rows(self) -> int:
        """Rows that were committed."""
        return sum(line.epoch.digest.rows for line in self.result.epochs)

    @property
    def untimed(self) -> int:
        """Epochs without phase times."""
        return len(self.result.epochs) - max((phase.epochs for phase in self.phases), default=0)

    @property
    def pace(self) -> int:
        """Epochs in a column of the phases' picture."""
        return self.grid.pooled(STEPS).width

    @property
    def again(self) -> str:
        """The command that takes this audit anew."""
        ledger = self.facts.ledger.address if self.facts.ledger and self.facts.ledger.unreadable is None else None
        sinks = () if ledger else tuple(part for sink in self.facts.sinks for part in ("--sink", sink.address))
        where = ("--ledger", ledger) if ledger else sinks
        return shlex.join(("onceonly", "audit", "--query", self.facts.pipeline, *where, "--html", "report.html"))

    @property
    def notable(self) -> tuple[Column, ...]:
        """Epochs for the table: those with findings, and the newest; at most 60, oldest first."""
        marked = [column for column in self.grid.columns if column.codes][:40]
        newest = self.grid.columns[-20:]
        return tuple(sorted({*marked, *newest}, key=lambda column: column.first))


def view_of(facts: Facts, result: AuditResult, grid: Grid) -> View:
    """Draw and lay out one pipeline."""
    events = facts.ledger.events if facts.ledger else ()
    records = facts.ledger.records if facts.ledger else ()
    drawn = grid.pooled(COLUMNS)
    found = stairs([line.epoch for line in result.epochs])
    phases, attempts = phases_of(facts), attempts_of(facts)
    first = first_disagreement(result.findings)
    names = [phase.name for phase in phases if phase.name != TOTAL]
    some, shown = bool(drawn.columns), foremost(result.findings, FINDINGS)
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
        stairs=tuple(Steps(one, _stair(one)) for one in found[:STAIRS]),
        flat=max(0, len(found) - STAIRS),
        torn=sum(not stair.sound for stair in found),
        conservation=_draw(charts.conservation(drawn) if some else {}, "Rows committed, and the difference per sink."),
        latency=_draw(latency, "Seconds of each phase, by epoch."),
        phases=phases,
        attempts=attempts[:ATTEMPTS],
        unlisted=max(0, len(attempts) - ATTEMPTS),
        journey=journey_of(facts, result),
    )


def _stair(stair: Stair) -> Markup:
    state = "contiguous" if stair.sound else f"{len(stair.breaks)} breaks"
    return svg(charts.staircase(stair.thinned(STEPS)), f"Offsets of {stair.name} by epoch: {state}.")


def _draw(spec: charts.Spec, label: str) -> Markup:
    return svg(spec, label) if spec else Markup("")


def _advice(finding: Finding) -> Advice:
    return Advice(finding, commands_in(finding.remedy))
