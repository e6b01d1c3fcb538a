"""``onceonly doctor``: looks at everything that a query will need, before it needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Annotated

import typer

from onceonly.audit.facts import reason_of
from onceonly.audit.verdict import CLEAN, FINDINGS
from onceonly.cli import checks_pipeline, checks_sink, checks_spark
from onceonly.cli.checks import packages, python_version
from onceonly.cli.options import LedgerOption, OutputOption, SinkOption
from onceonly.cli.output import Output, emit_json, emit_table, plural, say
from onceonly.cli.places import open_ledger
from onceonly.doctor import Check, State
from onceonly.doctor.gather import mount_of
from onceonly.doctor.rules import judge_checkpoint
from onceonly.errors import OnceOnlyError
from onceonly_checkpoints.ledger import LedgerUnavailable

DSN = "ONCEONLY_DSN"
_CHECK_LEDGER = "check --ledger, or the variable ONCEONLY_LEDGER"


QueryOption = Annotated[
    str | None,
    typer.Option("--query", "-q", envvar="ONCEONLY_QUERY", metavar="NAME", help="The only pipeline to look at."),
]
CheckpointOption = Annotated[
    list[str] | None,
    typer.Option("--checkpoint", metavar="PATH", help="A checkpointLocation, may repeat; those of a ledger are known."),
]


def command(
    *,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    query: QueryOption = None,
    checkpoint: CheckpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check versions, Java, jars, workers, destinations; with a ledger its pipelines, too.

    --sink takes the address of a sink or a Postgres DSN. A pipeline's sinks are compared with what its epochs took.
    Creates nothing. Exit code: 0 fit, 1 problems.
    """
    found = list(examine(sink or (), ledger, query, checkpoint or ()))
    problems = sum(1 for check in found if check.state is State.PROBLEM)
    if output is Output.JSON:
        emit_json({"problems": problems, "checks": [_to_json(check) for check in found]})
    else:
        _show(found, problems)
    raise typer.Exit(FINDINGS if problems else CLEAN)


def examine(
    sinks: Sequence[str], ledger: str | None, query: str | None = None, checkpoints: Sequence[str] = ()
) -> Iterator[Check]:
    """All checks, in the order in which a query would run into them."""
    yield python_version()
    yield from packages()
    yield from checks_spark.all_checks()
    if dsn := os.environ.get(DSN):
        yield from checks_sink.server(DSN, dsn)
    for path in checkpoints:
        yield from judge_checkpoint(path, mount_of(path))
    if ledger is not None:
        yield from ledger_checks(ledger, query, sinks)
    else:
        for address in sinks:
            yield from checks_sink.destination(address, query or checks_sink.NOBODY)


def ledger_checks(location: str, query: str | None, sinks: Sequence[str]) -> Iterator[Check]:
    """Whether the ledger answers, and everything about its pipelines; without any, about the sinks alone."""
    try:
        with closing(open_ledger(location)) as opened:
            known = [entry.name for entry in opened.pipelines() if query in (None, entry.name)]
            yield Check("ledger", State.OK, f"{opened.address}: {plural(len(known), 'pipeline')}")
            yield from checks_pipeline.all_checks(opened, query, sinks)
    except (OnceOnlyError, LedgerUnavailable) as error:
        code = error.code if isinstance(error, OnceOnlyError) else ""
        yield Check("ledger", State.PROBLEM, reason_of(error), _CHECK_LEDGER, code)
        known = []
    for address in () if known else sinks:
        yield from checks_sink.destination(address, query or checks_sink.NOBODY)


def _to_json(check: Check) -> dict[str, str]:
    return {
        "name": check.name,
        "state": str(check.state),
        "code": check.code,
        "said": check.said,
        "remedy": check.remedy,
    }


def _show(found: list[Check], problems: int) -> None:
    emit_table(("", "what", "seen"), ((check.state, check.name, check.said) for check in found))
    for check in found:
        if check.remedy and check.state is not State.OK:
            say()
            code = f" {check.code}" if check.code else ""
            say(
                f"{check.state}{code} {check.name}: {check.said}",
                style="red" if check.state is State.PROBLEM else "yellow",
            )
            say(f"  next: {check.remedy}")
    say()
    say(plural(problems, "problem") if problems else "no problem found")
