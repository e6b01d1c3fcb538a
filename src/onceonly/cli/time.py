"""``onceonly time`` and ``recover retire-writer``: completeness of a dataset."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from onceonly.audit.catalogue import CLEAN, FINDINGS
from onceonly.cli import records
from onceonly.cli.change import Change, because, carry_out, decided, plan_decision
from onceonly.cli.connect import Connection, connect
from onceonly.cli.options import (
    LedgerOption,
    OnlyArgument,
    OutputOption,
    QueryOption,
    ReasonOption,
    SinkOption,
    YesOption,
    one_name,
)
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, say, talk
from onceonly.errors import nearest
from onceonly.errors.options import misused
from onceonly.event_time.reader import NotComplete, TimeReader, parsed, spelled
from onceonly.machine.completeness import TimeWindow
from onceonly.machine.in_doubt import WINDOW, ending
from onceonly.runtime import operator
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochTime, WriterProgress, milliseconds
from onceonly_checkpoints.ledger import EventKind, Ledger
from onceonly_checkpoints.model import AdoptionKind

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="Name of the pipeline that writes it; of several, any one.")
]
UntilArgument = Annotated[
    str,
    typer.Argument(metavar="UNTIL", help="ISO 8601 with a zone, 2026-01-31T12:00Z, or a number where it counts those."),
]
LeftOutOption = Annotated[
    bool, typer.Option("--allow-left-out", help="Complete also where writers were left out, as idle or come late.")
]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="The longest wait: 90s, 15m, 2h.")]
HistoryOption = Annotated[bool, typer.Option("--history", help="Epoch by epoch.")]
ShownOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="With --history: this many of the newest.")]
PollOption = Annotated[str, typer.Option("--poll", metavar="TIME", help="Time between two looks.")]


# ---- Each place where the pipeline's markers lie, with a reader of its own.


@dataclass(frozen=True, slots=True)
class SinkTime:
    """What one sink says. ``sink``: its id; ``ledger`` where no sink can be read."""

    sink: str
    window: TimeWindow

    def to_json(self) -> dict[str, Any]:
        """With moments as people write them, where numbers are milliseconds."""
        window = self.window
        numbers = {"lower": window.lower, "upper": window.upper, "closed": window.closed}
        moments = {f"{name}_at": spelled(number, "ms") for name, number in numbers.items() if number is not None}
        return {"sink": self.sink, **window.to_json(), **(moments if window.unit == "ms" else {})}


@contextmanager
def _readers(connection: Connection) -> Generator[Mapping[str, TimeReader]]:
    with ExitStack() as stack:
        readers = {sink.id: TimeReader(connection.pipeline, sink) for sink in connection.sinks}
        if not readers and connection.ledger is not None:
            readers = {"ledger": TimeReader(connection.pipeline, connection.ledger)}
        for reader in readers.values():
            stack.callback(reader.close)
        yield readers


def _looked(readers: Mapping[str, TimeReader], name: str) -> list[SinkTime]:
    """What all of them say (E110: none of them says anything of time)."""
    sink_times = [SinkTime(sink, reader.time_window()) for sink, reader in readers.items()]
    if all(not sink_time.window.at for sink_time in sink_times):
        raise misused(
            f'No epoch of "{name}" records event time.',
            "its query records no time, or has committed nothing since",
            "exactly_once(..., event_time=...), then a batch; its epochs: "
            f"onceonly epochs list --query {shlex.quote(name)}",
        )
    return sink_times


# ---- How far it has come.


def show(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    history: HistoryOption = False,
    limit: ShownOption = 20,
) -> None:
    """Show until when a dataset is complete, which writers it waits for, and the last time of each.

    --history lists the time of the newest epochs of the pipeline, oldest first, late rows included.
    """
    with connect(ledger, one_name(context, name, query), sink, forgiving=True) as connection:
        if history:
            _show_history(connection, limit, output)
            return
        with _readers(connection) as readers:
            sink_times = _looked(readers, connection.pipeline)
        states = _states(connection.ledger, sink_times)
        pipeline = connection.pipeline
    if output is Output.JSON:
        emit_json({"pipeline": pipeline, "sinks": [answer.to_json() for answer in sink_times], "writers": states})
        return
    for sink_time in sink_times:
        _show(sink_time, states)


def _show(sink_time: SinkTime, states: Mapping[str, str]) -> None:
    window = sink_time.window
    emit_pairs(
        [
            ("sink", sink_time.sink),
            ("complete until", spelled(window.lower, window.unit)),
            ("latest row", spelled(window.upper, window.unit)),
            ("closed before", spelled(window.closed, window.unit) if window.closed is not None else None),
            ("waits for", ", ".join(mark.writer for mark in window.held if mark.writer not in window.without) or None),
            ("without", ", ".join(window.without) or None),
            ("lost", ", ".join(f"the newest epochs of {name} are gone from the sink" for name in window.lost) or None),
        ]
    )
    emit_table(
        ("writer", "epoch", "recorded", "last commit", "state"), (_writer(mark, window, states) for mark in window.at)
    )


def _writer(mark: WriterProgress, window: TimeWindow, states: Mapping[str, str]) -> tuple[object, ...]:
    state = "; ".join(filter(None, (states.get(mark.writer, ""), _left_out(mark.writer, window))))
    last = spelled(mark.batch_timestamp_ms, "ms") if mark.epoch else "never seen"
    return mark.writer, mark.epoch or "-", spelled(mark.complete_until, window.unit), last, state


def _left_out(writer: str, window: TimeWindow) -> str:
    if writer in window.silent:
        return "left out as idle"
    return f"left out until it records {spelled(window.lower, window.unit)}" if writer in window.without else ""


def _states(ledger: Ledger | None, sink_times: Sequence[SinkTime]) -> dict[str, str]:
    """What the ledger knows of writers that do not run; of others nothing is said."""
    names = {mark.writer for sink_time in sink_times for mark in sink_time.window.at}
    if ledger is None:
        return {}
    generations = {entry.name: entry.generation for entry in ledger.pipelines() if entry.name in names}
    endings = {name: ending(ledger.events(name, WINDOW), generation) for name, generation in generations.items()}
    words = {EventKind.FAILED: "stopped", EventKind.ENDED: "ended"}
    return {name: f"{words[event.kind]}: {event.reason}" for name, event in sorted(endings.items()) if event}


# ---- Epoch by epoch.


def _show_history(connection: Connection, limit: int, output: Output) -> None:
    epochs = [record.epoch for record in records.newest_epochs(connection, limit)]
    timed = [(epoch, epoch.time) for epoch in epochs if epoch.time]
    if output is Output.JSON:
        listed = [{"epoch": epoch.number, "rows": epoch.rows, **time_.to_json()} for epoch, time_ in timed]
        emit_json({"pipeline": connection.pipeline, "epochs": listed})
        return
    heads = ("epoch", "rows", "recorded", "complete until", "first", "last", "late", "timed out")
    emit_table(heads, (_timed_row(epoch, time_) for epoch, time_ in timed))


def _timed_row(epoch: Epoch, time_: EpochTime) -> tuple[object, ...]:
    complete_until, lower, first, last = (
        spelled(number, time_.unit) if number is not None else "-"
        for number in (time_.complete_until, time_.dataset_complete_until, time_.earliest, time_.latest)
    )
    return epoch.number, epoch.rows, complete_until, lower, first, last, time_.late_rows, ", ".join(time_.timed_out)


# ---- Waiting.


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
    with connect(ledger, dataset, sink, forgiving=True) as connection, _readers(connection) as readers:
        _check_known(connection, readers)
        sink_times, complete = _waited(readers, until, limit, every, allow_left_out=allow_left_out)
        states = _states(connection.ledger, sink_times)
    if output is Output.JSON:
        emit_json(
            {
                "pipeline": dataset,
                "until": until,
                "complete": complete,
                "sinks": [sink_time.to_json() for sink_time in sink_times],
                "writers": states,
            }
        )
    else:
        _print_completeness(sink_times, dataset, until, states, complete=complete)
    raise typer.Exit(CLEAN if complete else FINDINGS)


def _check_known(connection: Connection, readers: Mapping[str, TimeReader]) -> None:
    """Refuse a name that neither the ledger nor any marker knows: nothing would ever come of waiting for it (E110)."""
    if connection.entry is not None or any(reader.time_window().at for reader in readers.values()):
        return
    names = [entry.name for entry in connection.ledger.pipelines()] if connection.ledger else []
    raise misused(
        f'No pipeline "{connection.pipeline}" is known to {", ".join(readers)}, or to a ledger.',
        f"the name is another one{nearest([connection.pipeline], names)}, or it has not committed an epoch yet",
        "give the name that the query writes under; with the ledger of a query that was opened, --ledger, a wait"
        " also begins before its first epoch",
    )


def _waited(
    readers: Mapping[str, TimeReader], until: str, timeout: float, poll: float, *, allow_left_out: bool
) -> tuple[list[SinkTime], bool]:
    """Wait for one sink after the other, all of them within one time; the others are looked at once."""
    deadline = time.monotonic() + timeout
    sink_times: list[SinkTime] = []
    complete = True
    for sink, reader in readers.items():
        left = max(0.0, deadline - time.monotonic()) if complete else 0.0
        try:
            window = reader.wait_complete(until, timeout=left, poll=poll, allow_left_out=allow_left_out)
            sink_times.append(SinkTime(sink, window))
        except NotComplete as missing:
            sink_times.append(SinkTime(sink, missing.window))
            complete = False
    return sink_times, complete


def _print_completeness(
    sink_times: Sequence[SinkTime], dataset: str, until: str, states: Mapping[str, str], *, complete: bool
) -> None:
    if complete:
        for sink_time in sink_times:
            through = spelled(sink_time.window.lower, sink_time.window.unit)
            without = f", without {', '.join(sink_time.window.without)}" if sink_time.window.without else ""
            say(f"{sink_time.sink}: complete until {through}{without}")
        return
    talk(f'"{dataset}" is not complete until {until}.')
    if left_out := sorted({name for answer in sink_times for name in answer.window.without}):
        talk(f"Left out: {', '.join(left_out)}. To continue without them: --allow-left-out")
    for sink_time in sink_times:
        _show(sink_time, states)


_MINUTES = re.compile(r"\s*(\d+)\s*m\s*")


def _seconds(option: str, text: str) -> float:
    """A period as people type it, ``15m`` and ``2s`` as well as ``15 minutes``."""
    short = _MINUTES.fullmatch(text)
    duration_ms = milliseconds(f"{short[1]}min" if short else text)
    if duration_ms is None:
        raise misused(f"{option} {text!r} is no time.", "a number and a unit", f"{option} 15m, 90s or 2h")
    return duration_ms / 1000


# ---- ``onceonly recover retire-writer``: stop waiting for a writer, for good.

_AFTER_RETIRE = "from their next epoch on, other writers no longer wait for it; its query is refused (E135), for good"


def retire(
    name: DatasetArgument,
    *,
    reason: ReasonOption = "",
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Stop waiting for a writer of a dataset, for good. Its pipeline writes nothing after this.

    Writes an epoch without rows into every sink, which records the end of time, and stops every running driver.
    """
    with connect(ledger, name, sink) as connection:
        carry_out(_retire_change(connection, reason), yes=yes)


def _retire_change(connection: Connection, reason: str) -> Change:
    newest = records.newest_epoch(connection)
    if newest is None or newest.time is None:
        raise operator.nothing_to_retire(connection.pipeline)
    operator.refuse_open_windows(connection.pipeline, newest)
    noted_time = spelled(newest.time.complete_until, newest.time.unit)

    def run() -> None:
        accepted = decided(AdoptionKind.RETIRE_WRITER, reason)
        epoch = operator.retire(connection.sinks, connection.certain_ledger, connection.pipeline, accepted)
        say(f"epoch {epoch.number} adopted: no reader waits for {connection.pipeline} any more")
        talk("Remove it from writers= of the others.")

    last = f"it writes nothing more, and its last recorded time stays {noted_time}{because(reason)}"
    return Change(plan_decision(connection, ("accepts", last), after=_AFTER_RETIRE), run)
