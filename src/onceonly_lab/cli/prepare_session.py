"""``onceonly lab prepare-session``: archive a session's classes for a quick start.

The next start of a driver then takes less time.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onceonly.cli.output import say
from onceonly.cli.user_code import named
from onceonly.errors import refuse


def prepare_session(
    builder: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="Your SparkSession.builder with all its settings, or a function that returns it.",
        ),
    ],
) -> None:
    """Find a session's jars and archive its classes, once per image or machine.

    In the driver, onceonly_lab.session.start(builder) then takes the place of builder.getOrCreate().
    """
    from onceonly_lab import session

    archive = session.prepare(_builder(builder))
    say(f"classes archived in {archive}; start the driver's session with onceonly_lab.session.start(builder)")


def _builder(address: str) -> Any:
    try:
        value = named(address)
    except LookupError as error:
        raise _no_builder(address, str(error)) from error
    builder = value() if callable(value) else value
    if not hasattr(builder, "getOrCreate"):
        raise _no_builder(address, f"it is {type(builder).__name__}")
    return builder


def _no_builder(address: str, cause: str) -> Exception:
    return refuse(
        "E110",
        problem=f"{address!r} is not a builder of a Spark session.",
        cause=cause,
        next="name it as MODULE:NAME, as in: onceonly lab prepare-session jobs.orders:builder",
    )
