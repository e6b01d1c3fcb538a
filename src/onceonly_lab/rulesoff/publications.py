"""Drawn publications: a pipeline and a rerun of it.

The judge checks whose input the table holds once the rerun's rows are there. Pure.

Nothing here asks the table that is judged for anything but its verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from random import Random

from onceonly.machine import publish
from onceonly.machine.facts import Refusal
from onceonly.machine.publish import PublishFacts
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, Lineage, ReplayedEpochs
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice
from onceonly_lab.model.parts import PIPELINE, offsets

SINK, OTHER = "one table", "another table"
RERUN = f"{PIPELINE}~v2"

_KINDS = ("batch", "batch", "batch", "empty", "operator", "refresh", "published", "outputs", "panes")
"""What an epoch is: of a batch, whose rows went into the sink, or of which no row came; of an operator; a full refresh;
an earlier rerun, published; a batch whose rows were split, or put into windows."""

_LONGEST = 100
"""So many looks at the ledger mean that there is no end."""


class Endless(Exception):
    """The table asks, and asks."""


class _Records(dict[int, Epoch]):
    """Epochs on record, of a ledger that is not asked for ever."""

    asked = 0

    def get(self, number: int, default: object = None) -> Epoch | None:  # type: ignore[override]
        """One of them."""
        self.asked += 1
        if self.asked > _LONGEST:
            raise Endless("the ledger is asked for ever")
        return super().get(number)


@dataclass(slots=True)
class _Line:
    """A pipeline as it grows.

    Attributes:
        epochs: oldest first.
        standing: numbers of the batches whose input stands.
        kept: whether something is kept beside the rows that speaks of them.
    """

    epochs: list[Epoch] = field(default_factory=list)
    standing: set[int] = field(default_factory=set)
    kept: bool = False

    def grow(self, kind: str, rows: int, replays: ReplayedEpochs | None = None) -> None:
        """One more epoch, of a kind."""
        number, last = len(self.epochs) + 1, self.epochs[-1] if self.epochs else None
        anew = kind in {"refresh", "published"}
        batch, (outputs, panes) = kind not in {"operator", "published"}, _kept(kind)
        epoch = Epoch(
            number,
            Slice(offsets(number - 1), offsets(number)),
            "",
            last.chain if last else chain.GENESIS,
            Digest(0 if kind in {"empty", "operator"} else rows, number, number),
            "columns",
            ((SINK, 1),),
            Lineage("query", "run", "checkpoint", number, number, 0) if batch else None,
            adoption=Adoption(AdoptionKind.ACCEPT_CHANGE) if kind == "operator" else None,
            series=number if anew else last.series if last else 1,
            replaces=(1, number - 1) if anew and last else None,
            replays=replays,
            outputs=outputs,
            windows=panes,
        )
        self.epochs.append(chain.linked(epoch))
        self.kept = kind in {"outputs", "panes"} or (self.kept and not anew)
        if batch:
            self.standing = {number} if kind == "refresh" else self.standing | {number}


def _kept(kind: str) -> tuple[tuple[OutputDigest, ...], EpochWindows | None]:
    outputs = (OutputDigest("part", (SINK,), "columns", Digest(1)),) if kind == "outputs" else ()
    return outputs, EpochWindows("sums", "sums", Digest(1), 1, 0, 0) if kind == "panes" else None


@dataclass(frozen=True, slots=True)
class Case:
    """What is so, and what is told of it.

    Attributes:
        facts: what is told.
        standing: numbers of the batches whose input stands in the table.
        ran: those that were run again, as far as they are still epochs of the pipeline.
        astray: whether the last of these is another epoch now.
        published: number of the epoch that published the rerun; 0 for none.
        kept: whether something is kept beside the rows of the one or the other that speaks of them.
        forgotten: numbers of the epochs that the ledger has forgotten.
    """

    facts: PublishFacts
    standing: frozenset[int]
    ran: frozenset[int]
    astray: bool
    published: int
    kept: bool
    forgotten: frozenset[int]


def play(chance: Random) -> str:
    """What is wrong in one case; empty: nothing."""
    case = drawn(chance)
    return next(judged(case, publish.decide(case.facts)), "")


# ---- What is so.


def drawn(chance: Random) -> Case:
    """A pipeline, a rerun of what stands in its table, or of a part of that, and what the ledger still knows."""
    line = _drawn(chance)
    chosen = _part(chance, line)
    astray = chance.random() < 0.1
    held = _run_again(chance, line, chosen, astray=astray)
    published = _published(chance, line, held)
    last = line.epochs[-1] if line.epochs else None
    if last and chance.random() < 0.1:
        last = line.epochs[-1] = chain.linked(replace(last, sinks=((SINK, 1), (OTHER, 1))))
    if chance.random() < 0.05:  # the table was made anew
        last, line.standing = None, set()
    epochs_by_number = {epoch.number: epoch for epoch in line.epochs}
    first = (
        chance.randint(1, len(epochs_by_number)) if epochs_by_number and not line.kept and chance.random() < 0.15 else 1
    )
    records = _Records({number: epoch for number, epoch in epochs_by_number.items() if number >= first})
    unfit = "it has a key" if chance.random() < 0.1 else ""
    facts = PublishFacts(PIPELINE, SINK, last, records, RERUN, held, unfit, "ledger.db", "rerun's table")
    has_extras = line.kept or any(epoch.outputs or epoch.windows for epoch, _ in held)
    gone = frozenset(epochs_by_number) - frozenset(records)
    return Case(facts, frozenset(line.standing), frozenset(chosen), astray, published, has_extras, gone)


def _drawn(chance: Random) -> _Line:
    """A pipeline; of one that goes on in a rerun's table the first epochs ran others again."""
    line, plain, began = _Line(), chance.random() < 0.5, chance.randint(1, 3) if chance.random() < 0.2 else 0
    for number in range(1, chance.randint(0, 6) + 1):
        kind = chance.choice(_KINDS[:5] if plain else _KINDS) if number > began else "batch"
        if kind == "published" and (line.kept or not line.standing):
            kind = "operator"
        replays = ReplayedEpochs(f"{PIPELINE}~v1", 1, 1, "v1") if kind == "published" or number <= began else None
        line.grow(kind, chance.randint(0, 1), replays)
    return line


