"""Plan and print ``panes reset`` before confirmation."""

from __future__ import annotations

from onceonly.cli.connect import Connection
from onceonly.cli.options import ChangePlan, because, decided
from onceonly.cli.output import plural, say, talk
from onceonly.cli.window_state import fresh, keeper_of
from onceonly.errors import refuse
from onceonly.machine.source_order import describe
from onceonly.runtime.operator import reset_panes
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_windows import EpochWindows
from onceonly_checkpoints.model import AdoptionKind


def plan(place: Connection, last: Epoch, panes: EpochWindows, reason: str, *, accept_loss: bool) -> ChangePlan:
    """Say what giving up all windows would do.

    Args:
        place: the pipeline with its sinks.
        last: its newest epoch.
        panes: what that one says of windows.
        reason: for the record.
        accept_loss: the operator said that rows in open windows are in no later result.

    Raises:
        OnceOnlyError: E110, the loss was not accepted, or the state cannot be found.
    """
    windows = plural(panes.open.rows, "window")
    lost = f"{windows} with {_rows(place, panes)} since the last pane of each"
    if not accept_loss:
        raise refuse(
            "E110",
            problem=f'"{place.pipeline}" would lose {lost}.',
            cause="panes reset was not told that this is accepted",
            next="the same command with --accept-loss",
        )
    pairs = (
        ("pipeline", place.pipeline),
        ("gives up", lost),
        ("accepts", f"these rows are in no later result{because(reason)}"),
        ("sinks", place.sinks_in_words),
        ("ledger", place.certain_ledger.address),
        ("stands", f"epoch {last.number}, at {describe(last.written.end)}"),
        ("does", "writes an epoch without rows into every sink; every running driver of the pipeline is fenced out"),
        ("after", "results that were written stay; a window that gets rows again begins from nothing, with pane 0"),
    )
    return ChangePlan(decided(AdoptionKind.RESET_PANES, reason, first=last.number, last=last.number), pairs)


def _rows(place: Connection, panes: EpochWindows) -> str:
    """How many rows are lost. State that cannot be read is given up like any other: this is the way out of it."""
    found = [fresh(open_window) for open_window in keeper_of(place).open_windows(panes.since)]
    unread = found.count(None)
    counted = plural(sum(rows for rows in found if rows is not None), "row")
    return f"{counted}, and those of {plural(unread, 'window')} that cannot be read," if unread else counted


def carry_out(place: Connection, plan: ChangePlan) -> None:
    """Give them up.

    Raises:
        OnceOnlyError: what opening the pipeline raises.
    """
    epoch = reset_panes(place.sinks, place.certain_ledger, place.pipeline, plan.accepted)
    say(f"epoch {epoch.number} adopted: no window of {place.pipeline} is open")
    talk("Now restart the query.")
