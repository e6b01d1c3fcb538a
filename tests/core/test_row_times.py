"""What rows in Arrow form say of time: least, greatest, late and none, by floor of whole milliseconds."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from onceonly.protocol.row_times import Clock, RowTimes, TimeTally
from onceonly_checkpoints.epoch_time import END, Unit

HORIZONS = (None, -5000, -1, 0, 17, END, -END - 1)
"""Also below and above all that a timestamp can say."""


def column(micros: list[int | None], unit: Unit) -> pa.Array:
    if unit == "ms":
        return pa.array(micros, pa.timestamp("us", "UTC"))
    return pa.array([None if value is None else value // 1000 for value in micros], pa.int32())


def expected(micros: list[int | None], horizon: int | None) -> RowTimes:
    times = [value // 1000 for value in micros if value is not None]
    late = 0 if horizon is None else sum(time < horizon for time in times)
    return RowTimes(min(times, default=None), max(times, default=None), late, len(micros) - len(times))


@pytest.mark.parametrize("unit", ["ms", "integer"])
def test_rows_are_counted_piece_by_piece_by_floor(unit: Unit) -> None:
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    micros = [None if draw.random() < 0.1 else draw.randrange(-5_000_000, 5_000_000) for _ in range(500)]
    # Around the moments at which a row turns late, between two milliseconds too.
    micros += [moment * 1000 + step for moment in (-5000, -1, 0, 17) for step in (-1000, -1, 0, 1, 999, 1000)]
    otherwise = []
    for horizon in HORIZONS:
        for pieces in (micros, [None] * 3, []):
            tally = TimeTally(Clock("at", unit, horizon))
            for start in range(0, len(pieces), 100):
                tally.add(column(pieces[start : start + 100], unit))
            if tally.times != expected(pieces, horizon):
                otherwise.append((horizon, len(pieces), tally.times, expected(pieces, horizon)))
    assert otherwise == [], f"seed {seed}"
