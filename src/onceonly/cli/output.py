"""Data on stdout, talk on stderr: tables, or JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onceonly_checkpoints.strenum import StrEnum

# ---- How a table fits a screen: texts are wrapped between words, and what has no blank is never cut.

GAP = 2
"""Columns of the screen between two columns of a table."""

_READABLE = 16
"""A text is not squeezed into fewer columns than this, where it needs more."""

_NAME = 24
"""A word of more columns than this may stand below its row, so that the others need not wait for it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns stand side by side.

    Attributes:
        widths: of each column that does, by its place.
        below: places of those that do not: their values stand on lines of their own, below the row.
    """

    widths: dict[int, int]
    below: tuple[int, ...]

    @property
    def width(self) -> int:
        """Columns of the screen that a row takes."""
        return _total(self.widths.values())

    def beneath(self, row: Sequence[str]) -> list[int]:
        """Places of a row's values that stand below it."""
        return sorted([*self.below, *(at for at, width in self.widths.items() if _word(row[at]) > width)])


def fitted(rows: Sequence[Sequence[str]], width: int) -> Layout:
    """Fit a table, its header first, into a screen of ``width`` columns."""
    columns = list(zip(*rows, strict=True))
    full_widths = {at: max(map(_longest_line, column)) for at, column in enumerate(columns)}
    if _total(full_widths.values()) <= width:
        return Layout(full_widths, ())
    # What a column is as wide as: the values that stand in it, not one that will stand below its row.
    short = {at: [cell for cell in column if _word(cell) <= _NAME] for at, column in enumerate(columns)}
    full_widths = {at: max(map(_longest_line, cells), default=0) for at, cells in short.items()}
    least = {at: _least(cells, full_widths[at]) for at, cells in short.items()}
    inline_columns = [at for at in full_widths if at == 0 or min(map(_word, columns[at][1:]), default=0) <= _NAME]
    while len(inline_columns) > 1 and _total(least[at] for at in inline_columns) > width:
        inline_columns.remove(max(inline_columns[1:], key=lambda at: (full_widths[at], at)))
    widths = {at: full_widths[at] for at in inline_columns}
    while _total(widths.values()) > width:
        loose = [at for at in inline_columns if widths[at] > least[at]]
        if not loose:
            break
        widths[max(loose, key=lambda at: widths[at])] -= 1
    return Layout(widths, tuple(at for at in full_widths if at not in widths))


def _total(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)


def _longest_line(cell: str) -> int:
    return max(map(cell_len, cell.splitlines()), default=0)


def _word(cell: str) -> int:
    return max(map(cell_len, cell.split()), default=0)


def _least(cells: Sequence[str], full_width: int) -> int:
    """Columns without which a word would be cut, or a text be hard to read."""
    return max(max(map(_word, cells), default=0), min(full_width, _READABLE))


# ---- What goes where; colour only on a terminal.

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


def emit_line(document: Mapping[str, Any]) -> None:
    """Print one JSON document as a line, for a reader that follows."""
    print(json.dumps({"schema_version": SCHEMA_VERSION, **document}, ensure_ascii=False), flush=True)


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
    screen.print(_column_row(header, layout, "bold"))
    screen.print("─" * min(screen.width, layout.width), style="dim")
    for row in rest:
        beneath = layout.beneath(row)
        screen.print(_column_row(["" if at in beneath else cell for at, cell in enumerate(row)], layout))
        for at in beneath:
            if row[at]:
                say(f"  {header[at]}  {row[at]}")


def _column_row(row: Sequence[str], layout: Layout, style: str = "") -> Table:
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


def spell(milliseconds: int) -> str:
    """A length of time in one unit: ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    seconds = max(0, milliseconds) / 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
