"""Verify a checkpoint: damage, Spark's reaction, and the remedy.

Observed on Spark 4.2.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from onceonly_checkpoints.model import Record
from onceonly_checkpoints.spark import logs
from onceonly_checkpoints.spark import offsets as spark_offsets
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint
from onceonly_checkpoints.storage import FileStore, companion
from onceonly_checkpoints.strenum import StrEnum


class Effect(StrEnum):
    """Spark's reaction to a start on a damaged checkpoint, worst first."""

    LOSES = "loses"
    REPEATS = "repeats"
    REFUSES = "refuses"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Problem(Record):
    """One damage of a checkpoint. ``effect`` is Spark's reaction in one word, ``consequence`` the same as a sentence.

    ``path`` is relative to the checkpoint, empty for the checkpoint itself. ``description`` is the damage.
    """

    RENAMED: ClassVar = {"description": "found"}

    path: str
    description: str
    effect: Effect
    consequence: str
    remedy: str


REBUILD = "onceonly recover rebuild-checkpoint PATH --query NAME"
_WILL_NOT_START = "Spark refuses to start."
_NO_CHECKPOINT = Problem(
    "",
    "there is no checkpoint: neither metadata nor offsets nor commits",
    Effect.REPEATS,
    "Spark starts a new query at batch 0 and reads everything again.",
    f"if there was one: {REBUILD}",
)


def verify(storage: FileStore) -> tuple[Problem, ...]:
    """All damage of a checkpoint, in the order in which Spark would meet it, empty if it is sound.

    Reads every entry of the two logs and, of file sources' logs, the files that Spark reads at a start. It does not
    find problems that only a comparison with the ledger can show: a checkpoint that was rolled back as a whole is
    sound.
    """
    offsets, commits = spark_offsets.offset_ids(storage), spark_offsets.commit_ids(storage)
    if not (offsets or commits or storage.exists("metadata")):
        return (_NO_CHECKPOINT,)
    problems = [*_metadata(storage), *_positions(storage, offsets, commits)]
    problems += _entries(storage, offsets, commits)
    if offsets:
        problems += _sources(storage, offsets)
    problems += _companions(storage, offsets, commits)
    return tuple(problems)


def _metadata(storage: FileStore) -> Iterator[Problem]:
    try:
        spark_offsets.query_id(storage)
    except UnreadableCheckpoint as error:
        yield Problem(error.path, error.reason, Effect.REFUSES, _WILL_NOT_START, REBUILD)


def _positions(storage: FileStore, offsets: tuple[int, ...], commits: tuple[int, ...]) -> Iterator[Problem]:
    """Compare the newest entries of the two logs."""
    done = commits[-1] if commits else -1
    if not offsets:
        yield from _no_offsets(storage, commits)
    elif done > offsets[-1]:
        yield Problem(
            f"offsets/{done}",
            f"batch {done} is committed but its offsets are missing",
            Effect.REPEATS,
            f"Spark runs batch {offsets[-1]} again, then stops with CONCURRENT_STREAM_LOG_UPDATE.",
            REBUILD,
        )
    elif offsets[-1] - done >= 2:
        yield Problem(
            f"commits/{offsets[-1] - 1}",
            f"the newest commit is {done if commits else 'missing'}, the newest offsets are {offsets[-1]}",
            Effect.LOSES,
            f"Spark jumps to batch {offsets[-1]}; what had not been written of batches "
            f"{done + 1}..{offsets[-1] - 1} is never written.",
            REBUILD,
        )
    if offsets and offsets[-1] > 0 and offsets[-1] - 1 not in offsets:
        path = f"offsets/{offsets[-1] - 1}"
        yield Problem(path, "the file is missing", Effect.REFUSES, _WILL_NOT_START, REBUILD)


def _no_offsets(storage: FileStore, commits: tuple[int, ...]) -> Iterator[Problem]:
    if commits:
        yield Problem("offsets", "all offsets are missing", Effect.REFUSES, _WILL_NOT_START, REBUILD)
    elif storage.exists("sources") or storage.exists("state"):
        yield Problem(
            "offsets",
            "offsets and commits are missing",
            Effect.REPEATS,
            "Spark starts at batch 0 under the old query id and reads everything again.",
            REBUILD,
        )


