"""Charts of the report, as Vega-Lite specifications.

Also computes the offsets that each sink took of each partition. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly.page import NAMES, TIP, layer, painted, quantity, room
from onceonly_lab.checker.reading import Reading
from onceonly_lab.report.lanes import Glyph, Lanes, Outcome
from onceonly_lab.strenum import StrEnum

# ---- What each sink took of each source partition, as bars over the offsets: holes and overlaps are seen. Pure.

INPUT = "input"
"""The lane of what the source holds."""


class Stretch(StrEnum):
    """What a bar is."""

    INPUT = "input"
    TAKEN = "taken"
    AGAIN = "taken again"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of offsets.

    Attributes:
        lane: the input, or a sink.
        start: first offset.
        end: the one behind the last.
        what: taken once, again, or left out.
        epoch: of a sink's stretch, the epoch that took it or should have; ``None`` at the end of what a sink took.
    """

    lane: str
    start: int
    end: int
    what: Stretch
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of the source.

    Attributes:
        name: as the history names it.
        lanes: the input and the sinks, in order.
        bars: in the order of the lanes, then of the epochs.
    """

    name: str
    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]

    @property
    def sound(self) -> bool:
        """Whether each sink took everything, once."""
        return not any(bar.what in (Stretch.AGAIN, Stretch.LEFT_OUT) for bar in self.bars)


def partitions(reading: Reading) -> tuple[Partition, ...]:
    """Every partition, broken ones first; none where the history tells no slices."""
    ends = _input(reading)
    for commits in reading.landed.values():
        for span in commits[0].call.said.slice or ():
            ends.setdefault(span.partition, (span.start, span.start))
    lanes = (INPUT, *reading.case.sinks)
    all_partitions = [Partition(name, lanes, tuple(_bars(reading, name, ends[name]))) for name in ends]
    return tuple(sorted(all_partitions, key=lambda partition: partition.sound))


def _input(reading: Reading) -> dict[str, tuple[int, int]]:
    ends: dict[str, tuple[int, int]] = {}
    for entry in reading.case.inputs:
        for span in entry.slice or ():
            low, high = ends.get(span.partition, (span.start, span.end))
            ends[span.partition] = (min(low, span.start), max(high, span.end))
    return ends


def _bars(reading: Reading, partition: str, ends: tuple[int, int]) -> Iterator[Bar]:
    first, last = ends
    if last > first:
        yield Bar(INPUT, first, last, Stretch.INPUT)
    for sink in reading.case.sinks:
        epoch_spans = _taken(reading, sink, partition)
        yield from _stretches(sink, epoch_spans, first)
        yield from _doubled(reading, sink, partition)
        position = max((end for _, end in epoch_spans.values()), default=first)
        # A sink of which the history tells no commit is judged by its rows alone: nothing says what it took.
        if reading.case.settled and sink in reading.case.committing and position < last:
            yield Bar(sink, position, last, Stretch.LEFT_OUT)


def _doubled(reading: Reading, sink: str, partition: str) -> Iterator[Bar]:
    """An epoch that two commits brought, with no restore between them that had taken the first away."""
    for epoch in reading.epochs(sink):
        first, *more = reading.landings(sink, epoch)
        for commit in more:
            if reading.case.last_restore(sink, commit.at) < first.at:
                for span in commit.call.said.slice or ():
                    if span.partition == partition:
                        yield Bar(sink, span.start, span.end, Stretch.AGAIN, epoch)


def _taken(reading: Reading, sink: str, partition: str) -> Mapping[int, tuple[int, int]]:
    epoch_spans: dict[int, tuple[int, int]] = {}
    for epoch in reading.epochs(sink):
        commit = reading.explains(sink, epoch)
        for span in (commit.call.said.slice or ()) if commit else ():
            if span.partition == partition:
                epoch_spans[epoch] = (span.start, span.end)
    return epoch_spans


def _stretches(sink: str, epoch_spans: Mapping[int, tuple[int, int]], position: int) -> Iterator[Bar]:
    for epoch, (start, end) in epoch_spans.items():
        if start > position:
            yield Bar(sink, position, start, Stretch.LEFT_OUT, epoch)
        overlap_end = min(position, end)
        if start < overlap_end:
            yield Bar(sink, start, overlap_end, Stretch.AGAIN, epoch)
        if max(start, overlap_end) < end:
            yield Bar(sink, max(start, overlap_end), end, Stretch.TAKEN, epoch)
        position = max(position, end)


# ---- The pictures of the report as Vega-Lite specifications. Pure: lanes and bars in, plain dictionaries out.

Spec = dict[str, Any]

_WIDTH = 860
_LANE = 28

PAINTS = {Outcome.YES: "exact", Outcome.NO: "marked", Outcome.UNKNOWN: "doubt", Outcome.OPEN: "absent"}
"""Colour and texture of an outcome, by the names that the page's style sheet has for them."""

