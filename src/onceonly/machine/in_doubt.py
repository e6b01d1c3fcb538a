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
    """Return the event of an error that left the callback. Without ``state`` the machine had not started."""
    number = state.work.number if state else 0
    return Event(pipeline, EventKind.FAILED, _reason(error, state), number, _generation(state))


def end(state: State) -> Event:
    """Return the event of an opening that ended with every begun epoch in every sink."""
    number = state.opening.last.number if state.opening.last else 0
    return Event(state.job.pipeline, EventKind.ENDED, f"ended after epoch {number}", number, _generation(state))


def ended(events: Iterable[Event]) -> frozenset[int]:
    """Return the generations of openings whose end is recorded."""
    return frozenset(event.generation for event in events if event.kind in ENDS and event.generation)


def _reason(error: BaseException, state: State | None) -> str:
    if isinstance(error, OnceOnlyError):
        return f"{error.code}: {error.what}"
    name = type(error).__name__
    if state is not None and state.phase in _SENT:
        return f"E301: {name} while epoch {state.work.number} was being committed; whether it landed is not known"
    return f"{name} in phase {state.phase.value}" if state else name


def _generation(state: State | None) -> int:
    """Return the installed generation. 0 for an opening that only proposed one, which another may take."""
    if state is None or state.opening.peek is not None:
        return 0
    return state.opening.fence.generation if state.opening.readings or state.opening.last else 0


# ---- What an epoch that is begun and not everywhere means: being written, dead, or outcome unknown. Pure.
#
# ``status``, the metrics and the audit all ask here, so that they say the same of one moment. Only the
# last of the three is doubt: an epoch of a driver that runs ends by itself, and one of a driver that has ended, or
# was fenced out, can land no more and leaves nothing to do.

GRACE_S = 60.0
"""Seconds for which an epoch counts as being written, however fast the epochs before it were."""

RECENT = 20
"""How many epochs say how long one takes."""

_UNHURRIED = 2
"""An epoch may take so many times as long as the slowest of the recent ones before it is asked after."""


class Progress(StrEnum):
    """State of an epoch that was begun."""

    WRITING = "being written"
    DEAD = "abandoned"
    UNKNOWN = "outcome unknown"


@dataclass(frozen=True, slots=True)
class InDoubtEpoch:
    """An epoch that was begun and is not in every sink.

    Attributes:
        fence: of the driver that began it. Generation 0 if none was noted.
        since_ms: its begin, milliseconds since 1970, or 0 if not noted.
        behind: ids of sinks that lack an epoch of another sink. Empty if no sink holds it.
    """

    epoch: int
    state: Progress
    fence: Fence
    since_ms: int
    behind: tuple[str, ...]
    why: str

    @property
    def overdue(self) -> bool:
        """Whether an operator must look after it. Only that is doubt."""
        return self.state is Progress.UNKNOWN

    def age_ms(self, now_ms: int) -> int:
        """Return milliseconds since its begin, or 0 if not noted."""
        return max(0, now_ms - self.since_ms) if self.since_ms else 0


@dataclass(frozen=True, slots=True)
class PipelineSnapshot:
    """Facts about a pipeline at one moment.

    Attributes:
        generation: the newest one in the ledger or in all sinks.
        newest: number of the newest epoch in any sink. In the ledger if no sink was read.
        intents: open intents for ``newest`` and for the epoch after it.
        events: of the pipeline, oldest first.
        now_ms: the moment, milliseconds since 1970.
        sink_epochs: number of the newest epoch by sink. Empty if no sink was read.
        grace_s: seconds for which an epoch may be in progress.
    """

    generation: int
    newest: int
    intents: tuple[Intent | None, ...]
    events: Sequence[Event]
    records: Sequence[EpochRecord]
    now_ms: int
    sink_epochs: Mapping[str, int]
    grace_s: float = GRACE_S


def begun(at: PipelineSnapshot) -> InDoubtEpoch | None:
    """Return the epoch that was begun and is not in every sink, or ``None``."""
    behind = tuple(sink for sink, number in at.sink_epochs.items() if number < at.newest)
    number = at.newest if behind else at.newest + 1
    intent = next((candidate for candidate in at.intents if candidate and candidate.epoch == number), None)
    fence, since = (intent.fence, intent.at_ms) if intent else (Fence(0, ""), 0)
    if behind:
        state, why = _partial(at, intent)
    elif intent:
        state, why = _nowhere(at, intent)
    else:
        return None
    return InDoubtEpoch(number, state, fence, since, behind, why)


def _partial(at: PipelineSnapshot, intent: Intent | None) -> tuple[Progress, str]:
    """Judge an epoch that some sinks hold. The next driver finishes it, so only a driver at work leaves no doubt."""
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
    """Return how long an epoch counts as being written, by the duration of recent ones."""
    slowest = max((sum(seconds for _, seconds in record.phases) for record in records), default=0.0)
    return max(grace_s, _UNHURRIED * slowest) * 1000


def ending(events: Sequence[Event], generation: int) -> Event | None:
    """Return the event that ended an opening. ``None`` if it runs, or if it died without one."""
    return next((event for event in reversed(events) if event.generation == generation and event.kind in ENDS), None)
