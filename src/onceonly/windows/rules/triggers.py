"""Triggers as pure machines with JSON state, after Beam.

``step(state, event)`` returns the next state and the outcome: the trigger waits, fires, or fires and finishes. A
finished trigger waits for the window to close.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import Any as Unknown
from typing import Literal

from onceonly.windows.rules.assigners import wrong
from onceonly.windows.rules.json_values import Json
from onceonly_checkpoints.epoch_time import milliseconds


class Outcome(Enum):
    """Outcome of a step."""

    WAIT = "wait"
    FIRE = "fire"
    FINISH = "finish"


WAIT, FIRE, FINISH = Outcome.WAIT, Outcome.FIRE, Outcome.FINISH


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows came into the window.

    ``marks`` of them meet the condition of ``AtMark``. ``clock`` is the recorded clock of their epoch.
    """

    count: int
    marks: int
    clock: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A timer came due, at this instant of the recorded clock."""

    clock: int


@dataclass(frozen=True, slots=True)
class Passed:
    """Noted time passed the end of the window."""


Event = Rows | Tick | Passed
Stepped = tuple[Json, Outcome]

DONE = "done"
"""State of a trigger that is finished."""


class Trigger(ABC):
    """Rule for the times at which a window's result is written."""

    @abstractmethod
    def step(self, state: Unknown, event: Event) -> Stepped:
        """Return the next state and outcome. A trigger without any event has state ``None``."""

    def wakes(self, state: Unknown) -> int | None:
        """Return the instant of the recorded clock at which it needs a tick."""
        return None

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The triggers in it."""
        return ()

    @property
    def spelled(self) -> list[Unknown]:
        """Canonical form, equal for equal meaning."""
        return [type(self).__name__, *(part.spelled for part in self.parts)]

    def holds(self, kind: type[Trigger]) -> bool:
        """Whether it is or contains a trigger of this kind."""
        return isinstance(self, kind) or any(part.holds(kind) for part in self.parts)


def advanced(trigger: Trigger, state: Unknown, event: Event) -> Stepped:
    """Step a trigger, finished or not."""
    if state == DONE:
        return DONE, WAIT
    after, outcome = trigger.step(state, event)
    return (DONE if outcome is FINISH else after), outcome


def wakes(trigger: Trigger, state: Unknown) -> int | None:
    """Return the instant of the recorded clock at which a trigger needs a tick, or ``None``."""
    return None if state == DONE else trigger.wakes(state)


@dataclass(frozen=True, slots=True)
class AtPeriod(Trigger):
    """Fires at the next multiple of a period, once rows came. The clock is the recorded one.

    Args:
        period: ``"1 minute"`` of the engine's clock, independent of the rows' times.
    """

    period: str
    number: int = field(init=False, repr=False, compare=False)
    """The period in milliseconds."""

    def __post_init__(self) -> None:
        period_ms = milliseconds(self.period)
        if not period_ms:
            remedy = 'give a time: AtPeriod("1 minute")'
            raise wrong(f"AtPeriod({self.period!r})", "it is no period of the engine's clock", remedy)
        object.__setattr__(self, "number", period_ms)

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Set the timer by the first rows."""
        match event:
            case Rows() if state is None:
                return self.due(event.clock), WAIT
            case Tick() if state is not None and state <= event.clock:
                return None, FINISH
            case _:
                return state, WAIT

    def due(self, clock: int) -> int:
        """Return the next multiple of the period, later than a clock."""
        return clock // self.number * self.number + self.number

    def wakes(self, state: Unknown) -> int | None:
        """Return the instant of the timer."""
        instant: int | None = state
        return instant

    @property
    def spelled(self) -> list[Unknown]:
        """Canonical form with the period."""
        return ["AtPeriod", self.number]


@dataclass(frozen=True, slots=True)
class AtCount(Trigger):
    """Fires once so many rows came."""

    rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.rows, int) or isinstance(self.rows, bool) or self.rows < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong(f"AtCount({self.rows!r})", "it counts rows", "give a whole number from 1 on: AtCount(100)")

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Count the rows."""
        if not isinstance(event, Rows):
            return state, WAIT
        count = (state or 0) + event.count
        return (None, FINISH) if count >= self.rows else (count, WAIT)

    @property
    def spelled(self) -> list[Unknown]:
        """Canonical form with the number."""
        return ["AtCount", self.rows]


@dataclass(frozen=True, slots=True)
class AtMark(Trigger):
    """Fires at a row that meets a condition. Spark SQL on one row, such as the end of a file or a day."""

    condition: str

    def __post_init__(self) -> None:
        if not isinstance(self.condition, str) or not self.condition.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong(
                f"AtMark({self.condition!r})", "it takes a condition", "give one on a row: AtMark(\"kind = 'end'\")"
            )

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Finish at a row that meets the condition."""
        return (None, FINISH) if isinstance(event, Rows) and event.marks else (state, WAIT)

    @property
    def spelled(self) -> list[Unknown]:
        """Canonical form with the condition."""
        return ["AtMark", self.condition]


