"""Charts of event time and windows by epoch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly.audit.page.charts import AREA, FROM, SHORT, Spec, moments, numbers
from onceonly.audit.page.outcomes import named
from onceonly.machine.event_time import text
from onceonly.machine.writer_progress import greatest
from onceonly.page import TIP, lanes, layer, paint, quantity, room
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, EpochTime, EpochWindows, ResultCounts, Unit

TIMINGS = ("early", "on time", "late")
"""Of results, as they are called here."""


@dataclass(frozen=True, slots=True)
class WindowsChart:
    """Windows of a pipeline's epochs that record any, oldest first."""

    epochs: tuple[tuple[Epoch, EpochWindows], ...]

    @property
    def open(self) -> int:
        """Windows left open by the newest of them."""
        return self.epochs[-1][1].open.rows

    @property
    def results(self) -> tuple[int, int, int]:
        """Results of all of them, in the order of :data:`TIMINGS`."""
        return _sum(self.epochs)

    @property
    def dropped(self) -> int:
        """Rows in no window."""
        return sum(panes.dropped for epoch, panes in self.epochs if epoch.adoption is None)

    def to_json(self, columns: Sequence[int]) -> dict[str, Any]:
        """Return lists with one place for each number in ``columns``, which has all epochs of the page."""
        by_number = {epoch.number: (epoch, panes) for epoch, panes in self.epochs}
        listed = [by_number.get(number) for number in columns]
        return {
            "open": [pair[1].open.rows if pair else None for pair in listed],
            "results": [list(_sum([pair])) if pair else None for pair in listed],
        }


def windows_of(epochs: Sequence[Epoch]) -> WindowsChart | None:
    """Return the windows of epochs, oldest first, or ``None`` if none records any."""
    pairs = tuple((epoch, epoch.windows) for epoch in epochs if epoch.windows is not None)
    return WindowsChart(pairs) if pairs else None


def _sum(epochs: Sequence[tuple[Epoch, EpochWindows]]) -> tuple[int, int, int]:
    # An epoch of an operator repeats what the one before it says, and wrote nothing.
    wrote = [panes.result_counts if epoch.adoption is None else ResultCounts() for epoch, panes in epochs]
    return (
        sum(counts.early for counts in wrote),
        sum(counts.on_time for counts in wrote),
        sum(counts.late for counts in wrote),
    )


# ---- The picture.

_WINDOWS_WIDTH, _WINDOWS_HEIGHT = 900, 90
_UNSEEN = {"type": "rect", "color": "var(--band)", "opacity": 0}
"""What is there for its tooltip alone."""


