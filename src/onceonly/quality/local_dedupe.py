"""Deduplicate rows by id in the driver.

For few rows Spark takes longer to compile than to read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.protocol.capabilities import ID, Lookup
from onceonly.spark import digest
from onceonly_checkpoints.digests import SEEN, Digest, column_of

if TYPE_CHECKING:
    import pyarrow as pa


def repeated(ids: Sequence[bytes | None], hashes: Sequence[int], known: Collection[bytes]) -> list[bool]:
    """Mark repeated rows: all of a known id, and of any other id all but the one with the lowest hash.

    A row without an id repeats no other. Rows with one id and one hash are one row twice. Their earliest counts as
    first.
    """
    first = firsts(ids, hashes)
    return [one is not None and (one in known or first[one] != at) for at, one in enumerate(ids)]


def firsts(ids: Sequence[bytes | None], hashes: Sequence[int]) -> dict[bytes, int]:
    """Return the position of each id's first row, with the arguments of :func:`repeated`."""
    found: dict[bytes, int] = {}
    for at, one in enumerate(ids):
        if one is not None and (one not in found or hashes[at] < hashes[found[one]]):
            found[one] = at
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows without their repetitions, with the digest of these and the number of all rows."""

    rows: tuple[pa.RecordBatch, ...]
    repeated: Digest
    offered: int


def judge(pieces: Sequence[pa.RecordBatch], hashing: digest.HashingRows, lookup: Lookup) -> Judged:
    """Leave out the repeated rows of a batch.

    ``pieces`` are all of its wide rows. ``hashing`` omits the columns that are computed of a row.

    Raises:
        DestinationError: the store of ids does not answer.
    """
    import pyarrow as pa

    ids = _joined(_ids(piece) for piece in pieces)
    hashes = [hashing(piece) for piece in pieces]
    numbers = _joined(one.to_pylist() for one in hashes)
    known = next(iter(lookup(iter([list(firsts(ids, numbers))]))))
    masks = repeated(ids, numbers, known)
    left: list[pa.RecordBatch] = []
    found, begin = Digest(0), 0
    for piece, each in zip(pieces, hashes, strict=True):
        mask = pa.array(masks[begin : begin + piece.num_rows], pa.bool_())
        found += digest.of_hashes(each.filter(mask))
        left.append(piece.filter(_not(mask)))
        begin += piece.num_rows
    return Judged(tuple(left), found, begin)


def _ids(piece: pa.RecordBatch) -> Sequence[bytes | None]:
    import pyarrow.compute as pc

    # Unlike a structure's own parts, these are null where it is.
    found: Any = pc.struct_field(piece.column(column_of(SEEN)), [ID])
    listed: list[bytes | None] = found.to_pylist()
    return listed


def _joined(parts: Iterable[Sequence[Any]]) -> list[Any]:
    return [one for part in parts for one in part]


def _not(mask: Any) -> Any:
    import pyarrow.compute as pc

    return pc.invert(mask)
