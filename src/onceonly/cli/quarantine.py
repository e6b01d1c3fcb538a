"""``onceonly quarantine``: count and show bad rows by epoch and reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from onceonly.cli.connect import Connection, naming, place
from onceonly.cli.epochs import read
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
from onceonly.errors import refuse
from onceonly.protocol import Sink
from onceonly.quality import quarantine
from onceonly.quality.quarantine import BadRow
from onceonly_checkpoints import digests
from onceonly_checkpoints.epoch import Epoch, EpochRecord

app = typer.Typer(no_args_is_help=True, help="Rows that were set aside: list, show.")

EpochOption = Annotated[
    str | None,
    typer.Option("--epoch", "-e", metavar="N|A..B", help="Only this epoch, or these. Default: every epoch."),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="RULE", help="Only rows that broke this, by the name that is listed.")
]
ShownOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show this many of the newest rows.")]

_ENDS = re.compile(r"([1-9][0-9]{0,17})(?:\.\.([1-9][0-9]{0,17}))?")
_MENDED = "a second query brings them in once they are mended: help(onceonly.bad_rows) says how"

Aside = Sequence[tuple[Epoch, digests.OutputDigest]]


@app.command("list")
def list_(
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
) -> None:
    """List the newest epochs that set rows aside, oldest first: how many, why and where; and the sum over all."""
    span = _span(epoch)
    with place(ledger, one_name(context, name, query), sink, forgiving=True) as here:
        records = read(here, *span)
        addresses = _addresses(here)
    aside = quarantine.set_aside((record.epoch for record in records), reason)
    if output is Output.JSON:
        emit_json({"pipeline": here.pipeline, **_listed(aside, addresses, limit)})
    elif not aside:
        say(_nothing(here, records, reason))
    else:
        emit_table(("epoch", "rows", "bad", "reasons", "sinks"), _table(aside, limit))


@app.command()
def show(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: ShownOption = 20,
    epoch: EpochOption = None,
    reason: ReasonOption = None,
) -> None:
    """Show rows that were set aside, with their reasons, out of the quarantine itself; without Spark."""
    span = _span(epoch)
    with place(ledger, one_name(context, name, query), sink, forgiving=True) as here:
        records = read(here, *span)
        aside = quarantine.set_aside((record.epoch for record in records), reason)
        holder = _holder(here, aside) if aside else None
        rows = _rows(holder, here.pipeline, aside, limit, reason) if holder else ()
    counted = sum(quarantine.count(bad, reason) for _, bad in aside)
    if output is Output.JSON:
        held = {"sink": holder.id, "address": holder.address} if holder else {"sink": None, "address": None}
        emit_json({"pipeline": here.pipeline, **held, "counted": counted, "rows": [row.to_json() for row in rows]})
    elif holder is None:
        say(_nothing(here, records, reason))
    else:
        _show(holder, rows, counted)


def _span(said: str | None) -> tuple[int, int | None]:
    """First and last epoch that are meant.

    Raises:
        ConfigurationError: E110.
    """
    found = _ENDS.fullmatch(said) if said is not None else None
    if said is None:
        return 1, None
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise refuse(
            "E110",
            problem=f"--epoch {said} names no epoch.",
            cause="an epoch is a number from 1 on, and several are its first and last one",
            next="--epoch 7, or --epoch 7..9",
        )
    return first, last


def _addresses(here: Connection) -> Mapping[str, str]:
    known = dict(here.entry.sinks) if here.entry else {}
    return {**known, **{sink.id: sink.address for sink in here.sinks}}


def _nothing(here: Connection, records: Sequence[EpochRecord], reason: str | None) -> str:
    of = f'"{here.pipeline}"'
    if not any(record.epoch.bad for record in records):
        return f"Nothing is expected of rows of {of} in {plural(len(records), 'epoch')}: none was set aside."
    why = f' for "{reason}"' if reason else ""
    return f"No row of {of} was set aside{why} in {plural(len(records), 'epoch')}."


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
    said = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    yield "all", sum(bad.filtered + bad.digest.rows for _, bad in aside), rows, said, plural(len(aside), "epoch")


def _holder(here: Connection, aside: Aside) -> Sink:
    """The quarantine that holds the newest of these rows.

    Raises:
        ConfigurationError: E110, it was not named, or cannot be found.
    """
    _, bad = aside[-1]
    found = next((sink for sink in here.sinks if sink.id in bad.sinks), None)
    if found is None:
        raise refuse(
            "E110",
            problem=f"The quarantine of {here.pipeline}, {', '.join(bad.sinks)}, is not among the sinks.",
            cause="it was not named, or its address leads nowhere",
            next=naming(here, bad.sinks),
        )
    return found


def _rows(holder: Sink, pipeline: str, aside: Aside, limit: int, reason: str | None) -> tuple[BadRow, ...]:
    held = [(epoch, bad) for epoch, bad in aside if holder.id in bad.sinks]
    span = quarantine.newest(held, limit, reason)
    holder.open(pipeline)
    return quarantine.rows_of(holder, span, limit, reason) if span else ()


def _show(holder: Sink, rows: Sequence[BadRow], counted: int) -> None:
    emit_table(("epoch", "reasons", "row"), ((row.epoch, ", ".join(row.rules), row.row or "not kept") for row in rows))
    less = f" of {counted} that were set aside" if counted > len(rows) else ""
    say()
    emit_pairs([("shown", f"{plural(len(rows), 'row')}{less}"), ("in", holder.address), ("next", _MENDED)])
