"""Steps of a simulated driver: opening a pipeline, committing an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from onceonly.machine import commands as c
from onceonly.machine import coordinator, event_time, precheck
from onceonly.machine.state import Phase, State
from onceonly.protocol import Peek
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt, receipts_of
from onceonly_lab.model import sinks as wire
from onceonly_lab.model.keys import catalogue, early, first_of_each, in_two, series_of
from onceonly_lab.model.machine import Changes, Machine, end, salt
from onceonly_lab.model.openwindows import behind
from onceonly_lab.model.parts import (
    Conflict,
    Kind,
    Left,
    Records,
    SimulatedLedger,
    StagedEpoch,
    StagingArea,
    Target,
    brought,
    computed,
    good_of,
    receipt,
    records_in,
    records_of,
    together,
)
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.times import times_of
from onceonly_lab.model.untimely import asked_again, time_after
from onceonly_lab.model.world import Change, Driver, Part

# ---- A driver's steps while it opens the pipeline, in the simulated world.


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
        fences = tuple(self._wire.fence(target) for target in _called(targets, state))
        if Rule.HIGHEST in self._off:
            fences = (Fence(ledger.generation, ""),)
        after = self._machine.on(driver, state, c.Probed(fences))
        if Rule.FENCE_FIRST in self._off:
            after = replace(after, early=targets)
        if Rule.SEEN_UNDER_FENCE in self._off and self._bound.keeper:
            after = replace(after, seen=targets[self._bound.keeper[0]])
        if Rule.SWEPT_LAST in self._off and after.state:
            named = {target.newest.epoch.manifest for target in targets if target.newest}
            epochs = tuple(
                epoch
                for epoch in staging.epochs
                if epoch.reference in named or epoch.generation >= after.state.opening.fence.generation
            )
            staging = StagingArea(epochs)
        generation = after.state.opening.fence.generation if after.state else 0
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
                case c.Recollect() as command if driver.state.opening.peek:
                    (change,) = self.recollect(driver, driver.state, command, ledger)
                case _:
                    break
            words, driver = f"{words}; {change.words}", cast(Driver, change.parts[0])
        return words, driver

    def look(self, driver: Driver, state: State, _: c.Look, *targets: Target) -> Changes:
        """Look at every sink, without a fence."""
        called = _called(targets, state)
        receipts = receipts_of(state.opening.head)
        sights = tuple(self._sight(target, receipts.get(target.name)) for target in called)
        head_number = state.opening.head.epoch.number if state.opening.head else 0
        ahead = [marker.epoch for target in called for marker in target.markers if marker.epoch.number > head_number]
        after = self._machine.on(
            driver, state, c.Looked(sights, tuple(ahead) if precheck.lacks(sights, head_number) else None)
        )
        yield Change(f"{driver.name} compares its batch with what it sees{end(after)}", (after, *targets))

    def _sight(self, target: Target, receipt: Receipt | None) -> Peek:
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
            (change,) = self.read(driver, driver.state, command, target, left)
            driver = cast(Driver, change.parts[0])
        return Change(words + end(driver), (driver, *targets, left))

    def recall(self, driver: Driver, state: State, _: c.Recall, ledger: SimulatedLedger) -> Changes:
        """Read the ledger's head."""
        head = ledger.head
        cut = event_time.cut(head, ledger.superseded(head.epoch.number if head else 0), 0)
        after = self._machine.on(driver, state, c.Recalled(head, cut=cut))
        if self._bound.watched:
            after = replace(after, knew=head is not None)
        words = f"epoch {head.epoch.number}" if head else "nothing"
        yield Change(f"{driver.name} reads the ledger: {words}", (after, ledger))

    def recollect(self, driver: Driver, state: State, command: c.Recollect, ledger: SimulatedLedger) -> Changes:
        """Ask the ledger for a batch."""
        last = command.newest
        descent = ledger.descent(command.query_id, command.batch_id, last)
        if Rule.LINEAGE in self._off and state.job.offer and (descent := ledger.alike(state.job.offer, last)):
            lineage = descent[0].lineage or state.job.offer.lineage
            offer = replace(state.job.offer, lineage=lineage, sources=descent[0].sources)  # for the batch that it was
            state = replace(state, job=replace(state.job, offer=offer))
        after = self._machine.on(driver, state, c.Recollected(descent))
        answer = f"epoch {descent[0].number}" if descent else "no epoch"
        words = f"{driver.name} asks the ledger for batch {command.batch_id}: {answer}"
        yield Change(words + end(after), (after, ledger))

    def gather(self, driver: Driver, state: State, command: c.Gather, ledger: SimulatedLedger) -> Changes:
        """Ask the ledger for the input files of all epochs."""
        held = ledger.held(command.newest)
        after = self._machine.on(driver, state, c.Gathered(held))
        answer = held.lacking or "all are known"
        yield Change(f"{driver.name} asks the ledger for all input files: {answer}{end(after)}", (after, ledger))

    def install(self, driver: Driver, state: State, command: c.Install, target: Target, left: Left) -> Changes:
        """Install a fence."""
        replies = self._machine.known(self._wire.install, target, command.fence, driver.memory)
        yield from self._machine.said(driver, state, replies, left)

    def read(self, driver: Driver, state: State, command: c.Read, target: Target, left: Left) -> Changes:
        """Read where a sink stands."""
        if driver.early:
            early_target = driver.early[self._bound.sinks.index(command.sink)]
            after = self._machine.on(
                driver, state, wire.reading(early_target, state.opening.fence, command.since, command.after)
            )
            yield Change(f"{driver.name} goes by what it read in sink '{command.sink}' before", (after, target, left))
            return
        replies = self._machine.known(self._wire.position, target, state.opening.fence, command.since, command.after)
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
        staging = staging.sweep(command.fence.generation, command.newest_manifest)
        if Rule.HIGHEST in self._off:
            ledger = replace(ledger, generation=command.fence.generation)
        columns = [record.epoch.columns for record in ledger.records if record.epoch.number == command.columns_epoch]
        after = self._machine.on(driver, state, c.Indexed(*columns))
        yield Change(
            f"{driver.name} enters itself into the ledger and sweeps staging{end(after)}", (after, ledger, staging)
        )


