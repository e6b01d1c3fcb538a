"""``onceonly epochs``: what was committed: a line each, one in full, two compared, or as it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from onceonly.cli import records
from onceonly.cli.following import follow
from onceonly.cli.options import EveryOption, LedgerOption, LimitOption, OutputOption, QueryOption, SinkOption
from onceonly.cli.output import SCHEMA_VERSION, Output, emit_json, emit_pairs, emit_table
from onceonly.cli.places import place
from onceonly.sources import describe
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord, Receipt

app = typer.Typer(no_args_is_help=True, help="What was committed.")

NumberArgument = Annotated[int, typer.Argument(metavar="N", min=1, help="Number of the epoch.")]


@app.command("list")
def list_(
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: LimitOption = 20,
) -> None:
    """List the newest epochs, oldest first, as sinks and ledger know them."""
    with place(ledger, query, sink, forgiving=True) as here:
        found = records.newest(here, limit)
        name = here.pipeline
    if output is Output.JSON:
        emit_json({"pipeline": name, "epochs": [to_json(record) for record in found]})
        return
    emit_table(("epoch", "rows", "up to", "generation", "batch", "time", "sinks"), map(_row, found))


@app.command()
def show(
    number: NumberArgument,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one epoch: slice, chain, digest, owner, lineage, receipts, phases, files."""
    with place(ledger, query, sink, forgiving=True) as here:
        record = records.one(here, number)
    if output is Output.JSON:
        emit_json({"pipeline": record.pipeline, "epoch": to_json(record)})
    else:
        emit_pairs(_pairs(record))


@app.command()
def diff(
    one: NumberArgument,
    other: Annotated[int, typer.Argument(metavar="M", min=1, help="Number of the other epoch.")],
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what differs between two epochs; ``=`` stands before what does not."""
    with place(ledger, query, sink, forgiving=True) as here:
        found = [records.one(here, number) for number in (one, other)]
    left, right = (dict(_pairs(record)) for record in found)
    names = list(dict.fromkeys([*left, *right]))
    if output is Output.JSON:
        differing = [name for name in names if left.get(name) != right.get(name)]
        emit_json(
            {"pipeline": found[0].pipeline, "epochs": [to_json(record) for record in found], "differs": differing}
        )
        return
    rows = (
        (" " if left.get(name) != right.get(name) else "=", name, left.get(name), right.get(name)) for name in names
    )
    emit_table(("", "", f"epoch {one}", f"epoch {other}"), (row for row in rows if row[2] or row[3]))


@app.command()
def tail(
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: LimitOption = 5,
    every: EveryOption = 2.0,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many new epochs.")] = None,
) -> None:
    """Print the newest epochs, then each new one as it is committed, until Ctrl-C.

    One line per epoch; with --output json one JSON object per line.
    """
    with place(ledger, query, sink, forgiving=True) as here:
        for record in follow(here, limit, every, count):
            line = json.dumps({"schema_version": SCHEMA_VERSION, **to_json(record)}, ensure_ascii=False)
            print(line if output is Output.JSON else _told(record), flush=True)


def _told(record: EpochRecord) -> str:
    epoch = record.epoch
    what = "adopted" if epoch.adoption is not None else f"committed {epoch.digest.rows} rows"
    phases = " ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in record.phases)
    sinks = ", ".join(receipt.sink for receipt in record.receipts)
    return " ".join(filter(None, (clock(record.recorded_ms), f"epoch {epoch.number} {what}", sinks, phases)))


def to_json(record: EpochRecord) -> dict[str, Any]:
    """The JSON form of an epoch: its own nested fields, with what is known about its commit."""
    return {
        **record.epoch.to_json(),
        "rows": record.epoch.digest.rows,
        "sound": chain.sound(record.epoch),
        "fence": record.fence.to_json(),
        "receipts": [receipt.to_json() for receipt in record.receipts],
        "phases": dict(record.phases),
        "files": len(record.files),
        "recorded_ms": record.recorded_ms or None,
    }


def _row(record: EpochRecord) -> tuple[object, ...]:
    epoch = record.epoch
    return (
        epoch.number,
        "adopted" if epoch.adoption is not None else epoch.digest.rows,
        describe(epoch.slice.end),
        record.fence.generation,
        epoch.lineage.batch_id if epoch.lineage else "-",
        clock(record.recorded_ms or (epoch.lineage.batch_timestamp_ms if epoch.lineage else 0)),
        ", ".join(receipt.sink for receipt in record.receipts),
    )


def _pairs(record: EpochRecord) -> Iterator[tuple[str, object]]:
    epoch, lineage = record.epoch, record.epoch.lineage
    yield "epoch", f"{epoch.number} of {record.pipeline}"
    yield "adoption", epoch.adoption and epoch.adoption.words
    yield "from", describe(epoch.slice.start)
    yield "up to", describe(epoch.slice.end)
    if epoch.offered is not None:
        yield "offered", f"{describe(epoch.offered.start)} to {describe(epoch.offered.end)}"
    yield "rows", epoch.digest.rows
    yield "digest", f"{epoch.digest.high:x}:{epoch.digest.low:x}"
    yield "chain", epoch.chain if chain.sound(epoch) else f"{epoch.chain} (NOT the hash of this epoch)"
    yield "previous chain", epoch.previous_chain or "none, this is the first"
    yield "schema", epoch.schema or None
    yield "generation", record.fence.text.removeprefix("generation ")
    if lineage is not None:
        yield "batch", f"{lineage.batch_id} of query {lineage.query_id}, run {lineage.run_id}"
        yield "planned", clock(lineage.batch_timestamp_ms)
        yield "watermark", clock(lineage.watermark_ms) if lineage.watermark_ms else None
        yield "checkpoint", lineage.checkpoint
    for source in epoch.sources:
        yield f"source {source.source}", source.identity or "without an identity"
    for receipt in record.receipts:
        yield f"receipt {receipt.sink}", _receipt(receipt)
    yield "manifest", epoch.manifest
    yield "phases", "  ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in record.phases) or None
    yield "files", len(record.files) or None
    yield "recorded", clock(record.recorded_ms) if record.recorded_ms else "not in the ledger"


def _receipt(receipt: Receipt) -> str:
    position = ", ".join(f"{name} {value}" for name, value in receipt.position)
    return f"{receipt.rows} rows; position: {position or 'none'}; identity of the target: {receipt.identity or 'none'}"


def clock(milliseconds: int) -> str:
    """Milliseconds since 1970 as a readable time in UTC; ``-`` for 0."""
    if not milliseconds:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
