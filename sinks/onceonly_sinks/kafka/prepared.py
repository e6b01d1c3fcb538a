"""What ``prepare`` hands to ``commit``: rows in an open transaction, which no reader of committed records sees."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly_sinks.kafka.records import Offsets
from onceonly_sinks.kafka.standing import Standing


@dataclass(slots=True)
class KafkaPrepared:
    """Rows of one epoch.

    Attributes:
        standing: whose transaction holds them.
        rows: records that were sent.
        start: offsets before the first of them.
        end: offsets after the last.
        lost: how the transaction was lost after the batch had been read; ``None`` if it stands.
    """

    standing: Standing
    rows: int
    start: Offsets
    end: Offsets
    lost: str | None = None

    def abandon(self) -> None:
        """Abort the transaction, unless its commit was sent, and drop the producer. Never raises; may repeat."""
        self.standing.transaction.end()
