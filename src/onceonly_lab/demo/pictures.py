"""Pictures of the demo as SVG files: windows, necessary conditions, reads.

Each is drawn from the results of a run, opens without a network, and needs no font of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from onceonly_lab.demo.claims import Newest, Reads
from onceonly_lab.demo.streaming102 import Result
from onceonly_lab.necessity.crashes import Shown, spelled
from onceonly_lab.necessity.designs import VARIANTS
from onceonly_lab.necessity.world import MEANING, Function, Symptom

INK, FAINT, DOT, WATERMARK, KILL = "#263238", "#cfd8dc", "#90a4ae", "#b0842a", "#b4261c"
CLEAN, BROKEN = "#2e7d32", "#b3541e"
_HALO_FROM = 12
"""Words that are larger are set off from the lines behind them."""


def document(width: int, height: int, title: str, parts: Iterator[str]) -> str:
    """A whole picture."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, *, colour: str = INK, anchor: str = "middle", size: int = 12) -> str:
    """A line of words."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    if size > _HALO_FROM:
        place += ' paint-order="stroke" stroke="#ffffff" stroke-width="3"'
    return f"<text {place}>{escape(words)}</text>"


def line(start: tuple[float, float], end: tuple[float, float], colour: str, width: float = 1.0, dash: str = "") -> str:
    """A straight line."""
    (x1, y1), (x2, y2) = start, end
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f"<line {place} {_stroke(colour, width, dash)}/>"


def polyline(points: Sequence[tuple[float, float]], colour: str, width: float = 1.5, dash: str = "") -> str:
    """A line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" {_stroke(colour, width, dash)}/>'


def _stroke(colour: str, width: float, dash: str) -> str:
    wide = f' stroke-width="{width:g}"' if width != 1 else ""
    return f'stroke="{colour}"{wide}' + (f' stroke-dasharray="{dash}"' if dash else "")


def box(left: float, top: float, right: float, bottom: float, colour: str) -> str:
    """A filled rectangle."""
    place = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
    return f'<rect {place} fill="{colour}"/>'


def legend(x: float, y: float, entries: Mapping[str, str], step: int = 80) -> Iterator[str]:
    """Names of colours, from left to right."""
    for place, (name, colour) in enumerate(entries.items()):
        left = x + step * place
        yield line((left, y), (left + 16, y), colour, 3)
        yield text(left + 20, y + 4, name, anchor="start", size=11)


# ---- A figure of Streaming 102. Event time goes right, processing time up. A dot is a record, by event time and
# arrival. A bar is a result, over its window and at the instant at which it was written.

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 660, 400, 52, 24, 16, 30
COLOURS = {"EARLY": "#2e7d9a", "ON_TIME": CLEAN, "LATE": BROKEN}
_NOON_S, _DAY_S = 12 * 3600, 86_400
_FIRST_UP, _LAST_UP = 4, 11
"""Minutes of processing time that are drawn."""


@dataclass(frozen=True)
class Frame:
    """Minutes after noon at the left and right edge."""

    first: int
    last: int

    def across(self, seconds: float) -> float:
        """Place of a time of the day on the axis to the right."""
        wide = (WIDTH - LEFT - RIGHT) / (self.last - self.first)
        return LEFT + (min(max((seconds - _NOON_S) / 60, self.first), self.last) - self.first) * wide

    def up(self, seconds: float) -> float:
        """Place of a time of the day on the axis upwards."""
        high = (HEIGHT - TOP - BOTTOM) / (_LAST_UP - _FIRST_UP)
        return HEIGHT - BOTTOM - (min(max((seconds - _NOON_S) / 60, _FIRST_UP), _LAST_UP) - _FIRST_UP) * high


def figure(
    name: str,
    epochs: Sequence[Any],
    rows: Sequence[Result],
    *,
    arrivals: Mapping[str, str] | None = None,
    killed: Sequence[int] = (),
) -> str:
    """One figure.

    Args:
        name: of the case.
        epochs: of its data: clock, rows and watermark of each.
        rows: results that a run wrote.
        arrivals: clock of each record's arrival, by its event time, where it is not that of its epoch.
        killed: numbers of epochs, from 1, in which a driver died.
    """
    ingest = "row 8" in name
    frame = Frame(4, 12) if ingest else Frame(0, 10)

    def parts() -> Iterator[str]:
        yield from _axes(frame, "ingest time to the right" if ingest else "event time to the right")
        names = {timing.lower().replace("_", " "): colour for timing, colour in COLOURS.items()}
        yield from legend(LEFT + 10, TOP - 6, {**names, "low watermark": WATERMARK})
        yield from _kills(frame, [epochs[number - 1]["clock"] for number in killed])
        yield from _watermark(frame, epochs)
        yield from _records(frame, epochs, arrivals or {}, ingest=ingest)
        yield from _results(frame, rows)

    return document(WIDTH, HEIGHT, name, parts())


