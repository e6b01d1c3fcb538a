"""Window state in a memory store: the reference for recalls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onceonly.protocol.capabilities import GONE, STATE_KEY, OpenWindow, StateRow, StateWanted
from onceonly.protocol.guard import foreign
from onceonly_sinks.memory.store import Merge, StoreEntry

if TYPE_CHECKING:
    from onceonly.protocol import AsOf

MERGE = Merge(STATE_KEY, None, GONE)


def recall(entries: Iterable[StoreEntry], sink: str, wanted: StateWanted, as_of: AsOf) -> list[StateRow]:
    """Rows of state, each once. ``entries`` are the writer's, oldest first.

    Raises:
        IdentityError: E226, an epoch is stored that is not lower than ``as_of``.
    """
    found = _standing(entries, as_of.series)
    asked = [(row, epoch) for place, (row, epoch) in found.items() if _meant(place, row, wanted)]
    rows = [_row(row, epoch) for row, epoch in asked]
    if ahead := next((one for one in rows if one.epoch >= as_of.epoch), None):
        problem = f"the window of key {ahead.key} from {ahead.start} on is of epoch {ahead.epoch}"
        raise foreign(sink, as_of, problem)
    return rows


def open_windows(entries: Iterable[StoreEntry], since: int) -> list[OpenWindow]:
    """Open windows, in the order of their next wake-up.

    ``entries`` are the writer's, oldest first. ``since`` is the first epoch whose rows count.
    """
    found = _standing(entries, since).values()
    rows = [OpenWindow(_row(row, epoch), row["wake_clock"], row["wake_time"]) for row, epoch in found]
    return sorted(rows, key=lambda one: (one.wake_time, one.state.key, one.state.start, one.state.stop))


def _standing(entries: Iterable[StoreEntry], since: int) -> Mapping[tuple[str, int, int], tuple[dict[str, Any], int]]:
    """Current rows by their window, each with the epoch that wrote it."""
    found: dict[tuple[str, int, int], tuple[dict[str, Any], int]] = {}
    for entry in entries:
        if entry.epoch < since or entry.rows is None:
            continue
        for row in entry.rows.to_pylist():
            place = row["key"], row["start"], row["stop"]
            if row[GONE]:
                found.pop(place, None)
            else:
                found[place] = row, entry.epoch
    return found


def _row(row: Mapping[str, Any], epoch: int) -> StateRow:
    return StateRow(row["key"], row["start"], row["stop"], row["body"], epoch)


def _meant(place: tuple[str, int, int], row: dict[str, Any], wanted: StateWanted) -> bool:
    clock, time = wanted.wake_clock, wanted.wake_time
    return (
        place in wanted.places
        or place[0] in wanted.keys
        or (clock is not None and row["wake_clock"] is not None and row["wake_clock"] <= clock)
        or (time is not None and row["wake_time"] <= time)
    )
