"""Data on stdout, talk on stderr; tables for people, JSON for programs; colour only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

SCHEMA_VERSION = 1
"""Version of every JSON form that a command prints."""

_UNBROKEN = 100_000
"""Width where there is no terminal: a row stays a line."""


class Output(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"


def console() -> Console:
    """The console for data. Made anew each time, so that it follows redirections and ``NO_COLOR``."""
    if sys.stdout.isatty():
        return Console(file=sys.stdout, highlight=False)
    return Console(file=sys.stdout, highlight=False, color_system=None, width=_UNBROKEN)


def say(text: str = "", style: str = "") -> None:
    """Print a line of data. The text is taken literally."""
    console().print(Text(text, style=style), soft_wrap=True)


def talk(text: str) -> None:
    """Print a line for people on stderr."""
    print(text, file=sys.stderr)


def emit_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document, with its schema version first."""
    print(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, ensure_ascii=False))


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table; on a pipe every row is one line."""
    screen = console()
    if title:
        say(title, style="bold")
    style = box.SIMPLE_HEAD if screen.is_terminal else None
    table = Table(*columns, box=style, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    if screen.is_terminal:
        screen.print(table)
        return
    with screen.capture() as captured:
        screen.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def emit_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair a line; further lines of a value stand below its first."""
    listed = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        first, *more = str(value).splitlines() or [""]
        say(f"{name:<{width}}  {first}")
        for line in more:
            say(f"{'':<{width}}  {line}")


def plural(count: int, noun: str) -> str:
    """Spell a count: ``1 epoch``, ``2 epochs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
