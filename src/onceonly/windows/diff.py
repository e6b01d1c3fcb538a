"""Find windows whose recomputed results or state differ from the committed ones.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onceonly.protocol.capabilities import GONE, OpenWindow
from onceonly.windows.results import Result, Window, read, window_of
from onceonly_checkpoints.epoch_windows import ResultSchema

Row = Mapping[str, Any]


def of_results(form: ResultSchema, computed: Iterable[Row], stand: Iterable[Row]) -> Iterator[Window]:
    """Windows with different results. With upserts, later rows may have replaced some of the committed rows ``stand``.

    Raises:
        Untold: a committed row is no row of panes.
    """
    now, then = Counter(_results(form, computed)), Counter(_results(form, stand))
    others = then - now if form.upserts else (now - then) + (then - now)
    yield from (result.window for result, _ in others)


def _results(form: ResultSchema, rows: Iterable[Row]) -> Iterator[tuple[Result, tuple[object, ...]]]:
    return ((read(form, row), (row.get("timing"), row.get("final"))) for row in rows)


def of_state(number: int, computed: Iterable[Row], stand: Iterable[OpenWindow]) -> Iterator[Window]:
    """Windows whose state in the table, ``stand``, differs from the state that epoch ``number`` computes.

    State that later epochs wrote or removed is no evidence.
    """
    now = {(row["key"], row["start"], row["stop"]): None if row[GONE] else row["body"] for row in computed}
    for one in stand:
        row = one.state
        place = row.key, row.start, row.stop
        changed, wanted = place in now, now.get(place)
        # One that an earlier epoch wrote was to be changed; one that this epoch wrote must be what was computed.
        if (row.epoch < number and changed) or (row.epoch == number and row.body != wanted):
            yield window_of(*place)
