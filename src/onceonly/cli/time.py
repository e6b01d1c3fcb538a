"""``onceonly time``: completeness of a dataset, waiting, and late rows."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from onceonly.cli import lateness
from onceonly.cli.connect import Connection, place
from onceonly.cli.epochs import newest_epochs, read
from onceonly.cli.options import (
    LedgerOption,
    LimitOption,
    OnlyArgument,
    OutputOption,
    QueryOption,
    ReasonOption,
    SinkOption,
    YesOption,
    confirmed,
    one_name,
)
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, say, talk
from onceonly.cli.recover import retire_writer
from onceonly.errors import nearest, refuse
from onceonly.event_time.late_epochs import Certificate, certify
from onceonly.event_time.reader import NotComplete, TimeReader
from onceonly.event_time.timestamps import parsed, spelled
from onceonly.machine.completeness import TimeWindow
from onceonly.machine.in_doubt import WINDOW, ending
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.epoch_time import WriterProgress
from onceonly_checkpoints.ledger import EventKind, Ledger
from onceonly_checkpoints.period import milliseconds

app = typer.Typer(no_args_is_help=True, help="Up to when a dataset is complete: show, history, wait, certify, retire.")

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="Name of the pipeline that writes it; of several, any one.")
]
UntilArgument = Annotated[
    str,
    typer.Argument(metavar="UNTIL", help="ISO 8601 with a zone, 2026-01-31T12:00Z, or a number where it counts those."),
]
LeftOutOption = Annotated[
    bool, typer.Option("--allow-left-out", help="Complete also where writers were left out, as silent or come late.")
]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="The longest wait: 90s, 15m, 2h.")]
PollOption = Annotated[str, typer.Option("--poll", metavar="TIME", help="Time between two looks.")]
EpochsOption = Annotated[
    str | None, typer.Option("--epochs", metavar="A..B", help="These epochs. Default: all that markers tell of.")
]
RowsOption = Annotated[bool, typer.Option("--rows", help="Show the late rows themselves, as far as a sink tells them.")]
ShownOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="With --rows: this many, the latest first.")]


# ---- Each place where the pipeline's markers lie, with a reader of its own.


@dataclass(frozen=True, slots=True)
class SinkTime:
    """What one sink says.

    Attributes:
        sink: its id; ``ledger`` where no sink can be read.
        window: how far the dataset has come there.
    """

    sink: str
    window: TimeWindow

    def to_json(self) -> dict[str, Any]:
        """With moments as people write them, where numbers are milliseconds."""
        known = self.window
        numbers = {"lower": known.lower, "upper": known.upper, "closed": known.closed}
        moments = {f"{name}_at": spelled(number, "ms") for name, number in numbers.items() if number is not None}
        return {"sink": self.sink, **known.to_json(), **(moments if known.unit == "ms" else {})}


@contextmanager
def _readers(here: Connection) -> Generator[Mapping[str, TimeReader]]:
    """A reader for each sink; without any, one of the ledger."""
    with ExitStack() as stack:
        found = {sink.id: TimeReader(here.pipeline, sink) for sink in here.sinks}
        if not found and here.ledger is not None:
            found = {"ledger": TimeReader(here.pipeline, here.ledger)}
        for reader in found.values():
            stack.callback(reader.close)
        yield found


def _looked(readers: Mapping[str, TimeReader], name: str) -> list[SinkTime]:
    """What all of them say.

    Raises:
        ConfigurationError: E110, none of them says anything of time.
    """
    told = [SinkTime(sink, reader.time_window()) for sink, reader in readers.items()]
    if all(not one.window.at for one in told):
        raise refuse(
            "E110",
            problem=f'No epoch of "{name}" says anything of time.',
            cause="its query notes no time, or has committed nothing since it does",
            next=f"exactly_once(..., note_time=...), then a batch; its epochs: {_list_epochs(name)}",
        )
    return told


def _list_epochs(name: str) -> str:
    return f"onceonly epochs list --query {shlex.quote(name)}"


# ---- How far it has come.


@app.command()
def show(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show up to when a dataset is complete, whom it waits for, and what each of its writers noted last."""
    with place(ledger, one_name(context, name, query), sink, forgiving=True) as here, _readers(here) as readers:
        told = _looked(readers, here.pipeline)
        states = _states(here.ledger, told)
        pipeline = here.pipeline
    if output is Output.JSON:
        emit_json({"pipeline": pipeline, "sinks": [one.to_json() for one in told], "writers": states})
        return
    for one in told:
        _show(one, states)


