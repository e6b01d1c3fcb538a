"""Window state in a memory store: the reference for recalls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onceonly.protocol.capabilities import GONE, STATE_KEY, OpenWindow, StateRow, StateWanted
from onceonly.protocol.guard import foreign
from onceonly_sinks.memory.store import Merge, StoreEntry

if TYPE_CHECKING:
    from onceonly.protocol.batch import AsOf

MERGE = Merge(STATE_KEY, None, GONE)


def recall(entries: Iterable[StoreEntry], sink: str, request: StateWanted, as_of: AsOf) -> list[StateRow]:
    """Rows of state, each once. ``entries`` are the writer's, oldest first.

    Raises E226: an epoch is stored that is not lower than ``as_of``.
    """
    rows_by_window = _current_rows(entries, as_of.series)
    matches = [(row, epoch) for window, (row, epoch) in rows_by_window.items() if _is_selected(window, row, request)]
    rows = [_row(row, epoch) for row, epoch in matches]
    if ahead := next((state_row for state_row in rows if state_row.epoch >= as_of.epoch), None):
        problem = f"the window of key {ahead.key} from {ahead.start} on is of epoch {ahead.epoch}"
        raise foreign(sink, as_of, problem)
    return rows


def open_windows(entries: Iterable[StoreEntry], since: int) -> list[OpenWindow]:
    """Open windows, in the order of their next wake-up.

    ``entries`` are the writer's, oldest first. ``since`` is the first epoch whose rows count.
    """
    current_rows = _current_rows(entries, since).values()
    rows = [OpenWindow(_row(row, epoch), row["wake_clock"], row["wake_time"]) for row, epoch in current_rows]
    return sorted(
        rows,
        key=lambda open_window: (
            open_window.wake_time,
            open_window.state.key,
            open_window.state.start,
            open_window.state.stop,
        ),
    )


def _current_rows(
    entries: Iterable[StoreEntry], since: int
) -> Mapping[tuple[str, int, int], tuple[dict[str, Any], int]]:
    """Current rows by their window, each with the epoch that wrote it."""
    rows_by_window: dict[tuple[str, int, int], tuple[dict[str, Any], int]] = {}
    for entry in entries:
        if entry.epoch < since or entry.rows is None:
            continue
        for row in entry.rows.to_pylist():
            window = row["key"], row["start"], row["stop"]
            if row[GONE]:
                rows_by_window.pop(window, None)
            else:
                rows_by_window[window] = row, entry.epoch
    return rows_by_window


def _row(row: Mapping[str, Any], epoch: int) -> StateRow:
    return StateRow(row["key"], row["start"], row["stop"], row["body"], epoch)


def _is_selected(window: tuple[str, int, int], row: dict[str, Any], request: StateWanted) -> bool:
    clock, time = request.wake_clock, request.wake_time
    return (
        window in request.places
        or window[0] in request.keys
        or (clock is not None and row["wake_clock"] is not None and row["wake_clock"] <= clock)
        or (time is not None and row["wake_time"] <= time)
    )
