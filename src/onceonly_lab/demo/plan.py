"""Kill plan of the demo: a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from onceonly.faults import Point
from onceonly_lab.demo.input import SCORES, SEVERAL

UNSEEN = (Point.PREPARE_BEFORE, Point.PREPARE_AFTER, Point.COMMIT_BEFORE)
"""Moments when the epoch's rows are not in the sink yet."""

WINDOW = (Point.COMMIT_SENT, Point.COMMIT_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER, Point.RETURN_BEFORE)
"""Moments when the rows are in the sink and Spark does not know: it will offer the batch again."""

OPENING = (Point.INSTALL_BEFORE, Point.INSTALL_SENT, Point.INSTALL_AFTER, Point.READ_AFTER)
"""Moments of the first batch of a driver only: it is taking the pipeline over."""

LONGEST_DELAY = 0.6
"""Seconds after the beginning of a batch within which a random moment lies: about one batch."""

RECORDED = (Point.RECORD_BEFORE, Point.RECORD_AFTER, Point.RETURN_BEFORE)
"""Moments when every sink holds the epoch and Spark does not know."""

STAGED = (Point.STAGE_BEFORE, Point.STAGE_AFTER)
"""Moments around the one copy of a batch that several sinks commit from."""

LONGEST_DELAY_SEVERAL = 1.5
"""The same for a batch that goes to several sinks."""

_LEAST_EPOCHS = 12


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL of a driver's process group.

    Attributes:
        sink: the query whose batches are counted.
        batch: counted from 1 in this driver's life.
        point: the fault point where the driver kills itself, in that batch or the next that passes it; ``None`` for a
            random moment.
        delay: for a random moment, seconds after that batch began.
        written: the point is passed once per sink, and the kill comes when so many of them hold the epoch; 0: it
            comes at the first passing.
    """

    sink: str
    batch: int
    point: Point | None
    delay: float = 0.0
    written: int = 0

    @property
    def moment(self) -> str:
        """In words, for the report."""
        where = f"{self.delay:.2f} s into" if self.point is None else f"{self.point} of"
        if self.written:
            where = f"{self.point} of sink {self.written} in"
        return f"{where} batch {self.batch} of {self.sink}"


def epochs_for(kills: int) -> int:
    """How many epochs the input is cut into, so that every driver has a few of its own."""
    return max(_LEAST_EPOCHS, 3 * (kills + 1))


def plan(seed: int, kills: int, sinks: Sequence[str]) -> tuple[Kill, ...]:
    """One kill for each driver but the last, none of them later than the input lasts.

    In turns: every sink gets a kill in the window between its commit and Spark's; then a random moment, an opening,
    and a moment before the commit.
    """
    chance = random.Random(seed)
    # A driver may be one batch further in the query that is not counted; hence the batch kept in reserve.
    last = epochs_for(kills) // (kills + 1) - 1
    drawn = [_draw(chance, index, sinks, last) for index in range(kills)]
    chance.shuffle(drawn)
    return tuple(drawn)


def plan_several(seed: int, kills: int, sinks: int) -> tuple[Kill, ...]:
    """The same for one query into ``sinks`` sinks.

    In turns: a kill between two commits, for each such gap; then a random moment, an opening, a moment after the
    last commit, and one before the first.
    """
    chance = random.Random(seed)
    last = epochs_for(kills) // (kills + 1) - 1
    drawn = [_draw_several(chance, index, sinks, last) for index in range(kills)]
    chance.shuffle(drawn)
    return tuple(drawn)


def plan_windows(seed: int, epochs: Sequence[int]) -> tuple[Kill, Kill]:
    """Two kills of the query into two tables, both in epochs that bring results.

    One falls between the commits of the two tables, the other before the first commit or after the last.

    Args:
        seed: draws.
        epochs: numbers of the epochs with results, from 1, in order.
    """
    chance = random.Random(seed)
    middle = len(epochs) // 2
    early, late = chance.choice(epochs[:middle]), chance.choice(epochs[middle:])
    elsewhere = chance.choice((*STAGED, *UNSEEN, *RECORDED))
    points = chance.sample([(Point.COMMIT_AFTER, 1), (elsewhere, 0)], 2)
    # The second driver begins with the epoch in which the first one died.
    batches = (early, late - early + 1)
    first, second = (Kill(SCORES, batch, point, 0.0, n) for batch, (point, n) in zip(batches, points, strict=True))
    return first, second


def _draw_several(chance: random.Random, index: int, sinks: int, last: int) -> Kill:
    # The first batch of a driver may be a replay, which passes fewer commits: gaps are aimed at from the second on.
    gaps = [Kill(SEVERAL, chance.randint(2, last), Point.COMMIT_AFTER, written=written) for written in range(1, sinks)]
    batch = chance.randint(1, last)
    others = (
        Kill(SEVERAL, batch, None, round(chance.uniform(0, LONGEST_DELAY_SEVERAL), 3)),
        Kill(SEVERAL, 1, chance.choice(OPENING)),
        Kill(SEVERAL, batch, chance.choice(RECORDED)),
        Kill(SEVERAL, batch, chance.choice((*STAGED, *UNSEEN))),
    )
    return (*gaps, *others)[index % (len(gaps) + len(others))]


def _draw(chance: random.Random, index: int, sinks: Sequence[str], last: int) -> Kill:
    sink, batch = sinks[index % len(sinks)], chance.randint(1, last)
    phases = (*[WINDOW] * len(sinks), (), OPENING, UNSEEN)
    points = phases[index % len(phases)]
    if not points:
        return Kill(sink, batch, None, round(chance.uniform(0, LONGEST_DELAY), 3))
    point = chance.choice(points)
    return Kill(sink, 1 if point in OPENING else batch, point)
