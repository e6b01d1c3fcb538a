"""Carries the coordinator's commands out in the simulated world, as the runner does in the real one.

A driver's step looks at few parts: its own, and those that its command touches. What only the driver itself can see (a
note, a wait, an intent, a preparation near a sink) is carried out in passing: it commutes with every step of everybody
else, and a crash before it and after it leaves the same world.

Where all rules are kept (``Bound.whole_steps``) three more are taken together with their neighbours:

- READ of all sinks with the last INSTALL. While our fence stands nobody else changes the sink, so what is read later
  is what is there now; where a later driver has come between, ours stops without a trace, like one that is killed.
- PROBE with RECALL. Proposals are hints: one that was taken earlier, and is too low by now, meets the fence that makes
  it so at the first sink, and is made again.
- STAGE with the first COMMIT. Nobody looks at staged bytes that no marker names but the sweep that removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from onceonly import commands as c
from onceonly import coordinator
from onceonly.lab.model import sinks as wire
from onceonly.lab.model.canonical import forgetful
from onceonly.lab.model.parts import (
    Conflict,
    Left,
    SimulatedLedger,
    StagedEpoch,
    StagingArea,
    Target,
    receipt,
    record_at,
)
from onceonly.lab.model.rules import Rule
from onceonly.lab.model.spark import Checkpoint, Planned, Refused, offer
from onceonly.lab.model.world import Bound, Change, Driver, Part, World, opening
from onceonly.state import Phase, State
from onceonly_checkpoints.epoch import Digest, Fence, Slice

Changes = Iterator[Change]


@dataclass(frozen=True, slots=True)
class _InstallLast:
    """The last INSTALL, with every READ after it."""

    install: c.Install


@dataclass(frozen=True, slots=True)
class _StageFirst:
    """STAGE, with the first COMMIT after it."""

    stage: c.Stage


class Carrier:
    """Steps of drivers within a bound.

    Args:
        bound: sizes, and rules that are off.
    """

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._off = bound.off
        self._wire = wire.Wire(bound.off, fine=bound.fine)
        self._replies: dict[tuple[Any, ...], tuple[wire.Reply, ...]] = {}
        self._places: dict[type, Callable[[Any], tuple[int, ...]]] = {
            c.Probe: lambda _: (*range(bound.staging), bound.staging, bound.ledger),
            _InstallLast: lambda _: (*range(bound.staging), bound.unknowns_left),
            _StageFirst: lambda _: (0, bound.unknowns_left, bound.staging),
            c.Recall: lambda _: (bound.ledger,),
            c.Recollect: lambda _: (bound.ledger,),
            c.Install: self._at_sink,
            c.Read: self._at_sink,
            c.Commit: lambda command: self._at_sink(command.marker),
            c.LookUp: lambda command: self._at_sink(command.marker),
            c.Index: lambda _: (bound.ledger, bound.staging),
            c.Record: lambda _: (bound.ledger, bound.staging),
            c.Fetch: lambda _: (bound.staging,),
            c.Stage: lambda _: (bound.staging,),
        }
        self._handlers: dict[type, Callable[..., Changes]] = {
            c.Probe: self._probe,
            c.Recall: self._recall,
            c.Recollect: self._recollect,
            c.Install: self._install,
            c.Read: self._read,
            c.Commit: self._commit,
            c.LookUp: self._look_up,
            c.Index: self._index,
            c.Record: self._record,
            c.Fetch: self._fetch,
            c.Stage: self._stage,
            _InstallLast: self._install_last,
            _StageFirst: self._stage_first,
        }

    def _at_sink(self, command: c.Install | c.Read | Any) -> tuple[int, ...]:
        return self._bound.sinks.index(command.sink), self._bound.unknowns_left

    def places(self, driver: Driver) -> tuple[int, ...]:
        """The places that the driver's next step looks at, besides its own."""
        if not driver.running or driver.state is None:
            return (self._bound.checkpoints[driver.at],)
        command = self._command(driver.state)
        if isinstance(command, c.Return):
            return (self._bound.checkpoints[driver.at],)
        return self._places[type(command)](command)

    def sees_fences_alone(self, driver: Driver) -> bool:
        """Whether of the targets the driver's next step reads the fences, and changes none of them."""
        probing = driver.running and driver.state is not None and driver.state.phase is Phase.PROBE
        return probing and self._bound.whole_steps

    def _command(self, state: State) -> c.Command | _InstallLast | _StageFirst:
        command = coordinator.next(state)
        if not self._bound.whole_steps:
            return command
        if isinstance(command, c.Install) and state.index + 1 == len(state.sinks):
            return _InstallLast(command)
        if isinstance(command, c.Stage) and not state.healing:
            return _StageFirst(command)
        return command

    def steps(self, driver: Driver, parts: World) -> Changes:
        """Every outcome of the driver's next step; the first part of each change is the driver."""
        if not driver.running or driver.state is None:
            yield from self._plan(driver, cast(Checkpoint, parts[0]))
            return
        command = self._command(driver.state)
        if isinstance(command, c.Return):
            yield from self._return(driver, cast(Checkpoint, parts[0]))
            return
        yield from self._handlers[type(command)](driver, driver.state, command, *parts)

    # ---- the engine's side

    def _plan(self, driver: Driver, checkpoint: Checkpoint) -> Changes:
        holding = driver.planned.batch_id if driver.planned else None
        try:
            ways = list(checkpoint.next(self._bound.records, self._bound.longest, holding))
        except Refused as refused:
            ended = replace(driver, refusal=str(refused))
            yield Change(f"{driver.name}: the engine stops: {refused}", (ended, checkpoint))
            return
        if not ways:
            yield Change(f"{driver.name} finds nothing more to read", (replace(driver, finished=True), checkpoint))
        for after, planned in ways:
            words = f"{driver.name} is handed batch {planned.batch_id}, records {planned.start + 1} to {planned.end}"
            yield Change(f"{words}, by {checkpoint.name}", (self._handed(driver, after, planned), after))

    def _handed(self, driver: Driver, checkpoint: Checkpoint, planned: Planned) -> Driver:
        offered = offer(checkpoint, planned)
        if driver.state is None:
            state = opening(driver, self._bound.sinks, offered)
        else:
            state = coordinator.resume(driver.state, offered)
        driver = replace(driver, planned=planned, running=True, content=None, memory=None)
        return self._through(driver, state)

    def _return(self, driver: Driver, checkpoint: Checkpoint) -> Changes:
        assert driver.planned is not None
        batch = driver.planned.batch_id
        try:
            after = checkpoint.commit(batch)
        except Refused as refused:
            yield Change(
                f"{driver.name}: the engine stops: {refused}", (replace(driver, refusal=str(refused)), checkpoint)
            )
            return
        words = f"{driver.name} returns; the engine logs batch {batch} as done"
        finished = after.entries[-1].end >= self._bound.records
        yield Change(words, (replace(driver, running=False, content=None, finished=finished), after))

    # ---- from one command to the next

    def _on(self, driver: Driver, state: State, outcome: c.Outcome) -> Driver:
        return self._through(replace(driver, memory=None), coordinator.apply(state, outcome))

    def _through(self, driver: Driver, state: State) -> Driver:
        """Carry out what only the driver sees."""
        while True:
            command = coordinator.next(state)
            match command:
                case c.Note() | c.Wait() | c.Intend():
                    state = coordinator.apply(state, c.Done())
                case c.Prepare():
                    content = driver.content or self._computed(driver, state, command.number)
                    driver = replace(driver, content=content)
                    counted = state.epoch.digest if state.epoch and Rule.WHOLE in self._off else content
                    state = coordinator.apply(state, c.Prepared(counted.rows, content))
                case c.Refuse():
                    return replace(driver, state=None, running=False, refusal=command.refusal.code)
                case _:
                    return replace(driver, state=forgetful(state))

    def _computed(self, driver: Driver, state: State, number: int) -> Digest:
        """What an execution of the batch gives: the same rows again only where the plan is deterministic."""
        assert state.offer is not None
        rows = _rows(state.offer.slice)
        if self._bound.deterministic:
            return Digest(rows, number, rows)
        assert state.fence is not None
        return Digest(rows, driver.number, state.fence.generation)

    # ---- opening

    def _probe(self, driver: Driver, state: State, _: c.Probe, *parts: Part) -> Changes:
        targets = cast(tuple[Target, ...], parts[: self._bound.staging])
        staging, ledger = cast(tuple[StagingArea, SimulatedLedger], parts[self._bound.staging :])
        fences = tuple(self._wire.fence(target) for target in targets)
        if Rule.HIGHEST in self._off:
            fences = (Fence(ledger.generation, ""),)
        after = self._on(driver, state, c.Probed(fences))
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
            (recalled,) = self._recall(after, after.state, c.Recall(), ledger)
            words, after = f"{words}; {recalled.words}", cast(Driver, recalled.parts[0])
        yield Change(words, (after, *targets, staging, ledger))

    def _install_last(self, driver: Driver, state: State, last: _InstallLast, *parts: Part) -> Changes:
        *targets, left = cast(tuple[Any, ...], parts)
        at = state.index
        for change in self._install(driver, state, last.install, targets[at], left):
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
            (said,) = self._read(driver, driver.state, command, target, left)
            driver = cast(Driver, said.parts[0])
        return Change(words + _end(driver), (driver, *targets, left))

    def _recall(self, driver: Driver, state: State, _: c.Recall, ledger: SimulatedLedger) -> Changes:
        head = ledger.head
        after = self._on(driver, state, c.Recalled(head, head.epoch.lineage if head else None))
        words = f"epoch {head.epoch.number}" if head else "nothing"
        yield Change(f"{driver.name} reads the ledger: {words}", (after, ledger))

    def _recollect(self, driver: Driver, state: State, command: c.Recollect, ledger: SimulatedLedger) -> Changes:
        last = state.last.number if state.last else 0
        descent = ledger.descent(command.query_id, command.batch_id, last)
        after = self._on(driver, state, c.Recollected(descent))
        found = f"epoch {descent[0].number}" if descent else "no epoch"
        words = f"{driver.name} asks the ledger for batch {command.batch_id}: {found}"
        yield Change(words + _end(after), (after, ledger))

    def _install(self, driver: Driver, state: State, command: c.Install, target: Target, left: Left) -> Changes:
        replies = self._known(self._wire.install, target, command.fence, driver.memory)
        yield from self._said(driver, state, replies, left)

    def _read(self, driver: Driver, state: State, command: c.Read, target: Target, left: Left) -> Changes:
        assert state.fence is not None
        if driver.early:
            seen = driver.early[self._bound.sinks.index(command.sink)]
            after = self._on(driver, state, wire.reading(seen, state.fence, command.since, command.after))
            yield Change(f"{driver.name} goes by what it read in sink '{command.sink}' before", (after, target, left))
            return
        replies = self._known(self._wire.position, target, state.fence, command.since, command.after)
        yield from self._said(driver, state, replies, left)

    def _index(
        self, driver: Driver, state: State, command: c.Index, ledger: SimulatedLedger, staging: StagingArea
    ) -> Changes:
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
        after = self._on(driver, state, c.Done())
        yield Change(
            f"{driver.name} enters itself into the ledger and sweeps staging{_end(after)}", (after, ledger, staging)
        )

    # ---- one epoch

    def _fetch(self, driver: Driver, state: State, command: c.Fetch, staging: StagingArea) -> Changes:
        for found in self._manifests(command.manifest, state.number, staging):
            usable = found is not None and (not found.torn or Rule.WHOLE in self._off)
            if found is None or not usable:
                after = self._on(driver, state, c.Missing("gone or torn"))
                yield Change(f"{driver.name} does not find the staged bytes{_end(after)}", (after, staging))
                continue
            content = replace(found.content, rows=0) if found.torn else found.content
            # Without the hash of the manifest nothing tells that these are other bytes than the marker's.
            digest = state.epoch.digest if state.epoch and Rule.NAMED in self._off else found.content
            after = self._on(replace(driver, content=content), state, c.Staged(command.manifest, digest.rows, digest))
            yield Change(f"{driver.name} takes the staged bytes {found.reference}{_end(after)}", (after, staging))

    def _manifests(self, reference: str, number: int, staging: StagingArea) -> tuple[StagedEpoch | None, ...]:
        if Rule.NAMED not in self._off:
            return (staging.holds(reference),)
        return tuple(one for one in staging.epochs if one.number == number) or (None,)

    def _stage(self, driver: Driver, state: State, command: c.Stage, staging: StagingArea) -> Changes:
        assert state.fence is not None
        content = self._computed(driver, state, command.number)
        again = "-again" if state.healing else ""
        reference = f"e{command.number}-g{state.fence.generation}-{state.owner}{again}"
        staged = StagedEpoch(reference, command.number, state.fence.generation, content, Rule.WHOLE not in self._off)
        after = self._on(replace(driver, content=content), state, c.Staged(reference, content.rows, content))
        kept = staging if Rule.KEPT in self._off else staging.add(staged)
        yield Change(f"{driver.name} stages epoch {command.number} as {reference}{_end(after)}", (after, kept))

    def _stage_first(self, driver: Driver, state: State, first: _StageFirst, *parts: Part) -> Changes:
        target, left, staging = cast(tuple[Target, Left, StagingArea], parts)
        (staged,) = self._stage(driver, state, first.stage, staging)
        ready, area = cast(tuple[Driver, StagingArea], staged.parts)
        assert ready.state is not None
        command = coordinator.next(ready.state)
        assert isinstance(command, c.Commit)
        for change in self._commit(ready, ready.state, command, target, left):
            yield Change(f"{staged.words}; {change.words}", (*change.parts, area), change.fate)

    def _commit(self, driver: Driver, state: State, command: c.Commit, target: Target, left: Left) -> Changes:
        content = driver.content or command.marker.epoch.digest
        if Rule.STAGED in self._off:
            assert state.fence is not None
            content = Digest(content.rows, driver.number, 1000 * state.fence.generation + state.index)
        if Rule.EVERY_SINK in self._off and state.index:
            after = self._on(driver, state, c.Committed(receipt(command.marker)))
            yield Change(f"{driver.name} does not wait for sink '{target.name}'", (after, target, left))
            return
        replies = self._known(self._wire.commit, target, command.marker, content, driver.memory)
        yield from self._said(driver, state, replies, left)

    def _look_up(self, driver: Driver, state: State, command: c.LookUp, target: Target, left: Left) -> Changes:
        yield from self._said(driver, state, self._known(self._wire.look_up, target, command.marker), left)

    def _record(
        self, driver: Driver, state: State, command: c.Record, ledger: SimulatedLedger, staging: StagingArea
    ) -> Changes:
        if not state.skipped:
            try:
                ledger = ledger.record(command.epoch, command.receipts)
            except Conflict:
                yield Change(f"{driver.name} stops: E511", (replace(driver, refusal="E511"), ledger, staging))
                return
            staging = staging.drop(state.last.manifest if state.last else None)
        what = "skips, proven:" if state.skipped else "records"
        after = self._on(driver, state, c.Done())
        yield Change(f"{driver.name} {what} epoch {command.epoch.number}", (after, ledger, staging))

    # ---- helpers

    def _known(self, call: Callable[..., wire.Replies], *asked: Any) -> tuple[wire.Reply, ...]:
        """What a sink replies: the same to whoever asks the same."""
        key = (call.__name__, *asked)
        found = self._replies.get(key)
        if found is None:
            found = self._replies[key] = tuple(call(*asked))
        return found

    def _said(self, driver: Driver, state: State, replies: Iterable[wire.Reply], left: Left) -> Changes:
        answered: dict[c.Outcome, Driver] = {}
        for reply in replies:
            lost = reply.fate is not wire.Fate.ANSWERED
            if lost and not left.times:
                continue
            after = self._after(driver, state, reply, answered)
            yield Change(
                f"{driver.name} {reply.words}{_end(after)}",
                (after, reply.target, left.less if lost else left),
                reply.fate,
            )

    def _after(self, driver: Driver, state: State, reply: wire.Reply, answered: dict[c.Outcome, Driver]) -> Driver:
        match reply.outcome:
            case None:
                return replace(driver, memory=reply.memory)
            case wire.Raised(code):
                return replace(driver, state=None, running=False, refusal=code)
            case outcome:
                if outcome not in answered:
                    answered[outcome] = self._on(driver, state, outcome)
                return answered[outcome]


def _rows(slice_: Slice) -> int:
    return record_at(slice_.end) - record_at(slice_.start)


def _end(driver: Driver) -> str:
    return f", and stops: {driver.refusal}" if driver.refusal else ""
