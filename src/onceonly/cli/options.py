"""Options that several commands share, and the question before something is changed."""

from __future__ import annotations

import getpass
import re
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from onceonly.audit.catalogue import UNANSWERED
from onceonly.cli.errors import TYPED, json_wanted
from onceonly.cli.output import Output, emit_json, talk
from onceonly.errors import mask, refuse
from onceonly_checkpoints.model import Adoption, AdoptionKind

# ---- Asks before something is changed: the plan has been printed, ``--yes`` or a yes on the terminal carries it out.

_IN_URL = (
    (re.compile(r"(://[^:/?#@\s]*):[^/?#]*@"), r"\1@"),
    (re.compile(r"(?<=[?&])password=[^&#]*&?", re.IGNORECASE), ""),
)
_IN_PAIRS = re.compile(r"\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)\s*", re.IGNORECASE)
_SINK = re.compile(r"(?:--sink=|-s)?postgres:(?!//)")
_FROM_WHERE = "The password is not repeated: put it into PGPASSWORD or ~/.pgpass first."


def again(bound: Mapping[str, str] | None = None) -> str:
    """The command that is running, with ``--yes``, as it can be pasted; passwords are left out.

    Args:
        bound: words that say less than the plan does, with what is said instead.
    """
    said = ((bound or {}).get(word, word) for word in TYPED.get())
    return shlex.join(["onceonly", *(mask(without_password(word)) for word in said), "--yes"])


def without_password(word: str) -> str:
    """A word of the command line that leads to the same place: a URL, pairs of libpq, or a sink's address."""
    if _SINK.match(word):
        address, mark, table = word.rpartition("#")
        return f"{_without_password(address)}{mark}{table}" if mark else _without_password(word)
    return _without_password(word)


def _without_password(place: str) -> str:
    if "://" not in place:
        return _IN_PAIRS.sub("", place).rstrip() if _IN_PAIRS.search(place) else place
    for pattern, left in _IN_URL:
        place = pattern.sub(left, place)
    return place.rstrip("?&")


def confirmed(yes: bool, plan: Iterable[tuple[str, object]] = (), *, bound: Mapping[str, str] | None = None) -> bool:
    """Whether to go on.

    Args:
        yes: it was said in the command.
        plan: what would be done, for a command that prints JSON; in words it has been printed already.
        bound: as in :func:`again`.

    Raises:
        typer.Exit: with 2, nobody said yes; nothing was changed.
    """
    if yes or (sys.stdin.isatty() and not json_wanted() and typer.confirm("Do this?", err=True)):
        return True
    talk(f"Nothing was changed. To do it:\n{again(bound)}")
    if any(without_password(word) != word for word in TYPED.get()):
        talk(_FROM_WHERE)
    if json_wanted():
        emit_json({"changed": False, "plan": dict(plan), "next": again(bound)})
    raise typer.Exit(UNANSWERED)


# ---- Puts a name and a time to what an operator decides.


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What an operator is about to decide, to be shown before it happens.

    Attributes:
        accepted: the decision.
        pairs: the plan in words.
    """

    accepted: Adoption
    pairs: tuple[tuple[str, object], ...]


def because(reason: str) -> str:
    """What is put behind a decision in words; a decision without a reason has none."""
    return f": {reason}" if reason else ""


def decided(kind: AdoptionKind, reason: str, **named: Any) -> Adoption:
    """A decision of whoever runs this command, now.

    Args:
        kind: what is accepted.
        reason: why.
        named: what it names, as fields of ``Adoption``.
    """
    return Adoption(kind, reason=reason, who=_user(), at_ms=time.time_ns() // 1_000_000, **named)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        return ""


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
OnlyArgument = Annotated[str | None, typer.Argument(metavar="NAME", help="The same as --query.")]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", envvar="ONCEONLY_OUTPUT", help="A table for people, JSON for programs.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; goes into the marker and the ledger.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this only the plan is printed.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show this many of the newest.")]
EveryOption = Annotated[float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Poll interval in seconds.")]


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


_SPAN = re.compile(r"(\d+)(?:\.\.(\d+))?")


def span(text: str) -> tuple[int, int]:
    """Understand a range of epochs.

    Raises:
        ConfigurationError: E110, it is none.
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        raise refuse(
            "E110",
            problem=f"{text!r} is not a range of epochs.",
            cause="a range is written 3..5, one epoch 3",
            next="the message that asks for it prints the range",
        )
    return int(found[1]), int(found[2] or found[1])
