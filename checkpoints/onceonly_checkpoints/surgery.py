"""Carrying out plans on a checkpoint: nothing is overwritten by accident, and a crash may be repeated."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onceonly_checkpoints import filelog, sparklog
from onceonly_checkpoints.checkup import Effect, Problem, verify
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.logtext import UnreadableCheckpoint
from onceonly_checkpoints.rebuild import CannotRebuild, FileToWrite, Neighbours, plan_entry, plan_rebuild, with_conf
from onceonly_checkpoints.slices import InputFile
from onceonly_checkpoints.storage import Storage

__all__ = [
    "CannotRebuild",
    "Effect",
    "FileToWrite",
    "InTheWay",
    "Neighbours",
    "Problem",
    "apply",
    "in_the_way",
    "plan_entry",
    "plan_inputs",
    "plan_rebuild",
    "verify",
]


class InTheWay(Exception):
    """A checkpoint holds files that a plan would have to replace or delete. Nothing was changed.

    Attributes:
        paths: those files, relative to the checkpoint.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        super().__init__(f"the checkpoint holds other content: {', '.join(paths[:3])}{more}")
        self.paths = paths


def plan_inputs(record: EpochRecord, storage: Storage) -> list[FileToWrite]:
    """Entries of file sources' logs that differ from what ``record`` read; goes with :func:`plan_entry`.

    A batch that was cut anew can have the same log offsets but more files.

    Raises:
        UnreadableCheckpoint: a compacted log that must be amended is torn or of an unknown version.
    """
    wanted: dict[tuple[str, int], list[InputFile]] = {}
    for file in record.files:
        wanted.setdefault((file.source, file.log_offset), []).append(file)
    plan: list[FileToWrite] = []
    for (source, number), files in wanted.items():
        path, text = _amended(storage, source, number, files)
        if not _holds(storage, path, text):
            plan.append(FileToWrite(path, text))
    return plan


def _amended(storage: Storage, source: str, number: int, files: list[InputFile]) -> tuple[str, str]:
    path = f"sources/{source}/{number}"
    merged = f"{path}{filelog.COMPACT}"
    if storage.exists(path) or not storage.exists(merged):
        return path, filelog.render_files(files)
    older = filelog.read_files(storage, source, merged)
    return merged, filelog.render_files([*(each for each in older if each.log_offset != number), *files])


def in_the_way(plan: Sequence[FileToWrite], storage: Storage) -> tuple[str, ...]:
    """Files of the checkpoint that ``plan`` would replace or delete; an entry that says the same is not in the way."""
    found = [each.path for each in plan if storage.exists(each.path) and not _holds(storage, each.path, each.text)]
    planned = {each.path for each in plan}
    for each in plan:
        directory, _, name = each.path.rpartition("/")
        if each.neighbours is not Neighbours.ANY:
            newer = (int(name) if name.isdecimal() else 0) if each.neighbours is Neighbours.NONE_NEWER else -1
            found += (
                path
                for other in storage.names(directory)
                if (path := f"{directory}/{other}") not in planned and _number(other) > newer
            )
    return tuple(dict.fromkeys(found))


def _number(name: str) -> int:
    digits = re.match(r"\d+", name)
    return int(digits[0]) if digits else 0


def _holds(storage: Storage, path: str, text: str) -> bool:
    """Whether a file is there and means the same as ``text``."""
    try:
        present = storage.read(path).decode()
        return present == text or _meaning(path, present) == _meaning(path, text)
    except (FileNotFoundError, UnicodeDecodeError, UnreadableCheckpoint):
        return False


def _meaning(path: str, text: str) -> object:
    """What of a file's text counts: a real entry also holds settings, and a real commit the true next watermark."""
    directory = path.partition("/")[0]
    if directory == "offsets":
        entry = sparklog.parse_offsets(text, path)
        return entry.offsets, entry.batch_timestamp_ms, entry.watermark_ms
    if directory == "commits":
        return bool(sparklog.parse_commit(text, path))
    if directory == "sources":
        return sorted(filelog.parse_files(text, "", path), key=lambda file: (file.log_offset, file.path))
    return sparklog.parse_query_id(text, path)


def apply(plan: Sequence[FileToWrite], storage: Storage, *, replacing: bool = False) -> tuple[str, ...]:
    """Write a plan's files, in its order; what is there already and says the same stays. May be repeated after a crash.

    Settings that a readable entry of the offset log still holds are carried over into the entries that are written.

    Args:
        plan: the files.
        storage: the checkpoint.
        replacing: delete what is in the way instead of refusing.

    Returns:
        Paths that were written.

    Raises:
        InTheWay: ``replacing`` was not given, and there is something to replace or delete.
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


def _conf(storage: Storage) -> dict[str, str]:
    for number in reversed(sparklog.offset_ids(storage)):
        try:
            return dict(sparklog.offset_entry(storage, number).conf)
        except UnreadableCheckpoint:
            continue
    return {}
