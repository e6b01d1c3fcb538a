"""Progress: in every world, all others dead and no more faults, one driver must get to the end of the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, cast

from onceonly.lab.checker import Anomaly
from onceonly.lab.explorer.moves import Move, MoveTable
from onceonly.lab.explorer.table import Codes
from onceonly.lab.model.invariants import ALLOWED, Violation
from onceonly.lab.model.parts import Left, StagingArea, Target, records
from onceonly.lab.model.spark import Checkpoint
from onceonly.lab.model.world import Driver

_FLOOR = 1000
"""The lone driver's generation is above every other, so that its way does not depend on what they were."""

_NUMBER = 26
_LONGEST = 400


class _Complaint(NamedTuple):
    """What is wrong with a lone driver's way."""

    name: Anomaly
    words: str


class Lone:
    """Runs a lone driver on each checkpoint of a world.

    Args:
        moves: the bound's moves.
    """

    def __init__(self, moves: MoveTable) -> None:
        self._moves = moves
        self._bound = moves.bound
        self._none_left = moves.parts.number(Left(0))
        self._fresh = [moves.parts.number(Driver(_NUMBER, at, floor=_FLOOR)) for at in range(2)]
        self._verdicts: dict[Codes, _Complaint | None] = {}
        self._bare: dict[int, int] = {}
        self._needed: dict[tuple[int, Codes], int] = {}
        self._elsewhere = moves.parts.number(Checkpoint("another", "", gone=True))

    def judge(self, codes: Codes) -> Violation | None:
        """Why a lone driver would not get to the end; ``None`` if it would."""
        for at, place in enumerate(self._bound.checkpoints):
            checkpoint = cast(Checkpoint | None, self._moves.parts.values[codes[place]])
            if checkpoint is None or checkpoint.gone or checkpoint.unreadable:
                continue
            if complaint := self._verdict(self._alone(codes, at)):
                return Violation(complaint.name, f"a lone driver on {checkpoint.name} {complaint.words}")
        return None

    def _alone(self, codes: Codes, at: int) -> Codes:
        """A lone driver on one checkpoint, without all that it cannot tell: most worlds are one to it."""
        bound = self._bound
        older, newer = bound.slots
        targets = tuple([self._barely(code) for code in codes[: bound.staging]])
        alone = list(codes)
        alone[: bound.staging] = targets
        alone[bound.staging] = self._named(codes[bound.staging], targets)
        other = bound.checkpoints[1 - at]
        if alone[other] != self._moves.nothing:
            alone[other] = self._elsewhere
        alone[older], alone[newer] = self._fresh[at], self._moves.nothing
        return (*alone[: newer + 1], *[self._none_left] * (len(alone) - newer - 1))

    def _barely(self, code: int) -> int:
        """The target without its fence, below the one that the lone driver installs before it does anything else.

        Where all rules are kept that fence also ends what is in flight, unless it has been decided.
        """
        known = self._bare.get(code)
        if known is None:
            target = replace(cast(Target, self._moves.parts.values[code]), fence=None)
            if not self._bound.off:
                decided = tuple(flight for flight in target.flights if flight.decided)
                target = replace(target, flights=decided, turn=0)
            known = self._bare[code] = self._moves.parts.number(target)
        return known

    def _named(self, code: int, targets: Codes) -> int:
        """The staging area without what no target names: where all rules are kept, nobody looks for it."""
        if self._bound.off:
            return code
        known = self._needed.get((code, targets))
        if known is None:
            values = self._moves.parts.values
            named = {name for target in targets for name in _names(cast(Target, values[target]))}
            area = cast(StagingArea, values[code])
            kept = StagingArea(tuple(one for one in area.epochs if one.reference in named))
            known = self._needed[code, targets] = self._moves.parts.number(kept)
        return known

    def _step(self, codes: Codes) -> Move | None:
        """The first thing that can happen: landings are not waited for."""
        return next(iter(self._moves.of_driver(codes, self._bound.slots[0])), None)

    def _verdict(self, codes: Codes) -> _Complaint | None:
        """Complaint about a lone driver, if there is one; the same for every world on its way."""
        way: list[Codes] = []
        while codes not in self._verdicts:
            way.append(codes)
            move = self._step(codes)
            if move is None or len(way) > _LONGEST:
                self._verdicts[codes] = _Complaint(Anomaly.STUCK, "does not come to an end")
                break
            codes = self._moves.after(codes, move)
            if move.ended is not None:
                self._verdicts[codes] = self._ending(codes, move.ended)
        verdict = self._verdicts[codes]
        self._verdicts.update(dict.fromkeys(way, verdict))
        return verdict

    def _ending(self, codes: Codes, ended: Driver) -> _Complaint | None:
        parts = self._moves.parts.decode(codes)
        targets = cast(tuple[Target, ...], parts[: self._bound.staging])
        if len({len(target.held) for target in targets}) > 1:
            words = f"leaves the sinks at different epochs ({ended.refusal or 'finished'})"
            return _Complaint(Anomaly.STUCK, words)
        if ended.finished:
            last = [target.held[-1].epoch if target.held else None for target in targets]
            ends = {records(epoch.slice, epoch.sources)[1] if epoch else 0 for epoch in last}
            if ends == {self._bound.records}:
                return None
            return _Complaint(Anomaly.LOSS, "finishes before the last record is in every sink")
        damaged = parts[self._bound.checkpoints[1]] is not None
        if damaged and ended.refusal in ALLOWED:
            return None
        return _Complaint(Anomaly.STUCK, f"is refused: {ended.refusal}")

    def story(self, codes: Codes, violation: Violation) -> tuple[str, ...]:
        """The lone driver's steps where it is what failed."""
        if violation != self.judge(codes):
            return ()
        for at in range(2):
            if codes[self._bound.checkpoints[at]] != self._moves.nothing and self._verdict(self._alone(codes, at)):
                return ("everybody else stops for good; driver Z starts", *self._steps(self._alone(codes, at)))
        return ()

    def _steps(self, codes: Codes) -> tuple[str, ...]:
        steps: list[str] = []
        while (move := self._step(codes)) is not None and len(steps) < _LONGEST:
            steps.append(move.words)
            if move.ended is not None:
                break
            codes = self._moves.after(codes, move)
        return tuple(steps)


def _names(target: Target) -> Iterator[str | None]:
    """References to staged bytes in a target, and in what lands in it for certain."""
    if target.newest:
        yield target.newest.epoch.manifest
    yield from (flight.held.epoch.manifest for flight in target.flights if flight.held)
