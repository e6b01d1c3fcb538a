"""Synchronise the ledger with epochs in sinks, and seal them there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from onceonly.machine import event_time, opening
from onceonly.machine.facts import Offer
from onceonly.machine.writer_progress import RewoundPosition
from onceonly.protocol import ReadsRows, Sink
from onceonly.protocol.capabilities import implements
from onceonly.runtime.sink_refusals import histories
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Lineage
from onceonly_checkpoints.ledger import EventKind, Ledger, Pipeline
from onceonly_checkpoints.model import InputFile, SourceIdentity
from onceonly_checkpoints.spark.offsets import log_offset
from onceonly_checkpoints.storage import is_local, local_path


def enter(ledger: Ledger, sinks: Sequence[Sink], pipeline: str, lineage: Lineage | None, generation: int) -> None:
    """Enter an opening into the ledger's list. ``lineage``: ids of the newest batch. ``generation``: as installed."""
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
    """Return the position that a rewind has set, and the epochs that it set aside. ``head`` is not superseded."""
    # Filtered by kind: any number of events may follow it, one for each failed start.
    rewound = max((event.generation for event in ledger.events(pipeline, 1, EventKind.REWOUND)), default=0)
    aside = ledger.superseded(pipeline, head.epoch.number if head else 0)
    return event_time.cut(head, aside, rewound)


def learn(ledger: Ledger, sinks: Sequence[Sink], pipeline: str, recorded_epoch: int) -> None:
    """Record the epochs that sinks hold, after a refusal that indexed nothing: the commands in its message need them.

    ``recorded_epoch`` may be 0.
    """
    history = list(histories(sinks, recorded_epoch))
    for marker, receipts in opening.by_epoch(history):
        # An epoch that some sinks lack is being written or waits to be healed, and gets no record yet.
        if {receipt.sink for receipt in receipts} >= {sink for sink, _ in marker.epoch.sinks}:
            ledger.record(EpochRecord(pipeline, marker.fence, marker.epoch, receipts))
    if history and all(entry.name != pipeline for entry in ledger.pipelines()):
        newest = max((marker for marker, _ in history), key=lambda marker: marker.epoch.number)
        enter(ledger, sinks, pipeline, newest.epoch.resume_point.lineage, newest.fence.generation)


def complete(ledger: Ledger, pipeline: str, epoch: Epoch, files: tuple[InputFile, ...]) -> None:
    """Add the input files of a replayed batch to a record that was rebuilt from a marker, which has none."""
    records = ledger.epochs(pipeline, epoch.number, epoch.number)
    if files and records and not records[0].files:
        ledger.record(replace(records[0], files=files))


@dataclass(frozen=True, slots=True)
class LedgerAttachment:
    """Adds files and phases, in seconds, to the record that a sink writes in its own transaction."""

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


# ---- Sealing, once an epoch is recorded.

PINS_EVERY = 16
"""With every so many epochs, ``seal`` gets the oldest pin. Each costs a read of the ledger."""


def seal(sinks: Iterable[Sink], pipeline: str, epoch: Epoch, ledger: Ledger) -> None:
    """Seal an epoch in its sinks: all of them hold it."""
    sealing = [sink for sink in sinks if isinstance(sink, ReadsRows) and implements(sink, ReadsRows, "seal")]
    if not sealing:
        return
    pinned = None
    if not epoch.number % PINS_EVERY:
        pinned = min((pin.epoch for pin in ledger.pins(pipeline)), default=0)
    for sink in sealing:
        sink.seal(epoch, pinned)


# ---- Recover lost lists of input files by their hash.
#
# Spark takes files in the order of their age. So an epoch's files are neighbours in the directory once those of older
# epochs are left out. A list whose hash differs is not recovered: files were changed, archived or batched otherwise.


Aged = Sequence[tuple[str, int]]
"""Paths as Spark logs them, each with the time of its last change in milliseconds, oldest first."""

_MANY = 2000
"""Files of one epoch that are tried at most: each number of them costs a hash over all."""


def listed_in(directory: str) -> Aged:
    """Files below a directory that a file source reads. Empty if it is not on a disk of this machine."""
    if not is_local(directory):
        return ()
    files = list[tuple[int, str]]()
    for folder, folders, names in os.walk(local_path(directory)):
        folders[:] = [name for name in folders if name[0] not in "._"]
        for path in (Path(folder) / name for name in names if name[0] not in "._"):
            files.append((path.stat().st_mtime_ns // 1_000_000, "file://" + quote(str(path), safe="/!$&'()*+,;=:@~")))
    return [(path, age) for age, path in sorted(files)]


def completed(records: Sequence[EpochRecord]) -> Sequence[EpochRecord]:
    """Return the records with recovered lists. The source is read only if a list is lost."""
    if all(record.files or record.epoch.lineage is None for record in records):
        return records
    files_by_epoch = find(records)
    return [replace(record, files=files_by_epoch.get(record.epoch.number, record.files)) for record in records]


def find(
    records: Sequence[EpochRecord], directory: Callable[[str], Aged] = listed_in
) -> Mapping[int, tuple[InputFile, ...]]:
    """Recover the files of epochs without a list, by number of the epoch, if the hash confirms them.

    ``records`` are of one Spark job, oldest first. ``directory`` lists one directory.
    """
    files_by_epoch: dict[int, tuple[InputFile, ...]] = {}
    left: dict[str, list[tuple[str, int]]] = {}
    for record in records:
        sources = [source for source in record.epoch.sources if source.inputs is not None]
        if record.epoch.lineage is None or len(sources) != 1 or not sources[0].folder:
            continue
        [source] = sources
        folder = source.folder
        if folder not in left:
            left[folder] = list(directory(folder))
        files = record.files or _run(left[folder], source, _entry(record, source))
        used_paths = {file.path for file in files}
        left[folder] = [entry for entry in left[folder] if entry[0] not in used_paths]
        if files and not record.files:
            files_by_epoch[record.epoch.number] = tuple(files)
    return files_by_epoch


def _entry(record: EpochRecord, source: SourceIdentity) -> int | None:
    """Return the single entry of the source's log that an epoch read, or ``None`` if it read several."""
    planned = record.epoch.planned
    start, end = (log_offset(dict(offsets.entries).get(source.source)) for offsets in (planned.start, planned.end))
    return end if end is not None and end == (0 if start is None else start + 1) else None


def _run(aged: Aged, source: SourceIdentity, entry: int | None) -> list[InputFile]:
    """Return the oldest files whose list has the hash. A single file may be any of them."""
    if entry is None:
        return []
    files = [InputFile(path, age, entry, source.source) for path, age in aged]
    for many in range(1, min(len(files), _MANY) + 1):
        if chain.inputs(files[:many]) == source.inputs:
            return files[:many]
    return next(([file] for file in files if chain.inputs([file]) == source.inputs), [])
