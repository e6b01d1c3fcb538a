"""Charts of the audit page as Vega-Lite specifications. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onceonly.audit.page.outcomes import Column, Grid, OffsetChart, Outcome
from onceonly.page import TIP, clock, lanes, layer, painted, quantity, room
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Event, EventKind

Spec = dict[str, Any]

_WIDTH = 900
_LANE = 26
SHORT = "format(datum.value, '~s')"
_DAY_MS = 86_400_000
_OUTCOMES = painted("outcome", {str(outcome): outcome.key for outcome in Outcome})
PHASES = 6
"""How many phases have a colour and texture of their own; the next begins again with the first."""

_BAD = {EventKind.FENCED, EventKind.FAILED, EventKind.DIVERGED}
_LINE = {"color": "var(--exact)", "strokeWidth": 1.8}
AREA = {"type": "area", "color": "var(--tint)", "line": _LINE, "interpolate": "step-after"}
FROM = {"field": "from", "type": "quantitative"}
"""The channel of epochs in a layer, whose picture has :func:`numbers`."""

_NARROWEST = 300
"""A bar is at least this part of the time axis wide, or it could not be seen."""


def ribbon(grid: Grid, events: Sequence[Event]) -> Spec:
    """Draw time from left to right, a lane per sink, with restarts as bands and refusals and fences as lines."""
    timed = [column for column in grid.columns if column.began_ms]
    if not timed:
        return {}
    begin, end = timed[0].began_ms, max(column.ended_ms for column in timed)
    narrowest = max(1, (end - begin) // _NARROWEST)
    bars = [bar for column in timed for bar in _bars(grid, column, narrowest)]
    time = moments(end - begin, 8)
    x, y = {"field": "began", **time}, lanes("sink", grid.sinks, {"padding": 0.25})
    drawn = layer(bars, {"type": "bar"}, x=x, x2={"field": "ended"}, y=y, color=_OUTCOMES, description=TIP)
    return {
        "width": _WIDTH,
        "height": (_LANE + 8) * len(grid.sinks),
        "padding": room(grid.sinks),
        "layer": [*_bands(events, begin, end, time), *drawn, *_stops(events, begin, end, time)],
    }


def moments(length_ms: int, ticks: int) -> Spec:
    """The channel of times, whose labels have a date where they span a day."""
    axis = {"format": "%H:%M:%S" if length_ms < _DAY_MS else "%d %b %H:%M", "tickCount": ticks}
    return {"type": "temporal", "title": "time, UTC", "scale": {"type": "utc"}, "axis": axis}


def _bars(grid: Grid, column: Column, narrowest: int) -> Iterator[Spec]:
    ended = max(column.ended_ms, column.began_ms + narrowest)
    for sink, outcome in zip(grid.sinks, column.outcomes, strict=True):
        tip = f"{column.name} in {sink}: {outcome}; {clock(column.began_ms)}"
        yield {"sink": sink, "began": column.began_ms, "ended": ended, "outcome": str(outcome), "tip": tip}


def _bands(events: Sequence[Event], begin: int, end: int, time: Spec) -> Iterator[Spec]:
    """Shade every second driver's life, so that a restart is an edge."""
    opened = [event for event in events if event.kind is EventKind.OPENED and event.at_ms <= end]
    ends = [*(event.at_ms for event in opened[1:]), end]
    lives = [
        {
            # Spark plans the first batch before the driver opens the sinks; an older life began before the picture.
            "from": event.at_ms if index else begin,
            "to": ended,
            "tip": f"driver of generation {event.generation}, from {clock(event.at_ms)}: {event.reason}",
        }
        for index, (event, ended) in enumerate(
            (event, ended) for event, ended in zip(opened, ends, strict=False) if ended > begin
        )
    ]
    x, edge = {"field": "from", **time}, {"type": "rule", "color": "var(--muted)", "strokeDash": [2, 3]}
    yield from layer(lives[::2], {"type": "rect", "color": "var(--band)"}, x=x, x2={"field": "to"}, description=TIP)
    yield from layer(lives[1:], edge, x=x, description=TIP)


