"""Overlap of a batch with recorded epochs, by source position. Pure.

Offsets of Kafka mean the same under every checkpoint, so the end of the last epoch decides which rows are written.
Those of a file source count entries of a log in the checkpoint. There the file lists of all epochs decide, and the
log's own earlier entries prove that nothing was missed. A row is left out only if its position is proven to be in an
epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from onceonly.machine.facts import Offer
from onceonly.machine.source_order import describe, name_origins, same_origins
from onceonly.protocol import batch
from onceonly_checkpoints import chain, model
from onceonly_checkpoints.epoch import Epoch, EpochRecord


def unfit(sources: Sequence[model.SourceIdentity], column_types: Mapping[str, str], *, stateful: bool) -> str:
    """Return why a query could never be trimmed, or empty if it can be."""
    if stateful:
        return "it keeps state, and an output row of such a query has no one position in the source"
    if len(sources) != 1:
        return f"it has {len(sources)} sources, and a row does not show its source"
    expected = columns(sources)
    if expected is None:
        unasked = "; nor have those of a topic without access to its brokers, as on Spark Connect"
        unnamed = unasked if sources[0].kind is model.SourceKind.UNNAMED else ""
        return f"the rows of its source ({name_origins(tuple(sources))}) have no position{unnamed}"
    lacking = [f"{name} {kind}" for name, kind in expected.items() if column_types.get(name) != kind]
    return f"its rows lack {', '.join(lacking)}" if lacking else ""


def columns(sources: Sequence[model.SourceIdentity]) -> Mapping[str, str] | None:
    """Return columns, with types, that identify rows of a query's only source, or ``None`` if none do."""
    return _COLUMNS.get(sources[0].kind) if len(sources) == 1 else None


_COLUMNS = {model.SourceKind.KAFKA: batch.KAFKA_COLUMNS, model.SourceKind.FILES: batch.FILE_COLUMNS}


def reads_files(sources: Sequence[model.SourceIdentity]) -> bool:
    """Whether any source is a file source."""
    return any(source.kind is model.SourceKind.FILES for source in sources)


def compares_all(newest: Epoch) -> bool:
    """Whether every batch is still compared with the files of all epochs, so that the ledger must keep them."""
    return newest.resume_point.offered is not None and reads_files(newest.sources)


def held_files(records: Sequence[EpochRecord], last: Epoch) -> batch.RecordedInputFiles:
    """Return the input files of a series, and the gap if its history is not proven to be whole.

    ``records`` are all epochs of the ledger, oldest first. ``last`` is the epoch that every sink holds.
    """
    records = [record for record in records if record.epoch.number >= last.series]
    epochs = [record.epoch for record in records]
    files = {batch.plain(file.path): file.modified_ms for record in records for file in record.files}
    if not chain.descends(last, epochs) or epochs[0].number != last.series:
        return batch.RecordedInputFiles(files, f"the ledger does not hold every epoch up to {last.number}")
    if not epochs[0].written.start.unset:
        return batch.RecordedInputFiles(
            files, f"the pipeline began in the middle of its source, at {describe(epochs[0].written.start)}"
        )
    for record in records:
        if reason := _lacking(record):
            return batch.RecordedInputFiles(files, reason)
    return batch.RecordedInputFiles(files)


def repeats(records: Sequence[EpochRecord], offered: Sequence[model.InputFile]) -> bool | None:
    """Whether a batch has a file that epochs hold. ``None``: a list is lost, and its hash is not the batch's."""
    held = {batch.plain(file.path) for record in records for file in record.files}
    hashes = {source.inputs for record in records for source in record.epoch.sources if record.epoch.lineage}
    if any(batch.plain(file.path) in held for file in offered) or (offered and chain.inputs(offered) in hashes):
        return True
    return False if offered and all(_listed(record) for record in records) else None


def _listed(record: EpochRecord) -> bool:
    epoch = record.epoch
    if epoch.lineage is None or epoch.written.empty:
        return True
    files = [source for source in epoch.sources if source.inputs is not None]
    own = {source.source: [file for file in record.files if file.source == source.source] for source in files}
    return bool(files) and all(source.inputs == chain.inputs(own[source.source]) for source in files)


_SKIPPING = (model.AdoptionKind.ACCEPT_LOSS, model.AdoptionKind.START, model.AdoptionKind.FROM_CHECKPOINT)
"""Kinds of adoption that can move a position past input which no epoch names."""


