"""Plan ``panes rebuild`` before confirmation, then run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceonly.cli.connect import Connection, reads_topics
from onceonly.cli.options import ChangePlan, decided
from onceonly.cli.output import say, talk
from onceonly.cli.spark_session import spark_session
from onceonly.cli.window_state import keeper_of
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_windows import EpochWindows
from onceonly_checkpoints.model import AdoptionKind


def plan(place: Connection, last: Epoch, panes: EpochWindows, reason: str) -> ChangePlan:
    """Say what computing the state again would do.

    Raises:
        ConfigurationError: E110, the state cannot be found.
    """
    begun = last.windows_since
    pairs = (
        ("pipeline", place.pipeline),
        ("computes", f"epochs {begun}..{last.number} again, from their source: {panes.text} by the newest"),
        (
            "writes",
            f"what stands otherwise in {keeper_of(place).id}, if they are the windows that epoch {last.number} left",
        ),
        ("sinks", place.sinks_in_words),
        ("ledger", place.certain_ledger.address),
        ("does", "writes an epoch without results into every sink; every running driver of the pipeline is fenced out"),
        ("after", "start the query; results that were written stay as they are"),
    )
    return ChangePlan(decided(AdoptionKind.REBUILD_PANES, reason, first=begun, last=last.number), pairs)


def carry_out(place: Connection, plan: ChangePlan, job: Callable[..., Any], panes: Any, before: Any) -> None:
    """Compute it and put it right; given again after a crash it goes on.

    Raises:
        OnceOnlyError: as :func:`onceonly.replay.rebuild_windows.rebuild_panes`.
    """
    from onceonly.replay.rebuild_windows import rebuild_panes

    ledger = place.certain_ledger
    topics = reads_topics(ledger.address, place.pipeline, None)
    with spark_session(True, "panes rebuild", kafka=topics) as spark:
        assert spark is not None
        done = rebuild_panes(
            place.pipeline,
            job=job,
            panes=panes,
            sinks=place.sinks,
            keeper=keeper_of(place),
            ledger=ledger,
            spark=spark,
            accepted=plan.accepted,
            before=before,
        )
    if done is None:
        say(f"the state of {place.pipeline} is what its newest epoch left; nothing was written")
    else:
        epoch, found = done
        say(f"epoch {epoch.number} adopted: {found.text}; the state is what epoch {epoch.number - 1} left")
    talk("Now start the query.")
