"""The nouns of a source: offsets, the slice of a batch, input files, identity; frozen values with one JSON form.

Every ``to_json`` returns plain JSON types; ``from_json`` is its exact inverse. ``text`` is the canonical one-line
spelling (sorted keys, no blanks) that is hashed and compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from onceonly_checkpoints.jsonform import known, present


def canonical(value: object) -> str:
    """Spell a JSON value in its one canonical form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _canonical_offset(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return canonical(json.loads(text))
    except ValueError:
        # A source may log offsets that are not JSON. They are opaque: equal only to the letter.
        return text


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """The engine's offsets of all sources at one moment, in source order.

    Attributes:
        entries: ``(source id, canonical offset text)`` per source; the text is ``None`` where the
            engine wrote ``-``, meaning that the source had no offset yet.
    """

    entries: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, offsets: Mapping[str, str | None]) -> Self:
        """Build from raw offset texts by source id, in source order."""
        return cls(tuple((source, _canonical_offset(text)) for source, text in offsets.items()))

    @classmethod
    def from_json(cls, value: Iterable[tuple[str, str | None]]) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls.of(dict(value))

    def to_json(self) -> list[list[str | None]]:
        """``[[source id, offset text or null], ...]``: a list, since stores reorder the keys of an object."""
        return [list(entry) for entry in self.entries]

    @property
    def text(self) -> str:
        """Canonical spelling; source order is part of it."""
        return canonical([list(entry) for entry in self.entries])

    @property
    def sources(self) -> tuple[str, ...]:
        """Source ids in order."""
        return tuple(source for source, _ in self.entries)

    @property
    def unset(self) -> bool:
        """Whether no source had an offset yet."""
        return all(text is None for _, text in self.entries)


@dataclass(frozen=True, slots=True)
class Slice:
    """What one micro-batch reads: from ``start`` (exclusive of what came before) to ``end``."""

    start: SourceOffsets
    end: SourceOffsets

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "start", "end")
        return cls(SourceOffsets.from_json(value["start"]), SourceOffsets.from_json(value["end"]))

    def to_json(self) -> dict[str, Any]:
        """``{"start": [...], "end": [...]}``."""
        return {"start": self.start.to_json(), "end": self.end.to_json()}

    @property
    def text(self) -> str:
        """Canonical spelling."""
        return f"{self.start.text}->{self.end.text}"

    @property
    def empty(self) -> bool:
        """Whether nothing lies between start and end (a no-data batch)."""
        return self.start == self.end


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file that a file source assigned to a slice.

    Attributes:
        path: URI as the engine logged it.
        modified_ms: modification time, milliseconds since 1970.
        log_offset: the file source's own log offset that brought it in.
        source: source id.
    """

    path: str
    modified_ms: int
    log_offset: int
    source: str = "0"

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(value["path"], value["modified_ms"], value["log_offset"], value["source"])

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {
            "path": self.path,
            "modified_ms": self.modified_ms,
            "log_offset": self.log_offset,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """What offsets are offsets *of*.

    Attributes:
        source: source id in the offset log.
        identity: stable name of the origin (input path, Delta table id); ``None`` where the source has none, and then
            equal ranges of two lineages cannot be proven to be the same data.
        inputs: hash of the file list of the slice, for sources that read files; else ``None``.
    """

    source: str
    identity: str | None
    inputs: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "source", "identity", "inputs")
        return cls(value["source"], value.get("identity"), value.get("inputs"))

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return present(source=self.source, identity=self.identity, inputs=self.inputs)
