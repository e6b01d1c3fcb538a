"""``onceonly epochs``: list, show, compare and follow committed epochs."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from datetime import datetime, timezone
from difflib import unified_diff
from itertools import pairwise
from typing import Annotated, Any

import typer

from onceonly.cli.connect import Connection, place
from onceonly.cli.options import EveryOption, LedgerOption, LimitOption, OutputOption, QueryOption, SinkOption
from onceonly.cli.output import SCHEMA_VERSION, Output, emit_json, emit_pairs, emit_table, say, talk
from onceonly.errors import refuse
from onceonly.machine.event_time import text
from onceonly.machine.opening import not_ours
from onceonly.machine.source_order import describe
from onceonly.protocol import Sink
from onceonly.runtime.read_errors import UNREADABLE, reason_of
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import BAD
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Marker, Receipt
from onceonly_checkpoints.ledger import KeptPlan

# ---- Epochs as commands show them: what the sinks hold first, what only the ledger knows beside it.


def merged(
    pipeline: str, recorded: Iterable[EpochRecord], held: Iterable[tuple[Marker, Receipt]]
) -> tuple[EpochRecord, ...]:
    """Put markers and records together, oldest first. Where they disagree the marker stands.

    A record keeps its files and phase times; receipts of the sinks replace those of the ledger.
    """
    records = {record.epoch.number: record for record in recorded}
    for marker, receipt in held:
        number = marker.epoch.number
        known = records.get(number)
        if known is None or known.epoch.chain != marker.epoch.chain:
            known = EpochRecord(pipeline, marker.fence, marker.epoch, ())
        others = tuple(one for one in known.receipts if one.sink != receipt.sink)
        records[number] = replace(known, receipts=(*others, receipt))
    return tuple(records[number] for number in sorted(records))


def read(place: Connection, first: int = 1, last: int | None = None) -> tuple[EpochRecord, ...]:
    """Epochs ``first..last`` of a pipeline; a sink that does not answer is named on stderr and left out."""
    # Sinks before the ledger, as a query writes them: what is committed in between is missed or whole, seldom half.
    held = [pair for sink in place.sinks for pair in _held(sink, place.pipeline, first)]
    recorded = place.ledger.epochs(place.pipeline, first, last) if place.ledger else ()
    wanted = (pair for pair in held if last is None or pair[0].epoch.number <= last)
    return merged(place.pipeline, recorded, wanted)


def _held(sink: Sink, pipeline: str, first: int) -> list[tuple[Marker, Receipt]]:
    try:
        return history(sink, pipeline, first)
    except UNREADABLE as error:
        talk(f"{sink.id} cannot be read ({reason_of(error)}); its epochs are shown as the ledger knows them")
        return []


def history(sink: Sink, pipeline: str, first: int = 1) -> list[tuple[Marker, Receipt]]:
    """The markers of a pipeline in a sink, from epoch ``first`` on.

    Raises:
        DestinationError: E508, one of them names another pipeline or another sink.
    """
    sink.open(pipeline)
    held = list(sink.history(first - 1))
    if refusal := not_ours(pipeline, sink.id, (marker for marker, _ in held)):
        raise refuse(refusal.code, **dict(refusal.details))
    return held


def newest_epochs(place: Connection, count: int) -> tuple[EpochRecord, ...]:
    """The newest ``count`` epochs, oldest first."""
    head = place.ledger.head(place.pipeline) if place.ledger else None
    first = max(1, head.epoch.number - count + 1) if head else 1
    return read(place, first)[-count:]


def one_epoch(place: Connection, number: int | None) -> EpochRecord:
    """One epoch; ``None`` means the newest.

    Raises:
        ConfigurationError: E110, neither the sinks nor the ledger know it.
    """
    found = newest_epochs(place, 1) if number is None else read(place, number, number)
    if not found:
        head = newest_epochs(place, 1)
        raise refuse(
            "E110",
            problem=f'Neither the ledger nor a sink knows epoch {number or 1} of "{place.pipeline}".',
            cause=f"the newest is epoch {head[-1].epoch.number}" if head else "the pipeline has no epoch yet",
            next=f"onceonly epochs list --query {shlex.quote(place.pipeline)}",
        )
    return found[-1]


# ---- Follows a pipeline: yields each epoch once, in order, as it appears.


def follow(place: Connection, limit: int, every: float, count: int | None) -> Iterator[EpochRecord]:
    """The newest epochs, then the new ones; ends after ``count`` new ones, or with Ctrl-C.

    An epoch is committed a moment before the ledger knows how long it took: one that is not recorded yet is yielded
    at the next look, recorded or not.

    Args:
        place: the pipeline.
        limit: how many to begin with.
        every: seconds between two looks.
        count: end after so many new epochs; ``None`` goes on.
    """
    newest = newest_epochs(place, limit)
    last = unrecorded = seen = 0
    for record in newest:
        yield record
        last = record.epoch.number
    try:
        while count is None or seen < count:
            for record in read(place, last + 1):
                if place.ledger and not record.recorded_ms and record.epoch.number != unrecorded:
                    unrecorded = record.epoch.number
                    break
                yield record
                last, seen = record.epoch.number, seen + 1
                if seen == count:
                    return
            time.sleep(every)
    except KeyboardInterrupt:
        return


# ---- The commands; ``rerun`` is in a module of its own.

app = typer.Typer(no_args_is_help=True, help="Committed epochs: list, show, diff, plans, tail, rerun.")

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
        found = newest_epochs(here, limit)
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
        record = one_epoch(here, number)
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
    """Compare two epochs; ``=`` marks the fields that are equal."""
    with place(ledger, query, sink, forgiving=True) as here:
        found = [one_epoch(here, number) for number in (one, other)]
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
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after this many new epochs.")] = None,
) -> None:
    """Print the newest epochs, then each new one as it is committed, until Ctrl-C.

    One line per epoch; with --output json one JSON object per line.
    """
    with place(ledger, query, sink, forgiving=True) as here:
        for record in follow(here, limit, every, count):
            line = json.dumps({"schema_version": SCHEMA_VERSION, **to_json(record)}, ensure_ascii=False)
            print(line if output is Output.JSON else _told(record), flush=True)


@app.command()
def plans(
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the plans that epochs ran, as the ledger keeps them, and what the newest changes in the one before it."""
    with place(ledger, query, sink, forgiving=True) as here:
        name = here.pipeline
        kept = here.ledger.plans(name) if here.ledger else ()
    if output is Output.JSON:
        emit_json({"pipeline": name, "plans": [asdict(one) for one in kept]})
        return
    emit_table(("first epoch", "plan", "lines"), ((one.first_epoch, one.plan, _lines(one)) for one in kept))
    for old, new in [*pairwise(kept)][-1:]:
        for line in unified_diff(old.body.splitlines(), new.body.splitlines(), old.plan, new.plan, n=1, lineterm=""):
            say(line)


