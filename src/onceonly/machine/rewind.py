"""Rewind rules: bring sinks level or cut a pipeline back. Pure.

A rewind removes no rows from a sink. There are two kinds. If every sink is at the same epoch, later entries of ledger
and checkpoint are set aside, so that Spark reads those rows again. If some sinks lack epochs that are known in full,
they get the original rows, each epoch from the first origin that proves them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.strenum import StrEnum


class OriginKind(StrEnum):
    """Origins of an epoch's rows, strongest proof first."""

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
    """Where the rows of one epoch come from. ``sink`` is the id of the other sink, or empty."""

    kind: OriginKind
    sink: str = ""

    @property
    def text(self) -> str:
        """Spelling in ``--from`` and in plans."""
        return f"{self.kind}:{self.sink}" if self.sink else str(self.kind)


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """Request of an operator.

    Without ``sinks`` to bring level, the pipeline is cut back. ``origin`` is the only place that rows may come from.
    ``lost`` has the first and last of the epochs of which a part may be lost.
    """

    to: int
    sinks: tuple[str, ...] = ()
    origin: Origin | None = None
    lost: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class RewindFacts:
    """Everything that a rewind is decided on.

    Attributes:
        sink_epochs: number of the newest epoch of each sink, in the order of the call.
        staged: numbers of epochs whose staged bytes exist.
        readable: sinks whose rows can be read by epoch.
        code: whether the query's code is available, so that the source can be read.
        gone: missing input of the source, by epoch, in words.
        outlived: current target, in words, of sinks whose markers outlived their target, except those that the rewind
            moves first.
    """

    request: RewindRequest
    sink_epochs: Mapping[str, int]
    epochs: Mapping[int, Epoch]
    staged: Collection[int] = ()
    readable: Collection[str] = ()
    code: bool = False
    gone: Mapping[int, str] = field(default_factory=dict)
    chains: Mapping[str, str] = field(default_factory=dict)
    outlived: Mapping[str, str] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The newest known epoch."""
        return max((*self.epochs, *self.sink_epochs.values()), default=0)


@dataclass(frozen=True, slots=True)
class Step:
    """One epoch for one sink, with the origin of its rows."""

    sink: str
    epoch: Epoch
    origin: Origin


@dataclass(frozen=True, slots=True)
class CutBack:
    """Every sink is at ``to``. ``beyond``: later epochs to set aside, oldest first, empty if only Spark is ahead."""

    to: int
    removed_epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BringUp:
    """Sinks get the epochs that they lack up to ``newest``, in order, as other sinks or the ledger have them."""

    newest: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class UnknownTarget:
    """The request names something that does not exist. ``problem`` is a sentence, ``cause`` a reason in words."""

    problem: str
    cause: str


@dataclass(frozen=True, slots=True)
class UnexpectedPosition:
    """A sink is at epoch ``sink_epoch`` and not at the expected one. ``instead`` is the rewind that is possible."""

    sink: str
    sink_epoch: int
    cause: str
    instead: RewindRequest


@dataclass(frozen=True, slots=True)
class StaleMarkers:
    """A sink's markers, up to ``sink_epoch``, outlived its target. They claim every epoch, so none could be written."""

    sink: str
    sink_epoch: int
    now: str


@dataclass(frozen=True, slots=True)
class RowsUnavailable:
    """Rows that ``sink`` lacks are gone. ``unknown``: so is the epoch. ``unread``: unnamed code may give them."""

    sink: str
    epoch: int
    reason: str
    unknown: bool = False
    unread: bool = False


@dataclass(frozen=True, slots=True)
class SourceRowsMissing:
    """The source lacks rows of epochs ``first`` to ``last``. ``reason`` describes the missing input of the first."""

    first: int
    last: int
    reason: str


Hindered = UnknownTarget | UnexpectedPosition | StaleMarkers | RowsUnavailable | SourceRowsMissing
"""Why a rewind is not carried out."""