def windows_picture(chart: WindowsChart, at_most: int) -> Spec:
    """Draw open windows after a column's last epoch. Below, the results of all its epochs, stacked by timing."""
    width = -(-len(chart.epochs) // at_most) or 1
    parts = [chart.epochs[start : start + width] for start in range(0, len(chart.epochs), width)]
    first, last = chart.epochs[0][0].number, chart.epochs[-1][0].number
    size, bars = {"width": _WINDOWS_WIDTH, "height": _WINDOWS_HEIGHT}, list(_written(parts))
    x = numbers(first, last, None if bars else "epoch")
    x["axis"]["labels"] = not bars
    opened = {**size, "layer": list(_open(parts)), "encoding": {"x": x}}
    if not bars:
        return opened
    written = {**size, "layer": bars, "encoding": {"x": numbers(first, last, "epoch")}}
    return {"vconcat": [opened, written], "spacing": 12}


_Part = Sequence[tuple[Epoch, EpochWindows]]


def _open(parts: Sequence[_Part]) -> Iterator[Spec]:
    edges = [(part[0][0].number - 0.5, part) for part in parts]
    edges.append((parts[-1][-1][0].number + 0.5, parts[-1]))
    values = [{"from": at, "open": part[-1][1].open.rows, "tip": _tip(part)} for at, part in edges]
    yield from layer(values, AREA, x=FROM, y=quantity("open", "open", axis={"labelExpr": SHORT, "tickCount": 4}))
    tips = [{**_edges(part), "tip": _tip(part)} for part in parts]
    yield from layer(tips, _UNSEEN, x=FROM, x2={"field": "to"}, description=TIP)


def _written(parts: Sequence[_Part]) -> Iterator[Spec]:
    values = [bar for part in parts for bar in _bars(part)]
    shades = [f"url(#phase-{index})" for index in range(len(TIMINGS))]
    colour = {"field": "timing", "type": "nominal", "scale": {"domain": list(TIMINGS), "range": shades}, "legend": None}
    y = quantity("low", "results", axis={"labelExpr": SHORT, "tickCount": 4})
    bars = {"x": FROM, "x2": {"field": "to"}, "y": y, "y2": {"field": "high"}, "color": colour, "description": TIP}
    yield from layer(values, {"type": "rect"}, **bars)


def _bars(part: _Part) -> Iterator[Spec]:
    low = 0
    for timing, count in zip(TIMINGS, _sum(part), strict=True):
        if count:
            tip = f"{_name(part)}: {count:,} {timing}"
            yield {**_edges(part, 0.45), "low": low, "high": low + count, "timing": timing, "tip": tip}
            low += count


def _edges(part: _Part, reach: float = 0.5) -> Spec:
    return {"from": part[0][0].number - reach, "to": part[-1][0].number + reach}


def _tip(part: _Part) -> str:
    return f"{_name(part)}: {part[-1][1].text}"


def _name(part: _Part) -> str:
    return named(part[0][0].number, part[-1][0].number)


# ---- Event time by epoch, or by neighbours that share a column; and how long each writer was silent. Pure.


@dataclass(frozen=True, slots=True)
class Step:
    """One epoch, or several neighbours drawn as one.

    Attributes:
        lower: time through which the dataset is complete, after the last epoch.
        upper: the latest time written so far.
        earliest: the least time of the epoch with the row furthest behind, or ``None`` without late rows.
    """

    first: int
    last: int
    lower: int | None
    upper: int | None
    late: int = 0
    earliest: int | None = None
    turned: bool = False

    @property
    def name(self) -> str:
        """``epoch 7``, or ``epochs 7 to 12``."""
        return named(self.first, self.last)


@dataclass(frozen=True, slots=True)
class Silence:
    """A writer that was left out between two epochs of the pipeline."""

    writer: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class EventTimeChart:
    """Event time of epochs, and silences of writers, oldest first. Epochs of another than the newest unit are out."""

    unit: Unit
    epochs: tuple[tuple[Epoch, EpochTime], ...]
    silences: tuple[Silence, ...]

    @property
    def newest(self) -> EpochTime:
        """Time recorded by the newest epoch."""
        return self.epochs[-1][1]

    @property
    def through(self) -> str:
        """Time through which the dataset is complete, in words."""
        return time_text(self.newest.dataset_complete_until, self.unit)

    @property
    def latest(self) -> str:
        """The latest written time, in words."""
        return time_text(self.newest.max_time, self.unit)

    @property
    def late(self) -> tuple[tuple[Epoch, EpochTime], ...]:
        """Epochs with late rows."""
        return tuple((epoch, time) for epoch, time in self.epochs if time.late_rows)

    def to_json(self, columns: Sequence[int]) -> dict[str, Any]:
        """Return lists with one place for each number in ``columns``, which has all epochs of the page."""
        times = {epoch.number: time for epoch, time in self.epochs}
        listed = [times.get(number) for number in columns]
        return {
            "unit": self.unit,
            "lower": [time.dataset_complete_until if time else None for time in listed],
            "upper": [time.max_time if time else None for time in listed],
            "late": {str(epoch.number): time.late_rows for epoch, time in self.late},
            "silent": [[silence.writer, silence.first, silence.last] for silence in self.silences],
        }


def time_text(number: int | None, unit: Unit) -> str:
    """A time in words."""
    return "not known" if number is None else text(number, unit)


def up_to_when(epochs: Sequence[Epoch]) -> EventTimeChart | None:
    """Return the event time of epochs, oldest first, or ``None`` if none records any."""
    timed = [(epoch, epoch.time) for epoch in epochs if epoch.time is not None]
    if not timed:
        return None
    unit = timed[-1][1].unit
    same = tuple((epoch, time) for epoch, time in timed if time.unit == unit)
    return EventTimeChart(unit, same, tuple(_silences(same)))


def _silences(epochs: Sequence[tuple[Epoch, EpochTime]]) -> Iterator[Silence]:
    runs: dict[str, Silence] = {}
    ended: list[Silence] = []
    for epoch, time in epochs:
        ended += [runs.pop(writer) for writer in sorted(runs) if writer not in time.timed_out]
        for writer in time.timed_out:
            begun = runs[writer].first if writer in runs else epoch.number
            runs[writer] = Silence(writer, begun, epoch.number)
    yield from sorted((*ended, *runs.values()), key=lambda silence: (silence.first, silence.writer))


def steps_of(chart: EventTimeChart, at_most: int) -> tuple[Step, ...]:
    """Pool the epochs in at most so many columns."""
    width = -(-len(chart.epochs) // at_most) or 1
    parts = [chart.epochs[start : start + width] for start in range(0, len(chart.epochs), width)]
    turns = [0, *(part[-1][1].resets for part in parts)]
    begun = chart.epochs[0][1].resets
    return tuple(_step(part, max(before, begun)) for part, before in zip(parts, turns, strict=False))


def _step(part: Sequence[tuple[Epoch, EpochTime]], turn: int) -> Step:
    (first, _), (last, newest) = part[0], part[-1]
    late = [time for _, time in part if time.late_rows]
    worst = max(late, key=lambda time: (time.late_before or 0) - (time.earliest or 0), default=None)
    high = greatest(time.max_time for _, time in part) if newest.resets == part[0][1].resets else newest.max_time
    rows = sum(time.late_rows for time in late)
    return Step(
        first.number,
        last.number,
        newest.dataset_complete_until,
        high,
        rows,
        worst.earliest if worst else None,
        newest.resets > turn,
    )


# ---- The picture.

_WIDTH, _HEIGHT, _LANE = 900, 170, 20
_MOST_MS = 8_640_000_000_000_000
"""The last moment that a calendar in a browser has."""


def event_time_picture(chart: EventTimeChart, at_most: int) -> Spec:
    """Draw lower and upper by epoch, with late rows as marks at their time. Below, a lane per silent writer."""
    steps = steps_of(chart, at_most)
    first, last = steps[0].first, steps[-1].last
    silent = list(dict.fromkeys(silence.writer for silence in chart.silences))
    x = numbers(first, last, None if silent else "epoch")
    x["axis"]["labels"] = not silent
    upper: Spec = {
        "width": _WIDTH,
        "height": _HEIGHT,
        "layer": [*_lines(chart, steps), *_turns(steps), *_marks(chart, steps)],
        "encoding": {"x": x},
    }
    if not silent:
        return upper
    bands = {
        "width": _WIDTH,
        "height": _LANE * len(silent),
        "layer": list(_bands(chart.silences, silent)),
        "encoding": {"x": numbers(first, last, "epoch")},
    }
    return {"vconcat": [upper, bands], "spacing": 10, "padding": room(silent)}


def _lines(chart: EventTimeChart, steps: Sequence[Step]) -> Iterator[Spec]:
    y = _scale(chart, steps)
    edges = [*((step.first - 0.5, step) for step in steps), (steps[-1].last + 0.5, steps[-1])]
    for name, color in (("upper", "var(--marked)"), ("lower", "var(--exact)")):
        values = [{"from": at, "time": _drawn(getattr(step, name), chart.unit)} for at, step in edges]
        mark = {"type": "line", "interpolate": "step-after", "color": color, "strokeWidth": 1.8}
        # Left to itself, a line over times goes in their order, and not in that of epochs.
        yield from layer(values, mark, x=FROM, y={"field": "time", **y}, order=FROM)
    tips = [
        {
            "from": step.first - 0.5,
            "to": step.last + 0.5,
            "tip": f"{step.name}: complete through {time_text(step.lower, chart.unit)}, latest row "
            f"{time_text(step.upper, chart.unit)}",
        }
        for step in steps
    ]
    yield from layer(tips, _UNSEEN, x=FROM, x2={"field": "to"}, description=TIP)


def _turns(steps: Sequence[Step]) -> Iterator[Spec]:
    begun = [
        {"from": step.first - 0.5, "tip": f"{step.name}: a new turn, in which what was said before is void"}
        for step in steps
        if step.turned
    ]
    edge = {"type": "rule", "color": "var(--muted)", "strokeDash": [2, 3]}
    return layer(begun, edge, x=FROM, description=TIP)


def _marks(chart: EventTimeChart, steps: Sequence[Step]) -> Iterator[Spec]:
    late = [
        {
            "from": (step.first + step.last) / 2,
            "time": _drawn(step.earliest, chart.unit),
            "tip": f"{step.name}: {step.late:,} late, one of {time_text(step.earliest, chart.unit)}",
        }
        for step in steps
        if step.late
    ]
    y = {"field": "time", **_scale(chart, steps)}
    mark = {"type": "point", "filled": True, "shape": "diamond", "size": 70, "color": "var(--gap)", "opacity": 1}
    return layer(late, mark, x=FROM, y=y, description=TIP)


def _bands(silences: Sequence[Silence], writers: Sequence[str]) -> Iterator[Spec]:
    values = [
        {
            "from": silence.first - 0.5,
            "to": silence.last + 0.5,
            "writer": silence.writer,
            "tip": f"{silence.writer} was idle, and not waited for, in epochs {silence.first} to {silence.last}",
        }
        for silence in silences
    ]
    y = lanes("writer", writers, {"paddingInner": 0.2})
    mark = {"type": "rect", "color": paint("unknown")}
    return layer(values, mark, x=FROM, x2={"field": "to"}, y=y, description=TIP)


def _scale(chart: EventTimeChart, steps: Sequence[Step]) -> Spec:
    if chart.unit == "integer":
        shown = quantity("time", None, scale={"zero": False}, axis={"format": ",d", "tickCount": 5})
    else:
        times = [_drawn(time, "ms") for step in steps for time in (step.lower, step.upper, step.earliest)]
        defined_times = [time for time in times if time is not None]
        shown = moments(max(defined_times, default=0) - min(defined_times, default=0), 5)
    return {name: value for name, value in shown.items() if name != "field"}


def _drawn(number: int | None, unit: Unit) -> int | None:
    """Return a time that fits on an axis. The end of time, which a retired writer notes, does not."""
    return None if number is None or number == END or (unit == "ms" and abs(number) > _MOST_MS) else number
