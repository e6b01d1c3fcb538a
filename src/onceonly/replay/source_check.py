"""Check that the source still holds rows beyond a cut-back epoch.

Spark reads a missing file as no rows, so every file is checked. The list comes from the ledger or else from the
checkpoint, which is deleted with the cut. Other sources are not checked from here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from onceonly.errors import mask
from onceonly.machine.acceptance import batches_given_up
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.model import InputFile, SourceIdentity, SourceKind, SourceOffsets
from onceonly_checkpoints.spark import offsets as spark_offsets
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint, input_files, newest_entry
from onceonly_checkpoints.storage import Readable, UnreachableStorage, file_system, is_local, local_path

IsThere = Callable[[str], bool | None]
"""Returns whether an input file exists, by its URL, or ``None`` if this cannot be checked."""


def is_there(url: str) -> bool | None:
    """Return whether an input file exists, or ``None`` if this process cannot check."""
    if is_local(url):
        return local_path(url).exists()
    with suppress(UnreachableStorage, OSError):
        files, path = file_system(url)
        return bool(files.exists(path))
    return None


@dataclass(frozen=True, slots=True)
class SourceAvailability:
    """The source beyond an epoch.

    Attributes:
        gone: missing files in words, by number of the epoch that read them, or would have.
        unasked: parts that cannot be checked, each in words that follow "not asked:".
    """

    gone: Mapping[int, str]
    unasked: tuple[str, ...] = ()


def by_lists(records: Iterable[EpochRecord], after: int, there: IsThere) -> SourceAvailability:
    """Check the files of epochs after ``after``, as far as the ledger lists them."""
    return _looked_for({record.epoch.number: record.files for record in records if record.epoch.number > after}, there)


def beyond(
    stood: Epoch, known: Mapping[int, Epoch], records: Sequence[EpochRecord], log: Readable | None, there: IsThere
) -> SourceAvailability:
    """Check the source beyond epoch ``stood``, also for batches without a record or without a list of files.

    ``known`` are epochs by number. ``log`` is the checkpoint, or ``None`` if it cannot be found.
    """
    after = {number: epoch for number, epoch in sorted(known.items()) if number > stood.number}
    listed = {record.epoch.number: record.files for record in records if record.epoch.number in after}
    log = log if log and _is_of(log, stood) else None
    files, unlisted = _unlisted(stood, after, listed, log)
    found = _looked_for(
        {number: (*listed.get(number, ()), *files.get(number, ())) for number in {*listed, *files}}, there
    )
    unasked = [*found.unasked, *_unknown(stood, unlisted, log), *_not_files(stood)]
    return SourceAvailability(found.gone, tuple(unasked))


def _looked_for(files: Mapping[int, Iterable[InputFile]], there: IsThere) -> SourceAvailability:
    gone: dict[int, str] = {}
    unknown = 0
    for number, those in sorted(files.items()):
        found = [(file.path, there(file.path)) for file in those]
        unknown += sum(answer is None for _, answer in found)
        if lost := [mask(path) for path, answer in found if answer is False]:
            gone[number] = f"{lost[0]}{f' and {len(lost) - 1} more' if len(lost) > 1 else ''}"
    return SourceAvailability(gone, (f"whether {unknown} input files are still there",) if unknown else ())


# ---- Entries of a file source's log beyond an epoch, and their epochs or batches.


def _unlisted(
    stood: Epoch, after: Mapping[int, Epoch], listed: Mapping[int, Sequence[InputFile]], log: Readable | None
) -> tuple[Mapping[int, Sequence[InputFile]], int]:
    """Files by epoch number that only the checkpoint lists, and the number of entries without any list."""
    same = [epoch for epoch in after.values() if _same_job(epoch, stood)]
    others = [epoch for epoch in after.values() if not _same_job(epoch, stood)]
    ends = list(_ends(stood, same, log))
    covered = {(file.source, file.log_offset) for epoch in same for file in listed.get(epoch.number, ())}
    files: dict[int, list[InputFile]] = {}
    unknown = sum(_of_files(epoch) and not listed.get(epoch.number) for epoch in others)
    for source, begun in _file_sources(stood, ends):
        last = max((at for _, end in ends if (at := _at(end, source)) is not None), default=begun)
        last = max(last, newest_entry(log, source) if log else -1)
        wanted = [entry for entry in range(begun + 1, last + 1) if (source, entry) not in covered]
        found = list(_entries(log, source, wanted))
        for file in found:
            files.setdefault(_number(ends, source, file.log_offset, stood), []).append(file)
        unknown += len(set(wanted) - {file.log_offset for file in found})
    return files, unknown


def _ends(stood: Epoch, same: Sequence[Epoch], log: Readable | None) -> Iterator[tuple[int, SourceOffsets]]:
    """Yield ends of epochs beyond one, and then of the checkpoint's further batches, numbered from the last epoch."""
    yield from ((epoch.number, epoch.reached) for epoch in same)
    newest = same[-1] if same else stood
    lineage = newest.standing.lineage
    if log is None or lineage is None:
        return
    done = lineage.batch_id + batches_given_up(newest.standing.accepted)
    for batch in spark_offsets.offset_ids(log):
        if batch > done:
            with suppress(UnreadableCheckpoint):
                yield newest.number + batch - done, spark_offsets.offset_entry(log, batch).offsets


