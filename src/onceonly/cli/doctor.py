"""``onceonly doctor``: check what a query needs beforehand."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import typer

from onceonly.audit.catalogue import CLEAN, FINDINGS
from onceonly.cli import doctor_checks
from onceonly.cli.connect import open_ledger
from onceonly.cli.doctor_checks import packages, python_version
from onceonly.cli.options import LedgerOption, OnlyArgument, OutputOption, QueryOption, SinkOption, one_name
from onceonly.cli.output import Output, emit_json, emit_table, plural, say
from onceonly.doctor import Check, State
from onceonly.doctor.rules import judge_checkpoint, mount_of
from onceonly.errors import OnceOnlyError
from onceonly.runtime.sink_refusals import reason_of
from onceonly_checkpoints.ledger import LedgerUnavailable

# ---- Checks as they are printed, and the exit code that they mean.


def emit_checks(checks: Sequence[Check], output: Output, **about: str) -> int:
    """Print checks and return the exit code: only a problem changes it."""
    problems = sum(1 for check in checks if check.state is State.PROBLEM)
    if output is Output.JSON:
        emit_json({**about, "problems": problems, "checks": [asdict(check) for check in checks]})
    else:
        _show(checks, problems)
    return FINDINGS if problems else CLEAN


def _show(checks: Sequence[Check], problems: int) -> None:
    emit_table(("", "what", "seen"), _rows(checks))
    for check in checks:
        if check.remedy and check.state is not State.OK:
            say()
            code = f" {check.code}" if check.code else ""
            say(
                f"{check.state}{code} {check.name}: {check.message}",
                style="red" if check.state is State.PROBLEM else "yellow",
            )
            say(f"  next: {check.remedy}")
    say()
    say(plural(problems, "problem") if problems else "no problem found")


def _rows(checks: Sequence[Check]) -> Iterator[tuple[object, ...]]:
    """On a terminal what several checks are about is named by the first of them; on a pipe each line stands alone."""
    grouped, last = sys.stdout.isatty(), ""
    for check in checks:
        yield check.state, "" if grouped and check.name == last else check.name, check.message
        last = check.name


# ---- ``onceonly doctor``: looks at everything that a query will need, before it needs it.

DSN = "ONCEONLY_DSN"
_CHECK_LEDGER = "check --ledger, or the variable ONCEONLY_LEDGER"

CheckpointOption = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        metavar="PATH",
        help="A checkpointLocation to check too; may be given more than once. Those that the ledger names are checked.",
    ),
]


def command(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    query: QueryOption = None,
    checkpoint: CheckpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check versions, Java, jars, workers, destinations; with a ledger its pipelines, too.

    --sink takes the address of a sink or a Postgres DSN. Time limits of a pipeline's sinks are compared
    with the times that its past epochs took. Creates nothing. Exit code: 0 fit, 1 problems.
    """
    checks = list(examine(sink or (), ledger, one_name(context, name, query), checkpoint or ()))
    raise typer.Exit(emit_checks(checks, output))


def examine(
    sinks: Sequence[str], ledger: str | None, query: str | None = None, checkpoints: Sequence[str] = ()
) -> Iterator[Check]:
    """All checks, in the order in which a query would run into them."""
    yield python_version()
    yield from packages()
    yield from doctor_checks.spark_checks()
    if dsn := os.environ.get(DSN):
        yield from doctor_checks.server(DSN, dsn)
    for path in checkpoints:
        yield from judge_checkpoint(path, mount_of(path))
    if ledger is not None:
        yield from ledger_checks(ledger, query, sinks)
    else:
        for address in sinks:
            yield from doctor_checks.destination(address, query or doctor_checks.NOBODY)


def ledger_checks(location: str, query: str | None, sinks: Sequence[str]) -> Iterator[Check]:
    """Whether the ledger answers, and everything about its pipelines; without any, about the sinks alone."""
    try:
        with closing(open_ledger(location)) as opened:
            names = [entry.name for entry in opened.pipelines() if query in (None, entry.name)]
            yield Check("ledger", State.OK, f"{opened.address}: {plural(len(names), 'pipeline')}")
            yield from doctor_checks.pipeline_checks(opened, query, sinks, location)
    except (OnceOnlyError, LedgerUnavailable) as error:
        code = error.code if isinstance(error, OnceOnlyError) else ""
        yield Check("ledger", State.PROBLEM, reason_of(error), _CHECK_LEDGER, code)
        names = []
    for address in () if names else sinks:
        yield from doctor_checks.destination(address, query or doctor_checks.NOBODY, ledger=location)