def _part(chance: Random, line: _Line) -> list[int]:
    """The batches whose input stands: all, also with those replaced, those of the series, or some in a row."""
    those, how = sorted(line.standing), chance.random()
    if how > 0.95 and those:
        return [epoch.number for epoch in line.epochs if epoch.lineage and epoch.number < those[0]] + those
    if how < 0.2:
        return [number for number in those if number >= line.epochs[-1].series]
    first, last = chance.randint(0, len(those)), chance.randint(0, len(those))
    return those[first if how < 0.4 else 0 : last if 0.3 < how < 0.5 else len(those)]


def _run_again(
    chance: Random, line: _Line, chosen: list[int], *, astray: bool
) -> tuple[tuple[Epoch, ReplayedEpochs], ...]:
    """A rerun of batches, one epoch for one or two of them; the last of another history, where it is astray."""
    rerun, held = _Line(), list[tuple[Epoch, ReplayedEpochs]]()
    while chosen:
        count = chance.randint(1, 2)
        those, chosen = chosen[:count], chosen[count:]
        last = "of another history" if astray and not chosen else line.epochs[those[-1] - 1].chain
        ran = ReplayedEpochs(PIPELINE, those[0], those[-1], last)
        kind = chance.choice(("outputs", "panes")) if chance.random() < 0.05 else "batch"
        rerun.grow(kind, 1, ran)
        held.append((rerun.epochs[-1], ran))
    return tuple(held)


def _published(chance: Random, line: _Line, held: tuple[tuple[Epoch, ReplayedEpochs], ...]) -> int:
    """Maybe the rerun is published already, and the pipeline may have gone on."""
    if not held or chance.random() < 0.85:
        return 0
    line.grow("published", 1, ReplayedEpochs(RERUN, held[0][0].number, held[-1][0].number, held[-1][0].chain))
    number = len(line.epochs)
    if chance.random() < 0.5:
        line.grow(chance.choice(("batch", "operator")), 1)
    return number


