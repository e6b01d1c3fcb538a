"""Read Spark's checkpoint files: offsets, commits, query id, source notes.

Unknown versions are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.model import Slice, SourceOffsets
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint, json_object, lines_of, read_text, version_of
from onceonly_checkpoints.storage import Readable

__all__ = ["UnreadableCheckpoint"]
"""Beside the names of this module."""

_T = TypeVar("_T")

OFFSET_VERSIONS = (1, 2)
COMMIT_VERSIONS = (1, 2, 3)
KAFKA_VERSIONS = (1,)
NO_OFFSET = "-"
"""What Spark writes for a source that has no offset yet."""


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """One file of the offset log, with the end offsets of a batch.

    Attributes:
        version: format, 1 (sources by position) or 2 (by id).
        batch_timestamp_ms: clock reading of the batch, milliseconds since 1970, 0 if not logged.
        watermark_ms: event-time watermark in force during the batch, milliseconds since 1970.
        conf: settings that Spark restores when it replays the batch.
    """

    version: int
    batch_timestamp_ms: int
    watermark_ms: int
    conf: tuple[tuple[str, str], ...]
    offsets: SourceOffsets


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One file of the commit log: a batch whose callback has returned.

    ``version`` is the format, 1 to 3. ``next_watermark_ms`` is the event-time watermark of the batch after it, in
    milliseconds since 1970.
    """

    version: int
    next_watermark_ms: int


def _number(value: Mapping[str, Any], name: str, path: str) -> int:
    number = value.get(name, 0)
    if not isinstance(number, int):
        raise UnreadableCheckpoint(path, f"{name} is not a number", "torn")
    return number


def parse_offsets(text: str, path: str = "offsets") -> OffsetEntry:
    """Parse an offset log file. Raises :class:`UnreadableCheckpoint` if it is empty, torn or of an unknown version."""
    if not text.strip():
        raise UnreadableCheckpoint(path, "the file is empty", "empty")
    lines = lines_of(text)
    version = version_of(lines[0], path, OFFSET_VERSIONS)
    if len(lines) < 3:
        raise UnreadableCheckpoint(path, "the offsets are cut off", "torn")
    about = json_object(lines[1], path) if lines[1] else {}
    conf = about.get("conf") or {}
    return OffsetEntry(
        version=version,
        batch_timestamp_ms=_number(about, "batchTimestampMs", path),
        watermark_ms=_number(about, "batchWatermarkMs", path),
        conf=tuple(sorted((str(key), str(value)) for key, value in conf.items())),
        offsets=SourceOffsets.of(dict(_sources(lines[2:], version, path))),
    )


def _sources(lines: list[str], version: int, path: str) -> list[tuple[str, str | None]]:
    entries: list[tuple[str, str | None]] = []
    for index, line in enumerate(lines):
        source, offset = str(index), line
        if version == 2:
            source, separator, offset = line.partition(":")
            if not separator:
                raise UnreadableCheckpoint(path, "a source line is cut off", "torn")
        _complete(offset, path)
        entries.append((source, None if offset == NO_OFFSET else offset))
    # By id the order of lines means nothing, and Spark does not keep it.
    return entries if version == 1 else sorted(entries, key=_by_id)


def _by_id(line: tuple[str, str | None]) -> tuple[int, str]:
    source = line[0]
    return (int(source), "") if source.isdecimal() else (-1, source)


def _complete(offset: str, path: str) -> None:
    """Refuse half an offset. One that does not look like JSON is a source's own text and cannot be judged."""
    try:
        if offset[:1] in ("", "{", "["):
            json.loads(offset)
    except ValueError as error:
        raise UnreadableCheckpoint(path, "an offset is cut off or damaged", "torn") from error


def parse_commit(text: str, path: str = "commits") -> CommitEntry:
    """Parse a commit log file. Raises :class:`UnreadableCheckpoint` if it is empty, torn or of an unknown version."""
    lines = lines_of(text)
    version = version_of(lines[0], path, COMMIT_VERSIONS)
    if len(lines) < 2:
        raise UnreadableCheckpoint(path, "the file is cut off", "torn")
    return CommitEntry(version, _number(json_object(lines[1], path), "nextBatchWatermarkMs", path))


