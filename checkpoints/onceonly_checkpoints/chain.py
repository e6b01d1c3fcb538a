"""Hash chain that links each epoch to its predecessor.

It proves that a recorded history leads to the marker in a sink.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from onceonly_checkpoints.epoch import NOTES, Epoch
from onceonly_checkpoints.model import InputFile, canonical

GENESIS = ""
"""``previous_chain`` of the first epoch."""


def link(epoch: Epoch) -> str:
    """Chain of an epoch: 64 hex digits over its JSON form without notes, with its predecessor's chain."""
    document = epoch.to_json()
    document.pop("chain", None)
    for holder in (document, document.get("resume", {})):
        if lineage := holder.get("lineage"):
            holder["lineage"] = {name: value for name, value in lineage.items() if name not in NOTES}
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def linked(epoch: Epoch) -> Epoch:
    """The same epoch with the chain that belongs to it."""
    return replace(epoch, chain=link(epoch))


def fingerprint(columns: Iterable[tuple[str, str]]) -> str:
    """Fingerprint of written columns: 16 hex digits over ``(name, type)`` pairs in order."""
    return hashlib.sha256(canonical([list(column) for column in columns]).encode()).hexdigest()[:16]


def written(columns: Sequence[tuple[str, str]], schema: str) -> int:
    """Number of leading columns that an epoch with this fingerprint wrote, 0 if none match."""
    return next((count for count in range(len(columns), 0, -1) if fingerprint(columns[:count]) == schema), 0)


def inputs(files: Iterable[InputFile]) -> str:
    """Hash of a file list, independent of its order: 16 hex digits over paths and times."""
    names = sorted(f"{file.source} {file.path} {file.modified_ms}" for file in files)
    return hashlib.sha256(canonical(names).encode()).hexdigest()[:16]


def sound(epoch: Epoch) -> bool:
    """Whether the epoch's chain is the hash of its own content."""
    return epoch.chain == link(epoch)


def first_break(epochs: Sequence[Epoch]) -> int | None:
    """Index of the first epoch that is unsound or does not follow its predecessor, or ``None`` if all do."""
    for index, epoch in enumerate(epochs):
        if not sound(epoch):
            return index
        if index and (epoch.previous_chain != epochs[index - 1].chain or epoch.number != epochs[index - 1].number + 1):
            return index
    return None


def descends(head: Epoch, history: Sequence[Epoch]) -> bool:
    """Whether ``history`` is an unbroken run of epochs that ends in ``head``."""
    return bool(history) and first_break(history) is None and history[-1].chain == head.chain
