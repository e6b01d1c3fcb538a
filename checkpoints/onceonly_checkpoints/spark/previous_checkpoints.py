"""Find checkpoints that a full refresh left beside the new one.

``<flow>/0`` stays when a query goes on in ``<flow>/1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.model import SourceOffsets
from onceonly_checkpoints.spark import offsets
from onceonly_checkpoints.storage import Readable

NEWEST = 3
"""How many batches of a sibling are read: the last one that was written is its newest, or one before that."""

SIBLINGS = 32
"""How many siblings are read: refreshes that stopped leave one each."""


@dataclass(frozen=True, slots=True)
class PreviousBatch:
    """A batch in the offset log of a lower sibling. Its ``lineage`` lacks the run id, which is not kept there."""

    lineage: Lineage
    end: SourceOffsets


@dataclass(frozen=True, slots=True)
class _Beside:
    """A sibling's files, by way of the current checkpoint."""

    files: Readable
    name: str

    @property
    def url(self) -> str:
        return f"{self.files.url.rstrip('/').rpartition('/')[0]}/{self.name}"

    def names(self, directory: str) -> tuple[str, ...]:
        return self.files.names(f"../{self.name}/{directory}")

    def read(self, path: str) -> bytes:
        return self.files.read(f"../{self.name}/{path}")

    def exists(self, path: str) -> bool:
        return self.files.exists(f"../{self.name}/{path}")


def number_of(checkpoint: str) -> int:
    """A checkpoint's number among its siblings, by the last part of its path, 0 if that is no number."""
    name = checkpoint.rstrip("/").rpartition("/")[2]
    return int(name) if _is_number(name) else 0


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and name == str(int(name))


def old_batches(files: Readable, checkpoint: str) -> tuple[PreviousBatch, ...]:
    """The newest readable batches of every lower sibling, the nearest sibling first.

    ``checkpoint`` is the location of ``files``, as the engine spells it.
    """
    above, own = checkpoint.rstrip("/").rpartition("/")[0], number_of(checkpoint)
    if not own:
        return ()
    lower = sorted((int(name) for name in files.names("..") if _is_number(name) and int(name) < own), reverse=True)
    found: list[PreviousBatch] = []
    for number in lower[:SIBLINGS]:
        found += _read(_Beside(files, str(number)), f"{above}/{number}")
    return tuple(found)


def _read(files: Readable, checkpoint: str) -> Iterator[PreviousBatch]:
    try:
        query = offsets.query_id(files)
        for number in reversed(offsets.offset_ids(files)[-NEWEST:]):
            entry = offsets.offset_entry(files, number)
            clock = entry.batch_timestamp_ms, entry.watermark_ms
            yield PreviousBatch(Lineage(query, "", checkpoint, number, *clock), entry.offsets)
    except offsets.UnreadableCheckpoint:
        return  # what cannot be read proves nothing
