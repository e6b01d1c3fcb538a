"""``onceonly ledger``: fills the index anew from what the sinks hold, shortens it, writes it out."""

from __future__ import annotations

from typing import Annotated

import typer

from onceonly.cli import exporting, pruning
from onceonly.cli import rebuild as plans
from onceonly.cli.confirm import confirmed
from onceonly.cli.options import LedgerOption, QueryOption, SinkOption, YesOption
from onceonly.cli.output import emit_pairs, say
from onceonly.cli.places import ledger_address, no_ledger, open_ledger, place

app = typer.Typer(no_args_is_help=True, help="The ledger: an index, never an authority.")


@app.callback()
def group() -> None:
    """The ledger: an index, never an authority."""


@app.command()
def rebuild(
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Rebuild a pipeline's part of the ledger from the markers in its sinks.

    Records that agree with a marker keep their files and phase times; epochs that the sinks no longer remember stay.
    """
    with place(ledger, query, sink) as here:
        plan = plans.plan(here, ledger_address(ledger, here))
    emit_pairs(plan.pairs)
    if confirmed(yes):
        with place(ledger, here.pipeline, sink, create=True) as here:
            plans.carry_out(here, plan)
            say(f"ledger of {here.pipeline} rebuilt up to epoch {plan.newest}")


@app.command()
def prune(
    *,
    query: QueryOption = None,
    ledger: LedgerOption = None,
    keep_epochs: Annotated[
        int, typer.Option("--keep-epochs", metavar="N", min=1, help="Keep this many of the newest epochs.")
    ],
    yes: YesOption = False,
) -> None:
    """Forget old epochs of one pipeline. The sinks are not touched; events stay.

    What only the ledger knows of these epochs is lost: phase times, input files, and the proof of epochs whose markers
    a sink no longer remembers. The plan says how many these are.
    """
    with place(ledger, query) as here:
        plan = pruning.plan(here, keep_epochs)
        emit_pairs(plan.pairs)
        if plan.before and confirmed(yes):
            pruning.carry_out(here, plan)
            say(f"ledger of {here.pipeline} begins at epoch {plan.before}")


@app.command()
def export(query: QueryOption = None, ledger: LedgerOption = None) -> None:
    """Write the ledger to stdout, one JSON object a line: pipelines, then of each its epochs and events."""
    if ledger is None:
        raise no_ledger()
    opened = open_ledger(ledger)
    try:
        exporting.export(opened, query)
    finally:
        opened.close()