def _show(one: SinkTime, states: Mapping[str, str]) -> None:
    known = one.window
    emit_pairs(
        [
            ("sink", one.sink),
            ("complete through", spelled(known.lower, known.unit)),
            ("latest row", spelled(known.upper, known.unit)),
            ("closed before", spelled(known.closed, known.unit) if known.closed is not None else None),
            ("waits for", ", ".join(mark.writer for mark in known.held if mark.writer not in known.without) or None),
            ("without", ", ".join(known.without) or None),
            ("lost", ", ".join(f"the newest epochs of {name} are gone from the sink" for name in known.lost) or None),
        ]
    )
    emit_table(
        ("writer", "epoch", "noted", "last commit", "state"), (_writer(mark, known, states) for mark in known.at)
    )


def _writer(mark: WriterProgress, known: TimeWindow, states: Mapping[str, str]) -> tuple[object, ...]:
    state = "; ".join(filter(None, (states.get(mark.writer, ""), _left_out(mark.writer, known))))
    last = spelled(mark.ingest, "ms") if mark.epoch else "never seen"
    return mark.writer, mark.epoch or "-", spelled(mark.noted, known.unit), last, state


def _left_out(writer: str, known: TimeWindow) -> str:
    if writer in known.silent:
        return "left out as silent"
    return f"left out until it notes {spelled(known.lower, known.unit)}" if writer in known.without else ""


def _states(ledger: Ledger | None, told: Sequence[SinkTime]) -> dict[str, str]:
    """What the ledger knows of writers that do not run; of others nothing is said."""
    names = {mark.writer for one in told for mark in one.window.at}
    if ledger is None:
        return {}
    known = {entry.name: entry.generation for entry in ledger.pipelines() if entry.name in names}
    found = {name: ending(ledger.events(name, WINDOW), generation) for name, generation in known.items()}
    said = {EventKind.FAILED: "stopped", EventKind.ENDED: "ended"}
    return {name: f"{said[event.kind]}: {event.reason}" for name, event in sorted(found.items()) if event}


# ---- Epoch by epoch.


@app.command()
def history(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: LimitOption = 20,
) -> None:
    """List what the newest epochs of a pipeline say of time, oldest first."""
    with place(ledger, one_name(context, name, query), sink, forgiving=True) as here:
        found = [record for record in newest_epochs(here, limit) if record.epoch.time]
        pipeline = here.pipeline
    if output is Output.JSON:
        emit_json({"pipeline": pipeline, "epochs": [_epoch_json(record) for record in found]})
        return
    heads = ("epoch", "rows", "noted", "complete through", "first", "last", "late", "silent")
    emit_table(heads, map(_epoch_row, found))


def _epoch_json(record: EpochRecord) -> dict[str, Any]:
    epoch, time_ = record.epoch, record.epoch.time
    return {"epoch": epoch.number, "rows": epoch.rows, **(time_.to_json() if time_ else {})}


def _epoch_row(record: EpochRecord) -> tuple[object, ...]:
    epoch, time_ = record.epoch, record.epoch.time
    if time_ is None:
        return ()
    noted, lower, first, last = (
        spelled(number, time_.unit) if number is not None else "-"
        for number in (time_.noted, time_.lower, time_.first, time_.last)
    )
    return epoch.number, epoch.rows, noted, lower, first, last, time_.late, ", ".join(time_.silent)


# ---- Waiting.


