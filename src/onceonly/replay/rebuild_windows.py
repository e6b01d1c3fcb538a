"""``onceonly panes rebuild``: recompute window state from the source."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly.protocol import Sink
from onceonly.replay import records
from onceonly.replay.replay_windows import WindowReplay
from onceonly.replay.spark_replay import Replay
from onceonly.windows import rebuild_state
from onceonly.windows.epoch_step import state_digest
from onceonly.windows.rebuild_state import Difference, ReadableWindowStore, StoredWindows
from onceonly.windows.rules.spec import Panes
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import Adoption

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame, SparkSession
    from onceonly.replay.spark_replay import Job


def rebuild_panes(
    pipeline: str,
    *,
    job: Job,
    panes: Panes,
    sinks: Sequence[Sink],
    keeper: ReadableWindowStore,
    ledger: Ledger,
    spark: SparkSession,
    accepted: Adoption,
    before: Callable[[DataFrame], DataFrame] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> tuple[Epoch, Difference] | None:
    """Recompute the open windows from their beginning, and correct stored state that differs.

    ``job`` is a ``function(spark)`` that returns the query, not started. ``sinks`` has every sink, with ``keeper``,
    that of state. ``spark`` is a classic session, with the time zone and ANSI mode of the query. ``accepted`` has the
    kind ``rebuild-panes``, and its last epoch is the newest one. ``checkpoint`` is the query's, if it was moved.

    Returns:
        The epoch with the corrections, and the differences. ``None`` if there were none.

    Raises:
        OnceOnlyError: E226 the source gives other windows than the newest epoch left. E230, E234, E236 its epochs
            cannot be run again. E110 the query went on, or ``panes`` differ. Also errors of the opening and the sinks.
    """
    found = ledger.epochs(pipeline)
    newest = found[-1].epoch
    again = WindowReplay(
        Replay(spark, job, found, records.checkpoint(found, checkpoint), ledger.address, before), panes
    )
    last = next(one.epoch for one in reversed(found) if one.epoch.lineage)
    again.run(range(last.number, last.number + 1), lambda _, __: None)
    since = newest.panes.since if newest.panes else 1
    wanted = {place: row for place, (row, epoch) in again.kept.rows.items() if epoch >= since}
    digest = state_digest((*place, row["body"]) for place, row in wanted.items())
    if newest.panes is None or digest != newest.panes.open:
        problem = f"and by the code that was given, its source gives {digest.rows} windows, which are others, too"
        said = {"epoch": newest.number, "problem": problem, "ledger": shlex.quote(ledger.address)}
        raise refuse("E226", sink=keeper.id, pipeline=pipeline, **said)
    outputs = next(one.epoch.outputs for one in reversed(found) if one.epoch.outputs)
    left = StoredWindows(wanted, digest, outputs)
    return rebuild_state.rebuild(sinks, keeper, ledger, pipeline, accepted=accepted, left=left)
