"""``onceonly txn``: settles an epoch in doubt without Spark."""

from __future__ import annotations

import typer

from onceonly.cli.options import LedgerOption, OutputOption, QueryOption, SinkOption
from onceonly.cli.output import Output, emit_json, say
from onceonly.cli.places import place

app = typer.Typer(no_args_is_help=True, help="Epochs in doubt.")


@app.callback()
def group() -> None:
    """Epochs in doubt."""


@app.command()
def resolve(
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Open a pipeline as a restart would: fence out older drivers, settle what is in doubt, update the ledger.

    Writes no rows. A driver that is still running stops at its next write.
    """
    from onceonly.resolve import resolve as settle

    with place(ledger, query, sink) as here:
        found = settle(here.sinks, here.certain_ledger, here.pipeline)
        name = here.pipeline
    if output is Output.JSON:
        emit_json({"pipeline": name, "epoch": found.epoch, "generation": found.generation, "said": list(found.said)})
        return
    for sentence in found.said:
        say(sentence)
