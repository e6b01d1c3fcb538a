"""Delete old epoch rows under our fence, and keep their sum."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onceonly.errors import mask
from onceonly.protocol.values import PrunedEpochs
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_sinks.postgres import errors, head
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.transaction import Transactions

if TYPE_CHECKING:
    from sqlalchemy import Connection

log = logging.getLogger(__name__)

MARKERS = 1000
"""Epoch rows that are kept."""

FEWEST = 200
"""Fewer than these are never kept: an opening compares what a checkpoint may fall back to."""

EVERY = 256
"""Epochs between two looks."""

_AT_ONCE = 5000
_BELOW_LEDGER = 100
"""As many batches as Spark keeps in a checkpoint, unless ``minBatchesToRetain`` says otherwise."""

_LOCK_SECONDS = 2.0


def due(epoch: int) -> bool:
    """Whether to prune after this epoch."""
    return epoch % EVERY == 0


def last_to_go(newest: int, marker_count: int, recorded: int) -> int:
    """The newest epoch whose row may be deleted, 0 for none.

    An opening needs the newest marker, those above the ledger's head, and below it as many as an engine's checkpoint
    can fall back. So those stay. ``recorded`` is the newest epoch that the ledger is known to have, 0 for none.
    """
    return max(0, min(newest - marker_count, recorded - _BELOW_LEDGER))


def prune(transactions: Transactions, writer: PostgresHeadScope, fence: Fence, upto: int) -> None:
    """Delete the oldest epoch rows, a limited number at once."""
    if upto < 1:
        return

    def delete(connection: Connection) -> None:
        rows = connection.exec_driver_sql(head.FORGET, {**writer.parameters, "upto": upto, "limit": _AT_ONCE}).all()
        if rows:
            connection.exec_driver_sql(head.REMEMBER, {**writer.parameters, **_sum_pruned(rows, writer.sink)})

    delete_under_fence(transactions, writer, fence, "old epoch rows", delete)


def delete_under_fence(
    transactions: Transactions, writer: PostgresHeadScope, fence: Fence, what: str, delete: Callable[[Connection], None]
) -> None:
    """Delete in a transaction of its own, unless another fence is installed.

    Nothing depends on its commit: the next time deletes the rest. A failure is logged and not raised, as the epoch
    before is already committed.
    """
    try:
        connection = transactions.begin(writer.session(fence), _LOCK_SECONDS)
        try:
            with transactions.answering(connection):
                head_row = head.read(connection, writer, lock="FOR UPDATE")
                if head_row is not None and head_row.fence == fence:
                    delete(connection)
                    connection.commit()
        finally:
            transactions.drop(connection)
    except Exception as error:  # noqa: BLE001  the caller's commit has landed
        failure = errors.read(error)
        reason = failure.reason if failure else mask(f"{type(error).__name__}: {error}")
        log.warning("%s: %s are left to the next time: %s", writer.sink, what, reason)


def _sum_pruned(rows: Sequence[Any], sink: str) -> dict[str, Any]:
    """Sum up rows of ``onceonly.epoch`` (epoch, chain, rows, marker) for a milestone."""
    markers = {epoch: Marker.from_json(json.loads(text)) for epoch, _, _, text in rows}
    accepted = max((epoch for epoch, marker in markers.items() if marker.epoch.accepts(sink)), default=0)
    # Of rows that a full refresh has replaced none is there to be counted.
    accepted = max([accepted, *(epoch - 1 for epoch, marker in markers.items() if marker.epoch.replaces)])
    newest = max(rows, key=lambda row: int(row[0]))
    after = sum(count for epoch, _, count, _ in rows if epoch > accepted)
    return {"epoch": newest[0], "chain": newest[1], "rows": after, "accepted": accepted}


def milestone(connection: Connection, writer: PostgresHeadScope) -> PrunedEpochs | None:
    """Summary of the deleted epoch rows, or ``None`` if none are."""
    if not head.exists(connection):
        return None
    row = connection.exec_driver_sql(head.MILESTONE, writer.parameters).one_or_none()
    return PrunedEpochs(*row) if row else None
