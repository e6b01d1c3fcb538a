"""Gathers what the doctor judges of a pipeline: the ledger's records, the sinks' fences, the checkpoint's mount."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from onceonly.doctor.rules import PipelineFacts
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Ledger, Pipeline
from onceonly_checkpoints.storage import is_local, local_path

LOOKED_AT = 2000
"""Newest epochs that are looked at."""

_MOUNTS = Path("/proc/self/mounts")


def records_of(ledger: Ledger, entry: Pipeline) -> Sequence[EpochRecord]:
    """The newest recorded epochs of a pipeline, oldest first."""
    return ledger.epochs(entry.name, max(1, entry.epoch - LOOKED_AT + 1))


def facts_of(entry: Pipeline, records: Sequence[EpochRecord], fences: Sequence[tuple[str, int]]) -> PipelineFacts:
    """Put together what is known of a pipeline."""
    known = [record.epoch.lineage for record in records if record.epoch.lineage]
    lineages = tuple(pair for pair, _ in groupby((one.query_id, one.checkpoint) for one in known))
    return PipelineFacts(entry.name, entry.checkpoint, entry.generation, lineages, tuple(fences))


def mount_of(url: str) -> str | None:
    """Type of the file system that a local checkpoint lies on; ``None`` where that cannot be said."""
    if not is_local(url) or not _MOUNTS.exists():
        return None
    path = os.path.realpath(local_path(url))
    found = ("", "")
    for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, kind, *_ = line.split(" ")
        # The kernel writes blanks in names as octal escapes.
        place = point.encode().decode("unicode_escape")
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(found[0]):
            found = (place, kind)
    return found[1] or None
