"""Recover lost lists of input files by their hash.

Spark takes files in the order of their age. So an epoch's files are neighbours in the directory once those of older
epochs are left out. A list whose hash differs is not recovered: files were changed, archived or batched otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.model import InputFile, SourceIdentity
from onceonly_checkpoints.spark.offsets import log_offset
from onceonly_checkpoints.storage import is_local, local_path

Aged = Sequence[tuple[str, int]]
"""Paths as Spark logs them, each with the time of its last change in milliseconds, oldest first."""

_MANY = 2000
"""Files of one epoch that are tried at most: each number of them costs a hash over all."""


def listed_in(directory: str) -> Aged:
    """Files below a directory that a file source reads. Empty if it is not on a disk of this machine."""
    if not is_local(directory):
        return ()
    found = list[tuple[int, str]]()
    for folder, folders, names in os.walk(local_path(directory)):
        folders[:] = [name for name in folders if name[0] not in "._"]
        for path in (Path(folder) / name for name in names if name[0] not in "._"):
            found.append((path.stat().st_mtime_ns // 1_000_000, "file://" + quote(str(path), safe="/!$&'()*+,;=:@~")))
    return [(path, age) for age, path in sorted(found)]


def completed(records: Sequence[EpochRecord]) -> Sequence[EpochRecord]:
    """Return the records with recovered lists. The source is read only if a list is lost."""
    if all(record.files or record.epoch.lineage is None for record in records):
        return records
    found = find(records)
    return [replace(record, files=found.get(record.epoch.number, record.files)) for record in records]


def find(
    records: Sequence[EpochRecord], directory: Callable[[str], Aged] = listed_in
) -> Mapping[int, tuple[InputFile, ...]]:
    """Recover the files of epochs without a list, by number of the epoch, if the hash confirms them.

    ``records`` are of one Spark job, oldest first. ``directory`` lists one directory.
    """
    found: dict[int, tuple[InputFile, ...]] = {}
    left: dict[str, list[tuple[str, int]]] = {}
    for record in records:
        sources = [source for source in record.epoch.sources if source.inputs is not None]
        if record.epoch.lineage is None or len(sources) != 1 or not sources[0].folder:
            continue
        [source] = sources
        place = source.folder
        if place not in left:
            left[place] = list(directory(place))
        files = record.files or _run(left[place], source, _entry(record, source))
        taken = {file.path for file in files}
        left[place] = [one for one in left[place] if one[0] not in taken]
        if files and not record.files:
            found[record.epoch.number] = tuple(files)
    return found


def _entry(record: EpochRecord, source: SourceIdentity) -> int | None:
    """Return the single entry of the source's log that an epoch read, or ``None`` if it read several."""
    planned = record.epoch.planned
    start, end = (log_offset(dict(one.entries).get(source.source)) for one in (planned.start, planned.end))
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
