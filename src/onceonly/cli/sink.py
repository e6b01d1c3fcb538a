"""``onceonly sink check``: whether a database, a topic or a table fits a sink, before the first epoch is written."""

from __future__ import annotations

from typing import Annotated

import typer

from onceonly.cli import checks_sink
from onceonly.cli.checked import emit_checks
from onceonly.cli.options import OutputOption, QueryOption
from onceonly.cli.output import Output
from onceonly.errors import mask
from onceonly.registry import sink_from_address

app = typer.Typer(no_args_is_help=True, help="A sink: does its destination fit?")

AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="postgres:DSN#schema.table, delta:PATH, kafka:HOST:PORT/topic, or the address of a sink of your own kind.",
    ),
]


@app.callback()
def group() -> None:
    """A sink: does its destination fit?"""


@app.command()
def check(address: AddressArgument, *, query: QueryOption = None, output: OutputOption = Output.TABLE) -> None:
    """Check rights, isolation, compaction, indexes and settings of a destination. Creates and changes nothing.

    The doctor asks the same of the sinks that a ledger knows, and measures limits by what their epochs took. Exit code:
    0 it fits, 1 problems, 2 it is no address.
    """
    found = list(checks_sink.of_sink(sink_from_address(address), query or checks_sink.NOBODY))
    raise typer.Exit(emit_checks(found, output, sink=mask(address)))
