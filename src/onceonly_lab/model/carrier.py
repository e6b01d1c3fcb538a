"""Carry out the coordinator's commands in the simulated world.

The runner does so in the real one.

A driver's step looks at few parts: its own, and those that its command touches. What only the driver itself can see (a
note, a wait, an intent, a preparation near a sink) is carried out in passing: it commutes with every step of everybody
else, and a crash before it and after it leaves the same world.

Where all rules are kept (``Bound.whole_steps``) three more are taken together with their neighbours:

- READ of all sinks with the last INSTALL. While our fence stands nobody else changes the sink, so what is read later
  is what is there now; where a later driver has come between, ours stops without a trace, like one that is killed.
- PROBE with RECALL and LOOK. Proposals are hints: one that was taken earlier, and is too low by now, meets the fence
  that makes it so at the first sink, and is made again. A look only refuses, and whoever is refused leaves no trace.
- STAGE with the first COMMIT. Nobody looks at staged bytes that no marker names but the sweep that removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from onceonly.machine import commands as c
from onceonly.machine import coordinator
from onceonly.machine.state import Phase, State
from onceonly_lab.model.machine import Changes, Machine, end
from onceonly_lab.model.parts import Desk, Target, spelled
from onceonly_lab.model.spark import Checkpoint, Planned, Refused, offer
from onceonly_lab.model.steps import InstallLast, Opening, StageFirst, Writing
from onceonly_lab.model.world import Bound, Call, Change, Driver, Program, World, opening_of, refusal
from onceonly_lab.model.world import parts as parts_of


class Carrier:
    """Steps of drivers within a bound.

    Args:
        bound: sizes, and rules that are off.
    """

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._machine = Machine(bound)
        opening, writing = Opening(self._machine), Writing(self._machine)
        self._places: dict[type, Callable[[Any], tuple[int, ...]]] = {
            c.Probe: lambda _: (*range(bound.staging), bound.staging, bound.ledger),
            InstallLast: lambda _: (*range(bound.staging), bound.unknowns_left),
            StageFirst: lambda first: (*self._at(first.sinks), bound.staging),
            c.Recall: lambda _: (bound.ledger,),
            c.Recollect: lambda _: (bound.ledger,),
            c.Gather: lambda _: (bound.ledger,),
            c.Look: lambda _: (*range(bound.staging),),
            c.Install: self._at_sink,
            c.Read: self._at_sink,
            c.Commit: self._at_sinks,
            c.LookUp: self._at_sinks,
            c.Index: lambda _: (bound.ledger, bound.staging),
            c.Record: lambda _: (bound.ledger, bound.staging),
            c.Fetch: lambda _: (bound.staging,),
            c.Stage: lambda _: (bound.staging, *bound.keeper),
        }
        self._handlers: dict[type, Callable[..., Changes]] = {
            c.Probe: opening.probe,
            c.Recall: opening.recall,
            c.Recollect: opening.recollect,
            c.Gather: opening.gather,
            c.Look: opening.look,
            c.Install: opening.install,
            c.Read: opening.read,
            c.Commit: writing.commit,
            c.LookUp: writing.look_up,
            c.Index: opening.index,
            c.Record: writing.record,
            c.Fetch: writing.fetch,
            c.Stage: writing.stage,
            InstallLast: opening.install_last,
            StageFirst: writing.stage_first,
        }

    def _at_sink(self, command: c.Install | c.Read) -> tuple[int, ...]:
        return self._bound.sinks.index(command.sink), self._bound.unknowns_left

    def _at_sinks(self, command: c.Commit | c.LookUp) -> tuple[int, ...]:
        return self._at([marker.sink for marker in (command.marker, *command.sibling_markers)])

    def _at(self, sinks: Sequence[str]) -> tuple[int, ...]:
        return (*(self._bound.sinks.index(sink) for sink in sinks), self._bound.unknowns_left)

    def places(self, driver: Driver) -> tuple[int, ...]:
        """The places that the driver's next step looks at, besides its own."""
        if not driver.running or driver.state is None:
            return self._bound.checkpoints[driver.at], self._bound.desk
        command = self._command(driver.state)
        if isinstance(command, c.Return):
            return (self._bound.checkpoints[driver.at], self._bound.desk)
        places = self._places[type(command)](command)
        return (*places, *range(self._bound.staging)) if self._tells_why(command) else places

    def _tells_why(self, command: object) -> bool:
        """Whether it is to be seen in the targets that somebody with a fence is refused in this step."""
        return self._bound.watched and isinstance(command, c.Index | c.Recollect | c.Gather)

    def sees_heads_alone(self, driver: Driver) -> bool:
        """Whether of the targets the driver's next step reads fence and newest marker, and changes none of them."""
        probing = driver.running and driver.state is not None and driver.state.phase is Phase.PROBE
        return probing and self._bound.whole_steps

    def _command(self, state: State) -> c.Command | InstallLast | StageFirst:
        command = coordinator.next(state)
        if not self._bound.whole_steps:
            return command
        if isinstance(command, c.Install) and state.work.index + 1 == len(state.job.sinks):
            return InstallLast(command)
        if isinstance(command, c.Stage) and not state.work.healing:
            return StageFirst(command, state.job.transactions(state.job.sinks)[0])
        return command

    def steps(self, driver: Driver, parts: World) -> Changes:
        """Every outcome of the driver's next step; the first part of each change is the driver."""
        if not driver.running or driver.state is None:
            yield from self.plan(driver, *cast(tuple[Checkpoint, Desk], parts))
            return
        command = self._command(driver.state)
        if isinstance(command, c.Return):
            checkpoint, desk = cast(tuple[Checkpoint, Desk], parts)
            changes = self._again(driver, checkpoint, desk) if driver.rest else self._return(driver, checkpoint, desk)
            yield from changes
            return
        if not self._tells_why(command):
            yield from self._handlers[type(command)](driver, driver.state, command, *parts)
            return
        places = len(parts) - self._bound.staging
        for change in self._handlers[type(command)](driver, driver.state, command, *parts[:places]):
            after = cast(Driver, change.parts[0])
            targets = (_marked(driver, after, cast(Target, target)) for target in parts[places:])
            yield replace(change, parts=(*change.parts, *targets))

    # ---- the engine's side

    def plan(self, driver: Driver, checkpoint: Checkpoint, desk: Desk) -> Changes:
        """Hand the driver its next batch."""
        holding = driver.planned.batch_id if driver.planned else None
        try:
            ways = list(checkpoint.next(self._bound.records, self._bound.longest, holding))
        except Refused as refused:
            ended = replace(driver, refusal=str(refused))
            yield Change(f"{driver.name}: the engine stops: {refused}", (ended, checkpoint, desk))
            return
        if not ways:
            yield Change(
                f"{driver.name} finds nothing more to read", (replace(driver, finished=True), checkpoint, desk)
            )
        for after, planned in ways:
            words = f"{driver.name} is handed batch {planned.batch_id}, records {planned.start + 1} to {planned.end}"
            handed = self._first_call(driver, after, planned, desk)
            yield Change(f"{words}, by {checkpoint.name}{end(handed)}", (handed, after, desk))

    def _first_call(self, driver: Driver, checkpoint: Checkpoint, planned: Planned, desk: Desk) -> Driver:
        program = Program(desk.program or Program.PLAIN)
        handed, rest = parts_of(program, planned)
        named = checkpoint.planned(0) if program is Program.CONSTANT else planned
        finished = driver.planned.batch_id if driver.planned else None
        call = Call(named.batch_id, planned.batch_id, finished)
        driver = replace(driver, planned=planned, rest=rest, hands=handed if rest else 0)
        return self._handed(driver, checkpoint, named, desk, call)

    def _again(self, driver: Driver, checkpoint: Checkpoint, desk: Desk) -> Changes:
        """The program calls once more for the batch in hand, with the rows that are left."""
        planned, other = driver.planned, desk.program == Program.WRAPPERS
        assert planned is not None
        call = Call(planned.batch_id, planned.batch_id, planned.batch_id, other)
        driver = replace(driver, hands=driver.rest, rest=0)
        next_driver = self._handed(driver, checkpoint, planned, desk, call)
        whom = "another wrapper" if other else "the wrapper"
        words = f"{driver.name}'s program hands records {spelled(driver.hands)} of batch {planned.batch_id} to {whom}"
        yield Change(f"{words}{end(next_driver)}", (next_driver, checkpoint, desk))

    def _handed(self, driver: Driver, checkpoint: Checkpoint, planned: Planned, desk: Desk, call: Call) -> Driver:
        """A call of a wrapper with what the driver hands; ``planned`` is the batch that it is said to be."""
        if code := refusal(call):
            return replace(driver, state=None, running=False, refusal=code)
        bound, written = self._bound, driver.state is not None and not driver.state.work.skipped
        looks_back = bound.trims and not written
        offered = offer(checkpoint, planned, bound.source, gone=desk.gone, looks_back=looks_back)
        if driver.state is None or call.other:
            state = opening_of(driver, bound, offered, "-2" if call.other else "", desk.left_out)
        else:
            state = coordinator.resume(driver.state, offered)
        driver = replace(driver, running=True, content=None, outputs=(), memory=None)
        return self._machine.through(driver, state)

    def _return(self, driver: Driver, checkpoint: Checkpoint, desk: Desk) -> Changes:
        assert driver.planned is not None
        batch = driver.planned.batch_id
        try:
            after = checkpoint.commit(batch)
        except Refused as refused:
            yield Change(
                f"{driver.name}: the engine stops: {refused}", (replace(driver, refusal=str(refused)), checkpoint, desk)
            )
            return
        words = f"{driver.name} returns; the engine logs batch {batch} as done"
        finished = after.entries[-1].end >= self._bound.records
        yield Change(words, (replace(driver, running=False, content=None, outputs=(), finished=finished), after, desk))


def _marked(before: Driver, after: Driver, target: Target) -> Target:
    """The target as it tells that somebody took it over and was refused then."""
    refused, state = after.refusal.startswith("E2"), before.state
    if not refused or not before.knew or state is None or target.fence is None or target.fence.owner != state.job.owner:
        return target
    return replace(target, barren=state.job.owner)
