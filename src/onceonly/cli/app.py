"""The command tree: nouns, then verbs. Bodies live in the module of their noun."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from onceonly.cli import (
    audit,
    checkpoint,
    demo,
    doctor,
    epochs,
    explain,
    ledger,
    metrics,
    queries,
    session,
    sink,
    txn,
    watch,
)
from onceonly.cli.calm import CalmGroup
from onceonly.cli.extras import PASSED_ON, without
from onceonly.cli.output import say

app = typer.Typer(
    cls=CalmGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Exactly-once sinks for PySpark Structured Streaming: proof, history and repair.",
    epilog="Exit codes: 0 clean, 1 findings, 2 could not answer; of the lab also 3, the lab itself failed.",
)
app.command("demo", context_settings=PASSED_ON)(demo.command)
app.command("doctor")(doctor.command)
app.command("audit")(audit.command)
app.add_typer(epochs.app, name="epochs")
app.command("watch")(watch.command)
app.command("metrics")(metrics.command)
app.add_typer(queries.app, name="queries")
app.add_typer(checkpoint.app, name="checkpoint")
app.add_typer(txn.app, name="txn")
app.add_typer(ledger.app, name="ledger")
app.add_typer(sink.app, name="sink")
try:
    from onceonly.cli import lab
except ModuleNotFoundError as missing:
    app.command("lab", context_settings=PASSED_ON)(without(missing, "The fault lab", "lab", code=3))
else:
    app.add_typer(lab.app, name="lab")
app.add_typer(session.app, name="session")
app.command("explain")(explain.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"onceonly {version('onceonly')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exactly-once sinks for PySpark Structured Streaming: proof, history and repair."""
