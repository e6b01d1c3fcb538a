"""Synchronise the ledger with the epochs that sinks hold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from onceonly.machine import event_time, opening
from onceonly.machine.facts import Offer
from onceonly.machine.writer_progress import RewoundPosition
from onceonly.protocol import Sink
from onceonly.runtime.unreadable_markers import histories
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Lineage
from onceonly_checkpoints.ledger import EventKind, Ledger, Pipeline
from onceonly_checkpoints.model import InputFile


def enter(ledger: Ledger, sinks: Sequence[Sink], pipeline: str, lineage: Lineage | None, generation: int) -> None:
    """Enter an opening into the ledger's list of pipelines.

    ``sinks`` are in commit order. ``lineage`` has the engine's ids of the newest batch, if known. ``generation`` is
    that of the installed fence.
    """
    ledger.enter(
        Pipeline(
            pipeline,
            tuple((sink.id, sink.address) for sink in sinks),
            lineage.query_id if lineage else "",
            lineage.checkpoint if lineage else "",
            generation,
            time.time_ns() // 1_000_000,
        )
    )


def cut(ledger: Ledger, pipeline: str, head: EpochRecord | None) -> RewoundPosition | None:
    """Return the position that a rewind has set, and the epochs that it set aside. Reads only the ledger.

    ``head`` is the newest recorded epoch that was not superseded.
    """
    # Filtered by kind: any number of events may follow it, one for each failed start.
    rewound = max((event.generation for event in ledger.events(pipeline, 1, EventKind.REWOUND)), default=0)
    aside = ledger.superseded(pipeline, head.epoch.number if head else 0)
    return event_time.cut(head, aside, rewound)


def learn(ledger: Ledger, sinks: Sequence[Sink], pipeline: str, known: int) -> None:
    """Record the epochs that sinks hold, after a refusal that indexed nothing: the commands in its message need them.

    ``known`` is the number of the newest recorded epoch, or 0.
    """
    told = list(histories(sinks, known))
    for marker, receipts in opening.by_epoch(told):
        # An epoch that some sinks lack is being written or waits to be healed, and gets no record yet.
        if {receipt.sink for receipt in receipts} >= {sink for sink, _ in marker.epoch.sinks}:
            ledger.record(EpochRecord(pipeline, marker.fence, marker.epoch, receipts))
    if told and all(entry.name != pipeline for entry in ledger.pipelines()):
        newest = max((marker for marker, _ in told), key=lambda marker: marker.epoch.number)
        enter(ledger, sinks, pipeline, newest.epoch.standing.lineage, newest.fence.generation)


def complete(ledger: Ledger, pipeline: str, epoch: Epoch, files: tuple[InputFile, ...]) -> None:
    """Add the input files of a replayed batch to a record that was rebuilt from a marker, which has none."""
    known = ledger.epochs(pipeline, epoch.number, epoch.number)
    if files and known and not known[0].files:
        ledger.record(replace(known[0], files=files))


@dataclass(frozen=True, slots=True)
class LedgerAttachment:
    """Adds files and phases to the record that a sink writes in its own transaction.

    ``phases`` are in seconds.
    """

    ledger: Ledger
    offer: Offer | None
    phases: tuple[tuple[str, float], ...]

    @property
    def address(self) -> str:
        """Address of the ledger, without secrets."""
        return self.ledger.address

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record the epoch on ``connection``, inside the sink's transaction."""
        files = self.offer.files if self.offer else ()
        self.ledger.record(replace(record, files=files, phases=self.phases), connection)
