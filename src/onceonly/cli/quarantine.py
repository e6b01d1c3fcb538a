"""``onceonly quarantine``: count and show bad rows by epoch and reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from onceonly.cli.connect import Connection, connect, naming
from onceonly.cli.options import (
    LedgerOption,
    LimitOption,
    OnlyArgument,
    OutputOption,
    QueryOption,
    SinkOption,
    one_name,
)
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, plural, say
from onceonly.cli.records import read
from onceonly.errors.options import misused
from onceonly.protocol import Sink
from onceonly.quality import quarantine
from onceonly.quality.quarantine import BadRow
from onceonly_checkpoints import digests
from onceonly_checkpoints.epoch import Epoch, EpochRecord

EpochOption = Annotated[
    str | None, typer.Option("--epoch", "-e", metavar="N|A..B", help="Only this epoch, or these. Default: every epoch.")
]
ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="RULE", help="Only rows that broke this rule.")]
RowsOption = Annotated[bool, typer.Option("--rows", help="Show the rows, with their reasons.")]

_ENDS = re.compile(r"([1-9][0-9]{0,17})(?:\.\.([1-9][0-9]{0,17}))?")
_MENDED = "replay them once you have repaired them: help(onceonly.bad_rows)"

Aside = Sequence[tuple[Epoch, digests.OutputDigest]]


def command(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: LimitOption = 20,
    epoch: EpochOption = None,
    reason: ReasonOption = None,
    rows: RowsOption = False,
) -> None:
    """List the newest epochs with quarantined rows, oldest first: how many, why, where, and the sum.

    --rows shows the newest rows with their reasons, from the quarantine itself, without Spark.
    """
    span = _span(epoch)
    with connect(ledger, one_name(context, name, query), sink, forgiving=True) as connection:
        records = read(connection, *span)
        aside = quarantine.set_aside((record.epoch for record in records), reason)
        holder = _holder(connection, aside) if rows and aside else None
        shown = _rows(holder, connection.pipeline, aside, limit, reason) if holder else ()
        addresses = _addresses(connection)
    counted = sum(quarantine.count(bad, reason) for _, bad in aside)
    if output is Output.JSON and rows:
        held = {"sink": holder.id, "address": holder.address} if holder else {"sink": None, "address": None}
        emit_json(
            {"pipeline": connection.pipeline, **held, "counted": counted, "rows": [row.to_json() for row in shown]}
        )
    elif output is Output.JSON:
        emit_json({"pipeline": connection.pipeline, **_listed(aside, addresses, limit)})
    elif holder is not None:
        _show(holder, shown, counted)
    elif not aside:
        say(_nothing(connection, records, reason))
    else:
        emit_table(("epoch", "rows", "bad", "reasons", "sinks"), _table(aside, limit))


def _span(text: str | None) -> tuple[int, int | None]:
    match = _ENDS.fullmatch(text) if text is not None else None
    if text is None:
        return 1, None
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last:
        raise misused(
            f"--epoch {text} names no epoch.",
            "an epoch is a number from 1 on, and several are its first and last one",
            "--epoch 7, or --epoch 7..9",
        )
    return first, last


def _addresses(connection: Connection) -> Mapping[str, str]:
    recorded_addresses = dict(connection.entry.sinks) if connection.entry else {}
    return {**recorded_addresses, **{sink.id: sink.address for sink in connection.sinks}}


def _nothing(connection: Connection, records: Sequence[EpochRecord], reason: str | None) -> str:
    of = f'"{connection.pipeline}"'
    if not any(record.epoch.bad for record in records):
        return f"No expectation applies to rows of {of} in {plural(len(records), 'epoch')}: none was quarantined."
    why = f' for "{reason}"' if reason else ""
    return f"No row of {of} was quarantined{why} in {plural(len(records), 'epoch')}."


def _listed(aside: Aside, addresses: Mapping[str, str], limit: int) -> dict[str, Any]:
    rows, reasons = quarantine.in_all(aside)
    sinks = dict.fromkeys(sink for _, bad in aside for sink in bad.sinks)
    return {
        "sinks": {sink: addresses.get(sink) for sink in sinks},
        "bad": rows,
        "reasons": reasons,
        "epochs": [
            {
                "epoch": epoch.number,
                "rows": bad.filtered + bad.digest.rows,
                "bad": bad.digest.rows,
                "reasons": dict(bad.reasons),
                "sinks": list(bad.sinks),
            }
            for epoch, bad in aside[-limit:]
        ],
    }


def _table(aside: Aside, limit: int) -> Iterator[tuple[object, ...]]:
    for epoch, bad in aside[-limit:]:
        yield epoch.number, bad.filtered + bad.digest.rows, bad.digest.rows, bad.why, ", ".join(bad.sinks)
    rows, reasons = quarantine.in_all(aside)
    breakdown = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    yield "all", sum(bad.filtered + bad.digest.rows for _, bad in aside), rows, breakdown, plural(len(aside), "epoch")


def _holder(connection: Connection, aside: Aside) -> Sink:
    """The quarantine that holds the newest of these rows (E110: it was not named, or cannot be found)."""
    _, bad = aside[-1]
    holder = next((sink for sink in connection.sinks if sink.id in bad.sinks), None)
    if holder is None:
        raise misused(
            f"The quarantine of {connection.pipeline}, {', '.join(bad.sinks)}, is not among the sinks.",
            "it was not named, or its address leads nowhere",
            naming(connection, bad.sinks),
        )
    return holder


def _rows(holder: Sink, pipeline: str, aside: Aside, limit: int, reason: str | None) -> tuple[BadRow, ...]:
    held = [(epoch, bad) for epoch, bad in aside if holder.id in bad.sinks]
    span = quarantine.newest(held, limit, reason)
    holder.open(pipeline)
    return quarantine.rows_of(holder, span, limit, reason) if span else ()


def _show(holder: Sink, rows: Sequence[BadRow], counted: int) -> None:
    emit_table(("epoch", "reasons", "row"), ((row.epoch, ", ".join(row.rules), row.row or "not kept") for row in rows))
    less = f" of {counted} quarantined" if counted > len(rows) else ""
    say()
    emit_pairs([("shown", f"{plural(len(rows), 'row')}{less}"), ("in", holder.address), ("next", _MENDED)])
