"""The epoch that follows another, for tests that drive one sink by hand."""

from __future__ import annotations

from onceonly_checkpoints.chain import GENESIS, linked
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Lineage
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceOffsets


def epoch_after(last: Epoch | None, sink: str, rows: int, adoption: str | None = None) -> Epoch:
    number, previous = (last.number + 1, last.chain) if last else (1, GENESIS)
    slice_ = Slice(SourceOffsets.of({"0": f"{number - 1}"}), SourceOffsets.of({"0": f"{number}"}))
    digest = Digest(rows, number, rows)
    lineage = Lineage("query", "run", "file:/checkpoint", number - 1, number, 0)
    said = Adoption(AdoptionKind(adoption)) if adoption else None
    return linked(Epoch(number, slice_, "", previous, digest, "", ((sink, 1),), lineage, adoption=said))
