"""Options that several commands share."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from onceonly.cli.output import Output
from onceonly.errors.options import misused

# ---- Options that several commands share, each with its environment variable.

LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="ONCEONLY_LEDGER",
        metavar="URL_OR_PATH",
        help="The ledger: a URL, or the path of a SQLite file. Default: the first --sink that is a database.",
    ),
]
SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        envvar="ONCEONLY_SINK",
        metavar="KIND:TARGET",
        help="Address of a sink; may be given more than once. Default: the sinks that the ledger knows.",
    ),
]
NamedSinkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        envvar="ONCEONLY_SINK",
        metavar="ID",
        help="Id of the sink that is meant, as status prints it; or the address (KIND:TARGET) of a sink that the "
        "ledger does not know. May be given more than once.",
    ),
]
QueryOption = Annotated[
    str | None,
    typer.Option(
        "--query",
        "-q",
        envvar="ONCEONLY_QUERY",
        metavar="NAME",
        help="Name of the pipeline. Default: every pipeline of the ledger, or the only one if the command takes one.",
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pipeline.")]
OnlyArgument = Annotated[str | None, typer.Argument(metavar="NAME", help="The same as --query.")]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", envvar="ONCEONLY_OUTPUT", help="A table for people, JSON for programs.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Your reason, for the marker and the ledger.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this only the plan is printed.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show this many of the newest.")]
EveryOption = Annotated[float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Poll interval in seconds.")]


def one_name(context: typer.Context, name: str | None, query: str | None) -> str | None:
    """The pipeline that is meant, where its name may stand by itself or behind ``--query`` (E110: two were typed)."""
    source = context.get_parameter_source("query")
    typed = source is not None and source.name == "COMMANDLINE"
    if name is not None and typed and query != name:
        raise misused(
            f'Two pipelines were named: "{name}" and, by --query, "{query}".',
            "a NAME alone means the same as --query",
            "leave one of them out",
        )
    return query if name is None else name


_FROM_TO = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)\s*")


def epoch_range(text: str) -> range:
    """Epochs ``A..B``, both included (E110: it names no epochs)."""
    match = _FROM_TO.fullmatch(text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise misused(
            f"A..B {text!r} names no epochs.",
            "it takes the first and the last one, both included",
            "1..7, or 7..7 for one",
        )
    return range(int(match[1]), int(match[2]) + 1)
