"""Options that several commands share, each with its environment variable."""

from __future__ import annotations

from typing import Annotated

import typer

from onceonly.cli.output import Output
from onceonly.errors import refuse

LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="ONCEONLY_LEDGER",
        metavar="URL_OR_PATH",
        help="The ledger: a URL, or the path of a SQLite file. Default: the database of the first --sink that is one.",
    ),
]
SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        envvar="ONCEONLY_SINK",
        metavar="KIND:TARGET",
        help="Address of a sink, may repeat. Default: those that the ledger knows.",
    ),
]
QueryOption = Annotated[
    str | None,
    typer.Option(
        "--query",
        "-q",
        envvar="ONCEONLY_QUERY",
        metavar="NAME",
        help="Name of the pipeline. Default: all that the ledger knows; where one is wanted, the only one.",
    ),
]
OnlyArgument = Annotated[str | None, typer.Argument(metavar="NAME", help="The same as --query.")]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", envvar="ONCEONLY_OUTPUT", help="A table for people, JSON for programs.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this only the plan is printed.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show this many of the newest.")]
EveryOption = Annotated[float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Seconds between two looks.")]


def one_name(context: typer.Context, name: str | None, query: str | None) -> str | None:
    """The pipeline that is meant, where its name may stand by itself or behind ``--query``.

    Raises:
        ConfigurationError: E110, two were typed.
    """
    source = context.get_parameter_source("query")
    typed = source is not None and source.name == "COMMANDLINE"
    if name is not None and typed and query != name:
        raise refuse(
            "E110",
            problem=f'Two pipelines were named: "{name}" and, by --query, "{query}".',
            cause="a name that stands by itself means the same as --query",
            next="leave one of them out",
        )
    return query if name is None else name
