"""The demo's report: counts per sink, one verdict, one exit code. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceonly.audit import Facts, Verdict
from onceonly_lab.demo.judge import Finding

SCHEMA_VERSION = 1
"""Version of the JSON form."""

EXACT, WRONG, UNANSWERED = 0, 1, 2
"""Exit codes."""

_WORST_FIRST = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class SinkResult:
    """One sink after one run.

    Attributes:
        finding: every row compared with the input.
        epochs: wrapped: epochs that the sink holds, by its own markers; plain: different batches that Spark offered.
        replayed: batches that Spark offered again after a restart.
        skipped: of these, batches proven to be written already, by the ledger's events; a plain job proves none.
        audit: the audit's verdict; ``None`` for the plain job, which has nothing to audit.
        facts: what the audit judged, for its page; not part of the document.
    """

    finding: Finding
    epochs: int
    replayed: int
    skipped: int
    audit: Verdict | None = None
    facts: Facts | None = field(default=None, repr=False)

    @property
    def verdict(self) -> Verdict:
        """What the rows say; where they are right, what the audit says."""
        if self.finding.missing:
            return Verdict.GAPS
        if not self.finding.exact:
            return Verdict.DUPLICATES
        return self.audit or Verdict.EXACTLY_ONCE

    def to_json(self) -> dict[str, Any]:
        """Field names to values, flat."""
        return {
            "rows": self.finding.rows,
            "missing": self.finding.missing,
            "doubled": self.finding.doubled,
            "foreign": self.finding.foreign,
            "epochs": self.epochs,
            "replayed": self.replayed,
            "skipped": self.skipped,
            "audit": None if self.audit is None else str(self.audit),
        }


@dataclass(frozen=True, slots=True)
class RunResult:
    """One variant of the job.

    Attributes:
        sinks: by kind.
        kills: in words, the kills that ended a driver.
        restarts: drivers started after a kill.
        seconds: wall time of the run.
    """

    sinks: Mapping[str, SinkResult]
    kills: Sequence[str]
    restarts: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """By kind of sink."""
        return {kind: sink.to_json() for kind, sink in self.sinks.items()}


@dataclass(frozen=True, slots=True)
class SeveralResult:
    """One query into several sinks.

    Attributes:
        run: its sinks, each with the audit's verdict on the whole pipeline.
        differing: numbers of the epochs that the sinks do not hold alike: same chain, same counted rows.
    """

    run: RunResult
    differing: tuple[int, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its sinks; where they are right one by one, whether they agree about every epoch."""
        worst = _worst(self.run)
        return Verdict.IN_DOUBT if self.differing and worst is Verdict.EXACTLY_ONCE else worst

    @property
    def sentence(self) -> str:
        """The counts of each sink, and whether they are alike."""
        epochs = max(sink.epochs for sink in self.run.sinks.values())
        unlike = f"epochs {', '.join(map(str, self.differing))} are not alike in all"
        alike = unlike if self.differing else f"{epochs} epochs, alike in all"
        return f"one query into {len(self.run.sinks)} sinks, {_after(self.run)}; {alike}"

    def to_json(self) -> dict[str, Any]:
        """``{"sinks", "epochs_differing", "kills", "restarts", "verdict"}``; ``sinks`` by kind, as of other runs."""
        return {
            "sinks": self.run.to_json(),
            "epochs_differing": list(self.differing),
            "kills": len(self.run.kills),
            "restarts": self.run.restarts,
            "verdict": str(self.verdict),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What the demo found. What was left out is ``None``.

    Attributes:
        seed: of the kills.
        rows_in: rows of the input.
        onceonly: the wrapped job, with a query for each sink.
        plain: the job as users have it today, under the same kills.
        seconds: wall time of the demo.
        several: one wrapped query into several sinks.
    """

    seed: int
    rows_in: int
    onceonly: RunResult | None
    plain: RunResult | None
    seconds: float
    several: SeveralResult | None = None

    @property
    def runs(self) -> dict[str, RunResult]:
        """What was run, by name, in order."""
        several = self.several.run if self.several else None
        found = {"plain": self.plain, "onceonly": self.onceonly, "several": several}
        return {name: run for name, run in found.items() if run}

    @property
    def facts(self) -> tuple[Facts, ...]:
        """What was audited, one entry per pipeline."""
        sinks = (sink for run in self.runs.values() for sink in run.sinks.values())
        return tuple({sink.facts.pipeline: sink.facts for sink in sinks if sink.facts}.values())

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of what is wrapped."""
        found = [_worst(self.onceonly)] if self.onceonly else []
        found += [self.several.verdict] if self.several else []
        return min(found, key=_WORST_FIRST.index)

    @property
    def exit_code(self) -> int:
        """0 every row once, 1 rows or epochs are wrong, 2 it cannot be told."""
        return {Verdict.EXACTLY_ONCE: EXACT, Verdict.CANNOT_TELL: UNANSWERED}.get(self.verdict, WRONG)

    @property
    def sentence(self) -> str:
        """The verdict with its counts, in one line."""
        said = [_after(self.onceonly)] if self.onceonly else []
        said += [self.several.sentence] if self.several else []
        contrast = f" {_contrast(self.plain)}" if self.plain else ""
        return f"{self.verdict}: {self.rows_in:,} flights in; {'; '.join(said)}.{contrast}"

    def to_json(self) -> dict[str, Any]:
        """The document that ``--output json`` prints."""
        forms = {name: run.to_json() for name, run in self.runs.items()}
        if self.several:
            forms["several"] = self.several.to_json()
        counted = self.onceonly or self.runs["several"]
        return {
            "schema_version": SCHEMA_VERSION,
            "seed": self.seed,
            "rows_in": self.rows_in,
            "kills": len(counted.kills),
            "restarts": counted.restarts,
            **forms,
            "moments": {name: list(run.kills) for name, run in self.runs.items()},
            "seconds": {
                **{name: round(run.seconds, 1) for name, run in self.runs.items()},
                "total": round(self.seconds, 1),
            },
            "verdict": str(self.verdict),
        }


def told(run: RunResult) -> tuple[Verdict, str]:
    """Verdict and counts of one run, in one line."""
    return _worst(run), _after(run)


def unanswered(seed: int, reason: str) -> dict[str, Any]:
    """The document of a demo that could not answer."""
    return {"schema_version": SCHEMA_VERSION, "seed": seed, "verdict": str(Verdict.CANNOT_TELL), "reason": reason}


def _worst(run: RunResult) -> Verdict:
    return min((sink.verdict for sink in run.sinks.values()), key=_WORST_FIRST.index)


def _after(run: RunResult) -> str:
    kills = f"{len(run.kills)} SIGKILL{'s' if len(run.kills) != 1 else ''}"
    return f"after {kills}: " + ", ".join(f"{kind} {_counts(sink.finding)}" for kind, sink in run.sinks.items())


def _counts(finding: Finding) -> str:
    foreign = f", {finding.foreign:,} altered" if finding.foreign else ""
    return f"{finding.rows:,} rows, {finding.missing:,} missing, {finding.doubled:,} doubled{foreign}"


def _contrast(plain: RunResult) -> str:
    missing = sum(sink.finding.missing for sink in plain.sinks.values())
    doubled = sum(sink.finding.doubled for sink in plain.sinks.values())
    return f"Plain foreachBatch, same kills: {missing:,} missing, {doubled:,} doubled."
