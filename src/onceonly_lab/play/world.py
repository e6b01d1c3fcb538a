"""Protocol of the world that drivers of one schedule share.

The simulated world and real stores implement it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from onceonly.faults import Point
from onceonly.machine.callback_rules import Call
from onceonly.machine.division_rules import WindowsConfig
from onceonly.machine.facts import Offer
from onceonly.machine.state import State
from onceonly.protocol import Batch, Sink
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.ledger import Ledger
from onceonly_lab.model.invariants import Violation
from onceonly_lab.model.openwindows import WINDOWS
from onceonly_lab.model.spark import SHARED, Checkpoint, Damage, Planned, damaged
from onceonly_lab.play.recorder import HistoryRecorder
from onceonly_lab.schedule import LEDGER, Fault, Loss, Schedule


class Killed(BaseException):
    """Ends a driver where it stands: nothing on its way out takes it for a lost answer."""


class Running(Protocol):
    """A driver, as its world and whoever plays the schedule know it; :class:`onceonly_lab.play.driver.Driver`."""

    process: Process
    thread: threading.Thread
    state: State | None
    finished: int | None

    @property
    def checkpoint(self) -> Checkpoint:
        """Where its query stands."""
        ...

    def resume(self) -> None:
        """Let it start or go on until it ends or leaves off."""
        ...

    def leave(self) -> None:
        """Called in its own thread: leave off until it is resumed."""
        ...


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
        refusal: why it stopped: an error's code, or the engine's words; empty while it has not.
        why: the refusal in full, where a history is to tell it.
        due: what goes wrong with the request that it is about to send.
        computed: how often it has computed a batch.
        planned: the batch that it was handed last; ``None`` before the first.
        series: the first epoch of the series of the one that it is staging.
    """

    number: int
    at: int
    dead: bool = False
    finished: bool = False
    refusal: str = ""
    why: str = ""
    due: tuple[Fault, ...] = ()
    computed: int = 0
    planned: Planned | None = None
    series: int = 1

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


@dataclass(frozen=True, slots=True)
class Parts:
    """What one driver works with.

    Attributes:
        sinks: its handles, in commit order.
        ledger: its index.
        runner: carries commands out.
    """

    sinks: Sequence[Sink]
    ledger: Ledger
    runner: Runner


@dataclass
class Struck:
    """The faults of a schedule, and what became of them.

    Attributes:
        planned: all of them.
        passed: how often each incarnation passed each point.
        hits: the same as faults count it: what is sent may count otherwise than what is passed.
        acted: those that came to act.
    """

    planned: tuple[Fault, ...]
    passed: Counter[tuple[int, Point]] = field(default_factory=Counter[tuple[int, Point]])
    hits: Counter[tuple[int, Point]] = field(default_factory=Counter[tuple[int, Point]])
    acted: set[Fault] = field(default_factory=set[Fault])

    def due(self, number: int, point: Point) -> tuple[Fault, ...]:
        """What goes wrong in an incarnation at a point this time."""
        now = (number, point, self.hits[number, point])
        at = (fault for fault in self.planned if (fault.incarnation, fault.point, fault.hit) == now)
        return tuple(fault for fault in at if fault not in self.acted)