def why(to: int, lost: Collection[int]) -> str:
    """Return the reason, for an audit, why later epochs are set aside. ``lost``: those whose loss was accepted."""
    reason = f"every sink was at epoch {to}"
    runs = groupby(enumerate(sorted(lost)), key=lambda at: at[1] - at[0])
    spans = [f"{run[0]}..{run[-1]}" for run in ([number for _, number in group] for _, group in runs)]
    return f"{reason} and the loss of epochs {', '.join(spans)} was accepted" if spans else reason


def level(sink_epochs: Mapping[str, int]) -> RewindRequest:
    """Return the rewind that loses nothing: bring the sinks behind level, or, if all are alike, cut back."""
    behind = tuple(sink for sink, epoch in sink_epochs.items() if epoch < max(sink_epochs.values()))
    return RewindRequest(min(sink_epochs.values(), default=0), behind)


def decide(facts: RewindFacts) -> CutBack | BringUp | Hindered:
    """Decide a rewind. The order of the checks is names, targets, positions of sinks, origins, source."""
    request = facts.request
    if strangers := [sink for sink in request.sinks if sink not in facts.sink_epochs]:
        names = ", ".join(facts.sink_epochs)
        return UnknownTarget(f"There is no sink {strangers[0]}.", f"its sinks are: {names}")
    if anew := [sink for sink in request.sinks or facts.sink_epochs if sink in facts.outlived]:
        return StaleMarkers(anew[0], facts.sink_epochs[anew[0]], facts.outlived[anew[0]])
    return _bring_up(facts) if request.sinks else _cut_back(facts)


def _cut_back(facts: RewindFacts) -> CutBack | Hindered:
    to, sink_epochs = facts.request.to, facts.sink_epochs
    elsewhere = {sink: epoch for sink, epoch in sink_epochs.items() if epoch != to}
    if elsewhere:
        sink, epoch = next(iter(elsewhere.items()))
        would = level(sink_epochs)
        cause = "sinks are at different epochs" if would.sinks else "the epoch is another one, or the sink continued"
        return UnexpectedPosition(sink, epoch, cause, would)
    if not to:
        return UnknownTarget("There is no epoch to rewind to: no sink holds one.", "they were all created again")
    later_epochs = tuple(sorted(number for number in facts.epochs if number > to))
    if lacking := _lacking(facts):
        return lacking
    return CutBack(to, later_epochs)


def _lacking(facts: RewindFacts) -> SourceRowsMissing | None:
    """Return missing rows beyond the accepted loss, with those of batches in the checkpoint that became no epoch."""
    first, last = facts.request.lost or (0, -1)
    gone = [number for number in sorted(facts.gone) if number > facts.request.to]
    if all(first <= number <= last for number in gone):
        return None
    # What was accepted already is named again: the command takes one range, and would ask for the other part in turn.
    return SourceRowsMissing(gone[0], gone[-1], facts.gone[gone[0]])


def _bring_up(facts: RewindFacts) -> BringUp | Hindered:
    request, sink_epochs = facts.request, facts.sink_epochs
    others_at = [sink_epochs[sink] for sink in sink_epochs if sink not in request.sinks]
    # Level with the others, also where these lack epochs themselves: then all stand alike, and are cut back. Where one
    # that was made anew holds what they lack, as a decision that was killed on its way, they are brought level with it.
    newest = max((*others_at, *(sink_epochs[sink] for sink in request.sinks))) if others_at else facts.newest
    short = tuple(sink for sink in request.sinks if sink_epochs[sink] < request.to)
    if short:
        least = min(sink_epochs[sink] for sink in request.sinks)
        return UnexpectedPosition(
            short[0], sink_epochs[short[0]], "it lacks more than that", RewindRequest(least, request.sinks)
        )
    others = tuple(sink for sink in sink_epochs if sink not in request.sinks and sink_epochs[sink] < newest)
    if others:
        least = min(sink_epochs[sink] for sink in (*request.sinks, *others))
        return UnexpectedPosition(
            others[0], sink_epochs[others[0]], "it lacks epochs, too", RewindRequest(least, (*request.sinks, *others))
        )
    steps: list[Step] = []
    for sink in request.sinks:
        for number in range(sink_epochs[sink] + 1, newest + 1):
            step = _step(facts, sink, number)
            if isinstance(step, RowsUnavailable):
                return step
            if step:
                steps.append(step)
    return BringUp(newest, tuple(steps))


