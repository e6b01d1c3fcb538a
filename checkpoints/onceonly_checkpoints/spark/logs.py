"""Parse Spark's log files, and the file source's log.

The file source's log notes which files belong to which log offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from onceonly_checkpoints.model import InputFile
from onceonly_checkpoints.storage import Readable

# ---- Text of Spark's log files: a version line, then JSON lines; and the ways in which they can be damaged.

Kind = Literal["unknown-version", "missing", "empty", "torn", "not-a-checkpoint"]
"""Ways in which a checkpoint file cannot be read."""


class UnreadableCheckpoint(Exception):
    """A checkpoint file is missing, damaged or of an unknown version.

    ``path`` is relative to the checkpoint, ``reason`` is the damage in words, and ``kind`` one of five words for it.
    """

    def __init__(self, path: str, reason: str, kind: Kind) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.kind: Kind = kind


def read_text(storage: Readable, path: str) -> str:
    """Text of a file. Raises :class:`UnreadableCheckpoint` if it is missing, empty, or not text."""
    try:
        data = storage.read(path)
    except FileNotFoundError as error:
        raise UnreadableCheckpoint(path, "the file is missing", "missing") from error
    if not data.strip():
        raise UnreadableCheckpoint(path, "the file is empty", "empty")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableCheckpoint(path, "the file is not text", "torn") from error


def version_of(line: str, path: str, versions: tuple[int, ...]) -> int:
    """Number of a log's version line. Raises :class:`UnreadableCheckpoint` if it is missing or not ``versions``."""
    match = re.fullmatch(r"v(\d+)", line)
    if match is None:
        raise UnreadableCheckpoint(path, "the version line is damaged", "torn")
    if (version := int(match[1])) not in versions:
        raise UnreadableCheckpoint(path, f"log version v{version}", "unknown-version")
    return version


def json_object(text: str, path: str) -> dict[str, Any]:
    """A line that must be a JSON object. Otherwise raises :class:`UnreadableCheckpoint`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UnreadableCheckpoint(path, "a line is cut off or damaged", "torn") from error
    if not isinstance(value, dict):
        raise UnreadableCheckpoint(path, "a line is not a JSON object", "torn")
    return value


def lines_of(text: str) -> list[str]:
    """Lines as Spark splits them."""
    # Not splitlines(): JSON may hold U+2028, which is no line end to Spark.
    return [line.removesuffix("\r") for line in text.split("\n")]


# ---- The log in which Spark's file source notes which files belong to which of its log offsets.

SOURCE_VERSIONS = (1,)
COMPACT = ".compact"
"""Suffix of a file that repeats everything before it."""


def compact_id(name: str) -> int | None:
    """Log offset of a ``.compact`` file's name, or ``None`` for other names."""
    number = name.removesuffix(COMPACT)
    return int(number) if name.endswith(COMPACT) and number.isdecimal() else None


def parse_files(text: str, source: str, path: str) -> Iterator[InputFile]:
    """Files of a log file, in its order. Raises :class:`UnreadableCheckpoint` for damage or an unknown version."""
    lines = lines_of(text)
    version_of(lines[0], path, SOURCE_VERSIONS)
    return (_file(line, source, path) for line in lines[1:] if line)


def _file(line: str, source: str, path: str) -> InputFile:
    value = json_object(line, path)
    try:
        return InputFile(str(value["path"]), int(value["timestamp"]), int(value["batchId"]), source)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableCheckpoint(path, "a line is not a file's", "torn") from error


def read_files(storage: Readable, source: str, path: str) -> tuple[InputFile, ...]:
    """All files of one log file. Raises :class:`UnreadableCheckpoint` if it cannot be read."""
    return tuple(parse_files(read_text(storage, path), source, path))


def render_files(files: Iterable[InputFile]) -> str:
    """Text of a log file that holds ``files``."""
    lines = [
        json.dumps(
            {"path": file.path, "timestamp": file.modified_ms, "batchId": file.log_offset},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        for file in files
    ]
    return "\n".join(["v1", *lines])


def input_files(storage: Readable, source: int | str, after: int | None, upto: int) -> tuple[InputFile, ...]:
    """Files that a file source took in at log offsets ``after < offset <= upto``. ``after=None`` means from the first.

    Reads one small file per log offset. It reads a ``.compact`` file only if Spark has merged that offset into it, and
    of that only the end. It lists the directory only when a log offset is in no file of its own. ``source`` is the
    source's id in the offset log, which is also its directory's name. Raises ``UnreadableCheckpoint``: a log offset is
    in no file, or a file is empty, torn or of an unknown version.
    """
    files: list[InputFile] = []
    number = 0 if after is None else after + 1
    while number <= upto:
        path, last = _holder(storage, f"sources/{source}", number)
        text = read_text(storage, path)
        if path.endswith(COMPACT):
            files += _tail(text, str(source), path, number, min(last, upto))
        else:
            files += parse_files(text, str(source), path)
        number = last + 1
    return tuple(files)


def newest_entry(storage: Readable, source: str) -> int:
    """The newest log offset of a file source, even without a batch planned up to it, -1 if there is no log."""
    numbers = (name.removesuffix(COMPACT) for name in storage.names(f"sources/{source}"))
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def _holder(storage: Readable, directory: str, number: int) -> tuple[str, int]:
    """The smallest file that holds a log offset, and the last log offset it holds."""
    for name in (str(number), f"{number}{COMPACT}"):
        if storage.exists(f"{directory}/{name}"):
            return f"{directory}/{name}", number
    merged = [compact_offset for name in storage.names(directory) if (compact_offset := compact_id(name)) is not None]
    last = min((compact_offset for compact_offset in merged if compact_offset > number), default=None)
    if last is None:
        raise UnreadableCheckpoint(f"{directory}/{number}", "the file is missing", "missing")
    return f"{directory}/{last}{COMPACT}", last


def _tail(text: str, source: str, path: str, first: int, last: int) -> list[InputFile]:
    """Files of ``first..last`` from a compacted log, read from its end: it ascends and may be very long."""
    version_of(text.partition("\n")[0], path, SOURCE_VERSIONS)
    files: list[InputFile] = []
    for line in _backwards(text):
        file = _file(line, source, path)
        if file.log_offset < first:
            break
        if file.log_offset <= last:
            files.append(file)
    return files[::-1]


def _backwards(text: str) -> Iterator[str]:
    """Lines from the last to the second."""
    end = len(text)
    while (begin := text.rfind("\n", 0, end)) >= 0:
        if line := text[begin + 1 : end].rstrip("\r"):
            yield line
        end = begin
