"""Judge of the second act: expected figures beside those that a run showed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from onceonly.audit import Facts, Verdict
from onceonly.audit.finding import worst
from onceonly_lab.demo.input import WINDOWS
from onceonly_lab.demo.judge import SCHEMA_VERSION, exit_code
from onceonly_lab.demo.streaming102 import Case, Result
from onceonly_lab.necessity.crashes import Shown, Tally

# ---- Reads while drivers die: one statement over two tables of a query, and over their views of sealed epochs.

Newest = tuple[int, int]
"""Newest epoch of a table or view, and its rows."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A read, in seconds since the first driver started."""

    seconds: float
    tables: tuple[Newest, Newest]
    views: tuple[Newest, Newest]


@dataclass(slots=True)
class Reads:
    """All reads of a run. ``changes`` has those that differ from the one before."""

    done: int = 0
    mixed_tables: int = 0
    mixed_views: int = 0
    changes: list[Sample] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Count a read, later than all before."""
        self.done += 1
        self.mixed_tables += sample.tables[0] != sample.tables[1]
        self.mixed_views += sample.views[0] != sample.views[1]
        last = self.changes[-1] if self.changes else None
        if last is None or (last.tables, last.views) != (sample.tables, sample.views):
            self.changes.append(sample)


# ---- Claims: each compares what must be with what a run showed.


@dataclass(frozen=True, slots=True)
class Claim:
    """One part of the act.

    Attributes:
        name: of the part.
        expected: as JSON.
        shown: the same of this run.
        sentence: the figures that were shown.
        otherwise: the verdict where they differ.
    """

    name: str
    expected: Any
    shown: Any
    sentence: str
    otherwise: Verdict = Verdict.IN_DOUBT

    @property
    def holds(self) -> bool:
        """Whether the run showed what it must."""
        return bool(self.shown == self.expected)

    @property
    def verdict(self) -> Verdict:
        """Of this part."""
        return Verdict.EXACTLY_ONCE if self.holds else self.otherwise

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with the verdict."""
        return {"expected": self.expected, "shown": self.shown, "figures": self.sentence, "verdict": str(self.verdict)}


def of_designs(summary: Shown) -> Claim:
    """Each design shows the anomalies of the condition that it lacks, and no others."""
    runs = summary.crashed
    lacking = {tally.variant.name: tally.variant.drops for tally in runs if tally.variant.drops}
    broken = {tally.variant.name for tally in runs if tally.counts and tally.variant.name in lacking}
    names = {tally.variant.name for tally in runs}
    return Claim(
        "designs",
        {_named(tally): sorted(tally.expected) for tally in runs}
        | {interleaving.fencing: sorted(interleaving.expected) for interleaving in summary.interleaved},
        {_named(tally): sorted(tally.counts) for tally in runs}
        | {interleaving.fencing: sorted(interleaving.counts) for interleaving in summary.interleaved},
        f"{len(broken)} of {len(lacking)} designs lacking a condition break, of {len(names)} in {summary.runs:,} runs",
    )


def _named(tally: Tally) -> str:
    return f"{tally.variant.name}, {tally.function}"


def of_results(name: str, case: Case, rows: Sequence[Result]) -> Claim:
    """A table holds the results of a figure, each once, in order."""
    missing, foreign = Counter(case.results) - Counter(rows), Counter(rows) - Counter(case.results)
    timings = Counter(row.timing.lower().replace("_", " ") for row in rows if row.sign > 0)
    counted = ", ".join(f"{count} {timing}" for timing, count in timings.items())
    wrong = f"; {missing.total()} missing, {foreign.total()} doubled or altered" if missing or foreign else ""
    otherwise = Verdict.GAPS if missing else Verdict.DUPLICATES if foreign else Verdict.IN_DOUBT
    return Claim(name, [*map(list, case.results)], [*map(list, rows)], f"{counted}{wrong}", otherwise)


def of_sessions(case: Case, rows: Sequence[Result]) -> Claim:
    """Sessions that a late value joins: each total on the way, and the sum of all results and retractions."""
    totals, whole = _joined(rows), sum(row.total * row.sign for row in rows)
    values = sum(value for epoch in case.epochs for value, _ in epoch["rows"])
    figures = f"totals {', '.join(map(str, totals))}, sum {whole}"
    return Claim("sum", {"totals": _joined(case.results), "sum": values}, {"totals": totals, "sum": whole}, figures)


