"""Which call of a wrapper may write: pure rules over what a process knows of its runs. The first that speaks decides.

Spark hands each batch of a run to the callback once, under an id that it sets itself; a replay after a crash comes in
another run. So a batch that comes twice in one run is a batch in parts, and numbers alone would prove its second part
written: it is refused before it is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceonly.machine.facts import Refusal


@dataclass(frozen=True, slots=True)
class Holder:
    """One start of a query that writes a pipeline with one wrapper.

    Attributes:
        pipeline: its name.
        wrapper: tells the wrappers of this process apart.
        query_id: the engine's id of the query.
        run_id: the engine's id of this start.
    """

    pipeline: str
    wrapper: int
    query_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Entering:
    """What is known when a run is about to open its pipeline.

    Attributes:
        holder: who opens it.
        outdated: whether the batch belongs to a run that another one has followed.
        named: who in this process is writing the pipeline; ``None`` if nobody is.
        held: of each sink object by its id, who is writing with it; ``None`` if nobody is.
    """

    holder: Holder
    outdated: bool = False
    named: Holder | None = None
    held: tuple[tuple[str, Holder | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """What is known when a wrapper is handed a batch.

    Attributes:
        pipeline: its name.
        batch_id: what the wrapper was handed.
        planned: the id that the engine set for the batch at hand.
        finished: the newest batch that this run has finished; ``None`` if there is none.
        refused: what an earlier call of this run was refused for by these rules.
    """

    pipeline: str
    batch_id: int
    planned: int
    finished: int | None = None
    refused: Refusal | None = None


def decide_entry(facts: Entering) -> Refusal | None:
    """Why a run must not open its pipeline; ``None`` if it may."""
    holder = facts.holder
    if facts.outdated:
        return outdated(holder)
    if facts.named is not None and facts.named != holder:
        return Refusal.of("E103", pipeline=holder.pipeline, by=_by(holder, facts.named))
    for sink, other in facts.held:
        if other is not None and other != holder:
            return Refusal.of("E125", sink=sink, pipeline=holder.pipeline, other=other.pipeline, run=other.run_id)
    return None


def _by(holder: Holder, other: Holder) -> str:
    return "another exactly_once() of this query" if other.run_id == holder.run_id else f"run {other.run_id}"


def outdated(holder: Holder) -> Refusal:
    """What a callback is told that another run has followed."""
    return Refusal.of("E402", run=holder.run_id, pipeline=holder.pipeline)


def decide_call(call: Call) -> Refusal | None:
    """Why a wrapper must not write what it was handed; ``None`` if it may be compared.

    A call that failed may be repeated. What was refused here stays refused for the run: if the callback swallows it,
    the engine goes on without the rows, and the next batch must not go on with it.
    """
    if call.refused is not None:
        return call.refused
    if call.batch_id != call.planned:
        return Refusal.of("E124", pipeline=call.pipeline, given=call.batch_id, batch=call.planned)
    if call.finished is not None and call.batch_id <= call.finished:
        return Refusal.of("E123", pipeline=call.pipeline, batch=call.batch_id)
    return None