def seconds_of(clock: str) -> float:
    """A time of the day; the end of time is far to the right."""
    if clock.endswith("inf"):
        return float("inf")
    hours, minutes, rest = map(int, clock.split(":"))
    return hours * 3600 + minutes * 60 + rest


def _axes(frame: Frame, right: str) -> Iterator[str]:
    for minute in range(frame.first, frame.last + 1):
        x = frame.across(_NOON_S + minute * 60)
        yield line((x, TOP), (x, HEIGHT - BOTTOM), FAINT)
        if minute % 2 == 0:
            yield text(x, HEIGHT - 15, f"12:{minute:02}", size=11)
    for minute in range(_FIRST_UP, _LAST_UP + 1):
        y = frame.up(_NOON_S + minute * 60)
        yield line((LEFT, y), (WIDTH - RIGHT, y), FAINT)
        yield text(LEFT - 6, y + 4, f"12:{minute:02}", anchor="end", size=11)
    yield text(WIDTH / 2, HEIGHT - 2, f"{right}; upwards: processing time", size=10)


def _kills(frame: Frame, clocks: Sequence[str]) -> Iterator[str]:
    for clock in clocks:
        y = frame.up(seconds_of(clock))
        yield line((LEFT, y), (WIDTH - RIGHT, y), KILL, 1.5, "6 4")
        yield text(WIDTH - RIGHT, y - 3, "SIGKILL", colour=KILL, anchor="end", size=10)


def _records(frame: Frame, epochs: Sequence[Any], arrivals: Mapping[str, str], *, ingest: bool) -> Iterator[str]:
    for epoch in epochs:
        for value, event_time in epoch["rows"]:
            arrived = seconds_of(arrivals.get(event_time, epoch["clock"]))
            x, y = frame.across(arrived if ingest else seconds_of(event_time)), frame.up(arrived)
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="{DOT}"/>'
            yield text(x, y + 4, str(value), colour="#ffffff")


def _watermark(frame: Frame, epochs: Sequence[Any]) -> Iterator[str]:
    points: list[tuple[float, float]] = []
    for epoch in epochs:
        if epoch["noted"] is not None:
            y = frame.up(seconds_of(epoch["clock"]))
            points += [(points[-1][0], y)] if points else []
            points.append((frame.across(seconds_of(epoch["noted"])), y))
    if points:
        yield polyline(points, WATERMARK)


def _results(frame: Frame, rows: Sequence[Result]) -> Iterator[str]:
    """Each result over its window, and beside it what it retracts."""
    retracted: list[str] = []
    for row in rows:
        if row.sign < 0:
            retracted.append(f"\N{MINUS SIGN}{row.total}")
            continue
        colour, y = COLOURS[row.timing], frame.up(_of_day(row.fired_at))
        start = frame.across(_of_day(row.start) if row.start is not None else 0)
        end = frame.across(_of_day(row.end) if row.end is not None else float("inf"))
        yield line((start + 3, y), (end - 3, y), colour, 3)
        yield text((start + end) / 2, y - 5, ", ".join([str(row.total), *retracted]), colour=colour, size=14)
        retracted = []


def _of_day(milliseconds: int) -> float:
    return milliseconds / 1000 % _DAY_S


def stacked(title: str, figures: Sequence[tuple[str, str]]) -> str:
    """Several figures below each other, each under its caption."""
    height = HEIGHT + 24

    def parts() -> Iterator[str]:
        for place, (caption, picture) in enumerate(figures):
            top = place * height
            yield text(LEFT, top + 18, caption, anchor="start", size=13)
            place_of = f'<svg x="0" y="{top + 24}" width="{WIDTH}" height="{HEIGHT}" '
            yield picture.replace("<svg ", place_of, 1).rstrip()

    return document(WIDTH, height * len(figures), title, parts())


# ---- Designs and what two crashes break in each.

_ROW, _NAMES, _LACKS, _CELL = 24, 320, 330, 310


