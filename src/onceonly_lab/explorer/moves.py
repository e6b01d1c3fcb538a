"""Next steps and events in a world of numbers.

Each is computed once per distinct view of the world.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Generic, TypeVar, cast

from onceonly_lab.model.carrier import Carrier
from onceonly_lab.model.events import Events
from onceonly_lab.model.parts import Harm, Left, Target
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.sinks import Fate
from onceonly_lab.model.world import Bound, Change, Driver, Part, World

# ---- Numbers for values: a world becomes a short tuple of integers, and what was computed for its parts is found
# again.

Value = TypeVar("Value", bound=Hashable)

Codes = tuple[int, ...]
"""The numbers of a world's parts, in their places."""


class Table(Generic[Value]):
    """Equal values get one number, counted from 0 in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self.values: list[Value] = []

    def number(self, value: Value) -> int:
        """The number of a value."""
        code = self._numbers.get(value)
        if code is None:
            code = self._numbers[value] = len(self.values)
            self.values.append(value)
        return code

    def encode(self, values: Iterable[Value]) -> Codes:
        """The numbers of several."""
        return tuple(self.number(value) for value in values)

    def decode(self, codes: Iterable[int]) -> tuple[Value, ...]:
        """Inverse of :meth:`encode`."""
        return tuple(self.values[code] for code in codes)


# ---- What can happen next in a world of numbers: the model's steps and events, each computed once for what it sees.


@dataclass(frozen=True, slots=True)
class Move:
    """A change in numbers.

    Attributes:
        words: what happens.
        updates: places with the numbers that stand there afterwards.
        frees: whether a driver's place may become empty.
        ended: the driver that this move ended; ``None`` for none.
        fate: what became of what was sent to a sink.
    """

    words: str
    updates: tuple[tuple[int, int], ...]
    frees: bool = False
    ended: Driver | None = None
    fate: Fate = Fate.ANSWERED


Moves = tuple[Move, ...]

Look = Callable[[Codes], Codes]
"""Picks what a step depends on out of a world."""


@dataclass(frozen=True, slots=True)
class _Event:
    """A kind of event: the places that it looks at, what it tells of them, and what it has told so far.

    ``left`` is the place that says how often it may still happen; ``fatal``, whether no driver survives it.
    """

    places: tuple[int, ...]
    tell: Callable[[World], Iterator[Change]]
    left: int
    fatal: bool = False
    known: dict[Codes, Moves] = field(default_factory=dict[Codes, Moves])


def _events(bound: Bound) -> tuple[list[_Event], list[_Event]]:
    """Landings, which cost a look at the target alone, and the others."""
    events, slots, checkpoints = Events(bound), bound.slots, bound.checkpoints
    landings = [_Event((index,), events.landings, bound.unknowns_left) for index in range(bound.staging)]
    if bound.group:
        places = tuple(bound.sinks.index(sink) for sink in bound.group)
        landings.append(_Event(places, events.landings_beside, bound.unknowns_left))
    others = [
        _Event((*checkpoints, bound.desk, *slots, bound.starts_left), events.starts, bound.starts_left),
        _Event((bound.ledger, bound.losses_left), events.losses, bound.losses_left),
        _Event((*checkpoints, bound.damages_left), events.damages, bound.damages_left),
    ]
    if bound.prunes:
        others.append(_Event((bound.ledger, bound.losses_left), events.prunings, bound.losses_left))
    if bound.reads:
        places = (*range(bound.staging), bound.ledger, bound.losses_left)
        others.append(_Event(places, events.rebuildings, bound.losses_left))
    if bound.leaves_out:
        places = (*range(bound.staging), bound.desk, bound.damages_left)
        others.append(_Event(places, events.leavings, bound.damages_left))
    if bound.loses_files:
        others.append(_Event((checkpoints[0], bound.desk, bound.damages_left), events.vanishings, bound.damages_left))
    if bound.harms:
        left = bound.damages_left
        others += [_Event((index, left), events.harms, left) for index in range(bound.staging)]
        others += [_Event((index,), events.mends, index) for index in range(bound.staging)]
        others += [_Event((index, left, *slots), events.restores, left, fatal=True) for index in range(bound.staging)]
    if Rule.WHOLE in bound.off:
        others.append(_Event((bound.staging, *slots), events.power_failures, bound.staging, fatal=True))
    return landings, others


class MoveTable:
    """Moves of one bound.

    Args:
        bound: what is explored.
    """

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.parts: Table[Part] = Table()
        self.nothing = self.parts.number(None)
        self.none_left = self.parts.number(Left(0))
        self.start = self.parts.encode(bound.start())
        self._carrier = Carrier(bound)
        self._looks: dict[int, dict[int, Look]] = {slot: {} for slot in bound.slots}
        self._steps: dict[int, dict[Codes, Moves]] = {slot: {} for slot in bound.slots}
        self._heads: dict[int, int] = {}
        self.refusals: set[str] = set()
        self._landings, self._events = _events(bound)

    def after(self, codes: Codes, move: Move) -> Codes:
        """The world after a move; the living drivers stand in front."""
        after = list(codes)
        for index, code in move.updates:
            after[index] = code
        if move.frees:
            older, newer = self.bound.slots
            if after[older] == self.nothing != after[newer]:
                after[older], after[newer] = after[newer], self.nothing
        return tuple(after)

    def of_driver(self, codes: Codes, slot: int) -> Moves:
        """The next steps of the driver in a place."""
        code = codes[slot]
        if code == self.nothing:
            return ()
        look = self._looks[slot].get(code)
        if look is None:
            look = self._looks[slot][code] = self._look(code, slot)
        key = look(codes)
        moves = self._steps[slot].get(key)
        if moves is None:
            moves = self._steps[slot][key] = self._taken(codes, slot, key)
        return moves

    def _look(self, code: int, slot: int) -> Look:
        """What a driver's step depends on."""
        driver = cast(Driver, self.parts.values[code])
        places = self._carrier.places(driver)
        if not self._carrier.sees_heads_alone(driver):
            return itemgetter(slot, *places)
        staging, ledger = self.bound.staging, self.bound.ledger
        return lambda codes: (code, *[self.head(target_code) for target_code in codes[:staging]], codes[ledger])

    def head(self, code: int) -> int:
        """A number that is the same for targets with the same fence, the same newest marker and the same identity."""
        head_code = self._heads.get(code)
        if head_code is None:
            target = cast(Target, self.parts.values[code])
            harm = target.harm if target.harm == Harm.REPLACED else ""
            head_code = self._heads[code] = self.parts.number(
                Target(target.name, target.kind, target.fence, target.held[-1:], harm=harm)
            )
        return head_code

    def _taken(self, codes: Codes, slot: int, key: Codes) -> Moves:
        older, newer = self.bound.slots
        other = self._steps[older if slot == newer else newer].get(key)
        if other is not None:
            return tuple(replace(move, updates=_moved(move.updates, slot, (older, newer))) for move in other)
        driver = cast(Driver, self.parts.values[codes[slot]])
        places = self._carrier.places(driver)
        part_codes = tuple(codes[index] for index in places)
        changes = self._carrier.steps(driver, self.parts.decode(part_codes))
        return self._moves((slot, *places), (codes[slot], *part_codes), changes)

    def _moves(self, places: tuple[int, ...], old_codes: Codes, changes: Iterable[Change]) -> Moves:
        moves: list[Move] = []
        for change in changes:
            ended = next((part for part in change.parts if isinstance(part, Driver) and part.over), None)
            if ended is not None and ended.refusal:
                self.refusals.add(ended.refusal)
            parts = (None if isinstance(part, Driver) and part.over else part for part in change.parts)
            codes = self.parts.encode(parts)
            updates = [
                (index, code)
                for index, code, old_code in zip(places, codes, old_codes, strict=True)
                if code != old_code
            ]
            moves.append(Move(change.words, tuple(updates), self.nothing in codes, ended, change.fate))
        return tuple(moves)

    def places(self, code: int) -> tuple[int, ...]:
        """The places that the next step of a driver looks at, besides its own."""
        return self._carrier.places(cast(Driver, self.parts.values[code]))

    def sees_heads_alone(self, code: int) -> bool:
        """Whether of the targets the next step of a driver reads fence and newest marker, and changes none of them."""
        return self._carrier.sees_heads_alone(cast(Driver, self.parts.values[code]))

    def of_events(self, codes: Codes) -> list[Move]:
        """Everything else that can happen."""
        return [move for _, move in self.happenings(codes)]

    def happenings(self, codes: Codes) -> Iterator[tuple[bool, Move]]:
        """Everything else that can happen, each with whether no driver survives it."""
        unknowns = self.bound.unknowns_left
        if codes[unknowns] != self.start[unknowns]:
            for landing in self._landings:
                yield from ((False, move) for move in self._happenings(codes, landing))
        for event in self._events:
            if codes[event.left] != self.none_left:
                yield from ((event.fatal, move) for move in self._happenings(codes, event))

    def _happenings(self, codes: Codes, event: _Event) -> Moves:
        key = tuple([codes[index] for index in event.places])
        moves = event.known.get(key)
        if moves is None:
            moves = event.known[key] = self._moves(event.places, key, event.tell(self.parts.decode(key)))
        return moves

    def all(self, codes: Codes) -> list[Move]:
        """Everything that can happen."""
        older, newer = self.bound.slots
        return [*self.of_driver(codes, older), *self.of_driver(codes, newer), *self.of_events(codes)]


def _moved(updates: tuple[tuple[int, int], ...], slot: int, slots: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """What a driver's step updates, for the same driver in the other slot."""
    return tuple((slot if index in slots else index, code) for index, code in updates)
