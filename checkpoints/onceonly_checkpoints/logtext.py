"""Text of Spark's log files: a version line, then JSON lines; and the ways in which they can be damaged."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from onceonly_checkpoints.storage import Readable

Kind = Literal["unknown-version", "missing", "empty", "torn", "not-a-checkpoint"]
"""Ways in which a checkpoint file cannot be read."""


class UnreadableCheckpoint(Exception):
    """A checkpoint file is missing, damaged or of an unknown version.

    Attributes:
        path: the file, relative to the checkpoint.
        reason: what is wrong with it, in words.
        kind: the same as one of five words.
    """

    def __init__(self, path: str, reason: str, kind: Kind) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.kind: Kind = kind


def read_text(storage: Readable, path: str) -> str:
    """Text of a file.

    Raises:
        UnreadableCheckpoint: missing, empty, or not text.
    """
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


def version_of(line: str, path: str, known: tuple[int, ...]) -> int:
    """Number of a log's version line.

    Raises:
        UnreadableCheckpoint: no version line, or one that is not ``known``.
    """
    found = re.fullmatch(r"v(\d+)", line)
    if found is None:
        raise UnreadableCheckpoint(path, "the version line is damaged", "torn")
    if (version := int(found[1])) not in known:
        raise UnreadableCheckpoint(path, f"log version v{version}", "unknown-version")
    return version


def json_object(text: str, path: str) -> dict[str, Any]:
    """A line that must be a JSON object.

    Raises:
        UnreadableCheckpoint: it is not.
    """
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
