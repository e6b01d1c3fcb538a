"""Count rows with outputs in the driver, as digest metrics.

For few rows Spark takes longer to compile than to read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.spark import digest
from onceonly_checkpoints.digests import Digest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    Hashing = Callable[[pa.RecordBatch], Digest]


@dataclass(frozen=True, slots=True)
class _Part:
    summed: digest.Summed
    hashing: Hashing


class Tally:
    """Count the metrics of ``digest.metrics``. ``values`` has those so far, by name."""

    def __init__(self, names: Sequence[str], hashing: Hashing, parts: Sequence[_Part]) -> None:
        self._names = list(names)
        self._hashing = hashing
        self._parts = tuple(parts)
        self.values: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch) -> None:
        """Count a piece of wide rows, in Spark's own types."""
        import pyarrow.compute as pc

        compute: Any = pc
        good = None
        for part in self._parts:
            if part.summed.sets_aside:
                good = rows.column(part.summed.within).is_null()
        self._sum(self._hashing((rows if good is None else rows.filter(good)).select(self._names)))
        for part in self._parts:
            column: Any = rows.column(part.summed.within)
            wanted = _parts_of(column)
            self._sum(part.hashing(wanted), part.summed.within)
            neither = column.is_null() if good is None else compute.and_(good, column.is_null())
            self.values[digest.metric("filtered", part.summed.within)] += neither.true_count
            for reason in part.summed.reasons:
                said = compute.match_substring(wanted.column("reasons"), digest.spelled(reason))
                self.values[digest.said(reason)] += said.true_count

    def _sum(self, found: Digest, within: str = "") -> None:
        for name, value in (("rows", found.rows), ("high", found.high), ("low", found.low)):
            self.values[digest.metric(name, within)] += value


def tally(schema: StructType, leave_out: frozenset[str], summed: Sequence[digest.Summed]) -> Tally | None:
    """Start an empty tally with the arguments of ``digest.metrics``, or ``None`` if only Spark can hash the rows."""
    from pyspark.sql.types import StructType

    apart = {one.within for one in summed}
    whole = StructType([field for field in schema.fields if field.name not in apart])
    hashing = digest.hashing(whole, leave_out)
    parts: list[_Part] = []
    for one in summed:
        kind: Any = schema[one.within].dataType
        hashed = digest.hashing(kind, one.left_out)
        if hashed is None:
            return None
        parts.append(_Part(one, hashed))
    return Tally(whole.names, hashing, parts) if hashing else None


def _parts_of(column: Any) -> pa.RecordBatch:
    """Return the rows that have a structure, as rows of its parts."""
    import pyarrow as pa

    there = column.drop_null()
    return pa.RecordBatch.from_arrays(there.flatten(), names=[field.name for field in column.type])