def parse_query_id(text: str, path: str = "metadata") -> str:
    """Parse ``metadata``. Raises :class:`UnreadableCheckpoint` if it is torn."""
    parsed_id = json_object(text, path).get("id")
    if not isinstance(parsed_id, str) or not parsed_id:
        raise UnreadableCheckpoint(path, "it names no query id", "torn")
    return parsed_id


def query_id(storage: Readable) -> str:
    """Spark's id of the query, from ``metadata``. Raises :class:`UnreadableCheckpoint` if it cannot be read.

    The error's kind is ``not-a-checkpoint`` if offsets and commits are gone too.
    """
    try:
        return parse_query_id(read_text(storage, "metadata"))
    except UnreadableCheckpoint as error:
        if error.kind == "missing" and not (storage.exists("offsets") or storage.exists("commits")):
            reason = "it holds none of metadata, offsets and commits"
            raise UnreadableCheckpoint(storage.url, reason, "not-a-checkpoint") from error
        raise


def offset_entry(storage: Readable, batch_id: int) -> OffsetEntry:
    """The offset log's entry of a batch. Raises :class:`UnreadableCheckpoint` if it cannot be read."""
    path = f"offsets/{batch_id}"
    return parse_offsets(read_text(storage, path), path)


def commit_entry(storage: Readable, batch_id: int) -> CommitEntry:
    """The commit log's entry of a batch. Raises :class:`UnreadableCheckpoint` if it cannot be read."""
    path = f"commits/{batch_id}"
    return parse_commit(read_text(storage, path), path)


def _ids(storage: Readable, directory: str) -> tuple[int, ...]:
    return tuple(sorted(int(name) for name in storage.names(directory) if name.isdecimal()))


def offset_ids(storage: Readable) -> tuple[int, ...]:
    """Batch ids in the offset log, ascending."""
    return _ids(storage, "offsets")


def commit_ids(storage: Readable) -> tuple[int, ...]:
    """Batch ids in the commit log, ascending."""
    return _ids(storage, "commits")


def slice_from(texts: Mapping[int, str], batch_id: int) -> tuple[Slice, OffsetEntry]:
    """Slice of a batch, and its own entry, from the texts of offset log entries by batch id.

    Raises :class:`UnreadableCheckpoint` if the batch's entry or every one below it is missing, or one of the two cannot
    be read.
    """
    if batch_id not in texts:
        raise UnreadableCheckpoint(f"offsets/{batch_id}", "the file is missing", "missing")
    entry = parse_offsets(texts[batch_id], f"offsets/{batch_id}")
    below = max((number for number in texts if number < batch_id), default=None)
    if below is not None:
        start = parse_offsets(texts[below], f"offsets/{below}").offsets
    elif batch_id == 0:
        start = SourceOffsets(tuple((source, None) for source in entry.offsets.sources))
    else:
        raise UnreadableCheckpoint(f"offsets/{batch_id - 1}", "the file is missing", "missing")
    return Slice(start, entry.offsets), entry


def slice_of(storage: Readable, batch_id: int) -> Slice:
    """Slice of a batch: from the newest entry below its own, which need not be the one before it, to its own.

    Raises :class:`UnreadableCheckpoint` if one of them cannot be read.
    """
    texts = {batch_id: read_text(storage, f"offsets/{batch_id}")}
    if batch_id and (below := _newest_below(storage, batch_id)) is not None:
        texts[below] = read_text(storage, f"offsets/{below}")
    return slice_from(texts, batch_id)[0]


def _newest_below(storage: Readable, batch_id: int) -> int | None:
    if storage.exists(f"offsets/{batch_id - 1}"):
        return batch_id - 1
    return max((number for number in offset_ids(storage) if number < batch_id), default=None)


def source_start(storage: Readable, source: int | str) -> str | None:
    """A source's note of its first start (rate: its start time, Kafka: its initial offsets), if there is one.

    Raises :class:`UnreadableCheckpoint` if it is empty or not text.
    """
    try:
        return read_text(storage, f"sources/{source}/0")
    except UnreadableCheckpoint as error:
        if error.kind == "missing":
            return None
        raise


def kafka_start(storage: Readable, source: int | str) -> str | None:
    """The offsets at which a Kafka source began, by its own note, or ``None`` without one.

    Raises :class:`UnreadableCheckpoint` if it is empty, torn, or of an unknown version.
    """
    text = source_start(storage, source)
    if text is None:
        return None
    path = f"sources/{source}/0"
    # Spark 2.1.0 expects a zero byte before anything else, so every later version still writes one.
    version, *lines = lines_of(text.removeprefix("\0"))
    version_of(version, path, KAFKA_VERSIONS)
    json_object("\n".join(lines), path)
    return "\n".join(lines)


