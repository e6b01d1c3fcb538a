"""Seal an epoch in its sinks once it is recorded."""

from __future__ import annotations

from collections.abc import Iterable

from onceonly.protocol import Seals, Sink
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Ledger

PINS_EVERY = 16
"""Epochs between two looks at what readers have pinned: one costs a read of the ledger."""


def tell(sinks: Iterable[Sink], pipeline: str, epoch: Epoch, ledger: Ledger) -> None:
    """Seal an epoch in its sinks: all of them hold it."""
    told = [sink for sink in sinks if isinstance(sink, Seals)]
    if not told:
        return
    pinned = oldest_pin(ledger, pipeline) if not epoch.number % PINS_EVERY else None
    for sink in told:
        sink.seal(epoch, pinned)


def oldest_pin(ledger: Ledger, pipeline: str) -> int:
    """Return the oldest pinned epoch, or 0."""
    return min((pin.epoch for pin in ledger.pins(pipeline)), default=0)
