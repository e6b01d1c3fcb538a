"""``onceonly doctor``: looks at everything that a query will need, before it needs it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import typer

from onceonly.audit.facts import reason_of
from onceonly.audit.verdict import CLEAN, FINDINGS
from onceonly.cli import checks_sink, checks_spark
from onceonly.cli.checks import Check, State, packages, python_version
from onceonly.cli.options import LedgerOption, OutputOption, SinkOption
from onceonly.cli.output import Output, emit_json, emit_table, plural, say
from onceonly.cli.places import open_ledger
from onceonly.errors import OnceOnlyError
from onceonly_checkpoints.ledger import LedgerUnavailable

DSN = "ONCEONLY_DSN"
_CHECK_LEDGER = "check --ledger, or the variable ONCEONLY_LEDGER"


def command(sink: SinkOption = None, ledger: LedgerOption = None, output: OutputOption = Output.TABLE) -> None:
    """Check versions, Java, jars, workers, destinations.

    --sink takes the address of a sink or a Postgres DSN. Creates nothing. Exit code: 0 fit, 1 problems.
    """
    found = list(examine(sink or (), ledger))
    problems = sum(1 for check in found if check.state is State.PROBLEM)
    if output is Output.JSON:
        emit_json({"problems": problems, "checks": [_to_json(check) for check in found]})
    else:
        _show(found, problems)
    raise typer.Exit(FINDINGS if problems else CLEAN)


def examine(sinks: Iterable[str], ledger: str | None) -> Iterator[Check]:
    """All checks, in the order in which a query would run into them."""
    yield python_version()
    yield from packages()
    yield from checks_spark.all_checks()
    if dsn := os.environ.get(DSN):
        yield from checks_sink.server(DSN, dsn)
    if ledger is not None:
        yield ledger_check(ledger)
    for address in sinks:
        yield from checks_sink.destination(address)


def ledger_check(location: str) -> Check:
    """Whether the ledger answers."""
    try:
        opened = open_ledger(location)
    except (OnceOnlyError, LedgerUnavailable) as error:
        return Check("ledger", State.PROBLEM, reason_of(error), _CHECK_LEDGER)
    try:
        return Check("ledger", State.OK, f"{opened.address}: {plural(len(opened.pipelines()), 'pipeline')}")
    except LedgerUnavailable as error:
        return Check("ledger", State.PROBLEM, reason_of(error), _CHECK_LEDGER)
    finally:
        opened.close()


def _to_json(check: Check) -> dict[str, str]:
    return {"name": check.name, "state": str(check.state), "said": check.said, "remedy": check.remedy}


def _show(found: list[Check], problems: int) -> None:
    emit_table(("", "what", "seen"), ((check.state, check.name, check.said) for check in found))
    for check in found:
        if check.remedy and check.state is not State.OK:
            say()
            say(f"{check.state} {check.name}: {check.said}", style="red" if check.state is State.PROBLEM else "yellow")
            say(f"  next: {check.remedy}")
    say()
    say(plural(problems, "problem") if problems else "no problem found")
