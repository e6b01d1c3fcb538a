"""Read window state for commands, and print its rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from onceonly.cli.connect import Connection, naming
from onceonly.cli.epochs import newest_epochs, read
from onceonly.errors import refuse
from onceonly.protocol import ShowsState
from onceonly.protocol.capabilities import OpenWindow, StateRow
from onceonly.windows.rebuild_state import ReadableWindowStore
from onceonly.windows.rules.state import OpenWindowState
from onceonly.windows.rules.state import WindowKey as Window
from onceonly_checkpoints.digests import STATE


@dataclass(frozen=True, slots=True)
class WindowRow:
    """An open window, for people.

    Attributes:
        key: canonical JSON of its values.
        start: where it begins, in the unit of time.
        end: where it ends.
        epoch: the one that wrote it last.
        rows: rows since its last pane.
        panes: how many it has had.
        passed: whether its end is noted, so that it is open for late rows alone.
        wake_clock: at which clock it has something to do without a row, milliseconds since 1970; ``None`` for none.
        wake_time: what must be noted for that.
    """

    key: str
    start: int
    end: int
    epoch: int
    rows: int
    panes: int
    passed: bool
    wake_clock: int | None
    wake_time: int

    def to_json(self) -> dict[str, Any]:
        """Field names to values; the key as a list."""
        return {**asdict(self), "key": json.loads(self.key)}


def shown(one: OpenWindow) -> WindowRow:
    """What the state of a window says.

    Raises:
        ConfigurationError: E110, it cannot be read.
    """
    row = one.state
    try:
        kept = _kept(row)
    except ValueError as error:
        raise refuse(
            "E110",
            problem=f"The state of the window of key {row.key} from {row.start} on cannot be read.",
            cause=f"epoch {row.epoch} was written by another version, or somebody changed the row",
            next="run the version that writes the pipeline; whether somebody changed it: onceonly audit --deep",
        ) from error
    passed = one.wake_time > row.stop
    return WindowRow(
        row.key, row.start, row.stop, row.epoch, kept.fresh, kept.panes, passed, one.wake_clock, one.wake_time
    )


def fresh(one: OpenWindow) -> int | None:
    """Rows since the last pane of a window; ``None`` where its state cannot be read."""
    try:
        return _kept(one.state).fresh
    except ValueError:
        return None


def _kept(row: StateRow) -> OpenWindowState:
    return OpenWindowState.read(Window(row.key, row.start, row.stop), row.body)


def keeper_of(here: Connection) -> ReadableWindowStore:
    """The sink that holds the state, opened for reading.

    Raises:
        ConfigurationError: E110, it was not named, cannot be found, or does not show what it holds.
    """
    ids = _ids(here)
    found = next((sink for sink in here.sinks if sink.id in ids), None)
    if found is None or not isinstance(found, ShowsState):
        said = "is not among the sinks" if found is None else "does not show what it holds"
        raise refuse(
            "E110",
            problem=f"The table of state of {here.pipeline}, {', '.join(ids) or 'which no epoch names'}, {said}.",
            cause="it was not named, or its address leads nowhere",
            next=naming(here, ids),
        )
    found.open(here.pipeline)
    return found


def _ids(here: Connection) -> tuple[str, ...]:
    """Who holds state, by the newest epoch that wrote some: an operator's writes none."""
    for records in (newest_epochs(here, 1), read(here)):
        for record in reversed(records):
            for output in record.epoch.outputs:
                if output.name == STATE:
                    return output.sinks
    return ()