# ---- Whether a verdict is right.


def judged(case: Case, verdict: object) -> Iterator[str]:
    """What is wrong with a verdict."""
    match verdict:
        case Epoch():
            yield from _of_rows(case)
            yield from _of_epoch(case, verdict)
        case Refusal():
            yield from _of_refusal(case, verdict)
        case _:
            yield f"X-STUCK: {verdict!r} is no verdict"


def _of_rows(case: Case) -> Iterator[str]:
    """What is wrong with what stands once the rerun's rows have taken the place of all others."""
    if case.published:
        yield f"X-DUP: what epoch {case.published} has published is published again"
    if case.facts.unfit:
        yield f"X-DUP: rows stay beside those that come: {case.facts.unfit}"
    if case.facts.last and len(case.facts.last.sinks) > 1:
        yield f"X-CROSS: {OTHER} keeps the old rows"
    if case.kept:
        yield "X-PANE: what is kept of split rows or windows speaks of rows that are gone"
    if case.astray:
        yield "X-PHANTOM: rows of an epoch that is none of the pipeline's any more"
    if lost := case.standing - case.ran:
        yield f"X-LOSS: the input of epochs {_spelled(lost)} stood, and was not run again"
    if came := case.ran - case.standing:
        yield f"X-PHANTOM: the input of epochs {_spelled(came)} did not stand"


def _of_epoch(case: Case, epoch: Epoch) -> Iterator[str]:
    """What is wrong with the epoch itself."""
    last, held = case.facts.last, case.facts.held
    if last is None or not held:
        yield "X-STUCK: an epoch of no rows, or after none"
        return
    follows = (epoch.number, epoch.previous_chain, epoch.replaces) == (last.number + 1, last.chain, (1, last.number))
    if not follows or not chain.sound(epoch) or epoch.resume_point != last.resume_point:
        yield f"X-GAP: epoch {epoch.number} does not follow {last.number}"
    if epoch.digest != reduce(add, (rerun_epoch.digest for rerun_epoch, _ in held)):
        yield "X-BALANCE: the epoch does not account for the rerun's rows"


def _of_refusal(case: Case, refusal: Refusal) -> Iterator[str]:
    details = dict(refusal.details)
    reason = str(details.get("reason", ""))
    unknown = bool(case.forgotten) and "has forgotten" in reason
    right = {"E240": _lags(case), "E241": bool(case.published), "E242": _unfit(case) or unknown}
    if not right[refusal.code]:
        yield f"X-STUCK: refused by {refusal.code}: {reason}"
    if refusal.code == "E242" and "also writes" in reason and SINK in reason:
        yield f"X-UNNAMED: {reason}"
    newest = max(case.standing, default=0)
    if refusal.code == "E240" and not (
        details["first"] == case.facts.held[0][1].first and newest <= int(str(details["last"]))
    ):
        yield f"X-UNNAMED: epochs {details['first']}..{details['last']} are named, and {newest} is the newest batch"


def _lags(case: Case) -> bool:
    """Whether the rerun ends with another epoch than the pipeline's newest batch, or one that nobody knows."""
    last = max(case.ran, default=0)
    return case.astray or any(number > last for number in case.standing) or last in case.forgotten


def _unfit(case: Case) -> bool:
    """Whether rows cannot be swapped, or the rerun begins behind what stands, or may stand."""
    facts, first = case.facts, min(case.ran, default=0)
    lacking = any(number < first for number in case.standing) or any(number < first for number in case.forgotten)
    lacking = lacking or bool(case.ran and case.standing and first < min(case.standing))
    several = facts.last is not None and len(facts.last.sinks) > 1
    return facts.last is None or not facts.held or bool(facts.unfit) or several or case.kept or lacking


def _spelled(numbers: frozenset[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))
