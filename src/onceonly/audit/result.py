"""What an audit answers: one frozen object with a text and a dict form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onceonly.audit.catalogue import Severity, Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding
from onceonly.audit.findings import examine, lines_of
from onceonly.audit.line import Line
from onceonly.audit.verdict import exit_code_of, first_disagreement, remark_of, scope_of, verdict_of, worst
from onceonly_checkpoints.epoch import Epoch, Receipt

SCHEMA_VERSION = 1
"""Version of the JSON form."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One epoch in one sink.

    Attributes:
        sink: sink id.
        marker: whether the sink holds the epoch's marker.
        counted: rows counted in the sink; ``None`` where it cannot tell.
        position: where the sink says the epoch lies.
    """

    sink: str
    marker: bool
    counted: int | None
    position: tuple[tuple[str, int | str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Field names to values, without the sink."""
        return {"marker": self.marker, "rows": self.counted, "position": dict(self.position)}


@dataclass(frozen=True, slots=True)
class EpochLine:
    """One epoch across the sinks.

    Attributes:
        pipeline: the user's stable name.
        epoch: what its marker, or a record that the chain proves, says.
        cells: one per sink that was read.
        codes: codes of the findings about it that need something done.
    """

    pipeline: str
    epoch: Epoch
    cells: tuple[Cell, ...]
    codes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Field names to values, nested."""
        lineage = self.epoch.lineage
        return {
            "pipeline": self.pipeline,
            "epoch": self.epoch.number,
            "rows": self.epoch.digest.rows,
            "slice": self.epoch.slice.to_json(),
            "chain": self.epoch.chain,
            "query_id": lineage.query_id if lineage else None,
            "batch_id": lineage.batch_id if lineage else None,
            "adoption": self.epoch.adoption and self.epoch.adoption.to_json(),
            "sinks": {cell.sink: cell.to_json() for cell in self.cells},
            "findings": list(self.codes),
        }


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The answer for one pipeline.

    Attributes:
        pipeline: the user's stable name.
        verdict: EXACTLY ONCE, DUPLICATES, GAPS, IN DOUBT or CANNOT TELL.
        scope: what the verdict covers, in words.
        sinks: ``(sink id, address)`` of the audited sinks.
        ledger: address of the ledger that was compared; ``None`` without one.
        epochs: every epoch that a marker or the chain proves, oldest first.
        findings: the most urgent first, see ``onceonly.audit.findings.urgency``.
        since: epochs before this one were not judged.
        remark: what others were allowed to do to the rows, and what operators accepted; empty for nothing.
    """

    pipeline: str
    verdict: Verdict
    scope: str
    sinks: tuple[tuple[str, str], ...]
    ledger: str | None
    epochs: tuple[EpochLine, ...]
    findings: tuple[Finding, ...]
    since: int = 1
    remark: str = ""

    @property
    def spoken(self) -> str:
        """The verdict as it is said: ``EXACTLY ONCE (89 rows deleted by others, allowed)``."""
        return f"{self.verdict} ({self.remark})" if self.remark else str(self.verdict)

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings, 2 could not answer."""
        return exit_code_of(self.findings)

    @property
    def text(self) -> str:
        """A few lines of plain text: verdict, scope, findings."""
        lines = [f"{self.spoken}  {self.pipeline}", self.scope]
        for finding in self.findings:
            lines += [
                f"[{finding.severity}] {finding.code} {finding.title} {finding.evidence}",
                f"    next: {finding.remedy}",
            ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """``{"schema_version", "verdict", "pipelines", "epochs", "findings"}``."""
        return to_json([self])

    def summary(self) -> dict[str, Any]:
        """The pipeline's entry under ``pipelines``."""
        first = first_disagreement(self.findings)
        return {
            "pipeline": self.pipeline,
            "verdict": str(self.verdict),
            "remark": self.remark,
            "scope": self.scope,
            "sinks": dict(self.sinks),
            "ledger": self.ledger,
            "since": self.since,
            "epochs": len(self.epochs),
            "rows": sum(line.epoch.digest.rows for line in self.epochs),
            "first_disagreement": None if first is None else first.to_json(),
        }


def judge(facts: Facts) -> AuditResult:
    """Judge gathered facts. Pure."""
    findings = examine(facts)
    lines = lines_of(facts)
    return AuditResult(
        pipeline=facts.pipeline,
        verdict=verdict_of(findings),
        scope=scope_of(lines, findings, facts.since),
        sinks=tuple((sink.id, sink.address) for sink in facts.sinks),
        ledger=facts.ledger.address if facts.ledger else None,
        epochs=_epoch_lines(facts, lines, findings),
        findings=findings,
        since=facts.since,
        remark=remark_of(lines, facts.since),
    )


def to_json(results: Sequence[AuditResult], newest: int = 0) -> dict[str, Any]:
    """One document over several pipelines; the worst verdict stands at the top.

    Args:
        results: one for each pipeline.
        newest: at most so many epochs of each, the newest; 0: all.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": str(worst(result.verdict for result in results)),
        "pipelines": [result.summary() for result in results],
        "epochs": [line.to_json() for result in results for line in result.epochs[-newest:]],
        "findings": [finding.to_json() for result in results for finding in result.findings],
    }


def _epoch_lines(facts: Facts, lines: Sequence[Line], findings: Sequence[Finding]) -> tuple[EpochLine, ...]:
    epochs = {epoch.number: epoch for line in reversed(lines) for epoch in line.epochs}
    codes = _codes(findings)
    tables = [(line, {epoch.number for epoch in line.held}, _receipts(line)) for line in lines]
    return tuple(
        EpochLine(
            facts.pipeline,
            epochs[number],
            tuple(_cell(line, number, held, receipts) for line, held, receipts in tables),
            codes.get(number, ()),
        )
        for number in sorted(epochs)
        if number >= facts.since
    )


def _codes(findings: Sequence[Finding]) -> dict[int, tuple[str, ...]]:
    found: dict[int, dict[str, None]] = {}
    for one in findings:
        if one.epoch is not None and one.severity is not Severity.INFO:
            found.setdefault(one.epoch, {})[one.code] = None
    return {number: tuple(codes) for number, codes in found.items()}


def _receipts(line: Line) -> dict[int, Receipt]:
    return {receipt.epoch: receipt for _, receipt in line.sink.history}


def _cell(line: Line, number: int, held: set[int], receipts: dict[int, Receipt]) -> Cell:
    rows = line.sink.rows
    position = receipts[number].position if number in receipts else ()
    return Cell(line.sink.id, number in held, None if rows is None else rows.get(number, 0), position)
