"""Random streams for engine and oracle: rules, and epochs of few times, so that much is tied and much overlaps."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.panes.oracle import END, Epoch, Fixed, Global, Own, Row, Rules, Sessions, Sliding, Window


def drawn_rules(draw: random.Random) -> Rules:
    """Any rules that can be asked for; a window without a watermark is the global one or closes only at the end."""
    window = drawn_window(draw)
    marks = [] if isinstance(window, Sessions) else ["mark"]
    early, late = draw.choice(["none", "period", "count", *marks]), draw.choice(["none", "period", "count", "count"])
    watermark = early == "none" or draw.random() < 0.85
    how = draw.choice(["discarding", "accumulating", "retracting"])
    return Rules(
        window,
        period=draw.choice([2, 5, 20]) if early == "period" else None,
        count=draw.randint(1, 4) if early == "count" else None,
        mark=early == "mark",
        late_period=draw.choice([3, 20]) if late == "period" and watermark else None,
        late_count=draw.randint(1, 3) if late == "count" and watermark else None,
        watermark=watermark,
        lateness=draw.choice([0, 0, 3, 10, 30, None]),
        discarding=how == "discarding",
        retracting=how == "retracting",
        always=draw.random() < 0.5,
        value=measures,
    )


def drawn_window(draw: random.Random) -> Window:
    """Windows of some ten seconds, sessions as often as all others."""
    size = draw.randint(4, 15)
    kinds: Sequence[Window] = (
        Fixed(size),
        Fixed(size, draw.randrange(size)),
        Sliding(size, draw.randint(1, size + 4)),
        Global(),
        Own(),
    )
    return draw.choice([draw.choice(kinds), Sessions(draw.randint(2, 9))])


def drawn_epochs(draw: random.Random) -> list[Epoch]:
    """Up to 25 epochs: a clock that may stand, rows around it and far behind, a watermark that may want to go back."""
    teams, clock, epochs = "abc"[: draw.randint(1, 3)], draw.randrange(60), list[Epoch]()
    ahead = draw.choice([0.3, 0.6, 1.0])
    for _ in range(draw.randint(3, 25)):
        clock += draw.choice([0, 1, 2, 5, 9, 30])
        rows = [drawn_row(draw, draw.choice(teams), clock) for _ in range(draw.choice([0, 1, 1, 2, 5]))]
        noted = None if draw.random() < 0.4 else max(0, int(clock * ahead) + draw.randint(-15, 5))
        epochs.append(Epoch(clock, tuple(rows), noted))
    return [*epochs, Epoch(clock + 1, (), END)] if draw.random() < 0.7 else epochs


def drawn_row(draw: random.Random, team: str, clock: int) -> Row:
    """A row around the clock or far behind it, which names one of few windows that hold its time, or none."""
    time = draw.randint(max(0, clock - 40), clock + 3)
    start = time - time % 6 - draw.choice([0, 0, 4])
    own = (start, start + draw.choice([10, 10, 15])) if draw.random() < 0.9 else None
    return Row(team, draw.randint(-5, 9), time, draw.random() < 0.3, own)


def measures(values: Sequence[int]) -> tuple[int | None, ...]:
    """Sum, count, least, greatest and number of different ones of some values."""
    return sum(values), len(values), min(values, default=None), max(values, default=None), len({*values})
