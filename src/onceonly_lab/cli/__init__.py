"""Command line of the lab: ``onceonly lab`` and ``onceonly demo``.

The command line finds them by entry point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def add_lab(tree: typer.Typer) -> None:
    """Add ``onceonly lab``; entry point ``lab`` of the group ``onceonly.commands``."""
    from onceonly_lab.cli.app import app

    tree.add_typer(app, name="lab")


def add_demo(tree: typer.Typer) -> None:
    """Add ``onceonly demo``; entry point ``demo`` of the group ``onceonly.commands``."""
    from onceonly.cli.errors import PASSED_ON
    from onceonly_lab.cli.app import demo

    tree.command("demo", context_settings=PASSED_ON)(demo)
