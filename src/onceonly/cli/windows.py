"""``onceonly windows``: open windows, and what they wait for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from onceonly.audit.catalogue import CLEAN, FINDINGS
from onceonly.cli.connect import Connection, connect, naming
from onceonly.cli.options import LedgerOption, OnlyArgument, OutputOption, QueryOption, SinkOption, one_name
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, plural, say
from onceonly.cli.records import newest_epoch, newest_epochs, read
from onceonly.errors.options import misused
from onceonly.event_time.reader import spelled
from onceonly.protocol.capabilities import OpenWindow, StateRow, WindowStore, implements
from onceonly.windows.rules.assigners import LEAST
from onceonly.windows.rules.state import OpenWindowState
from onceonly.windows.rules.state import WindowKey as Window
from onceonly_checkpoints.digests import STATE
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, EpochWindows, Unit
from onceonly_checkpoints.model import canonical

KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="JSON", help="Only windows of this key: a value, or a list of values.")
]
ShownOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, help="Show this many, those first that are the first to do something.")
]
_LOOKS = 5
"""How often a running driver is let go on between the epoch and its windows."""


@dataclass(frozen=True, slots=True)
class _OpenWindows:
    """What is open behind the newest epoch.

    Attributes:
        counted: windows that the keeper holds.
        dropped: rows that are in no window, in all epochs that are known.
    """

    epoch: Epoch
    panes: EpochWindows
    counted: int
    windows: tuple[WindowRow, ...]
    dropped: int


def command(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    key: KeyOption = None,
    limit: ShownOption = 20,
) -> None:
    """Show the windows that are open after the newest epoch, from the table of state, without Spark or a fence.

    Exit code: 0 as many windows are open as the epoch says, 1 there are more or fewer, 2 there is no answer.
    """
    key_json = _key(key)
    with connect(ledger, one_name(context, name, query), sink, forgiving=True) as connection:
        lookup = _looked(connection, key_json, limit)
    differs = lookup.counted != lookup.panes.open.rows
    if output is Output.JSON:
        emit_json({"pipeline": connection.pipeline, **_json(lookup)})
    else:
        _show(lookup, differs=differs)
    raise typer.Exit(FINDINGS if differs else CLEAN)


def _key(text: str | None) -> str | None:
    """A key as it is kept: canonical JSON of its values (E110: no JSON)."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise misused(
            f"--key {text} is not JSON.",
            "a text is put into quotes of its own",
            """--key '"ann"', or of several columns: --key '["ann", 7]'""",
        ) from error
    return canonical(value if isinstance(value, list) else [value])


def _looked(connection: Connection, key: str | None, limit: int) -> _OpenWindows:
    """The newest epoch and its windows, of one moment as far as a running driver lets them be.

    Raises E110: nothing is said of windows, or their state cannot be found.
    """
    epoch, panes = _newest(connection)
    keeper, records = keeper_of(connection), read(connection)
    counted, windows = keeper.count_windows(panes.since) or 0, _windows(keeper, panes, key, limit)
    for _ in range(_LOOKS):
        previous, (epoch, panes) = epoch, _newest(connection)
        if previous.chain == epoch.chain:
            break
        counted, windows = keeper.count_windows(panes.since) or 0, _windows(keeper, panes, key, limit)
    dropped = sum(
        record.epoch.windows.dropped for record in records if record.epoch.windows and record.epoch.adoption is None
    )
    return _OpenWindows(epoch, panes, counted, windows, dropped)


def _newest(connection: Connection) -> tuple[Epoch, EpochWindows]:
    epoch = newest_epoch(connection)
    if epoch is None or epoch.windows is None:
        raise misused(
            f'The newest epoch of "{connection.pipeline}" has no windows.',
            "its query has no windows=, or has committed nothing yet",
            "see its epochs: onceonly epochs list",
        )
    return epoch, epoch.windows


def _windows(keeper: WindowStore, panes: EpochWindows, key: str | None, limit: int) -> tuple[WindowRow, ...]:
    return tuple(map(shown, keeper.open_windows(panes.since, key=key, limit=limit) or ()))


def _json(snapshot: _OpenWindows) -> dict[str, Any]:
    time = snapshot.epoch.time
    return {
        "epoch": snapshot.epoch.number,
        "open": snapshot.panes.open.rows,
        "counted": snapshot.counted,
        "dropped": snapshot.dropped,
        "unit": time.unit if time else None,
        "lower": time.dataset_complete_until if time else None,
        "closed": time.closed_until if time else None,
        "windows": [window.to_json() for window in snapshot.windows],
    }


