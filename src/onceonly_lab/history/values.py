"""The small values in a history: a row, an epoch that is vouched for, a range of the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from onceonly_lab.history.jsonfields import Reader, decoded, integer, many, mapping, maybe, sparse, text


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as far as the lab looks at it.

    Attributes:
        identity: unique in the input.
        epoch: the epoch that the row itself names (a column, a header, its file); ``None`` where it names none.
        key: rows of one key have an order; ``None`` without one.
        value: fingerprint of everything else in the row; ``None`` where it was not taken.
    """

    identity: str
    epoch: int | None = None
    key: str | None = None
    value: str | None = None

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`."""
        cells = value if isinstance(value, list) else []
        if not 1 <= len(cells) <= 4:
            raise ValueError(f"wants [identity, epoch, key, value], not {value!r}")
        identity, epoch, key, fingerprint = (*cells, None, None, None)[:4]
        return cls(text(identity), maybe(integer, epoch), maybe(text, key), maybe(text, fingerprint))

    def to_json(self) -> list[str | int | None]:
        """``[identity, epoch, key, value]``, cut after the last that is known."""
        cells: list[str | int | None] = [self.identity, self.epoch, self.key, self.value]
        while cells[-1] is None:
            cells.pop()
        return cells


@dataclass(frozen=True, slots=True)
class Mark:
    """One epoch that a sink (its marker) or the ledger (its record) vouches for.

    Attributes:
        epoch: its number.
        generation: who wrote it; ``None`` where the reader cannot tell.
        count: rows it vouches for; ``None`` where the reader cannot tell.
        digest: their fingerprint, in any spelling that is equal for equal rows.
    """

    epoch: int
    generation: int | None = None
    count: int | None = None
    digest: str | None = None

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(**decoded(mapping(value), _MARK, ("epoch",)))

    def to_json(self) -> dict[str, Any]:
        """Field names to values, without those at their default."""
        return sparse(self)


@dataclass(frozen=True, slots=True)
class Range:
    """What a slice takes of one source partition: offsets from ``start`` up to, not including, ``end``."""

    partition: str
    start: int
    end: int


def read_slice(value: Any) -> tuple[Range, ...]:
    """Inverse of the JSON form of a slice: ``{partition: [start, end]}``.

    Raises:
        ValueError: not one.
    """
    return tuple(Range(partition, *_ends(ends)) for partition, ends in mapping(value).items())


def _ends(value: Any) -> tuple[int, int]:
    ends = many(integer)(value)
    if len(ends) != 2:
        raise ValueError(f"wants [start, end], not {value!r}")
    return ends[0], ends[1]


_MARK: dict[str, Reader] = {"epoch": integer, "generation": integer, "count": integer, "digest": text}