def _step(facts: RewindFacts, sink: str, number: int) -> Step | RowsUnavailable | None:
    epoch, before = facts.epochs.get(number), facts.epochs.get(number - 1)
    if epoch is None or not chain.sound(epoch) or (before and epoch.previous_chain != before.chain):
        return RowsUnavailable(sink, number, "neither the ledger nor a sink knows it in full", unknown=True)
    if number < dict(epoch.sinks).get(sink, number + 1):
        return None  # the sink joined later
    below = facts.sink_epochs[sink]
    if number == below + 1 and facts.chains.get(sink, epoch.previous_chain) != epoch.previous_chain:
        return RowsUnavailable(sink, number, f"the sink holds another epoch {below} than the one that it follows")
    origin = _origin(facts, sink, epoch)
    if origin:
        return Step(sink, epoch, origin)
    return RowsUnavailable(sink, number, _nowhere(facts, number), unread=_code_may_give(facts, epoch))


def _nowhere(facts: RewindFacts, number: int) -> str:
    requested_origin = facts.request.origin
    if facts.code and number in facts.gone and requested_origin in (None, Origin(OriginKind.SOURCE)):
        return f"the source lacks {facts.gone[number]}"
    if requested_origin:
        return f"its rows are not to be had from {requested_origin.text}"
    return "its rows are staged nowhere any more, and no other sink can be read by epoch that got the same ones"


def _origin(facts: RewindFacts, sink: str, epoch: Epoch) -> Origin | None:
    """Return the first allowed place that proves the rows of an epoch."""
    if epoch.adoption or not epoch.digest_in(sink).rows:
        return Origin(OriginKind.NONE)
    others = (Origin(OriginKind.SINK, other_sink) for other_sink in facts.readable)
    places, requested_origin = (Origin(OriginKind.STAGED), *others, Origin(OriginKind.SOURCE)), facts.request.origin
    candidates = (origin for origin in places if requested_origin is None or origin == requested_origin)
    return next((origin for origin in candidates if _proves(facts, origin, sink, epoch)), None)


def _proves(facts: RewindFacts, origin: Origin, sink: str, epoch: Epoch) -> bool:
    """Whether a place gives the rows of an epoch as they were committed."""
    if origin.kind is OriginKind.STAGED:
        return epoch.number in facts.staged
    if origin.kind is OriginKind.SINK:
        return _holds_the_same(facts, origin.sink, sink, epoch)
    return facts.code and epoch.number not in facts.gone and _is_the_plan_alone(epoch)


def _code_may_give(facts: RewindFacts, epoch: Epoch) -> bool:
    """Whether the query's code, which was not named, may give the rows of an epoch."""
    return not facts.code and facts.request.origin is None and _is_the_plan_alone(epoch)


def _is_the_plan_alone(epoch: Epoch) -> bool:
    """Whether the query gave the rows as they are written, without outputs and without a rerun."""
    return epoch.lineage is not None and not epoch.outputs and epoch.replays is None


def _holds_the_same(facts: RewindFacts, other: str, sink: str, epoch: Epoch) -> bool:
    # One that is not brought up itself stands at the newest epoch: else it was refused before.
    joined = dict(epoch.sinks).get(other, epoch.number + 1)
    return other not in facts.request.sinks and epoch.number >= joined and epoch.output(other) == epoch.output(sink)
