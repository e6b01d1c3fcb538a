"""``onceonly queries``: list and show pipelines, and move their positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from onceonly.cli.connect import choose, no_ledger, one_sink, open_ledger, place
from onceonly.cli.epochs import clock
from onceonly.cli.options import (
    LedgerOption,
    LimitOption,
    OutputOption,
    ReasonOption,
    SinkOption,
    YesOption,
    confirmed,
)
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, say
from onceonly.cli.recover import adopt as adopt_plan
from onceonly.cli.recover import drop_sink as drop_plan
from onceonly.cli.recover import migrate
from onceonly.cli.recover import refresh as refresh_plan
from onceonly.cli.recover import rewind as rewind_plan
from onceonly.cli.user_code import BeforeOption, StateOption, WithOption
from onceonly.errors import mask
from onceonly_checkpoints.ledger import Event, Ledger, Pipeline
from onceonly_checkpoints.model import AdoptionKind
from onceonly_checkpoints.spark.replay_plan import StateFrom

app = typer.Typer(no_args_is_help=True, help="Pipelines of a ledger: list, show, adopt, rewind, refresh, forget.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pipeline.")]
AcceptLossOption = Annotated[
    str | None,
    typer.Option("--accept-loss", metavar="A..B", help="Give up the rows of these epochs in --sink ID."),
]
AcceptDuplicatesOption = Annotated[
    str | None,
    typer.Option("--accept-duplicates", metavar="A..B", help="Let the query write the rows of these epochs again."),
]
AcceptStateLossOption = Annotated[
    bool, typer.Option("--accept-state-loss", help="Let the query's state (windows, keys already seen) start empty.")
]
ContinueOption = Annotated[
    str | None,
    typer.Option(
        "--continue",
        metavar="[=JSON]",
        help="Accept a new source that starts exactly where the last epoch ended; with offsets, if it starts there.",
    ),
]
MayRepeatOption = Annotated[
    str,
    typer.Option(
        "--may-repeat", metavar="A..B", help="With --continue: epochs of which nobody knows whether they come again."
    ),
]
AcceptChangeOption = Annotated[
    bool,
    typer.Option(
        "--accept-change", help="Accept the external change (restore, overwrite, delete) to --sink ID@VERSION."
    ),
]
SameDataOption = Annotated[
    bool, typer.Option("--same-data", help="Accept that --sink ID was moved, if it is proven to hold what it held.")
]
KeepStateOption = Annotated[
    str | None,
    typer.Option(
        "--keep-recomputed-state",
        metavar="N",
        help="Keep the state that epoch N's batch made when it ran again with other rows.",
    ),
]
NamedSinkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        envvar="ONCEONLY_SINK",
        metavar="ID",
        help="Id of the sink that is meant, as queries show prints it; or the address (KIND:TARGET) of a sink that the "
        "ledger does not know. May be given more than once.",
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="JSON",
        help="Start the next batch at these offsets, written as checkpoint offsets prints them.",
    ),
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


_RANGED = frozenset({"--accept-loss", "--accept-duplicates", "--keep-recomputed-state"})


class _Ranged(TyperCommand):
    """An option whose range is left out is told which range applies, instead of only that one is missing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give options without a value an empty one."""
        filled: list[str] = []
        for at, word in enumerate(args):
            filled.append(word)
            following = args[at + 1] if at + 1 < len(args) else "--"
            # Offsets of a source look like anything, a name too: they stand behind an equals sign.
            if word == "--continue" or (word in _RANGED and following[:1] == "-"):
                filled.append("")
        return super().parse_args(ctx, filled)


@app.command(cls=_Ranged)
def adopt(
    name: NameArgument,
    *,
    accept_loss: AcceptLossOption = None,
    accept_duplicates: AcceptDuplicatesOption = None,
    accept_state_loss: AcceptStateLossOption = False,
    go_on: ContinueOption = None,
    may_repeat: MayRepeatOption = "",
    accept_change: AcceptChangeOption = False,
    same_data: SameDataOption = False,
    keep_recomputed_state: KeepStateOption = None,
    start: StartOption = None,
    from_checkpoint: FromCheckpointOption = None,
    from_delta_txn: FromDeltaTxnOption = None,
    reason: ReasonOption = "",
    sink: NamedSinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Accept what stops a pipeline, or begin a pipeline where an older job ended.

    Writes an epoch without rows into every sink and stops every driver that is running. Take exactly one of the options
    that say what is accepted. An option covers what it names and nothing else; where its range is left out, the command
    says which one applies.
    """
    chosen: dict[AdoptionKind, str | None] = {
        AdoptionKind.ACCEPT_LOSS: accept_loss,
        AdoptionKind.ACCEPT_DUPLICATES: accept_duplicates,
        AdoptionKind.ACCEPT_STATE_LOSS: "" if accept_state_loss else None,
        AdoptionKind.CONTINUE: go_on,
        AdoptionKind.ACCEPT_CHANGE: "" if accept_change else None,
        AdoptionKind.SAME_DATA: "" if same_data else None,
        AdoptionKind.KEEP_RECOMPUTED_STATE: keep_recomputed_state,
        AdoptionKind.START: start,
        AdoptionKind.FROM_CHECKPOINT: from_delta_txn if from_checkpoint is None else from_checkpoint,
    }
    kind = adopt_plan.only_kind([kind for kind, value in chosen.items() if value is not None])
    if kind is AdoptionKind.FROM_CHECKPOINT:
        old = migrate.MigrationArguments(from_checkpoint, from_delta_txn, reason)
        _take_over(name, old, sink, ledger, yes=yes)
        return
    named, addresses = _ids(name, sink or (), ledger)
    with place(ledger, name, addresses) as here:
        plan = adopt_plan.plan(here, adopt_plan.Typed(kind, chosen[kind] or "", named, reason, may_repeat))
        emit_pairs(plan.pairs)
        if confirmed(yes, bound=plan.bound):
            adopt_plan.carry_out(here, plan)


