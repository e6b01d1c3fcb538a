"""Rewind rules: bring sinks level or cut a pipeline back. Pure.

A rewind takes no rows out of a sink. Either every sink stands at the same epoch, and what the ledger and the checkpoint
say beyond it is set aside, so that Spark reads those rows again; or some sinks lack epochs that are known in full, and
get them as they were, each from the first place that proves its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.strenum import StrEnum


class OriginKind(StrEnum):
    """Where rows of an epoch come from, the one that proves most first."""

    NONE = "none"
    """The epoch brought no rows to the sink."""
    STAGED = "stage"
    """Bytes that were staged for all sinks. The marker holds their hash."""
    SINK = "sink"
    """Another sink that got the same rows. Their digest proves them."""
    SOURCE = "source"
    """The source, through the query's own code. The digest proves the rows."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of one epoch come from.

    Attributes:
        kind: what kind of place it is.
        sink: id of the other sink; empty for other kinds.
    """

    kind: OriginKind
    sink: str = ""

    @property
    def text(self) -> str:
        """As ``--from`` takes it, and as plans print it."""
        return f"{self.kind}:{self.sink}" if self.sink else str(self.kind)


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """What an operator wants.

    Attributes:
        to: the epoch at which the named sinks stand, or all of them.
        sinks: ids of those that are brought level; none: the pipeline is cut back.
        origin: the only kind of place that rows may come from, with its sink; ``None`` for any.
        lost: first and last of the epochs of which a part may be lost; ``None`` for none.
    """

    to: int
    sinks: tuple[str, ...] = ()
    origin: Origin | None = None
    lost: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class RewindFacts:
    """Everything that a rewind is decided on.

    Attributes:
        asked: what is wanted.
        stands: number of the newest epoch of each sink, in the order of the call.
        epochs: what is known of epochs, by number: from the ledger and from markers.
        staged: numbers of epochs whose staged bytes are there.
        readable: sinks whose rows can be read by epoch.
        code: whether the query's code is at hand, so that the source can be read.
        gone: what the source lacks, by epoch, in words.
        chains: chain of the newest epoch of each sink, where it is known.
        outlived: what is there now, in words, by sinks whose markers tell of a target that is there no more, and that
            are not put elsewhere first.
    """

    asked: RewindRequest
    stands: Mapping[str, int]
    epochs: Mapping[int, Epoch]
    staged: Collection[int] = ()
    readable: Collection[str] = ()
    code: bool = False
    gone: Mapping[int, str] = field(default_factory=dict)
    chains: Mapping[str, str] = field(default_factory=dict)
    outlived: Mapping[str, str] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The newest epoch that is known."""
        return max((*self.epochs, *self.stands.values()), default=0)


@dataclass(frozen=True, slots=True)
class Step:
    """One epoch for one sink.

    Attributes:
        sink: which.
        epoch: what it gets.
        origin: of its rows.
    """

    sink: str
    epoch: Epoch
    origin: Origin


@dataclass(frozen=True, slots=True)
class CutBack:
    """Every sink stands at ``to``. Epochs of the ledger beyond it are set aside.

    Attributes:
        to: the epoch that Spark goes on after.
        beyond: numbers of the epochs that are set aside, oldest first; empty where only the checkpoint is ahead.
    """

    to: int
    beyond: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BringUp:
    """Sinks get the epochs that they lack beside the others, or, all of them, beside the ledger; each sink in order.

    Attributes:
        newest: the epoch that they stand at in the end.
        steps: what they get.
    """

    newest: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class UnknownTarget:
    """What was asked for names something that is not there.

    Attributes:
        problem: what, in a sentence.
        cause: why, in words.
    """

    problem: str
    cause: str


@dataclass(frozen=True, slots=True)
class UnexpectedPosition:
    """A sink does not stand where it was said to stand.

    Attributes:
        sink: which.
        stands: where it stands.
        cause: why, in words.
        instead: the rewind that is possible.
    """

    sink: str
    stands: int
    cause: str
    instead: RewindRequest


@dataclass(frozen=True, slots=True)
class StaleMarkers:
    """A sink's markers outlived its target: they say of every epoch that it is there, and none could be written.

    Attributes:
        sink: which.
        stands: the newest epoch that they tell of.
        now: what is there now, in words.
    """

    sink: str
    stands: int
    now: str


