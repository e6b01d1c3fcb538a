"""Made-up histories and checkpoints for tests of the leaf package."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Receipt, ResumePoint
from onceonly_checkpoints.model import Adoption, AdoptionKind, InputFile, Slice, SourceIdentity, SourceOffsets
from onceonly_checkpoints.storage import FileStore

QUERY = "3f2a4c1e-5b1d-4f5e-9f5c-0d1f2e3a4b5c"
FENCE = Fence(3, "owner-token")


def at(number: int | None) -> SourceOffsets:
    """Offsets of one file source at a log offset."""
    return SourceOffsets.of({"0": None if number is None else f'{{"logOffset":{number}}}'})


def file(number: int, source: str = "0") -> InputFile:
    return InputFile(f"file:///in/part%20{number}.csv", 1_700_000_000_000 + number, number, source)


def lineage(batch_id: int, query_id: str = QUERY) -> Lineage:
    return Lineage(query_id, "run", "file:/ck", batch_id, 1_700_000_000_000 + batch_id, 40 + batch_id)


def epoch_after(previous: Epoch | None, end: SourceOffsets, batch: Lineage | None, rows: int = 10) -> Epoch:
    """The epoch that goes on where ``previous`` ended."""
    start = previous.written.end if previous else SourceOffsets(tuple((source, None) for source in end.sources))
    number, before = (previous.number + 1, previous.chain) if previous else (1, chain.GENESIS)
    slice_, digest = Slice(start, end), Digest(rows, number, 2 * number)
    adoption = None if batch else Adoption(AdoptionKind.START, reason="moved by hand")
    stood = previous.resume_point if previous else ResumePoint()
    epoch = Epoch(
        number=number,
        written=slice_,
        chain="",
        previous_chain=before,
        digest=digest,
        schema="columns",
        sinks=(("delta:t", 1), ("postgres:t", 1)),
        lineage=batch,
        sources=(SourceIdentity("0", "files:/in", "abcd"),),
        adoption=adoption,
        carried=ResumePoint(stood.lineage, (*stood.accepted, adoption)) if adoption else None,
    )
    return chain.linked(epoch)


def record_of(epoch: Epoch, files: Sequence[InputFile] = (), pipeline: str = "orders") -> EpochRecord:
    receipts = (
        Receipt("delta:t", epoch.number, epoch.chain, "table-id", (("version", 12),), epoch.digest.rows),
        Receipt("postgres:t", epoch.number, epoch.chain, "7/42", (("host", "a"), ("timeline", 1)), epoch.digest.rows),
    )
    phases = (("discover", 0.01), ("commit", 0.02))
    return EpochRecord(pipeline, FENCE, epoch, receipts, tuple(files), phases, 1_700_000_000_000 + epoch.number)


def history(length: int, pipeline: str = "orders") -> Iterator[EpochRecord]:
    """One file per batch, one batch per epoch."""
    previous = None
    for number in range(length):
        previous = epoch_after(previous, at(number), lineage(number))
        yield record_of(previous, [file(number)], pipeline)


def another(record: EpochRecord) -> EpochRecord:
    """The same epoch number with other rows."""
    digest = Digest(record.epoch.digest.rows + 1)
    return replace(record, epoch=chain.linked(replace(record.epoch, digest=digest)))


def offsets_text(*offsets: str, watermark: int = 0, timestamp: int = 1, version: str = "v1") -> str:
    about = {"batchWatermarkMs": watermark, "batchTimestampMs": timestamp, "conf": {"b": "2", "a": "1"}}
    return "\n".join([version, json.dumps(about), *offsets])


def commit_text(watermark: int = 0) -> str:
    return f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'


def files_text(*numbers: int) -> str:
    lines = [json.dumps({"path": f.path, "timestamp": f.modified_ms, "batchId": n}) for n in numbers for f in [file(n)]]
    return "\n".join(["v1", *lines])


def write(storage: FileStore, **texts: str) -> None:
    for path, text in texts.items():
        storage.create(path, text.encode())


def write_checkpoint(storage: FileStore, batches: int) -> None:
    """A sound checkpoint of a file source after ``batches`` committed batches of one file each."""
    storage.create("metadata", json.dumps({"id": QUERY}).encode())
    for number in range(batches):
        storage.create(f"offsets/{number}", offsets_text(f'{{"logOffset":{number}}}').encode())
        storage.create(f"commits/{number}", commit_text().encode())
        name, numbers = str(number), [number]
        if number % 10 == 9:
            name, numbers = f"{number}.compact", list(range(number + 1))
        storage.create(f"sources/0/{name}", files_text(*numbers).encode())
