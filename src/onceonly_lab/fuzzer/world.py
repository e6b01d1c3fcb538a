"""Simulated world: a scene with its program, playing one schedule."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.machine import callback_rules
from onceonly.machine import commands as c
from onceonly.machine.callback_rules import Call, Holder
from onceonly.machine.facts import Offer
from onceonly.machine.state import State
from onceonly.protocol import Sink
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Ledger
from onceonly_lab.fuzzer.draw import draw
from onceonly_lab.fuzzer.scene import Scene, bound_of
from onceonly_lab.fuzzer.sink import SinkRefused, handle
from onceonly_lab.fuzzer.stores import SceneLedger, SceneStaging, SimulatedBatch, WindowedBatch, batch_of
from onceonly_lab.model.keys import series_of
from onceonly_lab.model.operator import Stop
from onceonly_lab.model.parts import DRAWN, DROPPED, PIPELINE, Harm, Records
from onceonly_lab.model.rules import ALL_KEPT, Rule
from onceonly_lab.model.sinks import REFUSED_ROW
from onceonly_lab.model.spark import RESTARTED, Damage, Planned, Refused, offer
from onceonly_lab.model.times import drawn
from onceonly_lab.model.ways import OTHER_ROWS, Situation
from onceonly_lab.model.world import MISUSED, Program, parts
from onceonly_lab.play.driver import Driver
from onceonly_lab.play.many import Report, play_all
from onceonly_lab.play.play import Played, play_in
from onceonly_lab.play.world import Parts, Process, Running
from onceonly_lab.schedule import SENT, Fault, Level, Loss, Schedule

# ---- The simulated world of one schedule, as drivers and who plays them know it: a scene, and the program in it.

ACTORS = (
    "the operator",
    "a batch is trimmed",
    "a source says where it begins",
    "a file is gone",
    "a row is refused",
    "an output does not want a row",
    "a bad row is set aside",
    "a repeated key is left out",
    "windows leave a bad row out",
    *map(str, DRAWN),
    *(f"the checkpoint is {damage}" for damage in (*RESTARTED, Damage.ANOTHER, Damage.REFRESHED)),
    *(f"a program {program}" for program in Program if program.misuses),
)
"""Those who are no driver, and what befalls the world without one: each must come to act in a run."""


class SimulatedWorld(Scene):
    """The world of a schedule.

    Args:
        schedule: what is run.
        off: rules that are not kept.
    """

    def __init__(self, schedule: Schedule, off: frozenset[Rule] = ALL_KEPT) -> None:
        super().__init__(schedule, off, _allowed(schedule))

    # ---- what a driver asks

    def driver(self, process: Process) -> Running:
        """A driver in a process."""
        return ProgramDriver(process, self)

    def parts(self, process: Process) -> Parts:
        """The production runner over what lies in the scene; waiting is a step."""
        sinks = [handle(self, process, name) for name in self.sinks]
        ledger, staging = SceneLedger(self, process), SceneStaging(self, process)
        runner = StagingRunner(
            process,
            sinks,
            ledger,
            staging=staging if len(sinks) > 1 or self.bound.stages or self.schedule.divided else None,
            fetch=staging.fetch,
            says=drawn(self.schedule.seed or 0),
            sleep=lambda seconds: self.step(process),
        )
        return Parts(sinks, ledger, runner)

    def owner(self, process: Process) -> str:
        """Tells openings apart without chance."""
        return process.owner

    def calls(self, driver: Running, planned: Planned) -> Iterator[tuple[Call, Records]]:
        """One call of the wrapper for a batch, unless the program calls wrongly."""
        program = Program(self.schedule.program or Program.PLAIN)
        handed, rest = parts(program, planned)
        named = driver.checkpoint.planned(0) if program is Program.CONSTANT else planned
        yield Call(PIPELINE, named.batch_id, planned.batch_id, driver.finished), handed
        if rest:
            if program is Program.WRAPPERS:
                with self.misused():
                    _enter_beside()
            yield Call(PIPELINE, planned.batch_id, planned.batch_id, driver.finished), rest

    @contextmanager
    def misused(self) -> Generator[None]:
        """Count the program as one that acted if a call of it is refused here: no other refusal shows that it did."""
        try:
            yield
        except OnceOnlyError:
            self.actors[f"a program {self.schedule.program}"] += 1
            raise

    def offer(self, driver: Running, planned: Planned) -> Offer:
        """What the callback sees of a batch."""
        bound, ledger = self.bound, SceneLedger(self, driver.process)
        looks_back = bound.trims and (driver.state is None or driver.state.work.skipped)
        offered = offer(driver.checkpoint, planned, bound.source, gone=self.desk.gone, looks_back=looks_back)
        return ledger.offered(offered)

    def batch(self, driver: Running, planned: Planned, handed: Records, offer: Offer) -> SimulatedBatch:
        """What a call hands over."""
        process = driver.process
        batch = batch_of(handed, offer, process, self.division(process.number))
        return WindowedBatch(batch, self, process) if self.bound.windows else batch

    def wrote(self, driver: Running, offer: Offer) -> None:
        """Count what came to act on the way."""
        state = driver.state
        assert state is not None
        if state.work.trim:
            self.actors["a batch is trimmed"] += 1
        if offer.begins:
            self.actors["a source says where it begins"] += 1
        if state.work.epoch and not state.work.skipped:
            self._divided(state.work.epoch)
        if state.work.skipped and state.work.epoch:
            self.told(f"{driver.process.name} skips, proven: epoch {state.work.epoch.number}")

    def _divided(self, epoch: Epoch) -> None:
        """Count an epoch of which some sinks get other rows than others."""
        bad = epoch.bad
        self.actors["an output does not want a row"] += any(
            output.filtered for output in epoch.outputs if output != bad
        )
        self.actors["a bad row is set aside"] += bool(bad and bad.digest.rows)

    def stopped(self, process: Process, error: Exception) -> str:
        """Errors of the product, of its sinks and of the engine; any other is one of the lab."""
        if isinstance(error, Refused):
            self.steps.append(f"{process.name}: the engine stops: {error}")
            return str(error)
        if not isinstance(error, OnceOnlyError | SinkRefused):
            return ""
        self.stop(process, error.code)
        if isinstance(error, OnceOnlyError) and process.planned is not None:
            gone = process.planned.records & self.desk.gone
            intents = tuple(self.intents.values())
            self.stops[process.number] = Stop(error.code, str(error), process.planned, gone, intents)
        return error.code

    # ---- what who plays the schedule asks

    @property
    def now(self) -> int:
        """Steps."""
        return len(self.steps)

    def passes(self, process: Process, point: Point) -> tuple[Fault, ...]:
        """What strikes a request is decided where it is sent, see sink.py."""
        key = process.number, point
        self.struck.passed[key] += 1
        self.struck.hits[key] += 1
        due = self.struck.due(*key)
        if point not in SENT:
            return due
        process.due = due
        return ()

    def lose(self, loss: Loss) -> None:
        """The ledger is lost, the checkpoint is damaged, or something befalls a sink."""
        if loss.what in set(Harm):
            self.harm(loss.sink, Harm(loss.what))
        else:
            super().lose(loss)

    def mend(self, last: Process) -> None:
        """Sinks that refused a row take it now."""
        if last.refusal == REFUSED_ROW:
            self.actors["a row is refused"] += 1
        for name, target in self.targets.items():
            if target.harm == Harm.PICKY:
                self.targets[name] = replace(target, harm="")

    def obeyed(self, last: Process, choice: int | None) -> bool:
        """What was refused is taken now, or the operator has obeyed one of the commands that were printed."""
        stop = self.stops.get(last.number)
        return last.refusal == REFUSED_ROW or (choice is not None and stop is not None and self.obey(stop, choice))

    def explained(self, last: Process) -> bool:
        """Whether what a refusal says is so."""
        targets = tuple(target for target in self.targets.values() if target.harm != DROPPED)
        desk = replace(self.desk, program=self.schedule.program)
        shared = (targets, self.staging, self.ledger, self.checkpoints[last.at], desk)
        bad = self.division(last.number).bad
        return Situation(*shared, last.planned, self.bound.source, self.bound.trims, bad).explains(last.refusal)


class StagingRunner(Runner):
    """A runner that says in which series the epoch is that it stages: of rows before it no key was seen.

    Args:
        process: whose it is.
        sinks: in commit order, as all that follows.
        ledger: its index.
        options: the rest.
    """

    def __init__(self, process: Process, sinks: Sequence[Sink], ledger: Ledger, **options: Any) -> None:
        super().__init__(sinks, ledger, **options)
        self._process = process

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if isinstance(command, c.Stage):
            self._process.series = series_of(state)
        return super()._carry_out(state, command)


class ProgramDriver(Driver):
    """A driver whose world is told of each call of the program that the wrapper refuses.

    Args:
        process: what it runs in.
        world: where that is.
    """

    def __init__(self, process: Process, world: SimulatedWorld) -> None:
        super().__init__(process, world)
        self._misused = world.misused

    def admits(self, call: Call) -> bool:
        """Whether the wrapper goes on with what the program hands it.

        Raises:
            OnceOnlyError: it refuses it.
        """
        with self._misused():
            return super().admits(call)


def _enter_beside() -> None:
    """Another wrapper of the name opens the pipeline in a run that has one.

    Raises:
        OnceOnlyError: it is refused.
    """
    first, second = (Holder(PIPELINE, wrapper, "query", "run") for wrapper in (1, 2))
    if refusal := callback_rules.decide_entry(callback_rules.Entering(second, named=first)):
        raise refuse(refusal.code, **dict(refusal.details))


def _allowed(schedule: Schedule) -> frozenset[str]:
    """Refusals that the history calls right: of wrong calls, and of what does not go on after a damaged checkpoint."""
    called = MISUSED if schedule.program else frozenset[str]()
    if schedule.stateful and len(set(schedule.bad)) > 1:
        called |= {OTHER_ROWS}
    damaged = any(loss.what in set(Damage) for loss in schedule.losses)
    return called | (bound_of(schedule).explained if damaged else frozenset())


# ---- Plays schedules in the simulated world, one driver at a time, by a clock that counts steps.


def play(schedule: Schedule, off: frozenset[Rule] = frozenset()) -> Played:
    """Run a schedule to its end or to the first violation.

    Args:
        schedule: what is run.
        off: rules that are not kept.
    """
    return play_in(SimulatedWorld(schedule, off))


def fuzz(first: int, count: int, off: frozenset[Rule] = frozenset(), *, checked: bool = True) -> Report:
    """Play the schedules of seeds from ``first`` on; see :func:`fuzz_all`.

    Args:
        first: seed.
        count: how many.
        off: rules that are not kept.
        checked: whether the checker judges each history, too.
    """
    return fuzz_all(map(draw, range(first, first + count)), off, checked=checked)


def fuzz_all(schedules: Iterable[Schedule], off: frozenset[Rule] = frozenset(), *, checked: bool = True) -> Report:
    """Play schedules, and shrink the first that fails.

    Args:
        schedules: one after the other, until one fails.
        off: rules that are not kept.
        checked: whether the checker judges each history, too.
    """
    report = Report(Level.SIMULATED, ACTORS)
    return play_all(schedules, partial(play, off=off), report, checked=checked, shrinks=True)
