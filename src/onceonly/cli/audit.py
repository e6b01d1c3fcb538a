"""``onceonly audit``: the verdict over one pipeline or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from onceonly.audit import AuditResult, Facts, Finding, Severity, Verdict, gather, judge
from onceonly.audit.catalogue import CLEAN, FINDINGS, UNANSWERED, UNCOUNTED
from onceonly.audit.finding import exit_code_of
from onceonly.audit.result import epoch_table, foremost, to_json
from onceonly.cli.connect import connect, open_ledger
from onceonly.cli.errors import without
from onceonly.cli.options import LedgerOption, OnlyArgument, OutputOption, QueryOption, SinkOption, one_name
from onceonly.cli.output import Output, emit_json, emit_table, plural, say, talk
from onceonly.cli.user_code import spark_session
from onceonly.machine.in_doubt import GRACE_S
from onceonly_checkpoints.install import hint

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
) -> None:
    """Count the rows of each epoch in its sinks, and check chain, offset ranges and receipts.

    Without a name all pipelines of the ledger are audited. Needs no Spark without --deep; writes nothing. Exit code:
    0 every row was counted and is right, 1 findings, 2 no answer, 3 nothing is wrong and rows of a sink were
    not counted.
    """
    query = one_name(context, name, query)
    facts: list[Facts] = []
    with spark_session("audit --deep") if deep else nullcontext() as spark:
        for pipeline in [query] if query or sink else _all(ledger):
            with connect(ledger, pipeline, sink) as connection:
                of = (connection.ledger, connection.pipeline, connection.sinks)
                facts.append(gather(*of, since=since, spark=spark, grace_s=grace))
    results = report(facts, output, limit, html)
    raise typer.Exit(exit_code(results, fail_on, uncounted_ok=uncounted_ok))


def report(audited: Sequence[Facts], output: Output, limit: int | None, html: Path | None) -> list[AuditResult]:
    """Print the verdicts, and write the page."""
    results = [judge(facts) for facts in audited]
    if html is not None:
        _write_page(html, [*zip(audited, results, strict=True)])
    if output is Output.JSON:
        emit_json(to_json(results, limit or 0))
    else:
        for result in results:
            _show(result, limit or _EPOCHS)
    return results


def _all(ledger: str | None) -> Sequence[str | None]:
    if ledger is None:
        return [None]
    with closing(open_ledger(ledger)) as opened:
        return [entry.name for entry in opened.pipelines()] or [None]


def _write_page(path: Path, audits: Sequence[tuple[Facts, AuditResult]]) -> None:
    try:
        from onceonly.audit import page

        page.write(path, audits, page.Provenance.now())
    except ModuleNotFoundError as missing:
        without(missing, "The audit page", hint("report"))()
    talk(f"The audit page is in {path}")


def exit_code(results: Sequence[AuditResult], fail_on: Severity, *, uncounted_ok: bool) -> int:
    """The code of the worst verdict."""
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
