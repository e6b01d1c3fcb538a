"""``onceonly ledger``: fills the index anew from what the sinks hold."""

from __future__ import annotations

from typing import Annotated

import typer

from onceonly.cli import rebuild as plans
from onceonly.cli.confirm import confirmed
from onceonly.cli.options import LedgerOption, YesOption
from onceonly.cli.output import emit_pairs, say
from onceonly.cli.places import place

app = typer.Typer(no_args_is_help=True, help="The ledger: an index, never an authority.")


@app.callback()
def group() -> None:
    """The ledger: an index, never an authority."""


@app.command()
def rebuild(
    query: Annotated[
        str, typer.Option("--query", "-q", envvar="ONCEONLY_QUERY", metavar="NAME", help="Name of the pipeline.")
    ],
    sink: Annotated[
        list[str] | None,
        typer.Option("--sink", envvar="ONCEONLY_SINK", metavar="KIND:TARGET", help="Address of a sink, may repeat."),
    ] = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Rebuild a pipeline's part of the ledger from the markers in its sinks.

    Records that agree with a marker keep their files and phase times; epochs that the sinks no longer remember stay.
    """
    with place(ledger, query, sink, create=True) as here:
        plan = plans.plan(here)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            plans.carry_out(here, plan)
            say(f"ledger of {query} rebuilt up to epoch {plan.newest}")
