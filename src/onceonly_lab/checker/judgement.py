"""Judge a history with every rule of the checker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from onceonly_lab.checker import rules_panes, rules_rows, rules_run, rules_shares, rules_time
from onceonly_lab.checker.case import Case, lay_out
from onceonly_lab.checker.finding import Anomaly, Finding, reached
from onceonly_lab.checker.reading import Reading, interpret
from onceonly_lab.checker.series import told_apart
from onceonly_lab.checker.shares import shared_out
from onceonly_lab.history import History, Kind, Situation
from onceonly_lab.strenum import StrEnum

SCHEMA_VERSION = 1
"""Version of the JSON form."""

RULES: tuple[Callable[[Reading], Iterator[Finding]], ...] = (
    rules_rows.lost,
    rules_rows.doubled,
    rules_rows.phantom,
    rules_rows.torn,
    rules_run.crossed,
    rules_rows.out_of_order,
    rules_run.apart,
    rules_run.early,
    rules_run.regressed,
    rules_run.misrecorded,
    rules_run.zombie,
    rules_run.stuck,
    rules_run.recomputed,
    rules_shares.unbalanced,
    rules_shares.not_aside,
    rules_shares.again,
    rules_time.untimely,
    rules_panes.misfilled,
    rules_run.denied,
)
"""One rule for each anomaly, in the order of :class:`Anomaly`; the last one asks the user's own queries."""


class Verdict(StrEnum):
    """What a run showed."""

    ANOMALY = "ANOMALY"
    INCONCLUSIVE = "INCONCLUSIVE"
    CLEAN = "CLEAN"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer about one history.

    Attributes:
        run: what was run.
        findings: in the order of the anomalies, then by sink and epoch.
        reached: the situations that the run went through.
        missing: why the run proves less than it was meant to, in words.
        epochs: epochs that landed somewhere; 0 where the history has reads only.
        rows: rows of the input.
        reads: how often sinks and ledger were read.
    """

    run: str
    findings: tuple[Finding, ...]
    reached: frozenset[Situation]
    missing: tuple[str, ...]
    epochs: int
    rows: int
    reads: int

    @property
    def verdict(self) -> Verdict:
        """An anomaly outweighs what is missing."""
        if self.findings:
            return Verdict.ANOMALY
        return Verdict.INCONCLUSIVE if self.missing else Verdict.CLEAN

    @property
    def anomalies(self) -> frozenset[Anomaly]:
        """The anomalies that were found."""
        return frozenset(finding.anomaly for finding in self.findings)

    @property
    def sentence(self) -> str:
        """The verdict with its counts, in one line."""
        names = sorted({str(finding.anomaly) for finding in self.findings})
        suffix = f": {', '.join(names)}" if names else ""
        # A job of the user's is seen from outside: its rows are read, but nobody tells of its commits.
        epochs = f"{self.epochs} epochs, " if self.epochs else ""
        return f"{self.verdict}{suffix} ({epochs}{self.rows} rows in, {self.reads} reads)"

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with verdict and version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "verdict": str(self.verdict),
            "run": self.run,
            "epochs": self.epochs,
            "rows": self.rows,
            "reads": self.reads,
            "reached": sorted(self.reached),
            "missing": list(self.missing),
            "findings": [finding.to_json() for finding in self.findings],
        }


def judge(history: History, golden: History | None = None) -> Judgement:
    """Judge a history.

    Args:
        history: the run.
        golden: the same run without faults: its final reads say what every sink must hold.

    Raises:
        UnreadableHistory: an assertion names an anomaly that does not exist.
    """
    reading = interpret(told_apart(shared_out(lay_out(history, golden))))
    went_through = reached(reading)
    return Judgement(
        run=history.header.run,
        findings=_examined(reading),
        reached=went_through,
        missing=tuple(_missing(reading, went_through)),
        epochs=len({epoch for _, epoch in reading.landed}),
        rows=len(reading.case.ranks),
        reads=sum(len(reads) for reads in reading.case.reads.values()),
    )


def _examined(reading: Reading) -> tuple[Finding, ...]:
    """One finding of each anomaly per sink and epoch: the first that shows it."""
    first: dict[tuple[Anomaly, str, int], Finding] = {}
    for rule in RULES:
        for finding in rule(reading):
            first.setdefault((finding.anomaly, finding.sink or "", finding.epoch or 0), finding)
    order = list(Anomaly)
    return tuple(first[key] for key in sorted(first, key=lambda subject: (order.index(subject[0]), *subject[1:])))


def _missing(reading: Reading, went_through: frozenset[Situation]) -> Iterator[str]:
    case = reading.case
    yield from (f"never reached: {situation}" for situation in case.header.requires if situation not in went_through)
    if case.settle is None:
        yield "the history ends before the pipeline was left in peace"
    if not case.header.sinks:
        yield "no sink is judged"
    for sink in case.sinks:
        yield from _blind(case, sink)
    for call in case.assertions:
        if call.outcome is Kind.INFO:
            yield f"could not be asked: {call.said.note}"


def _blind(case: Case, sink: str) -> Iterator[str]:
    read = case.final(sink)
    if read is None or read.rows is None:
        yield f"{sink} was not read at the end"
    elif not case.ranks and sink not in case.golden and sink not in case.committing:
        yield f"nothing says what {sink} ought to hold"
