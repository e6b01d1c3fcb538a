"""``onceonly demo``: hands everything on to the lab's demo."""

from __future__ import annotations

import typer

from onceonly.cli.calm import give_up

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""The demo has options and a help of its own."""


def command(context: typer.Context) -> None:
    """Prove it here: real input, real SIGKILLs, a verdict."""
    try:
        from onceonly.lab.demo.command import main
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("onceonly"):
            raise
        give_up(f"The demo needs {missing.name}: pip install 'onceonly[demo]'")
    raise typer.Exit(main(list(context.args)))
