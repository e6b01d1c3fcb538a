"""The ten values of Streaming 102, and what each of its figures shows, from ``data/``; times are seconds of the day."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.panes.oracle import END, LEAST, Epoch, Fixed, Global, Pane, Row, Rules, Sessions

from onceonly_lab.demo import streaming102

DATA = Path(__file__).parent / "data"
TEAM = "TeamX"

_EARLY_AND_LATE = {"period": 60, "late_count": 1, "lateness": None}

RULES = {
    "row 1 batch": Rules(Global()),
    "row 2 windowed batch": Rules(Fixed(120)),
    "row 3 heuristic": Rules(Fixed(120)),
    "row 3 perfect": Rules(Fixed(120)),
    "row 4 discarding": Rules(Fixed(120), **_EARLY_AND_LATE, discarding=True, always=False),
    "row 5 accumulating heuristic": Rules(Fixed(120), **_EARLY_AND_LATE),
    "row 5 accumulating perfect": Rules(Fixed(120), **_EARLY_AND_LATE),
    "row 6 retracting": Rules(Fixed(120), **_EARLY_AND_LATE, retracting=True, always=False),
    "row 7 order A": Rules(Global(), period=120, watermark=False, lateness=None, discarding=True),
    "row 7 order B": Rules(Global(), period=120, watermark=False, lateness=None, discarding=True),
    "row 8 order A": Rules(Fixed(120)),
    "row 8 order B": Rules(Fixed(120)),
    "row 9 sessions": Rules(Sessions(60), **_EARLY_AND_LATE, retracting=True, always=False),
    "P102-5 lateness 1 min with r11": Rules(Fixed(120), period=60, late_count=1, lateness=60),
    "P102-7 order B": Rules(Fixed(120), **_EARLY_AND_LATE),
}
"""How each case of the data is asked for, in the words of the oracle."""


@dataclass(frozen=True)
class Case:
    """Epochs of a figure and the panes that it shows, each with the number of its epoch from 1."""

    name: str
    rules: Rules
    epochs: tuple[Epoch, ...]
    panes: tuple[tuple[int, Pane], ...]
    dropped: int


def seconds(text: str) -> int:
    """Seconds since midnight of ``HH:MM:SS``; the ends of time by their signs."""
    if text in ("-inf", "+inf"):
        return END if text == "+inf" else LEAST
    hours, minutes, rest = map(int, text.split(":"))
    return hours * 3600 + minutes * 60 + rest


def clock(second: int) -> str:
    """The inverse of :func:`seconds`, of a second of the day."""
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def cases() -> dict[str, Case]:
    """Every case of the data by its name."""
    return {name: _case(name, said) for name, said in streaming102.data().items()}


def records() -> list[dict[str, Any]]:
    """The records as the data has them: id, value, event time and arrival in two orders."""
    return json.loads((DATA / "streaming102.json").read_text())["records"]


def _case(name: str, said: dict[str, Any]) -> Case:
    ingest, noted, epochs = name.startswith("row 8"), None, []
    for each in said["epochs"]:
        noted = noted if each["noted"] is None else seconds(each["noted"])
        clock = seconds(each["clock"])
        rows = tuple(Row(TEAM, value, clock if ingest else seconds(event)) for value, event in each["rows"])
        epochs.append(Epoch(clock, rows, noted))
    return Case(name, RULES[name], tuple(epochs), tuple(map(_pane, said["panes"])), said["dropped"])


def _pane(said: dict[str, Any]) -> tuple[int, Pane]:
    taken = tuple((_span(one["window"]), one["value"]) for one in said["retracts"])
    fired_at = seconds(said["fired_at"])
    return said["epoch"], Pane(
        TEAM, _span(said["window"]), said["value"], taken, said["timing"], said["pane"], fired_at
    )


def _span(window: list[str]) -> tuple[int, int]:
    return seconds(window[0]), seconds(window[1])
