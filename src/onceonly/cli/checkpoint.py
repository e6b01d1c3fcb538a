"""``onceonly checkpoint``: reads Spark's checkpoint files, compares and rebuilds them from what was committed."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from onceonly.cli import records
from onceonly.cli.epochs import clock
from onceonly.cli.options import LedgerOption, LimitOption, OutputOption, QueryOption, SinkOption
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, say, talk
from onceonly.cli.places import place
from onceonly.errors import refuse
from onceonly.sources import describe
from onceonly_checkpoints import sparklog
from onceonly_checkpoints.epoch import EpochRecord, SourceOffsets
from onceonly_checkpoints.sparklog import OffsetEntry, UnreadableCheckpoint
from onceonly_checkpoints.storage import Storage, open_storage

app = typer.Typer(no_args_is_help=True, help="Spark's checkpoint files.")

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="The query's checkpointLocation.")]


@contextmanager
def opened(path: str) -> Generator[Storage]:
    """Storage of a checkpoint; what cannot be read is put into the words of E601 to E603.

    Raises:
        CheckpointError: E601, E602 or E603.
    """
    storage = open_storage(path)
    try:
        yield storage
    except UnreadableCheckpoint as error:
        if error.kind == "not-a-checkpoint":
            raise refuse("E603", path=path, reason=error.reason) from error
        code = "E601" if error.kind == "unknown-version" else "E602"
        raise refuse(code, path=error.path, found=error.reason, reason=error.reason, checkpoint=path) from error


@app.command()
def show(path: PathArgument, *, output: OutputOption = Output.TABLE, limit: LimitOption = 10) -> None:
    """Show a checkpoint: query id, batches, which of them is pending."""
    with opened(path) as storage:
        found = _contents(storage, limit)
    if output is Output.JSON:
        emit_json(found)
        return
    batches = found.pop("batches")
    emit_pairs(found.items())
    say()
    columns = ("batch", "committed", "planned", "watermark", "up to")
    emit_table(columns, (_row(batch) for batch in batches))


def _contents(storage: Storage, limit: int) -> dict[str, Any]:
    query_id = sparklog.query_id(storage)
    planned, committed = sparklog.offset_ids(storage), set(sparklog.commit_ids(storage))
    return {
        "checkpoint": storage.url,
        "query id": query_id,
        "planned": len(planned),
        "committed": len(committed),
        "pending": next((batch for batch in planned[-1:] if batch not in committed), None),
        "batches": [_batch(storage, batch, batch in committed) for batch in planned[-limit:]],
    }


def _batch(storage: Storage, batch: int, committed: bool) -> dict[str, Any]:
    try:
        entry = sparklog.offset_entry(storage, batch)
    except UnreadableCheckpoint as error:
        return {"batch": batch, "committed": committed, "problem": error.reason}
    return {"batch": batch, "committed": committed, **_entry(entry)}


def _entry(entry: OffsetEntry) -> dict[str, Any]:
    return {
        "batch_timestamp_ms": entry.batch_timestamp_ms,
        "watermark_ms": entry.watermark_ms,
        "offsets": entry.offsets.to_json(),
    }


def _row(batch: dict[str, Any]) -> tuple[object, ...]:
    committed = "yes" if batch["committed"] else "no"
    if "problem" in batch:
        return batch["batch"], committed, "-", "-", f"unreadable: {batch['problem']}"
    ends = describe(SourceOffsets.from_json(batch["offsets"]))
    return batch["batch"], committed, clock(batch["batch_timestamp_ms"]), clock(batch["watermark_ms"]), ends


@app.command()
def offsets(
    *,
    query: QueryOption = None,
    epoch: Annotated[int | None, typer.Option("--epoch", min=1, metavar="N", help="Default: the newest.")] = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print where an epoch ended, also when the checkpoint is gone.

    For one Kafka source the line can be pasted as startingOffsets.
    """
    with place(ledger, query, sink) as here:
        record = records.one(here, epoch)
    ends = {source: plain(text) for source, text in record.epoch.slice.end.entries}
    if output is Output.JSON:
        emit_json({"pipeline": record.pipeline, "epoch": record.epoch.number, "offsets": ends})
        return
    print(json.dumps(next(iter(ends.values())) if len(ends) == 1 else ends, separators=(",", ":")))
    talk(_advice(record))


def plain(text: str | None) -> Any:
    """An offset as JSON where it is JSON, else its text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _advice(record: EpochRecord) -> str:
    where = f"end of epoch {record.epoch.number} of {record.pipeline}"
    hints = [hint for _, text in record.epoch.slice.end.entries if (hint := _hint(plain(text)))]
    return f"{where}; {'; '.join(dict.fromkeys(hints))}" if hints else where


def _hint(offset: object) -> str:
    if not isinstance(offset, dict):
        return ""
    if "logOffset" in offset:
        rebuild = "onceonly checkpoint rebuild PATH --query NAME"
        return f"a file source has no starting offsets, its position lies in the checkpoint: {rebuild}"
    if "reservoirVersion" in offset:
        return f"a Delta source starts with startingVersion {offset['reservoirVersion']} (index {offset.get('index')})"
    if offset and all(isinstance(partitions, dict) for partitions in offset.values()):
        return "paste it as .option('startingOffsets', '...') of the Kafka source"
    return ""
