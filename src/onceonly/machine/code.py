"""What is said where other code runs than the one that wrote what stands. Notes: no batch is decided on them. Pure."""

from __future__ import annotations

from onceonly.errors import caution
from onceonly.machine.facts import Happening
from onceonly_checkpoints.code_version import Code, Compared, compare, version_kept
from onceonly_checkpoints.epoch import Epoch, Lineage
from onceonly_checkpoints.ledger import EventKind


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
