"""``onceonly panes``: open windows, their waiting, rebuild and reset."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from onceonly.cli.connect import Connection, place
from onceonly.cli.epochs import newest_epochs, read
from onceonly.cli.options import (
    LedgerOption,
    OnlyArgument,
    OutputOption,
    QueryOption,
    ReasonOption,
    SinkOption,
    YesOption,
    confirmed,
    one_name,
)
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, plural, say
from onceonly.cli.recover import rebuild_windows, reset_windows
from onceonly.cli.user_code import BeforeOption, DefinitionOption, JobOption, function, panes_of
from onceonly.cli.window_state import WindowRow, keeper_of, shown
from onceonly.errors import refuse
from onceonly.event_time.timestamps import spelled
from onceonly.protocol import ShowsState
from onceonly.runtime.operator import nothing_to_reset
from onceonly.windows.rules.assigners import LEAST
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, Unit
from onceonly_checkpoints.epoch_windows import EpochWindows
from onceonly_checkpoints.model import canonical

app = typer.Typer(no_args_is_help=True, help="Windows that are open: show, rebuild, reset.")

KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="JSON", help="Only windows of this key: a value, or a list of values.")
]
ShownOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, help="Show this many, those first that are the first to do something.")
]
_LOOKS = 5
"""How often a running driver is let go on between the epoch and its windows."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is open behind the newest epoch.

    Attributes:
        epoch: that one.
        panes: what it says of windows.
        counted: windows that the keeper holds.
        windows: some of them.
        dropped: rows that are in no window, in all epochs that are known.
    """

    epoch: Epoch
    panes: EpochWindows
    counted: int
    windows: tuple[WindowRow, ...]
    dropped: int


@app.command()
def show(
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
    """Show what is open behind the newest epoch, out of the table of state itself; without Spark and without a fence.

    Exit code: 0 as many windows are open as the epoch says, 1 there are more or fewer, 2 there is no answer.
    """
    wanted = _key(key)
    with place(ledger, one_name(context, name, query), sink, forgiving=True) as here:
        seen = _looked(here, wanted, limit)
    differs = seen.counted != seen.panes.open.rows
    if output is Output.JSON:
        emit_json({"pipeline": here.pipeline, **_json(seen)})
    else:
        _show(seen, differs=differs)
    raise typer.Exit(1 if differs else 0)


def _key(said: str | None) -> str | None:
    """A key as it is kept: canonical JSON of its values.

    Raises:
        ConfigurationError: E110, no JSON.
    """
    if said is None:
        return None
    try:
        value = json.loads(said)
    except ValueError as error:
        raise refuse(
            "E110",
            problem=f"--key {said} is not JSON.",
            cause="a text is put into quotes of its own",
            next="""--key '"ann"', or of several columns: --key '["ann", 7]'""",
        ) from error
    return canonical(value if isinstance(value, list) else [value])


def _looked(here: Connection, key: str | None, limit: int) -> _Seen:
    """The newest epoch and its windows, of one moment as far as a running driver lets them be.

    Raises:
        ConfigurationError: E110, nothing is said of windows, or their state cannot be found.
    """
    epoch, panes = _newest(here)
    keeper, known = keeper_of(here), read(here)
    counted, windows = keeper.count_windows(panes.since), _windows(keeper, panes, key, limit)
    for _ in range(_LOOKS):
        stood, (epoch, panes) = epoch, _newest(here)
        if stood.chain == epoch.chain:
            break
        counted, windows = keeper.count_windows(panes.since), _windows(keeper, panes, key, limit)
    dropped = sum(one.epoch.panes.dropped for one in known if one.epoch.panes and one.epoch.adoption is None)
    return _Seen(epoch, panes, counted, windows, dropped)


def _newest(here: Connection) -> tuple[Epoch, EpochWindows]:
    known = newest_epochs(here, 1)
    panes = known[-1].epoch.panes if known else None
    if panes is None:
        raise refuse(
            "E110",
            problem=f'The newest epoch of "{here.pipeline}" says nothing of windows.',
            cause="its query has no panes=, or has committed nothing yet",
            next="see its epochs: onceonly epochs list",
        )
    return known[-1].epoch, panes


def _windows(keeper: ShowsState, panes: EpochWindows, key: str | None, limit: int) -> tuple[WindowRow, ...]:
    return tuple(map(shown, keeper.open_windows(panes.since, key=key, limit=limit)))


def _json(seen: _Seen) -> dict[str, Any]:
    time = seen.epoch.time
    return {
        "epoch": seen.epoch.number,
        "open": seen.panes.open.rows,
        "counted": seen.counted,
        "dropped": seen.dropped,
        "unit": time.unit if time else None,
        "lower": time.lower if time else None,
        "closed": time.closed if time else None,
        "windows": [window.to_json() for window in seen.windows],
    }


def _show(seen: _Seen, *, differs: bool) -> None:
    time = seen.epoch.time
    unit: Unit = time.unit if time else "integer"
    emit_table(("key", "start", "end", "new rows", "panes", "end passed", "wakes"), _table(seen.windows, unit))
    said = f"{plural(seen.panes.open.rows, 'window')} by epoch {seen.epoch.number}"
    of_rows = (
        f"{plural(seen.dropped, 'row')} in no window, as it was closed or they have no time" if seen.dropped else None
    )
    say()
    emit_pairs(
        [
            ("open", f"{said}, {seen.counted} in the table" if differs else said),
            ("shown", plural(len(seen.windows), "window")),
            ("dropped", of_rows),
            ("complete through", spelled(time.lower, unit) if time else None),
            ("closed through", spelled(time.closed, unit) if time and time.closed is not None else None),
            ("next", "somebody else wrote into the table of state: onceonly audit --deep" if differs else None),
        ]
    )


def _table(windows: Sequence[WindowRow], unit: Unit) -> Iterator[tuple[object, ...]]:
    for window in windows:
        start, end = (_bound(number, unit) for number in (window.start, window.end))
        yield window.key, start, end, window.rows, window.panes, "yes" if window.passed else "no", _wakes(window, unit)


def _bound(number: int, unit: Unit) -> str:
    return "-" if number in (LEAST, END) else spelled(number, unit)


def _wakes(one: WindowRow, unit: Unit) -> str:
    clock = f"at {spelled(one.wake_clock, 'ms')}" if one.wake_clock is not None else ""
    time = f"once {spelled(one.wake_time, unit)} is noted"
    return " or ".join(filter(None, (clock, time)))


@app.command()
def rebuild(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    with_: JobOption,
    defined: DefinitionOption,
    before: BeforeOption = None,
    reason: ReasonOption = "",
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Compute the windows that are open again from their source, and put the table right that keeps them.

    For a table of state that was changed by hand, or lost rows (E226, A176). Nothing is written unless they are the
    windows that the newest epoch left. Stops every driver that is running.
    """
    job, windows = function("--with", with_), panes_of(defined)
    shape = function("--before", before) if before else None
    with place(ledger, one_name(context, name, query), sink) as here:
        last = next((record.epoch for record in newest_epochs(here, 1)), None)
        if last is None or last.panes is None:
            named, known = shlex.quote(here.pipeline), shlex.quote(here.certain_ledger.address)
            raise refuse(
                "E110",
                problem=f'No epoch of "{here.pipeline}" says anything of windows.',
                cause="the name is another one, or its query has no panes=",
                next=f"see what its epochs say: onceonly epochs list --query {named} --ledger {known}",
            )
        plan = rebuild_windows.plan(here, last, last.panes, reason)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            rebuild_windows.carry_out(here, plan, job, windows, shape)


@app.command()
def reset(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Accept that rows in open windows are in no later result. Required.")
    ] = False,
    reason: ReasonOption = "",
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Give up all windows that are open, by writing an epoch without rows into every sink; the query goes on behind it.

    Rows that were written stay. Stops every driver that is running.
    """
    with place(ledger, one_name(context, name, query), sink) as here:
        last = next((record.epoch for record in newest_epochs(here, 1)), None)
        if last is None or last.panes is None or not last.panes.open.rows:
            raise nothing_to_reset(here.pipeline)
        plan = reset_windows.plan(here, last, last.panes, reason, accept_loss=accept_loss)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            reset_windows.carry_out(here, plan)
