"""Check progress and invariants over worlds of numbers.

Progress: one driver alone must get to the end of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple, cast

from onceonly_lab.checker import Anomaly
from onceonly_lab.explorer.moves import Codes, Move, MoveTable, Table
from onceonly_lab.model import invariants, operator
from onceonly_lab.model.invariants import Breach, Check, Name, Violation
from onceonly_lab.model.keys import alike
from onceonly_lab.model.parts import (
    DROPPED,
    NOBODY,
    Desk,
    Left,
    SimulatedLedger,
    StagingArea,
    Target,
    accounted,
    between,
)
from onceonly_lab.model.spark import Checkpoint
from onceonly_lab.model.ways import Situation
from onceonly_lab.model.world import Bound, Driver, Part

# ---- The invariants over worlds of numbers: each is asked only where what it looks at is new.


class Judge:
    """What is broken in a world.

    Args:
        parts: the numbers of parts.
        bound: the layout.
    """

    def __init__(self, parts: Table[Part], bound: Bound) -> None:
        self._values = parts.values
        self._checks = [self._asked_once(check) for check in invariants.checks(bound)]

    def __call__(self, codes: Codes) -> Violation | None:
        """The first invariant that does not hold; only what drivers share is looked at."""
        for check in self._checks:
            if (violation := check(codes)) is not None:
                return violation
        return None

    def _asked_once(self, check: Check) -> Callable[[Codes], Violation | None]:
        look, violations, values = itemgetter(*check.places), dict[object, Violation | None](), self._values

        def ask(codes: Codes) -> Violation | None:
            key = look(codes)
            if key not in violations:
                violations[key] = check.judge(tuple(values[codes[index]] for index in check.places))
            return violations[key]

        return ask


# ---- Progress: in every world, all others dead and no more faults, one driver must get to the end of the source.

_FLOOR = 1000
"""The lone driver's generation is above every other, so that its way does not depend on what they were."""

_NUMBER = 26
_LONGEST = 400


class _Complaint(NamedTuple):
    """What is wrong with a lone driver's way."""

    name: Name
    words: str
    harm: bool = False
    """Whether rows were lost or doubled: a driver that is only stopped can be helped yet."""


