"""``onceonly doctor``: looks at everything that a query will need, before it needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Annotated

import typer

from onceonly.audit.facts import reason_of
from onceonly.cli import checks_pipeline, checks_sink, checks_spark
from onceonly.cli.checked import emit_checks
from onceonly.cli.checks import packages, python_version
from onceonly.cli.options import LedgerOption, OutputOption, QueryOption, SinkOption
from onceonly.cli.output import Output, plural
from onceonly.cli.places import open_ledger
from onceonly.doctor import Check, State
from onceonly.doctor.gather import mount_of
from onceonly.doctor.rules import judge_checkpoint
from onceonly.errors import OnceOnlyError
from onceonly_checkpoints.ledger import LedgerUnavailable

DSN = "ONCEONLY_DSN"
_CHECK_LEDGER = "check --ledger, or the variable ONCEONLY_LEDGER"


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
    raise typer.Exit(emit_checks(found, output))


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
            yield from checks_pipeline.all_checks(opened, query, sinks, location)
    except (OnceOnlyError, LedgerUnavailable) as error:
        code = error.code if isinstance(error, OnceOnlyError) else ""
        yield Check("ledger", State.PROBLEM, reason_of(error), _CHECK_LEDGER, code)
        known = []
    for address in () if known else sinks:
        yield from checks_sink.destination(address, query or checks_sink.NOBODY, ledger=location)
