"""``onceonly session prepare``: what makes the next starts of a driver quick."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from onceonly.cli.output import say
from onceonly.errors import refuse

app = typer.Typer(no_args_is_help=True, help="Spark sessions that start quickly: a killed driver is back sooner.")


@app.callback()
def group() -> None:
    """Spark sessions that start quickly: a killed driver is back sooner."""


@app.command()
def prepare(
    builder: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="Your SparkSession.builder with all its settings, or a function that returns it.",
        ),
    ],
) -> None:
    """Find a session's jars and archive its classes, once per image or machine.

    In the driver, onceonly.session.start(builder) then takes the place of builder.getOrCreate().
    """
    from onceonly import session

    made = session.prepare(_named(builder))
    say(f"classes archived in {made}; start the driver's session with onceonly.session.start(builder)")


def _named(address: str) -> Any:
    module, colon, name = address.partition(":")
    # As ``python driver.py`` finds it: the command's own directory is not the user's.
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name) if colon and name else None
    except (ImportError, AttributeError) as error:
        raise _unknown(address, str(error)) from error
    made = found() if callable(found) else found
    if not hasattr(made, "getOrCreate"):
        raise _unknown(address, f"it is {type(made).__name__}")
    return made


def _unknown(address: str, cause: str) -> Exception:
    return refuse(
        "E110",
        problem=f"{address!r} is not a builder of a Spark session.",
        cause=cause,
        next="name it as MODULE:NAME, as in: onceonly session prepare jobs.orders:builder",
    )
