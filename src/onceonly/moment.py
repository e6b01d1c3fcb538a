"""Reads from a ledger what ``doubt`` judges: one pipeline at one moment."""

from __future__ import annotations

from collections.abc import Mapping

from onceonly.doubt import GRACE_S, RECENT, Begun, Moment, begun
from onceonly.endings import WINDOW
from onceonly_checkpoints.ledger import Ledger, Pipeline


def open_epoch(
    ledger: Ledger,
    pipeline: Pipeline,
    now_ms: int,
    stands: Mapping[str, int] | None = None,
    *,
    grace_s: float = GRACE_S,
) -> Begun | None:
    """The epoch of a pipeline that was begun and is not everywhere.

    Intents are read before the head, so that an epoch that was just recorded is none.

    Args:
        ledger: its ledger.
        pipeline: its row there.
        now_ms: the moment, milliseconds since 1970.
        stands: number of the newest epoch by sink, read before this; ``None``: no sink was asked.
        grace_s: seconds for which an epoch may be under way.

    Raises:
        LedgerUnavailable: it cannot be read.
    """
    newest = max(stands.values(), default=0) if stands else pipeline.epoch
    intents = tuple(ledger.intent(pipeline.name, number) for number in (newest, newest + 1))
    head = ledger.head(pipeline.name)
    recorded = head.epoch.number if head else 0
    if not stands and recorded > newest:
        return None  # recorded while this was read
    entry = next((one for one in ledger.pipelines() if one.name == pipeline.name), pipeline)
    records = ledger.epochs(pipeline.name, max(1, recorded - RECENT + 1)) if recorded else ()
    events = ledger.events(pipeline.name, WINDOW)
    return begun(Moment(entry.generation, newest, intents, events, records, now_ms, stands or {}, grace_s))
