"""What the drivers of one schedule share: targets, staging, ledger, checkpoints, a clock of steps, what goes wrong.

Everything that somebody else can see goes through :meth:`Scene.step` before and :meth:`Scene.told` after it happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from onceonly.faults import Point
from onceonly_checkpoints.ledger import Intent
from onceonly_lab.checker import Anomaly
from onceonly_lab.fuzzer.scribe import Scribe
from onceonly_lab.fuzzer.watch import Watched, marked
from onceonly_lab.model import invariants
from onceonly_lab.model.invariants import Violation
from onceonly_lab.model.operator import Stop, Wreck, obey, ways
from onceonly_lab.model.parts import Desk, Harm, SimulatedLedger, StagedEpoch, StagingArea, Target, harmed
from onceonly_lab.model.rules import ALL_KEPT, Rule
from onceonly_lab.model.sinks import Fate, Reply, Wire
from onceonly_lab.model.spark import SHARED, Checkpoint, Damage, Planned, Source, damaged
from onceonly_lab.model.world import Bound
from onceonly_lab.schedule import Action, Fault, Schedule

_FATES = {
    Action.LOSE_ANSWER: Fate.ANSWER_LOST,
    Action.LOSE_REQUEST: Fate.REQUEST_LOST,
    Action.DELAY: Fate.IN_FLIGHT,
    Action.HIDE: Fate.HIDDEN,
}
_LONGEST = 5000


class Killed(BaseException):
    """Ends a driver where it stands: nothing on its way out takes it for a lost answer."""


class Broken(BaseException):
    """An invariant does not hold. No error of the product's, so the product cannot handle it."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.words)
        self.violation = violation


@dataclass
class Process:
    """A driver's process.

    Attributes:
        number: counted from 1 in the order of starts.
        at: which checkpoint it runs on.
        dead: whether it was killed: nothing that it still calls has any effect.
        finished: whether the source had nothing more for it.
        refusal: why it stopped; empty while it has not.
        stop: why it was refused, for the operator.
        due: what goes wrong with the request that it is about to send.
        computed: how often it has computed a batch.
        planned: the batch that it was handed last; ``None`` before the first.
        watched: what it met on its way.
    """

    number: int
    at: int
    dead: bool = False
    finished: bool = False
    refusal: str = ""
    stop: Stop | None = None
    due: tuple[Fault, ...] = ()
    computed: int = 0
    planned: Planned | None = None
    watched: Watched = field(default_factory=Watched)

    @property
    def name(self) -> str:
        """``driver A`` for the first."""
        return f"driver {chr(ord('A') + self.number - 1)}"

    @property
    def owner(self) -> str:
        """The token that an opening draws at random, without chance."""
        return f"owner-{self.number}"

    @property
    def salt(self) -> int:
        """Tells what it computes next from what anybody else does."""
        self.computed += 1
        return 10_000 * self.number + self.computed


def bound_of(schedule: Schedule, off: frozenset[Rule] = ALL_KEPT) -> Bound:
    """The sizes of a schedule's world."""
    return Bound(
        schedule.sinks,
        schedule.records,
        max(schedule.cuts),
        off=off,
        fine=True,
        source=Source(schedule.files, schedule.begins, schedule.stateful),
        trims=schedule.trims,
        stages=schedule.stages,
    )


