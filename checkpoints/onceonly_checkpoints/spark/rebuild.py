"""Rebuild a Spark checkpoint from the ledger's records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from onceonly_checkpoints.epoch import EpochRecord, Lineage
from onceonly_checkpoints.model import InputFile, SourceOffsets, shorten_list
from onceonly_checkpoints.spark import logs
from onceonly_checkpoints.spark import offsets as spark_offsets
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint
from onceonly_checkpoints.storage import FileStore

# ---- Plans for writing Spark's checkpoint files back from the ledger's records. Pure.

COMPACT_INTERVAL = 10
"""Spark's default number of log offsets between two compacted files of a file source's log."""


class CannotRebuild(Exception):
    """The records are not enough to rebuild a checkpoint. ``reason`` names the missing part, ``next`` the way out."""

    def __init__(self, reason: str, cause: str, next_: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause
        self.next = next_


class Neighbours(Enum):
    """Other files that the directory of a planned file may hold."""

    ANY = "any"
    NONE_NEWER = "none of a higher number"
    NONE = "none that is not planned"


@dataclass(frozen=True, slots=True)
class FileToWrite:
    """One file of a plan, with its path relative to the checkpoint."""

    path: str
    text: str
    neighbours: Neighbours = Neighbours.ANY


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_PARTITIONS, _SPARKS_OWN = "spark.sql.shuffle.partitions", "200"
"""A setting without which Spark 4.2 dies (``None.get``) when it replays an entry, and Spark's default for it. Entries
that are still readable say what the query really ran with; see :func:`apply`."""

_BY_NAME = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def offsets_text(offsets: SourceOffsets, lineage: Lineage) -> str:
    """Text of an offset log entry: version 1 lists sources by position, 2 by id and only those with an offset."""
    conf = {_PARTITIONS: _SPARKS_OWN}
    if not all(source.isdecimal() for source in offsets.sources):
        # Without this setting Spark takes names for positions, finds none, and reads every source from its beginning.
        conf[_BY_NAME] = "true"
    about: dict[str, object] = {
        "batchWatermarkMs": lineage.watermark_ms,
        "batchTimestampMs": lineage.batch_timestamp_ms,
        "conf": conf,
    }
    if all(source == str(index) for index, source in enumerate(offsets.sources)):
        lines = [spark_offsets.NO_OFFSET if offset is None else offset for _, offset in offsets.entries]
        return "\n".join(["v1", _dump(about), *lines])
    lines = [f"{source}:{offset}" for source, offset in offsets.entries if offset is not None]
    return "\n".join(["v2", _dump({**about, "sourceMetadataInfo": {}}), *lines])


def commit_text(lineage: Lineage) -> str:
    """Text of a commit log entry."""
    return "v1\n" + _dump({"nextBatchWatermarkMs": lineage.watermark_ms})


def plan_entry(record: EpochRecord) -> FileToWrite:
    """The offset log's entry of the batch that became ``record``: makes Spark replay exactly that batch.

    Raises :class:`CannotRebuild` if no batch led to this epoch.
    """
    lineage = record.epoch.lineage
    if lineage is None:
        raise _no_batch(record.epoch.number)
    text = offsets_text(record.epoch.planned.end, lineage)
    return FileToWrite(f"offsets/{lineage.batch_id}", text, Neighbours.NONE_NEWER)


def with_conf(file: FileToWrite, conf: Mapping[str, str]) -> FileToWrite:
    """Add settings that Spark restores to an entry of the offset log. Other files stay as they are."""
    if not conf or not file.path.startswith("offsets/"):
        return file
    version, line, *lines = file.text.split("\n")
    about = json.loads(line)
    about["conf"] |= conf
    return replace(file, text="\n".join([version, _dump(about), *lines]))


def plan_rebuild(
    records: Sequence[EpochRecord], at_epoch: int, logged_files: Iterable[InputFile] = (), *, repeat_last: bool = False
) -> list[FileToWrite]:
    """A checkpoint with which Spark goes on right after ``at_epoch``, under the old query id and batch numbers.

    Spark restores only a few files: two entries of the offset log, the commit of the newer, and the whole log of a file
    source. The ledger lacks only settings that Spark would restore for operators with state, which are not needed to go
    on. State itself cannot be rebuilt. A query that needs it stops when it does not find it.

    Args:
        records: the pipeline's epochs, with file sources all of them from the first.
        at_epoch: the last epoch that counts as done.
        logged_files: files that the damaged checkpoint's own source logs still hold, if the ledger has lost them.
        repeat_last: whether Spark must run the last batch again, because a sink still lacks it.

    Raises ``CannotRebuild`` if the records lack the epoch, its batch or a file list, or a source's offsets need more.
    """
    target, batch = _anchor(records, at_epoch)
    lineage = batch.epoch.lineage
    assert lineage is not None
    end = target.epoch.reached
    plan = _plan_sources(end, _files_of(records, lineage.query_id, at_epoch, logged_files))
    if lineage.batch_id > 0:
        before = _lineage_of(records, lineage.query_id, lineage.batch_id - 1) or lineage
        text = offsets_text(batch.epoch.planned.start, before)
        plan.append(FileToWrite(f"offsets/{lineage.batch_id - 1}", text))
    done = FileToWrite(f"commits/{lineage.batch_id}", commit_text(lineage), Neighbours.NONE_NEWER)
    return [
        *plan,
        *([] if repeat_last and batch is target else [done]),
        FileToWrite(f"offsets/{lineage.batch_id}", offsets_text(end, lineage), Neighbours.NONE_NEWER),
        # Without this file Spark refuses the checkpoint, so it comes last: a half-written one cannot be started.
        FileToWrite("metadata", _dump({"id": lineage.query_id})),
    ]


def _anchor(records: Sequence[EpochRecord], at_epoch: int) -> tuple[EpochRecord, EpochRecord]:
    """The epoch to rebuild at, and the newest epoch up to it that a batch led to (an adoption has no batch)."""
    upto = sorted((each for each in records if each.epoch.number <= at_epoch), key=lambda each: each.epoch.number)
    if not upto or upto[-1].epoch.number != at_epoch:
        raise CannotRebuild(
            f"the ledger holds no epoch {at_epoch}",
            "the number is wrong, or the ledger was lost",
            "see its epochs: onceonly epochs list; refill it from the sinks: onceonly recover rebuild-ledger",
        )
    batches = [each for each in upto if each.epoch.lineage is not None]
    if not batches:
        raise _no_batch(at_epoch)
    return upto[-1], batches[-1]


def _no_batch(number: int) -> CannotRebuild:
    return CannotRebuild(
        f"no batch of Spark led to epoch {number}",
        "it was made by an adoption",
        "choose the epoch of a batch: onceonly epochs list",
    )


def _lineage_of(records: Iterable[EpochRecord], query_id: str, batch_id: int) -> Lineage | None:
    lineages = (each.epoch.lineage for each in records)
    return next((each for each in lineages if each and (each.query_id, each.batch_id) == (query_id, batch_id)), None)


def _files_of(
    records: Iterable[EpochRecord], query_id: str, at_epoch: int, logged_files: Iterable[InputFile]
) -> list[InputFile]:
    """Files of one lineage by log offset. Another lineage's log counts from zero again."""
    batches = [each for each in records if each.epoch.number <= at_epoch and each.epoch.lineage]
    own = [file for each in _of_one_log(batches, query_id) for file in each.files]
    recorded = {(file.source, file.log_offset) for file in own}
    own += (file for file in logged_files if (file.source, file.log_offset) not in recorded)
    # Sorting is stable: within a log offset the files keep the order in which Spark took them.
    return sorted(dict.fromkeys(own), key=lambda file: file.log_offset)


