"""A driver's steps while it opens the pipeline, in the simulated world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from onceonly import commands as c
from onceonly import coordinator, look
from onceonly.protocol import Sight
from onceonly.state import Phase, State
from onceonly_checkpoints.epoch import Fence, Receipt
from onceonly_lab.model import sinks as wire
from onceonly_lab.model.machine import Changes, Machine, end
from onceonly_lab.model.parts import Conflict, Kind, Left, SimulatedLedger, StagingArea, Target
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.world import Change, Driver, Part


@dataclass(frozen=True, slots=True)
class InstallLast:
    """The last INSTALL, with every READ after it."""

    install: c.Install


class Opening:
    """Each method gives every outcome of one command; the first part of each change is the driver.

    Args:
        machine: brings the driver forward.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._bound = machine.bound
        self._off = machine.off
        self._wire = machine.wire

    def probe(self, driver: Driver, state: State, _: c.Probe, *parts: Part) -> Changes:
        """Look at every sink, and propose a generation."""
        targets = cast(tuple[Target, ...], parts[: self._bound.staging])
        staging, ledger = cast(tuple[StagingArea, SimulatedLedger], parts[self._bound.staging :])
        fences = tuple(self._wire.fence(target) for target in targets if target.name in state.sinks)
        if Rule.HIGHEST in self._off:
            fences = (Fence(ledger.generation, ""),)
        after = self._machine.on(driver, state, c.Probed(fences))
        if Rule.FENCE_FIRST in self._off:
            after = replace(after, early=targets)
        if Rule.SWEPT_LAST in self._off and after.state and after.state.fence:
            named = {target.newest.epoch.manifest for target in targets if target.newest}
            kept = tuple(
                one
                for one in staging.epochs
                if one.reference in named or one.generation >= after.state.fence.generation
            )
            staging = StagingArea(kept)
        generation = after.state.fence.generation if after.state and after.state.fence else 0
        words = f"{driver.name} looks at every sink and proposes generation {generation}"
        if self._bound.whole_steps and after.state:
            (recalled,) = self.recall(after, after.state, c.Recall(), ledger)
            words, after = f"{words}; {recalled.words}", cast(Driver, recalled.parts[0])
            words, after = self._looked(after, targets, ledger, words)
        yield Change(words, (after, *targets, staging, ledger))

    def _looked(
        self, driver: Driver, targets: tuple[Target, ...], ledger: SimulatedLedger, words: str
    ) -> tuple[str, Driver]:
        while driver.state is not None:
            match coordinator.next(driver.state):
                case c.Look() as command:
                    (change,) = self.look(driver, driver.state, command, *targets)
                case c.Recollect() as command if driver.state.seen:
                    (change,) = self.recollect(driver, driver.state, command, ledger)
                case _:
                    break
            words, driver = f"{words}; {change.words}", cast(Driver, change.parts[0])
        return words, driver

    def look(self, driver: Driver, state: State, _: c.Look, *targets: Target) -> Changes:
        """Look at every sink, without a fence."""
        called = [target for target in targets if target.name in state.sinks]
        receipts = {one.sink: one for one in state.head.receipts} if state.head else {}
        sights = tuple(self._sight(target, receipts.get(target.name)) for target in called)
        known = state.head.epoch.number if state.head else 0
        ahead = [marker.epoch for target in called for marker in target.markers if marker.epoch.number > known]
        after = self._machine.on(driver, state, c.Looked(sights, tuple(ahead) if look.lacks(sights, known) else None))
        yield Change(f"{driver.name} compares its batch with what it sees{end(after)}", (after, *targets))

    def _sight(self, target: Target, receipt: Receipt | None) -> Sight:
        """What a look shows; what the target is, too, where it lacks what it has confirmed and hides nothing."""
        sight = self._wire.look(target)
        if receipt is None or sight.epoch >= receipt.epoch or target.kind is Kind.KAFKA:
            return sight
        return replace(sight, identity=target.identity)

    def install_last(self, driver: Driver, state: State, last: InstallLast, *parts: Part) -> Changes:
        """Install the last fence, then read every sink."""
        *targets, left = cast(tuple[Any, ...], parts)
        at = self._bound.sinks.index(last.install.sink)
        for change in self.install(driver, state, last.install, targets[at], left):
            after, target, less = cast(tuple[Driver, Target, Left], change.parts)
            now = (*targets[:at], target, *targets[at + 1 :])
            if after.state is not None and after.state.phase is Phase.READ:
                yield self._reads_all(after, now, less, change.words)
            else:
                yield Change(change.words, (after, *now, less), change.fate)

    def _reads_all(self, driver: Driver, targets: tuple[Target, ...], left: Left, words: str) -> Change:
        words += ", then reads every sink"
        while driver.state is not None and isinstance(command := coordinator.next(driver.state), c.Read):
            target = targets[self._bound.sinks.index(command.sink)]
            (said,) = self.read(driver, driver.state, command, target, left)
            driver = cast(Driver, said.parts[0])
        return Change(words + end(driver), (driver, *targets, left))

    def recall(self, driver: Driver, state: State, _: c.Recall, ledger: SimulatedLedger) -> Changes:
        """Read the ledger's head."""
        head = ledger.head
        after = self._machine.on(driver, state, c.Recalled(head))
        if self._bound.watched:
            after = replace(after, knew=head is not None)
        words = f"epoch {head.epoch.number}" if head else "nothing"
        yield Change(f"{driver.name} reads the ledger: {words}", (after, ledger))

    def recollect(self, driver: Driver, state: State, command: c.Recollect, ledger: SimulatedLedger) -> Changes:
        """Ask the ledger for a batch."""
        last = state.last.number if state.last else 0
        descent = ledger.descent(command.query_id, command.batch_id, last)
        if Rule.LINEAGE in self._off and state.offer and (descent := ledger.alike(state.offer, last)):
            lineage = descent[0].lineage or state.offer.lineage
            taken = replace(state.offer, lineage=lineage, sources=descent[0].sources)  # for the batch that it was
            state = replace(state, offer=taken)
        after = self._machine.on(driver, state, c.Recollected(descent))
        found = f"epoch {descent[0].number}" if descent else "no epoch"
        words = f"{driver.name} asks the ledger for batch {command.batch_id}: {found}"
        yield Change(words + end(after), (after, ledger))

    def gather(self, driver: Driver, state: State, _: c.Gather, ledger: SimulatedLedger) -> Changes:
        """Ask the ledger for the input files of all epochs."""
        assert state.last is not None
        held = ledger.held(state.last)
        after = self._machine.on(driver, state, c.Gathered(held))
        found = held.lacking or "all are known"
        yield Change(f"{driver.name} asks the ledger for all input files: {found}{end(after)}", (after, ledger))

    def install(self, driver: Driver, state: State, command: c.Install, target: Target, left: Left) -> Changes:
        """Install a fence."""
        replies = self._machine.known(self._wire.install, target, command.fence, driver.memory)
        yield from self._machine.said(driver, state, replies, left)

    def read(self, driver: Driver, state: State, command: c.Read, target: Target, left: Left) -> Changes:
        """Read where a sink stands."""
        assert state.fence is not None
        if driver.early:
            seen = driver.early[self._bound.sinks.index(command.sink)]
            after = self._machine.on(driver, state, wire.reading(seen, state.fence, command.since, command.after))
            yield Change(f"{driver.name} goes by what it read in sink '{command.sink}' before", (after, target, left))
            return
        replies = self._machine.known(self._wire.position, target, state.fence, command.since, command.after)
        yield from self._machine.said(driver, state, replies, left)

    def index(
        self, driver: Driver, state: State, command: c.Index, ledger: SimulatedLedger, staging: StagingArea
    ) -> Changes:
        """Enter the opening into the ledger, and sweep staging."""
        try:
            for marker, receipts in command.epochs:
                ledger = ledger.record(marker.epoch, receipts)
        except Conflict:
            yield Change(f"{driver.name} stops: E511", (replace(driver, refusal="E511"), ledger, staging))
            return
        keep = state.last.manifest if state.last else None
        staging = staging.sweep(command.fence.generation, keep)
        if Rule.HIGHEST in self._off:
            ledger = replace(ledger, generation=command.fence.generation)
        after = self._machine.on(driver, state, c.Done())
        yield Change(
            f"{driver.name} enters itself into the ledger and sweeps staging{end(after)}", (after, ledger, staging)
        )
