"""Rules for concurrent callbacks: which call of a wrapper may write.

Spark hands each batch of a run to the callback once, under an id that it sets itself; a replay after a crash comes in
another run. So a batch that comes twice in one run is a batch in parts, and numbers alone would prove its second part
written: it is refused before it is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceonly.errors import caution
from onceonly.machine.facts import Happening, Refusal
from onceonly_checkpoints.code_version import Code, Compared, compare, version_kept
from onceonly_checkpoints.epoch import Epoch, Lineage
from onceonly_checkpoints.ledger import EventKind


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


# ---- What is said where other code runs than the one that wrote what stands. Notes: no batch is decided on
# them. Pure.


def replayed(pipeline: str, recorded: Epoch, last: Epoch, now: Code) -> tuple[Happening, ...]:
    """A batch that stands already is offered again: whoever changed the code may expect it to be written anew."""
    before = _of(recorded.lineage)
    said = _said(pipeline, before, last, now)
    if compare(before, now) is not Compared.CHANGED:
        return said
    return (*said, _warning("W711", last, pipeline=pipeline, was=before.text, now=now.text, epoch=last.number + 1))


def followed(pipeline: str, last: Epoch | None, now: Code) -> tuple[Happening, ...]:
    """An epoch is about to follow one that may be of other code: an ordinary start after a deployment."""
    return _said(pipeline, _of(last.standing.lineage), last, now) if last else ()


def cause(recorded: Lineage | None, now: Code) -> str:
    """Why a batch that was run again gave other rows, as far as its code tells."""
    before = _of(recorded)
    if compare(before, now) is Compared.CHANGED:
        return f"the code changed: {before.text} wrote the epoch, {now.text} ran it again"
    if before.plan and before.plan == now.plan:
        return "a static table or a function that the plan does not show changed: the plan is the one that wrote it"
    return "the query's code or its static tables changed between the crash and the restart"


def ids_forgotten(pipeline: str, last: Epoch | None, epoch: Epoch) -> tuple[Happening, ...]:
    """What makes a row's id is another expression than before: ids that are known are compared with it no more.

    One that is spelled otherwise may give the same ids, so that nothing is refused.
    """
    was, now = last.standing.ids if last else "", epoch.standing.ids
    if last is None or not was or not now or _plain(was) == _plain(now):
        return ()
    return (_warning("W713", last, pipeline=pipeline, was=was, now=now, epoch=epoch.number),)


def _plain(said: str) -> str:
    return "".join(said.split()).lower()


def _of(lineage: Lineage | None) -> Code:
    return lineage.code if lineage else Code()


def _said(pipeline: str, before: Code, last: Epoch, now: Code) -> tuple[Happening, ...]:
    compared = compare(before, now)
    if compared is Compared.SAME:
        return ()
    what = f"{before.text} wrote what stands up to epoch {last.number}; {now.text} applies from epoch {last.number + 1}"
    if compared is Compared.NOT_COMPARABLE:
        what = f"{what}; whether they are the same cannot be told"
        return (Happening(EventKind.PLAN_NOT_COMPARABLE, what, last.number + 1, once=True),)
    changed = Happening(EventKind.PLAN_CHANGED, what, last.number + 1, once=True)
    if not version_kept(before, now):
        return (changed,)
    return changed, _warning("W712", last, pipeline=pipeline, version=now.version, epoch=last.number + 1)


def _warning(code: str, last: Epoch, **details: object) -> Happening:
    return Happening(EventKind.WARNED, caution(code, **details), last.number + 1, once=True)
