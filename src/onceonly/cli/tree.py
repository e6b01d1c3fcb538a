"""The command tree: verbs, help, modules, commands of other packages."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points, version
from types import ModuleType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from onceonly.cli.errors import PASSED_ON, ErrorHandlingGroup, without
from onceonly.cli.output import say
from onceonly_checkpoints.install import LAB, hint, pip

GROUP = "onceonly.commands"
"""Entry-point group: name = the command's word, value = a function that takes the tree and adds the command to it."""

OF_THE_LAB = ("lab", "demo")
"""Words that are in the tree where the lab is not installed, too."""

Add = Callable[[typer.Typer], None]


def published() -> Sequence[EntryPoint]:
    """What the packages that are installed publish."""
    return tuple(entry_points(group=GROUP))


def add(tree: typer.Typer, word: str, points: Sequence[EntryPoint]) -> None:
    """Add one command; where nobody publishes it, or a package of it is missing, one that says how to get it."""
    entry_point = next((point for point in points if point.name == word), None)
    try:
        if entry_point is None:
            raise ModuleNotFoundError(name=LAB)
        cast("Add", entry_point.load())(tree)
    except ModuleNotFoundError as missing:
        dist = entry_point.dist if entry_point else None
        install = hint(word) if word in OF_THE_LAB else pip(dist.name if dist else word)
        tree.command(word, context_settings=PASSED_ON)(without(missing, f"onceonly {word}", install))


