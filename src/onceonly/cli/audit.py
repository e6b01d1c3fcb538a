"""``onceonly audit``: the verdict over one pipeline or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceonly.audit import AuditResult, Facts, Finding, Severity, Verdict, gather, judge
from onceonly.audit.catalogue import CLEAN, FINDINGS, UNANSWERED, UNCOUNTED
from onceonly.audit.certificate import Certificate
from onceonly.audit.finding import exit_code_of
from onceonly.audit.result import epoch_table, foremost, to_json
from onceonly.cli.connect import Connection, open_ledger, place, reads_topics
from onceonly.cli.errors import give_up
from onceonly.cli.lateness import span
from onceonly.cli.options import LedgerOption, OnlyArgument, OutputOption, QueryOption, SinkOption, one_name
from onceonly.cli.output import Output, emit_json, emit_table, plural, say, talk
from onceonly.cli.spark_session import spark_session
from onceonly.cli.user_code import BeforeOption, PanesOption, StateOption, WithOption, function, panes_of
from onceonly.errors import refuse
from onceonly.machine.in_doubt import GRACE_S
from onceonly.protocol.registry import is_ours
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from onceonly.protocol import SparkSession

_STYLES = {
    Verdict.EXACTLY_ONCE: "bold green",
    Verdict.CANNOT_TELL: "bold yellow",
    Verdict.IN_DOUBT: "bold yellow",
    Verdict.NOT_COUNTED: "bold blue",
}
_SEVERITIES = {Severity.ERROR: "red", Severity.WARN: "yellow", Severity.INFO: "cyan"}

_SHOWN = 30
"""About so many findings of a pipeline are printed, the first of every kind among them."""

_EPOCHS = 10
"""Epochs in a table; a program gets all, unless it says how many."""

LimitOption = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, help="Show this many of the newest epochs. Default: 10, in JSON all."),
]
FailOnOption = Annotated[
    Severity, typer.Option("--fail-on", help="Exit with 1 for findings of this severity or above.")
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write the audit page: one file that needs no network."),
]

SinceOption = Annotated[
    int, typer.Option("--since", min=1, metavar="EPOCH", help="Judge from this epoch on; what came before is left out.")
]
DeepOption = Annotated[
    bool,
    typer.Option("--deep", help="Read the rows too, through Spark, and hash them as they were hashed when written."),
]


UncountedOption = Annotated[
    bool,
    typer.Option("--uncounted-ok", help="Exit with 0 in place of 3 where nothing is wrong and rows were not counted."),
]
GraceOption = Annotated[
    float,
    typer.Option(
        "--grace", min=0, metavar="SECONDS", help="Age up to which an unfinished epoch counts as being written."
    ),
]
RecomputeOption = Annotated[
    str | None,
    typer.Option(
        "--recompute", metavar="A..B", help="Compute these epochs again from their source, through Spark and --with."
    ),
]


def command(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: LimitOption = None,
    fail_on: FailOnOption = Severity.WARN,
    uncounted_ok: UncountedOption = False,
    html: HtmlOption = None,
    since: SinceOption = 1,
    deep: DeepOption = False,
    grace: GraceOption = GRACE_S,
    recompute: RecomputeOption = None,
    with_: WithOption = None,
    before: BeforeOption = None,
    panes: PanesOption = None,
    state: StateOption = StateFrom.COPIED,
) -> None:
    """Count the rows of each epoch in its sinks, and check chain, slices and receipts.

    Without a name all pipelines of the ledger are audited. Needs no Spark without --deep or --recompute; writes
    nothing. Exit code: 0 every row was counted and is right, 1 findings, 2 could not answer, 3 nothing is wrong and
    rows of a sink were not counted.
    """
    query = one_name(context, name, query)
    names = [query] if query or sink else _all(ledger)
    again = _Again.of(recompute, with_, before, panes, state)
    what, topics = ("audit --recompute", reads_topics(ledger, query, sink)) if again else ("audit --deep", False)
    with spark_session(deep or again is not None, what, kafka=topics) as spark:
        reads = spark if deep else None
        audits = [
            _one(ledger, name, sink, since=since, spark=reads, grace=grace, by=again, session=spark) for name in names
        ]
    results = [result for _, result in audits]
    if html is not None:
        _write_page(html, audits)
    if output is Output.JSON:
        emit_json(to_json(results, limit or 0))
    else:
        for result in results:
            _show(result, limit or _EPOCHS)
    raise typer.Exit(_exit_code(results, fail_on, uncounted_ok=uncounted_ok))


@dataclass(frozen=True, slots=True)
class _Again:
    """What is computed again, and by what."""

    epochs: range
    job: Any
    before: Any
    panes: Any
    state: StateFrom

    @classmethod
    def of(
        cls, epochs: str | None, job: str | None, before: str | None, panes: str | None, state: StateFrom
    ) -> _Again | None:
        """As it was typed; ``None`` where nothing is to be computed again.

        Raises:
            ConfigurationError: E110, one of the two is missing, or names nothing.
        """
        if epochs is None and job is None:
            return None
        if epochs is None or job is None:
            raise refuse(
                "E110",
                problem="--recompute and --with go together.",
                cause="epochs are computed again by the query, which only its own code knows",
                next="give both: --recompute 1..60 --with jobs.orders:stream",
            )
        first, last = span(epochs, "--recompute")
        made = function("--before", before) if before else None
        return cls(
            range(first or 1, (last or 0) + 1), function("--with", job), made, panes_of(panes) if panes else None, state
        )

    def certificate(self, here: Connection, spark: SparkSession) -> Certificate:
        """What computing them again shows."""
        from onceonly.replay import recompute

        ledger = here.certain_ledger
        given: dict[str, Any] = {"before": self.before, "panes": self.panes, "state": str(self.state)}
        sinks = here.sinks
        return recompute(here.pipeline, self.epochs, job=self.job, ledger=ledger, spark=spark, sinks=sinks, **given)


def _all(ledger: str | None) -> Sequence[str | None]:
    if ledger is None:
        return [None]
    opened = open_ledger(ledger)
    try:
        return [entry.name for entry in opened.pipelines()] or [None]
    finally:
        opened.close()


def _one(
    ledger: str | None,
    query: str | None,
    sinks: Sequence[str] | None,
    *,
    since: int,
    spark: SparkSession | None,
    grace: float,
    by: _Again | None,
    session: SparkSession | None,
) -> tuple[Facts, AuditResult]:
    with place(ledger, query, sinks) as here:
        facts = gather(here.ledger, here.pipeline, here.sinks, since=since, spark=spark, grace_s=grace)
        if by and session:
            facts = replace(facts, recomputed=by.certificate(here, session))
    return facts, judge(facts)


def _write_page(path: Path, audits: Sequence[tuple[Facts, AuditResult]]) -> None:
    try:
        from onceonly.audit import page

        page.write(path, audits, page.Taken.now())
    except ModuleNotFoundError as missing:
        if is_ours(missing):
            raise
        give_up(f"The audit page needs {missing.name}: pip install 'onceonly[report]'")
    talk(f"The audit page is in {path}")


def _exit_code(results: Sequence[AuditResult], fail_on: Severity, *, uncounted_ok: bool) -> int:
    codes = {exit_code_of(result.findings, fail_on, uncounted_ok=uncounted_ok) for result in results}
    return next(code for code in (FINDINGS, UNANSWERED, UNCOUNTED, CLEAN) if code in codes)


def _show(result: AuditResult, limit: int) -> None:
    say(f"{result.spoken}  {result.pipeline}", style=_STYLES.get(result.verdict, "bold red"))
    say(result.scope)
    shown = foremost(result.findings, _SHOWN)
    for finding in shown:
        _show_finding(finding)
    if unsaid := len(result.findings) - len(shown):
        say()
        say(f"{plural(unsaid, 'more finding')} of these kinds not shown; --output json prints all")
    table = epoch_table(result, limit)
    if table.rows:
        say()
        emit_table(table.columns, table.rows)
    hidden = len(result.epochs) - len(table.rows)
    if hidden > 0:
        say(f"{plural(hidden, 'older epoch')} not shown; --limit shows more")
    say()


def _show_finding(finding: Finding) -> None:
    where = "".join(
        [f" epoch {finding.epoch}" if finding.epoch is not None else "", f" {finding.sink}" if finding.sink else ""]
    )
    say()
    say(f"{finding.severity} {finding.code}{where}: {finding.title}", style=_SEVERITIES[finding.severity])
    say(f"  {finding.evidence}")
    say(f"  next: {finding.remedy}")
