"""Draws the figures of Streaming 102 from what a run wrote: RUN.json FOLDER, where the run is ``make streaming102``'s.

Event time goes to the right, processing time up. A dot is a record, where it happened and when it arrived; a bar is a
result, over its window and at the instant at which it was written; the line is what was noted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "tests" / "panes" / "data"
NOON_S = 12 * 3600
DAY_S = 86_400

WIDTH, HEIGHT, LEFT, RIGHT, TOP = 660, 400, 52, 24, 16
INK, FAINT, DOT, NOTED = "#263238", "#cfd8dc", "#90a4ae", "#b0842a"
HALO_FROM = 12
"""Words that are larger are set off from what they lie on."""

COLOURS = {"EARLY": "#2e7d9a", "ON_TIME": "#2e7d32", "LATE": "#b3541e"}
FIRST_UP, LAST_UP = 4, 11
"""Minutes of processing time that are drawn."""


@dataclass(frozen=True)
class Frame:
    """Where times are drawn.

    Attributes:
        first: minute of the left edge.
        last: of the right edge.
    """

    first: int
    last: int

    def across(self, seconds: float) -> float:
        """Place of a time of the day on the axis to the right."""
        wide = (WIDTH - LEFT - RIGHT) / (self.last - self.first)
        return LEFT + (min(max((seconds - NOON_S) / 60, self.first), self.last) - self.first) * wide

    def up(self, seconds: float) -> float:
        """Place of a time of the day on the axis upwards."""
        high = (HEIGHT - TOP - 30) / (LAST_UP - FIRST_UP)
        return HEIGHT - 30 - (min(max((seconds - NOON_S) / 60, FIRST_UP), LAST_UP) - FIRST_UP) * high


def seconds(clock: str) -> float:
    """A time of the day; the end of time is far to the right."""
    if clock.endswith("inf"):
        return float("inf")
    hours, minutes, rest = map(int, clock.split(":"))
    return hours * 3600 + minutes * 60 + rest


def of_day(milliseconds: int) -> float:
    """An instant as a time of its day."""
    return milliseconds / 1000 % DAY_S


def text(x: float, y: float, said: str, *, colour: str = INK, anchor: str = "middle", size: int = 12) -> str:
    """A word."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    if size > HALO_FROM:
        place += ' paint-order="stroke" stroke="#ffffff" stroke-width="3"'
    return f"<text {place}>{escape(said)}</text>"


def axes(frame: Frame, right: str) -> Iterator[str]:
    """Lines of minutes and their names."""
    for minute in range(frame.first, frame.last + 1):
        x = frame.across(NOON_S + minute * 60)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - 30}" stroke="{FAINT}"/>'
        if minute % 2 == 0:
            yield text(x, HEIGHT - 15, f"12:{minute:02}", size=11)
    for minute in range(FIRST_UP, LAST_UP + 1):
        y = frame.up(NOON_S + minute * 60)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{FAINT}"/>'
        yield text(LEFT - 6, y + 4, f"12:{minute:02}", anchor="end", size=11)
    yield text(WIDTH / 2, HEIGHT - 2, f"{right}; upwards: processing time", size=10)


def dots(frame: Frame, epochs: Sequence[Any], *, ingest: bool) -> Iterator[str]:
    """The records, each where it happened and when it arrived: before its epoch only where one epoch has them all."""
    arrived = arrivals() if len(epochs) == 1 else {}
    for epoch in epochs:
        for value, happened in epoch["rows"]:
            came = seconds(arrived.get(happened, epoch["clock"]))
            x, y = frame.across(came if ingest else seconds(happened)), frame.up(came)
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="{DOT}"/>'
            yield text(x, y + 4, str(value), colour="#ffffff")


def arrivals() -> Mapping[str, str]:
    """When each record arrived in the first order, by when it happened."""
    records = json.loads((DATA / "streaming102.json").read_text())["records"]
    return {record["event"]: record["arrival_a"] for record in records}


def noted(frame: Frame, epochs: Sequence[Any]) -> Iterator[str]:
    """What was noted, from epoch to epoch."""
    points, last = [], None
    for epoch in epochs:
        said = epoch["noted"]
        if said is None:
            continue
        y = frame.up(seconds(epoch["clock"]))
        if last is not None:
            points.append(f"{last:.1f},{y:.1f}")
        last = frame.across(seconds(said))
        points.append(f"{last:.1f},{y:.1f}")
    if points:
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{NOTED}" stroke-width="1.5"/>'


def results(frame: Frame, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each result over its window, and beside it what it takes back."""
    taken: list[str] = []
    for row in rows:
        if row["sign"] < 0:
            taken.append(f"\N{MINUS SIGN}{row['total']}")
            continue
        colour, y = COLOURS[row["timing"]], frame.up(of_day(row["fired_at"]))
        start = frame.across(of_day(row["start"]) if row["start"] is not None else 0)
        end = frame.across(of_day(row["end"]) if row["end"] is not None else float("inf"))
        where = f'x1="{start + 3:.1f}" x2="{end - 3:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
        yield f'<line {where} stroke="{colour}" stroke-width="3"/>'
        said = ", ".join([str(row["total"]), *taken])
        yield text((start + end) / 2, y - 5, said, colour=colour, size=14)
        taken = []


def legend() -> Iterator[str]:
    """What colours say."""
    for place, (name, colour) in enumerate([*COLOURS.items(), ("noted", NOTED)]):
        x = LEFT + 10 + 80 * place
        yield f'<line x1="{x}" x2="{x + 16}" y1="{TOP - 6}" y2="{TOP - 6}" stroke="{colour}" stroke-width="3"/>'
        yield text(x + 20, TOP - 2, name.lower().replace("_", " "), anchor="start", size=11)


def picture(name: str, epochs: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """One figure as SVG."""
    ingest = "row 8" in name
    frame = Frame(4, 12) if ingest else Frame(0, 10)
    right = "ingest time to the right" if ingest else "event time to the right"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f"<title>{escape(name)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *axes(frame, right),
        *legend(),
        *noted(frame, epochs),
        *dots(frame, epochs, ingest=ingest),
        *results(frame, rows),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def slug(name: str) -> str:
    """Name of the file."""
    return name.lower().replace(" ", "-")


def main(run: str, folder: str) -> int:
    """Draw each figure of a run."""
    told = json.loads((DATA / "streaming102_expected.json").read_text())["cases"]
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name, rows in json.loads(Path(run).read_text())["rows"].items():
        (place / f"{slug(name)}.svg").write_text(picture(name, told[name]["epochs"], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
