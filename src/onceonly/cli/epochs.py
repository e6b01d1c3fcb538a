"""``onceonly epochs``: list, follow and show committed epochs, and read points."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from difflib import unified_diff
from itertools import pairwise
from typing import Annotated

import typer

from onceonly.cli.connect import Connection, connect
from onceonly.cli.options import (
    EveryOption,
    LedgerOption,
    OnlyArgument,
    OutputOption,
    QueryOption,
    SinkOption,
    one_name,
)
from onceonly.cli.output import Output, emit_json, emit_line, emit_pairs, emit_table, say, talk
from onceonly.cli.records import newest_epochs, one_epoch, read, to_json
from onceonly.errors.options import misused
from onceonly.machine.event_time import text
from onceonly.machine.source_order import describe
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import BAD
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Receipt
from onceonly_checkpoints.epoch_time import clock
from onceonly_checkpoints.ledger import KeptPlan
from onceonly_checkpoints.model import position_text as position_in_words

# ---- Follows a pipeline: yields each epoch once, in order, as it appears.


def follow_epochs(connection: Connection, limit: int, every: float, count: int | None) -> Iterator[EpochRecord]:
    """The newest epochs, then the new ones; ends after ``count`` new ones, or with Ctrl-C.

    An epoch is committed a moment before the ledger knows how long it took: one that is not recorded yet is yielded
    at the next look, recorded or not.

    ``every`` is in seconds; without ``count`` it goes on.
    """
    newest = newest_epochs(connection, limit)
    last = unrecorded = followed = 0
    for record in newest:
        yield record
        last = record.epoch.number
    try:
        while count is None or followed < count:
            for record in read(connection, last + 1):
                if connection.ledger and not record.recorded_ms and record.epoch.number != unrecorded:
                    unrecorded = record.epoch.number
                    break
                yield record
                last, followed = record.epoch.number, followed + 1
                if followed == count:
                    return
            time.sleep(every)
    except KeyboardInterrupt:
        return


# ---- The commands.

NumberArgument = Annotated[
    int | None, typer.Argument(metavar="N", min=1, help="Number of the epoch. Default: the newest.")
]
FollowOption = Annotated[bool, typer.Option("--follow", help="Then print each new epoch as it is committed.")]
ListedOption = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Show this many of the newest. Default: 20; --follow 5.")
]
CountOption = Annotated[int | None, typer.Option("--count", min=1, help="With --follow: end after so many new epochs.")]
PlanOption = Annotated[bool, typer.Option("--plan", help="The plans that epochs ran, up to this one.")]
OffsetsOption = Annotated[bool, typer.Option("--offsets", help="Where the epoch ended, as JSON.")]
ReadPointOption = Annotated[
    bool, typer.Option("--read-point", help="Where each sink holds the epoch. Default: the newest that all sinks hold.")
]
SqlOption = Annotated[
    bool, typer.Option("--sql", help="With --read-point: the statement that reads each sink as of the epoch.")
]


def list_(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: ListedOption = None,
    follow: FollowOption = False,
    every: EveryOption = 2.0,
    count: CountOption = None,
) -> None:
    """List the newest epochs, oldest first, as sinks and ledger know them.

    --follow prints one line for each, then each new one until Ctrl-C. With --output json each line is a JSON object.
    """
    with connect(ledger, one_name(context, name, query), sink, forgiving=True) as connection:
        if follow:
            for record in follow_epochs(connection, limit or 5, every, count):
                if output is Output.JSON:
                    emit_line(to_json(record))
                else:
                    print(_format_epoch(record), flush=True)
            return
        records = newest_epochs(connection, limit or 20)
        pipeline = connection.pipeline
    if output is Output.JSON:
        emit_json({"pipeline": pipeline, "epochs": [to_json(record) for record in records]})
        return
    emit_table(("epoch", "rows", "up to", "generation", "batch", "time", "sinks"), map(_row, records))


def show(
    number: NumberArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    plan: PlanOption = False,
    offsets: OffsetsOption = False,
    read_point: ReadPointOption = False,
    sql: SqlOption = False,
) -> None:
    """Show one epoch: offset range, chain, digest, owner, history, receipts, phases, files.

    --plan lists the plans on record, and the change of the last one to the one before it. --offsets prints where the
    epoch ended, also when the checkpoint is gone. For one Kafka source you can paste the line as startingOffsets.
    """
    if plan + offsets + (read_point or sql) > 1:
        raise misused(
            "epochs show takes one of --plan, --offsets and --read-point.",
            "each prints a document of its own",
            "leave the others out",
        )
    with connect(ledger, query, sink, forgiving=not (read_point or sql)) as connection:
        if read_point or sql:
            _show_read_point(connection, number, sql, output)
            return
        if plan:
            plans = connection.ledger.plans(connection.pipeline) if connection.ledger else ()
            _show_plans(
                connection.pipeline, [plan for plan in plans if number is None or plan.first_epoch <= number], output
            )
            return
        record = one_epoch(connection, number)
    if offsets:
        _show_offsets(record, output)
    elif output is Output.JSON:
        emit_json({"pipeline": record.pipeline, "epoch": to_json(record)})
    else:
        emit_pairs(_pairs(record))


def _show_plans(name: str, plans: Sequence[KeptPlan], output: Output) -> None:
    if output is Output.JSON:
        emit_json({"pipeline": name, "plans": [asdict(plan) for plan in plans]})
        return
    emit_table(
        ("first epoch", "plan", "lines"), ((plan.first_epoch, plan.plan, len(plan.body.splitlines())) for plan in plans)
    )
    for old, new in [*pairwise(plans)][-1:]:
        for line in unified_diff(old.body.splitlines(), new.body.splitlines(), old.plan, new.plan, n=1, lineterm=""):
            say(line)


def _format_epoch(record: EpochRecord) -> str:
    epoch = record.epoch
    what = "adopted" if epoch.adoption is not None else f"committed {epoch.rows} rows"
    phases = " ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in record.phases)
    sinks = ", ".join(receipt.sink for receipt in record.receipts)
    return " ".join(filter(None, (clock(record.recorded_ms), f"epoch {epoch.number} {what}", sinks, phases)))


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
    yield "panes", epoch.windows and epoch.windows.text
    yield from _time(epoch)
    yield "runs again", epoch.replays and epoch.replays.text
    yield "digest", f"{epoch.digest.high:x}:{epoch.digest.low:x}"
    yield "chain", epoch.chain if chain.sound(epoch) else f"{epoch.chain} (NOT the hash of this epoch)"
    yield "previous chain", epoch.previous_chain or "none, this is the first"
    yield "schema", epoch.schema or None
    yield "columns changed", epoch.changed_columns or None
    for part in epoch.columns:
        listed = [f"{name} {kind} {'null' if nullable else 'not null'}" for name, kind, nullable in part.columns]
        yield f"columns {part.output}".rstrip(), ", ".join(listed)
    yield "columns since", f"epoch {epoch.columns_since}" if epoch.columns_since else None
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
    yield (
        "complete",
        f"through {text(time.dataset_complete_until, time.unit)}"
        if time.dataset_complete_until is not None
        else "through nothing yet",
    )
    if time.closed_until is not None:
        yield "closed", f"through {text(time.closed_until, time.unit)}: nothing before it changes any more"
    if time.earliest is not None and time.latest is not None:
        yield "times", f"{text(time.earliest, time.unit)} to {text(time.latest, time.unit)}"
    if time.late_rows and time.late_before is not None:
        yield "late", f"{time.late_rows} rows before {text(time.late_before, time.unit)}"
    yield "untimed", f"{time.rows_without_time} rows" if time.rows_without_time else None


def _receipt(receipt: Receipt) -> str:
    position = position_in_words(receipt.position) or "none"
    return f"{receipt.rows} rows; position: {position}; identity of the target: {receipt.identity or 'none'}"


# ---- Where an epoch ended.


def _show_offsets(record: EpochRecord, output: Output) -> None:
    ends = record.epoch.written.end.parsed
    if output is Output.JSON:
        emit_json({"pipeline": record.pipeline, "epoch": record.epoch.number, "offsets": ends})
        return
    print(json.dumps(next(iter(ends.values())) if len(ends) == 1 else ends, separators=(",", ":")))
    talk(_advice(record))


def _advice(record: EpochRecord) -> str:
    where = f"end of epoch {record.epoch.number} of {record.pipeline}"
    hints = [hint for offset in record.epoch.written.end.parsed.values() if (hint := _hint(offset))]
    return f"{where}; {'; '.join(dict.fromkeys(hints))}" if hints else where


def _hint(offset: object) -> str:
    if not isinstance(offset, dict):
        return ""
    if "logOffset" in offset:
        rebuild = "onceonly recover rebuild-checkpoint PATH --query NAME"
        return f"a file source has no starting offsets, its position is in the checkpoint: {rebuild}"
    if "reservoirVersion" in offset:
        return f"a Delta source starts with startingVersion {offset['reservoirVersion']} (index {offset.get('index')})"
    if offset and all(isinstance(partitions, dict) for partitions in offset.values()):
        return "paste it as .option('startingOffsets', '...') of the Kafka source"
    return ""


# ---- ``onceonly epochs show --read-point``.


def _show_read_point(connection: Connection, number: int | None, sql: bool, output: Output) -> None:
    from onceonly.reading.points import read_point as sealed_epoch

    point = sealed_epoch(connection.pipeline, number or "latest", ledger=connection.certain_ledger)
    statements = {queried_sink.id: point.sql(queried_sink) for queried_sink in connection.sinks} if sql else {}
    if output is Output.JSON:
        document = {"pipeline": point.pipeline, "epoch": point.epoch, "chain": point.chain}
        queries = {id_: {"sql": statement} for id_, statement in statements.items()}
        sinks = [{**receipt.to_json(), **queries.get(receipt.sink, {})} for receipt in point.receipts]
        emit_json({**document, "sinks": sinks})
        return
    title = f"{point.pipeline}, epoch {point.epoch}, chain {point.chain[:12]}"
    emit_table(
        ("sink", "rows", "position"), [(r.sink, r.rows, position_in_words(r.position)) for r in point.receipts], title
    )
    for id_, statement in statements.items():
        say(f"\n-- {id_}\n{statement};")
