"""Read points: where every sink of a pipeline stood when it held one epoch and no later one.

Sinks commit one after the other, so a reader of two of them can see an epoch in one that is not yet in the other. A
read point names a place in each at which they agree. Idea: the collection-wide consistent cut of Materialize and
Differential Dataflow, at the grain of epochs.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from onceonly.errors import refuse
from onceonly_checkpoints.epoch import EpochRecord, Receipt
from onceonly_checkpoints.htmlform import place, table
from onceonly_checkpoints.ledger import Ledger

_WINDOW = 64
"""How many records are read at a time on the way back to the newest complete one."""


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """One epoch as every sink holds it.

    Attributes:
        pipeline: its name.
        epoch: number.
        receipts: one per sink, in the order of the call.
    """

    pipeline: str
    epoch: int
    receipts: tuple[Receipt, ...]

    def __getitem__(self, sink: str) -> Receipt:
        """The receipt of a sink: ``point["delta:orders"].at("version")`` is the version to read the table at.

        Raises:
            KeyError: the epoch did not go to such a sink.
        """
        return {receipt.sink: receipt for receipt in self.receipts}[sink]

    def _repr_html_(self) -> str:
        """What a notebook shows: the place in each sink."""
        rows = [(one.sink, one.rows, place(one.position)) for one in self.receipts]
        return table(("sink", "rows", "position"), rows, title=f"{self.pipeline}, epoch {self.epoch}")


def read_point(
    pipeline: str, epoch: int | Literal["latest"] = "latest", *, ledger: str | os.PathLike[str] | Ledger
) -> ReadPoint:
    """Find the place in each sink as of one epoch.

    A Delta table is read at ``point[sink].at("version")``; rows of a Postgres table with an epoch column up to
    ``WHERE _epoch <= point.epoch``; a Kafka topic up to the offsets of the receipt. The view ``onceonly.read_point``
    of a ledger in Postgres says the same in SQL.

    Args:
        pipeline: its name.
        epoch: number, or the newest that every one of its sinks has confirmed.
        ledger: the pipeline's ledger: URL, path, or an open one.

    Raises:
        ConfigurationError: E110, there is no such epoch on record, or not every sink has confirmed it.
        LedgerUnavailable: the ledger cannot be read.
    """
    with opened(ledger) as known:
        address = shlex.quote(known.address)
        found = _newest(known, pipeline) if epoch == "latest" else _recorded(known, pipeline, epoch)
    if found is None:
        wanted = "no epoch that every sink confirmed" if epoch == "latest" else f"no complete epoch {epoch}"
        raise refuse(
            "E110",
            problem=f'Pipeline "{pipeline}" has {wanted} on record.',
            cause="another name or number, another ledger, or an epoch that is still being committed",
            next=f"onceonly epochs list --query {shlex.quote(pipeline)} --ledger {address}",
        )
    return ReadPoint(pipeline, found.epoch.number, found.receipts)


@contextmanager
def opened(ledger: str | os.PathLike[str] | Ledger) -> Generator[Ledger]:
    """A ledger by URL or path, closed at the end; one that is open already stays so."""
    if not isinstance(ledger, str | os.PathLike):
        yield ledger
        return
    from onceonly_checkpoints.sqlledger import SqlLedger

    found = SqlLedger(os.fspath(ledger))
    try:
        yield found
    finally:
        found.close()


def _complete(record: EpochRecord) -> bool:
    confirmed = {receipt.sink for receipt in record.receipts if receipt.chain == record.epoch.chain}
    return {sink for sink, _ in record.epoch.sinks} <= confirmed


def _recorded(ledger: Ledger, pipeline: str, epoch: int) -> EpochRecord | None:
    return next((record for record in ledger.epochs(pipeline, epoch, epoch) if _complete(record)), None)


def _newest(ledger: Ledger, pipeline: str) -> EpochRecord | None:
    head = ledger.head(pipeline)
    last = head.epoch.number if head else 0
    while last > 0:
        records = ledger.epochs(pipeline, max(1, last - _WINDOW + 1), last)
        complete = [record for record in records if _complete(record)]
        if complete:
            return complete[-1]
        last -= _WINDOW
    return None
