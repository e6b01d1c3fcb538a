"""Writes a ledger out as JSON lines, each of which stands alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from onceonly.cli.output import SCHEMA_VERSION
from onceonly.errors import refuse
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Ledger, Pipeline

_AT_ONCE = 500


def export(ledger: Ledger, query: str | None) -> None:
    """Print one pipeline, or all.

    Raises:
        ConfigurationError: E110, the ledger does not know the pipeline.
    """
    known = ledger.pipelines()
    chosen = [entry for entry in known if query in (None, entry.name)]
    if query is not None and not chosen:
        raise refuse(
            "E110",
            problem=f'The ledger does not know a pipeline "{query}".',
            cause=f"it knows: {', '.join(entry.name for entry in known) or 'none'}",
            next="onceonly queries list",
        )
    for line in lines(ledger, chosen):
        print(json.dumps(line, ensure_ascii=False))


def lines(ledger: Ledger, chosen: list[Pipeline]) -> Iterator[dict[str, Any]]:
    """What is written, one line each; epochs are read a few hundred at a time."""
    yield {"kind": "ledger", "schema_version": SCHEMA_VERSION, "address": ledger.address}
    for entry in chosen:
        yield {"kind": "pipeline", **asdict(entry), "sinks": dict(entry.sinks)}
        for first in range(1, entry.epoch + 1, _AT_ONCE):
            for record in ledger.epochs(entry.name, first, first + _AT_ONCE - 1):
                yield {"kind": "epoch", **_epoch(record)}
        for event in ledger.events(entry.name, limit=2**31):
            yield {**asdict(event), "kind": "event", "what": str(event.kind)}


def _epoch(record: EpochRecord) -> dict[str, Any]:
    return {
        "pipeline": record.pipeline,
        "fence": record.fence.to_json(),
        "epoch": record.epoch.to_json(),
        "receipts": [receipt.to_json() for receipt in record.receipts],
        "files": [file.to_json() for file in record.files],
        "phases": dict(record.phases),
        "recorded_ms": record.recorded_ms,
    }
