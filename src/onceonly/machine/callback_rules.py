"""Rules for concurrent callbacks: which call of a wrapper may write.

Spark passes each batch of a run to the callback once, under an id that it sets itself. A replay after a crash comes in
another run. So a batch that comes twice in one run is a batch in parts. Numbers alone would prove its second part
written, so it is refused before it is compared.
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
    """One start (``run_id``) of a query that writes a pipeline with one wrapper of this process."""

    pipeline: str
    wrapper: int
    query_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Entering:
    """Facts when a run is about to open its pipeline.

    With ``outdated`` another run has followed this one. ``named`` is the pipeline's current writer in this process.
    ``held`` has the current writer, or ``None``, by the id of each sink object.
    """

    holder: Holder
    outdated: bool = False
    named: Holder | None = None
    held: tuple[tuple[str, Holder | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """Facts when a wrapper gets a batch.

    ``planned`` is the id that the engine set for the current batch, ``finished`` the newest batch that this run has
    finished. ``refused`` is the refusal of an earlier call of this run by these rules.
    """

    pipeline: str
    batch_id: int
    planned: int
    finished: int | None = None
    refused: Refusal | None = None


def decide_entry(facts: Entering) -> Refusal | None:
    """Refuse a run that must not open its pipeline."""
    holder = facts.holder
    if facts.outdated:
        return outdated(holder)
    if facts.named is not None and facts.named != holder:
        same = facts.named.run_id == holder.run_id
        by = "another exactly_once() of this query" if same else f"run {facts.named.run_id}"
        return Refusal.of("E103", pipeline=holder.pipeline, by=by)
    for sink, other in facts.held:
        if other is not None and other != holder:
            return Refusal.of("E125", sink=sink, pipeline=holder.pipeline, other=other.pipeline, run=other.run_id)
    return None


def outdated(holder: Holder) -> Refusal:
    """Return the refusal of a run that another one has followed."""
    return Refusal.of("E402", run=holder.run_id, pipeline=holder.pipeline)


def decide_call(call: Call) -> Refusal | None:
    """Refuse a batch that a wrapper must not write.

    A call that failed may be repeated. A refusal from here lasts for the run: if the callback swallows it, the engine
    continues without the rows, and the next batch must not continue with it.
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
    """Warn if code changed and a written batch is offered again: the user may expect it to be written anew."""
    before = _of(recorded.lineage)
    happenings = _code_events(pipeline, before, last, now)
    if compare(before, now) is not Compared.CHANGED:
        return happenings
    return (
        *happenings,
        _warning("W711", last, pipeline=pipeline, was=before.text, now=now.text, epoch=last.number + 1),
    )


def followed(pipeline: str, last: Epoch | None, now: Code) -> tuple[Happening, ...]:
    """Note an epoch that may be of other code than the one before: an ordinary start after a deployment."""
    return _code_events(pipeline, _of(last.resume_point.lineage), last, now) if last else ()


def cause(recorded: Lineage | None, now: Code) -> str:
    """Explain why a rerun of a batch gave other rows, as far as its code shows it."""
    before = _of(recorded)
    if compare(before, now) is Compared.CHANGED:
        return f"the code changed: {before.text} wrote the epoch, {now.text} ran it again"
    if before.plan and before.plan == now.plan:
        return "a static table or a function that the plan does not show changed: the plan is the one that wrote it"
    return "the query's code or its static tables changed between the crash and the restart"


def ids_forgotten(pipeline: str, last: Epoch | None, epoch: Epoch) -> tuple[Happening, ...]:
    """Warn if the expression of row ids changed. Another spelling may give the same ids, so nothing is refused."""
    old_ids, now = last.resume_point.ids if last else "", epoch.resume_point.ids
    if last is None or not old_ids or not now or _plain(old_ids) == _plain(now):
        return ()
    return (_warning("W713", last, pipeline=pipeline, was=old_ids, now=now, epoch=epoch.number),)


def _plain(expression: str) -> str:
    return "".join(expression.split()).lower()


def _of(lineage: Lineage | None) -> Code:
    return lineage.code if lineage else Code()


def _code_events(pipeline: str, before: Code, last: Epoch, now: Code) -> tuple[Happening, ...]:
    compared = compare(before, now)
    if compared is Compared.SAME:
        return ()
    what = f"{before.text} wrote up to epoch {last.number}; {now.text} applies from epoch {last.number + 1}"
    if compared is Compared.NOT_COMPARABLE:
        what = f"{what}; they cannot be compared"
        return (Happening(EventKind.PLAN_NOT_COMPARABLE, what, last.number + 1, once=True),)
    changed = Happening(EventKind.PLAN_CHANGED, what, last.number + 1, once=True)
    if not version_kept(before, now):
        return (changed,)
    return changed, _warning("W712", last, pipeline=pipeline, version=now.version, epoch=last.number + 1)


def _warning(code: str, last: Epoch, **details: object) -> Happening:
    return Happening(EventKind.WARNED, caution(code, **details), last.number + 1, once=True)