def _of_one_log(batches: Sequence[EpochRecord], query_id: str) -> Sequence[EpochRecord]:
    """Records of a query id. For a rerun, whose batches may each have their own, records of the replayed log."""
    own = [each for each in batches if each.epoch.lineage and each.epoch.lineage.query_id == query_id]
    if not any(each.epoch.replays for each in own):
        return own
    ran = sorted((each for each in batches if each.epoch.replays), key=lambda each: each.epoch.number)
    begun = max((at for at, each in enumerate(ran) if each.epoch.planned.start.unset), default=0)
    return [*ran[begun:], *(each for each in own if not each.epoch.replays)]


def _plan_sources(end: SourceOffsets, files: list[InputFile]) -> list[FileToWrite]:
    plan: list[FileToWrite] = []
    for source, offset in end.entries:
        last = spark_offsets.log_offset(offset)
        if last is not None:
            plan += _plan_log(source, last, [file for file in files if file.source == source])
        elif offset is not None and re.fullmatch(r"-?\d+", offset):
            raise CannotRebuild(
                f"source {source} counts from a start that only the lost checkpoint held (offset {offset})",
                "it is a rate or socket source, whose offsets mean nothing without it",
                "start with a new checkpoint and: onceonly recover adopt",
            )
    return plan


def _plan_log(source: str, last: int, files: list[InputFile]) -> list[FileToWrite]:
    by_offset: dict[int, list[InputFile]] = {number: [] for number in range(last + 1)}
    for file in files:
        if file.log_offset <= last:
            by_offset[file.log_offset].append(file)
    if lacking := [number for number, entry_files in by_offset.items() if not entry_files]:
        raise CannotRebuild(
            f"the file lists of source {source} are not known ({len(lacking)} of {last + 1} log entries)",
            "the ledger was lost, pruned, or filled from the sinks, which do not keep file lists",
            "restore the ledger from a backup, or start with a new checkpoint: the query prints what applies then",
        )
    merged, single = _layout(last)
    upto = {number: [file for each in range(number + 1) for file in by_offset[each]] for number in merged}
    names = {f"{number}{logs.COMPACT}": upto[number] for number in merged}
    names |= {str(number): by_offset[number] for number in single}
    return [
        FileToWrite(f"sources/{source}/{name}", logs.render_files(entry_files), Neighbours.NONE)
        for name, entry_files in names.items()
    ]


