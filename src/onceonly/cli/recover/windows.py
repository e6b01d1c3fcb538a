"""``onceonly recover``: give up open windows, or compute them again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from onceonly.cli import records
from onceonly.cli.change import Change, because, carry_out, decided, plan_decision
from onceonly.cli.connect import Connection, connect, reads_topics
from onceonly.cli.options import LedgerOption, OnlyArgument, QueryOption, ReasonOption, SinkOption, YesOption, one_name
from onceonly.cli.output import plural, say, talk
from onceonly.cli.user_code import DefinitionOption, JobOption, TransformOption, function, spark_session, windows_of
from onceonly.cli.windows import fresh, keeper_of
from onceonly.errors.options import misused
from onceonly.protocol.capabilities import WindowStore
from onceonly.runtime.operator import nothing_to_reset, reset_panes
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Adoption, AdoptionKind

_AFTER_RESET = "written results stay; a window that gets rows again begins empty, with result 0"


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
    """Give up all open windows, by writing an epoch without rows into every sink. The query continues after it.

    Rows that were written stay. Stops every driver that is running.
    """
    with connect(ledger, one_name(context, name, query), sink) as connection:
        carry_out(_reset_change(connection, reason, accept_loss=accept_loss), yes=yes)


def _reset_change(connection: Connection, reason: str, *, accept_loss: bool) -> Change:
    last = records.newest_epoch(connection)
    if last is None or last.windows is None or not last.windows.open.rows:
        raise nothing_to_reset(connection.pipeline)
    count = plural(last.windows.open.rows, "window")
    lost = f"{count} with {_lost_rows(connection, last.windows)} since the last result of each"
    if not accept_loss:
        raise misused(
            f'"{connection.pipeline}" would lose {lost}.',
            "you did not confirm this",
            "the same command with --accept-loss",
        )
    accepted = decided(AdoptionKind.RESET_PANES, reason, first=last.number, last=last.number)

    def run() -> None:
        epoch = reset_panes(connection.sinks, connection.certain_ledger, connection.pipeline, accepted)
        say(f"epoch {epoch.number} adopted: no window of {connection.pipeline} is open")
        talk("Now restart the query.")

    own = (("gives up", lost), ("accepts", f"these rows are in no later result{because(reason)}"))
    return Change(plan_decision(connection, *own, newest=last, after=_AFTER_RESET), run)


def _lost_rows(connection: Connection, panes: EpochWindows) -> str:
    """How many rows are lost. State that cannot be read is given up like any other: this is the way out of it."""
    row_counts = [fresh(open_window) for open_window in keeper_of(connection).open_windows(panes.since) or ()]
    unread = row_counts.count(None)
    counted = plural(sum(rows for rows in row_counts if rows is not None), "row")
    return f"{counted}, and those of {plural(unread, 'window')} that cannot be read," if unread else counted


# ---- ``onceonly recover rebuild-windows``: compute open windows again.


def rebuild(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    with_: JobOption,
    defined: DefinitionOption,
    transform: TransformOption = None,
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
    job, windows = function("--with", with_), windows_of(defined)
    shape = function("--transform", transform) if transform else None
    with connect(ledger, one_name(context, name, query), sink) as connection:
        carry_out(_rebuild_change(connection, reason, job, windows, shape), yes=yes)


def _rebuild_change(connection: Connection, reason: str, job: Callable[..., Any], windows: Any, before: Any) -> Change:
    last = records.newest_epoch(connection)
    if last is None or last.windows is None:
        named, ledger_address = shlex.quote(connection.pipeline), shlex.quote(connection.certain_ledger.address)
        raise misused(
            f'No epoch of "{connection.pipeline}" has windows.',
            "the name is another one, or its query has no windows=",
            f"see its epochs: onceonly epochs list --query {named} --ledger {ledger_address}",
        )
    begun, keeper = last.windows_since, keeper_of(connection)
    accepted = decided(AdoptionKind.REBUILD_PANES, reason, first=begun, last=last.number)
    own = (
        ("computes", f"epochs {begun}..{last.number} again, from their source: {last.windows.text} by the newest"),
        ("writes", f"the rows that differ in {keeper.id}, if they are the windows that epoch {last.number} left"),
    )
    pairs = plan_decision(
        connection,
        *own,
        does="writes an epoch without results into every sink",
        after="start the query; written results stay as they are",
    )
    return Change(pairs, partial(_rebuild, connection, keeper, accepted, job, windows=windows, before=before))


def _rebuild(
    connection: Connection,
    keeper: WindowStore,
    accepted: Adoption,
    job: Callable[..., Any],
    *,
    windows: Any,
    before: Any,
) -> None:
    """Compute the windows and correct their table. Given again after a crash, it goes on."""
    from onceonly.replay.replay_windows import rebuild_panes

    ledger = connection.certain_ledger
    topics = reads_topics(ledger.address, connection.pipeline, None)
    with spark_session("recover rebuild-windows", kafka=topics) as spark:
        done = rebuild_panes(
            connection.pipeline,
            job=job,
            windows=windows,
            sinks=connection.sinks,
            keeper=keeper,
            ledger=ledger,
            spark=spark,
            accepted=accepted,
            transform=before,
        )
    if done is None:
        say(f"the state of {connection.pipeline} is as its newest epoch left it; nothing was written")
    else:
        epoch, difference = done
        say(f"epoch {epoch.number} adopted: {difference.text}; the state is as epoch {epoch.number - 1} left it")
    talk("Now start the query.")