class Lone:
    """Runs a lone driver on each checkpoint of a world.

    Args:
        moves: the bound's moves.
        judge: the invariants.
    """

    def __init__(self, moves: MoveTable, judge: Judge) -> None:
        self._moves = moves
        self._judge = judge
        self._bound = moves.bound
        self._none_left = moves.parts.number(Left(0))
        self._fresh = [moves.parts.number(Driver(_NUMBER, at, floor=_FLOOR)) for at in range(2)]
        self._verdicts: dict[Codes, _Complaint | None] = {}
        self._bare: dict[int, int] = {}
        self._needed: dict[tuple[int, Codes], int] = {}
        self._elsewhere = moves.parts.number(Checkpoint("another", "", gone=True))

    def judge(self, codes: Codes) -> Violation | None:
        """Why a lone driver would not get to the end; ``None`` if it would."""
        for at, checkpoint_index in enumerate(self._bound.checkpoints):
            checkpoint = cast(Checkpoint | None, self._moves.parts.values[codes[checkpoint_index]])
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
        bare_code = self._bare.get(code)
        if bare_code is None:
            target = cast(Target, self._moves.parts.values[code])
            target = replace(target, fence=None, changed=target.changed and NOBODY)
            if not self._bound.off:
                decided = tuple(flight for flight in target.flights if flight.decided)
                target = replace(target, flights=decided, turn=0)
            bare_code = self._bare[code] = self._moves.parts.number(target)
        return bare_code

    def _named(self, code: int, targets: Codes) -> int:
        """The staging area without what no target names: where all rules are kept, nobody looks for it."""
        if self._bound.off:
            return code
        needed_code = self._needed.get((code, targets))
        if needed_code is None:
            values = self._moves.parts.values
            named = {name for target in targets for name in _names(cast(Target, values[target]))}
            area = cast(StagingArea, values[code])
            needed_area = StagingArea(tuple(epoch for epoch in area.epochs if epoch.reference in named))
            needed_code = self._needed[code, targets] = self._moves.parts.number(needed_area)
        return needed_code

    def _step(self, codes: Codes) -> Move | None:
        """The first thing that can happen: landings are not waited for."""
        return next(iter(self._moves.of_driver(codes, self._bound.slots[0])), None)

    def _verdict(self, codes: Codes) -> _Complaint | None:
        """Complaint about a lone driver, if there is one; the same for every world on its way."""
        path: list[Codes] = []
        while codes not in self._verdicts:
            path.append(codes)
            move = self._step(codes)
            if move is None or len(path) > _LONGEST:
                self._verdicts[codes] = _Complaint(Anomaly.STUCK, "does not come to an end")
                break
            codes = self._moves.after(codes, move)
            if move.ended is not None:
                self._verdicts[codes] = self._unnamed(codes) or self._ending(codes, move.ended)
            elif complaint := self._unnamed(codes):
                self._verdicts[codes] = complaint
        verdict = self._verdicts[codes]
        self._verdicts.update(dict.fromkeys(path, verdict))
        return verdict

    def _unnamed(self, codes: Codes) -> _Complaint | None:
        """What is broken after a command was obeyed: before that, every world is judged where it is found."""
        values, bound = self._moves.parts.values, self._bound
        desk = cast(Desk, values[codes[bound.desk]])
        if not desk.obeyed and not desk.cut:
            return None
        violation = self._judge(codes)
        return (
            _Complaint(Breach.UNNAMED, f"went on: {violation.name}, {violation.words}", harm=True)
            if violation
            else None
        )

    # ---- the operator

    def _obeyed(self, codes: Codes, ended: Driver) -> list[tuple[bool, str, Codes]]:
        """The worlds after each command that a refusal prints, with a fresh lone driver."""
        bound = self._bound
        stop, wreck = self._wrecked(codes, ended)
        worlds: list[tuple[bool, str, Codes]] = []
        vanish = bound.loses_files and bool(bound.harms)
        each = operator.after_each(
            stop, wreck, errs=bound.errs, cuts=bound.cuts, meanwhile=bound.meanwhile, vanish=vanish
        )
        for is_printed, words, after in each:
            parts: tuple[Part, ...] = (*after.targets, after.staging, after.ledger)
            world = list(codes)
            world[: len(parts)] = self._moves.parts.encode(parts)
            world[bound.checkpoints[ended.at]] = self._moves.parts.number(after.checkpoint)
            world[bound.desk] = self._moves.parts.number(after.desk)
            worlds.append((is_printed, words, self._alone(tuple(world), ended.at)))
        return worlds

    def _wrecked(self, codes: Codes, ended: Driver) -> tuple[operator.Stop, operator.Wreck]:
        bound, parts = self._bound, self._moves.parts.decode(codes)
        assert ended.stopped is not None
        assert ended.planned is not None
        checkpoint = cast(Checkpoint, parts[bound.checkpoints[ended.at]])
        targets = cast(tuple[Target, ...], parts[: bound.staging])
        staging, ledger = cast(tuple[StagingArea, SimulatedLedger], parts[bound.staging : bound.ledger + 1])
        desk = cast(Desk, parts[bound.desk])
        wreck = operator.Wreck(targets, staging, ledger, checkpoint, desk, bound.records)
        return operator.stop_of(ended.stopped, ended.planned, wreck)

    def _way_out(self, codes: Codes, ended: Driver) -> _Complaint | None:
        """Why some printed command does not lead on."""
        if self._weary(codes):
            return _Complaint(Breach.UNNAMED, f"is refused again: {ended.refusal}")
        for is_printed, words, after in self._obeyed(codes, ended):
            complaint = self._verdict(after)
            if complaint and (is_printed or complaint.harm):
                text = complaint.words.split("; after ")[0]
                return _Complaint(Breach.UNNAMED, f"{text}; after {words}", complaint.harm)
        return None

    def _weary(self, codes: Codes) -> bool:
        """Whether the query must go on by now; a command that was killed is obeyed once more."""
        desk = cast(Desk, self._moves.parts.values[codes[self._bound.desk]])
        return desk.obeyed >= self._bound.obeys + desk.cut

    def _ending(self, codes: Codes, ended: Driver) -> _Complaint | None:
        parts = self._moves.parts.decode(codes)
        every = cast(tuple[Target, ...], parts[: self._bound.staging])
        targets = [target for target in every if target.harm != DROPPED]
        opened = any(target.fence for target in targets)
        if self._explained(parts, ended):
            return self._way_out(codes, ended) if ended.stopped else None
        if ended.finished and any(target.broken for target in targets) and not (self._bound.obeys and opened):
            return None  # whoever had opened it before it was harmed is not told; the next opening is
        if len({target.held[-1].epoch.number if target.held else 0 for target in targets}) > 1:
            words = f"leaves the sinks at different epochs ({ended.refusal or 'finished'})"
            return _Complaint(Anomaly.STUCK, words)
        if ended.finished:
            desk, records = cast(Desk, parts[self._bound.desk]), between(0, self._bound.records)
            if all(_whole(target, desk, records, self._bound.keys) for target in targets):
                return None
            words = "finishes before the last record is in every sink"
            return _Complaint(Anomaly.LOSS, words, harm=True)
        return _Complaint(Anomaly.STUCK, f"is refused: {ended.refusal}")

    def _explained(self, parts: tuple[Part, ...], ended: Driver) -> bool:
        """Whether what the refusal says is so."""
        bound = self._bound
        staging, ledger = cast(tuple[StagingArea, SimulatedLedger], parts[bound.staging : bound.ledger + 1])
        checkpoint, desk = cast(Checkpoint, parts[bound.checkpoints[ended.at]]), cast(Desk, parts[bound.desk])
        every = cast(tuple[Target, ...], parts[: bound.staging])
        targets = tuple(target for target in every if target.harm != DROPPED)
        now = Situation(targets, staging, ledger, checkpoint, desk, ended.planned, bound.source, bound.trims)
        return now.explains(ended.refusal)

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
            codes = self._moves.after(codes, move)
            if move.ended is None:
                if self._unnamed(codes):
                    break
                continue
            bad = self._bad_way(codes, move.ended)
            if bad is None:
                break
            steps += [bad[0], "driver Z is started again"]
            codes = bad[1]
        return tuple(steps)

    def _bad_way(self, codes: Codes, ended: Driver) -> tuple[str, Codes] | None:
        """The command that does not lead on, with the world after it."""
        if ended.stopped is None or self._weary(codes) or self._unnamed(codes):
            return None
        for is_printed, words, after in self._obeyed(codes, ended):
            complaint = self._verdict(after)
            if complaint and (is_printed or complaint.harm):
                return words, after
        return None


def _whole(target: Target, desk: Desk, records: int, keys: tuple[int, ...]) -> bool:
    held = desk.given_up(target.name)
    for held_epoch in target.held:
        held |= accounted(held_epoch, target.name)
    return alike(held, keys) == records


def _names(target: Target) -> Iterator[str | None]:
    """References to staged bytes in a target, and in what lands in it for certain."""
    if target.newest:
        yield target.newest.epoch.manifest
    yield from (flight.held.epoch.manifest for flight in target.flights if flight.held)
