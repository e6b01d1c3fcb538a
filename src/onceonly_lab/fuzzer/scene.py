"""Shared scene of a simulated schedule's drivers.

It decides who stops whom, and which faults happen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, Marker
from onceonly_checkpoints.ledger import Event, Intent
from onceonly_lab.checker import Anomaly
from onceonly_lab.history import Header, Mark, MarkTime, Part, Range, Row
from onceonly_lab.history.recorder import Seen
from onceonly_lab.model import invariants
from onceonly_lab.model.division import Division
from onceonly_lab.model.invariants import Violation
from onceonly_lab.model.keys import catalogue, early, first_of_each
from onceonly_lab.model.operator import Stop, Wreck, obey, ways
from onceonly_lab.model.parts import (
    Desk,
    Harm,
    Held,
    Kind,
    Records,
    SimulatedLedger,
    StagedEpoch,
    StagingArea,
    Target,
    between,
    computation,
    computed,
    harmed,
    record_at,
    records_in,
    records_of,
)
from onceonly_lab.model.rules import ALL_KEPT, Rule
from onceonly_lab.model.sinks import Fate, Reply, Wire
from onceonly_lab.model.spark import Source
from onceonly_lab.model.world import Bound
from onceonly_lab.play.recorder import PARTITION, HistoryRecorder, promises_of
from onceonly_lab.play.world import Broken, Process, World
from onceonly_lab.schedule import Action, Fault, Schedule

# ---- Who stops whom in a scene: drivers that meet another's fence and end there, and who is refused behind his own.

OVERTAKEN = frozenset({"E401", "E403"})
"""Codes with which a driver stops at another's fence."""


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to know for a driver that opens, before it looks at the sinks.

    Attributes:
        held: what each sink holds, and what has happened to it.
        recorded: chains in the ledger.
        hidden: whether only a fence can tell what there is: Kafka may hide from a look what it has confirmed.
    """

    held: tuple[tuple[tuple[Held, ...], str], ...]
    recorded: frozenset[str]
    hidden: bool

    @classmethod
    def of(cls, targets: Mapping[str, Target], ledger: SimulatedLedger) -> Known:
        """As it is now."""
        held = tuple((target.held, target.harm) for target in targets.values())
        epochs_by_sink = {receipt.sink: receipt.epoch for receipt in ledger.head.receipts} if ledger.head else {}
        hidden = any(
            target.kind is Kind.KAFKA
            and (target.newest.epoch.number if target.newest else 0) < epochs_by_sink.get(name, 0)
            for name, target in targets.items()
        )
        return cls(held, frozenset(record.epoch.chain for record in ledger.records), hidden)


@dataclass
class Watched:
    """What a driver met on its way.

    Attributes:
        opens: whether it has asked for fences, and has not read the ledger's head since. A driver that is refused reads
            it, too, for its message.
        known: what there was to know at its newest opening; ``None`` where the ledger told of no epoch.
        met: the sink at which it found another's fence last, with the owner of it.
    """

    opens: bool = False
    known: Known | None = None
    met: tuple[str, str] | None = None

    def recalls(self, targets: Mapping[str, Target], ledger: SimulatedLedger) -> None:
        """It reads the ledger's head: of what is there from now on it could know."""
        if self.opens:
            self.known = Known.of(targets, ledger) if ledger.head else None
        self.opens = False


def marked(
    watched: Watched, owner: str, code: str, targets: Mapping[str, Target], ledger: SimulatedLedger
) -> dict[str, Target]:
    """The sinks as they tell of it that a driver stops.

    Args:
        watched: what it met.
        owner: its token.
        code: why it stops.
        targets: sinks by name.
        ledger: the index.
    """
    marked_targets = dict(targets)
    if code in OVERTAKEN and watched.met is not None:
        sink, by = watched.met
        marked_targets[sink] = replace(marked_targets[sink], stopped_by=by)
    if code.startswith("E2") and _could_have_known(watched, targets, ledger):
        for name, target in targets.items():
            if target.fence is not None and target.fence.owner == owner:
                marked_targets[name] = replace(marked_targets[name], barren=owner)
    return marked_targets


