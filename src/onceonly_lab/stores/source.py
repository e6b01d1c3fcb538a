"""Source of a run: rows as Arrow tables.

Also holds the part that a simulated engine offers of it.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onceonly.machine.facts import Offer
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Epoch, Lineage
from onceonly_checkpoints.model import Slice, SourceIdentity, SourceKind, SourceOffsets
from onceonly_lab.history import Range, Row
from onceonly_lab.model import spark
from onceonly_lab.model.division import UNDIVIDED, Division
from onceonly_lab.model.parts import SOURCE, record_at
from onceonly_lab.model.spark import Checkpoint, Planned
from onceonly_lab.play.recorder import PARTITION
from onceonly_lab.stores.divided import DividedTable

if TYPE_CHECKING:
    import pyarrow as pa

_FILES = SourceIdentity(PARTITION, SourceKind.FILES.named("/in"))
_KEYS = 2


@dataclass
class Source:
    """The source of one run.

    Attributes:
        records: how many it has.
        rows: of each record.
        random: a plan with ``rand()``: rows that are computed again have other amounts.
        files: offsets count the entries of a log in the checkpoint, as those of a file source do; else they are
            positions, as those of Kafka are.
        twice: every task of a batch runs twice, as Spark does after a lost executor.
        begins: the source says where a checkpoint's first batch begins.
        parts: which rows of each record the program hands over, one call for each part; all in one where there is one.
        identity: what the engine reads; another one once it was moved.
    """

    records: int
    rows: int
    random: bool = False
    files: bool = False
    twice: bool = False
    begins: bool = False
    parts: tuple[int, ...] = (0,)
    identity: SourceIdentity = SOURCE
    _computed: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _logged: dict[tuple[str, str], Range] = field(default_factory=dict[tuple[str, str], Range])

    def identities(self, span: Range) -> tuple[str, ...]:
        """Identities of the rows in a range, in order."""
        return tuple(f"{record}.{row}" for record in range(span.start, span.end) for row in range(self.rows))

    def told(self, span: Range) -> tuple[Row, ...]:
        """The same as rows of a history."""
        return tuple(Row(identity, key=_key(identity)) for identity in self.identities(span))

    def brought(self, epoch: Epoch) -> tuple[Range, tuple[Row, ...]]:
        """Where an epoch stands, and what of it a program hands over in its first call, which becomes the epoch."""
        span = self.taken(epoch.lineage.query_id if epoch.lineage else "", epoch.written)
        return span, tuple(row for row in self.told(span) if self._handed(row.identity, 0))

    def taken(self, query: str, written: Slice) -> Range:
        """Which records a slice is, as a query says it."""
        span = self._logged.get((query, written.text))
        return span or Range(PARTITION, record_at(written.start), record_at(written.end))

    def _handed(self, identity: str, part: int) -> bool:
        return int(identity.rpartition(".")[2]) % len(self.parts) == part

    def table(self, span: Range, part: int = 0) -> pa.Table:
        """The rows of a call, computed anew. Column ``value`` is what Kafka gets: all the others as JSON."""
        import pyarrow as pa

        salt = 1000 * next(self._computed) if self.random else 0
        identities = (identity for identity in self.identities(span) if self._handed(identity, part))
        rows = [
            {"id": identity, "key": _key(identity), "amount": int(identity.replace(".", "")) + salt}
            for identity in identities
        ]
        text, number = pa.string(), pa.int64()
        columns: dict[str, pa.DataType] = {"id": text, "key": text, "amount": number, "value": text}
        schema = pa.schema(columns)
        return pa.Table.from_pylist([{**row, "value": json.dumps(row)} for row in rows], schema)

    def batch(self, planned: Planned, part: int = 0, division: Division = UNDIVIDED) -> ArrowBatch:
        """What the program hands over of a batch in one call."""
        if division != UNDIVIDED:
            return DividedTable(self.table(self.planned(planned), part), division)
        return ArrowBatch(self.table(self.planned(planned), part), duplicate_attempt=self.twice)

    def offer(self, checkpoint: Checkpoint, planned: Planned) -> Offer:
        """What the callback sees of a batch."""
        offer = self._by_log(checkpoint, planned) if self.files else self._by_position(checkpoint, planned)
        self._logged[offer.lineage.query_id, offer.slice.text] = self.planned(planned)
        return offer

    @staticmethod
    def planned(planned: Planned) -> Range:
        """Which records a batch is."""
        return Range(PARTITION, planned.start, planned.end)

    def _by_position(self, checkpoint: Checkpoint, planned: Planned) -> Offer:
        offer = spark.offer(checkpoint, planned, spark.Source(begins=self.begins))
        return replace(offer, sources=(self.identity,))

    def _by_log(self, checkpoint: Checkpoint, planned: Planned) -> Offer:
        start, end = _log_entry(planned.batch_id - 1), _log_entry(planned.batch_id)
        lineage = Lineage(checkpoint.query, "run", checkpoint.name, planned.batch_id, planned.clock, 0)
        previous_batches = tuple(
            previous
            for previous in checkpoint.beside
            if previous.end.text == _log_entry(previous.lineage.batch_id).text
        )
        slice_ = Slice(start, end)
        return Offer(
            slice_, lineage, (_FILES,), "columns", earlier_checkpoints=previous_batches if planned.first else ()
        )


def _key(identity: str) -> str:
    return f"k{int(identity.rpartition('.')[2]) % _KEYS}"


def _log_entry(entry: int) -> SourceOffsets:
    return SourceOffsets.of({PARTITION: json.dumps({"logOffset": entry}) if entry >= 0 else None})
