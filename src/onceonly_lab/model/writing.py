"""A driver's steps for one epoch, in the simulated world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from onceonly import commands as c
from onceonly import coordinator
from onceonly.state import State
from onceonly_checkpoints.epoch import Digest
from onceonly_lab.model.machine import Changes, Machine, end, salt
from onceonly_lab.model.parts import Conflict, Left, SimulatedLedger, StagedEpoch, StagingArea, Target, receipt
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.world import Change, Driver, Part


@dataclass(frozen=True, slots=True)
class StageFirst:
    """STAGE, with the first COMMIT after it."""

    stage: c.Stage
    sink: str


class Writing:
    """Each method gives every outcome of one command; the first part of each change is the driver.

    Args:
        machine: brings the driver forward.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._bound = machine.bound
        self._off = machine.off
        self._wire = machine.wire

    def fetch(self, driver: Driver, state: State, command: c.Fetch, staging: StagingArea) -> Changes:
        """Read staged bytes back."""
        for found in self._manifests(command.manifest, state.number, staging):
            usable = found is not None and (not found.torn or Rule.WHOLE in self._off)
            if found is None or not usable:
                after = self._machine.on(driver, state, c.Missing("gone or torn"))
                yield Change(f"{driver.name} does not find the staged bytes{end(after)}", (after, staging))
                continue
            content = replace(found.content, rows=0) if found.torn else found.content
            # Without the hash of the manifest nothing tells that these are other bytes than the marker's.
            digest = state.epoch.digest if state.epoch and Rule.NAMED in self._off else found.content
            staged = c.Staged(command.manifest, digest.rows, digest)
            after = self._machine.on(replace(driver, content=content), state, staged)
            yield Change(f"{driver.name} takes the staged bytes {found.reference}{end(after)}", (after, staging))

    def _manifests(self, reference: str, number: int, staging: StagingArea) -> tuple[StagedEpoch | None, ...]:
        if Rule.NAMED not in self._off:
            return (staging.holds(reference),)
        return tuple(one for one in staging.epochs if one.number == number) or (None,)

    def stage(self, driver: Driver, state: State, command: c.Stage, staging: StagingArea) -> Changes:
        """Stage an epoch."""
        assert state.fence is not None
        content = self._machine.computed(driver, state)
        again = "-again" if state.healing else ""
        reference = f"e{command.number}-g{state.fence.generation}-{state.owner}{again}"
        staged = StagedEpoch(reference, command.number, state.fence.generation, content, Rule.WHOLE not in self._off)
        after = self._machine.on(replace(driver, content=content), state, c.Staged(reference, content.rows, content))
        kept = staging if Rule.KEPT in self._off else staging.add(staged)
        yield Change(f"{driver.name} stages epoch {command.number} as {reference}{end(after)}", (after, kept))

    def stage_first(self, driver: Driver, state: State, first: StageFirst, *parts: Part) -> Changes:
        """Stage an epoch, and commit it to the first sink."""
        target, left, staging = cast(tuple[Target, Left, StagingArea], parts)
        (staged,) = self.stage(driver, state, first.stage, staging)
        ready, area = cast(tuple[Driver, StagingArea], staged.parts)
        assert ready.state is not None
        command = coordinator.next(ready.state)
        assert isinstance(command, c.Commit)
        for change in self.commit(ready, ready.state, command, target, left):
            yield Change(f"{staged.words}; {change.words}", (*change.parts, area), change.fate)

    def commit(self, driver: Driver, state: State, command: c.Commit, target: Target, left: Left) -> Changes:
        """Commit an epoch to a sink."""
        content = driver.content or command.marker.epoch.digest
        if Rule.STAGED in self._off:
            assert state.fence is not None
            content = Digest(content.rows, content.high, 1_000_000 * (1 + state.index) + salt(driver, state))
        if Rule.EVERY_SINK in self._off and state.index:
            after = self._machine.on(driver, state, c.Committed(receipt(command.marker)))
            yield Change(f"{driver.name} does not wait for sink '{target.name}'", (after, target, left))
            return
        replies = self._wire.commit(target, command.marker, content, driver.memory)
        yield from self._machine.said(driver, state, replies, left)

    def look_up(self, driver: Driver, state: State, command: c.LookUp, target: Target, left: Left) -> Changes:
        """Look an epoch up in a sink."""
        replies = self._wire.look_up(target, command.marker)
        yield from self._machine.said(driver, state, replies, left)

    def record(
        self, driver: Driver, state: State, command: c.Record, ledger: SimulatedLedger, staging: StagingArea
    ) -> Changes:
        """Record an epoch in the ledger, or a skip."""
        files = state.offer.files if state.offer else ()
        if state.skipped:
            ledger = ledger.completed(command.epoch.number, files)
        else:
            try:
                ledger = ledger.record(command.epoch, command.receipts, files)
            except Conflict:
                yield Change(f"{driver.name} stops: E511", (replace(driver, refusal="E511"), ledger, staging))
                return
            staging = staging.drop(state.last.manifest if state.last else None)
        what = "skips, proven:" if state.skipped else "records"
        after = self._machine.on(driver, state, c.Done())
        yield Change(f"{driver.name} {what} epoch {command.epoch.number}", (after, ledger, staging))