def _show(snapshot: _OpenWindows, *, differs: bool) -> None:
    time = snapshot.epoch.time
    unit: Unit = time.unit if time else "integer"
    emit_table(("key", "start", "end", "new rows", "panes", "end passed", "wakes"), _table(snapshot.windows, unit))
    summary = f"{plural(snapshot.panes.open.rows, 'window')} by epoch {snapshot.epoch.number}"
    of_rows = (
        f"{plural(snapshot.dropped, 'row')} in no window, as it was closed or they have no time"
        if snapshot.dropped
        else None
    )
    say()
    emit_pairs(
        [
            ("open", f"{summary}, {snapshot.counted} in the table" if differs else summary),
            ("shown", plural(len(snapshot.windows), "window")),
            ("dropped", of_rows),
            ("complete until", spelled(time.dataset_complete_until, unit) if time else None),
            ("closed through", spelled(time.closed_until, unit) if time and time.closed_until is not None else None),
            ("next", "another program wrote into the table of state: onceonly audit --deep" if differs else None),
        ]
    )


def _table(windows: Sequence[WindowRow], unit: Unit) -> Iterator[tuple[object, ...]]:
    for window in windows:
        start, end = (_bound(number, unit) for number in (window.start, window.end))
        yield window.key, start, end, window.rows, window.panes, "yes" if window.passed else "no", _wakes(window, unit)


def _bound(number: int, unit: Unit) -> str:
    return "-" if number in (LEAST, END) else spelled(number, unit)


def _wakes(window: WindowRow, unit: Unit) -> str:
    clock = f"at {spelled(window.wake_clock, 'ms')}" if window.wake_clock is not None else ""
    time = f"when complete until {spelled(window.wake_time, unit)}"
    return " or ".join(filter(None, (clock, time)))


# ---- State of windows, out of the sink that holds it.


@dataclass(frozen=True, slots=True)
class WindowRow:
    """An open window, for people.

    Attributes:
        key: canonical JSON of its values.
        start: where it begins, in the unit of time.
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


def shown(open_window: OpenWindow) -> WindowRow:
    """What the state of a window says (E110: it cannot be read)."""
    row = open_window.state
    try:
        state = _kept(row)
    except ValueError as error:
        raise misused(
            f"The state of the window of key {row.key} from {row.start} on cannot be read.",
            f"epoch {row.epoch} was written by another version, or the row was changed by hand",
            "run the version that writes the pipeline; to find a change by hand: onceonly audit --deep",
        ) from error
    passed = open_window.wake_time > row.stop
    return WindowRow(
        row.key,
        row.start,
        row.stop,
        row.epoch,
        state.fresh,
        state.panes,
        passed,
        open_window.wake_clock,
        open_window.wake_time,
    )


def fresh(open_window: OpenWindow) -> int | None:
    """Rows since the last pane of a window; ``None`` where its state cannot be read."""
    try:
        return _kept(open_window.state).fresh
    except ValueError:
        return None


def _kept(row: StateRow) -> OpenWindowState:
    return OpenWindowState.read(Window(row.key, row.start, row.stop), row.body)


def keeper_of(connection: Connection) -> WindowStore:
    """The sink that holds the state, opened for reading.

    Raises E110: it was not named, cannot be found, or does not show its rows.
    """
    ids = _ids(connection)
    store = next((sink for sink in connection.sinks if sink.id in ids), None)
    if store is None or not isinstance(store, WindowStore) or not implements(store, WindowStore, "open_windows"):
        reason = "is not among the sinks" if store is None else "does not show its rows"
        names = ", ".join(ids) or "which no epoch names"
        raise misused(
            f"The table of state of {connection.pipeline}, {names}, {reason}.",
            "it was not named, or its address leads nowhere",
            naming(connection, ids),
        )
    store.open(connection.pipeline)
    return store


def _ids(connection: Connection) -> tuple[str, ...]:
    """Who holds state, by the newest epoch that wrote some: an operator's writes none."""
    for records in (newest_epochs(connection, 1), read(connection)):
        for record in reversed(records):
            for output in record.epoch.outputs:
                if output.name == STATE:
                    return output.sinks
    return ()