STRETCHES = {Stretch.INPUT: "unknown", Stretch.TAKEN: "exact", Stretch.AGAIN: "doubled", Stretch.LEFT_OUT: "gap"}
"""Colour and texture of a stretch of offsets."""

SHAPES = {
    Glyph.KILL: "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",
    Glyph.PAUSE: "M-.8,-1L-.25,-1L-.25,1L-.8,1ZM.25,-1L.8,-1L.8,1L.25,1Z",
    Glyph.ANSWER: "M-1,0L.8,-1L.8,1Z",
    Glyph.REQUEST: "M1,0L-.8,-1L-.8,1Z",
    Glyph.LATE: "M0,-1L1,0L0,1L-1,0Z",
    Glyph.DAMAGE: "M-1,-.8L1,-.8L0,1Z",
    Glyph.READ: "M-.7,0A.7,.7,0,1,1,.7,0A.7,.7,0,1,1,-.7,0Z",
    Glyph.FINDING: "M0,-1L1,.8L-1,.8Z",
}
"""Outline of each sign in a square from -1 to 1: they differ in shape, not in colour alone."""

TONES = {Glyph.FINDING: "var(--gap)", Glyph.READ: "var(--muted)"}
"""Colours of signs; any other is a fault."""

FAULT = "var(--doubled)"


def _line(lanes: Lanes, field: str) -> Spec:
    axis = {"tickMinStep": 1, "format": "d", "tickCount": 12, "grid": False}
    scale = {"domain": [lanes.first - 1, lanes.last + 1], "nice": False, "zero": False}
    return quantity(field, "line of the history", scale=scale, axis=axis)


def _lane(lanes: Sequence[str], *, grid: bool) -> Spec:
    scale, axis = {"domain": list(lanes), "padding": 0.2}, {**NAMES, "grid": grid, "domain": False}
    return {"field": "lane", "type": "nominal", "scale": scale, "sort": None, "axis": axis}


def swim(lanes: Lanes) -> Spec:
    """Lanes from top to bottom, lines of the history from left to right."""
    x, y = _line(lanes, "from"), _lane(lanes.names, grid=True)
    return {
        "width": _WIDTH,
        "height": _LANE * len(lanes.names),
        "padding": room(lanes.names),
        "layer": [
            *_calm(lanes, x),
            *layer(_evidence(lanes), {"type": "rule", "color": "var(--gap)", "strokeDash": [2, 3]}, x=x),
            *layer(_lives(lanes), {"type": "rule", "color": "var(--muted)"}, x=x, x2={"field": "to"}, y=y),
            *_calls(lanes, x, y),
            *_signs(lanes, x, y),
        ],
    }


def _calm(lanes: Lanes, x: Spec) -> Iterator[Spec]:
    """Where nothing is broken any more the ground is shaded."""
    if lanes.settled is not None:
        begin = max(lanes.settled - 0.5, lanes.first - 1)
        values = [{"from": begin, "to": lanes.last + 1, "tip": f"from line {lanes.settled} on nothing is broken"}]
        mark = {"type": "rect", "color": "var(--band)"}
        yield from layer(values, mark, x=x, x2={"field": "to"}, description=TIP)


def _evidence(lanes: Lanes) -> Iterator[Spec]:
    return ({"from": sign.at} for sign in lanes.signs if sign.glyph is Glyph.FINDING)


