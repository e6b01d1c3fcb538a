"""Run a simulated driver from one command to the next.

Also drops the state that it will not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from onceonly.machine import commands as c
from onceonly.machine import coordinator
from onceonly.machine.state import Opening, Phase, State, Work
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_lab.model import sinks as wire
from onceonly_lab.model.parts import Left, brought, computed, kept, missing
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.times import times_of
from onceonly_lab.model.world import Bound, Change, Driver

# ---- Forgets what the coordinator will not read again, so that worlds that differ in nothing else are one.
#
# Which fields a phase reads is seen in ``coordinator`` and ``transitions``: ``head`` and ``readings`` are read while
# the pipeline is opened, which COMPARE and RECOLLECT are part of as long as there is ``seen``, and are written anew
# by the next opening, as are ``lost`` and ``held``; ``descent`` is read by COMPARE; of a finished epoch
# ``coordinator.resume`` takes along what stands.

_OPENING = frozenset({Phase.PROBE, Phase.RECALL, Phase.LOOK, Phase.INSTALL, Phase.READ})


def forgetful(state: State) -> State:
    """The same state, as far as its future goes."""
    if state.phase is Phase.DONE:
        return State(Phase.DONE, state.job.of(None), state.opening.for_next_batch)
    opening, work = _opening(state), _work(state)
    if opening is state.opening and work is state.work:
        return state
    return replace(state, opening=opening, work=work)


def _opening(state: State) -> Opening:
    opening = state.opening
    if opening.before:
        opening = replace(opening, before=None)  # only an event tells of it
    if state.phase is Phase.PROBE and (opening.lost or opening.held):
        return replace(opening, lost=0, held=None)
    read = state.phase in _OPENING or opening.peek is not None
    return opening if read or not (opening.head or opening.readings) else replace(opening, head=None, readings=())


def _work(state: State) -> Work:
    read = state.phase in _OPENING or state.opening.peek is not None
    return state.work if read or state.work.descent is None else replace(state.work, descent=None)


# ---- The machine of a driver in the simulated world: from one command to the next, and what sinks reply to it.

Changes = Iterator[Change]


class Machine:
    """Brings drivers forward within a bound.

    Args:
        bound: sizes, and rules that are off.
    """

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.off = bound.off
        self.wire = wire.Wire(bound.off, fine=bound.fine, conflicts=bound.conflicts)
        self._replies: dict[tuple[Any, ...], tuple[wire.Reply, ...]] = {}
        self._advanced: dict[tuple[Driver, c.Outcome], Driver] = {}
        self._seen: dict[tuple[int, int], tuple[Driver, c.Outcome, Driver]] = {}

    def on(self, driver: Driver, state: State, outcome: c.Outcome) -> Driver:
        """The driver after an outcome. The machine is pure: the same to whoever is told the same."""
        # Asked by identity first: values are deep, and mostly the same object comes back. It is kept, and so its id.
        same = (id(driver), id(outcome))
        if (cached := self._seen.get(same)) is not None:
            return cached[2]
        key = (driver, outcome)
        next_driver = self._advanced.get(key)
        if next_driver is None:
            after = self.through(replace(driver, memory=None), coordinator.apply(state, outcome))
            next_driver = self._advanced[key] = after
        self._seen[same] = (driver, outcome, next_driver)
        return next_driver

    def through(self, driver: Driver, state: State) -> Driver:
        """Carry out what only the driver sees."""
        while True:
            command = coordinator.next(state)
            match command:
                case c.Note() | c.Wait() | c.Intend():
                    state = coordinator.apply(state, c.Done())
                case c.Prepare():
                    # Staged bytes lie still; a batch that is not staged is computed for each opening.
                    content = (state.job.staged and driver.content) or self.computed(driver, state)
                    driver = replace(driver, content=content)
                    counted = brought(content, driver.outputs, command.sink) or content
                    if state.work.epoch and Rule.WHOLE in self.off:
                        counted = state.work.epoch.digest_in(command.sink)
                    state = coordinator.apply(state, c.Prepared(counted.rows, content, times_of(content)))
                case c.Execute():
                    state = coordinator.apply(state, c.Executed(self.computed(driver, state)))
                case c.Refuse():
                    stopped = state if self.bound.obeys else None
                    return replace(driver, state=None, running=False, refusal=command.refusal.code, stopped=stopped)
                case _:
                    return replace(driver, state=forgetful(state))

    def computed(self, driver: Driver, state: State) -> Digest:
        """What an execution of the batch gives: the same rows again only where the plan is deterministic."""
        assert driver.planned is not None
        records = kept((driver.hands or driver.planned.records) & ~missing(state.offered), state.work.trim)
        if self.bound.deterministic or self.bound.source.stateful:
            return computed(records)
        return computed(records, salt(driver, state))

    def divided(self, driver: Driver, content: Digest) -> tuple[Digest, tuple[OutputDigest, ...]]:
        """What the program of a driver has all sinks get of rows, and what some of them."""
        return self.bound.division(driver.number).of(content)

    def known(self, call: Callable[..., wire.Replies], *asked: Any) -> tuple[wire.Reply, ...]:
        """What a sink replies: the same to whoever asks the same."""
        key = (call.__name__, *asked)
        replies = self._replies.get(key)
        if replies is None:
            replies = self._replies[key] = tuple(call(*asked))
        return replies

    def said(self, driver: Driver, state: State, replies: Iterable[wire.Reply], left: Left) -> Changes:
        """What each reply of a sink makes of the driver; one that is lost uses up what may be lost."""
        for reply in replies:
            lost = reply.fate is not wire.Fate.ANSWERED
            if lost and not left.times:
                continue
            after, target = self._after(driver, state, reply), reply.target
            if self.bound.watched and after.refusal and isinstance(reply.outcome, c.Overtaken):
                target = replace(target, stopped_by=reply.outcome.current_fence.owner)
            yield Change(
                f"{driver.name} {reply.words}{end(after)}",
                (after, target, *reply.beside, left.less if lost else left),
                reply.fate,
            )

    def _after(self, driver: Driver, state: State, reply: wire.Reply) -> Driver:
        match reply.outcome:
            case None:
                return replace(driver, memory=reply.memory)
            case wire.Raised(code):
                return replace(driver, state=None, running=False, refusal=code)
            case outcome:
                return self.on(driver, state, outcome)


def salt(driver: Driver, state: State) -> int:
    """Tells what an opening of a driver computes from what any other does."""
    return 10_000 * driver.number + state.opening.fence.generation


def end(driver: Driver) -> str:
    """How a sentence about a driver ends."""
    return f", and stops: {driver.refusal}" if driver.refusal else ""