def log_offset(offset: str | None) -> int | None:
    """Position in a file source's log behind an offset text, or ``None`` for other sources."""
    return _field(offset, "logOffset", int)


def reservoir_id(offset: str | None) -> str | None:
    """Id of the Delta table that an offset text belongs to, or ``None`` for other sources."""
    return _field(offset, "reservoirId", str)


def partitions_of(offset: str | None) -> dict[tuple[str, str], int]:
    """Numbers behind a Kafka source's offset text, by topic and partition. Empty for other sources."""
    try:
        topics: Any = json.loads(offset or "null")
    except ValueError:
        return {}
    if not isinstance(topics, dict) or not all(map(_are_partitions, topics.values())):
        return {}
    return {(topic, partition): number for topic, of in topics.items() for partition, number in of.items()}


def _are_partitions(value: object) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(str(name).isdigit() and isinstance(offset, int) for name, offset in value.items())
    )


def _field(offset: str | None, name: str, kind: type[_T]) -> _T | None:
    if offset is None or not offset.startswith("{"):
        return None
    try:
        value = json.loads(offset).get(name)
    except ValueError:
        return None
    return value if isinstance(value, kind) else None


# ---- Find the checkpoints before a refresh, and a replay checkpoint's original.
#
# After a refresh ``<flow>/0`` stays, and the query goes on in ``<flow>/1``.


NEWEST = 3
"""How many batches of a sibling are read: the last one that was written is its newest, or one before that."""

SIBLINGS = 32
"""How many siblings are read: refreshes that stopped leave one each."""


@dataclass(frozen=True, slots=True)
class PreviousBatch:
    """A batch in the offset log of a lower sibling. Its ``lineage`` lacks the run id, which is not kept there."""

    lineage: Lineage
    end: SourceOffsets


@dataclass(frozen=True, slots=True)
class _PreviousFiles:
    """A sibling's files, by way of the current checkpoint."""

    files: Readable
    name: str

    @property
    def url(self) -> str:
        return f"{self.files.url.rstrip('/').rpartition('/')[0]}/{self.name}"

    def names(self, directory: str) -> tuple[str, ...]:
        return self.files.names(f"../{self.name}/{directory}")

    def read(self, path: str) -> bytes:
        return self.files.read(f"../{self.name}/{path}")

    def exists(self, path: str) -> bool:
        return self.files.exists(f"../{self.name}/{path}")


def number_of(checkpoint: str) -> int:
    """A checkpoint's number among its siblings, by the last part of its path, 0 if that is no number."""
    name = checkpoint.rstrip("/").rpartition("/")[2]
    return int(name) if _is_number(name) else 0


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and name == str(int(name))


def old_batches(files: Readable, checkpoint: str) -> tuple[PreviousBatch, ...]:
    """The newest readable batches of every lower sibling, the nearest sibling first.

    ``checkpoint`` is the location of ``files``, as the engine spells it.
    """
    above, own = checkpoint.rstrip("/").rpartition("/")[0], number_of(checkpoint)
    if not own:
        return ()
    lower = sorted((int(name) for name in files.names("..") if _is_number(name) and int(name) < own), reverse=True)
    batches: list[PreviousBatch] = []
    for number in lower[:SIBLINGS]:
        batches += _read(_PreviousFiles(files, str(number)), f"{above}/{number}")
    return tuple(batches)


def _read(files: Readable, checkpoint: str) -> Iterator[PreviousBatch]:
    try:
        query = query_id(files)
        for number in reversed(offset_ids(files)[-NEWEST:]):
            entry = offset_entry(files, number)
            clock = entry.batch_timestamp_ms, entry.watermark_ms
            yield PreviousBatch(Lineage(query, "", checkpoint, number, *clock), entry.offsets)
    except UnreadableCheckpoint:
        return  # what cannot be read proves nothing


REPLAY = "onceonly.replay"
"""A file in every replay checkpoint that names the one it replaces. No query of its own may start on it. The name of
the directory that holds them has the same ending."""


def replayed_checkpoint(files: Readable) -> str | None:
    """The checkpoint that a replay checkpoint replaces, or ``None`` if it is none."""
    try:
        return files.read(REPLAY).decode()
    except FileNotFoundError:
        return None