def _joined(rows: Sequence[Result]) -> list[int]:
    """Totals within the session of the late result, in order."""
    late = next((row for row in rows if (row.timing, row.sign) == ("LATE", 1)), None)
    within = [row for row in rows if late and row.sign > 0 and (row.start or 0) < (late.end or 0)]
    return [row.total for row in within if late and (late.start or 0) < (row.end or 0)]


@dataclass(frozen=True, slots=True)
class Wait:
    """An answer of ``onceonly time wait``: its exit code, and the writers that it waits for."""

    code: int
    waits_for: tuple[str, ...]
    complete_until: str

    @property
    def sentence(self) -> str:
        """The answer in words."""
        if self.code == 0:
            return f"complete, exit code 0, until {self.complete_until}"
        return f"waits for {', '.join(self.waits_for) or 'nobody'}, exit code {self.code}"


def of_writers(idle: str, until: str, waits: Sequence[Wait]) -> Claim:
    """The first wait names the idle writer, the second one ends with a complete hour."""
    figures = "; ".join(wait.sentence for wait in waits)
    shown = [[wait.code, list(wait.waits_for)] for wait in waits]
    # At last the idle writer has recorded what the other one has, and more.
    return Claim("writers", [1, [idle], 0], [*shown[0], *(code for code, _ in shown[1:])], f"until {until}: {figures}")


def of_reads(reads: Reads, kills: int) -> Claim:
    """No read of the views sees two epochs. Reads of the tables do, or nothing was tried."""
    figures = (
        f"{reads.done:,} reads during {kills} kills: {reads.mixed_views:,} mixed epochs through views,"
        f" {reads.mixed_tables:,} through tables"
    )
    shown = {"mixed_through_views": reads.mixed_views, "tables_were_mixed": reads.mixed_tables > 0}
    otherwise = Verdict.IN_DOUBT if reads.mixed_views else Verdict.CANNOT_TELL
    return Claim("reads", {"mixed_through_views": 0, "tables_were_mixed": True}, shown, figures, otherwise)


def of_audit(facts: Facts, verdict: Verdict) -> Claim:
    """The audit of a query: rows counted in each sink, and the chain of epochs."""
    exact = str(Verdict.EXACTLY_ONCE)
    sinks = len(facts.sinks)
    return Claim(
        f"audit of {facts.pipeline}", exact, str(verdict), f"{sinks} sink{'s' * (sinks > 1)}: {verdict}", verdict
    )


@dataclass(frozen=True, slots=True)
class WindowsReport:
    """What the second act found.

    Attributes:
        seed: of the order of the values, the kills and the idle writer.
        order: in which the values arrive, A or B.
        kills: in words.
        claims: in the order in which they are shown.
        seconds: wall time of each part, and in all.
        facts: what was audited.
        pictures: file name to SVG.
    """

    seed: int
    order: str
    kills: Sequence[str]
    claims: Sequence[Claim]
    seconds: dict[str, float]
    facts: Sequence[Facts] = field(default=(), repr=False)
    pictures: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def verdict(self) -> Verdict:
        """The worst of the claims."""
        return worst(claim.verdict for claim in self.claims)

    @property
    def exit_code(self) -> int:
        """As of the first act."""
        return exit_code(self.verdict)

    @property
    def moments(self) -> dict[str, Sequence[str]]:
        """As of the first act."""
        return {WINDOWS: self.kills}

    @property
    def outcomes(self) -> dict[str, tuple[Verdict, str]]:
        """As of the first act."""
        return {WINDOWS: (self.verdict, self.sentence)}

    @property
    def heads(self) -> tuple[str, ...]:
        """Of the table."""
        return ("part", "figures", "verdict")

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A row for each claim."""
        return [(claim.name, claim.sentence, str(claim.verdict)) for claim in self.claims]

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        wrong = ", ".join(claim.name for claim in self.claims if not claim.holds)
        different = f" NOT as expected: {wrong}." if wrong else ""
        parts = f"{sum(claim.holds for claim in self.claims)} of {len(self.claims)} parts as expected"
        return f"{self.verdict}: {parts}, after {len(self.kills)} SIGKILLs.{different}"

    def to_json(self) -> dict[str, Any]:
        """The document that ``--output json`` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "act": WINDOWS,
            "seed": self.seed,
            "order": self.order,
            "kills": len(self.kills),
            "moments": list(self.kills),
            "claims": {claim.name: claim.to_json() for claim in self.claims},
            "seconds": {part: round(seconds, 1) for part, seconds in self.seconds.items()},
            "verdict": str(self.verdict),
        }