def _file_sources(stood: Epoch, ends: Sequence[tuple[int, SourceOffsets]]) -> Iterator[tuple[str, int]]:
    """File sources, each with the entry of its log at an epoch. -1 is before the first."""
    for source in stood.reached.sources:
        begun = _at(stood.reached, source)
        if begun is not None or any(_at(end, source) is not None for _, end in ends):
            yield source, -1 if begun is None else begun


def _at(offsets: SourceOffsets, source: str) -> int | None:
    return spark_offsets.log_offset(dict(offsets.entries).get(source))


def _number(ends: Sequence[tuple[int, SourceOffsets]], source: str, entry: int, stood: Epoch) -> int:
    """Return the epoch of an entry of a file source's log. One that Spark has not planned gets the next number."""
    holds = (number for number, end in ends if (at := _at(end, source)) is not None and at >= entry)
    return next(holds, (ends[-1][0] if ends else stood.number) + 1)


def _entries(log: Readable | None, source: str, wanted: Sequence[int]) -> Iterator[InputFile]:
    """Yield files of entries of a file source's log. Entries that cannot be read are left out."""
    if log is None or not wanted:
        return
    try:
        found = input_files(log, source, wanted[0] - 1 if wanted[0] else None, wanted[-1])
        entries = frozenset(wanted)
        yield from (file for file in found if file.log_offset in entries)
    except UnreadableCheckpoint:
        if len(wanted) > 1:
            half = len(wanted) // 2
            yield from _entries(log, source, wanted[:half])
            yield from _entries(log, source, wanted[half:])


def _is_of(log: Readable, stood: Epoch) -> bool:
    """Return whether a checkpoint belongs to an epoch's job. The log of another job has its own numbers."""
    lineage = stood.standing.lineage
    try:
        return lineage is not None and spark_offsets.query_id(log) == lineage.query_id
    except UnreadableCheckpoint:
        # A killed cut has deleted ``metadata`` first.
        return bool(log.names("sources"))


def _same_job(epoch: Epoch, stood: Epoch) -> bool:
    one, other = epoch.standing.lineage, stood.standing.lineage
    return one is not None and other is not None and one.query_id == other.query_id


def _of_files(epoch: Epoch) -> bool:
    """Return whether an epoch comes from a batch of files."""
    return epoch.lineage is not None and any(_at(epoch.reached, source) is not None for source in epoch.reached.sources)


# ---- Words for parts of the source that were not checked.


def _unknown(stood: Epoch, unlisted: int, log: Readable | None) -> Iterator[str]:
    if unlisted:
        entries = f"{unlisted} {'batch' if unlisted == 1 else 'batches'} beyond epoch {stood.number}"
        yield f"for the files of {entries}, which neither the ledger nor the checkpoint lists: any that is gone is lost"
    elif log is None and any(_file_sources(stood, ())):
        yield (
            f"for files of batches beyond epoch {stood.number} that the ledger does not know: their checkpoint is not "
            "to be found; any that is gone is lost"
        )


def _not_files(stood: Epoch) -> Iterator[str]:
    known = {one.source: one for one in stood.sources}
    files = {source for source, _ in _file_sources(stood, ())}
    files |= {one.source for one in stood.sources if one.kind is SourceKind.FILES}
    others = [_named(source, known.get(source)) for source in stood.reached.sources if source not in files]
    if others:
        yield (
            f"whether {', '.join(others)} still holds what lies beyond epoch {stood.number}; if not, the query stops "
            "with Spark's own error: begin it with a new checkpoint at what is left, and its message gives up the rest"
        )


def _named(source: str, identity: SourceIdentity | None) -> str:
    match identity.kind if identity else None:
        case SourceKind.KAFKA if identity and (topics := ", ".join(json.loads(identity.name)["topics"])):
            return f"topic {topics}"
        case SourceKind.OTHER if identity:
            return f"table {identity.name}"
        case _:
            return f"source {source}"