def _could_have_known(watched: Watched, targets: Mapping[str, Target], ledger: SimulatedLedger) -> bool:
    """Whether all that counts at the end was there before the look: nobody has written since, nor lost anything."""
    before, now = watched.known, Known.of(targets, ledger)
    return before is not None and not before.hidden and now.held == before.held and before.recorded <= now.recorded


# ---- What the drivers of one schedule share: targets, staging, ledger, checkpoints, a clock of steps, what goes
# wrong.
#
# Everything that somebody else can see goes through :meth:`Scene.step` before and :meth:`Scene.told` after it
# happens.

_FATES = {
    Action.LOSE_ANSWER: Fate.ANSWER_LOST,
    Action.LOSE_REQUEST: Fate.REQUEST_LOST,
    Action.DELAY: Fate.IN_FLIGHT,
    Action.HIDE: Fate.HIDDEN,
}
_LONGEST = 5000


def bound_of(schedule: Schedule, off: frozenset[Rule] = ALL_KEPT) -> Bound:
    """The sizes of a schedule's world."""
    return Bound(
        schedule.sinks,
        schedule.records,
        max(schedule.cuts),
        off=off,
        fine=True,
        source=Source(schedule.files, schedule.begins, schedule.stateful),
        trims=schedule.trims,
        stages=schedule.stages,
        on_refresh="replace" if schedule.replaces else "stop",
        together=True,
        keys=schedule.keys,
        windows=schedule.windows,
    )


