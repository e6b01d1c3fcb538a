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
    """Enter an opening.

    Args:
        ledger: of the pipeline.
        sinks: its sinks in commit order.
        pipeline: its name.
        lineage: the engine's names for the newest batch; ``None`` where none is known.
        generation: of the fence that stands.
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
    """Whether a rewind has put the newest epoch on record where it is; the ledger is asked for that alone.

    Args:
        ledger: of the pipeline.
        pipeline: its name.
        head: the newest epoch on record that stands; ``None`` for none.
    """
    # Asked for by kind: behind it there may be any number of others, one for each start that failed.
    rewound = max((event.generation for event in ledger.events(pipeline, 1, EventKind.REWOUND)), default=0)
    aside = ledger.superseded(pipeline, head.epoch.number if head else 0)
    return event_time.cut(head, aside, rewound)


def learn(ledger: Ledger, sinks: Sequence[Sink], pipeline: str, known: int) -> None:
    """Whoever was refused by a look has indexed nothing; the commands in his message need what the sinks know.

    Args:
        ledger: of the pipeline.
        sinks: its sinks in commit order.
        pipeline: its name.
        known: number of the newest epoch on record; 0 for none.
    """
    told = list(histories(sinks, known))
    for marker, receipts in opening.by_epoch(told):
        # One that some sinks lack is being written, or waits to be healed: no record comes before that.
        if {receipt.sink for receipt in receipts} >= {sink for sink, _ in marker.epoch.sinks}:
            ledger.record(EpochRecord(pipeline, marker.fence, marker.epoch, receipts))
    if told and all(entry.name != pipeline for entry in ledger.pipelines()):
        newest = max((marker for marker, _ in told), key=lambda marker: marker.epoch.number)
        enter(ledger, sinks, pipeline, newest.epoch.standing.lineage, newest.fence.generation)


def complete(ledger: Ledger, pipeline: str, epoch: Epoch, files: tuple[InputFile, ...]) -> None:
    """A record that was rebuilt from a marker has no input files; the replay of its batch brings them again."""
    known = ledger.epochs(pipeline, epoch.number, epoch.number)
    if files and known and not known[0].files:
        ledger.record(replace(known[0], files=files))


@dataclass(frozen=True, slots=True)
class LedgerAttachment:
    """Adds what only the runner knows to the record that a sink writes in its own transaction.

    Attributes:
        ledger: of the pipeline.
        offer: the batch; ``None`` where there is none.
        phases: what the epoch went through, in seconds.
    """

    ledger: Ledger
    offer: Offer | None
    phases: tuple[tuple[str, float], ...]

    @property
    def address(self) -> str:
        """Where the ledger lies, without secrets."""
        return self.ledger.address

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record the epoch on ``connection``, inside the sink's transaction."""
        files = self.offer.files if self.offer else ()
        self.ledger.record(replace(record, files=files, phases=self.phases), connection)