@dataclass(frozen=True, slots=True)
class RowsUnavailable:
    """Rows of an epoch are not to be had.

    Attributes:
        sink: that lacks it.
        epoch: its number.
        reason: why, in words.
        unknown: whether the epoch itself is not known in full.
        unread: whether the query's code, which was not named, may give them.
    """

    sink: str
    epoch: int
    reason: str
    unknown: bool = False
    unread: bool = False


@dataclass(frozen=True, slots=True)
class SourceRowsMissing:
    """The source lacks rows that it would have to give again.

    Attributes:
        first: the first epoch of which it lacks some.
        last: the last.
        reason: what it lacks of the first, in words.
    """

    first: int
    last: int
    reason: str


Hindered = UnknownTarget | UnexpectedPosition | StaleMarkers | RowsUnavailable | SourceRowsMissing
"""Why a rewind is not carried out."""


def why(to: int, lost: Collection[int]) -> str:
    """Why epochs are set aside, as it is kept with them and as an audit tells it.

    Args:
        to: the epoch that is cut back to.
        lost: numbers of the epochs beyond it of which the source lacks rows, which was accepted.
    """
    stood = f"every sink stood at epoch {to}"
    runs = groupby(enumerate(sorted(lost)), key=lambda at: at[1] - at[0])
    spans = [f"{run[0]}..{run[-1]}" for run in ([number for _, number in found] for _, found in runs)]
    return f"{stood} and the loss of epochs {', '.join(spans)} was accepted" if spans else stood


def level(stands: Mapping[str, int]) -> RewindRequest:
    """What loses nothing where sinks were set back: those behind are brought level, or, all alike, cut back to there.

    Args:
        stands: number of the newest epoch of each sink.
    """
    behind = tuple(sink for sink, epoch in stands.items() if epoch < max(stands.values()))
    return RewindRequest(min(stands.values(), default=0), behind)


def decide(facts: RewindFacts) -> CutBack | BringUp | Hindered:
    """What a rewind does; the first that speaks decides: names, targets, where sinks stand, origins, the source."""
    asked = facts.asked
    if strangers := [sink for sink in asked.sinks if sink not in facts.stands]:
        known = ", ".join(facts.stands)
        return UnknownTarget(f"There is no sink {strangers[0]}.", f"its sinks are: {known}")
    return _bring_up(facts) if asked.sinks else _cut_back(facts)


def _cut_back(facts: RewindFacts) -> CutBack | Hindered:
    to, stands = facts.asked.to, facts.stands
    elsewhere = {sink: epoch for sink, epoch in stands.items() if epoch != to}
    if elsewhere:
        sink, epoch = next(iter(elsewhere.items()))
        would = level(stands)
        cause = "sinks stand at different epochs" if would.sinks else "the epoch is another one, or the sink went on"
        return UnexpectedPosition(sink, epoch, cause, would)
    if not to:
        return UnknownTarget("There is no epoch to cut back to: no sink holds one.", "they were all made anew")
    beyond = tuple(sorted(number for number in facts.epochs if number > to))
    if lacking := _lacking(facts):
        return lacking
    return CutBack(to, beyond)


def _lacking(facts: RewindFacts) -> SourceRowsMissing | None:
    """Whether the source lacks rows that it would have to give again, beyond what may be lost.

    Also of epochs that nobody knows any more, where the checkpoint tells what their batches read.
    """
    first, last = facts.asked.lost or (0, -1)
    gone = [number for number in sorted(facts.gone) if number > facts.asked.to]
    if all(first <= number <= last for number in gone):
        return None
    # What was accepted already is named again: the command takes one range, and would ask for the other part in turn.
    return SourceRowsMissing(gone[0], gone[-1], facts.gone[gone[0]])


