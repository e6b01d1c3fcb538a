"""Where the engine and brute force part ways on a stream, if they do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.panes.drive import Epochs, definition_of, run, seconds_of
from tests.panes.oracle import Epoch, Oracle, Pane, Rules

from onceonly.windows import Count, CountDistinct, Max, Min, Sum
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.values import Value

MEASURES: dict[str, Value] = {
    "total": Sum("value"),
    "rows": Count(),
    "least": Min("value"),
    "most": Max("value"),
    "different": CountDistinct("value"),
}
"""What :func:`tests.panes.streams.measures` computes of the oracle's rows."""


Runs = Callable[[Definition, Sequence[Epoch], random.Random], Epochs]
"""What runs a stream on an engine."""


@dataclass(frozen=True)
class Compared:
    """A stream that both have seen.

    Attributes:
        got: what the engine gave.
        difference: where brute force gave something else; ``None`` where it did not.
    """

    got: Epochs
    difference: str | None


def compared(rules: Rules, epochs: Sequence[Epoch], draw: random.Random, runs: Runs = run) -> Compared:
    """Both over one stream: rows of panes in order, windows that are open, and what was dropped, epoch by epoch."""
    oracle, got = Oracle(rules), runs(definition_of(rules, MEASURES), epochs, draw)
    for at, epoch in enumerate(epochs):
        found, wanted = list(got.panes[at]), by_key(oracle.epoch(epoch))
        if found != wanted:
            return Compared(got, f"epoch {at}: {found}, and by brute force {wanted}")
        held, spans = sorted(seconds_of(place) for place in got.worlds[at].state), sorted(oracle.windows())
        if held != spans:
            return Compared(got, f"epoch {at}: {held} are open, and by brute force {spans}")
    lost = None if got.dropped == oracle.dropped else f"{got.dropped} dropped, and by brute force {oracle.dropped}"
    return Compared(got, lost)


def by_key(panes: Sequence[Pane]) -> list[Pane]:
    """Panes in the order of rows: those of a key one after the other."""
    return sorted(panes, key=lambda pane: pane.key)
