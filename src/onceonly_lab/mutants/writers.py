"""M17, M20, M22: rows of an attempt that did not win, partitions out of order, and a reader that reads too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onceonly.batch import ArrowBatch
from onceonly.protocol import Attempt, Batch, Prepared, Recorder
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_lab.looks import KafkaLook
from onceonly_lab.mutants.wrapped import Wrapped
from onceonly_lab.pollers import Look
from onceonly_lab.stores.places import COLUMNS, Place

if TYPE_CHECKING:
    import pyarrow as pa


class Counted:
    """A preparation that says what the winners said.

    Args:
        inner: what is really prepared.
        rows: the count.
    """

    def __init__(self, inner: Prepared, rows: int) -> None:
        self.inner = inner
        self.rows = rows

    def abandon(self) -> None:
        """Handed on."""
        self.inner.abandon()


class TakesEveryAttempt(Wrapped):
    """M17: rows of every attempt are written, not only of those that won."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """What the winners answer is only counted."""
        import pyarrow as pa

        received: list[pa.RecordBatch] = []

        def receive(attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
            found = list(rows)
            received.extend(found)
            return {"rows": sum(one.num_rows for one in found)}

        answers = batch.on_executors(receive)
        table = pa.Table.from_batches(received, batch.schema)
        return Counted(super().prepare(ArrowBatch(table), epoch), sum(answer["rows"] for answer in answers))

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """All of them."""
        return super().commit(prepared.inner if isinstance(prepared, Counted) else prepared, marker)


class WritesInParallel(Wrapped):
    """M22: partitions are written side by side, whichever row comes first."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """The second partition is a row ahead of the first."""
        import pyarrow as pa

        parts: list[list[dict[str, Any]]] = []

        def receive(attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
            parts.append([row for one in rows for row in one.to_pylist()])
            return {}

        batch.on_executors(receive)
        first, second = parts
        mixed = [row for pair in zip(second, first, strict=True) for row in pair]
        return super().prepare(ArrowBatch(pa.Table.from_pylist(mixed, batch.schema)), epoch)


def uncommitted(place: Place) -> Look:
    """M20's reader: it sees what is in open transactions, and in those that were aborted."""
    found: Any = place
    return KafkaLook(found.id, found.direct, found.topic, COLUMNS, isolation="read_uncommitted")
