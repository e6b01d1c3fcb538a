"""Plan and print ``time retire`` before confirmation."""

from __future__ import annotations

from onceonly.cli import epochs
from onceonly.cli.connect import Connection
from onceonly.cli.options import ChangePlan, because, decided
from onceonly.cli.output import say, talk
from onceonly.event_time.timestamps import spelled
from onceonly.runtime.operator import nothing_to_retire, refuse_open_windows, retire
from onceonly_checkpoints.model import AdoptionKind


def plan(place: Connection, reason: str) -> ChangePlan:
    """Say what retiring a writer would do.

    Args:
        place: its pipeline with its sinks.
        reason: for the record.

    Raises:
        OnceOnlyError: E110, no epoch of it says anything of time; E142, its windows are open.
    """
    known = epochs.newest_epochs(place, 1)
    time = known[-1].epoch.time if known else None
    if time is None:
        raise nothing_to_retire(place.pipeline)
    refuse_open_windows(place.pipeline, known[-1].epoch)
    noted = spelled(time.noted, time.unit)
    pairs = (
        ("pipeline", place.pipeline),
        ("accepts", f"it writes nothing more, and what it noted, {noted}, is the last that it says{because(reason)}"),
        ("sinks", place.sinks_in_words),
        ("ledger", place.certain_ledger.address),
        ("does", "writes an epoch without rows into every sink; every running driver of the pipeline is fenced out"),
        ("after", "other writers wait for it no more from their next epoch on; its query is refused (E135), for good"),
    )
    return ChangePlan(decided(AdoptionKind.RETIRE_WRITER, reason), pairs)


def carry_out(place: Connection, plan: ChangePlan) -> None:
    """Retire the writer.

    Raises:
        OnceOnlyError: what opening the pipeline raises.
    """
    epoch = retire(place.sinks, place.certain_ledger, place.pipeline, plan.accepted)
    say(f"epoch {epoch.number} adopted: nobody waits for {place.pipeline} any more")
    talk("Name it no more in writers= of the others.")
