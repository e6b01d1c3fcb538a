"""Plan and print ``queries drop-sink`` before confirmation."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from onceonly.cli import epochs, options
from onceonly.cli.connect import Connection
from onceonly.cli.options import because, decided, span
from onceonly.cli.output import say, talk
from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.rewind import RewindRequest
from onceonly.machine.source_order import describe
from onceonly.protocol import Sink
from onceonly.runtime import removed_sink
from onceonly.runtime.operator import drop_sink, nothing_to_adopt
from onceonly.runtime.remedies import CommandContext, rewound
from onceonly.runtime.removed_sink import Lacking, Stand
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.model import Adoption, AdoptionKind


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed.

    Attributes:
        sink: id of the one that goes.
        accepts: what stands behind ``--accept-loss``; empty for no range, ``None``: the option was not given.
        reason: for the record.
    """

    sink: str
    accepts: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Plan(options.ChangePlan):
    """A sink that goes, before it does.

    Attributes:
        going: the sink, where it is opened with the others first; ``None`` where it is not touched.
        shown: the newest epoch.
    """

    going: Sink | None
    shown: int


def plan(place: Connection, typed: Typed, going: Sink | None) -> Plan:
    """Say what taking a sink out of a pipeline would do.

    Args:
        place: the pipeline with its sinks, without the one that goes.
        typed: what was typed.
        going: that one; ``None`` where it cannot be found.

    Raises:
        OnceOnlyError: E110, no such sink, the last one, a loss was not accepted, or there is no epoch yet.
    """
    known = epochs.newest_epochs(place, 1)
    if not known:
        raise nothing_to_adopt(place.pipeline)
    last, sink = known[-1].epoch, typed.sink
    entered = dict(place.entry.sinks) if place.entry else {}
    listed = tuple(dict.fromkeys((*dict(last.sinks), *entered)))
    if refused := _refusal(place.pipeline, sink, listed, len(place.sinks)):
        raise refused
    at = removed_sink.stand(going, place.certain_ledger, place.pipeline, sink)
    lacks = removed_sink.lacking(sink, at, _since(place, at, last))
    first, upto = span(typed.accepts) if typed.accepts else (0, 0)
    if typed.accepts is None or not lacks.given_up(first, upto):
        raise _not_accepted(place, typed, at, lacks)
    heals = bool(lacks.epochs) and not lacks.reason
    pairs = (
        ("pipeline", place.pipeline),
        ("takes out", f"{sink} ({entered.get(sink, 'its address is not known here')})"),
        ("brings", f"{sink} first to epoch {last.number}, {lacks.rows} rows: as they were staged" if heals else None),
        ("accepts", f"it misses {_missed(lacks, last, heals=heals)}{because(typed.reason)}"),
        ("sinks", place.sinks_in_words),
        ("ledger", place.certain_ledger.address),
        ("stands", f"epoch {last.number}, at {describe(last.written.end)}"),
        ("does", "writes an epoch without rows into these sinks; every running driver of the pipeline is fenced out"),
        ("after", f"{sink} keeps the rows it holds and gets no more; given back later, it joins as a new sink would"),
    )
    # Opened with the others it is also brought to what they hold, and the ledger gets its receipt.
    opened = not at.unread and at.confirmed < last.number and not lacks.reason
    return Plan(_decided(typed, lacks), pairs, going if opened else None, last.number)


def _since(place: Connection, at: Stand, last: Epoch) -> dict[int, Epoch]:
    """Epochs that the sink may lack, and the newest."""
    records = epochs.read(place, min(at.epoch + 1, last.number))
    return {record.epoch.number: record.epoch for record in records}


def _missed(lacks: Lacking, last: Epoch, *, heals: bool) -> str:
    return f"everything after epoch {last.number}" if heals or not lacks.epochs else f"{lacks.words} and all after it"


def _decided(typed: Typed, lacks: Lacking) -> Adoption:
    lost = {"first": lacks.epochs[0], "last": lacks.epochs[-1], "rows": lacks.rows} if lacks.reason else {}
    return decided(AdoptionKind.DROP_SINK, typed.reason, sinks=(typed.sink,), **lost)


def _refusal(pipeline: str, sink: str, listed: tuple[str, ...], others: int) -> OnceOnlyError | None:
    names = ", ".join(listed)
    if sink not in listed:
        return refuse(
            "E110",
            problem=f'Pipeline "{pipeline}" has no sink {sink}.',
            cause=f"its sinks are: {names}",
            next="name one of them",
        )
    if not others:
        return refuse(
            "E110",
            problem=f'{sink} is the last sink of pipeline "{pipeline}".',
            cause="a pipeline without a sink holds nothing and knows of nothing",
            next="to end the pipeline, stop its query",
        )
    return None


def _not_accepted(place: Connection, typed: Typed, at: Stand, lacks: Lacking) -> OnceOnlyError:
    where = CommandContext(place.pipeline, f" --ledger {shlex.quote(place.certain_ledger.address)}")
    command = f"onceonly queries drop-sink {shlex.quote(place.pipeline)} {shlex.quote(typed.sink)}{where.ledger}"
    if not lacks.reason:
        return refuse(
            "E110",
            problem=f"{typed.sink} would miss everything from now on.",
            cause="queries drop-sink was not told that this is accepted",
            next=f"{command} --accept-loss",
        )
    level = rewound(where, RewindRequest(at.epoch, (typed.sink,)))
    way = "" if at.unread else f"bring them, being staged, in another sink or in the source: {level}\nor "
    return refuse(
        "E110",
        problem=f"{typed.sink} lacks {lacks.words}, which no other sink holds and nothing brings: {lacks.reason}.",
        cause="a crash between two sinks, or a sink that was set back; an acceptance names the epochs that it gives up",
        next=f"{way}give these rows up: {command} --accept-loss {lacks.epochs[0]}..{lacks.epochs[-1]}",
    )


def carry_out(place: Connection, plan: Plan) -> None:
    """Take the sink out.

    Raises:
        OnceOnlyError: what opening the pipeline raises.
    """
    ledger = place.certain_ledger
    epoch = drop_sink(place.sinks, ledger, place.pipeline, plan.accepted, going=plan.going, shown=plan.shown)
    say(f"epoch {epoch.number} adopted: {plan.accepted.sinks[0]} is not a sink of {place.pipeline} any more")
    talk("Now restart the query without it.")