def necessity(summary: Shown) -> str:
    """A row for each design, with the condition that it lacks; a column for each kind of computation."""
    tallies = {(tally.variant.name, tally.function): tally.counts for tally in summary.crashed}
    width, top = _NAMES + _LACKS + _CELL * len(Function) + 20, len(VARIANTS) + 3

    def parts() -> Iterator[str]:
        yield from _row(1, "design", "condition that it lacks", [str(function) for function in Function])
        for place, variant in enumerate(VARIANTS, start=2):
            counts = [tallies[variant.name, function] for function in Function]
            yield from _row(place, variant.name, variant.drops or "none", counts)
        yield from _row(top - 1, "two drivers, every order of their steps", "", [])
        for place, fencing in enumerate(summary.interleaved, start=top):
            yield from _row(place, fencing.fencing, "", [fencing.counts])
        for place, symptom in enumerate(Symptom, start=top - 1):
            words, left = f"{symptom}: {MEANING[symptom]}", _NAMES + _LACKS + _CELL + 6
            yield text(left, place * _ROW, words, anchor="start", size=11)

    return document(width, (top + len(Symptom)) * _ROW, f"{summary.runs:,} runs with up to two crashes", parts())


def _row(place: int, name: str, lacks: str, cells: Sequence[str | Mapping[Symptom, int]]) -> Iterator[str]:
    y = place * _ROW
    yield text(10, y, name, anchor="start", colour=INK)
    yield text(_NAMES, y, lacks, anchor="start", size=11)
    for column, cell in enumerate(cells):
        x = _NAMES + _LACKS + column * _CELL
        if isinstance(cell, str):
            yield text(x + 6, y, cell, anchor="start", size=11)
        else:
            yield box(x, y - 16, x + _CELL - 4, y + 5, BROKEN if cell else CLEAN)
            yield text(x + 6, y, spelled(cell), anchor="start", size=11, colour="#ffffff")


# ---- The newest epoch that each read saw, while drivers died: one statement over two tables, and over their views.

_READS_HIGH, _LOW = 340, 40
_LINES = {"first table": ("#2e7d9a", ""), "second table": (BROKEN, "5 3"), "both views": (CLEAN, "")}


def reads(seen: Reads, kills: Sequence[float]) -> str:
    """Newest epochs over seconds: two tables of one query, their views, and where drivers died."""
    end = max([*(sample.seconds for sample in seen.changes), *kills, 1.0])
    top = max([*(epoch for sample in seen.changes for epoch, _ in (*sample.tables, *sample.views)), 1])

    def place(seconds: float, epoch: float) -> tuple[float, float]:
        across = LEFT + seconds / end * (WIDTH - LEFT - RIGHT)
        return across, _READS_HIGH - _LOW - epoch / top * (_READS_HIGH - _LOW - 2 * TOP)

    def parts() -> Iterator[str]:
        yield from legend(LEFT, TOP - 6, {name: colour for name, (colour, _) in _LINES.items()}, 110)
        for epoch in range(0, top + 1, 2):
            yield line(place(0, epoch), place(end, epoch), FAINT)
            yield text(LEFT - 6, place(0, epoch)[1] + 4, str(epoch), anchor="end", size=11)
        for start, stop in _mixed(seen, end):
            (left, low), (right, high) = place(start, 0), place(stop, top)
            yield box(left, high, right, low, "#f6e3d3")
        for seconds in kills:
            yield line(place(seconds, 0), place(seconds, top), KILL, 1.5, "6 4")
            yield text(place(seconds, 0)[0], place(0, top)[1] - 3, "SIGKILL", colour=KILL, size=10)
        columns = [[sample.tables[0] for sample in seen.changes], [sample.tables[1] for sample in seen.changes]]
        for (colour, dash), column in zip(_LINES.values(), [*columns, [s.views[0] for s in seen.changes]], strict=True):
            yield polyline([place(*point) for point in _steps(seen, column, end)], colour, 2, dash)
        mixed = f"{seen.mixed_tables:,} of the tables (shaded), {seen.mixed_views:,} of the views"
        yield text(LEFT, _READS_HIGH - 22, "newest epoch upwards, seconds to the right: 0", anchor="start", size=10)
        yield text(WIDTH - RIGHT, _READS_HIGH - 22, f"{end:.0f} s", anchor="end", size=10)
        yield text(LEFT, _READS_HIGH - 6, f"{seen.done:,} reads, mixed: {mixed}", anchor="start")

    return document(WIDTH, _READS_HIGH, "Reads while drivers die", parts())


def _mixed(seen: Reads, end: float) -> Iterator[tuple[float, float]]:
    """Times at which the tables held different epochs."""
    ends = [*(sample.seconds for sample in seen.changes[1:]), end]
    for sample, stop in zip(seen.changes, ends, strict=True):
        if sample.tables[0] != sample.tables[1]:
            yield sample.seconds, stop


def _steps(seen: Reads, column: Sequence[Newest], end: float) -> Iterator[tuple[float, float]]:
    ends = [*(sample.seconds for sample in seen.changes[1:]), end]
    for sample, (epoch, _), stop in zip(seen.changes, column, ends, strict=True):
        yield sample.seconds, epoch
        yield stop, epoch
