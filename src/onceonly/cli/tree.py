"""The command tree. Only the typed command's module is imported."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, version
from typing import Annotated, Any

import typer

from onceonly.cli.errors import ErrorHandlingGroup
from onceonly.cli.output import say
from onceonly.cli.plugins import add, add_others

WORDS = (
    *("demo", "doctor", "audit", "epochs", "read-point", "quarantine", "time", "panes", "watch", "metrics", "queries"),
    *("checkpoint", "txn", "ledger", "sink", "lab", "explain"),
)
"""First words of ours, in the order of the help."""


def command_tree(points: Sequence[EntryPoint], typed: Sequence[str] = ()) -> typer.Typer:
    """The commands that a line may mean; all of them where its first word is none of ours.

    ``typed`` has no options. Importing all commands takes longer than most of them run.
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
    words = [word for word in typed[:1] if word in WORDS]
    for word in words or WORDS:
        command = _command(word)
        if command is None:
            add(tree, word, points)
        elif isinstance(command, typer.Typer):
            if word == "epochs":
                _add_replays(command, typed[1:2])
            tree.add_typer(command, name=word)
        else:
            tree.command(word)(command)
    if not words:
        add_others(tree, points)
    return tree


def _command(word: str) -> Any:  # noqa: PLR0911, PLR0912 - a table, in imports that tools can read
    """A command, or a noun with its verbs; ``None``: a package publishes it."""
    match word:
        case "doctor" | "sink":
            from onceonly.cli import doctor

            return doctor.command if word == "doctor" else doctor.app
        case "audit":
            from onceonly.cli import audit

            return audit.command
        case "epochs":
            from onceonly.cli import epochs

            return epochs.app
        case "read-point":
            from onceonly.cli import readpoint

            return readpoint.command
        case "quarantine":
            from onceonly.cli import quarantine

            return quarantine.app
        case "time":
            from onceonly.cli import time

            return time.app
        case "panes":
            from onceonly.cli import windows

            return windows.app
        case "watch" | "metrics":
            from onceonly.cli import watch

            return watch.watch if word == "watch" else watch.metrics
        case "queries":
            from onceonly.cli import status

            return status.app
        case "checkpoint":
            from onceonly.cli import checkpoint

            return checkpoint.app
        case "txn":
            from onceonly.cli.recover import resolve

            return resolve.app
        case "ledger":
            from onceonly.cli import ledger

            return ledger.app
        case "explain":
            from onceonly.cli import explain

            return explain.command
        case _:
            return None


def _add_replays(epochs: typer.Typer, verb: Sequence[str]) -> None:
    """Add the verbs that run epochs again, unless another one was typed: they need much more than the others."""
    names = {command.name or getattr(command.callback, "__name__", "") for command in epochs.registered_commands}
    if "rerun" not in names and not names & {*verb}:
        from onceonly.cli.replay import publish, run

        epochs.command("rerun")(run.command)
        epochs.command("publish")(publish.command)


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
