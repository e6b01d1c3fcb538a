"""Draw the steps of an epoch and the result of a crash at each; writes ``docs/images/epoch.svg``, or the file named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "epoch.svg"
TITLE = "One epoch: its steps, and the result of a crash at each of them"

STEPS = (
    (("Batch", "its rows and", "source offsets"), ("nothing is written;", "Spark runs the", "batch again")),
    (("Stage", "rows in files, for", "several sinks"), ("nothing is visible;", "Spark runs the", "batch again")),
    (
        ("Commit", "rows and marker, in", "one sink after another"),
        ("a sink that is behind", "gets the staged rows", ""),
    ),
    (("Ledger", "record of", "the epoch"), ("the ledger is filled", "from the markers", "in the sinks")),
    (
        ("Commit log", "Spark's record", "of the batch"),
        ("before this record:", "Spark repeats the batch,", "onceonly skips it"),
    ),
)
"""Heading and two lines of a step, and three lines for a crash in it."""

_WIDTH, _HEIGHT, _GAP = 150, 70, 22
_STYLE = "font-family:ui-sans-serif,system-ui,sans-serif;font-size:12px;background:#fff"


def picture() -> str:
    """Return the picture as SVG."""
    width = len(STEPS) * (_WIDTH + _GAP) + _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 190" role="img"'
    parts = [f'{head} aria-label="{TITLE}" style="{_STYLE}">', f"<title>{TITLE}</title>"]
    for position, (step, crash) in enumerate(STEPS):
        parts += _column(_GAP + position * (_WIDTH + _GAP), step, crash)
        if position:
            parts.append(_arrow(_GAP + position * (_WIDTH + _GAP)))
    return "\n".join([*parts, "</svg>\n"])


def _column(x: int, step: tuple[str, ...], crash: tuple[str, ...]) -> Iterator[str]:
    yield f'<rect x="{x}" y="14" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="#ddebf7" stroke="#57606a"/>'
    yield from _lines(x, 34, step, "#1f2328", bold=True)
    middle = x + _WIDTH // 2
    yield f'<path d="M{middle} 88 v16" stroke="#cf222e" stroke-dasharray="3 3" fill="none"/>'
    yield from _lines(x, 120, ("A crash here:", *crash), "#82071e", bold=True)


def _lines(x: int, y: int, lines: tuple[str, ...], color: str, *, bold: bool) -> Iterator[str]:
    for number, line in enumerate(lines):
        weight = ' font-weight="600"' if bold and not number else ""
        place = f'x="{x + _WIDTH // 2}" y="{y + 18 * number}" text-anchor="middle"'
        yield f'<text {place}{weight} fill="{color}">{escape(line)}</text>'


def _arrow(x: int) -> str:
    y = 14 + _HEIGHT // 2
    return f'<path d="M{x - _GAP + 2} {y} h{_GAP - 6} m-5 -4 l5 4 l-5 4" stroke="#57606a" fill="none"/>'


if __name__ == "__main__":
    (Path(sys.argv[1]) if sys.argv[1:] else PICTURE).write_text(picture())
