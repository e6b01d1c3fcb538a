"""Deduplicate by a Delta table of seen ids.

Each epoch appends its ids, as an id that is known lets no second one through. Executors read the files of one version,
once per task, so a look-up costs as much as there are ids. Ids that are too old leave with a later epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from onceonly.errors import refuse
from onceonly.protocol.capabilities import AT, ID
from onceonly_sinks.delta.files import gone
from onceonly_sinks.delta.log import store

if TYPE_CHECKING:
    from onceonly.protocol.batch import AsOf
    from onceonly_checkpoints.epoch import Epoch
    from onceonly_sinks.delta.table import Table

EPOCH_COLUMN = "_epoch"

_INSTANT: Any = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema([(ID, pa.binary()), (AT, _INSTANT), (EPOCH_COLUMN, pa.int64())])
_AT_ONCE = 1 << 20  # for each batch Arrow hashes all ids that are asked for


@dataclass(frozen=True, slots=True)
class SeenIdsLookup:
    """Looks up the ids of one partition, on an executor that needs only pyarrow. It can be pickled.

    Attributes:
        root: the table's directory or URI, as executors reach it.
        options: deltalake's storage options for a URI, whose executors need deltalake.
        files: data files of one version, relative to it. Empty: no id is known.
        since_ms: first instant whose ids are known, milliseconds since 1970.
    """

    sink: str
    root: str
    options: tuple[tuple[str, str], ...]
    files: tuple[str, ...]
    as_of: AsOf
    since_ms: int

    def __call__(self, pieces: Iterator[Sequence[bytes]]) -> Iterator[Collection[bytes]]:
        """Yield the known ids of each piece, once all of them came. Raises E508: a data file is gone."""
        asked = [frozenset(piece) for piece in pieces]
        wanted = frozenset[bytes]().union(*asked)
        known = self._known(pa.array(sorted(wanted), pa.binary())) if wanted and self.files else frozenset[bytes]()
        yield from (ids & known for ids in asked)

    def _known(self, wanted: Any) -> frozenset[bytes]:
        found = set[bytes]()
        try:
            files: Any = ds.dataset(list(self.files), _SCHEMA, "parquet", store(self.root, dict(self.options)))
            counting = _counting(self.as_of, self.since_ms)
            for batch in files.to_batches(columns=[ID], filter=counting, batch_size=_AT_ONCE):
                ids: Any = batch.column(0)
                found.update(ids.filter(pc.is_in(ids, value_set=wanted)).to_pylist())
        except FileNotFoundError as error:
            raise gone(self.sink, "seen ids") from error
        return frozenset(found)


def _counting(as_of: AsOf, since_ms: int) -> Any:
    epoch: Any = ds.field(EPOCH_COLUMN)
    return (epoch >= as_of.series) & (epoch < as_of.epoch) & (ds.field(AT) >= pa.scalar(since_ms * 1000, _INSTANT))


def lookup(table: Table, as_of: AsOf, keep_seconds: int) -> SeenIdsLookup:
    """The lookup of the newest version. Raises E506: a table of other columns. E508: deltalake does not read it."""
    since_ms = as_of.clock_ms - keep_seconds * 1000
    rows = _rows(table)
    # By their statistics: files that are too old are not opened.
    found = rows.get_fragments(_counting(as_of, since_ms)) if rows is not None else ()
    options = tuple((table.options or {}).items())
    return SeenIdsLookup(table.sink, table.root, options, tuple(file.path for file in found), as_of, since_ms)


def _rows(table: Table) -> Any:
    from onceonly_sinks.delta.read_at import newest_rows  # it imports deltalake, which executors may lack

    if (rows := newest_rows(table)) is None:
        return None
    held = {field.name: field.type for field in rows.schema}
    if held != {field.name: field.type for field in _SCHEMA} or table.partition_columns:
        needs = f"it has {', '.join(held)}; ids need {', '.join(_SCHEMA.names)} and no partitions"
        cause, remedy = "the table was made for other rows", "name a new table: Dedupe(..., store=DeltaSink(...))"
        mismatch = "cannot hold seen ids"
        raise refuse("E506", sink=table.sink, mismatch=mismatch, difference=needs, because=cause, next=remedy)
    return rows


def known(table: Table, newest: Epoch, keep_seconds: int) -> tuple[Mapping[int, int], int]:
    """Known ids by their epochs, and the first instant whose ids are known, milliseconds since 1970.

    The latest clock counts that may have removed some. Raises E508: a data file is gone.
    """
    counts, lineage = Counter[tuple[int, int]](), newest.resume_point.lineage
    rows = _rows(table)
    try:
        for batch in rows.to_batches(columns=[EPOCH_COLUMN, AT]) if rows is not None else ():
            epochs, times = (column.cast(pa.int64()).to_pylist() for column in batch.columns)
            counts.update(zip(epochs, times, strict=True))
    except FileNotFoundError as error:
        raise gone(table.sink, "seen ids") from error
    last_us = max((at for _, at in counts), default=0)
    since_ms = max(lineage.batch_timestamp_ms if lineage else 0, last_us // 1000) - keep_seconds * 1000
    by_epoch = Counter[int]()
    for (epoch, at), number in counts.items():
        by_epoch[epoch] += number if at >= since_ms * 1000 and epoch >= newest.series else 0
    return +by_epoch, since_ms
