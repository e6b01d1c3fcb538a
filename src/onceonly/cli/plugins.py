"""Commands that are loaded when asked for, and those of other packages."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

import typer
from typer.core import TyperGroup

from onceonly.cli.errors import PASSED_ON, without
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
