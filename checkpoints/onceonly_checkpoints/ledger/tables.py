"""SQLAlchemy tables of the ledger, and conversion of their rows.

Pure.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Double, Integer, Row, TableClause, Text, column, table
from sqlalchemy.types import TypeEngine

from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Receipt
from onceonly_checkpoints.ledger import Event, EventKind, Intent, Pipeline, RemovedEpoch
from onceonly_checkpoints.model import InputFile, Slice, SourceOffsets, UnreadableMarker, canonical

Values = dict[str, Any]
"""Column names to values."""

_NUMBERS = (
    "generation opened_ms epoch at_ms row_count batch_id batch_timestamp_ms watermark_ms recorded_ms log_offset "
    "modified_ms id since_ms until_ms first_epoch"
)

_COLUMNS = {
    "version": "version",
    "pipelines": "pipeline query_id checkpoint generation opened_ms",
    "sinks": "pipeline ordinal sink address",
    "intents": "pipeline epoch generation owner slice_start slice_end at_ms refused",
    "epochs": (
        "pipeline epoch chain previous_chain slice_start slice_end row_count digest column_fingerprint generation "
        "owner query_id run_id checkpoint batch_id batch_timestamp_ms watermark_ms manifest adoption body recorded_ms"
    ),
    "receipts": "pipeline epoch ordinal sink chain identity position row_count",
    "files": "pipeline epoch ordinal source log_offset path modified_ms",
    "phases": "pipeline epoch ordinal phase seconds",
    "events": "id token pipeline kind reason epoch generation at_ms",
    "superseded": "pipeline epoch chain body why at_ms",
    "pins": "pipeline token epoch owner since_ms until_ms",
    "plans": "pipeline plan body first_epoch",
}


def _type(name: str) -> TypeEngine[Any]:
    if name in ("ordinal", "version"):
        return Integer()
    if name == "seconds":
        return Double()
    return BigInteger() if name in _NUMBERS.split() else Text()


@dataclass(frozen=True, slots=True)
class Tables:
    """The ledger's tables. The columns are those of ``migrations/*.sql``."""

    version: TableClause
    pipelines: TableClause
    sinks: TableClause
    intents: TableClause
    epochs: TableClause
    receipts: TableClause
    files: TableClause
    phases: TableClause
    events: TableClause
    superseded: TableClause
    pins: TableClause
    plans: TableClause

    @property
    def parts(self) -> tuple[TableClause, TableClause, TableClause]:
        """Tables that hold several rows per epoch."""
        return self.receipts, self.files, self.phases


@cache
def tables(schema: str | None) -> Tables:
    """Tables in a schema, or with ``None`` in a database without schemas."""
    return Tables(
        **{
            name: table(f"ledger_{name}", *(column(each, _type(each)) for each in columns.split()), schema=schema)
            for name, columns in _COLUMNS.items()
        }
    )


def _offsets(offsets: SourceOffsets) -> str:
    return canonical(offsets.to_json())


def intent_values(intent: Intent) -> Values:
    """Row of an intent."""
    return {
        "pipeline": intent.pipeline,
        "epoch": intent.epoch,
        "generation": intent.fence.generation,
        "owner": intent.fence.owner,
        "slice_start": _offsets(intent.slice.start),
        "slice_end": _offsets(intent.slice.end),
        "at_ms": intent.at_ms,
        "refused": intent.refused,
    }


def intent_of(row: Row[Any]) -> Intent:
    """Inverse of :func:`intent_values`."""
    start, end = (SourceOffsets.from_json(json.loads(text)) for text in (row.slice_start, row.slice_end))
    fence = Fence(row.generation, row.owner)
    return Intent(row.pipeline, row.epoch, fence, Slice(start, end), row.at_ms, row.refused)


def pipeline_values(pipeline: Pipeline) -> Values:
    """Row of a pipeline, without its sinks."""
    return {
        "pipeline": pipeline.name,
        "query_id": pipeline.query_id,
        "checkpoint": pipeline.checkpoint,
        "generation": pipeline.generation,
        "opened_ms": pipeline.opened_ms,
    }


def sink_values(pipeline: Pipeline) -> list[Values]:
    """Rows of a pipeline's sinks, in their order."""
    return [
        {"pipeline": pipeline.name, "ordinal": ordinal, "sink": sink, "address": address}
        for ordinal, (sink, address) in enumerate(pipeline.sinks)
    ]


def pipeline_of(row: Row[Any], sinks: Iterable[Row[Any]]) -> Pipeline:
    """Inverse of :func:`pipeline_values` and :func:`sink_values`. ``row`` has the newest epoch as well."""
    return Pipeline(
        name=row.pipeline,
        sinks=tuple((sink.sink, sink.address) for sink in sinks),
        query_id=row.query_id,
        checkpoint=row.checkpoint,
        generation=row.generation,
        opened_ms=row.opened_ms,
        epoch=row.newest or 0,
    )


