"""One played driver: the engine's loop around the production runner.

It works over its checkpoint, and takes turns with other drivers.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

from onceonly import faults
from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly.machine import callback_rules, coordinator
from onceonly.machine.facts import Offer
from onceonly.machine.state import Job, State
from onceonly.runtime import shared_transaction
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.model.spark import Checkpoint, Planned
from onceonly_lab.model.times import BY_RECORDS
from onceonly_lab.play.world import Killed, Process, World

LONGEST_S = 120.0
"""Seconds after which a driver that neither ends nor pauses has failed the lab."""


class Stuck(RuntimeError):
    """A driver neither ended nor paused."""


class Turns(ABC):
    """A driver's own thread, of which one runs at a time: control is handed over, so nothing is left to chance.

    The production runner is no generator: it can only be left in the middle of a call.
    """

    def __init__(self, name: str) -> None:
        self._mine = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._body, name=name, daemon=True)

    def resume(self) -> None:
        """Let it start or go on until it ends or leaves off; what it raises is raised here.

        Raises:
            Stuck: it does neither.
        """
        if self.thread.ident is None:
            self.thread.start()
        else:
            self._mine.release()
        if not self._theirs.acquire(timeout=LONGEST_S):
            raise Stuck(f"{self.thread.name} has neither ended nor paused for {LONGEST_S:.0f} s")
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Called by itself: leave off; comes back when it is resumed."""
        self._theirs.release()
        self._mine.acquire()

    @abstractmethod
    def live(self) -> None:
        """What it does."""

    def _body(self) -> None:
        try:
            self.live()
        except BaseException as error:  # noqa: BLE001 - it is raised where the body was resumed
            self._error = error
        finally:
            self._theirs.release()


class Driver(Turns):
    """A driver. What a mutant may break are :meth:`opening`, :meth:`taken` and :meth:`admits`.

    Args:
        process: what it runs in.
        world: where that is.

    Attributes:
        ledger: its own connection.
        state: of the opening, once a batch was written or proven written.
        finished: the newest batch that it has finished; ``None`` before the first.
    """

    def __init__(self, process: Process, world: World) -> None:
        super().__init__(process.name)
        self.process, self.world = process, world
        self._parts = world.parts(process)
        self.ledger = self._parts.ledger
        self.state: State | None = None
        self.finished: int | None = None

    def live(self) -> None:
        """Run a query until it has read the source to its end, or stops, or is killed."""
        process = self.process
        try:
            self._run()
            process.finished = True
        except Killed:
            return
        except Exception as error:
            process.refusal = self.world.stopped(process, error)
            if not process.refusal:
                raise
            self.world.recorder.refused(process.number, process.refusal)
        finally:
            self.ledger.close()
            for sink in self._parts.sinks:
                sink.close()

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that it was started on, as it is now."""
        return self.world.checkpoints[self.process.at]

    @checkpoint.setter
    def checkpoint(self, after: Checkpoint) -> None:
        self.world.checkpoints[self.process.at] = after

    # ---- the engine

    def _run(self) -> None:
        holding: int | None = None
        while (planned := self._plan(holding)) is not None:
            self._hand_over(planned)
            holding = planned.batch_id
            if self._return(planned):
                break

    def _plan(self, holding: int | None) -> Planned | None:
        world, schedule, name = self.world, self.world.schedule, self.process.name
        world.step(self.process)
        ways = list(self.checkpoint.next(schedule.records, max(schedule.cuts), holding))
        if not ways:
            world.told(f"{name} finds nothing more to read")
            return None
        self.checkpoint, planned = ways[world.cut(len(ways))] if len(ways) > 1 else ways[0]
        world.recorder.offers(self.process.number)
        what = f"batch {planned.batch_id}, records {planned.start + 1} to {planned.end}"
        world.told(f"{name} is handed {what}, by {self.checkpoint.name}")
        faults.fire(Point.DISCOVER_AFTER)
        return planned

    def _return(self, planned: Planned) -> bool:
        """Let the engine log the batch as done; whether it was the last."""
        faults.fire(Point.RETURN_BEFORE)
        self.world.step(self.process)
        after = self.checkpoint = self.checkpoint.commit(planned.batch_id)
        self.world.recorder.returned(self.process.number)
        self.world.told(f"{self.process.name} returns; the engine logs batch {planned.batch_id} as done")
        return after.entries[-1].end >= self.world.schedule.records

    # ---- the user's program, and the wrapper that it calls

    def _hand_over(self, planned: Planned) -> None:
        self.process.planned = planned
        for call, handed in self.world.calls(self, planned):
            if self.admits(call):
                self._write(planned, handed)
                self.finished = planned.batch_id

    def _write(self, planned: Planned, handed: Any) -> None:
        offer = self.taken(self.world.offer(self, planned))
        if offer is None:
            return
        state = coordinator.resume(self.state, offer) if self.state else self.opening(offer)
        self.state = None
        self.state = self._parts.runner.run(state, self.world.batch(self, planned, handed, offer))
        self.world.wrote(self, offer)

    # ---- what a mutant may break

    def admits(self, call: callback_rules.Call) -> bool:
        """Whether the wrapper goes on with what the program hands it.

        Raises:
            OnceOnlyError: it refuses it.
        """
        if refusal := callback_rules.decide_call(call):
            raise refuse(refusal.code, **dict(refusal.details))
        return True

    def opening(self, offer: Offer) -> State:
        """The state of a new opening."""
        world, schedule = self.world, self.world.schedule
        return coordinator.start(
            Job(
                PIPELINE,
                world.sinks,
                world.owner(self.process),
                offer,
                overlap="trim" if schedule.trims else "stop",
                stages=schedule.stages,
                on_refresh="replace" if schedule.replaces else "stop",
                transaction_groups=shared_transaction.transaction_groups(self._parts.sinks),
                divided=schedule.divided,
                noting=BY_RECORDS,
                windows=world.windows,
            )
        )

    def taken(self, offer: Offer) -> Offer | None:
        """The offer as the runner gets it; ``None``: it is returned to the engine as done."""
        return offer
