"""Which rows of a batch are written and which are left out, told by source position: values, no rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from onceonly_checkpoints.slices import Slice

if TYPE_CHECKING:
    from onceonly.protocol import Batch

FILE_COLUMNS = {"file_path": "string"}
"""Column by which a row of a file source is told apart, with its type: ``_metadata.file_path``."""

KAFKA_COLUMNS = {"topic": "string", "partition": "int", "offset": "bigint"}
"""Columns by which a row of a Kafka source is told apart, with their types."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a batch offers of one partition, in offsets.

    Attributes:
        topic: name.
        partition: number.
        first: the first one offered.
        fresh: the first one that no epoch holds; all of them are held if it is not below ``end``.
        end: one past the last one offered.
    """

    topic: str
    partition: int
    first: int
    fresh: int
    end: int


@dataclass(frozen=True, slots=True)
class OffsetTrim:
    """Writes rows of a Kafka source from ``fresh`` on."""

    spans: tuple[Span, ...]

    @property
    def told(self) -> str:
        """What is left out, in numbers."""
        offered = sum(max(0, span.end - span.first) for span in self.spans)
        held = sum(max(0, min(span.fresh, span.end) - span.first) for span in self.spans)
        return f"{held} of {offered} offsets"

    @property
    def left_out(self) -> frozenset[str]:
        """Input that is not read for its rows: none, a partition has no path."""
        return frozenset()

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is written.

        Raises:
            ValueError: the row's position is none that the batch offers, so its columns are not the source's.
        """
        for span in self.spans:
            if (span.topic, span.partition) == (row["topic"], row["partition"]):
                if span.first <= row["offset"] < span.end:
                    return bool(row["offset"] >= span.fresh)
                break
        raise ValueError(f"offset {row['offset']} of {row['topic']}-{row['partition']} is not in this batch")


@dataclass(frozen=True, slots=True)
class FileTrim:
    """Writes rows of the files in ``fresh`` and none of those in ``held``; paths as :func:`plain` spells them."""

    held: tuple[str, ...]
    fresh: tuple[str, ...]

    @property
    def told(self) -> str:
        """What is left out, in numbers."""
        return f"{len(self.held)} of {len(self.held) + len(self.fresh)} input files"

    @property
    def left_out(self) -> frozenset[str]:
        """Input that is not read for its rows."""
        return frozenset(self.held)

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is written.

        Raises:
            ValueError: the row's file is none of this batch, so its column is not the source's.
        """
        path = plain(row["file_path"])
        if path not in self.held and path not in self.fresh:
            raise ValueError(f"file {path} is not in this batch")
        return path in self.fresh


Trim = OffsetTrim | FileTrim
"""Which rows of a batch are written, and which are left out because an epoch holds them."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A batch without what recorded epochs hold.

    Attributes:
        slice: what is written, from the end of the last epoch on.
        trim: which rows those are.
    """

    slice: Slice
    trim: Trim


@dataclass(frozen=True, slots=True)
class Held:
    """Input files of all recorded epochs.

    Attributes:
        files: modification time by path, as :func:`plain` spells it.
        lacking: why this is not all of them; empty if it is.
    """

    files: Mapping[str, int] = field(hash=False)
    lacking: str = ""


@runtime_checkable
class Trimmable(Protocol):
    """A batch whose rows can be told apart by source position."""

    def trimmed(self, trim: Trim) -> Batch:
        """The same batch without the rows that are left out."""
        ...


def plain(path: str) -> str:
    """A path in the spelling of ``_metadata.file_path``: without an empty host."""
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*):///", r"\1:/", path)