def _lacking(record: EpochRecord) -> str:
    epoch = record.epoch
    if epoch.adoption is not None:
        skips = epoch.adoption.kind in _SKIPPING and not epoch.written.empty
        return f"epoch {epoch.number} ({epoch.adoption.words}) moved on past files that are not listed" if skips else ""
    for source in epoch.sources:
        own = [file for file in record.files if file.source == source.source]
        if source.inputs is not None and source.inputs != chain.inputs(own):
            return f"the ledger has no file list of epoch {epoch.number}, or another one than its marker names"
    return ""


def cut(last: Epoch, offer: Offer, held: batch.RecordedInputFiles | None) -> batch.TrimmedBatch | str | None:
    """Return the part to write, or why it cannot be proven. ``None``: input after the last epoch is missing."""
    if offer.stateful:
        return "the query keeps state, and a row of its output has no one position in the source"
    if len(offer.sources) != 1 or len(last.written.end.sources) != 1:
        return "a row of several sources does not show its source"
    source = offer.sources[0]
    recorded = last.sources[0].identity if last.sources else None
    if source.identity is None or recorded is None or not same_origins(last.sources, offer.sources):
        return f"the source of epoch {last.number} ({recorded or 'unknown'}) is not proven to be the same"
    if source.kind is model.SourceKind.KAFKA:
        return _by_offset(last, offer)
    if source.kind is model.SourceKind.FILES and held is not None:
        return _by_file(last, offer, held)
    return f"the offsets of its source ({source.identity}) do not identify rows"


Positions = dict[tuple[str, int], int]


def _positions(offsets: model.SourceOffsets) -> Positions:
    text = offsets.entries[0][1]
    topics = json.loads(text) if text else {}
    return {(topic, int(number)): at for topic, numbers in topics.items() for number, at in numbers.items()}


def _by_offset(last: Epoch, offer: Offer) -> batch.TrimmedBatch | str | None:
    held, first, end = map(_positions, (last.written.end, offer.start, offer.slice.end))
    for at in held.keys() | first.keys():
        name = f"partition {at[1]} of {at[0]}"
        if at not in end:
            return f"{name} is not read any more"
        if at in held and at not in first:
            return f"it is not known where {name} starts"
        if at not in held and first[at] > 0:
            return f"{name} starts at {first[at]}, and no epoch holds the rows before"
    if any(first[at] > held[at] for at in held):
        return None
    spans = tuple(batch.Span(*at, first.get(at, 0), held.get(at, 0), end[at]) for at in sorted(end))
    return batch.TrimmedBatch(model.Slice(last.written.end, _furthest(last, held, end)), batch.OffsetTrim(spans))


def _furthest(last: Epoch, held: Positions, end: Positions) -> model.SourceOffsets:
    topics: dict[str, dict[str, int]] = {}
    for topic, number in sorted(end):
        at = (topic, number)
        topics.setdefault(topic, {})[str(number)] = max(end[at], held.get(at, 0))
    return model.SourceOffsets.of({last.written.end.sources[0]: model.canonical(topics)})


def _by_file(last: Epoch, offer: Offer, held: batch.RecordedInputFiles) -> batch.TrimmedBatch | str | None:
    if held.lacking:
        return held.lacking
    for file in offer.earlier or ():
        if not _holds(held, file):
            return None
    if changed := [file.path for file in offer.files if _changed(held, file)]:
        return f"{changed[0]} was changed since an epoch wrote it"
    return batch.TrimmedBatch(model.Slice(last.written.end, offer.slice.end), trim_files(offer, held))


def trim_files(offer: Offer, held: batch.RecordedInputFiles) -> batch.FileTrim:
    """Split the files of a batch into those that an epoch holds, and the others."""
    paths = [batch.plain(file.path) for file in offer.files]
    held_paths = tuple(path for path in paths if path in held.files)
    return batch.FileTrim(held_paths, tuple(path for path in paths if path not in held.files))


def past_all(offer: Offer, held: batch.RecordedInputFiles) -> bool:
    """Whether a checkpoint has handed out every file of earlier epochs. From then on its count is enough."""
    if offer.earlier is None or held.lacking:
        return False
    return held.files.keys() <= {batch.plain(file.path) for file in (*offer.earlier, *offer.files)}


def _holds(held: batch.RecordedInputFiles, file: model.InputFile) -> bool:
    return held.files.get(batch.plain(file.path)) == file.modified_ms


def _changed(held: batch.RecordedInputFiles, file: model.InputFile) -> bool:
    return batch.plain(file.path) in held.files and not _holds(held, file)