def _lines(plan: KeptPlan) -> int:
    return len(plan.body.splitlines())


def _told(record: EpochRecord) -> str:
    epoch = record.epoch
    what = "adopted" if epoch.adoption is not None else f"committed {epoch.rows} rows"
    phases = " ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in record.phases)
    sinks = ", ".join(receipt.sink for receipt in record.receipts)
    return " ".join(filter(None, (clock(record.recorded_ms), f"epoch {epoch.number} {what}", sinks, phases)))


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


def _row(record: EpochRecord) -> tuple[object, ...]:
    epoch = record.epoch
    return (
        epoch.number,
        "adopted" if epoch.adoption is not None else epoch.rows,
        describe(epoch.written.end),
        record.fence.generation,
        epoch.lineage.batch_id if epoch.lineage else "-",
        clock(record.recorded_ms or (epoch.lineage.batch_timestamp_ms if epoch.lineage else 0)),
        ", ".join(receipt.sink for receipt in record.receipts),
    )


def _pairs(record: EpochRecord) -> Iterator[tuple[str, object]]:
    epoch, lineage = record.epoch, record.epoch.lineage
    yield "epoch", f"{epoch.number} of {record.pipeline}"
    yield "adoption", epoch.adoption and epoch.adoption.words
    yield "from", describe(epoch.written.start)
    yield "up to", describe(epoch.written.end)
    if epoch.series > 1:
        yield "series", f"since epoch {epoch.series}"
    if epoch.replaces is not None:
        yield "replaces", f"the rows of epochs {epoch.replaces[0]}..{epoch.replaces[1]}"
    if epoch.offered is not None:
        yield "offered", f"{describe(epoch.offered.start)} to {describe(epoch.offered.end)}"
    yield "rows", epoch.rows
    for output in epoch.outputs:
        rest = output.why if output.name == BAD else f"{output.filtered} filtered"
        where = f" in {', '.join(output.sinks)}" if output.sinks else ""
        yield f"output {output.name}", f"{output.digest.rows} rows{where}{rest and f', {rest}'}"
    if epoch.repeated is not None:
        yield "repeated", f"{epoch.repeated.rows} rows, whose id had been seen before"
    yield "panes", epoch.panes and epoch.panes.text
    yield from _time(epoch)
    yield "runs again", epoch.replays and epoch.replays.text
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
        yield "version", lineage.version or None
        yield "plan", lineage.plan and lineage.plan.text
    for source in epoch.sources:
        yield f"source {source.source}", source.identity or "without an identity"
    for receipt in record.receipts:
        yield f"receipt {receipt.sink}", _receipt(receipt)
    yield "manifest", epoch.manifest
    yield "phases", "  ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in record.phases) or None
    yield "files", len(record.files) or None
    yield "recorded", clock(record.recorded_ms) if record.recorded_ms else "not in the ledger"


def _time(epoch: Epoch) -> Iterator[tuple[str, object]]:
    time = epoch.time
    if time is None:
        return
    yield "complete", f"through {text(time.lower, time.unit)}" if time.lower is not None else "through nothing yet"
    if time.closed is not None:
        yield "closed", f"through {text(time.closed, time.unit)}: nothing before it changes any more"
    if time.first is not None and time.last is not None:
        yield "times", f"{text(time.first, time.unit)} to {text(time.last, time.unit)}"
    if time.late and time.horizon is not None:
        yield "late", f"{time.late} rows before {text(time.horizon, time.unit)}"
    yield "untimed", f"{time.untimed} rows" if time.untimed else None


def _receipt(receipt: Receipt) -> str:
    position = ", ".join(f"{name} {value}" for name, value in receipt.position)
    return f"{receipt.rows} rows; position: {position or 'none'}; identity of the target: {receipt.identity or 'none'}"


def clock(milliseconds: int) -> str:
    """Milliseconds since 1970 as a readable time in UTC; ``-`` for 0."""
    if not milliseconds:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