class Scene:
    """The state of one run.

    Args:
        schedule: what is run.
        off: rules that are not kept.
        refusals: codes that are a right answer to what goes wrong.
    """

    def __init__(self, schedule: Schedule, off: frozenset[Rule], refusals: frozenset[str]) -> None:
        self.schedule = schedule
        self.off = off
        self.bound = bound_of(schedule, off)
        self.wire = Wire(off, fine=True)
        self.targets = {name: Target(name, kind) for name, kind in zip(self.bound.sinks, schedule.sinks, strict=True)}
        self.staging = StagingArea()
        self.ever_staged: dict[str, StagedEpoch] = {}
        self.ledger = SimulatedLedger()
        self.desk = Desk()
        self.checkpoints = [Checkpoint("the checkpoint", "query")]
        self.steps: list[str] = []
        self.passed: Counter[tuple[int, Point]] = Counter()
        self.acted: set[Fault] = set()
        self.scribe = Scribe(schedule, self.bound.sinks, refusals)
        self.before_step: Callable[[Process], None] = lambda process: None
        self.suffer: Callable[[Process, tuple[Fault, ...]], None] = lambda process, faults: None
        self.actors: Counter[str] = Counter()
        self.intents: dict[int, Intent] = {}
        self._landings: list[int] = []
        self._cuts = 0
        self._checks = invariants.checks(self.bound)

    # ---- steps

    def step(self, process: Process) -> None:
        """Something is about to happen that others can see.

        Raises:
            Killed: to a process that is dead.
            Broken: there is no end.
        """
        self.alive(process)
        if len(self.steps) > _LONGEST:
            raise Broken(Violation(Anomaly.STUCK, f"no end after {_LONGEST} steps"))
        self.before_step(process)

    def alive(self, process: Process) -> None:
        """Go no further in a process that is dead.

        Raises:
            Killed: it is.
        """
        if process.dead:
            raise Killed

    def told(self, words: str) -> None:
        """It has happened."""
        self.steps.append(words)
        self.judge()
        self.land()

    def change(self, target: Target) -> None:
        """A target is another one now."""
        was, self.targets[target.name] = self.targets[target.name], target
        if was.held != target.held:
            self.scribe.read(target)

    def land(self, *, everything: bool = False) -> None:
        """What was delayed lands once its time has come, if it still can."""
        for when in [when for when in self._landings if everything or when <= len(self.steps)]:
            self._landings.remove(when)
            late = next((reply for one in self.targets.values() for reply in self.wire.landings(one)), None)
            if late is not None:
                self.change(late.target)
                self.steps.append(late.words)
                self.judge()

    def judge(self) -> None:
        """Find what does not hold in the world as it is now.

        Raises:
            Broken: an invariant does not.
        """
        second = self.checkpoints[1] if len(self.checkpoints) > 1 else None
        shared = (*self.targets.values(), self.staging, self.ledger, self.checkpoints[0], second, self.desk)
        violation = invariants.first_broken(self._checks, shared)
        if violation is not None:
            raise Broken(violation)

    def stops(self, process: Process, code: str) -> None:
        """A driver ends with an error of the product's.

        Raises:
            Broken: it has stopped somebody, and could have known that it will be refused itself.
        """
        self.targets = marked(process.watched, process.owner, code, self.targets, self.ledger)
        self.steps.append(f"{process.name} stops: {code}")
        self.judge()

    def cut(self, ways: int) -> int:
        """Which of so many ways to cut a batch is taken."""
        cuts = self.schedule.cuts
        self._cuts += 1
        return min(cuts[(self._cuts - 1) % len(cuts)], ways) - 1

    # ---- what goes wrong

    def faults(self, number: int, point: Point) -> tuple[Fault, ...]:
        """A point is passed: what goes wrong there this time."""
        self.passed[number, point] += 1
        now = (number, point, self.passed[number, point])
        return tuple(one for one in self.schedule.faults if (one.incarnation, one.point, one.hit) == now)

    def chosen(self, replies: Sequence[Reply], faults: tuple[Fault, ...]) -> Reply:
        """The way in which a call goes."""
        for fault in faults:
            fate = _FATES.get(fault.action)
            found = next((reply for reply in replies if reply.fate is fate), None)
            if found is not None:
                self.acted.add(fault)
                self.scribe.fault(f"{fault.point}:{fault.action}")
                if fault.action in (Action.DELAY, Action.HIDE):
                    self._landings.append(len(self.steps) + fault.steps)
                return found
        return next(reply for reply in replies if reply.fate is Fate.ANSWERED)

    def lose_ledger(self) -> None:
        """The ledger is gone, with what it held."""
        self.ledger = SimulatedLedger()
        self.scribe.ledger_lost()
        self.steps.append("the ledger is lost")

    def harm(self, at: int, harm: Harm) -> None:
        """Something befalls a sink, which no driver is told."""
        name = self.bound.sinks[at]
        after = harmed(self.targets[name], harm)
        if after is None or any(target.harm for target in self.targets.values()):
            return
        self.targets[name] = after
        self.actors[str(harm)] += 1
        self.steps.append(f"sink '{name}' is {harm.value}")

    def mend(self) -> None:
        """Sinks that refused a row take it now."""
        for name, target in self.targets.items():
            if target.harm == Harm.PICKY:
                self.targets[name] = replace(target, harm="")

    def vanish(self) -> None:
        """Input files are gone."""
        for record in self.schedule.gone:
            self.desk = replace(self.desk, gone=self.desk.gone | 1 << record)
            self.actors["a file is gone"] += 1
            self.steps.append(f"the file of record {record + 1} is gone")

    @property
    def wreck(self) -> Wreck:
        """What a command may change."""
        targets = tuple(self.targets.values())
        return Wreck(targets, self.staging, self.ledger, self.checkpoints[-1], self.desk, self.bound.records)

    def obey(self, stop: Stop, choice: int) -> bool:
        """Have the operator obey one of the commands that a refusal prints; whether there is one."""
        found = ways(stop, self.wreck)
        if not found:
            return False
        obeyed = obey(found[choice % len(found)], stop, self.wreck)
        after = obeyed.wreck
        self.targets = {target.name: target for target in after.targets}
        self.ledger, self.desk, self.checkpoints[-1] = after.ledger, after.desk, after.checkpoint
        self.actors["the operator"] += 1
        self.steps.append(obeyed.words)
        self.judge()
        return True

    def damage(self, damage: Damage) -> None:
        """The checkpoint is damaged, once; who runs on it does not notice."""
        after = damaged(self.checkpoints[0], damage)
        if after is None or len(self.checkpoints) > 1 or after.begin >= self.bound.records:
            return
        old = self.checkpoints[0]
        self.checkpoints = [replace(old, gone=damage not in SHARED), after]
        self.actors[f"the checkpoint is {damage}"] += 1
        self.scribe.fault(f"checkpoint: {damage}")
        self.steps.append(f"the checkpoint is {damage}")
