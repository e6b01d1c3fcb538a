"""``onceonly recover refresh``: let the next new query replace all rows."""

from __future__ import annotations

from typing import Annotated

import typer

from onceonly.cli.change import Change, because, carry_out, decided, plan_decision
from onceonly.cli.connect import Connection, connect
from onceonly.cli.options import LedgerOption, NameArgument, ReasonOption, SinkOption, YesOption
from onceonly.cli.output import say, talk
from onceonly.errors import refuse
from onceonly.runtime import remedies
from onceonly.runtime.operator import at_stake, refresh
from onceonly_checkpoints.model import AdoptionKind

_AFTER = (
    "the next query with a new checkpoint replaces all rows, from the beginning of its source: check that it still "
    "holds them. A query that continues with the old checkpoint uses this up, and replaces nothing"
)


def command(
    name: NameArgument,
    *,
    how: Annotated[
        str,
        typer.Option("--how", metavar="replace", help="The new rows replace the current ones."),
    ],
    reason: ReasonOption = "",
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Let the next query with a new checkpoint replace all rows of the pipeline.

    For a full refresh that no old checkpoint proves. Writes an epoch without rows into every sink and
    stops every driver that is running; the next epoch uses it up.
    """
    with connect(ledger, name, sink) as connection:
        carry_out(_change(connection, how, reason), yes=yes)


def _change(connection: Connection, how: str, reason: str) -> Change:
    if how != "replace":
        raise refuse(
            "E110",
            problem=f"recover refresh has no --how {how!r}.",
            cause="a full refresh can only replace the current rows",
            next="give --how replace; to keep the current rows: a new pipeline name on a new table",
        )
    newest = at_stake(connection.sinks, connection.pipeline)
    ledger = connection.certain_ledger
    head = ledger.head(connection.pipeline)
    first = head.epoch.series if head else 1
    counted = remedies.tally(ledger.epochs(connection.pipeline, first, newest), first, newest)
    accepted = decided(AdoptionKind.REPLACE_ROWS, reason, first=first, last=newest)

    def run() -> None:
        epoch = refresh(connection.sinks, ledger, connection.pipeline, accepted)
        gone = f"epochs {first}..{newest}"
        say(f"epoch {epoch.number} adopted: the next query with a new checkpoint replaces the rows of {gone}")
        talk("Now start the query with its new checkpoint.")

    leaving = f"the rows of epochs {first}..{newest} ({counted}) leave with the first new ones{because(reason)}"
    return Change(plan_decision(connection, ("accepts", leaving), after=_AFTER), run)
