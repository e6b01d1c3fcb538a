"""Read epochs from sinks and ledger, as commands show them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from onceonly.cli.connect import Connection
from onceonly.cli.output import talk
from onceonly.errors import refuse
from onceonly.errors.options import misused
from onceonly.machine.opening import not_ours
from onceonly.protocol import Sink
from onceonly.runtime.sink_refusals import UNREADABLE, reason_of
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Marker, Receipt


def merged(
    pipeline: str, recorded: Iterable[EpochRecord], held: Iterable[tuple[Marker, Receipt]]
) -> tuple[EpochRecord, ...]:
    """Put markers and records together, oldest first. Where they disagree the marker stands.

    A record keeps its files and phase times; receipts of the sinks replace those of the ledger.
    """
    records = {record.epoch.number: record for record in recorded}
    for marker, receipt in held:
        number = marker.epoch.number
        base_record = records.get(number)
        if base_record is None or base_record.epoch.chain != marker.epoch.chain:
            base_record = EpochRecord(pipeline, marker.fence, marker.epoch, ())
        others = tuple(other for other in base_record.receipts if other.sink != receipt.sink)
        records[number] = replace(base_record, receipts=(*others, receipt))
    return tuple(records[number] for number in sorted(records))


def to_json(record: EpochRecord) -> dict[str, Any]:
    """The JSON form of an epoch: its own nested fields, with what is known about its commit."""
    return {
        **record.epoch.to_json(),
        "rows": record.epoch.rows,
        "sound": chain.sound(record.epoch),
        "fence": record.fence.to_json(),
        "receipts": [receipt.to_json() for receipt in record.receipts],
        "phases": dict(record.phases),
        "files": len(record.files),
        "recorded_ms": record.recorded_ms or None,
    }


def read(connection: Connection, first: int = 1, last: int | None = None) -> tuple[EpochRecord, ...]:
    """Epochs ``first..last`` of a pipeline; a sink that does not answer is named on stderr and left out."""
    # Sinks before the ledger, as a query writes them: what is committed in between is missed or whole, seldom half.
    held = [pair for sink in connection.sinks for pair in _held(sink, connection.pipeline, first)]
    recorded = connection.ledger.epochs(connection.pipeline, first, last) if connection.ledger else ()
    held_pairs = (pair for pair in held if last is None or pair[0].epoch.number <= last)
    return merged(connection.pipeline, recorded, held_pairs)


def _held(sink: Sink, pipeline: str, first: int) -> list[tuple[Marker, Receipt]]:
    try:
        return history(sink, pipeline, first)
    except UNREADABLE as error:
        talk(f"{sink.id} cannot be read ({reason_of(error)}); its epochs are shown as the ledger knows them")
        return []


def history(sink: Sink, pipeline: str, first: int = 1) -> list[tuple[Marker, Receipt]]:
    """The markers of a pipeline in a sink, from epoch ``first`` on.

    Raises E508: one of them names another pipeline or another sink.
    """
    sink.open(pipeline)
    held = list(sink.history(first - 1))
    if refusal := not_ours(pipeline, sink.id, (marker for marker, _ in held)):
        raise refuse(refusal.code, **dict(refusal.details))
    return held


def newest_epochs(connection: Connection, count: int) -> tuple[EpochRecord, ...]:
    """The newest ``count`` epochs, oldest first."""
    head = connection.ledger.head(connection.pipeline) if connection.ledger else None
    first = max(1, head.epoch.number - count + 1) if head else 1
    return read(connection, first)[-count:]


def newest_epoch(connection: Connection) -> Epoch | None:
    """The newest epoch, or ``None`` before the first."""
    return next((record.epoch for record in newest_epochs(connection, 1)), None)


def one_epoch(connection: Connection, number: int | None) -> EpochRecord:
    """One epoch; ``None`` means the newest (E110: neither the sinks nor the ledger know it)."""
    records = newest_epochs(connection, 1) if number is None else read(connection, number, number)
    if not records:
        head = newest_epochs(connection, 1)
        raise misused(
            f'Neither the ledger nor a sink knows epoch {number or 1} of "{connection.pipeline}".',
            f"the newest is epoch {head[-1].epoch.number}" if head else "the pipeline has no epoch yet",
            f"onceonly epochs list --query {shlex.quote(connection.pipeline)}",
        )
    return records[-1]