def _bring_up(facts: RewindFacts) -> BringUp | Hindered:
    asked, stands = facts.asked, facts.stands
    if anew := [sink for sink in asked.sinks if sink in facts.outlived]:
        return StaleMarkers(anew[0], stands[anew[0]], facts.outlived[anew[0]])
    others_at = [stands[sink] for sink in stands if sink not in asked.sinks]
    # Level with the others, also where these lack epochs themselves: then all stand alike, and are cut back. Where one
    # that was made anew holds what they lack, as a decision that was killed on its way, they are brought level with it.
    newest = max((*others_at, *(stands[sink] for sink in asked.sinks))) if others_at else facts.newest
    short = tuple(sink for sink in asked.sinks if stands[sink] < asked.to)
    if short:
        least = min(stands[sink] for sink in asked.sinks)
        return UnexpectedPosition(
            short[0], stands[short[0]], "it lacks more than that", RewindRequest(least, asked.sinks)
        )
    others = tuple(sink for sink in stands if sink not in asked.sinks and stands[sink] < newest)
    if others:
        least = min(stands[sink] for sink in (*asked.sinks, *others))
        return UnexpectedPosition(
            others[0], stands[others[0]], "it lacks epochs, too", RewindRequest(least, (*asked.sinks, *others))
        )
    steps: list[Step] = []
    for sink in asked.sinks:
        for number in range(stands[sink] + 1, newest + 1):
            found = _step(facts, sink, number)
            if isinstance(found, RowsUnavailable):
                return found
            if found:
                steps.append(found)
    return BringUp(newest, tuple(steps))


def _step(facts: RewindFacts, sink: str, number: int) -> Step | RowsUnavailable | None:
    epoch, before = facts.epochs.get(number), facts.epochs.get(number - 1)
    if epoch is None or not chain.sound(epoch) or (before and epoch.previous_chain != before.chain):
        return RowsUnavailable(sink, number, "neither the ledger nor a sink knows it in full", unknown=True)
    if number < dict(epoch.sinks).get(sink, number + 1):
        return None  # the sink joined later
    below = facts.stands[sink]
    if number == below + 1 and facts.chains.get(sink, epoch.previous_chain) != epoch.previous_chain:
        return RowsUnavailable(sink, number, f"the sink holds another epoch {below} than the one that it follows")
    origin = _origin(facts, sink, epoch)
    if origin:
        return Step(sink, epoch, origin)
    return RowsUnavailable(sink, number, _nowhere(facts, number), unread=_code_may_give(facts, epoch))


def _nowhere(facts: RewindFacts, number: int) -> str:
    wanted = facts.asked.origin
    if facts.code and number in facts.gone and wanted in (None, Origin(OriginKind.SOURCE)):
        return f"the source lacks {facts.gone[number]}"
    if wanted:
        return f"its rows are not to be had from {wanted.text}"
    return "its rows are staged nowhere any more, and no other sink can be read by epoch that got the same ones"


def _origin(facts: RewindFacts, sink: str, epoch: Epoch) -> Origin | None:
    """The first place that proves the rows of an epoch, of those that may be asked."""
    if epoch.adoption or not epoch.digest_in(sink).rows:
        return Origin(OriginKind.NONE)
    others = (Origin(OriginKind.SINK, one) for one in facts.readable)
    places, wanted = (Origin(OriginKind.STAGED), *others, Origin(OriginKind.SOURCE)), facts.asked.origin
    asked = (one for one in places if wanted is None or one == wanted)
    return next((one for one in asked if _proves(facts, one, sink, epoch)), None)


def _proves(facts: RewindFacts, origin: Origin, sink: str, epoch: Epoch) -> bool:
    """Whether a place gives the rows of an epoch as they were committed."""
    if origin.kind is OriginKind.STAGED:
        return epoch.number in facts.staged
    if origin.kind is OriginKind.SINK:
        return _holds_the_same(facts, origin.sink, sink, epoch)
    return facts.code and epoch.number not in facts.gone and _is_the_plan_alone(epoch)


def _code_may_give(facts: RewindFacts, epoch: Epoch) -> bool:
    """Whether the query's code, which was not named, may give the rows of an epoch."""
    return not facts.code and facts.asked.origin is None and _is_the_plan_alone(epoch)


def _is_the_plan_alone(epoch: Epoch) -> bool:
    """Whether the query gave the rows as they are written: nothing split them, and no rerun wrote them."""
    return epoch.lineage is not None and not epoch.outputs and epoch.replays is None


def _holds_the_same(facts: RewindFacts, other: str, sink: str, epoch: Epoch) -> bool:
    # One that is not brought up itself stands at the newest epoch: else it was refused before.
    joined = dict(epoch.sinks).get(other, epoch.number + 1)
    return other not in facts.asked.sinks and epoch.number >= joined and epoch.output(other) == epoch.output(sink)
