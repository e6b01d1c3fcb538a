"""Audit result: verdict and findings as text, table, JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly.audit import rules_division, rules_pipeline, rules_records, rules_time
from onceonly.audit.catalogue import Severity, Verdict
from onceonly.audit.facts import Facts, SinkFacts
from onceonly.audit.finding import Finding, exit_code_of, first_disagreement, remark_of, scope_of, verdict_of, worst
from onceonly.audit.rules_sink import SINK_RULES
from onceonly.audit.sink_history import Evidence, SinkHistory, line_of
from onceonly.machine.source_order import describe
from onceonly_checkpoints.epoch import Epoch, Receipt

# ---- Applies every rule to the facts: facts in, findings out, in the order in which an operator needs them. Pure.

PIPELINE_RULES: tuple[Callable[[Facts, tuple[SinkHistory, ...]], Iterator[Evidence]], ...] = (
    rules_pipeline.sinks_readable,
    rules_pipeline.anything_written,
    rules_pipeline.anything_since,
    rules_pipeline.ledger_there,
    rules_pipeline.records_sound,
    rules_pipeline.sinks_complete,
    rules_pipeline.sinks_agree,
    rules_pipeline.sinks_level,
    rules_pipeline.begun,
    rules_pipeline.batches_without_epochs,
    rules_division.outputs_add_up,
    rules_records.decisions_said,
    rules_records.sinks_that_left,
    rules_time.time_holds,
    rules_time.late_rows,
    rules_time.times_dealt_out,
    rules_division.panes_go_on,
    rules_records.read_again,
    rules_records.published_no_more,
    rules_records.code_changed,
    rules_records.columns_changed,
    rules_records.computed_again,
)

_SEVERITIES = tuple(Severity)
_VERDICTS: tuple[Verdict | None, ...] = (*Verdict, None)

_DEEDS = frozenset({"A118", "A126", "A132", "A134"})
"""Codes that say what was done to a sink: a zombie wrote, somebody changed it, it was set back, it is another one.
Other codes of the same verdict say what that left behind."""


def lines_of(facts: Facts) -> tuple[SinkHistory, ...]:
    """Lay out the lines of the readable sinks."""
    return tuple(line_of(sink, facts.ledger, facts.since) for sink in facts.sinks if sink.unreadable is None)


def examine(facts: Facts, lines: tuple[SinkHistory, ...]) -> tuple[Finding, ...]:
    """Return all findings, in the order of :func:`urgency`."""
    findings = [finding.advised(facts) for finding in _all(facts, lines) if finding.concerns(facts.since)]
    return tuple(sorted(findings, key=urgency))


def urgency(finding: Finding) -> tuple[int, int, bool, int, str]:
    """Sort key of a finding, smallest first.

    By severity, then by effect on the verdict, worst first: missing rows come before a change that may have cost some,
    whose remedy is to accept it. Then causes come before consequences. Then by epoch, with those that concern all
    epochs first. Sinks stay in the order of the call.
    """
    return (
        _SEVERITIES.index(finding.severity),
        _VERDICTS.index(finding.verdict),
        finding.code not in _DEEDS,
        finding.epoch or 0,
        finding.code,
    )


def foremost(findings: Sequence[Finding], limit: int) -> tuple[Finding, ...]:
    """Return findings in their order, with the first of each kind (a code in a sink), even beyond ``limit``."""
    first = {(finding.code, finding.sink): index for index, finding in reversed(list(enumerate(findings)))}
    leading = set(first.values())
    others = [index for index in range(len(findings)) if index not in leading]
    return tuple(findings[index] for index in sorted([*leading, *others[: max(0, limit - len(leading))]]))


def _all(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    seen: list[tuple[SinkFacts | None, Iterable[Evidence]]] = [(None, rule(facts, lines)) for rule in PIPELINE_RULES]
    for line in lines:
        seen += [(line.sink, rule(line)) for rule in SINK_RULES]
        seen += [(line.sink, rules_pipeline.compare(line, facts.ledger))] if facts.ledger else []
    for sink, evidence in seen:
        for code, epoch, text, last, named in evidence:
            about = named or sink
            yield Finding(code, facts.pipeline, about.id if about else None, epoch, text, last=last)


# ---- The answer: one frozen object with a text and a dict form.

SCHEMA_VERSION = 1
"""Version of the JSON form."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One epoch in one sink. ``counted`` is ``None`` if it cannot count by epoch. ``position`` is from the receipt."""

    sink: str
    marker: bool
    counted: int | None
    position: tuple[tuple[str, int | str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return field names with values, without the sink."""
        return {"marker": self.marker, "rows": self.counted, "position": dict(self.position)}


@dataclass(frozen=True, slots=True)
class EpochLine:
    """One epoch across the readable sinks, with the codes of its findings above ``info``."""

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
            "rows": self.epoch.rows,
            "slice": self.epoch.written.to_json(),
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
        epochs: every epoch that a marker or the chain proves, oldest first.
        findings: the most urgent first, see :func:`urgency`.
        since: epochs before this one were not judged.
        remark: permitted changes by others, losses that operators accepted, doubt about time. May be empty.
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
        """The verdict with its remark: ``EXACTLY ONCE (89 rows deleted by others, allowed)``."""
        return f"{self.verdict} ({self.remark})" if self.remark else str(self.verdict)

    @property
    def exit_code(self) -> int:
        """0 for counted and right, 1 findings, 2 could not answer, 3 rows were not counted."""
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
            "rows": sum(line.epoch.rows for line in self.epochs),
            "first_disagreement": None if first is None else first.to_json(),
        }


def judge(facts: Facts) -> AuditResult:
    """Judge gathered facts. Pure."""
    lines = lines_of(facts)
    findings = examine(facts, lines)
    # The verdict does not cover time.
    doubt = "time in doubt" if any(finding.code in rules_time.BROKEN for finding in findings) else ""
    return AuditResult(
        pipeline=facts.pipeline,
        verdict=verdict_of(findings),
        scope=scope_of(lines, findings, facts.since),
        sinks=tuple((sink.id, sink.address) for sink in facts.sinks),
        ledger=facts.ledger.address if facts.ledger else None,
        epochs=_epoch_lines(facts, lines, findings),
        findings=findings,
        since=facts.since,
        remark="; ".join(filter(None, (remark_of(lines, facts.since), doubt))),
    )


def to_json(results: Sequence[AuditResult], newest: int = 0) -> dict[str, Any]:
    """Return one document over several pipelines, worst verdict at the top, with the newest epochs only (0: all)."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": str(worst(result.verdict for result in results)),
        "pipelines": [result.summary() for result in results],
        "epochs": [line.to_json() for result in results for line in result.epochs[-newest:]],
        "findings": [finding.to_json() for result in results for finding in result.findings],
    }


def _epoch_lines(facts: Facts, lines: Sequence[SinkHistory], findings: Sequence[Finding]) -> tuple[EpochLine, ...]:
    epochs = {epoch.number: epoch for line in reversed(lines) for epoch in line.epochs}
    codes = _codes(findings)
    tables = [
        (line, {epoch.number for epoch in line.held}, {receipt.epoch: receipt for _, receipt in line.sink.history})
        for line in lines
    ]
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
    epoch_codes: dict[int, dict[str, None]] = {}
    for finding in findings:
        if finding.epoch is not None and finding.severity is not Severity.INFO:
            epoch_codes.setdefault(finding.epoch, {})[finding.code] = None
    return {number: tuple(codes) for number, codes in epoch_codes.items()}


def _cell(line: SinkHistory, number: int, held: set[int], receipts: dict[int, Receipt]) -> Cell:
    rows = line.sink.rows
    position = receipts[number].position if number in receipts else ()
    return Cell(line.sink.id, number in held, None if rows is None else rows.get(number, 0), position)


# ---- Plain rows for a table of epochs; how they are drawn is the caller's business. Pure.


@dataclass(frozen=True, slots=True)
class Table:
    """Column titles and rows of text, all of one length."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def epoch_table(result: AuditResult, newest: int | None = None) -> Table:
    """Return one row per epoch, by default of all: number, rows, end of the slice, then one column per sink."""
    sinks = [sink for sink, _ in result.sinks]
    shown = result.epochs if newest is None else result.epochs[-newest:] if newest else ()
    return Table(("epoch", "rows", "up to", *sinks, "findings"), tuple(_row(line, sinks) for line in shown))


def _row(line: EpochLine, sinks: Sequence[str]) -> tuple[str, ...]:
    epoch = line.epoch
    cells = {cell.sink: _cell_words(cell.marker, cell.counted) for cell in line.cells}
    named = (cells.get(sink, "not read") for sink in sinks)
    rows = "adopted" if epoch.adoption is not None else str(epoch.rows)
    return (str(epoch.number), rows, describe(epoch.written.end), *named, " ".join(line.codes))


def _cell_words(marker: bool, counted: int | None) -> str:
    rows = "cannot tell" if counted is None else f"{counted} row{'s' if counted != 1 else ''}"
    return rows if marker else f"no marker, {rows}"