def _ids(name: str, given: Sequence[str], ledger: str | None) -> tuple[tuple[str, ...], list[str] | None]:
    """Which values of ``--sink`` are ids of the pipeline's sinks, and which are addresses."""
    if ledger is None or not given:
        return (), list(given) or None
    opened = open_ledger(ledger)
    try:
        known = {id_ for entry in opened.pipelines() if entry.name == name for id_, _ in entry.sinks}
    finally:
        opened.close()
    named = tuple(value for value in given if value in known or value.rpartition("@")[0] in known)
    return named, [value for value in given if value not in named] or None


def _take_over(
    name: str, old: migrate.MigrationArguments, sink: list[str] | None, ledger: str | None, *, yes: bool
) -> None:
    path = migrate.demand(name, old, sink)
    with place(ledger, name, sink) as here:
        plan = migrate.plan(here, path, old)
    where = migrate.ledger_place(path, ledger, sink or ())
    emit_pairs([*plan.pairs, ("ledger", mask(where))])
    if confirmed(yes):
        with place(where, name, sink, create=True) as here:
            migrate.carry_out(here, plan)


@app.command("drop-sink", cls=_Ranged)
def drop_sink(
    name: NameArgument,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="Id of the sink, as queries show prints it.")],
    *,
    accept_loss: Annotated[
        str | None,
        typer.Option(
            "--accept-loss",
            metavar="[A..B]",
            help="Accept that the sink misses every later epoch; with a range, the rows of these as well. Required.",
        ),
    ] = None,
    reason: ReasonOption = "",
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Take a sink out of a pipeline by writing an epoch without rows into every other sink.

    A sink that lacks the newest epoch gets it first, from what was staged. Where rows that no other sink holds cannot
    be brought to it, they are named, and given up by a range. It need not be reachable. Stops every driver that runs.
    """
    with place(ledger, name, without=sink) as here, one_sink(here, sink, ledger) as going:
        plan = drop_plan.plan(here, drop_plan.Typed(sink, accept_loss, reason), going)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            drop_plan.carry_out(here, plan)


@app.command()
def refresh(
    name: NameArgument,
    *,
    how: Annotated[
        str,
        typer.Option("--how", metavar="replace", help="The new rows take the place of those that stand."),
    ],
    reason: ReasonOption = "",
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Let the next query that begins anew, with a new checkpoint, replace all rows of the pipeline.

    For a full refresh that nothing in the checkpoint's place proves. Writes an epoch without rows into every sink and
    stops every driver that is running; the next epoch uses it up.
    """
    with place(ledger, name, sink) as here:
        plan = refresh_plan.plan(here, how, reason)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            refresh_plan.carry_out(here, plan)


@app.command()
def rewind(
    name: NameArgument,
    *,
    to: Annotated[int, typer.Option("--to", min=0, metavar="N", help="The epoch at which the sinks stand.")],
    sink: NamedSinkOption = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="stage|sink:ID|source", help="Where rows come from. Default: whatever proves them."
        ),
    ] = None,
    with_: WithOption = None,
    before: BeforeOption = None,
    state: StateOption = StateFrom.COPIED,
    accept_loss: Annotated[
        str | None,
        typer.Option("--accept-loss", metavar="A..B", help="Rows of these epochs that the source lacks may be lost."),
    ] = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Bring a restored sink level with the others, or cut a pipeline back to the epoch at which all its sinks stand.

    Takes no rows out of a sink, stops every driver that is running, and may be given again after a crash. With --sink
    the sink gets the epochs that it lacks, as they were committed: from what was staged, from another sink, or, --with
    the query's own code, from its source. Without it later epochs of the ledger are set aside and the checkpoint is cut
    back, so that Spark reads their rows again.
    """
    code = rewind_plan.Code.of(with_, before, state)
    named, addresses = _ids(name, sink or (), ledger)
    with place(ledger, name, addresses, forgiving=not named) as here:
        plan = rewind_plan.plan(here, rewind_plan.asked(to, named, origin, accept_loss), code)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            rewind_plan.carry_out(here, plan)


@app.command()
def forget(name: NameArgument, *, ledger: LedgerOption = None, yes: YesOption = False) -> None:
    """Take a pipeline out of the ledger: its row, epochs, intents and events. No sink is touched, and none is asked.

    For a pipeline that is over, or was begun by mistake. One that goes on is entered again by its next start, which
    reads back what its sinks remember; input files and phase times are lost.
    """
    if ledger is None:
        raise no_ledger()
    opened = open_ledger(ledger)
    try:
        entry = choose(opened, name, named=False)
        assert entry is not None
        emit_pairs(_forgotten(opened, entry))
        if confirmed(yes):
            opened.forget(name)
            say(f"{name} is forgotten")
    finally:
        opened.close()


def _forgotten(ledger: Ledger, entry: Pipeline) -> Iterator[tuple[str, object]]:
    records = ledger.epochs(entry.name)
    yield "pipeline", entry.name
    yield "ledger", ledger.address
    yield "forgets", f"{len(records)} epochs and {len(ledger.events(entry.name))} events"
    yield "opened", clock(entry.opened_ms)
    yield "sinks", ", ".join(address for _, address in entry.sinks) or "none"
    yield "keeps", "every row and marker in the sinks; a driver that runs goes on and enters the pipeline again"


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
