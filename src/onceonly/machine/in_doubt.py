"""In-doubt epochs: started, and not in every sink. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onceonly.errors import OnceOnlyError
from onceonly.errors.codes import Family
from onceonly.machine.state import Phase, State
from onceonly_checkpoints.epoch import EpochRecord, Fence
from onceonly_checkpoints.ledger import Event, EventKind, Intent
from onceonly_checkpoints.strenum import StrEnum

# ---- How an opening ended, as events of the ledger: it failed with a code, or it ended. Pure.
#
# One that ended without either was killed, or still runs; the next opening says so.

ENDS = (EventKind.FAILED, EventKind.ENDED)
"""Kinds with which an opening says that it is over."""

WINDOW = 100
"""How many of the newest events are searched for the end of the opening before."""

_SENT = (Phase.COMMIT, Phase.LOOK_UP)


def failure(pipeline: str, error: BaseException, state: State | None) -> Event:
    """The event of an error that left the callback.

    Args:
        pipeline: its name.
        error: what was raised.
        state: where the machine stood; ``None``: it was not asked.
    """
    number = state.work.number if state else 0
    return Event(pipeline, EventKind.FAILED, _reason(error, state), number, _generation(state))


def end(state: State) -> Event:
    """The event of an opening that is over, with every epoch that it began in every sink."""
    number = state.opening.last.number if state.opening.last else 0
    return Event(state.job.pipeline, EventKind.ENDED, f"ended after epoch {number}", number, _generation(state))


def ended(events: Iterable[Event]) -> frozenset[int]:
    """Generations of openings that said that they are over."""
    return frozenset(event.generation for event in events if event.kind in ENDS and event.generation)


def _reason(error: BaseException, state: State | None) -> str:
    if isinstance(error, OnceOnlyError):
        return f"{error.code}: {error.what}"
    name = type(error).__name__
    if state is not None and state.phase in _SENT:
        return f"E301: {name} while epoch {state.work.number} was being committed; whether it landed is not known"
    return f"{name} in phase {state.phase.value}" if state else name


def _generation(state: State | None) -> int:
    """The generation whose fence stood; 0 for an opening that had only proposed one, which another may take."""
    if state is None or state.opening.seen is not None:
        return 0
    return state.opening.fence.generation if state.opening.readings or state.opening.last else 0


# ---- What an epoch that is begun and not everywhere means: being written, dead, or outcome unknown. Pure.
#
# ``txn list``, ``watch``, the metrics and the audit all ask here, so that they say the same of one moment. Only the
# last of the three is doubt: an epoch of a driver that runs ends by itself, and one of a driver that has ended, or
# was fenced out, can land no more and leaves nothing to do.

GRACE_S = 60.0
"""Seconds for which an epoch counts as being written, however fast the epochs before it were."""

RECENT = 20
"""How many epochs say how long one takes."""

_UNHURRIED = 2
"""An epoch may take so many times as long as the slowest of the recent ones before it is asked after."""


class Progress(StrEnum):
    """What became of an epoch that was begun."""

    WRITING = "being written"
    DEAD = "begun and dead"
    UNKNOWN = "outcome unknown"


@dataclass(frozen=True, slots=True)
class InDoubtEpoch:
    """An epoch that was begun and is not in every sink.

    Attributes:
        epoch: its number.
        state: what that means.
        fence: who began it; generation 0 where nobody noted it.
        since_ms: when, milliseconds since 1970; 0 where nobody noted it.
        behind: ids of sinks that lack what another sink holds; empty where no sink holds it.
        why: the state's reason, in words.
    """

    epoch: int
    state: Progress
    fence: Fence
    since_ms: int
    behind: tuple[str, ...]
    why: str

    @property
    def overdue(self) -> bool:
        """Whether somebody must look after it; only that is doubt."""
        return self.state is Progress.UNKNOWN

    def age_ms(self, now_ms: int) -> int:
        """How long ago it was begun; 0 where nobody noted it."""
        return max(0, now_ms - self.since_ms) if self.since_ms else 0


@dataclass(frozen=True, slots=True)
class PipelineSnapshot:
    """What is known of a pipeline at one moment.

    Attributes:
        generation: the newest that the ledger, or all sinks, know of.
        newest: number of the newest epoch in any sink; in the ledger, where no sink was asked.
        intents: open intents: for ``newest`` and for the epoch after it.
        events: of the pipeline, oldest first.
        records: its newest epochs.
        now_ms: the moment, milliseconds since 1970.
        stands: number of the newest epoch by sink; empty where no sink was asked.
        grace_s: seconds for which an epoch may be under way.
    """

    generation: int
    newest: int
    intents: tuple[Intent | None, ...]
    events: Sequence[Event]
    records: Sequence[EpochRecord]
    now_ms: int
    stands: Mapping[str, int]
    grace_s: float = GRACE_S


def begun(at: PipelineSnapshot) -> InDoubtEpoch | None:
    """The epoch that was begun and is not in every sink; ``None`` if there is none."""
    behind = tuple(sink for sink, number in at.stands.items() if number < at.newest)
    number = at.newest if behind else at.newest + 1
    intent = next((one for one in at.intents if one and one.epoch == number), None)
    fence, since = (intent.fence, intent.at_ms) if intent else (Fence(0, ""), 0)
    if behind:
        state, why = _partial(at, intent)
    elif intent:
        state, why = _nowhere(at, intent)
    else:
        return None
    return InDoubtEpoch(number, state, fence, since, behind, why)


def _partial(at: PipelineSnapshot, intent: Intent | None) -> tuple[Progress, str]:
    """Some sinks hold it: it is finished by whoever goes on, so only a driver at work makes it none of our business."""
    if intent and _at_work(at, intent):
        return Progress.WRITING, "its driver goes from sink to sink"
    return Progress.UNKNOWN, "some sinks hold it and others do not"


def _nowhere(at: PipelineSnapshot, intent: Intent) -> tuple[Progress, str]:
    if at.generation > intent.fence.generation:
        return Progress.DEAD, f"generation {at.generation} has fenced its driver out"
    end = ending(at.events, intent.fence.generation)
    if end is not None and Family.of(end.code) is Family.OUTCOME:
        return Progress.UNKNOWN, f"its driver stopped without an answer ({end.code})"
    if end is not None:
        return Progress.DEAD, f"its driver ended ({end.code or end.kind})"
    if _at_work(at, intent):
        return Progress.WRITING, "its driver is at work"
    return Progress.UNKNOWN, "nothing was heard of its driver since"


def _at_work(at: PipelineSnapshot, intent: Intent) -> bool:
    if at.generation > intent.fence.generation or ending(at.events, intent.fence.generation):
        return False
    return at.now_ms - intent.at_ms <= patience_ms(at.records, at.grace_s)


def patience_ms(records: Iterable[EpochRecord], grace_s: float = GRACE_S) -> float:
    """For how long an epoch counts as being written, by the time that recent ones took."""
    slowest = max((sum(seconds for _, seconds in record.phases) for record in records), default=0.0)
    return max(grace_s, _UNHURRIED * slowest) * 1000


def ending(events: Sequence[Event], generation: int) -> Event | None:
    """The event with which an opening said that it ended; ``None``: it runs, or it ended without a word."""
    return next((event for event in reversed(events) if event.generation == generation and event.kind in ENDS), None)
