"""What ``queries drop-sink`` is about to do, put together before anybody says yes."""

from __future__ import annotations

from onceonly.cli import epochs
from onceonly.cli.options import Plan, because, decided
from onceonly.cli.output import say, talk
from onceonly.cli.places import Place
from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.sources import describe
from onceonly.runtime.operator import drop_sink, nothing_to_adopt
from onceonly_checkpoints.model import AdoptionKind


def plan(place: Place, sink: str, reason: str, *, accept_loss: bool) -> Plan:
    """Say what taking a sink out of a pipeline would do.

    Args:
        place: the pipeline with its sinks, without the one that goes.
        sink: id of that one.
        reason: for the record.
        accept_loss: the operator said that the sink misses everything from now on.

    Raises:
        OnceOnlyError: E110, no such sink, the last one, the loss was not accepted, or there is no epoch yet.
    """
    known = epochs.newest_epochs(place, 1)
    if not known:
        raise nothing_to_adopt(place.pipeline)
    last = known[-1].epoch
    entered = dict(place.entry.sinks) if place.entry else {}
    listed = tuple(dict.fromkeys((*dict(last.sinks), *entered)))
    if refused := _refusal(place.pipeline, sink, listed, len(place.sinks), accept_loss=accept_loss):
        raise refused
    pairs = (
        ("pipeline", place.pipeline),
        ("takes out", f"{sink} ({entered.get(sink, 'its address is not known here')})"),
        ("accepts", f"it misses everything after epoch {last.number}{because(reason)}"),
        ("sinks", place.sinks_in_words),
        ("ledger", place.certain_ledger.address),
        ("stands", f"epoch {last.number}, at {describe(last.written.end)}"),
        ("does", "writes an epoch without rows into these sinks; every running driver of the pipeline is fenced out"),
        ("after", f"{sink} keeps the rows it holds and gets no more; given back later, it joins as a new sink would"),
    )
    return Plan(decided(AdoptionKind.DROP_SINK, reason, sinks=(sink,)), pairs)


def _refusal(
    pipeline: str, sink: str, listed: tuple[str, ...], others: int, *, accept_loss: bool
) -> OnceOnlyError | None:
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
    if not accept_loss:
        return refuse(
            "E110",
            problem=f"{sink} would miss everything from now on.",
            cause="queries drop-sink was not told that this is accepted",
            next="the same command with --accept-loss",
        )
    return None


def carry_out(place: Place, plan: Plan) -> None:
    """Take the sink out.

    Raises:
        OnceOnlyError: what opening the pipeline raises.
    """
    epoch = drop_sink(place.sinks, place.certain_ledger, place.pipeline, plan.accepted)
    say(f"epoch {epoch.number} adopted: {plan.accepted.sinks[0]} is not a sink of {place.pipeline} any more")
    talk("Now restart the query without it.")
