"""One start of the query: a thread that plans batches as the engine does and brings them to the production runner."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from onceonly import calls, coordinator, faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.facts import Offer
from onceonly.faults import Point
from onceonly.state import State
from onceonly_lab.history import Entry, Kind, Op
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.model.spark import Checkpoint, Planned, Refused
from onceonly_lab.stores.told import Crash, Nemesis, Scene
from onceonly_lab.stores.world import World

LONGEST_S = 120.0
"""Seconds after which a driver that neither ends nor pauses has failed the lab."""

Cut = Callable[[int], int]
"""Chooses one of so many ways to cut the next batch."""


class Stuck(RuntimeError):
    """A driver neither ended nor paused."""


class Driver:
    """A driver. What a mutant may break are :meth:`opening`, :meth:`taken` and :meth:`admits`.

    Args:
        number: of the incarnation.
        world: what it runs in.
        nemesis: breaks what it sends.
        cut: how batches are cut.

    Attributes:
        finished: whether it reached the end of the source.
        refusal: why it stopped: an error's code, or the engine's words; empty if it did not.
        why: the refusal in full.
    """

    def __init__(self, number: int, world: World, nemesis: Nemesis, cut: Cut) -> None:
        self.number = number
        self.world = world
        self.finished = False
        self.refusal = self.why = ""
        self._cut = cut
        self._at = len(world.checkpoints) - 1
        self._sinks = [world.making.sink(place) for place in world.places.values()]
        self.ledger = world.ledger()
        scene = Scene(number, world.places, world.scribe, nemesis)
        self.runner = world.making.runner(self._sinks, self.ledger, world.staging(self._sinks), scene)
        self._state: State | None = None
        self._finished: int | None = None
        self._still, self._go = threading.Event(), threading.Event()
        self._ending = threading.Event()
        self._doomed = False
        self._thread = threading.Thread(target=self._live, name=f"driver-{number}", daemon=True)

    # ---- its turn

    @property
    def thread(self) -> threading.Thread:
        """The thread that it is."""
        return self._thread

    @property
    def over(self) -> bool:
        """Whether it has ended, one way or another."""
        return not self._thread.is_alive()

    def start(self) -> None:
        """Run until it ends or pauses."""
        self._thread.start()
        self._await()

    def resume(self) -> None:
        """Let a driver that paused go on until it ends or pauses again."""
        self._still.clear()
        self._go.set()
        self._await()

    def kill(self) -> None:
        """End a driver that paused where it stands."""
        self._doomed = True
        self.resume()

    def pause(self) -> None:
        """Called by the driver itself: stand still until somebody lets it go on."""
        self._still.set()
        self._go.wait()
        self._go.clear()
        if self._doomed:
            raise Crash

    def _await(self) -> None:
        if not self._still.wait(LONGEST_S):
            raise Stuck(f"driver {self.number} has neither ended nor paused for {LONGEST_S:.0f} s")
        if self._ending.is_set():
            self._thread.join(LONGEST_S)

    # ---- its life

    def _live(self) -> None:
        try:
            self._run()
        except Crash:
            pass
        except (OnceOnlyError, Refused) as refused:
            self._refused(getattr(refused, "code", str(refused)), refused)
        except Exception as failure:  # noqa: BLE001 - a query fails by whatever the callback raises, and so does this one
            self._refused(type(failure).__name__, failure)
        finally:
            self.ledger.close()
            for sink in self._sinks:
                sink.close()
            self._ending.set()
            self._still.set()

    def _refused(self, code: str, error: Exception) -> None:
        self.refusal, self.why = code, f"{type(error).__name__}: {error}"
        self.world.told = str(error)
        failed = Entry("engine", Kind.FAIL, Op.OFFER, incarnation=self.number, code=code)
        self.world.scribe.append(failed)

    def _run(self) -> None:
        holding: int | None = None
        while (planned := self._plan(holding)) is not None:
            offer = self.world.source.offer(self.checkpoint, planned)
            self.world.scribe.append(Entry("engine", Kind.INVOKE, Op.OFFER, incarnation=self.number))
            faults.fire(Point.DISCOVER_AFTER)
            self._callback(offer, planned)
            faults.fire(Point.RETURN_BEFORE)
            self.checkpoint = self.checkpoint.commit(planned.batch_id)
            self.world.scribe.append(Entry("engine", Kind.OK, Op.OFFER, incarnation=self.number))
            holding = planned.batch_id
        self.finished = True

    def _plan(self, holding: int | None) -> Planned | None:
        source = self.world.source
        ways = list(self.checkpoint.next(source.records, source.records, holding))
        if not ways:
            return None
        self.checkpoint, planned = ways[self._cut(len(ways)) - 1 if len(ways) > 1 else 0]
        return planned

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that it was started on, as it is now."""
        return self.world.checkpoints[self._at]

    @checkpoint.setter
    def checkpoint(self, after: Checkpoint) -> None:
        self.world.checkpoints[self._at] = after

    def _callback(self, offer: Offer, planned: Planned) -> None:
        for part in self.world.source.parts:
            if self.admits(calls.Call(PIPELINE, planned.batch_id, planned.batch_id, self._finished)):
                self._call(offer, planned, part)

    def _call(self, offer: Offer, planned: Planned, part: int) -> None:
        """One call of the wrapper by the user's program."""
        taken = self.taken(offer)
        if taken is not None:
            state = coordinator.resume(self._state, taken) if self._state else self.opening(taken)
            self._state = None
            self._state = self.runner.run(state, self.world.source.batch(planned, part))
        self._finished = planned.batch_id

    # ---- what a mutant may break

    def admits(self, call: calls.Call) -> bool:
        """Whether the wrapper goes on with what the program hands it.

        Raises:
            OnceOnlyError: it refuses it.
        """
        if refusal := calls.decide_call(call):
            raise refuse(refusal.code, **dict(refusal.details))
        return True

    def opening(self, offer: Offer) -> State:
        """The state of a new opening."""
        return coordinator.start(PIPELINE, tuple(self.world.places), secrets.token_hex(4), offer)

    def taken(self, offer: Offer) -> Offer | None:
        """The offer as the runner gets it; ``None``: it is returned to the engine as done."""
        return offer
