"""Commit several sinks in one shared transaction, from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Batch, Estimate, JoinsTransaction, Sink, Task
from onceonly.protocol.batch import ArrowBatch, Divided
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly_checkpoints.digests import Digest, OutputDigest

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.runtime.staged_outputs import Pick


def transaction_groups(sinks: Sequence[Sink]) -> tuple[tuple[str, ...], ...]:
    """Group ids of sinks that can commit in one transaction. A sink that can join no other is in no group."""
    groups: list[list[Any]] = []
    for sink in (each for each in sinks if isinstance(each, JoinsTransaction)):
        group = next((candidate for candidate in groups if candidate[0].can_join(sink)), None)
        if group is None:
            groups.append(group := [])
        group.append(sink)
    return tuple(tuple(sink.id for sink in group) for group in groups if len(group) > 1)


def collect_in_memory(batch: Batch, sinks: Sequence[Sink]) -> InMemory | None:
    """Run the action and keep the rows here. ``None``: they exceed a sink's limit, or a sink cannot join.

    ``TooLargeForDriver``: the engine refuses to collect so many.
    """
    import pyarrow as pa

    enlisted = [sink for sink in sinks if isinstance(sink, JoinsTransaction)]

    def fits(size: Estimate) -> bool:
        return len(enlisted) == len(sinks) and all(sink.fits_in_driver(size) for sink in enlisted)

    if not fits(batch.estimate):
        return None
    pieces: list[pa.RecordBatch] = []
    rows, size = 0, 0
    for piece in batch.arrow():
        rows, size = rows + piece.num_rows, size + piece.nbytes
        if not fits(Estimate(rows, size)):
            return None
        pieces.append(piece)
    divided = batch.outputs() if isinstance(batch, Divided) else ()
    return InMemory(pa.Table.from_batches(pieces, batch.schema), batch.digest(), divided)


class InMemory(ArrowBatch):
    """The ``Batch`` contract over rows in this process, wide if there are outputs. May be read any number of times."""

    def __init__(self, table: pa.Table, digest: Digest, divided: tuple[OutputDigest, ...]) -> None:
        super().__init__(table, partitions=1)
        self._digest = digest
        self.outputs = divided

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._table.num_rows

    def picked(self, pick: Pick, task: Task) -> list[Mapping[str, Any]]:
        """Run the task over the picked part of the rows."""
        from onceonly.runtime import staged_outputs

        return self.on_executors(staged_outputs.Picking(pick, task))

    def digest(self) -> Digest:
        """Digest of the action that gave the rows."""
        return self._digest

    def times_of(self, clock: Clock) -> RowTimes:
        """Return the event times of the good rows."""
        from onceonly.runtime import staged_outputs

        return staged_outputs.times_of(self._table.to_batches(), clock, self.outputs)

    def output(self, name: str | None) -> Batch:
        """Return the rows of a sink: an output by its name (``KeyError``), or all rows."""
        if not self.outputs:
            return self
        from onceonly.runtime import staged_outputs

        return staged_outputs.of(self, self.outputs, name)
