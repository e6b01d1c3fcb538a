"""``onceonly read-point``: one sealed epoch, and SQL to read it."""

from __future__ import annotations

from typing import Annotated

import typer

from onceonly.cli.connect import place
from onceonly.cli.options import LedgerOption, OnlyArgument, OutputOption, QueryOption, SinkOption, one_name
from onceonly.cli.output import Output, emit_json, emit_table, say
from onceonly.protocol import Sink
from onceonly.reading.read_point import ReadPoint, read_point
from onceonly_checkpoints.model import place as spelled

EpochOption = Annotated[
    int | None, typer.Option("--epoch", min=1, help="Which epoch. Default: the newest that all its sinks hold.")
]
SqlOption = Annotated[bool, typer.Option("--sql", help="Print the statement that reads each sink as of the epoch.")]


def command(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    epoch: EpochOption = None,
    sql: SqlOption = False,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show an epoch that all sinks hold, and where each of them stood when it held that and no later one."""
    with place(ledger, one_name(context, name, query), sink) as here:
        point = read_point(here.pipeline, "latest" if epoch is None else epoch, ledger=here.certain_ledger)
        statements = {one.id: _statement(point, one) for one in here.sinks} if sql else {}
    if output is Output.JSON:
        said = {"pipeline": point.pipeline, "epoch": point.epoch, "chain": point.chain}
        sinks = [{**receipt.to_json(), **_sql_of(receipt.sink, statements)} for receipt in point.receipts]
        emit_json({**said, "sinks": sinks})
        return
    title = f"{point.pipeline}, epoch {point.epoch}, chain {point.chain[:12]}"
    emit_table(("sink", "rows", "position"), [(r.sink, r.rows, spelled(r.position)) for r in point.receipts], title)
    for id_, statement in statements.items():
        say(f"\n-- {id_}\n{statement};")


def _statement(point: ReadPoint, sink: Sink) -> str:
    return point.sql(sink)


def _sql_of(sink: str, statements: dict[str, str]) -> dict[str, str]:
    return {"sql": statements[sink]} if sink in statements else {}