def epoch_values(record: EpochRecord) -> Values:
    """Row of an epoch, without receipts, files and phases."""
    epoch, lineage = record.epoch, record.epoch.lineage
    return {
        "pipeline": record.pipeline,
        "epoch": epoch.number,
        "chain": epoch.chain,
        "previous_chain": epoch.previous_chain,
        "slice_start": _offsets(epoch.written.start),
        "slice_end": _offsets(epoch.written.end),
        "row_count": epoch.digest.rows,
        "digest": epoch.digest.text,
        "column_fingerprint": epoch.schema,
        "generation": record.fence.generation,
        "owner": record.fence.owner,
        "query_id": lineage and lineage.query_id,
        "run_id": lineage and lineage.run_id,
        "checkpoint": lineage and lineage.checkpoint,
        "batch_id": lineage and lineage.batch_id,
        "batch_timestamp_ms": lineage and lineage.batch_timestamp_ms,
        "watermark_ms": lineage and lineage.watermark_ms,
        "manifest": epoch.manifest,
        "adoption": epoch.adoption and epoch.adoption.words,
        "body": canonical(epoch.to_json()),
        "recorded_ms": record.recorded_ms,
    }


def part_values(record: EpochRecord) -> tuple[list[Values], list[Values], list[Values]]:
    """Rows of an epoch in ``Tables.parts``."""
    key = {"pipeline": record.pipeline, "epoch": record.epoch.number}
    receipts = [
        {
            **key,
            "ordinal": ordinal,
            "sink": receipt.sink,
            "chain": receipt.chain,
            "identity": receipt.identity,
            "position": canonical(dict(receipt.position)),
            "row_count": receipt.rows,
        }
        for ordinal, receipt in enumerate(record.receipts)
    ]
    files = [{**key, "ordinal": ordinal, **asdict(file)} for ordinal, file in enumerate(record.files)]
    phases = [
        {**key, "ordinal": ordinal, "phase": phase, "seconds": seconds}
        for ordinal, (phase, seconds) in enumerate(record.phases)
    ]
    return receipts, files, phases


def _receipt(row: Row[Any]) -> Receipt:
    position = tuple(sorted(json.loads(row.position).items()))
    return Receipt(row.sink, row.epoch, row.chain, row.identity, position, row.row_count)


Grouped = Mapping[int, Sequence[Row[Any]]]
"""Rows by epoch, each list in its order."""


def grouped(rows: Iterable[Row[Any]]) -> Grouped:
    """Rows of one of ``Tables.parts`` by epoch."""
    groups: defaultdict[int, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        groups[row.epoch].append(row)
    return groups


def epoch_of(row: Row[Any]) -> Epoch:
    """The epoch of its row."""
    return Epoch.from_json(json.loads(row.body))


def record_of(row: Row[Any], receipts: Grouped, files: Grouped, phases: Grouped) -> EpochRecord:
    """Inverse of :func:`epoch_values` and :func:`part_values`."""
    return EpochRecord(
        pipeline=row.pipeline,
        fence=Fence(row.generation, row.owner),
        epoch=epoch_of(row),
        receipts=tuple(_receipt(each) for each in receipts.get(row.epoch, ())),
        files=tuple(
            InputFile(each.path, each.modified_ms, each.log_offset, each.source) for each in files.get(row.epoch, ())
        ),
        phases=tuple((each.phase, each.seconds) for each in phases.get(row.epoch, ())),
        recorded_ms=row.recorded_ms,
    )


def event_values(event: Event, token: str) -> Values:
    """Row of an event. ``token`` names this one noting of it."""
    return {**asdict(event), "kind": event.kind.value, "token": token}


def event_of(row: Row[Any]) -> Event:
    """Inverse of :func:`event_values`. Raises :class:`UnreadableMarker` for an unknown kind."""
    try:
        kind = EventKind(row.kind)
    except ValueError as error:
        raise UnreadableMarker(f"an event {row.kind!r}: a newer version wrote it") from error
    return Event(row.pipeline, kind, row.reason, row.epoch, row.generation, row.at_ms)


def superseded_values(removed_epoch: RemovedEpoch) -> Values:
    """Row of a superseded epoch."""
    return {
        "pipeline": removed_epoch.pipeline,
        "epoch": removed_epoch.epoch.number,
        "chain": removed_epoch.epoch.chain,
        "body": canonical(removed_epoch.epoch.to_json()),
        "why": removed_epoch.why,
        "at_ms": removed_epoch.at_ms,
    }


def superseded_of(row: Row[Any]) -> RemovedEpoch:
    """Inverse of :func:`superseded_values`."""
    return RemovedEpoch(row.pipeline, epoch_of(row), row.why, row.at_ms)
