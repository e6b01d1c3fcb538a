"""Commands of other packages, found by entry point, the lab's included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn, cast

import typer

from onceonly.cli.errors import PASSED_ON, give_up, without

GROUP = "onceonly.commands"
"""Entry-point group: name = the command's word, value = a function that takes the tree and adds the command to it."""

LAB = "onceonly-lab"
"""The distribution that publishes the words of :data:`OF_THE_LAB`."""

OF_THE_LAB = {"lab": LAB, "demo": f"'{LAB}[demo]'"}
"""Words that are in the tree where the lab is not installed, too, and what brings them, quoted for a shell."""

Add = Callable[[typer.Typer], None]


def published() -> Sequence[EntryPoint]:
    """What the packages that are installed publish."""
    return tuple(entry_points(group=GROUP))


def add(tree: typer.Typer, word: str, points: Sequence[EntryPoint]) -> None:
    """Add one command; where nobody publishes it, or a package of it is missing, one that says how to get it."""
    found = next((point for point in points if point.name == word), None)
    if found is None:
        tree.command(word, context_settings=PASSED_ON)(_absent(word))
        return
    try:
        cast("Add", found.load())(tree)
    except ModuleNotFoundError as missing:
        stands_in = without(missing, f"onceonly {word}", _brought_by(found))
        tree.command(word, context_settings=PASSED_ON)(stands_in)


def add_others(tree: typer.Typer, points: Sequence[EntryPoint]) -> None:
    """Add what is published under words that the tree does not have yet; a word of ours stays ours."""
    known = {verb.name for verb in tree.registered_commands} | {noun.name for noun in tree.registered_groups}
    for word in sorted({point.name for point in points} - known):
        add(tree, word, points)


def _brought_by(point: EntryPoint) -> str:
    return OF_THE_LAB.get(point.name) or (point.dist.name if point.dist else point.module.partition(".")[0])


def _absent(word: str) -> Callable[[], NoReturn]:
    def command() -> NoReturn:
        """Not installed; it says how to install it."""
        give_up(f"onceonly {word} needs the package {LAB}: pip install {OF_THE_LAB[word]}")

    return command
