"""Old epoch rows go, under our fence, and leave one row that says what they were: ``onceonly.pruned``."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onceonly.errors import mask
from onceonly.protocol import Milestone
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_sinks.postgres import classify, head
from onceonly_sinks.postgres import statements as q
from onceonly_sinks.postgres.head import Writer
from onceonly_sinks.postgres.transactions import Transactions

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
_LOCK_SECONDS = 2.0


def due(epoch: int) -> bool:
    """Whether it is time to look, after this epoch."""
    return epoch % EVERY == 0


def last_to_go(newest: int, kept: int, recorded: int) -> int:
    """The newest epoch whose row may go; 0 for none.

    What an opening needs stays: the newest marker, those above the ledger's head, and below it as many as an engine's
    checkpoint can fall back.

    Args:
        newest: the newest epoch.
        kept: rows that are kept.
        recorded: the newest epoch that the ledger is known to have; 0 for none.
    """
    return max(0, min(newest - kept, recorded - _BELOW_LEDGER))


def prune(transactions: Transactions, writer: Writer, fence: Fence, upto: int) -> None:
    """Take the oldest epoch rows away, at most so many at once, in a transaction of its own.

    Nothing depends on whether it landed: what is left goes the next time. Whatever fails here, the epoch that was
    committed before stands, so none of it is raised.
    """
    if upto < 1:
        return
    try:
        _prune(transactions, writer, fence, upto)
    except Exception as error:  # noqa: BLE001  the caller's commit has landed
        failure = classify.read(error)
        reason = failure.reason if failure else mask(f"{type(error).__name__}: {error}")
        log.warning("%s: old epoch rows are left to the next time: %s", writer.sink, reason)


def _prune(transactions: Transactions, writer: Writer, fence: Fence, upto: int) -> None:
    connection = transactions.begin(writer.session(fence), _LOCK_SECONDS)
    try:
        with transactions.answering(connection):
            standing = connection.exec_driver_sql(f"{q.READ} FOR SHARE", writer.parameters).one_or_none()
            if standing is None or Fence(standing[0], standing[1]) != fence:
                return
            rows = connection.exec_driver_sql(q.FORGET, {**writer.parameters, "upto": upto, "limit": _AT_ONCE}).all()
            if rows:
                connection.exec_driver_sql(q.REMEMBER, {**writer.parameters, **_found(rows, writer.sink)})
                connection.commit()
    finally:
        transactions.drop(connection)


def _found(rows: Sequence[Any], sink: str) -> dict[str, Any]:
    """What a milestone says of rows of ``onceonly.epoch``: epoch, chain, rows, marker."""
    markers = {epoch: Marker.from_json(json.loads(text)) for epoch, _, _, text in rows}
    accepted = max((epoch for epoch, marker in markers.items() if marker.epoch.accepts(sink)), default=0)
    newest = max(rows, key=lambda row: int(row[0]))
    after = sum(count for epoch, _, count, _ in rows if epoch > accepted)
    return {"epoch": newest[0], "chain": newest[1], "rows": after, "accepted": accepted}


def milestone(connection: Connection, writer: Writer) -> Milestone | None:
    """What the rows were that are gone; ``None`` if none are."""
    if not head.exists(connection):
        return None
    row = connection.exec_driver_sql(q.MILESTONE, writer.parameters).one_or_none()
    return Milestone(*row) if row else None