class SimulatedInput:
    """The source of a simulated run, whose records are bits.

    Args:
        rows: of each record.
        keys: of each record, where they have any.
    """

    def __init__(self, rows: int, keys: tuple[int, ...] = ()) -> None:
        self._rows = rows
        self._keys = keys
        self._ends: dict[str, int] = {}

    def told(self, span: Range) -> tuple[Row, ...]:
        """The rows of a range, in order."""
        return tuple(
            Row(identity, key=self._key(identity)) for identity in self.identities(between(span.start, span.end))
        )

    def _key(self, identity: str) -> str | None:
        record, row = identity.split(".")
        return f"{self._keys[int(record)]}.{row}" if self._keys else None

    def brought(self, epoch: Epoch) -> tuple[Range, tuple[Row, ...]]:
        """Where an epoch stands in the source, and the rows that it is."""
        brought, before = records_of(epoch), self._ends.get(epoch.previous_chain, 0)
        if self._keys:  # what it brings does not say where it begins and ends
            span = Range(PARTITION, record_at(epoch.written.start), record_at(epoch.written.end))
            return span, tuple(Row(identity) for identity in self.identities(brought))
        before = 0 if epoch.replaces else before
        begin = (brought & -brought).bit_length() - 1 if brought else before
        end = max(before, brought.bit_length())
        self._ends[epoch.chain] = end
        return Range(PARTITION, begin, end), tuple(Row(identity) for identity in self.identities(brought))

    def identities(self, brought: Records) -> tuple[str, ...]:
        """Of the rows of some records."""
        records = (record for record in range(brought.bit_length()) if brought >> record & 1)
        return tuple(f"{record}.{row}" for record in records for row in range(self._rows))

    def seen(self, target: Target) -> Seen:
        """What a reader of a target sees."""
        rows = tuple(row for held in target.held for row in self._seen(held))
        marks = tuple(self._mark(held.marker, target.name) for held in target.held if held.marker)
        return Seen(rows, marks)

    def _mark(self, marker: Marker, sink: str) -> Mark:
        epoch, time = marker.epoch, marker.epoch.time
        mark_time = MarkTime(time.complete_until, time.dataset_complete_until, time.resets) if time else None
        windows = self._rows * epoch.windows.open.rows if epoch.windows and not epoch.adoption else None
        named = Mark(epoch.number, marker.fence.generation, digest=epoch.digest.text, time=mark_time, windows=windows)
        if not epoch.outputs:
            return named
        output, bad = epoch.output(sink), epoch.bad
        counted = (epoch.digest_in(sink).rows, output.filtered if output else 0, bad.digest.rows if bad else 0)
        count, filtered, aside = (self._rows * rows for rows in counted)
        return replace(named, count=count, filtered=filtered, bad=0 if output and output == bad else aside)

    def parts(self, outputs: tuple[OutputDigest, ...]) -> tuple[Part, ...] | None:
        """Outputs as a history tells them."""
        parts = (Part(output.name, tuple(sorted(self.identities(records_in(output.digest))))) for output in outputs)
        return tuple(parts) or None

    def _seen(self, held: Held) -> tuple[Row, ...]:
        if held.content is None:
            return ()
        identities = self.identities(records_in(held.content))
        visible_ids = identities if held.whole else identities[: len(identities) // 2]
        return tuple(Row(identity, held.epoch.number, value=str(computation(held.content))) for identity in visible_ids)


class Scene(World):
    """The state of one run.

    Args:
        schedule: what is run.
        off: rules that are not kept.
        refusals: codes that are a right answer to what goes wrong.
    """

    def __init__(self, schedule: Schedule, off: frozenset[Rule], refusals: frozenset[str]) -> None:
        self.off = off
        self.bound = bound_of(schedule, off)
        self._input = SimulatedInput(schedule.rows, schedule.keys)
        promises = promises_of(schedule, self.bound.sinks)
        header = Header(promises, schedule.line, schedule.seed, False, refusals=tuple(sorted(refusals)))
        super().__init__(schedule, HistoryRecorder(header, self._input, schedule.records))
        self.wire = Wire(off, fine=True)
        self.targets = {name: Target(name, kind) for name, kind in zip(self.bound.sinks, schedule.sinks, strict=True)}
        self.staging = StagingArea()
        self.ever_staged: dict[str, StagedEpoch] = {}
        self.ledger = SimulatedLedger()
        self.desk = Desk()
        self.watched: defaultdict[int, Watched] = defaultdict(Watched)
        self.stops: dict[int, Stop] = {}
        self.intents: dict[int, Intent] = {}
        self.states_left: list[Event] = []
        self._landings: list[int] = []
        self._early: dict[int, Target] = {}
        self._checks = invariants.checks(self.bound)

    @property
    def sinks(self) -> tuple[str, ...]:
        """Ids of the sinks, in commit order."""
        return self.bound.sinks

    def division(self, number: int) -> Division:
        """What the call of a driver makes of rows."""
        return self.schedule.division(self.sinks, number)

    def seen(self, process: Process, number: int, of: Callable[[Epoch], Records] = records_of) -> Records:
        """Records that the keeper's catalogue of keys, or its state of windows, holds for an epoch that is staged."""
        keeper = self.targets[self.sinks[self.bound.keeper[0]]]
        if Rule.SEEN_UNDER_FENCE in self.off:
            keeper = early(keeper, self._early.get(process.number), process.owner)
        return catalogue(keeper, process.series, number, self.off, of)

    def fresh(self, process: Process, content: Digest, number: int) -> Digest:
        """Rows without those whose key was seen before the epoch."""
        if not self.bound.keys:
            return content
        records = first_of_each(records_in(content), self.seen(process, number), self.bound.keys)
        self.actors["a repeated key is left out"] += records != records_in(content)
        return computed(records, content.low)

    def looks_early(self, process: Process, name: str) -> None:
        """What a product does that reads the catalogue before its fences stand."""
        if self.bound.keeps(name):
            self._early[process.number] = self.targets[name]

    def parts_of(self, outputs: tuple[OutputDigest, ...]) -> tuple[Part, ...] | None:
        """Outputs as a history tells them."""
        return self._input.parts(outputs)

    # ---- steps

    def step(self, process: Process) -> None:
        """Something is about to happen that others can see.

        Raises:
            Killed: to a process that is dead.
            Broken: there is no end.
        """
        self.alive(process)
        if len(self.steps) > _LONGEST:
            raise Broken(Violation(Anomaly.STUCK, f"no end after {_LONGEST} steps"))
        self.before_step(process)

    def told(self, words: str) -> None:
        """It has happened."""
        super().told(words)
        self.judge()
        self.land()

    def change(self, target: Target) -> None:
        """A target is another one now."""
        previous, self.targets[target.name] = self.targets[target.name], target
        if previous.held != target.held:
            self.read(target)

    def read(self, target: Target, *, final: bool = False) -> None:
        """A reader looks at a target."""
        self.recorder.read(target.name, lambda: self._input.seen(target), final=final)

    def read_all(self) -> None:
        """Every target at the end, and the ledger."""
        for target in self.targets.values():
            self.read(target, final=True)
        self.recorder.read_ledger((record.epoch.number, record.epoch.digest) for record in self.ledger.records)

    def land(self, *, everything: bool = False) -> None:
        """What was delayed lands once its time has come, if it still can."""
        for when in [when for when in self._landings if everything or when <= len(self.steps)]:
            self._landings.remove(when)
            alone = (
                (landing.words, (landing.target,))
                for each in self.targets.values()
                for landing in self.wire.landings(each)
            )
            group_landings = self.wire.landings_beside([self.targets[sink] for sink in self.bound.group])
            words, targets = next(chain(alone, group_landings), ("", ()))
            for target in targets:
                self.change(target)
            if words:
                self.steps.append(words)
                self.judge()

    def judge(self) -> None:
        """Find what does not hold in the world as it is now.

        Raises:
            Broken: an invariant does not.
        """
        second = self.checkpoints[1] if len(self.checkpoints) > 1 else None
        shared = (*self.targets.values(), self.staging, self.ledger, self.checkpoints[0], second, self.desk)
        violation = invariants.first_broken(self._checks, shared)
        if violation is not None:
            raise Broken(violation)

    def stop(self, process: Process, code: str) -> None:
        """A driver ends with an error of the product's.

        Raises:
            Broken: it has stopped somebody, and could have known that it will be refused itself.
        """
        watched = self.watched[process.number]
        self.targets = marked(watched, process.owner, code, self.targets, self.ledger)
        self.steps.append(f"{process.name} stops: {code}")
        self.judge()

    # ---- what goes wrong

    def chosen(self, replies: Sequence[Reply], faults: tuple[Fault, ...]) -> Reply:
        """The way in which a call goes."""
        for fault in faults:
            fate = _FATES.get(fault.action)
            match = next((reply for reply in replies if reply.fate is fate), None)
            if match is not None:
                self.struck.acted.add(fault)
                self.recorder.fault(f"{fault.point}:{fault.action}")
                if fault.action in (Action.DELAY, Action.HIDE):
                    self._landings.append(len(self.steps) + fault.steps)
                return match
        return next(reply for reply in replies if reply.fate is Fate.ANSWERED)

    def lose_ledger(self) -> None:
        """The ledger is gone, with what it held."""
        self.ledger = SimulatedLedger()
        self.recorder.ledger_lost()
        self.steps.append("the ledger is lost")

    def harm(self, at: int, harm: Harm) -> None:
        """Something befalls a sink, which no driver is told."""
        name = self.bound.sinks[at]
        after = harmed(self.targets[name], harm)
        if after is None or any(target.harm for target in self.targets.values()):
            return
        self.targets[name] = after
        self.actors[str(harm)] += 1
        self.steps.append(f"sink '{name}' is {harm.value}")

    def vanish(self) -> None:
        """Input files are gone."""
        for record in self.schedule.gone:
            self.desk = replace(self.desk, gone=self.desk.gone | 1 << record)
            self.actors["a file is gone"] += 1
            self.steps.append(f"the file of record {record + 1} is gone")

    @property
    def wreck(self) -> Wreck:
        """What a command may change."""
        targets = tuple(self.targets.values())
        return Wreck(targets, self.staging, self.ledger, self.checkpoints[-1], self.desk, self.bound.records)

    def obey(self, stop: Stop, choice: int) -> bool:
        """Have the operator obey one of the commands that a refusal prints; whether there is one."""
        remedies = ways(stop, self.wreck)
        if not remedies:
            return False
        obeyed = obey(remedies[choice % len(remedies)], stop, self.wreck)
        after = obeyed.wreck
        self.targets = {target.name: target for target in after.targets}
        self.ledger, self.desk, self.checkpoints[-1] = after.ledger, after.desk, after.checkpoint
        self.actors["the operator"] += 1
        self.steps.append(obeyed.words)
        self.judge()
        return True
