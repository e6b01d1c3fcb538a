"""Data on stdout, talk on stderr; tables for people, JSON for programs; colour only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onceonly.cli.layout import GAP, Layout, fitted

SCHEMA_VERSION = 1
"""Version of every JSON form that a command prints."""

_UNBROKEN = 100_000
"""Width where there is no terminal: a row stays a line."""


class Output(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"


def on_terminal() -> bool:
    """Whether data goes to a screen."""
    return sys.stdout.isatty()


def console() -> Console:
    """The console for data. Made anew each time, so that it follows redirections and ``NO_COLOR``."""
    if on_terminal():
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
    """Print a table; on a pipe every row is one line, on a terminal nothing is cut that has no blank."""
    screen = console()
    if title:
        say(title, style="bold")
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if screen.is_terminal:
        _on_screen(screen, [list(columns), *cells])
        return
    table = Table(*columns, box=None, pad_edge=False)
    for row in cells:
        table.add_row(*map(Text, row))
    with screen.capture() as captured:
        screen.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _on_screen(screen: Console, rows: Sequence[Sequence[str]]) -> None:
    layout = fitted(rows, screen.width)
    header, *rest = rows
    screen.print(_beside(header, layout, "bold"))
    screen.print("─" * min(screen.width, layout.width), style="dim")
    for row in rest:
        beneath = layout.beneath(row)
        screen.print(_beside(["" if at in beneath else cell for at, cell in enumerate(row)], layout))
        for at in beneath:
            if row[at]:
                say(f"  {header[at]}  {row[at]}")


def _beside(row: Sequence[str], layout: Layout, style: str = "") -> Table:
    line = Table(box=None, pad_edge=False, show_header=False, padding=(0, GAP, 0, 0))
    for width in layout.widths.values():
        line.add_column(width=width, overflow="fold")
    line.add_row(*(Text(row[at], style=style) for at in layout.widths))
    return line


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
