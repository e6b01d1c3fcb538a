"""The command tree: nouns, then verbs. Bodies live in the module of their noun."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, version
from typing import Annotated

import typer

from onceonly.cli import (
    audit,
    checkpoint,
    doctor,
    epochs,
    explain,
    ledger,
    quarantine,
    readpoint,
    status,
    time,
    watch,
    windows,
)
from onceonly.cli.errors import ErrorHandlingGroup
from onceonly.cli.output import say
from onceonly.cli.plugins import add, add_others, published
from onceonly.cli.recover import resolve
from onceonly.cli.replay import publish, run


def command_tree(points: Sequence[EntryPoint]) -> typer.Typer:
    """Every command, those of other packages too.

    Args:
        points: what packages publish, :func:`~onceonly.cli.plugins.published`.
    """
    tree = typer.Typer(
        cls=ErrorHandlingGroup,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Exactly-once sinks for PySpark Structured Streaming: proof, history and repair.",
        epilog="Exit codes: 0 clean, 1 findings, 2 could not answer or nobody confirmed a plan; of the lab also 3, the "
        "lab itself failed.",
    )
    tree.callback()(root)
    add(tree, "demo", points)
    tree.command("doctor")(doctor.command)
    tree.command("audit")(audit.command)
    epochs.app.command("rerun")(run.command)
    epochs.app.command("publish")(publish.command)
    tree.add_typer(epochs.app, name="epochs")
    tree.command("read-point")(readpoint.command)
    tree.add_typer(quarantine.app, name="quarantine")
    tree.add_typer(time.app, name="time")
    tree.add_typer(windows.app, name="panes")
    tree.command("watch")(watch.watch)
    tree.command("metrics")(watch.metrics)
    tree.add_typer(status.app, name="queries")
    tree.add_typer(checkpoint.app, name="checkpoint")
    tree.add_typer(resolve.app, name="txn")
    tree.add_typer(ledger.app, name="ledger")
    tree.add_typer(doctor.app, name="sink")
    add(tree, "lab", points)
    tree.command("explain")(explain.command)
    add_others(tree, points)
    return tree


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"onceonly {version('onceonly')}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exactly-once sinks for PySpark Structured Streaming: proof, history and repair."""


app = command_tree(published())