@dataclass(frozen=True, slots=True)
class Repeat(Trigger):
    """A trigger that begins again when it is finished."""

    trigger: Trigger

    def __post_init__(self) -> None:
        if not isinstance(self.trigger, Trigger):  # pyright: ignore[reportUnnecessaryIsInstance]
            remedy = 'give it one: Repeat(AtPeriod("1 minute"))'
            raise wrong(f"Repeat({self.trigger!r})", "it repeats a trigger", remedy)

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Fire instead of finishing."""
        after, outcome = self.trigger.step(state, event)
        return (None, FIRE) if outcome is FINISH else (after, outcome)

    def wakes(self, state: Unknown) -> int | None:
        """Return the instant of the trigger."""
        return self.trigger.wakes(state)

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The trigger."""
        return (self.trigger,)


class _Several(Trigger):
    """A trigger of several, with a state for each."""

    def _states(self, state: Unknown) -> list[Unknown]:
        return list(state) if state else [None] * len(self.parts)

    def _all(self, state: Unknown, event: Event) -> tuple[list[Json], list[Outcome]]:
        stepped = [
            advanced(part, part_state, event) for part, part_state in zip(self.parts, self._states(state), strict=True)
        ]
        return [after for after, _ in stepped], [outcome for _, outcome in stepped]

    def wakes(self, state: Unknown) -> int | None:
        """Return the earliest instant."""
        instants = [wakes(part, part_state) for part, part_state in zip(self.parts, self._states(state), strict=True)]
        return min([instant for instant in instants if instant is not None], default=None)


@dataclass(frozen=True, slots=True)
class OrFinally(_Several):
    """A trigger until another one finishes, which fires and ends both."""

    trigger: Trigger
    until: Trigger

    def __post_init__(self) -> None:
        if not all(isinstance(part, Trigger) for part in self.parts):  # pyright: ignore[reportUnnecessaryIsInstance]
            remedy = "give it two: OrFinally(Repeat(AtCount(100)), AtWatermark())"
            raise wrong(f"OrFinally{self.parts!r}", "it is made of two triggers", remedy)

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Step both."""
        after, (first, until) = self._all(state, event)
        if FINISH in (first, until):
            return after, FINISH
        return after, FIRE if FIRE in (first, until) else WAIT

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """Both."""
        return (self.trigger, self.until)


@dataclass(frozen=True, slots=True, init=False)
class _Listed(_Several):
    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        if len(triggers) < 2 or not all(isinstance(trigger, Trigger) for trigger in triggers):  # pyright: ignore[reportUnnecessaryIsInstance]
            name = type(self).__name__
            remedy = f"give it triggers: {name}(AtCount(100), AtPeriod('1 minute'))"
            raise wrong(f"{name}{triggers!r}", "it is made of at least two triggers", remedy)
        object.__setattr__(self, "triggers", triggers)

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """All of them."""
        return self.triggers


class Seq(_Listed):
    """Triggers one after the other. Each begins when the one before it is finished."""

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Step the active one only."""
        at, own = state or (0, None)
        after, outcome = self.triggers[at].step(own, event)
        if outcome is not FINISH:
            return [at, after], outcome
        return ([at + 1, None], FIRE) if at + 1 < len(self.triggers) else (None, FINISH)

    def wakes(self, state: Unknown) -> int | None:
        """Return the instant of the active one."""
        at, own = state or (0, None)
        return self.triggers[at].wakes(own)


class All(_Listed):
    """Fires once all of several have fired."""

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Finish a trigger when it fires."""
        after, outcomes = self._all(state, event)
        after = [
            DONE if outcome is not WAIT else part_state for part_state, outcome in zip(after, outcomes, strict=True)
        ]
        return (None, FINISH) if all(part_state == DONE for part_state in after) else (after, WAIT)


class Any(_Listed):
    """Fires once one of several does."""

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Finish when the first one fires."""
        after, outcomes = self._all(state, event)
        return (None, FINISH) if any(outcome is not WAIT for outcome in outcomes) else (after, WAIT)


