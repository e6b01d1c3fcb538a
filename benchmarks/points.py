"""What fault points cost while none is armed: points passed in an empty epoch, times the cost of one, over the epoch.

A point is too cheap to be seen in the time of an epoch, so its cost is measured alone, call and loop included. The
epoch is one without rows, without Spark, through the real core into a real sink: none is shorter.
"""

from __future__ import annotations

import timeit
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import bars as names
from benchmarks.long import Lived
from benchmarks.model import Bar, Pair, Result
from onceonly import faults
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger

_WARM = 20
_EPOCHS = 100
_CALLS = 200_000
_MICRO = 1e6


def measure(bars: Sequence[Bar], dsn: str, root: Path, rounds: int) -> tuple[list[Result], dict[str, Any]]:
    """Compare, round by round, all points of an epoch with the epoch; also how many there are, for the record."""
    makers = {names.POINTS_POSTGRES: partial(_postgres, dsn), names.POINTS_DELTA: partial(_delta, root)}
    lived = {bar: makers[bar.ours]() for bar in bars}
    try:
        for one in lived.values():
            one.grow(_WARM)
        passed = {bar: _passed(one) for bar, one in lived.items()}
        pairs: dict[Bar, list[Pair]] = {bar: [] for bar in bars}
        for _ in range(rounds):
            cost = _cost()
            for bar, one in lived.items():
                pairs[bar].append(Pair(cost * passed[bar], median(_epochs(one)) * 1000))
    finally:
        for one in lived.values():
            one.close()
    about = {"points_passed": {bar.ours: passed[bar] for bar in bars}, "points_ns": round(_cost() * 1000, 1)}
    return [Result(bar, "an epoch without rows", tuple(pairs[bar])) for bar in bars], about


def _epochs(one: Lived) -> list[float]:
    return [one.write().whole for _ in range(_EPOCHS)]


def _cost() -> float:
    """Microseconds of one point that is not armed."""
    faults.disarm()
    fire = faults.fire
    return min(timeit.repeat(lambda: fire(Point.COMMIT_SENT), number=_CALLS, repeat=5)) / _CALLS * _MICRO


def _passed(one: Lived) -> int:
    """How many points an epoch passes, counted."""
    counts: Counter[Point] = Counter()

    def count(point: Point) -> None:
        counts[point] += 1
        faults.arm(point, partial(count, point))  # a point that was armed acts once

    for point in Point:
        faults.arm(point, partial(count, point))
    try:
        one.write()
    finally:
        faults.disarm()
    # Outside of Spark's callback its own two are not passed.
    return counts.total() + len({Point.DISCOVER_AFTER, Point.RETURN_BEFORE})


def _postgres(dsn: str) -> Lived:
    from onceonly_sinks.postgres import PostgresSink

    sink = PostgresSink(dsn, "points")
    return Lived(sink, SqlLedger(str(sink.ledger_url)), "points-postgres", carried=True, rows=0)


def _delta(root: Path) -> Lived:
    from onceonly_sinks.delta import DeltaSink

    place = root / "points"
    place.mkdir()
    return Lived(DeltaSink(place / "table"), SqlLedger(str(place / "ledger.db")), "points-delta", carried=False, rows=0)