def _entries(storage: FileStore, offsets: tuple[int, ...], commits: tuple[int, ...]) -> Iterator[Problem]:
    for number in offsets:
        remedy = f"{REBUILD} --entry {number}"
        if number not in commits:
            remedy += "; if the ledger knows no batch of that number, delete the file: Spark plans it again"
        read = number >= offsets[-1] - 1
        yield from _damage(partial(spark_offsets.offset_entry, storage, number), read, remedy)
    for number in commits:
        remedy = "delete the file: the batch is replayed, recognised and skipped"
        yield from _damage(partial(spark_offsets.commit_entry, storage, number), number == commits[-1], remedy)


def _damage(read: Callable[[], object], read_by_spark: bool, remedy: str) -> Iterator[Problem]:
    try:
        read()
    except UnreadableCheckpoint as error:
        if not read_by_spark:
            consequence = "Spark no longer reads this file."
            yield Problem(error.path, error.reason, Effect.NOTHING, consequence, "nothing to do")
        elif error.kind == "unknown-version":
            remedy = "start the query with the Spark version that wrote it"
            yield Problem(error.path, error.reason, Effect.REFUSES, "An older Spark refuses to start.", remedy)
        else:
            yield Problem(error.path, error.reason, Effect.REFUSES, _WILL_NOT_START, remedy)


def _sources(storage: FileStore, offsets: tuple[int, ...]) -> Iterator[Problem]:
    """Check the logs of the file sources that the newest readable entry names."""
    for number in reversed(offsets):
        try:
            entry = spark_offsets.offset_entry(storage, number)
        except UnreadableCheckpoint:
            continue
        for source, offset in entry.offsets.entries:
            last = spark_offsets.log_offset(offset)
            if last is not None:
                yield from _source_log(storage, source, last)
        return


def _source_log(storage: FileStore, source: str, last: int) -> Iterator[Problem]:
    directory = f"sources/{source}"
    names = storage.names(directory)
    for name in _needed(names, last):
        path = f"{directory}/{name}"
        if name not in names:
            yield Problem(path, "the file is missing", Effect.REFUSES, _WILL_NOT_START, REBUILD)
        else:
            yield from _damage(partial(logs.read_files, storage, source, path), True, REBUILD)


def _needed(names: tuple[str, ...], last: int) -> list[str]:
    """Names of a file source's log that Spark reads at a start: the newest compacted file and all after it."""
    merged = max(
        (compact_offset for name in names if (compact_offset := logs.compact_id(name)) is not None), default=-1
    )
    newest = max([last, *(int(name) for name in names if name.isdecimal())])
    first = [f"{merged}{logs.COMPACT}"] if merged >= 0 else []
    return first + [str(number) for number in range(merged + 1, newest + 1)]


def _companions(storage: FileStore, offsets: tuple[int, ...], commits: tuple[int, ...]) -> Iterator[Problem]:
    """Find files that were changed under the checksum which Hadoop keeps beside them."""
    paths = ["metadata", *(f"offsets/{each}" for each in offsets[-2:]), *(f"commits/{each}" for each in commits[-1:])]
    for source in storage.names("sources"):
        paths += (f"sources/{source}/{name}" for name in storage.names(f"sources/{source}"))
    for path in paths:
        try:
            matches = _matches(storage.read(path), storage.read(companion(path)))
        except FileNotFoundError:
            continue
        if not matches:
            yield Problem(
                path,
                f"it was changed, and its checksum {companion(path)} was not",
                Effect.REFUSES,
                "Spark refuses to read it.",
                f"if the change is wanted, delete {companion(path)}; if not: {REBUILD}",
            )


def _matches(data: bytes, checksums: bytes) -> bool:
    """Whether Hadoop's checksum file fits: magic, bytes per checksum, then one CRC-32 per block of that size."""
    if checksums[:4] != b"crc\0" or len(checksums) < 8:
        return False
    (size,) = struct.unpack(">I", checksums[4:8])
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    return checksums[8:] == b"".join(struct.pack(">I", zlib.crc32(block)) for block in blocks)