CLOSING: Literal["closing"] = "closing"


@dataclass(frozen=True, slots=True)
class AtWatermark(Trigger):
    """Fires once the watermark passes the end of the window. ``early`` and ``late`` fire before and after.

    It is ``Seq(OrFinally(Repeat(early), AtWatermark()), Repeat(late))``.

    Args:
        early: fires before that, again and again.
        late: fires for rows that come after it, again and again. ``"closing"``: they are in one last result, when the
            window closes. Default: for each of them, if ``lateness`` takes any and the trigger is not part of another
            one.
    """

    early: Trigger | None = None
    late: Trigger | Literal["closing"] | None = None
    _long: Trigger | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        for name, trigger in (("early", self.early), ("late", None if self.late == CLOSING else self.late)):
            if trigger is not None and (not isinstance(trigger, Trigger) or trigger.holds(AtWatermark)):  # pyright: ignore[reportUnnecessaryIsInstance]
                remedy = f'give one that does not wait for time: AtWatermark({name}=AtPeriod("1 minute"))'
                word = ', or "closing"' if name == "late" else ""
                raise wrong(f"{name}={trigger!r}", f"{name}= takes a trigger for rows or for the clock{word}", remedy)
        if self.parts:
            object.__setattr__(self, "_long", self._spelled_out())

    def _spelled_out(self) -> Trigger:
        first: Trigger = AT_WATERMARK if self.early is None else OrFinally(Repeat(self.early), AT_WATERMARK)
        return first if self.corrects is None else Seq(first, Repeat(self.corrects))

    def step(self, state: Unknown, event: Event) -> Stepped:
        """Step the long form."""
        if self._long is None:
            return (None, FINISH) if isinstance(event, Passed) else (state, WAIT)
        return self._long.step(state, event)

    def wakes(self, state: Unknown) -> int | None:
        """Return the instant of the long form."""
        return None if self._long is None else self._long.wakes(state)

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The triggers for before and after."""
        return tuple(trigger for trigger in (self.early, self.corrects) if trigger)

    @property
    def corrects(self) -> Trigger | None:
        """The trigger for late rows, if one was given."""
        return self.late if isinstance(self.late, Trigger) else None

    @property
    def spelled(self) -> list[Unknown]:
        """Canonical form of the long form."""
        return self._long.spelled if self._long else ["AtWatermark"]


AT_WATERMARK = AtWatermark()
"""With neither."""


def complete_trigger(trigger: Trigger, *, late: bool = False) -> Trigger:
    """Return the trigger of a window: one for rows or for the clock alone is repeated.

    ``late`` is true if rows come into windows whose end is noted. Without a trigger for them each fires, as by the
    default triggers of Beam and Flink.
    """
    if late and isinstance(trigger, AtWatermark) and trigger.late is None:
        return AtWatermark(trigger.early, AtCount(1))
    return Repeat(trigger) if isinstance(trigger, AtPeriod | AtCount | AtMark) else trigger


# ---- Sessions that merge: there is a state of their union only where the rows that wait to be written tell it.


def merges(trigger: Trigger) -> bool:
    """Whether windows with the trigger can merge."""
    match trigger:
        case Repeat(trigger=AtPeriod() | AtCount()):
            return True
        case AtWatermark():
            return all(isinstance(part, AtPeriod | AtCount) for part in trigger.parts)
        case _:
            return False


def united(trigger: Trigger, fresh: int, clock: int, *, passed: bool) -> Json:
    """Return the trigger state of a window that others have merged into, if :func:`merges` is true.

    ``fresh`` counts rows without a result. The timers of these windows have run to ``clock``. ``passed`` is true if
    noted time has passed the window's end.
    """
    if isinstance(trigger, Repeat):
        return _waiting(trigger.trigger, fresh, clock)
    assert isinstance(trigger, AtWatermark)
    if not passed:
        first = None if trigger.early is None else [_waiting(trigger.early, fresh, clock), None]
        return first if trigger.corrects is None else [0, first]
    return DONE if trigger.corrects is None else [1, _waiting(trigger.corrects, fresh, clock)]


def _waiting(leaf: Trigger, fresh: int, clock: int) -> Json:
    if not fresh:
        return None
    if isinstance(leaf, AtPeriod):
        return leaf.due(clock)
    return fresh
