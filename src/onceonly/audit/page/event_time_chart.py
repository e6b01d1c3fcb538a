"""Event time by epoch: completeness, latest, late rows, silent writers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly.audit.page.charts import Spec, numbers
from onceonly.machine.event_time import text
from onceonly.machine.writer_progress import greatest
from onceonly.page import NAMES, TIP, layer, paint, quantity, room
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, EpochTime, Unit

# ---- What is drawn: an epoch, or neighbours that share a column; and how long each writer was silent.


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
        return f"epoch {self.first}" if self.first == self.last else f"epochs {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Silence:
    """A writer that was left out between two epochs of the pipeline."""

    writer: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class EventTimeChart:
    """Event time of epochs, oldest first, and silences of writers, by their begin.

    ``unit`` is that of the newest epoch. Earlier ones of another unit are left out.
    """

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
        return said(self.newest.lower, self.unit)

    @property
    def latest(self) -> str:
        """The latest written time, in words."""
        return said(self.newest.high, self.unit)

    @property
    def late(self) -> tuple[tuple[Epoch, EpochTime], ...]:
        """Epochs with late rows."""
        return tuple((epoch, time) for epoch, time in self.epochs if time.late)

    def to_json(self, columns: Sequence[int]) -> dict[str, Any]:
        """Return lists with one place for each number in ``columns``, which has all epochs of the page."""
        times = {epoch.number: time for epoch, time in self.epochs}
        listed = [times.get(number) for number in columns]
        return {
            "unit": self.unit,
            "lower": [time.lower if time else None for time in listed],
            "upper": [time.high if time else None for time in listed],
            "late": {str(epoch.number): time.late for epoch, time in self.late},
            "silent": [[silence.writer, silence.first, silence.last] for silence in self.silences],
        }


def said(number: int | None, unit: Unit) -> str:
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
        ended += [runs.pop(writer) for writer in sorted(runs) if writer not in time.silent]
        for writer in time.silent:
            begun = runs[writer].first if writer in runs else epoch.number
            runs[writer] = Silence(writer, begun, epoch.number)
    yield from sorted((*ended, *runs.values()), key=lambda one: (one.first, one.writer))


def steps_of(told: EventTimeChart, at_most: int) -> tuple[Step, ...]:
    """Pool the epochs in at most so many columns."""
    width = -(-len(told.epochs) // at_most) or 1
    parts = [told.epochs[start : start + width] for start in range(0, len(told.epochs), width)]
    turns = [0, *(part[-1][1].turn for part in parts)]
    begun = told.epochs[0][1].turn
    return tuple(_step(part, max(before, begun)) for part, before in zip(parts, turns, strict=False))


def _step(part: Sequence[tuple[Epoch, EpochTime]], turn: int) -> Step:
    (first, _), (last, newest) = part[0], part[-1]
    late = [time for _, time in part if time.late]
    worst = max(late, key=lambda time: (time.horizon or 0) - (time.first or 0), default=None)
    high = greatest(time.high for _, time in part) if newest.turn == part[0][1].turn else newest.high
    rows = sum(time.late for time in late)
    return Step(first.number, last.number, newest.lower, high, rows, worst.first if worst else None, newest.turn > turn)


# ---- The picture.

_WIDTH, _HEIGHT, _LANE = 900, 170, 20
_DAY_MS = 86_400_000
_MOST_MS = 8_640_000_000_000_000
"""The last moment that a calendar in a browser has."""


def picture(told: EventTimeChart, at_most: int) -> Spec:
    """Draw lower and upper by epoch, with late rows as marks at their time. Below, a lane per silent writer."""
    steps = steps_of(told, at_most)
    first, last = steps[0].first, steps[-1].last
    lanes = list(dict.fromkeys(silence.writer for silence in told.silences))
    x = numbers(first, last, None if lanes else "epoch")
    x["axis"]["labels"] = not lanes
    upper: Spec = {
        "width": _WIDTH,
        "height": _HEIGHT,
        "layer": [*_lines(told, steps), *_turns(steps), *_marks(told, steps)],
        "encoding": {"x": x},
    }
    if not lanes:
        return upper
    bands = {
        "width": _WIDTH,
        "height": _LANE * len(lanes),
        "layer": list(_bands(told.silences, lanes)),
        "encoding": {"x": numbers(first, last, "epoch")},
    }
    return {"vconcat": [upper, bands], "spacing": 10, "padding": room(lanes)}


def _lines(told: EventTimeChart, steps: Sequence[Step]) -> Iterator[Spec]:
    y = _scale(told, steps)
    edges = [*((step.first - 0.5, step) for step in steps), (steps[-1].last + 0.5, steps[-1])]
    for name, color in (("upper", "var(--marked)"), ("lower", "var(--exact)")):
        values = [{"from": at, "time": _drawn(getattr(step, name), told.unit)} for at, step in edges]
        mark = {"type": "line", "interpolate": "step-after", "color": color, "strokeWidth": 1.8}
        x = {"field": "from", "type": "quantitative"}
        # Left to itself, a line over times goes in their order, and not in that of epochs.
        yield from layer(values, mark, x=x, y={"field": "time", **y}, order=x)
    tips = [
        {
            "from": step.first - 0.5,
            "to": step.last + 0.5,
            "tip": f"{step.name}: complete through {said(step.lower, told.unit)}, latest row "
            f"{said(step.upper, told.unit)}",
        }
        for step in steps
    ]
    whole = {"type": "rect", "color": "var(--band)", "opacity": 0}
    x = {"field": "from", "type": "quantitative"}
    yield from layer(tips, whole, x=x, x2={"field": "to"}, description=TIP)


def _turns(steps: Sequence[Step]) -> Iterator[Spec]:
    begun = [
        {"from": step.first - 0.5, "tip": f"{step.name}: a new turn, in which what was said before is void"}
        for step in steps
        if step.turned
    ]
    edge = {"type": "rule", "color": "var(--muted)", "strokeDash": [2, 3]}
    return layer(begun, edge, x={"field": "from", "type": "quantitative"}, description=TIP)


def _marks(told: EventTimeChart, steps: Sequence[Step]) -> Iterator[Spec]:
    late = [
        {
            "from": (step.first + step.last) / 2,
            "time": _drawn(step.earliest, told.unit),
            "tip": f"{step.name}: {step.late:,} late, one of {said(step.earliest, told.unit)}",
        }
        for step in steps
        if step.late
    ]
    x, y = {"field": "from", "type": "quantitative"}, {"field": "time", **_scale(told, steps)}
    mark = {"type": "point", "filled": True, "shape": "diamond", "size": 70, "color": "var(--gap)", "opacity": 1}
    return layer(late, mark, x=x, y=y, description=TIP)


def _bands(silences: Sequence[Silence], lanes: Sequence[str]) -> Iterator[Spec]:
    values = [
        {
            "from": silence.first - 0.5,
            "to": silence.last + 0.5,
            "writer": silence.writer,
            "tip": f"{silence.writer} was silent, and not waited for, in epochs {silence.first} to {silence.last}",
        }
        for silence in silences
    ]
    y = {"field": "writer", "type": "nominal", "sort": list(lanes), "axis": NAMES, "scale": {"paddingInner": 0.2}}
    x = {"field": "from", "type": "quantitative"}
    mark = {"type": "rect", "color": paint("unknown")}
    return layer(values, mark, x=x, x2={"field": "to"}, y=y, description=TIP)


def _scale(told: EventTimeChart, steps: Sequence[Step]) -> Spec:
    if told.unit == "integer":
        shown = quantity("time", None, scale={"zero": False}, axis={"format": ",d", "tickCount": 5})
    else:
        times = [_drawn(one, "ms") for step in steps for one in (step.lower, step.upper, step.earliest)]
        known = [time for time in times if time is not None]
        apart = max(known, default=0) - min(known, default=0)
        clockwork = "%H:%M:%S" if apart < _DAY_MS else "%d %b %H:%M"
        axis = {"format": clockwork, "tickCount": 5}
        shown = {"type": "temporal", "title": "time, UTC", "scale": {"type": "utc"}, "axis": axis}
    return {name: value for name, value in shown.items() if name != "field"}


def _drawn(number: int | None, unit: Unit) -> int | None:
    """Return a time that fits on an axis. The end of time, which a retired writer notes, does not."""
    return None if number is None or number == END or (unit == "ms" and abs(number) > _MOST_MS) else number
