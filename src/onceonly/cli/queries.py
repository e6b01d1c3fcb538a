"""``onceonly queries``: the pipelines a ledger knows, one of them in full, and the moving of one's position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from onceonly.cli import adoption, dropping, takingover
from onceonly.cli.confirm import confirmed
from onceonly.cli.epochs import clock
from onceonly.cli.options import LedgerOption, LimitOption, OutputOption, SinkOption, YesOption
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, say
from onceonly.cli.places import no_ledger, open_ledger, place
from onceonly.errors import mask
from onceonly_checkpoints.ledger import Event, Pipeline

app = typer.Typer(no_args_is_help=True, help="The pipelines.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pipeline.")]
AcceptLossOption = Annotated[
    bool, typer.Option("--accept-loss", help="What lies between, or what the sink has lost, is given up.")
]
OverlapOption = Annotated[
    adoption.Overlap | None,
    typer.Option("--overlap", help="What was written already is written again, on purpose."),
]
AcceptStateLossOption = Annotated[
    bool, typer.Option("--accept-state-loss", help="The query's windows and seen keys start empty.")
]
ContinueOption = Annotated[
    bool, typer.Option("--continue", help="The new source starts exactly where the last epoch ended.")
]
AcceptChangeOption = Annotated[
    bool, typer.Option("--accept-change", help="What somebody else did to the sink is as wanted.")
]
KeepStateOption = Annotated[
    bool,
    typer.Option("--keep-recomputed-state", help="A batch that was run again gave other rows; its state is kept."),
]
StartOption = Annotated[
    str | None,
    typer.Option("--start", metavar="JSON", help="The next batch starts here; as checkpoint offsets prints it."),
]
FromCheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--from-checkpoint",
        metavar="PATH",
        help="Begin the pipeline where an older job's checkpoint stands. Name its --sink.",
    ),
]
FromDeltaTxnOption = Annotated[
    str | None,
    typer.Option(
        "--from-delta-txn",
        metavar="APP_ID",
        help="The older job's txnAppId: its checkpoint must agree with the Delta table.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; goes into the marker and the ledger.")]


@app.command("list")
def list_(ledger: LedgerOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the pipelines of a ledger."""
    if ledger is None:
        raise no_ledger()
    opened = open_ledger(ledger)
    try:
        known = list(opened.pipelines())
    finally:
        opened.close()
    if output is Output.JSON:
        emit_json({"pipelines": [to_json(pipeline) for pipeline in known]})
        return
    columns = ("name", "epoch", "generation", "opened", "query id", "sinks")
    emit_table(columns, map(_row, known))


@app.command()
def show(
    name: NameArgument,
    *,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: LimitOption = 20,
) -> None:
    """Show one pipeline and its newest events: openings, proven skips, adoptions, refusals."""
    if ledger is None:
        raise no_ledger()
    with place(ledger, name) as here:
        events = here.certain_ledger.events(name, limit)
        entry = here.entry
    assert entry is not None
    if output is Output.JSON:
        emit_json({"pipeline": to_json(entry), "events": [_event_json(event) for event in events]})
        return
    emit_pairs(_pairs(entry))
    say()
    rows = (
        (clock(event.at_ms), event.kind, event.epoch or "", event.generation or "", event.reason) for event in events
    )
    emit_table(("time", "event", "epoch", "generation", "reason"), rows)


@app.command()
def adopt(
    name: NameArgument,
    *,
    accept_loss: AcceptLossOption = False,
    overlap: OverlapOption = None,
    accept_state_loss: AcceptStateLossOption = False,
    go_on: ContinueOption = False,
    accept_change: AcceptChangeOption = False,
    keep_recomputed_state: KeepStateOption = False,
    start: StartOption = None,
    from_checkpoint: FromCheckpointOption = None,
    from_delta_txn: FromDeltaTxnOption = None,
    reason: ReasonOption = "",
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Move a pipeline's position by name, or begin it where an older job stands: an epoch without rows in every sink.

    Stops every driver that is running. Take exactly one of the options that say what is accepted.
    """
    chosen = {
        "accept-loss": accept_loss,
        "accept-duplicates": overlap is not None,
        "accept-state-loss": accept_state_loss,
        "continue": go_on,
        "accept-change": accept_change,
        "keep-recomputed-state": keep_recomputed_state,
        "start": start is not None,
        "from-checkpoint": from_checkpoint is not None or from_delta_txn is not None,
    }
    kind = adoption.only_kind(chosen)
    if kind == "from-checkpoint":
        old = takingover.Given(from_checkpoint, from_delta_txn, reason)
        _take_over(name, old, sink, ledger, yes=yes)
        return
    with place(ledger, name, sink) as here:
        plan = adoption.plan(here, kind, start, reason)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            adoption.carry_out(here, plan)


def _take_over(name: str, old: takingover.Given, sink: list[str] | None, ledger: str | None, *, yes: bool) -> None:
    path = takingover.demand(name, old, sink)
    with place(ledger, name, sink) as here:
        plan = takingover.plan(here, path, old)
    where = takingover.ledger_place(path, ledger, sink or ())
    emit_pairs([*plan.pairs, ("ledger", mask(where))])
    if confirmed(yes):
        with place(where, name, sink, create=True) as here:
            takingover.carry_out(here, plan)


@app.command("drop-sink")
def drop_sink(
    name: NameArgument,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="Id of the sink, as queries show prints it.")],
    *,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="The sink misses everything from now on. Must be said.")
    ] = False,
    reason: ReasonOption = "",
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Take a sink out of a pipeline: an epoch without rows, written into every other sink.

    The sink itself is not touched and need not be reachable. Stops every driver that is running.
    """
    with place(ledger, name, without=sink) as here:
        plan = dropping.plan(here, sink, reason, accept_loss=accept_loss)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            dropping.carry_out(here, plan)


def to_json(pipeline: Pipeline) -> dict[str, Any]:
    """The JSON form of a pipeline's row."""
    return {
        "name": pipeline.name,
        "epoch": pipeline.epoch,
        "generation": pipeline.generation,
        "query_id": pipeline.query_id,
        "checkpoint": pipeline.checkpoint,
        "opened_ms": pipeline.opened_ms,
        "sinks": dict(pipeline.sinks),
    }


def _event_json(event: Event) -> dict[str, Any]:
    return {
        "kind": str(event.kind),
        "reason": event.reason,
        "epoch": event.epoch or None,
        "generation": event.generation or None,
        "at_ms": event.at_ms,
    }


def _row(pipeline: Pipeline) -> tuple[object, ...]:
    return (
        pipeline.name,
        pipeline.epoch,
        pipeline.generation,
        clock(pipeline.opened_ms),
        pipeline.query_id,
        ", ".join(address for _, address in pipeline.sinks),
    )


def _pairs(pipeline: Pipeline) -> Iterator[tuple[str, object]]:
    yield "name", pipeline.name
    yield "epoch", pipeline.epoch
    yield "generation", pipeline.generation
    yield "opened", clock(pipeline.opened_ms)
    yield "query id", pipeline.query_id
    yield "checkpoint", pipeline.checkpoint
    for sink, address in pipeline.sinks:
        yield f"sink {sink}", address
