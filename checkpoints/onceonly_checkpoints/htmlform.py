"""How a notebook shows our values: a bare table, readable without style or script, and small in a saved file."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> str:
    """An HTML table; every cell is text, whatever stands in it."""
    width = max(1, len(columns))
    above = [f"<tr><th colspan={width}>{_text(title)}</th></tr>"] if title else []
    head = [_row("th", columns)] if columns else []
    return f"<table>{''.join([*above, *head, *(_row('td', row) for row in rows)])}</table>"


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values. A row without a name is a heading over both columns."""
    made = (
        f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>"
        if name
        else f"<tr><th colspan=2>{_text(value)}</th></tr>"
        for name, value in rows
    )
    return f"<table>{''.join(made)}</table>"


def words(text: str) -> str:
    """A paragraph of text."""
    return f"<p>{_text(text)}</p>"


def place(position: Iterable[tuple[str, object]]) -> str:
    """Coordinates in words: ``version 12``."""
    return ", ".join(f"{name} {value}" for name, value in position)


def _row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{_text(cell)}</{kind}>' for cell in cells)}</tr>"


def _text(value: object) -> str:
    return html.escape("" if value is None else str(value))