@app.command()
def wait(
    dataset: DatasetArgument,
    until: UntilArgument,
    *,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    timeout: TimeoutOption = "15m",
    poll: PollOption = "2s",
    allow_left_out: LeftOutOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Wait until every row before UNTIL, of every writer, is in every sink of the dataset that can be read.

    Exit code: 0 it is complete, 1 it was not in time, or a writer was left out, 2 there is no answer. One line in a
    Makefile or a scheduler.
    """
    parsed(until)
    limit, every = _seconds("--timeout", timeout), _seconds("--poll", poll)
    with place(ledger, dataset, sink, forgiving=True) as here, _readers(here) as readers:
        _check_known(here, readers)
        told, complete = _waited(readers, until, limit, every, allow_left_out=allow_left_out)
        states = _states(here.ledger, told)
    if output is Output.JSON:
        emit_json(
            {
                "pipeline": dataset,
                "until": until,
                "complete": complete,
                "sinks": [one.to_json() for one in told],
                "writers": states,
            }
        )
    else:
        _told(told, dataset, until, states, complete=complete)
    raise typer.Exit(0 if complete else 1)


def _check_known(here: Connection, readers: Mapping[str, TimeReader]) -> None:
    """Refuse a name that neither the ledger nor any marker knows: nothing would ever come of waiting for it.

    Raises:
        ConfigurationError: E110.
    """
    if here.entry is not None or any(reader.time_window().at for reader in readers.values()):
        return
    known = [entry.name for entry in here.ledger.pipelines()] if here.ledger else []
    raise refuse(
        "E110",
        problem=f'No pipeline "{here.pipeline}" is known to {", ".join(readers)}, or to a ledger.',
        cause=f"the name is another one{nearest([here.pipeline], known)}, or it has not committed an epoch yet",
        next="give the name that the query writes under; with the ledger of a query that was opened, --ledger, a wait"
        " also begins before its first epoch",
    )


def _waited(
    readers: Mapping[str, TimeReader], until: str, timeout: float, poll: float, *, allow_left_out: bool
) -> tuple[list[SinkTime], bool]:
    """Wait for one sink after the other, all of them within one time; the others are looked at once."""
    deadline = time.monotonic() + timeout
    told: list[SinkTime] = []
    complete = True
    for sink, reader in readers.items():
        left = max(0.0, deadline - time.monotonic()) if complete else 0.0
        try:
            known = reader.wait_complete(until, timeout=left, poll=poll, allow_left_out=allow_left_out)
            told.append(SinkTime(sink, known))
        except NotComplete as missing:
            told.append(SinkTime(sink, missing.window))
            complete = False
    return told, complete


def _told(told: Sequence[SinkTime], dataset: str, until: str, states: Mapping[str, str], *, complete: bool) -> None:
    if complete:
        for one in told:
            through = spelled(one.window.lower, one.window.unit)
            without = f", without {', '.join(one.window.without)}" if one.window.without else ""
            say(f"{one.sink}: complete through {through}{without}")
        return
    talk(f'"{dataset}" is not complete until {until}.')
    if left_out := sorted({name for one in told for name in one.window.without}):
        talk(f"Left out: {', '.join(left_out)}. To go on without them: --allow-left-out")
    for one in told:
        _show(one, states)


_MINUTES = re.compile(r"\s*(\d+)\s*m\s*")


def _seconds(option: str, said: str) -> float:
    """A period as people type it, ``15m`` and ``2s`` as well as ``15 minutes``."""
    short = _MINUTES.fullmatch(said)
    found = milliseconds(f"{short[1]}min" if short else said)
    if found is None:
        raise refuse(
            "E110",
            problem=f"{option} {said!r} is no time.",
            cause="a number and a unit",
            next=f"{option} 15m, 90s or 2h",
        )
    return found / 1000


# ---- What came too late.


@app.command("certify")
def certify_(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    epochs: EpochsOption = None,
    rows: RowsOption = False,
    limit: ShownOption = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether rows came behind the horizon of their epochs, as counted in the commits themselves.

    Exit code: 0 none came, 1 some did, 2 of some epochs nothing can be said.
    """
    first, last = lateness.span(epochs)
    with place(ledger, one_name(context, name, query), sink, forgiving=True) as here:
        known = [record.epoch for record in read(here, first or 1, last)]
        made = _certified(known, here.pipeline, first, last)
        told = lateness.rows_of(here, known, limit) if rows and made.late else None
    if output is Output.JSON:
        seen = {} if told is None else {"late_rows": told.to_json()}
        emit_json({"pipeline": here.pipeline, **made.to_json(), **seen})
    else:
        lateness.show(made)
        if told is not None:
            lateness.show_rows(told, here, known)
    raise typer.Exit(2 if made.unknown else 1 if made.late else 0)


def _certified(known: Sequence[Epoch], pipeline: str, first: int | None, last: int | None) -> Certificate:
    """What the markers of these epochs say.

    Raises:
        ConfigurationError: E110, none of them says anything of time.
    """
    timed = [epoch.number for epoch in known if epoch.time]
    if not timed:
        raise refuse(
            "E110",
            problem=f'None of these epochs of "{pipeline}" says anything of time.',
            cause="they were committed before its query noted a time, or their markers are gone",
            next=f"see what is known: {_list_epochs(pipeline)}",
        )
    return certify(known, first or timed[0], last or timed[-1])


# ---- A writer that is gone.


@app.command()
def retire(
    name: DatasetArgument,
    *,
    reason: ReasonOption = "",
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Have a writer of a dataset be waited for no more, for good: its pipeline writes nothing after this.

    Writes an epoch without rows into every sink, which notes the end of time, and stops every driver that is running.
    """
    with place(ledger, name, sink) as here:
        plan = retire_writer.plan(here, reason)
        emit_pairs(plan.pairs)
        if confirmed(yes):
            retire_writer.carry_out(here, plan)