# ---- A driver's steps for one epoch, in the simulated world.


def _called(targets: Sequence[Target], state: State) -> list[Target]:
    """The targets of a call, in its order."""
    named = {target.name: target for target in targets}
    return [named[sink] for sink in state.job.sinks]


@dataclass(frozen=True, slots=True)
class StageFirst:
    """STAGE, with the first COMMIT after it, and the sinks of that one."""

    stage: c.Stage
    sinks: tuple[str, ...]


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
        for staged_epoch in self._manifests(command.manifest, state.work.number, staging):
            usable = staged_epoch is not None and (not staged_epoch.torn or Rule.WHOLE in self._off)
            if staged_epoch is None or not usable:
                after = self._machine.on(driver, state, c.Missing("gone or torn"))
                yield Change(f"{driver.name} does not find the staged bytes{end(after)}", (after, staging))
                continue
            content = replace(staged_epoch.content, rows=0) if staged_epoch.torn else staged_epoch.content
            # Without the hash of the manifest nothing tells that these are other bytes than the marker's.
            digest = state.work.epoch.digest if state.work.epoch and Rule.NAMED in self._off else staged_epoch.content
            rows = together(digest, staged_epoch.outputs).rows
            staged, outputs = c.Staged(command.manifest, rows, digest, staged_epoch.outputs), staged_epoch.outputs
            if Rule.MARKERS_OUTPUT in self._off:
                content, outputs = self._machine.divided(driver, together(content, outputs))
            after = self._machine.on(replace(driver, content=content, outputs=outputs), state, staged)
            yield Change(f"{driver.name} takes the staged bytes {staged_epoch.reference}{end(after)}", (after, staging))

    def _manifests(self, reference: str, number: int, staging: StagingArea) -> tuple[StagedEpoch | None, ...]:
        if Rule.NAMED not in self._off:
            return (staging.holds(reference),)
        return tuple(epoch for epoch in staging.epochs if epoch.number == number) or (None,)

    def stage(self, driver: Driver, state: State, command: c.Stage, staging: StagingArea, *keeper: Target) -> Changes:
        """Stage an epoch, without what a catalogue of keys says was seen before it, or with what windows hold then."""
        rows = self._fresh(driver, state, command, *keeper)
        content, outputs = self._machine.divided(driver, rows)
        suffix = "-again" if command.healing else ""
        reference = f"e{command.number}-g{command.fence.generation}-{command.fence.owner}{suffix}"
        staged = StagedEpoch(
            reference,
            command.number,
            state.opening.fence.generation,
            content,
            Rule.WHOLE not in self._off,
            outputs=outputs,
        )
        windows = None
        if command.bound:
            recalled = self._kept(driver, state, command, *keeper, of=good_of)
            windows = behind(command.bound, recalled, rows if Rule.GOOD_IN_WINDOWS in self._off else content)
        manifest = reference if command.lasting else None
        answer = c.Staged(manifest, rows.rows, content, outputs, times_of(rows), windows)
        after = self._machine.on(replace(driver, content=content, outputs=outputs), state, answer)
        new_staging = staging.add(staged) if command.lasting and Rule.KEPT not in self._off else staging
        where = f"stages epoch {command.number} as {reference}" if command.lasting else "takes the rows into its memory"
        yield Change(f"{driver.name} {where}{end(after)}", (after, new_staging, *keeper))

    def _fresh(self, driver: Driver, state: State, command: c.Stage, *keeper: Target) -> Digest:
        rows = self._machine.computed(driver, state)
        if not self._bound.keys:
            return rows
        earlier_records = self._kept(driver, state, command, *keeper)
        return computed(first_of_each(records_in(rows), earlier_records, self._bound.keys), rows.low)

    def _kept(
        self,
        driver: Driver,
        state: State,
        command: c.Stage,
        *keeper: Target,
        of: Callable[[Epoch], Records] = records_of,
    ) -> Records:
        """What the keeper holds of epochs before this one."""
        (target,) = keeper
        if Rule.SEEN_UNDER_FENCE in self._off:
            target = early(target, driver.seen, state.job.owner)
        return catalogue(target, series_of(state), command.number, self._off, of)

    def stage_first(self, driver: Driver, state: State, first: StageFirst, *parts: Part) -> Changes:
        """Stage an epoch, and commit it to the first sink."""
        *sinks, staging = cast(tuple[Any, ...], parts)
        (staged,) = self.stage(driver, state, first.stage, staging)
        ready, area = cast(tuple[Driver, StagingArea], staged.parts)
        assert ready.state is not None
        command = coordinator.next(ready.state)
        assert isinstance(command, c.Commit)
        for change in self.commit(ready, ready.state, command, *sinks):
            yield Change(f"{staged.words}; {change.words}", (*change.parts, area), change.fate)

    def commit(self, driver: Driver, state: State, command: c.Commit, *parts: Part) -> Changes:
        """Commit an epoch to a sink, or to several in one transaction."""
        *targets, left = cast(tuple[Any, ...], parts)
        markers, healing = (command.marker, *command.sibling_markers), bool(state.work.healing)
        if healing and Rule.TIME_COPIED in self._off:
            markers = tuple(map(asked_again, markers))
        contents = [
            self._content(driver, state, marker, target) for marker, target in zip(markers, targets, strict=True)
        ]
        if command.sibling_markers and Rule.TOGETHER in self._off:
            replies = self._one_more(targets, markers, contents, driver.memory or 0)
        elif command.sibling_markers:
            replies = self._wire.commit_joined(targets, markers, contents, healing=healing)
        elif Rule.EVERY_SINK in self._off and state.work.index:
            after = self._machine.on(driver, state, c.Committed(receipt(command.marker)))
            yield Change(f"{driver.name} does not wait for sink '{targets[0].name}'", (after, targets[0], left))
            return
        else:
            replies = self._wire.commit(targets[0], markers[0], contents[0], driver.memory, healing=healing)
            if Rule.SEEN_WITH_MARKER in self._off and self._bound.keeps(markers[0].sink):
                replies = in_two(replies, targets[0], markers[0], driver.memory)
            if Rule.TIME_WITH_MARKER in self._off:
                replies = time_after(replies, targets[0], markers[0], driver.memory)
        yield from self._machine.said(driver, state, replies, left)

    def _one_more(
        self, targets: Sequence[Target], markers: Sequence[Marker], contents: Sequence[Digest], at: int
    ) -> wire.Replies:
        """Sinks of one transaction, each in one of its own."""
        last = at + 1 == len(targets)
        for reply in self._wire.commit(targets[at], markers[at], contents[at], None):
            now = [*targets[:at], reply.target, *targets[at + 1 :]]
            outcome, memory = reply.outcome, None
            if isinstance(outcome, c.Committed):
                first, *sibling_receipts = (receipt(marker) for marker in markers)
                outcome, memory = (
                    (c.Committed(first, sibling_receipts=tuple(sibling_receipts)), None) if last else (None, at + 1)
                )
            yield replace(reply, target=now[0], beside=tuple(now[1:]), outcome=outcome, memory=memory)

    def _content(self, driver: Driver, state: State, marker: Marker, target: Target) -> Digest:
        """What a sink is brought."""
        content = brought(driver.content, driver.outputs, target.name) or marker.epoch.digest
        if Rule.SET_ASIDE in self._off and driver.content and not marker.epoch.output(target.name):
            content = together(driver.content, driver.outputs)
        if Rule.STAGED in self._off:
            content = Digest(content.rows, content.high, 1_000_000 * (1 + state.work.index) + salt(driver, state))
        return content

    def look_up(self, driver: Driver, state: State, command: c.LookUp, *parts: Part) -> Changes:
        """Look an epoch up in a sink, or in all those of a transaction."""
        *targets, left = cast(tuple[Any, ...], parts)
        if command.sibling_markers:
            replies = self._wire.look_up_beside(targets, (command.marker, *command.sibling_markers))
        else:
            replies = self._wire.look_up(targets[0], command.marker)
        yield from self._machine.said(driver, state, replies, left)

    def record(
        self, driver: Driver, state: State, command: c.Record, ledger: SimulatedLedger, staging: StagingArea
    ) -> Changes:
        """Record an epoch in the ledger, or a skip."""
        files = state.job.offer.files if state.job.offer else ()
        if command.skipped:
            ledger = ledger.completed(command.epoch.number, files)
        else:
            try:
                ledger = ledger.record(command.epoch, command.receipts, files)
            except Conflict:
                yield Change(f"{driver.name} stops: E511", (replace(driver, refusal="E511"), ledger, staging))
                return
            staging = staging.drop(command.replaced)
        what = "skips, proven:" if command.skipped else "records"
        after = self._machine.on(driver, state, c.Done())
        yield Change(f"{driver.name} {what} epoch {command.epoch.number}", (after, ledger, staging))