def _layout(last: int) -> tuple[list[int], range]:
    """Log offsets of the two newest compacted files, and those after them, each of which gets a file of its own.

    Spark uses the difference between the two newest names as the interval and ignores the setting. With a single one it
    derives an interval from the setting. With none it follows the setting, and insists on files that a lower setting
    would have left. In a short log the names are therefore negative, and the files empty: Spark reads names as signed
    numbers and opens no file below zero.
    """
    newest = (last + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1
    return [newest - COMPACT_INTERVAL, newest], range(newest + 1, last + 1)


def keeps_state(storage: FileStore, version: int) -> bool | None:
    """Whether a checkpoint holds the state after a batch, or ``None`` if the query keeps none.

    ``version`` of the state is the number of the batch that reads it.
    """
    operators = [f"state/{name}" for name in storage.names("state") if name.isdecimal()]
    if not operators:
        return None
    return all(_has_version(storage, operator, version) for operator in operators)


def _has_version(storage: FileStore, operator: str, version: int) -> bool:
    # Files of a version begin with its number, whatever the provider: ``7.delta``, ``7.zip``, ``7_4b1c.changelog``.
    first = next(iter(storage.names(operator)), "0")
    stores = [name for name in storage.names(f"{operator}/{first}") if not re.match(r"\d", name)]
    folders = [f"{operator}/{first}", *(f"{operator}/{first}/{store}" for store in stores)]
    names = [name for folder in folders for name in storage.names(folder)]
    return any(re.match(rf"{version}[._]", name) for name in names)


# ---- Carrying out plans on a checkpoint: nothing is overwritten by accident, and a crash may be repeated.


class InTheWay(Exception):
    """A checkpoint holds files that a plan would have to replace or delete. Nothing was changed.

    ``paths`` are those files, relative to the checkpoint.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(f"the checkpoint holds other content: {shorten_list(paths, 3)}")
        self.paths = paths


def plan_inputs(record: EpochRecord, storage: FileStore) -> list[FileToWrite]:
    """Entries of file sources' logs that differ from the input of ``record``. Goes with :func:`plan_entry`.

    A batch that was cut anew can have the same log offsets but more files. Raises :class:`UnreadableCheckpoint` if a
    compacted log that must be amended is torn or of an unknown version.
    """
    files_by_entry: dict[tuple[str, int], list[InputFile]] = {}
    for file in record.files:
        files_by_entry.setdefault((file.source, file.log_offset), []).append(file)
    plan: list[FileToWrite] = []
    for (source, number), files in files_by_entry.items():
        path, text = _amended(storage, source, number, files)
        if not _holds(storage, path, text):
            plan.append(FileToWrite(path, text))
    return plan


def _amended(storage: FileStore, source: str, number: int, files: list[InputFile]) -> tuple[str, str]:
    path = f"sources/{source}/{number}"
    merged = f"{path}{logs.COMPACT}"
    if storage.exists(path) or not storage.exists(merged):
        return path, logs.render_files(files)
    older = logs.read_files(storage, source, merged)
    return merged, logs.render_files([*(each for each in older if each.log_offset != number), *files])


def in_the_way(plan: Sequence[FileToWrite], storage: FileStore) -> tuple[str, ...]:
    """Files of the checkpoint that ``plan`` would replace or delete, without entries of the same meaning."""
    paths = [each.path for each in plan if storage.exists(each.path) and not _holds(storage, each.path, each.text)]
    planned = {each.path for each in plan}
    for each in plan:
        directory, _, name = each.path.rpartition("/")
        if each.neighbours is not Neighbours.ANY:
            newer = (int(name) if name.isdecimal() else 0) if each.neighbours is Neighbours.NONE_NEWER else -1
            paths += (
                path
                for other in storage.names(directory)
                if (path := f"{directory}/{other}") not in planned and _number(other) > newer
            )
    return tuple(dict.fromkeys(paths))


def _number(name: str) -> int:
    digits = re.match(r"\d+", name)
    return int(digits[0]) if digits else 0


def _holds(storage: FileStore, path: str, text: str) -> bool:
    try:
        present = storage.read(path).decode()
        return present == text or _meaning(path, present) == _meaning(path, text)
    except (FileNotFoundError, UnicodeDecodeError, UnreadableCheckpoint):
        return False


def _meaning(path: str, text: str) -> object:
    """The relevant part of a file's text. A real entry also holds settings, and a commit must only be readable."""
    directory = path.partition("/")[0]
    if directory == "offsets":
        entry = spark_offsets.parse_offsets(text, path)
        return entry.offsets, entry.batch_timestamp_ms, entry.watermark_ms
    if directory == "commits":
        spark_offsets.parse_commit(text, path)  # a real one holds the true next watermark, which nobody else knows
        return directory
    if directory == "sources":
        return sorted(logs.parse_files(text, "", path), key=lambda file: (file.log_offset, file.path))
    return spark_offsets.parse_query_id(text, path)


def apply(plan: Sequence[FileToWrite], storage: FileStore, *, replacing: bool = False) -> tuple[str, ...]:
    """Write a plan's files, in its order, and return the written paths. May be repeated after a crash.

    Files of the same meaning stay. Settings that a readable entry of the offset log still holds are carried over into
    the written entries. Obstacles raise :class:`InTheWay`, or are deleted with ``replacing``.
    """
    obstacles = in_the_way(plan, storage)
    if obstacles and not replacing:
        raise InTheWay(obstacles)
    conf = _conf(storage)
    if obstacles and any(each.path == "metadata" for each in plan):
        storage.delete("metadata")
    for path in obstacles:
        storage.delete(path)
    missing = [each for each in plan if not storage.exists(each.path)]
    for each in missing:
        storage.create(each.path, with_conf(each, conf).text.encode())
    return tuple(each.path for each in missing)


def _conf(storage: FileStore) -> dict[str, str]:
    for number in reversed(spark_offsets.offset_ids(storage)):
        try:
            return dict(spark_offsets.offset_entry(storage, number).conf)
        except UnreadableCheckpoint:
            continue
    # State that came back from a backup has a folder for each partition, and Spark looks for no other number of them.
    operators = [storage.names(f"state/{name}") for name in storage.names("state") if name.isdigit()]
    partitions = max((sum(map(str.isdigit, names)) for names in operators), default=0)
    return {_PARTITIONS: str(partitions)} if partitions else {}
