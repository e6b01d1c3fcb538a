"""Epochs undone for good by a cut back. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from onceonly_checkpoints.epoch import Epoch


def unread(epochs: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """Those whose rows Spark does not read again once they are set aside.

    No batch of the query brought them, as of a publication; or they were read from the source's beginning, by a full
    refresh, and the checkpoint that is cut back goes on behind that.
    """
    return tuple(epoch for epoch in epochs if epoch.digest.rows and (epoch.lineage is None or epoch.replaces))


def became(epoch: Epoch) -> str:
    """What an epoch of :func:`unread` was, in words: ``epoch 5, which published orders~v2 (40 rows)``."""
    rows = f"{epoch.digest.rows} row{'' if epoch.digest.rows == 1 else 's'}"
    if epoch.replays:
        return f"epoch {epoch.number}, which published {epoch.replays.pipeline} ({rows})"
    if epoch.replaces:
        return f"epoch {epoch.number}, a full refresh ({rows})"
    return f"epoch {epoch.number}, which an operator brought ({rows})"