class World(ABC):
    """Everything of one run that outlives its drivers.

    Args:
        schedule: what is run.
        recorder: takes the history.

    Attributes:
        checkpoints: the one that queries start on comes last; the others are still used by whoever has them.
        struck: what becomes of the faults.
        actors: how often each of those acted who are no driver.
        steps: what happened, in words.
        before_step: lets a driver that is paused go on, once its time has come; set by who plays the schedule.
        suffer: has faults strike a driver; set by who plays the schedule.
    """

    def __init__(self, schedule: Schedule, recorder: HistoryRecorder) -> None:
        self.schedule = schedule
        self.recorder = recorder
        self.checkpoints = [Checkpoint("the checkpoint", "query")]
        self.struck = Struck(schedule.faults)
        self.actors: Counter[str] = Counter()
        self.steps: list[str] = []
        self.before_step: Callable[[Process], None] = lambda process: None
        self.suffer: Callable[[Process, tuple[Fault, ...]], None] = lambda process, faults: None
        self._cuts = 0

    # ---- what a driver asks

    @property
    @abstractmethod
    def sinks(self) -> tuple[str, ...]:
        """Ids of the sinks, in commit order."""

    @abstractmethod
    def driver(self, process: Process) -> Running:
        """A driver in a process."""

    @abstractmethod
    def parts(self, process: Process) -> Parts:
        """What it works with."""

    @abstractmethod
    def owner(self, process: Process) -> str:
        """The token of its opening."""

    def step(self, process: Process) -> None:  # noqa: B027 - not every world has it
        """Something is about to happen that others can see."""

    def told(self, words: str) -> None:
        """It has happened."""
        self.steps.append(words)

    def alive(self, process: Process) -> None:
        """Go no further in a process that is dead.

        Raises:
            Killed: it is.
        """
        if process.dead:
            raise Killed

    @property
    def windows(self) -> WindowsConfig | None:
        """How rows are aggregated; ``None``: they are written as they come."""
        return WINDOWS if self.schedule.windows else None

    def cut(self, ways: int) -> int:
        """Which of so many ways to cut a batch is taken."""
        cuts = self.schedule.cuts
        self._cuts += 1
        return min(cuts[(self._cuts - 1) % len(cuts)], ways) - 1

    @abstractmethod
    def calls(self, driver: Running, planned: Planned) -> Iterator[tuple[Call, Any]]:
        """What the user's program does with a batch: its calls of the wrapper, each with the part that it hands over.

        Raises:
            OnceOnlyError: a call is refused before it says for which batch it is.
        """

    @abstractmethod
    def offer(self, driver: Running, planned: Planned) -> Offer:
        """What the callback sees of a batch."""

    @abstractmethod
    def batch(self, driver: Running, planned: Planned, handed: Any, offer: Offer) -> Batch:
        """The rows of a call."""

    def wrote(self, driver: Running, offer: Offer) -> None:  # noqa: B027 - not every world has it
        """The runner has brought a batch to its end."""

    @abstractmethod
    def stopped(self, process: Process, error: Exception) -> str:
        """Why a driver ends with an error: a code, or the engine's words; empty where it must not.

        Raises:
            Broken: it has stopped somebody, and could have known that it will be refused itself.
        """

    # ---- what who plays the schedule asks

    @property
    @abstractmethod
    def now(self) -> int:
        """The clock by which drivers sleep and requests are late."""

    @abstractmethod
    def passes(self, process: Process, point: Point) -> tuple[Fault, ...]:
        """A driver passes a point: what of it strikes the driver itself, there and now."""

    def befalls(self, number: int) -> None:  # noqa: B027 - not every world has it
        """What is done besides, before an incarnation starts."""

    def lose(self, loss: Loss) -> None:
        """Something is lost or damaged while no driver looks."""
        if loss.what == LEDGER:
            self.lose_ledger()
        else:
            self.damage(Damage(loss.what))

    @abstractmethod
    def lose_ledger(self) -> None:
        """The ledger is gone, with what it held. Who has it open may keep it, as a driver elsewhere does."""

    def damage(self, damage: Damage) -> None:
        """The checkpoint is damaged, once; who runs on it does not notice."""
        after = damaged(self.checkpoints[0], damage)
        if after is None or len(self.checkpoints) > 1 or after.begin >= self.schedule.records:
            return
        self.checkpoints = [replace(self.checkpoints[0], gone=damage not in SHARED), after]
        self.actors[f"the checkpoint is {damage}"] += 1
        self.recorder.fault(f"checkpoint: {damage}")
        self.steps.append(f"the checkpoint is {damage}")

    def vanish(self) -> None:  # noqa: B027 - not every world has it
        """Input is gone before the last driver starts."""

    @abstractmethod
    def land(self, *, everything: bool = False) -> None:
        """What was delayed lands once its time has come."""

    def mend(self, last: Process) -> None:  # noqa: B027 - not every world has it
        """Sinks that refused a row take it after the last driver has met that."""

    def obeyed(self, last: Process, choice: int | None) -> bool:
        """Whether the query is started again, since somebody obeyed what the last driver printed, or had no need to."""
        return False

    def tidy(self, last: Process) -> None:  # noqa: B027 - not every world has it
        """What dead drivers left open is ended by hand where the last driver was refused before it could."""

    def explained(self, last: Process) -> bool:
        """Whether what the last driver's refusal says is so."""
        return True

    @abstractmethod
    def read_all(self) -> None:
        """Have every sink read at the end, and the ledger."""
