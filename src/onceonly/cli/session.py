"""``onceonly session prepare``, and the Spark session of commands that read rows."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceonly.cli.functions import named
from onceonly.cli.output import say, talk
from onceonly.errors import refuse

if TYPE_CHECKING:
    from onceonly.protocol import SparkSession


# ---- A Spark session for a command that reads rows, where it is asked to.


@contextmanager
def spark_session(wanted: bool, what: str = "audit --deep", *, kafka: bool = False) -> Generator[SparkSession | None]:
    """Give a session with Delta's jars, and end it where it was started here.

    Args:
        wanted: whether there shall be one at all; otherwise pyspark is not even loaded.
        what: the command that needs it.
        kafka: whether it needs the jars of Spark's Kafka source, too.

    Raises:
        ConfigurationError: E108 PySpark is not installed; E110 there is no Java, or no way to the jars.
    """
    if not wanted:
        yield None
        return
    if importlib.util.find_spec("pyspark") is None:
        raise refuse("E108", what=what, package="pyspark", distribution="onceonly", extra="spark")
    from onceonly.spark.session.local import local_session

    with local_session("onceonly audit", lambda: talk("Starting Spark ..."), kafka=kafka) as session:
        yield session


# ---- ``onceonly session prepare``: what makes the next starts of a driver quick.

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

    In the driver, onceonly.spark.session.start(builder) then takes the place of builder.getOrCreate().
    """
    from onceonly.spark import session

    made = session.prepare(_named(builder))
    say(f"classes archived in {made}; start the driver's session with onceonly.spark.session.start(builder)")


def _named(address: str) -> Any:
    try:
        found = named(address)
    except LookupError as error:
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
