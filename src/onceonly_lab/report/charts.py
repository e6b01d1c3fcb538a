"""The pictures of the report as Vega-Lite specifications. Pure: lanes and bars in, plain dictionaries out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onceonly_lab.report.lanes import Glyph, Lanes, Outcome
from onceonly_lab.report.offsets import Partition, Stretch

Spec = dict[str, Any]

_WIDTH = 860
_LANE = 28
_NAMES = {"labelLimit": 190, "title": None, "grid": True, "domain": False}

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


def _paint(key: str) -> str:
    return f"var(--{key})" if key == "exact" else f"url(#paint-{key})"


def _line(lanes: Lanes, field: str) -> Spec:
    axis = {"tickMinStep": 1, "format": "d", "tickCount": 12, "grid": False}
    scale = {"domain": [lanes.first - 1, lanes.last + 1], "nice": False, "zero": False}
    return {
        "field": field,
        "type": "quantitative",
        "title": "line of the history",
        "scale": scale,
        "axis": axis,
    }


def _lane(lanes: Sequence[str], **more: Any) -> Spec:
    return {
        "field": "lane",
        "type": "nominal",
        "scale": {"domain": list(lanes), "padding": 0.2},
        "sort": None,
        "axis": _NAMES,
        **more,
    }


def swim(lanes: Lanes) -> Spec:
    """Lanes from top to bottom, lines of the history from left to right."""
    x, y = _line(lanes, "from"), _lane(lanes.names)
    return {
        "width": _WIDTH,
        "height": _LANE * len(lanes.names),
        "padding": _room(lanes.names),
        "layer": [
            *_calm(lanes, x),
            *_layer(_evidence(lanes), {"type": "rule", "color": "var(--gap)", "strokeDash": [2, 3]}, {"x": x}),
            *_layer(_lives(lanes), {"type": "rule", "color": "var(--muted)"}, {"x": x, "x2": {"field": "to"}, "y": y}),
            *_calls(lanes, x, y),
            *_signs(lanes, x, y),
        ],
    }


def _room(names: Iterable[str]) -> Spec:
    """Names are measured in one font and shown in another, perhaps a wider one."""
    longest = max((len(name) for name in names), default=0)
    return {"left": 8 + min(32, longest) * 1.5, "right": 12, "top": 5, "bottom": 5}


def _layer(values: Iterable[Spec], mark: Spec, encoding: Spec) -> Iterator[Spec]:
    listed = list(values)
    if listed:
        yield {"data": {"values": listed}, "mark": mark, "encoding": encoding}


def _calm(lanes: Lanes, x: Spec) -> Iterator[Spec]:
    """Where nothing is broken any more the ground is shaded."""
    if lanes.settled is not None:
        begin = max(lanes.settled - 0.5, lanes.first - 1)
        values = [{"from": begin, "to": lanes.last + 1, "tip": f"from line {lanes.settled} on nothing is broken"}]
        mark = {"type": "rect", "color": "var(--band)"}
        yield from _layer(values, mark, {"x": x, "x2": {"field": "to"}, "description": _TIP})


def _evidence(lanes: Lanes) -> Iterator[Spec]:
    return ({"from": sign.at} for sign in lanes.signs if sign.glyph is Glyph.FINDING)


def _lives(lanes: Lanes) -> Iterator[Spec]:
    for life in lanes.lives:
        begin, end = max(life.begin, lanes.first - 1), min(life.end, lanes.last + 1)
        yield {"lane": life.lane, "from": begin, "to": end}


_TIP = {"field": "tip", "type": "nominal"}
_OUTCOMES = {
    "field": "outcome",
    "type": "nominal",
    "scale": {"domain": list(PAINTS), "range": [_paint(key) for key in PAINTS.values()]},
    "legend": None,
}


def _calls(lanes: Lanes, x: Spec, y: Spec) -> Iterator[Spec]:
    encoding = {"x": x, "x2": {"field": "to"}, "y": y, "color": _OUTCOMES, "description": _TIP}
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
        yield from _layer(values, {"type": "bar", "height": {"band": height}, **outline}, encoding)
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
        yield from _layer(values, mark, {"x": x, "y": y, "text": {"field": "said"}})


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
        yield from _layer(values, mark, {"x": x, "y": y, "description": _TIP})


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
    x: Spec = {"field": "from", "type": "quantitative", "title": "offset", "axis": axis}
    x["scale"] = {"zero": False, "nice": False}
    y = _lane(partition.lanes, axis={**_NAMES, "grid": False})
    colour = {
        "field": "what",
        "type": "nominal",
        "scale": {"domain": list(STRETCHES), "range": [_paint(key) for key in STRETCHES.values()]},
        "legend": None,
    }
    mark = {"type": "bar", "stroke": "var(--surface)", "strokeWidth": 1.5}
    bars = {"x": x, "x2": {"field": "to"}, "y": y, "color": colour, "description": _TIP}
    layers = list(_layer(values, mark, bars))
    if len(values) <= 60:
        numbers = {"type": "text", "fontSize": 10, "color": "var(--surface)", "fontWeight": "bold"}
        encoding = {"x": {**x, "field": "middle"}, "y": y, "text": {"field": "said"}}
        taken = [value for value in values if value["what"] is Stretch.TAKEN]
        layers += _layer(taken, numbers, encoding)
    height = _LANE * len(partition.lanes)
    return {"width": _WIDTH, "height": height, "padding": _room(partition.lanes), "layer": layers}
