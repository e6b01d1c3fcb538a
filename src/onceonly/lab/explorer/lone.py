"""Progress: in every world, all others dead and no more faults, one driver must get to the end of the source."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from onceonly.lab.checker import Anomaly
from onceonly.lab.explorer.moves import Move, MoveTable
from onceonly.lab.explorer.table import Codes
from onceonly.lab.model.invariants import Violation
from onceonly.lab.model.parts import Left, Target, record_at
from onceonly.lab.model.spark import Checkpoint
from onceonly.lab.model.world import Driver

_FLOOR = 1000
"""The lone driver's generation is above every other, so that its way does not depend on what they were."""

_NUMBER = 26
_LONGEST = 400

ALLOWED = frozenset({"E203", "E204", "E205", "E211"})
"""Refusals of a batch that does not continue the last epoch: right once a checkpoint was damaged, and only then."""


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
        self._verdicts: dict[Codes, str] = {}
        self._unfenced: dict[int, int] = {}

    def judge(self, codes: Codes) -> Violation | None:
        """Why a lone driver would not get to the end; ``None`` if it would."""
        for at, place in enumerate(self._bound.checkpoints):
            checkpoint = cast(Checkpoint | None, self._moves.parts.values[codes[place]])
            if checkpoint is None or checkpoint.gone or checkpoint.unreadable:
                continue
            if complaint := self._verdict(self._alone(codes, at)):
                return Violation(Anomaly.STUCK, f"a lone driver on {checkpoint.name} {complaint}")
        return None

    def _alone(self, codes: Codes, at: int) -> Codes:
        older, newer = self._bound.slots
        alone = list(codes)
        alone[older], alone[newer] = self._fresh[at], self._moves.nothing
        spent = len(alone) - newer - 1
        alone[: self._bound.staging] = [self._without_fence(code) for code in alone[: self._bound.staging]]
        return (*alone[: newer + 1], *[self._none_left] * spent)

    def _without_fence(self, code: int) -> int:
        """The target without its fence: the lone driver installs a higher one before it does anything else."""
        known = self._unfenced.get(code)
        if known is None:
            target = cast(Target, self._moves.parts.values[code])
            known = self._unfenced[code] = self._moves.parts.number(replace(target, fence=None))
        return known

    def _step(self, codes: Codes) -> Move | None:
        """The first thing that can happen: landings are not waited for."""
        return next(iter(self._moves.of_driver(codes, self._bound.slots[0])), None)

    def _verdict(self, codes: Codes) -> str:
        """Complaint about a lone driver, empty for none; the same for every world on its way."""
        way: list[Codes] = []
        verdict: str | None = None
        while verdict is None:
            verdict = self._verdicts.get(codes)
            if verdict is not None:
                break
            way.append(codes)
            move = self._step(codes)
            if move is None or len(way) > _LONGEST:
                verdict = "does not come to an end"
                break
            codes = self._moves.after(codes, move)
            if move.ended is not None:
                verdict = self._ending(codes, move.ended)
        for passed in way:
            self._verdicts[passed] = verdict
        return verdict

    def _ending(self, codes: Codes, ended: Driver) -> str:
        parts = self._moves.parts.decode(codes)
        targets = cast(tuple[Target, ...], parts[: self._bound.staging])
        if len({len(target.held) for target in targets}) > 1:
            return f"leaves the sinks at different epochs ({ended.refusal or 'finished'})"
        if ended.finished:
            ends = {record_at(target.held[-1].epoch.slice.end) if target.held else 0 for target in targets}
            return "" if ends == {self._bound.records} else "finishes before the last record is in every sink"
        damaged = parts[self._bound.checkpoints[1]] is not None
        return "" if damaged and ended.refusal in ALLOWED else f"is refused: {ended.refusal}"

    def story(self, codes: Codes, violation: Violation) -> tuple[str, ...]:
        """The lone driver's steps where it is what failed."""
        if violation.name is not Anomaly.STUCK or "lone driver" not in violation.words:
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
