"""What ``checkpoint rebuild`` is about to write, and how a checkpoint lies to what was committed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from onceonly.cli import records
from onceonly.cli.places import Place
from onceonly.errors import refuse
from onceonly.sources import describe
from onceonly_checkpoints import sparklog, surgery
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.slices import InputFile
from onceonly_checkpoints.sparklog import UnreadableCheckpoint
from onceonly_checkpoints.storage import Storage
from onceonly_checkpoints.surgery import CannotRebuild, Effect, FileToWrite, Problem

_PARTS = {"metadata", "offsets", "commits", "sources", "state"}
"""Names that Spark gives to the parts of a checkpoint."""


def plan(place: Place, storage: Storage, at: int | None, batch: int | None) -> list[FileToWrite]:
    """Plan the whole checkpoint at an epoch, or one batch's entry.

    Args:
        place: the pipeline.
        storage: the checkpoint; need not exist.
        at: the last epoch that shall count as done; ``None`` is the newest.
        batch: rebuild this batch's entry alone.

    Raises:
        CheckpointError: E603 the directory is something else, E604 the records do not say enough.
    """
    _demand_room(storage)
    known = records.read(place)
    try:
        return _plan_all(storage, known, at) if batch is None else _plan_entry(place, storage, known, batch)
    except CannotRebuild as error:
        raise refuse(
            "E604", pipeline=place.pipeline, reason=error.reason, cause=error.cause, next=error.next
        ) from error


def _demand_room(storage: Storage) -> None:
    """Refuse to write into a directory that holds something else than a checkpoint."""
    names = set(storage.names(""))
    if names and not names & _PARTS:
        raise refuse("E603", path=storage.url, reason=f"it holds other things: {', '.join(sorted(names)[:3])}")


def _plan_all(storage: Storage, known: Sequence[EpochRecord], at: int | None) -> list[FileToWrite]:
    epoch = at if at is not None else known[-1].epoch.number if known else 0
    return surgery.plan_rebuild(known, epoch, _still_there(storage, known, epoch), again=_pending(known, epoch))


def _pending(known: Sequence[EpochRecord], epoch: int) -> bool:
    """Whether a sink lacks an epoch that others hold: the driver that runs its batch again brings that sink to it."""
    target = next((record for record in known if record.epoch.number == epoch), None)
    return target is not None and not {sink for sink, _ in target.epoch.sinks} <= {one.sink for one in target.receipts}


def _still_there(storage: Storage, known: Sequence[EpochRecord], epoch: int) -> list[InputFile]:
    """Files that the damaged checkpoint's own source logs hold and no record does."""
    target = next((record for record in known if record.epoch.number == epoch), None)
    if target is None:
        return []
    recorded = {(file.source, file.log_offset) for record in known for file in record.files}
    found: list[InputFile] = []
    for source, offset in target.epoch.planned.end.entries:
        last = sparklog.log_offset(offset)
        for number in range(0 if last is None else last + 1):
            if (source, number) not in recorded:
                found += _files_at(storage, source, number)
    return found


def _files_at(storage: Storage, source: str, number: int) -> Sequence[InputFile]:
    try:
        return sparklog.input_files(storage, source, number - 1 if number else None, number)
    except UnreadableCheckpoint:
        return ()


def _plan_entry(place: Place, storage: Storage, known: Sequence[EpochRecord], batch: int) -> list[FileToWrite]:
    query_id = sparklog.query_id(storage)
    lineages = ((record, record.epoch.lineage) for record in reversed(known))
    for record, lineage in lineages:
        if lineage is not None and (lineage.query_id, lineage.batch_id) == (query_id, batch):
            return [*surgery.plan_inputs(record, storage), surgery.plan_entry(record)]
    raise CannotRebuild(
        f"no epoch came from batch {batch} of query id {query_id}",
        "the batch was never written, or the checkpoint is another query's",
        f"onceonly epochs list --query {shlex.quote(place.pipeline)}",
    )


def compare(storage: Storage, pipeline: str, newest: EpochRecord) -> Iterator[Problem]:
    """Whether Spark will go on from this checkpoint where the sinks stand."""
    lineage = newest.epoch.lineage
    remedy = f"onceonly checkpoint rebuild {shlex.quote(storage.url)} --query {shlex.quote(pipeline)}"
    if lineage is None:
        return
    found = sparklog.query_id(storage)
    if found != lineage.query_id:
        yield Problem(
            "metadata",
            f"query id {found}, but epoch {newest.epoch.number} came from {lineage.query_id}",
            Effect.REPEATS,
            "Spark reads from where this other checkpoint stands; onceonly stops it unless nothing is lost or doubled.",
            remedy,
        )
        return
    yield from _compare_entry(storage, newest, lineage.batch_id, remedy)


def _compare_entry(storage: Storage, newest: EpochRecord, batch: int, remedy: str) -> Iterator[Problem]:
    path = f"offsets/{batch}"
    end = newest.epoch.planned.end
    if not storage.exists(path):
        yield Problem(
            path,
            f"missing, but epoch {newest.epoch.number} came from this batch",
            Effect.REPEATS,
            "Spark plans the batch again, perhaps with other rows; onceonly stops it then.",
            remedy,
        )
        return
    entry = sparklog.offset_entry(storage, batch)
    if entry.offsets != end:
        yield Problem(
            path,
            f"ends at {describe(entry.offsets)}, but epoch {newest.epoch.number} at {describe(end)}",
            Effect.LOSES,
            "One batch stands for two ranges; onceonly stops the query.",
            f"{remedy} --entry {batch}",
        )
