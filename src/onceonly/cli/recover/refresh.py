"""Plan and print ``queries refresh`` before confirmation."""

from __future__ import annotations

from onceonly.cli.connect import Connection
from onceonly.cli.options import ChangePlan, because, decided
from onceonly.cli.output import say, talk
from onceonly.errors import refuse
from onceonly.runtime import remedies
from onceonly.runtime.operator import at_stake, refresh
from onceonly_checkpoints.model import AdoptionKind

_AFTER = (
    "the next query with a new checkpoint replaces all rows, from wherever its source begins then: see that it still "
    "holds them. One that goes on with the old checkpoint uses this up, and replaces nothing"
)


def plan(place: Connection, how: str, reason: str) -> ChangePlan:
    """Say what a refresh would do.

    Args:
        place: the pipeline with its sinks.
        how: what is typed behind ``--how``.
        reason: for the record.

    Raises:
        OnceOnlyError: E110, no such way, or there is no epoch yet; E247 a sink cannot replace.
    """
    if how != "replace":
        raise refuse(
            "E110",
            problem=f"queries refresh has no --how {how!r}.",
            cause="a full refresh can replace the rows that stand; nothing else is known",
            next="give --how replace; to keep what stands: a new pipeline name on a new table",
        )
    newest = at_stake(place.sinks, place.pipeline)
    ledger = place.certain_ledger
    head = ledger.head(place.pipeline)
    first = head.epoch.series if head else 1
    told = remedies.tally(ledger.epochs(place.pipeline, first, newest), first, newest)
    pairs = (
        ("pipeline", place.pipeline),
        ("accepts", f"the rows of epochs {first}..{newest} ({told}) leave with the first new ones{because(reason)}"),
        ("sinks", place.sinks_in_words),
        ("ledger", ledger.address),
        ("does", "writes an epoch without rows into every sink; every running driver of the pipeline is fenced out"),
        ("after", _AFTER),
    )
    return ChangePlan(decided(AdoptionKind.REPLACE_ROWS, reason, first=first, last=newest), pairs)


def carry_out(place: Connection, plan: ChangePlan) -> None:
    """Write the decision.

    Raises:
        OnceOnlyError: what opening the pipeline raises.
    """
    epoch = refresh(place.sinks, place.certain_ledger, place.pipeline, plan.accepted)
    gone = f"epochs {plan.accepted.first}..{plan.accepted.last}"
    say(f"epoch {epoch.number} adopted: the next query that begins anew replaces the rows of {gone}")
    talk("Now start the query with its new checkpoint.")
