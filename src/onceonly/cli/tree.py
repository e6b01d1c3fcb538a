"""The command tree: verbs with their help, and the module of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from onceonly.cli.errors import ErrorHandlingGroup
from onceonly.cli.output import say
from onceonly.cli.plugins import OF_THE_LAB, LazyGroup, add


@dataclass(frozen=True, slots=True)
class Verb:
    """A command. ``ranged``: options may stand without their range, which the command then names."""

    help: str
    ranged: bool = False


@dataclass(frozen=True, slots=True)
class Noun:
    """A group of commands, in the order of its help."""

    help: str
    verbs: Mapping[str, Verb] = field(default_factory=dict)


TREE: Mapping[str, Verb | Noun] = {
    "demo": Verb("Run the proof on this machine: real input, real kills."),
    "status": Verb("Show pipelines, their newest events, and epochs in doubt."),
    "audit": Verb("Count the rows of each epoch in its sinks, and check the chain."),
    "doctor": Verb("Check versions, Java, jars, workers, destinations."),
    "explain": Verb("Explain a code, or list them all."),
    "metrics": Verb("Serve epochs, rows, phase times and lag to Prometheus."),
    "epochs": Noun(
        "Committed epochs: list, show, read-point.",
        {
            "list": Verb("List the newest epochs, and follow new ones."),
            "show": Verb("Show one epoch, its plan, or where it ended."),
            "read-point": Verb("Show an epoch that all sinks hold, and SQL to read it."),
        },
    ),
    "replay": Noun(
        "Replay and backfill recorded epochs: run, check, publish.",
        {
            "run": Verb("Run recorded epochs into their own target."),
            "check": Verb("Compute epochs again from their source, and compare."),
            "publish": Verb("Replace the rows of a pipeline by those of a backfill."),
        },
    ),
    "recover": Noun(
        "Recover a pipeline that stopped. Each command prints its plan first.",
        {
            "adopt": Verb("Accept a loss, duplicates or a change, or take over an older job.", ranged=True),
            "rewind": Verb("Reset a pipeline to an epoch, or bring a restored sink its epochs."),
            "refresh": Verb("Let a query with a new checkpoint replace all rows."),
            "drop-sink": Verb("Take a sink out of a pipeline.", ranged=True),
            "forget": Verb("Take a pipeline out of the ledger."),
            "resolve": Verb("Settle an epoch in doubt, as a restart does."),
            "rebuild-checkpoint": Verb("Write a checkpoint from epochs."),
            "rebuild-ledger": Verb("Rebuild the ledger from the markers in the sinks."),
            "reset-windows": Verb("Give up all open windows."),
            "rebuild-windows": Verb("Compute open windows again, and correct their table."),
            "retire-writer": Verb("Stop waiting for a writer of a dataset, for good."),
        },
    ),
    "datasets": Verb("List the targets of a ledger, or show one: writers, columns, epochs."),
    "quarantine": Verb("List epochs with quarantined rows, or show the rows."),
    "time": Noun(
        "Until when a dataset is complete: show, wait.",
        {
            "show": Verb("Show until when a dataset is complete, or its history."),
            "wait": Verb("Wait until every row before a time is committed."),
        },
    ),
    "windows": Noun("Open windows: show.", {"show": Verb("Show the windows that are open after the newest epoch.")}),
    "checkpoint": Verb("Show a checkpoint, or verify it."),
    "ledger": Noun(
        "The ledger, an index of the epochs in your sinks: prune.",
        {"prune": Verb("Forget old epochs of one pipeline.")},
    ),
    "lab": Verb("The fault lab: search, replay and judge runs with faults."),
}
"""First words of ours, in the order of the help. The lab publishes those of ``OF_THE_LAB``."""


class _Root(LazyGroup, ErrorHandlingGroup):
    points: Sequence[EntryPoint] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        makers: dict[str, Callable[[], Any]] = {word: partial(_made, word, entry) for word, entry in TREE.items()}
        others = sorted({point.name for point in self.points} - {*TREE})
        makers |= {word: partial(_published, word, self.points) for word in (*OF_THE_LAB, *others)}
        self.fill(makers, {word: entry.help for word, entry in TREE.items()})


def command_tree(points: Sequence[EntryPoint]) -> typer.Typer:
    """The command line, with the commands that other packages publish."""

    class Root(_Root):
        pass

    Root.points = points
    tree = _typer(
        cls=Root,
        add_completion=True,
        help="Exactly-once sinks for PySpark Structured Streaming: proof, history and repair.",
        epilog="Exit codes: 0 clean or done, 1 findings, 2 no answer, 3 rows not counted (in the lab: the lab failed), "
        "4 a plan that changed nothing: add --yes.",
    )
    tree.callback()(root)
    return tree


def _typer(**settings: Any) -> typer.Typer:
    defaults: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, **settings}
    return typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, **defaults)


def _made(word: str, entry: Verb | Noun) -> Any:
    if isinstance(entry, Verb):
        return _verb(word, word, entry)
    tree = _typer(cls=LazyGroup, help=entry.help)
    tree.callback()(lambda: None)
    group: Any = typer.main.get_command(tree)
    group.name = word
    verbs = entry.verbs.items()
    group.fill(
        {name: partial(_verb, name, f"{word} {name}", verb) for name, verb in verbs},
        {name: verb.help for name, verb in verbs},
    )
    return group


def _verb(name: str, words: str, verb: Verb) -> Any:
    tree = _typer()
    tree.command(name, cls=_class(verb))(_function(words))
    return typer.main.get_command(tree)


def _class(verb: Verb) -> type[TyperCommand]:
    if not verb.ranged:
        return TyperCommand
    from onceonly.cli.change import Ranged

    return Ranged


def _function(words: str) -> Any:  # noqa: PLR0911, PLR0912 - a table, in imports that tools can read
    """What a command runs."""
    noun, _, name = words.partition(" ")
    match noun:
        case "status":
            from onceonly.cli import status

            return status.command
        case "audit":
            from onceonly.cli import audit

            return audit.command
        case "doctor":
            from onceonly.cli import doctor

            return doctor.command
        case "explain":
            from onceonly.cli import explain

            return explain.command
        case "metrics":
            from onceonly.cli import metrics

            return metrics.command
        case "epochs":
            from onceonly.cli import epochs

            return {"list": epochs.list_, "show": epochs.show, "read-point": epochs.read_point}[name]
        case "replay":
            from onceonly.cli import replay

            return {"run": replay.run, "check": replay.check, "publish": replay.publish}[name]
        case "quarantine":
            from onceonly.cli import quarantine

            return quarantine.command
        case "datasets":
            from onceonly.cli import ledger

            return ledger.datasets
        case "time":
            from onceonly.cli import time

            return {"show": time.show, "wait": time.wait}[name]
        case "windows":
            from onceonly.cli import windows

            return windows.command
        case "checkpoint":
            from onceonly.cli import checkpoint

            return checkpoint.command
        case "ledger":
            from onceonly.cli import ledger

            return ledger.prune
        case _:
            return _recovery(name)


def _recovery(name: str) -> Any:  # noqa: PLR0911
    """What a verb of ``recover`` runs."""
    match name:
        case "adopt":
            from onceonly.cli.recover import adopt

            return adopt.command
        case "rewind":
            from onceonly.cli.recover import rewind

            return rewind.command
        case "refresh":
            from onceonly.cli.recover import refresh

            return refresh.command
        case "resolve":
            from onceonly.cli.recover import resolve

            return resolve.command
        case "rebuild-checkpoint":
            from onceonly.cli import checkpoint

            return checkpoint.rebuild
        case "rebuild-ledger":
            from onceonly.cli import ledger

            return ledger.rebuild
        case "reset-windows" | "rebuild-windows":
            from onceonly.cli.recover import windows

            return windows.reset if name == "reset-windows" else windows.rebuild
        case "retire-writer":
            from onceonly.cli import time

            return time.retire
        case _:
            from onceonly.cli.recover import removal

            return {"drop-sink": removal.drop, "forget": removal.forget}[name]


def _published(word: str, points: Sequence[EntryPoint]) -> Any:
    tree = _typer()
    tree.callback()(lambda: None)
    add(tree, word, points)
    group: Any = typer.main.get_command(tree)
    return group.commands[word]


def _print_version(requested: bool) -> None:
    if requested:
        say(f"onceonly {version('onceonly')}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exactly-once sinks for PySpark Structured Streaming: proof, history and repair."""