def _stops(events: Sequence[Event], begin: int, end: int, time: Spec) -> Iterator[Spec]:
    stops = [
        {"at": event.at_ms, "tip": f"{event.kind} at {clock(event.at_ms)}: {event.reason}"}
        for event in events
        if event.kind in _BAD and begin <= event.at_ms <= end
    ]
    mark = {"type": "rule", "color": "var(--gap)", "strokeWidth": 2, "strokeDash": [5, 3]}
    return layer(stops, mark, x={"field": "at", **time}, description=TIP)


def _numbers(columns: Sequence[Column], title: str | None = "epoch") -> Spec:
    return numbers(columns[0].first, columns[-1].last, title)


def numbers(first: int, last: int, title: str | None) -> Spec:
    """The channel of epochs, from the left edge of the first to the right edge of the last."""
    scale = {"domain": [first - 0.5, last + 0.5], "nice": False, "zero": False}
    return quantity("from", title, scale=scale, axis=_ticks(first, last, 10))


def _ticks(first: int, last: int, most: int) -> Spec:
    """Return an axis of epochs with whole numbers only, each once."""
    steps = (digit * 10**power for power in range(19) for digit in (1, 2, 5))
    step = next(step for step in steps if last // step - -(-first // step) < most)
    return {"values": list(range(-(-first // step) * step, last + 1, step)), "format": ",d"}


def matrix(grid: Grid) -> Spec:
    """Sink by epoch."""
    values = [
        {
            "sink": sink,
            "from": column.first - 0.5,
            "to": column.last + 0.5,
            "outcome": str(outcome),
            "tip": f"{column.name} in {sink}: {outcome}" + (f" ({' '.join(column.codes)})" if column.codes else ""),
        }
        for column in grid.columns
        for sink, outcome in zip(grid.sinks, column.outcomes, strict=True)
    ]
    thin = len(grid.columns) <= 150
    return {
        "width": _WIDTH,
        "height": _LANE * len(grid.sinks),
        "padding": room(grid.sinks),
        "data": {"values": values},
        "mark": {"type": "rect", "stroke": "var(--surface)" if thin else None, "strokeWidth": 1.5},
        "encoding": {
            "x": _numbers(grid.columns),
            "x2": {"field": "to"},
            "y": lanes("sink", grid.sinks, {"paddingInner": 0.15}),
            "color": _OUTCOMES,
            "description": TIP,
        },
    }


def offset_chart(chart: OffsetChart) -> Spec:
    """Draw one partition: contiguous steps as one line, a hole or an overlap as a box with a flag."""
    points = [
        {"epoch": epoch, "offset": offset, "tip": f"epoch {epoch} ends at {offset:,.0f}"}
        for epoch, offset in chart.points
    ]
    torn = [
        {
            "from": jump.epoch - 0.6,
            "to": jump.epoch + 0.6,
            "epoch": jump.epoch,
            "low": jump.low,
            "high": jump.high,
            "outcome": str(jump.outcome),
            "tip": f"{jump.outcome} before epoch {jump.epoch}: {jump.low:,.0f} to {jump.high:,.0f}",
        }
        for jump in chart.breaks
    ]
    numbers = [epoch for epoch, _ in chart.points]
    # The first point is where epoch 1 began: it has no number of its own.
    axis = _ticks(max(1, min(numbers, default=1)), max(numbers, default=1), 5)
    x = quantity("epoch", None, scale={"zero": False, "nice": False}, axis=axis)
    y = quantity("offset", None, scale={"zero": False}, axis={"labelExpr": SHORT, "tickCount": 3})
    line = {"type": "line", "interpolate": "step-before", "color": "var(--exact)", "strokeWidth": 1.8}
    dots = {"type": "point", "filled": True, "size": 14, "color": "var(--exact)"}
    box = {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    flag = {"type": "point", "filled": True, "shape": "triangle-down", "size": 80, "yOffset": -8, "opacity": 1}
    encoding = {"color": _OUTCOMES, "description": TIP}
    layers = [
        *layer(points, line, x=x, y=y),
        *layer(points if len(points) <= 60 else [], dots, x=x, y=y, description=TIP),
        *layer(torn, {"type": "rect", "stroke": "var(--ink)", "strokeWidth": 0.5}, **box, **encoding),
        *layer(torn, flag, x=x, y={**y, "field": "high"}, **encoding),
    ]
    return {"width": 400, "height": 110, "layer": layers}


def conservation(grid: Grid) -> Spec:
    """Draw committed rows as a running sum. Below it, per sink, counted minus committed rows: flat at zero."""
    total, sums = 0, list[Spec]()
    for column in grid.columns:
        total += column.rows
        sums.append({"from": column.first - 0.5, "rows": total})
    sums.append({"from": grid.columns[-1].last + 0.5, "rows": total})
    differences = [
        {
            "from": column.first - 0.5,
            "to": column.last + 0.5,
            "sink": sink,
            "surplus": surplus,
            "none": 0,
            "outcome": str(Outcome.EXACT if not surplus else Outcome.DOUBLED if surplus > 0 else Outcome.GAP),
            "tip": f"{column.name} in {sink}: {surplus:+,} rows"
            if surplus
            else f"{column.name} in {sink}: no difference",
        }
        for column in grid.columns
        for sink, surplus in zip(grid.sinks, column.surplus, strict=True)
        if surplus is not None
    ]
    x = _numbers(grid.columns, None)
    upper: Spec = {
        "width": _WIDTH,
        "height": 120,
        "data": {"values": sums},
        "mark": AREA,
        "encoding": {"x": x, "y": quantity("rows", "rows committed", axis={"labelExpr": SHORT})},
    }
    return {"vconcat": [upper, *_differences(differences, grid)], "spacing": 14}


def _differences(values: Sequence[Spec], grid: Grid) -> Iterator[Spec]:
    for sink in grid.sinks:
        own = [value for value in values if value["sink"] == sink]
        wrong = [value for value in own if value["surplus"]]
        if not own:
            continue
        reach = max((abs(value["surplus"]) for value in wrong), default=1)
        x = _numbers(grid.columns, "epoch" if sink == grid.sinks[-1] else None)
        x["axis"]["labels"] = sink == grid.sinks[-1]
        marks = [-reach, 0, reach] if wrong else [0]
        y = quantity("surplus", None, scale={"domain": [-reach, reach]}, axis={"labelExpr": SHORT, "values": marks})
        rule = {"type": "rule", "color": "var(--exact)", "strokeWidth": 2}
        bars = {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"field": "none"}, "color": _OUTCOMES, "description": TIP}
        title = sink if wrong else f"{sink}: no difference"
        yield {
            "width": _WIDTH,
            "height": 64 if wrong else 14,
            "title": {
                "text": title,
                "anchor": "start",
                "fontSize": 12,
                "fontWeight": "normal",
                "color": "var(--muted)",
            },
            "layer": [
                {"data": {"values": [{"surplus": 0}]}, "mark": rule, "encoding": {"y": y}},
                {"data": {"values": wrong}, "mark": {"type": "rect"}, "encoding": bars},
            ],
        }


def latency(grid: Grid, records: Sequence[EpochRecord], names: Sequence[str]) -> Spec:
    """Draw milliseconds of each phase, stacked. A column of several epochs shows their mean."""
    times = {record.epoch.number: dict(record.phases) for record in records if record.phases}
    shades = [f"url(#phase-{index % PHASES})" for index in range(len(names))]
    legend = {"orient": "top", "symbolStrokeWidth": 0, "columns": 8}
    colour = {"field": "phase", "type": "nominal", "scale": {"domain": list(names), "range": shades}, "legend": legend}
    return {
        "width": _WIDTH,
        "height": 150,
        "data": {"values": [layer for column in grid.columns for layer in _layers(column, times, names)]},
        "mark": {"type": "rect"},
        "encoding": {
            "x": _numbers(grid.columns),
            "x2": {"field": "to"},
            "y": quantity("low", "ms", axis={"format": ",d"}),
            "y2": {"field": "high"},
            "color": colour,
            "description": TIP,
        },
    }


def _layers(column: Column, times: Mapping[int, Mapping[str, float]], names: Sequence[str]) -> Iterator[Spec]:
    epoch_times = [times[number] for number in range(column.first, column.last + 1) if number in times]
    low = 0.0
    for name in names:
        mean = sum(phases.get(name, 0.0) for phases in epoch_times) / (len(epoch_times) or 1)
        if mean:
            tip = f"{column.name}, {name}: {mean * 1000:,.0f} ms"
            edges = {"from": column.first - 0.45, "to": column.last + 0.45}
            yield {**edges, "low": low * 1000, "high": (low + mean) * 1000, "phase": name, "tip": tip}
        low += mean
