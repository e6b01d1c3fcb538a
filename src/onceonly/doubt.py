"""What an epoch that was begun and is not everywhere means: being written, begun and dead, or outcome unknown. Pure.

``txn list``, ``watch``, the metrics and the audit all ask here, so that they say the same of one moment. Only the last
of the three is doubt: an epoch of a driver that runs ends by itself, and one of a driver that has ended, or was fenced
out, can land no more and leaves nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from onceonly.endings import ENDS
from onceonly_checkpoints.epoch import EpochRecord, Fence
from onceonly_checkpoints.ledger import Event, Intent

GRACE_S = 60.0
"""Seconds for which an epoch counts as being written, however fast the epochs before it were."""

RECENT = 20
"""How many epochs say how long one takes."""

_UNHURRIED = 2
"""An epoch may take so many times as long as the slowest of the recent ones before it is asked after."""


class State(StrEnum):
    """What became of an epoch that was begun."""

    WRITING = "being written"
    DEAD = "begun and dead"
    UNKNOWN = "outcome unknown"


@dataclass(frozen=True, slots=True)
class Begun:
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
    state: State
    fence: Fence
    since_ms: int
    behind: tuple[str, ...]
    why: str

    @property
    def overdue(self) -> bool:
        """Whether somebody must look after it; only that is doubt."""
        return self.state is State.UNKNOWN

    def age_ms(self, now_ms: int) -> int:
        """How long ago it was begun; 0 where nobody noted it."""
        return max(0, now_ms - self.since_ms) if self.since_ms else 0


@dataclass(frozen=True, slots=True)
class Moment:
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


def begun(at: Moment) -> Begun | None:
    """The epoch that was begun and is not in every sink; ``None`` if there is none."""
    behind = tuple(sink for sink, number in at.stands.items() if number < at.newest)
    number = at.newest if behind else at.newest + 1
    intent = next((one for one in at.intents if one and one.epoch == number), None)
    if intent is None and not behind:
        return None
    fence, since = (intent.fence, intent.at_ms) if intent else (Fence(0, ""), 0)
    state, why = _partial(at, intent) if behind else _nowhere(at, intent)
    return Begun(number, state, fence, since, behind, why)


def _partial(at: Moment, intent: Intent | None) -> tuple[State, str]:
    """Some sinks hold it: it is finished by whoever goes on, so only a driver at work makes it none of our business."""
    if intent and _at_work(at, intent):
        return State.WRITING, "its driver goes from sink to sink"
    return State.UNKNOWN, "some sinks hold it and others do not"


def _nowhere(at: Moment, intent: Intent | None) -> tuple[State, str]:
    assert intent is not None
    if at.generation > intent.fence.generation:
        return State.DEAD, f"generation {at.generation} has fenced its driver out"
    end = ending(at.events, intent.fence.generation)
    if end is not None and (end.code or "").startswith("E3"):
        return State.UNKNOWN, f"its driver stopped without an answer ({end.code})"
    if end is not None:
        return State.DEAD, f"its driver ended ({end.code or end.kind})"
    if _at_work(at, intent):
        return State.WRITING, "its driver is at work"
    return State.UNKNOWN, "nothing was heard of its driver since"


def _at_work(at: Moment, intent: Intent) -> bool:
    if at.generation > intent.fence.generation or ending(at.events, intent.fence.generation):
        return False
    return at.now_ms - intent.at_ms <= patience_ms(at.records, at.grace_s)


def patience_ms(records: Iterable[EpochRecord], grace_s: float = GRACE_S) -> float:
    """For how long an epoch counts as being written, by the time that recent ones took."""
    slowest = max((sum(seconds for _, seconds in record.phases) for record in records), default=0.0)
    return max(grace_s, _UNHURRIED * slowest) * 1000


def ending(events: Sequence[Event], generation: int) -> Event | None:
    """The event with which an opening said that it ended; ``None``: it runs, or it ended without a word."""
    return next((one for one in reversed(events) if one.generation == generation and one.kind in ENDS), None)