class _Loaded(UserDict[str, Any]):
    """Commands by name. Importing all takes longer than most of them run, so each is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        plugin = self.data[name]
        if isinstance(plugin, partial):
            plugin = self.data[name] = plugin()
        return plugin


class LazyGroup(TyperGroup):
    """Commands that are imported when they are asked for. Their help is known without."""

    helps: Mapping[str, str] = {}

    def fill(self, makers: Mapping[str, Callable[[], Any]], helps: Mapping[str, str]) -> None:
        """Take the commands, each by what makes it, and their lines of help."""
        self.commands = _Loaded(makers)
        self.helps = helps

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each command. One of another package is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.helps.get(name) or self.commands[name].get_short_help_str()) for name in self.commands]
            )


@dataclass(frozen=True, slots=True)
class Verb:
    """A command.

    Attributes:
        run: its function, as ``MODULE:NAME`` below ``onceonly.cli``; empty for one that the lab publishes.
        ranged: options may stand without their range, which the command then names.
    """

    help: str
    run: str = ""
    ranged: bool = False


@dataclass(frozen=True, slots=True)
class Noun:
    """A group of commands, in the order of its help."""

    help: str
    verbs: Mapping[str, Verb] = field(default_factory=dict)


TREE: Mapping[str, Verb | Noun] = {
    "demo": Verb("Run the proof on this machine: real input, real kills."),
    "status": Verb("Show pipelines, their newest events, and epochs in doubt.", "status:command"),
    "audit": Verb("Count the rows of each epoch in its sinks, and check the chain.", "audit:command"),
    "doctor": Verb("Check versions, Java, jars, workers, destinations.", "doctor:command"),
    "explain": Verb("Explain a code, or list them all.", "explain:command"),
    "metrics": Verb("Serve epochs, rows, phase times and lag to Prometheus.", "metrics:command"),
    "epochs": Noun(
        "Committed epochs: list, show.",
        {
            "list": Verb("List the newest epochs, and follow new ones.", "epochs:list_"),
            "show": Verb("Show one epoch, its plan, where it ended, or SQL to read it.", "epochs:show"),
        },
    ),
    "replay": Noun(
        "Replay and backfill recorded epochs: run, check, publish.",
        {
            "run": Verb("Run recorded epochs into their own target.", "replay:run"),
            "check": Verb("Compute epochs again from their source, and compare.", "replay:check"),
            "publish": Verb("Replace the rows of a pipeline by those of a backfill.", "replay:publish"),
        },
    ),
    "recover": Noun(
        "Recover a pipeline that stopped. Each command prints its plan first.",
        {
            "adopt": Verb(
                "Accept a loss, duplicates or a change, or take over an older job.",
                "recover.adopt:command",
                ranged=True,
            ),
            "rewind": Verb(
                "Reset a pipeline to an epoch, or bring a restored sink its epochs.", "recover.rewind:command"
            ),
            "refresh": Verb("Let a query with a new checkpoint replace all rows.", "recover.adopt:refresh"),
            "drop-sink": Verb("Take a sink out of a pipeline.", "recover.removal:drop", ranged=True),
            "forget": Verb("Take a pipeline out of the ledger.", "recover.removal:forget"),
            "resolve": Verb("Settle an epoch in doubt, as a restart does.", "recover.resolve:command"),
            "rebuild-checkpoint": Verb("Write a checkpoint from epochs.", "checkpoint:rebuild"),
            "rebuild-ledger": Verb("Rebuild the ledger from the markers in the sinks.", "ledger:rebuild"),
            "reset-windows": Verb("Give up all open windows.", "recover.windows:reset"),
            "rebuild-windows": Verb("Compute open windows again, and correct their table.", "recover.windows:rebuild"),
            "retire-writer": Verb("Stop waiting for a writer of a dataset, for good.", "time:retire"),
        },
    ),
    "datasets": Verb("List the targets of a ledger, or show one: writers, columns, epochs.", "ledger:datasets"),
    "quarantine": Verb("List epochs with quarantined rows, or show the rows.", "quarantine:command"),
    "time": Noun(
        "Until when a dataset is complete: show, wait.",
        {
            "show": Verb("Show until when a dataset is complete, or its history.", "time:show"),
            "wait": Verb("Wait until every row before a time is committed.", "time:wait"),
        },
    ),
    "windows": Noun(
        "Open windows: show.",
        {"show": Verb("Show the windows that are open after the newest epoch.", "windows:command")},
    ),
    "checkpoint": Verb("Show a checkpoint, or verify it.", "checkpoint:command"),
    "ledger": Noun(
        "The ledger, an index of the epochs in your sinks: prune.",
        {"prune": Verb("Forget old epochs of one pipeline.", "ledger:prune")},
    ),
    "lineage": Noun(
        "OpenLineage events of epochs: resend.",
        {"resend": Verb("Send recorded epochs to a receiver again.", "ledger:resend")},
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
        return _verb(word, entry)
    tree = _typer(cls=LazyGroup, help=entry.help)
    tree.callback()(lambda: None)
    group: Any = typer.main.get_command(tree)
    group.name = word
    verbs = entry.verbs.items()
    group.fill({name: partial(_verb, name, verb) for name, verb in verbs}, {name: verb.help for name, verb in verbs})
    return group


def _verb(name: str, verb: Verb) -> Any:
    tree = _typer()
    tree.command(name, cls=_load("change:Ranged") if verb.ranged else TyperCommand)(_load(verb.run))
    return typer.main.get_command(tree)


def _load(address: str) -> Any:
    name, _, function = address.partition(":")
    return getattr(_module(name), function)


def _module(name: str) -> ModuleType:  # noqa: PLR0911, PLR0912 - a table, in imports that tools can read
    match name:
        case "status":
            from onceonly.cli import status

            return status
        case "audit":
            from onceonly.cli import audit

            return audit
        case "doctor":
            from onceonly.cli import doctor

            return doctor
        case "explain":
            from onceonly.cli import explain

            return explain
        case "metrics":
            from onceonly.cli import metrics

            return metrics
        case "epochs":
            from onceonly.cli import epochs

            return epochs
        case "replay":
            from onceonly.cli import replay

            return replay
        case "quarantine":
            from onceonly.cli import quarantine

            return quarantine
        case "time":
            from onceonly.cli import time

            return time
        case "windows":
            from onceonly.cli import windows

            return windows
        case "checkpoint":
            from onceonly.cli import checkpoint

            return checkpoint
        case "ledger":
            from onceonly.cli import ledger

            return ledger
        case "change":
            from onceonly.cli import change

            return change
        case "recover.adopt":
            from onceonly.cli.recover import adopt

            return adopt
        case "recover.rewind":
            from onceonly.cli.recover import rewind

            return rewind
        case "recover.resolve":
            from onceonly.cli.recover import resolve

            return resolve
        case "recover.windows":
            from onceonly.cli.recover import windows as open_windows

            return open_windows
        case "recover.removal":
            from onceonly.cli.recover import removal

            return removal
        case _:
            raise KeyError(name)


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
