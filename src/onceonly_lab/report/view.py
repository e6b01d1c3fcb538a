"""What one run's part of the report says, ready for the template: every text and picture in its place. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from onceonly.page import svg
from onceonly_lab.anomalies import PAGES
from onceonly_lab.checker import Finding, Verdict
from onceonly_lab.checker.calls import FIRST_LINE
from onceonly_lab.history import RESTORE, Kind
from onceonly_lab.report import charts, words
from onceonly_lab.report.lanes import FAULTS, Glyph, Lanes, Outcome, lanes
from onceonly_lab.report.offsets import Partition, partitions
from onceonly_lab.report.run import Run
from onceonly_lab.report.witnesses import Witness, witnesses

STRIP = 140
"""Lines in one picture of the lanes: in more of them a call is thinner than its outline."""

STRIPS = 8
"""At most so many pictures of one run; those where something was broken or found come first."""

PARTITIONS = 6
FINDINGS = 60
QUOTED = 8
"""Lines that are quoted for one finding."""

KEYS = {Verdict.CLEAN: "exact", Verdict.ANOMALY: "gap", Verdict.INCONCLUSIVE: "doubt"}
"""Which colour and texture a verdict has."""


@dataclass(frozen=True, slots=True)
class Case:
    """One finding with its evidence.

    Attributes:
        finding: what the checker says.
        remedy: where to look first.
        witnesses: the rows that it names.
        quoted: the lines that it names, with their numbers.
        unquoted: how many more there are.
    """

    finding: Finding
    remedy: str
    witnesses: tuple[Witness, ...]
    quoted: tuple[tuple[int, str], ...]
    unquoted: int


@dataclass(frozen=True, slots=True)
class Strip:
    """A drawn stretch of the lanes."""

    first: int
    last: int
    picture: Markup


@dataclass(frozen=True, slots=True)
class Offsets:
    """A drawn partition."""

    partition: Partition
    picture: Markup


@dataclass(frozen=True, slots=True)
class View:
    """One run.

    Attributes:
        run: what was judged.
        cases: findings with their evidence, at most :data:`FINDINGS`.
        hidden: findings beyond these.
        faults: what was broken, with the line.
        outcomes: those that occur in the lanes.
        signs: those that occur in the lanes.
        strips: pictures of the lanes; none if pictures were not asked for.
        undrawn: stretches without a fault or finding that are not drawn.
        offsets: pictures of partitions, broken ones first.
        unshown: partitions beyond these.
    """

    run: Run
    cases: tuple[Case, ...]
    hidden: int
    faults: tuple[tuple[int, str], ...]
    outcomes: tuple[Outcome, ...]
    signs: tuple[Glyph, ...]
    strips: tuple[Strip, ...]
    undrawn: int
    offsets: tuple[Offsets, ...]
    unshown: int

    @property
    def key(self) -> str:
        """Colour and texture of the verdict."""
        return KEYS[self.run.judgement.verdict]


def view_of(run: Run, *, pictures: bool) -> View:
    """Draw and lay out one run."""
    laid = lanes(run.history, run.judgement)
    strips = laid.strips(STRIP) if pictures else ()
    drawn = sorted(sorted(strips, key=lambda one: not one.eventful)[:STRIPS], key=lambda one: one.first)
    found = partitions(run.reading) if pictures else ()
    findings = run.judgement.findings
    return View(
        run=run,
        cases=tuple(_case(run, finding) for finding in findings[:FINDINGS]),
        hidden=max(0, len(findings) - FINDINGS),
        faults=tuple(_faults(run)),
        outcomes=tuple(one for one in Outcome if any(bar.outcome is one for bar in laid.bars)),
        signs=tuple(one for one in Glyph if any(sign.glyph is one for sign in laid.signs)),
        strips=tuple(Strip(one.first, one.last, _swim(run, one)) for one in drawn),
        undrawn=len(strips) - len(drawn),
        offsets=tuple(Offsets(one, _offsets(one)) for one in found[:PARTITIONS]),
        unshown=max(0, len(found) - PARTITIONS),
    )


def _case(run: Run, finding: Finding) -> Case:
    entries = run.history.entries
    known = [line for line in finding.lines if 0 <= line - FIRST_LINE < len(entries)]
    quoted = tuple((line, words.line(entries[line - FIRST_LINE])) for line in known[:QUOTED])
    remedy = PAGES[finding.anomaly].remedy
    return Case(finding, remedy, witnesses(run.reading, finding), quoted, len(known) - len(quoted))


def _faults(run: Run) -> Iterator[tuple[int, str]]:
    for line, entry in enumerate(run.history.entries, FIRST_LINE):
        if entry.kind is Kind.FAULT:
            fault = f"{entry.sink} lost or set back" if entry.fault == RESTORE and entry.sink else entry.fault
            yield line, fault or FAULTS


def _swim(run: Run, strip: Lanes) -> Markup:
    return svg(charts.swim(strip), f"Lanes of {run.name}, lines {strip.first} to {strip.last}.")


def _offsets(partition: Partition) -> Markup:
    state = "each sink took everything once" if partition.sound else "something was left out or taken again"
    return svg(charts.offsets(partition), f"Offsets of {partition.name}: {state}.")
