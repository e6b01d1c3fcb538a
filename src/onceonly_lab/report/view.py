"""Prepare a recorded run for the report's template.

Also renders the page as one file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from onceonly.page import Provenance, Shell, facts, put, svg
from onceonly_lab.anomalies import PAGES
from onceonly_lab.checker import Finding, Judgement, Verdict, judge
from onceonly_lab.checker.case import FIRST_LINE, lay_out
from onceonly_lab.checker.reading import Reading, interpret
from onceonly_lab.checker.series import told_apart
from onceonly_lab.history import RESTORE, History, Kind
from onceonly_lab.report import charts, lanes
from onceonly_lab.report.charts import FAULT, PAINTS, SHAPES, STRETCHES, TONES, Partition, partitions
from onceonly_lab.report.lanes import FAULTS, Glyph, Lanes, Outcome, coverage, taken
from onceonly_lab.report.lanes import lanes as lanes_of
from onceonly_lab.schedule import NOT_SENT

# ---- One recorded run with its judgement, and what is said of all runs together. Pure.


@dataclass(frozen=True, slots=True)
class Run:
    """A history that was judged.

    Attributes:
        place: where it was read from, as the user named it.
        history: the run.
        reading: what is taken to have happened.
        judgement: the verdict about it.
    """

    place: str
    history: History
    reading: Reading
    judgement: Judgement

    @property
    def name(self) -> str:
        """What was run, else where its history lies."""
        return self.history.header.run or self.place

    @property
    def replay(self) -> str:
        """The command that runs it again; empty where the history names none.

        A history may come from anybody, so it names arguments of ``onceonly lab`` and never a command.
        """
        arguments = self.history.header.again
        return shlex.join(("onceonly", "lab", *arguments)) if arguments else ""

    @property
    def recheck(self) -> str:
        """The command that judges the history again."""
        return shlex.join(("onceonly", "lab", "recheck", self.place))


_ORDER = (Verdict.ANOMALY, Verdict.INCONCLUSIVE, Verdict.CLEAN)


def run_of(history_path: str, history: History, golden: History | None = None) -> Run:
    """Judge a history.

    Args:
        history_path: where it was read from.
        history: the run.
        golden: the same run without faults: its final reads say what every sink must hold.

    Raises:
        UnreadableHistory: an assertion names an anomaly that does not exist.
    """
    return Run(history_path, history, interpret(told_apart(lay_out(history, golden))), judge(history, golden))


def worst(runs: Sequence[Run]) -> Verdict:
    """The verdict about all: an anomaly outweighs what is missing, and that outweighs what is clean."""
    return next(verdict for verdict in _ORDER if any(run.judgement.verdict is verdict for run in runs))


def by_verdict(runs: Sequence[Run]) -> list[Run]:
    """The same runs, worst first, else in the order in which they were named."""
    return sorted(runs, key=lambda run: _ORDER.index(run.judgement.verdict))


# ---- The rows that a finding names: where they come from, what brought them, and how often each sink shows them.
# Pure.


@dataclass(frozen=True, slots=True)
class Witness:
    """One row.

    Attributes:
        identity: unique in the input.
        key: its key; empty without one.
        origin: the slice of the input that holds it; empty if the input does not have it.
        brought: the commits that landed with it, in words, at most :data:`MOST`.
        seen: how often the last read of each sink shows it, in the order of the sinks; ``None``: never read.
    """

    identity: str
    key: str
    origin: str
    brought: tuple[str, ...]
    seen: tuple[int | None, ...]


MOST = 8
"""Commits that are told of one row."""


def witnesses(reading: Reading, finding: Finding) -> tuple[Witness, ...]:
    """The rows that a finding names, as many as the checker gives."""
    return tuple(_witness(reading, identity) for identity in finding.witnesses)


def _witness(reading: Reading, identity: str) -> Witness:
    case = reading.case
    homes = (entry for entry in case.inputs if any(row.identity == identity for row in entry.rows or ()))
    home = next(homes, None)
    return Witness(
        identity,
        case.keys.get(identity) or "",
        taken(home.slice or ()) if home else "",
        tuple(_brought(reading, identity))[:MOST],
        tuple(_count(reading, sink, identity) for sink in case.sinks),
    )


def _brought(reading: Reading, identity: str) -> Iterator[str]:
    for (sink, epoch), commits in reading.landed.items():
        for commit in commits:
            if commit.rows and identity in commit.rows:
                actor, incarnation = commit.call.who
                yield f"epoch {epoch} in {sink}, by {actor} {incarnation}, line {commit.at}"


def _count(reading: Reading, sink: str, identity: str) -> int | None:
    reads = [read for read in reading.case.seen(sink) if read.rows is not None]
    return reads[-1].counts[identity] if reads else None


# ---- What one run's part of the report says, ready for the template: every text and picture in its place. Pure.

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
    laid = lanes_of(run.history, run.judgement)
    strips = laid.strips(STRIP) if pictures else ()
    drawn = sorted(sorted(strips, key=lambda strip: not strip.eventful)[:STRIPS], key=lambda strip: strip.first)
    all_partitions = partitions(run.reading) if pictures else ()
    findings = run.judgement.findings
    return View(
        run=run,
        cases=tuple(_case(run, finding) for finding in findings[:FINDINGS]),
        hidden=max(0, len(findings) - FINDINGS),
        faults=tuple(_faults(run)),
        outcomes=tuple(outcome for outcome in Outcome if any(bar.outcome is outcome for bar in laid.bars)),
        signs=tuple(glyph for glyph in Glyph if any(sign.glyph is glyph for sign in laid.signs)),
        strips=tuple(Strip(strip.first, strip.last, _swim(run, strip)) for strip in drawn),
        undrawn=len(strips) - len(drawn),
        offsets=tuple(Offsets(partition, _offsets(partition)) for partition in all_partitions[:PARTITIONS]),
        unshown=max(0, len(all_partitions) - PARTITIONS),
    )


def _case(run: Run, finding: Finding) -> Case:
    entries = run.history.entries
    valid_lines = [line for line in finding.lines if 0 <= line - FIRST_LINE < len(entries)]
    quoted = tuple((line, lanes.line_words(entries[line - FIRST_LINE])) for line in valid_lines[:QUOTED])
    remedy = PAGES[finding.anomaly].remedy
    return Case(finding, remedy, witnesses(run.reading, finding), quoted, len(valid_lines) - len(quoted))


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


# ---- Writes the lab's report: judged histories in, one HTML file out that needs nothing else.

SCHEMA_VERSION = 1
"""Version of the embedded form."""

PICTURED = 40
"""At most so many runs are drawn, the worst first; of all others verdict and faults are told."""

_SHELL = Shell("onceonly_lab.report", "report")


_LEGEND = {"paints": PAINTS, "shapes": SHAPES, "tones": TONES, "fault": FAULT, "stretches": STRETCHES}


def render(runs: Sequence[Run], taken: Provenance) -> str:
    """The page over one or several runs.

    Args:
        runs: at least one.
        taken: when.
    """
    ordered = by_verdict(runs)
    views = [view_of(run, pictures=index < PICTURED) for index, run in enumerate(ordered)]
    judged = [{"history": run.place, **run.judgement.to_json()} for run in ordered]
    covered = coverage(run.history for run in runs)
    return _SHELL.render(
        taken,
        facts(SCHEMA_VERSION, taken, str(worst(runs)), runs=judged),
        views=views,
        verdict=worst(runs),
        keys=KEYS,
        covered=covered,
        actions=covered.actions,
        not_sent=NOT_SENT,
        legend=_LEGEND,
        pictured=PICTURED,
    )


def write(path: Path, runs: Sequence[Run], provenance: Provenance) -> None:
    """Render into a file, which is there completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    put(path, render(runs, provenance))
