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
from onceonly_checkpoints.model import InputFile, SourceIdentity, SourceKind, SourceOffsets, shorten_list
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


def check_source(
    base: Epoch, epochs: Mapping[int, Epoch], records: Sequence[EpochRecord], log: Readable | None, there: IsThere
) -> SourceAvailability:
    """Check the source beyond epoch ``base``, also for batches without a record or without a list of files.

    ``epochs`` are epochs by number. ``log`` is the checkpoint, or ``None`` if it cannot be found.
    """
    after = {number: epoch for number, epoch in sorted(epochs.items()) if number > base.number}
    listed = {record.epoch.number: record.files for record in records if record.epoch.number in after}
    log = log if log and _is_of(log, base) else None
    files, unlisted = _unlisted(base, after, listed, log)
    availability = _looked_for(
        {number: (*listed.get(number, ()), *files.get(number, ())) for number in {*listed, *files}}, there
    )
    unasked = [*availability.unasked, *_unknown(base, unlisted, log), *_not_files(base)]
    return SourceAvailability(availability.gone, tuple(unasked))


def _looked_for(files: Mapping[int, Iterable[InputFile]], there: IsThere) -> SourceAvailability:
    gone: dict[int, str] = {}
    unknown = 0
    for number, those in sorted(files.items()):
        answers = [(file.path, there(file.path)) for file in those]
        unknown += sum(answer is None for _, answer in answers)
        if lost := [mask(path) for path, answer in answers if answer is False]:
            gone[number] = shorten_list(lost, 1)
    return SourceAvailability(gone, (f"whether {unknown} input files are still there",) if unknown else ())


# ---- Entries of a file source's log beyond an epoch, and their epochs or batches.


def _unlisted(
    base: Epoch, after: Mapping[int, Epoch], listed: Mapping[int, Sequence[InputFile]], log: Readable | None
) -> tuple[Mapping[int, Sequence[InputFile]], int]:
    """Files by epoch number that only the checkpoint lists, and the number of entries without any list."""
    same = [epoch for epoch in after.values() if _same_job(epoch, base)]
    others = [epoch for epoch in after.values() if not _same_job(epoch, base)]
    ends = list(_ends(base, same, log))
    covered = {(file.source, file.log_offset) for epoch in same for file in listed.get(epoch.number, ())}
    files: dict[int, list[InputFile]] = {}
    unknown = sum(_of_files(epoch) and not listed.get(epoch.number) for epoch in others)
    for source, begun in _file_sources(base, ends):
        last = max((at for _, end in ends if (at := _at(end, source)) is not None), default=begun)
        last = max(last, newest_entry(log, source) if log else -1)
        log_entries = [entry for entry in range(begun + 1, last + 1) if (source, entry) not in covered]
        entry_files = list(_entries(log, source, log_entries))
        for file in entry_files:
            files.setdefault(_number(ends, source, file.log_offset, base), []).append(file)
        unknown += len(set(log_entries) - {file.log_offset for file in entry_files})
    return files, unknown


def _ends(base: Epoch, same: Sequence[Epoch], log: Readable | None) -> Iterator[tuple[int, SourceOffsets]]:
    """Yield ends of epochs beyond one, and then of the checkpoint's further batches, numbered from the last epoch."""
    yield from ((epoch.number, epoch.reached) for epoch in same)
    newest = same[-1] if same else base
    lineage = newest.resume_point.lineage
    if log is None or lineage is None:
        return
    done = lineage.batch_id + batches_given_up(newest.resume_point.accepted)
    for batch in spark_offsets.offset_ids(log):
        if batch > done:
            with suppress(UnreadableCheckpoint):
                yield newest.number + batch - done, spark_offsets.offset_entry(log, batch).offsets


def _file_sources(base: Epoch, ends: Sequence[tuple[int, SourceOffsets]]) -> Iterator[tuple[str, int]]:
    """File sources, each with the entry of its log at an epoch. -1 is before the first."""
    for source in base.reached.sources:
        begun = _at(base.reached, source)
        if begun is not None or any(_at(end, source) is not None for _, end in ends):
            yield source, -1 if begun is None else begun


def _at(offsets: SourceOffsets, source: str) -> int | None:
    return spark_offsets.log_offset(dict(offsets.entries).get(source))


def _number(ends: Sequence[tuple[int, SourceOffsets]], source: str, entry: int, base: Epoch) -> int:
    """Return the epoch of an entry of a file source's log. One that Spark has not planned gets the next number."""
    holds = (number for number, end in ends if (at := _at(end, source)) is not None and at >= entry)
    return next(holds, (ends[-1][0] if ends else base.number) + 1)


def _entries(log: Readable | None, source: str, log_entries: Sequence[int]) -> Iterator[InputFile]:
    """Yield files of entries of a file source's log. Entries that cannot be read are left out."""
    if log is None or not log_entries:
        return
    try:
        files = input_files(log, source, log_entries[0] - 1 if log_entries[0] else None, log_entries[-1])
        entries = frozenset(log_entries)
        yield from (file for file in files if file.log_offset in entries)
    except UnreadableCheckpoint:
        if len(log_entries) > 1:
            half = len(log_entries) // 2
            yield from _entries(log, source, log_entries[:half])
            yield from _entries(log, source, log_entries[half:])


def _is_of(log: Readable, base: Epoch) -> bool:
    """Return whether a checkpoint belongs to an epoch's job. The log of another job has its own numbers."""
    lineage = base.resume_point.lineage
    try:
        return lineage is not None and spark_offsets.query_id(log) == lineage.query_id
    except UnreadableCheckpoint:
        # A killed cut has deleted ``metadata`` first.
        return bool(log.names("sources"))


def _same_job(epoch: Epoch, base: Epoch) -> bool:
    lineage, other = epoch.resume_point.lineage, base.resume_point.lineage
    return lineage is not None and other is not None and lineage.query_id == other.query_id


def _of_files(epoch: Epoch) -> bool:
    """Return whether an epoch comes from a batch of files."""
    return epoch.lineage is not None and any(_at(epoch.reached, source) is not None for source in epoch.reached.sources)


# ---- Words for parts of the source that were not checked.


def _unknown(base: Epoch, unlisted: int, log: Readable | None) -> Iterator[str]:
    if unlisted:
        entries = f"{unlisted} {'batch' if unlisted == 1 else 'batches'} beyond epoch {base.number}"
        yield f"for the files of {entries}, which neither the ledger nor the checkpoint lists: any that is gone is lost"
    elif log is None and any(_file_sources(base, ())):
        yield (
            f"for files of batches beyond epoch {base.number} that the ledger does not know: their checkpoint is not "
            "to be found; any that is gone is lost"
        )


def _not_files(base: Epoch) -> Iterator[str]:
    identities = {identity.source: identity for identity in base.sources}
    files = {source for source, _ in _file_sources(base, ())}
    files |= {identity.source for identity in base.sources if identity.kind is SourceKind.FILES}
    others = [_named(source, identities.get(source)) for source in base.reached.sources if source not in files]
    if others:
        yield (
            f"whether {', '.join(others)} still holds the input after epoch {base.number}; if not, the query stops "
            "with Spark's own error: begin it with a new checkpoint at the remaining input, and its message "
            "gives up the rest"
        )


def _named(source: str, identity: SourceIdentity | None) -> str:
    match identity.kind if identity else None:
        case SourceKind.KAFKA if identity and (topics := ", ".join(json.loads(identity.name)["topics"])):
            return f"topic {topics}"
        case SourceKind.OTHER if identity:
            return f"table {identity.name}"
        case _:
            return f"source {source}"
