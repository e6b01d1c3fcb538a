"""``onceonly recover resolve``: settle an epoch in doubt without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import typer

from onceonly.cli.change import Change, carry_out
from onceonly.cli.connect import Connection, connect
from onceonly.cli.options import LedgerOption, OnlyArgument, OutputOption, QueryOption, SinkOption, YesOption, one_name
from onceonly.cli.output import Output, emit_json, say
from onceonly.cli.status import begun_epoch


def command(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    yes: YesOption = False,
) -> None:
    """Open a pipeline as a restart would: fence out older drivers, settle the epoch in doubt, update the ledger.

    Sinks that a crash left behind receive the missing epoch from its staged bytes. No new epoch begins. A
    running driver stops at its next write.
    """
    with connect(ledger, one_name(context, name, query), sink) as connection:
        carry_out(Change(list(_plan(connection)), partial(_settle, connection, output), output=output), yes=yes)


def _settle(connection: Connection, output: Output) -> None:
    from onceonly.runtime.operator import resolve

    resolution = resolve(connection.sinks, connection.certain_ledger, connection.pipeline)
    if output is Output.JSON:
        settled = {"epoch": resolution.epoch, "generation": resolution.generation, "said": list(resolution.messages)}
        emit_json({"pipeline": connection.pipeline, **settled})
        return
    for sentence in resolution.messages:
        say(sentence)


def _plan(connection: Connection) -> Iterator[tuple[str, object]]:
    yield "pipeline", connection.pipeline
    yield "sinks", connection.sinks_in_words
    yield "ledger", connection.certain_ledger.address
    begun = begun_epoch(connection) if connection.entry is not None else None
    yield "begun", f"epoch {begun.epoch}: {begun.state}; {begun.why}" if begun else "nothing"
    for sink in connection.sinks:
        sink.open(connection.pipeline)
    owners = sorted({fence.text for sink in connection.sinks if (fence := sink.fence())})
    yield "fences out", ", ".join(owners) or "no driver"
    yield "does", "installs the next generation in every sink; the drivers named above write nothing more"
