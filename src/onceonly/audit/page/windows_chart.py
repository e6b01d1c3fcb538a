"""Chart of open windows, and early, on-time, late results. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly.audit.page.charts import Spec, numbers
from onceonly.page import TIP, layer, quantity
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_windows import EpochWindows, ResultCounts

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
        known = {epoch.number: (epoch, panes) for epoch, panes in self.epochs}
        listed = [known.get(number) for number in columns]
        return {
            "open": [one[1].open.rows if one else None for one in listed],
            "results": [list(_sum([one])) if one else None for one in listed],
        }


def windows_of(epochs: Sequence[Epoch]) -> WindowsChart | None:
    """Return the windows of epochs, oldest first, or ``None`` if none records any."""
    told = tuple((epoch, epoch.panes) for epoch in epochs if epoch.panes is not None)
    return WindowsChart(told) if told else None


def _sum(epochs: Sequence[tuple[Epoch, EpochWindows]]) -> tuple[int, int, int]:
    # An epoch of an operator repeats what the one before it says, and wrote nothing.
    wrote = [panes.results if epoch.adoption is None else ResultCounts() for epoch, panes in epochs]
    return sum(one.early for one in wrote), sum(one.on_time for one in wrote), sum(one.late for one in wrote)


# ---- The picture.

_WIDTH, _HEIGHT = 900, 90
_SHORT = "format(datum.value, '~s')"


def picture(told: WindowsChart, at_most: int) -> Spec:
    """Draw open windows after a column's last epoch. Below, the results of all its epochs, stacked by timing."""
    width = -(-len(told.epochs) // at_most) or 1
    parts = [told.epochs[start : start + width] for start in range(0, len(told.epochs), width)]
    first, last = told.epochs[0][0].number, told.epochs[-1][0].number
    size, bars = {"width": _WIDTH, "height": _HEIGHT}, list(_written(parts))
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
    line = {"color": "var(--exact)", "strokeWidth": 1.8}
    mark = {"type": "area", "color": "var(--tint)", "line": line, "interpolate": "step-after"}
    x = {"field": "from", "type": "quantitative"}
    yield from layer(values, mark, x=x, y=quantity("open", "open", axis={"labelExpr": _SHORT, "tickCount": 4}))
    whole = {"type": "rect", "color": "var(--band)", "opacity": 0}
    tips = [{**_edges(part), "tip": _tip(part)} for part in parts]
    yield from layer(tips, whole, x=x, x2={"field": "to"}, description=TIP)


def _written(parts: Sequence[_Part]) -> Iterator[Spec]:
    values = [bar for part in parts for bar in _bars(part)]
    shades = [f"url(#phase-{index})" for index in range(len(TIMINGS))]
    colour = {"field": "timing", "type": "nominal", "scale": {"domain": list(TIMINGS), "range": shades}, "legend": None}
    y = quantity("low", "results", axis={"labelExpr": _SHORT, "tickCount": 4})
    x = {"field": "from", "type": "quantitative"}
    bars = {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"field": "high"}, "color": colour, "description": TIP}
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
    first, last = part[0][0].number, part[-1][0].number
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"
