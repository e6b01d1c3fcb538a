"""Rows whose id was seen before, told by the driver: for few rows Spark takes longer to compile than to read."""

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
    """Which rows are repeated: all of a known id, and of any other one all but the first by its hash.

    Args:
        ids: of the rows; ``None`` where a row has none, and then it repeats no other.
        hashes: of the rows. Of rows with one id and one hash, which are one row twice, the first to come is the first.
        known: ids that were seen before.
    """
    first = firsts(ids, hashes)
    return [one is not None and (one in known or first[one] != at) for at, one in enumerate(ids)]


def firsts(ids: Sequence[bytes | None], hashes: Sequence[int]) -> dict[bytes, int]:
    """Where the first row of each id is; arguments as of :func:`repeated`."""
    found: dict[bytes, int] = {}
    for at, one in enumerate(ids):
        if one is not None and (one not in found or hashes[at] < hashes[found[one]]):
            found[one] = at
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows without those that are repeated.

    Attributes:
        rows: those that are left.
        repeated: digest of the others.
        offered: how many there were.
    """

    rows: tuple[pa.RecordBatch, ...]
    repeated: Digest
    offered: int


def judge(pieces: Sequence[pa.RecordBatch], hashing: digest.HashingRows, lookup: Lookup) -> Judged:
    """Leave out the rows of a batch that are repeated.

    Args:
        pieces: all of its wide rows.
        hashing: gives the hash of each row, without what is computed of it.
        lookup: what is asked for ids that were seen before.

    Raises:
        DestinationError: whoever keeps ids does not answer.
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
