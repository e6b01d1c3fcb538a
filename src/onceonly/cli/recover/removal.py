"""``onceonly recover``: drop a sink, or forget a pipeline."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from onceonly.cli import records
from onceonly.cli.change import Change, because, carry_out, decided, plan_decision, span
from onceonly.cli.connect import Connection, choose, connect, one_sink, open_ledger
from onceonly.cli.options import LedgerOption, NameArgument, ReasonOption, YesOption
from onceonly.cli.output import say, talk
from onceonly.errors import OnceOnlyError
from onceonly.errors.options import misused
from onceonly.machine.rewind import RewindRequest
from onceonly.protocol import Sink
from onceonly.runtime import sink_gaps
from onceonly.runtime.operator import drop_sink, nothing_to_adopt
from onceonly.runtime.remedies import CommandContext, rewound
from onceonly.runtime.sink_gaps import Lacking, Stand
from onceonly_checkpoints.epoch_time import clock
from onceonly_checkpoints.ledger import Ledger, Pipeline
from onceonly_checkpoints.model import Adoption, AdoptionKind


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed.

    Attributes:
        accepts: what stands behind ``--accept-loss``; empty for no range, ``None``: the option was not given.
    """

    sink: str
    accepts: str | None
    reason: str


def _change(connection: Connection, typed: Typed, going: Sink | None) -> Change:
    """Say what taking out a sink would do. ``going`` is that sink, ``None`` if it cannot be found from here."""
    last = records.newest_epoch(connection)
    if last is None:
        raise nothing_to_adopt(connection.pipeline)
    sink = typed.sink
    entered = dict(connection.entry.sinks) if connection.entry else {}
    listed = tuple(dict.fromkeys((*dict(last.sinks), *entered)))
    if refused := _refusal(connection.pipeline, sink, listed, len(connection.sinks)):
        raise refused
    at = sink_gaps.stand(going, connection.certain_ledger, connection.pipeline, sink)
    read = records.read(connection, min(at.epoch + 1, last.number))
    lacks = sink_gaps.lacking(sink, at, {record.epoch.number: record.epoch for record in read})
    first, upto = span(typed.accepts) if typed.accepts else (0, 0)
    if typed.accepts is None or not lacks.given_up(first, upto):
        raise _not_accepted(connection, typed, at, lacks)
    heals = bool(lacks.epochs) and not lacks.reason
    later = f"everything after epoch {last.number}"
    missed = later if heals or not lacks.epochs else f"{lacks.words} and all after it"
    pairs = plan_decision(
        connection,
        ("takes out", f"{sink} ({entered.get(sink, 'its address is not known here')})"),
        ("brings", f"{sink} first to epoch {last.number}, {lacks.rows} rows: as they were staged" if heals else None),
        ("accepts", f"it misses {missed}{because(typed.reason)}"),
        newest=last,
        does="writes an epoch without rows into these sinks",
        after=f"{sink} keeps the rows it holds and gets no more; given back later, it joins as a new sink would",
    )
    # Opened with the others it is also brought to what they hold, and the ledger gets its receipt.
    opened = not at.unread and at.confirmed < last.number and not lacks.reason
    return Change(pairs, partial(_drop, connection, _decided(typed, lacks), going if opened else None, last.number))


def _drop(connection: Connection, accepted: Adoption, going: Sink | None, shown: int) -> None:
    epoch = drop_sink(
        connection.sinks, connection.certain_ledger, connection.pipeline, accepted, going=going, shown=shown
    )
    say(f"epoch {epoch.number} adopted: {accepted.sinks[0]} is not a sink of {connection.pipeline} any more")
    talk("Now restart the query without it.")


def _decided(typed: Typed, lacks: Lacking) -> Adoption:
    lost = {"first": lacks.epochs[0], "last": lacks.epochs[-1], "rows": lacks.rows} if lacks.reason else {}
    return decided(AdoptionKind.DROP_SINK, typed.reason, sinks=(typed.sink,), **lost)


def _refusal(pipeline: str, sink: str, listed: tuple[str, ...], others: int) -> OnceOnlyError | None:
    names = ", ".join(listed)
    if sink not in listed:
        return misused(f'Pipeline "{pipeline}" has no sink {sink}.', f"its sinks are: {names}", "name one of them")
    if not others:
        return misused(
            f'{sink} is the last sink of pipeline "{pipeline}".',
            "a pipeline without a sink holds nothing and knows of nothing",
            "to end the pipeline, stop its query",
        )
    return None


def _not_accepted(connection: Connection, typed: Typed, at: Stand, lacks: Lacking) -> OnceOnlyError:
    where = CommandContext(connection.pipeline, f" --ledger {shlex.quote(connection.certain_ledger.address)}")
    command = f"onceonly recover drop-sink {shlex.quote(connection.pipeline)} {shlex.quote(typed.sink)}{where.ledger}"
    if not lacks.reason:
        return misused(
            f"{typed.sink} would miss everything from now on.", "you did not confirm this", f"{command} --accept-loss"
        )
    level = rewound(where, RewindRequest(at.epoch, (typed.sink,)))
    alternative = "" if at.unread else f"bring them, if they are staged, in another sink or in the source: {level}\nor "
    return misused(
        f"{typed.sink} lacks {lacks.words}, which no other sink holds and nothing brings: {lacks.reason}.",
        "a crash between two sinks, or a sink that was restored",
        f"{alternative}give these rows up: {command} --accept-loss {lacks.epochs[0]}..{lacks.epochs[-1]}",
    )


def drop(
    name: NameArgument,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="Id of the sink, as status prints it.")],
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

    A sink that lacks the newest epoch gets it first, from its staged rows. If rows that no other sink holds cannot be
    brought to it, you give them up by a range. The sink need not be reachable. Stops every running driver.
    """
    with connect(ledger, name, without=sink) as connection, one_sink(connection, sink, ledger) as going:
        carry_out(_change(connection, Typed(sink, accept_loss, reason), going), yes=yes)


# ---- ``onceonly recover forget``: take a pipeline out of the ledger.


def forget(name: NameArgument, *, ledger: LedgerOption = None, yes: YesOption = False) -> None:
    """Take a pipeline out of the ledger: its row, epochs, intents and events. No sink is touched or read.

    For a pipeline that is over, or was begun by mistake. If yours continues, its next start enters it again from the
    markers in its sinks. Input files and phase times are lost.
    """
    with closing(open_ledger(ledger)) as opened:
        entry = choose(opened, name, named=False)
        assert entry is not None

        def run() -> None:
            opened.forget(name)
            say(f"{name} is forgotten")

        carry_out(Change(tuple(_forgotten(opened, entry)), run), yes=yes)


def _forgotten(ledger: Ledger, entry: Pipeline) -> Iterator[tuple[str, object]]:
    records = ledger.epochs(entry.name)
    yield "pipeline", entry.name
    yield "ledger", ledger.address
    yield "forgets", f"{len(records)} epochs and {len(ledger.events(entry.name))} events"
    yield "opened", clock(entry.opened_ms)
    yield "sinks", ", ".join(address for _, address in entry.sinks) or "none"
    yield "keeps", "every row and marker in the sinks; a running driver continues and enters the pipeline again"
