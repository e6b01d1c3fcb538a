"""Recover lost lists of input files by their hash.

Spark takes files in the order of their age, so an epoch's are neighbours in the directory once those of older epochs
are left out. What the hash does not confirm is not found: files that were changed, archived or cut otherwise.
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
    """Files below a directory that a file source reads; empty where it is not on a disk of this machine."""
    if not is_local(directory):
        return ()
    found = list[tuple[int, str]]()
    for folder, folders, names in os.walk(local_path(directory)):
        folders[:] = [name for name in folders if name[0] not in "._"]
        for path in (Path(folder) / name for name in names if name[0] not in "._"):
            found.append((path.stat().st_mtime_ns // 1_000_000, "file://" + quote(str(path), safe="/!$&'()*+,;=:@~")))
    return [(path, age) for age, path in sorted(found)]


def completed(records: Sequence[EpochRecord]) -> Sequence[EpochRecord]:
    """The same with the lists that were found; the source is asked only where one is lost."""
    if all(record.files or record.epoch.lineage is None for record in records):
        return records
    found = find(records)
    return [replace(record, files=found.get(record.epoch.number, record.files)) for record in records]


def find(
    records: Sequence[EpochRecord], directory: Callable[[str], Aged] = listed_in
) -> Mapping[int, tuple[InputFile, ...]]:
    """The files of epochs that have no list, by number of the epoch; only of those that are proven.

    Args:
        records: of one job of Spark, oldest first.
        directory: lists one.
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
    """The one entry of the source's log that an epoch read; ``None`` where it read several."""
    planned = record.epoch.planned
    start, end = (log_offset(dict(one.entries).get(source.source)) for one in (planned.start, planned.end))
    return end if end is not None and end == (0 if start is None else start + 1) else None


def _run(aged: Aged, source: SourceIdentity, entry: int | None) -> list[InputFile]:
    """The oldest files whose list has the hash; one that stands alone may be any."""
    if entry is None:
        return []
    files = [InputFile(path, age, entry, source.source) for path, age in aged]
    for many in range(1, min(len(files), _MANY) + 1):
        if chain.inputs(files[:many]) == source.inputs:
            return files[:many]
    return next(([file] for file in files if chain.inputs([file]) == source.inputs), [])