def _lives(lanes: Lanes) -> Iterator[Spec]:
    for life in lanes.lives:
        begin, end = max(life.begin, lanes.first - 1), min(life.end, lanes.last + 1)
        yield {"lane": life.lane, "from": begin, "to": end}


_OUTCOMES = painted("outcome", PAINTS)
_STRETCHES = painted("what", STRETCHES)


def _calls(lanes: Lanes, x: Spec, y: Spec) -> Iterator[Spec]:
    encoding = {"x": x, "x2": {"field": "to"}, "y": y, "color": _OUTCOMES, "description": TIP}
    for wide, height in ((False, 0.32), (True, 0.78)):
        bars = [bar for bar in lanes.bars if bar.wide is wide]
        values = [
            {
                "lane": bar.lane,
                "from": max(bar.begin - 0.4, lanes.first - 1),
                "to": min(bar.end + 0.4, lanes.last + 1),
                "outcome": bar.outcome,
                "tip": bar.tip,
            }
            for bar in bars
        ]
        outline = {"stroke": "var(--muted)", "strokeWidth": 0.6}
        yield from layer(values, {"type": "bar", "height": {"band": height}, **outline}, **encoding)
    yield from _numbers(lanes, x, y)


def _numbers(lanes: Lanes, x: Spec, y: Spec) -> Iterator[Spec]:
    """The epoch behind every commit, in the lane of its sink, where there is room for it."""
    commits = [bar for bar in lanes.bars if bar.wide and bar.lane.startswith("→") and bar.outcome is not Outcome.NO]
    values = [
        {"lane": bar.lane, "from": bar.end + 0.7, "said": str(bar.epoch)}
        for bar in commits
        if bar.epoch is not None and bar.end < lanes.last
    ]
    if len(commits) <= 40:
        mark = {"type": "text", "align": "left", "fontSize": 10, "color": "var(--ink)"}
        yield from layer(values, mark, x=x, y=y, text={"field": "said"})


def _signs(lanes: Lanes, x: Spec, y: Spec) -> Iterator[Spec]:
    for glyph in Glyph:
        values = [{"lane": sign.lane, "from": sign.at, "tip": sign.tip} for sign in lanes.signs if sign.glyph is glyph]
        mark = {
            "type": "point",
            "shape": SHAPES[glyph],
            "size": 110,
            "filled": True,
            "opacity": 1,
            "color": TONES.get(glyph, FAULT),
            "stroke": "var(--surface)",
            "strokeWidth": 0.8,
        }
        yield from layer(values, mark, x=x, y=y, description=TIP)


def offsets(partition: Partition) -> Spec:
    """The input and each sink as bars over the offsets; a hole or an overlap is a bar of its own colour and texture."""
    values = [
        {
            "lane": bar.lane,
            "from": bar.start,
            "to": bar.end,
            "middle": (bar.start + bar.end) / 2,
            "what": bar.what,
            "said": "" if bar.epoch is None else str(bar.epoch),
            "tip": f"{bar.lane} {bar.what}, {bar.start:,} to {bar.end:,}"
            + ("" if bar.epoch is None else f", epoch {bar.epoch}"),
        }
        for bar in partition.bars
    ]
    axis = {"tickMinStep": 1, "format": ",d", "tickCount": 10, "grid": False}
    x = quantity("from", "offset", axis=axis, scale={"zero": False, "nice": False})
    y = _lane(partition.lanes, grid=False)
    mark = {"type": "bar", "stroke": "var(--surface)", "strokeWidth": 1.5}
    numbers = {"type": "text", "fontSize": 10, "color": "var(--surface)", "fontWeight": "bold"}
    labelled_bars = [value for value in values if value["what"] is Stretch.TAKEN]
    layers = [
        *layer(values, mark, x=x, x2={"field": "to"}, y=y, color=_STRETCHES, description=TIP),
        *layer(
            labelled_bars if len(values) <= 60 else [], numbers, x={**x, "field": "middle"}, y=y, text={"field": "said"}
        ),
    ]
    height = _LANE * len(partition.lanes)
    return {"width": _WIDTH, "height": height, "padding": room(partition.lanes), "layer": layers}
