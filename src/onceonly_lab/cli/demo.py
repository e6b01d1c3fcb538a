"""``onceonly demo``: hands everything on to the lab's demo, which has options and a help of its own."""

from __future__ import annotations

import typer

from onceonly.cli.extras import without


def command(context: typer.Context) -> None:
    """Prove it here: real input, real SIGKILLs, a verdict."""
    try:
        from onceonly_lab.demo.command import main
    except ModuleNotFoundError as missing:
        without(missing, "The demo", "'onceonly-lab[demo]'")()
    raise typer.Exit(main(list(context.args)))
