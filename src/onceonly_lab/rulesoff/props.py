"""Sinks and world in which scenes are played.

The world is that of random schedules, one step after the other. The sinks misbehave.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onceonly.errors import OnceOnlyError
from onceonly.machine import coordinator
from onceonly.machine.division_rules import WindowsConfig
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.facts import Offer, Overlap
from onceonly.machine.state import Job, State
from onceonly.machine.writer_progress import TimedMarker
from onceonly.protocol import Batch, Conflict, OutcomeUnknown, Peek, Position, Prepared, Recorder
from onceonly.protocol.batch import Bound, Notes
from onceonly.protocol.row_rules import BrokenCheck, Check
from onceonly.protocol.row_times import NO_TIMES, Clock, RowTimes, TimedEpoch
from onceonly.protocol.values import ExternalChange
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedData
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import STATE, Digest, OutputDigest
from onceonly_checkpoints.epoch import Fence, Marker, OutputColumns, Receipt, StateVersion
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Slice
from onceonly_checkpoints.spark.offsets import PreviousBatch
from onceonly_lab.checker import Anomaly
from onceonly_lab.fuzzer.scene import Scene
from onceonly_lab.fuzzer.sink import PreparedContent, SceneSink, SinkRefused, TellingSink
from onceonly_lab.fuzzer.stores import SceneLedger, SceneStaging, SimulatedBatch
from onceonly_lab.fuzzer.world import SimulatedWorld
from onceonly_lab.model.invariants import Violation, of_target
from onceonly_lab.model.parts import (
    PIPELINE,
    Kind,
    Records,
    between,
    computed,
    offsets,
    picked,
    records_in,
    set_aside,
    spelled,
)
from onceonly_lab.model.spark import Checkpoint, Damage, Planned, damaged, offer
from onceonly_lab.play.world import Broken, Killed, Process
from onceonly_lab.schedule import Schedule

Sinks = Mapping[str, type[SceneSink]]
"""Sinks that are not what they should be, by id."""


Noted = tuple[EventTimeConfig, Callable[[TimedEpoch], int] | None]
"""How time is said, and what of each epoch; ``None``: by the times of its rows."""

_LONGEST = 2000


class _World(SimulatedWorld):
    """Judged at the end of a scene, and not after each step: somebody else has changed it.

    Attributes:
        wanted: the records of which the last sink gets an output; ``None``: it gets all rows.
        bad: the records that break an expectation: the last sink gets these alone.
        most: how many of them an epoch may bring; ``None``: any number.
        uncounted: rows that the output neither holds nor counts.
        called: what the output is called; empty: as any.
    """

    wanted: Records | None = None
    called: str = ""
    bad: Records = 0
    most: int | None = None
    uncounted: int = 0

    def judge(self) -> None:
        """Nothing yet."""

    def told(self, words: str) -> None:
        """It has happened.

        Raises:
            Broken: there is no end.
        """
        super().told(words)
        if len(self.steps) > _LONGEST:
            raise Broken(Violation(Anomaly.STUCK, f"no end after {_LONGEST} steps"))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a start of the query ended.

    Attributes:
        code: of the refusal; empty where it went on.
        wrote: the sinks in which it left rows although it was refused.
    """

    code: str
    wrote: tuple[str, ...] = ()


class Stage:
    """A pipeline in a world.

    Args:
        kinds: what the sinks are like, in commit order.
        options: of the schedule: ``trims``, ``stages``, ``stateful``, ``files``.
    """

    def __init__(self, *kinds: Kind, **options: Any) -> None:
        self.scene = _World(Schedule(kinds, records=6, begins=True, **options))
        self._starts = 0

    def elsewhere(self, begin: int, *beside: PreviousBatch) -> None:
        """Another checkpoint takes the place of the one before, and begins behind so many records.

        Args:
            begin: how many.
            beside: what its lower siblings still hold.
        """
        count = len(self.scene.checkpoints)
        self.scene.checkpoints.append(
            Checkpoint("another checkpoint", f"query {count}", plans=100 * count, begin=begin, beside=beside)
        )

    @property
    def newest(self) -> PreviousBatch:
        """The batch that became the newest epoch, as the checkpoint's offset log tells it."""
        checkpoint = self.scene.checkpoints[-1]
        refreshed = damaged(checkpoint, Damage.REFRESHED)
        assert refreshed is not None
        return next(batch for batch in reversed(refreshed.beside) if batch.end == offsets(checkpoint.entries[-1].end))

    def starts(
        self,
        *names: str,
        sinks: Sinks | None = None,
        changes: Callable[[Offer], Offer] | None = None,
        notes: Noted | None = None,
        peers: Sequence[TimedMarker] = (),
        windows: WindowsConfig | None = None,
        times: RowTimes | None = None,
        check: Check | None = None,
        state: str = "",
        leaves: str = "",
    ) -> Start:
        """Start the query on the newest checkpoint.

        Args:
            names: of the sinks that it is called with; none: all.
            sinks: those that misbehave.
            changes: makes another offer of what the engine offers.
            notes: how time is said, and what; ``None``: nothing is.
            peers: newest epochs of the dataset's other writers.
            windows: how rows are aggregated; ``None``: they are not.
            times: of the rows of each batch; ``None``: they have none.
            check: what no batch meets; ``None``: nothing is asked of its rows together.
            state: in which files it finds Spark's state.
            leaves: in which it leaves it. Empty: as found.
        """
        self._starts += 1
        named = names or self.scene.bound.sinks
        options: dict[str, Any] = {"notes": notes, "peers": tuple(peers), "windows": windows, "times": times}
        return Start(
            self.scene,
            self._starts,
            named,
            sinks or {},
            changes,
            check=check,
            states=(state, leaves or state),
            **options,
        )

    def holds(self, records: Records) -> str:
        """What is wrong where every sink should hold these records once; empty: nothing."""
        problems = (
            wrong(name, [records_in(held_epoch.content) for held_epoch in self._held(name)], records)
            for name in self._names
        )
        return next(filter(None, problems), "")

    def goes_back(self) -> str:
        """What is wrong where what was said of time must stand in every sink; empty: nothing."""
        violations = (of_target(self.scene.targets[name], self.scene.desk) for name in self._names)
        return next((f"{violation.name}: {violation.words}" for violation in violations if violation), "")

    @property
    def _names(self) -> tuple[str, ...]:
        return self.scene.bound.sinks

    def _held(self, name: str) -> Any:
        return self.scene.targets[name].held


def wrong(name: str, parts: list[Records], records: Records) -> str:
    """What is wrong with the parts of a sink that should hold these records once; empty: nothing."""
    sink_records = twice = 0
    for part in parts:
        twice |= sink_records & part
        sink_records |= part
    if twice:
        return f"X-DUP: records {spelled(twice)} stand twice in sink '{name}'"
    if lacking := records & ~sink_records:
        return f"X-LOSS: records {spelled(lacking)} are not in sink '{name}'"
    return f"X-PHANTOM: records {spelled(sink_records & ~records)} in sink '{name}'" if sink_records & ~records else ""


class Start:
    """One start of the query; see :meth:`Stage.starts`."""

    def __init__(
        self,
        scene: Scene,
        number: int,
        names: tuple[str, ...],
        sinks: Sinks,
        changes: Callable[[Offer], Offer] | None,
        *,
        notes: Noted | None = None,
        peers: tuple[TimedMarker, ...] = (),
        windows: WindowsConfig | None = None,
        times: RowTimes | None = None,
        check: Check | None = None,
        states: tuple[str, str] = ("", ""),
    ) -> None:
        self._scene = scene
        self._times, self._check, self._found = times, check, states[0]
        self._process = Process(number, len(scene.checkpoints) - 1)
        scene.recorder.start(number)
        self._names = names
        plain = TellingSink if scene.schedule.replaces else SceneSink
        made = [sinks.get(name, plain)(scene, self._process, name) for name in names]
        staging = _Staging(scene, self._process)
        staged = len(names) > 1 or scene.bound.stages or windows is not None or check is not None
        ledger = SceneLedger(scene, self._process)
        self._notes = notes[0] if notes else None
        self._windows = windows
        says = notes[1] if notes else None
        self._runner = Runner(
            made,
            ledger,
            staging=staging if staged else None,
            fetch=staging.fetch,
            says=says,
            peers=lambda name, writers: (peers, ""),
            sleep=lambda _: None,
            state_of=lambda version: self._spark_state(version, states[1]),
        )
        self._changes = changes or (lambda offered: offered)
        self._state: State | None = None

    def _spark_state(self, version: int, digest: str) -> StateVersion | None:
        return StateVersion(version, (("0", 1, digest),)) if self._scene.schedule.stateful else None

    def writes(self, batches: int = 1, *, returns: bool = True) -> Ended:
        """Hand batches over, as the engine does.

        Args:
            batches: how many.
            returns: whether the engine is told that the last one is done.
        """
        before = {name: len(target.held) for name, target in self._scene.targets.items()}
        for at in range(batches):
            if code := self._write(last=at + 1 == batches and not returns):
                grew = (name for name, target in self._scene.targets.items() if len(target.held) > before[name])
                return Ended(code, tuple(grew))
        return Ended("")

    def _write(self, *, last: bool) -> str:
        scene, process = self._scene, self._process
        checkpoint = scene.checkpoints[process.at]
        holding = process.planned.batch_id if process.planned else None
        checkpoint, planned = list(checkpoint.next(scene.bound.records, scene.bound.longest, holding))[-1]
        scene.checkpoints[process.at], process.planned = checkpoint, planned
        try:
            self._run(checkpoint, planned)
        except Killed:
            process.dead = True
            return "killed"
        except Broken as broken:
            return f"{broken.violation.name}: {broken.violation.words}"
        except (OnceOnlyError, SinkRefused) as error:
            return error.code
        if not last:
            scene.checkpoints[process.at] = checkpoint.commit(planned.batch_id)
        return ""

    def _run(self, checkpoint: Checkpoint, planned: Planned) -> None:
        bound = self._scene.bound
        looks_back = bound.trims and self._state is None
        offered = self._changes(offer(checkpoint, planned, bound.source, looks_back=looks_back))
        state, self._state = self._state, None
        if state is not None:
            state = coordinator.resume(state, offered)
        else:
            overlap: Overlap = "trim" if bound.trims else "stop"
            offered = replace(offered, state=self._spark_state(offered.lineage.batch_id, self._found))
            owner = self._process.owner
            state = coordinator.start(
                Job(
                    PIPELINE,
                    self._names,
                    owner,
                    offered,
                    overlap=overlap,
                    stages=bound.stages,
                    on_refresh=bound.on_refresh,
                    max_bad=self._scene.most if isinstance(self._scene, _World) else None,
                    noting=self._notes,
                    windows=self._windows,
                    divided=self._windows is not None or self._check is not None,
                )
            )
        same = not self._scene.schedule.rows > 1
        batch = SimulatedBatch(planned.records, self._process, same=same)
        if self._times:
            batch = TimedBatch(planned.records, self._process, self._times, same=same)
        if self._check:
            batch = CheckedBatch(planned.records, self._process, self._check, same=same)
        if self._windows:
            batch = WindowedBatch(planned.records, self._process, self._windows, same=same)
        self._state = self._runner.run(state, batch)


class TimedBatch(SimulatedBatch):
    """A batch of rows that have times.

    Args:
        records: what it reads.
        process: computes it.
        times: of its rows.
        same: whether every computation gives the same rows.
    """

    def __init__(self, records: Records, process: Process, times: RowTimes, *, same: bool) -> None:
        super().__init__(records, process, same=same)
        self._times = times

    def timed(self, clock: Clock) -> TimedBatch:
        """The same batch: its times are known."""
        return self

    def times(self) -> RowTimes:
        """As they were given."""
        return self._times


class CheckedBatch(SimulatedBatch):
    """A batch whose rows do not meet a check together.

    Args:
        records: what it reads.
        process: computes it.
        check: what they do not meet.
        same: whether every computation gives the same rows.
    """

    checked_in_files = False

    def __init__(self, records: Records, process: Process, check: Check, *, same: bool) -> None:
        super().__init__(records, process, same=same)
        self._broken = BrokenCheck(check)

    def broken(self, output: object) -> tuple[BrokenCheck, ...]:
        """It, whatever is staged."""
        return (self._broken,)

    def aside(self, checks: Sequence[str]) -> CheckedBatch:
        """The same batch: no scene sets its rows aside."""
        return self


class WindowedBatch(SimulatedBatch):
    """A batch of which each record opens a window that nothing closes.

    Args:
        records: what it reads.
        process: computes it.
        windows: how they are defined.
        same: whether every computation gives the same rows.
    """

    def __init__(self, records: Records, process: Process, windows: WindowsConfig, *, same: bool) -> None:
        super().__init__(records, process, same=same)
        self._windows = windows
        self._left = Digest(0)
        self._clock = 0

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> WindowedBatch:
        """The same batch, on top of the windows that are open; see ``protocol.batch.Bindable``."""
        self._left, self._clock = to.open + Digest(self.rows), to.clock
        return self

    def outputs(self) -> tuple[OutputDigest, ...]:
        """None: panes are what lies in the sinks."""
        return ()

    def times(self) -> RowTimes:
        """Nothing is said of time."""
        return NO_TIMES

    def columns(self) -> tuple[OutputColumns, ...]:
        """None: columns are not simulated here."""
        return ()

    def panes(self) -> EpochWindows:
        """What is open behind the epoch."""
        windows = self._windows
        return EpochWindows(windows.definition, windows.meaning, self._left, self.rows, 0, self._clock)


class _Staging(SceneStaging):
    """Staging, in which the files of one epoch may lack a row; see :func:`short_files`."""

    def write(self, batch: Batch, epoch: int, fence: Fence, slice_: Slice) -> StagedData:
        """Stage an epoch."""
        made = super().write(batch, epoch, fence, slice_)
        if self._scene.desk.program == _SHORT:
            made.batch.rows -= 1  # type: ignore[misc]
        return made

    def divided(self, content: Digest) -> tuple[Digest, tuple[OutputDigest, ...]]:
        """The last sink's output, where it wants one or gets bad rows."""
        scene = self._scene
        assert isinstance(scene, _World)
        if scene.bad:
            good, aside = set_aside(content, scene.bad, scene.bound.sinks[-1])
            return good, (aside,)
        if scene.wanted is None:
            return content, ()
        output = picked(content, scene.wanted, scene.bound.sinks[-1])
        called = scene.called or output.name
        return content, (replace(output, name=called, filtered=output.filtered - scene.uncounted),)


_SHORT = "writes one row less than it counts"


def short_files(stage: Stage) -> None:
    """From now on the files that are staged lack a row."""
    stage.scene.desk = replace(stage.scene.desk, program=_SHORT)


def output(stage: Stage, records: Records, uncounted: int = 0) -> None:
    """From now on the program gives the last sink an output.

    Args:
        stage: where.
        records: the records that it wants.
        uncounted: how many rows it neither holds nor counts.
    """
    stage.scene.wanted, stage.scene.uncounted = records, uncounted


def keeper(stage: Stage) -> None:
    """From now on the last sink gets the state of windows, which is all that there is."""
    stage.scene.wanted, stage.scene.called = between(0, stage.scene.bound.records), STATE


def bad_rows(stage: Stage, bad: Records, most: int) -> None:
    """From now on the last sink is the quarantine of the program.

    Args:
        stage: where.
        bad: the records that are bad.
        most: how many of an epoch may be.
    """
    stage.scene.bad, stage.scene.most = bad, most


# ---- sinks that misbehave


class Changed(SceneSink):
    """Somebody else has deleted rows of ours, and the target tells."""

    def position(self, since: Receipt | None) -> Position:
        """Where the target stands."""
        change = ExternalChange("deleted", "a DELETE that was none of ours", fatal=True, at=7)
        return replace(super().position(since), disturbances=(change,))


class Filled(SceneSink):
    """It held rows before the pipeline came."""

    def look(self) -> Peek:
        """The newest marker."""
        peek = super().look()
        return replace(peek, strangers=peek.marker is None)

    def position(self, since: Receipt | None) -> Position:
        """Where the target stands."""
        return replace(super().position(since), has_rows=True)


class Dying(SceneSink):
    """Its driver dies before it commits."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Nothing lands."""
        raise Killed


class Deaf(SceneSink):
    """It never answers to a fence."""

    def install(self, fence: Fence) -> None:
        """No answer."""
        self._scene.told(f"no answer to generation {fence.generation}")
        raise OutcomeUnknown(self.id, "no answer")


class Dumb(SceneSink):
    """It never answers to a commit, nor to whether it has landed."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """No answer."""
        self._scene.told(f"no answer to epoch {marker.epoch.number}")
        raise OutcomeUnknown(self.id, "no answer")

    def look_up(self, marker: Marker) -> Receipt | None:
        """No answer."""
        self._scene.told("no answer to a look-up")
        raise OutcomeUnknown(self.id, "no answer")


class Losing(Dumb):
    """Each commit to it is lost on the way; it says so when it is asked."""

    def look_up(self, marker: Marker) -> Receipt | None:
        """It is not there."""
        self._scene.told("it is not there")
        return None


class Yielding(SceneSink):
    """It takes each epoch back for the sake of somebody else."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Taken back."""
        self._scene.told("it is taken back")
        raise Conflict(self.id, "deadlock detected", "another writer")


class Sieve(SceneSink):
    """It keeps one row less than it is given."""

    def prepare(self, batch: Batch, epoch: int) -> PreparedContent:
        """Take the rows, but one."""
        content = super().prepare(batch, epoch).content
        rows = records_in(content)
        less = computed(rows & (rows - 1), content.low)
        return PreparedContent(less.rows, less)


class _Other(SceneSink):
    """It answers with other markers than were written."""

    @abstractmethod
    def another(self, marker: Marker) -> Marker:
        """What it makes of a marker."""

    def look(self) -> Peek:
        """The newest marker."""
        peek = super().look()
        return replace(peek, marker=self.another(peek.marker)) if peek.marker else peek

    def position(self, since: Receipt | None) -> Position:
        """Where the target stands."""
        position = super().position(since)
        return replace(position, marker=self.another(position.marker)) if position.marker else position

    def history(self, after: int = 0) -> Any:
        """Markers with receipts."""
        return ((self.another(marker), receipt) for marker, receipt in super().history(after))


class Mixed(_Other):
    """It answers with the markers of another pipeline, which the same query writes."""

    def another(self, marker: Marker) -> Marker:
        """The other pipeline's."""
        return replace(marker, pipeline="returns")


class Bare(_Other):
    """Its markers do not say where staged bytes lie."""

    def another(self, marker: Marker) -> Marker:
        """Without the manifest."""
        return replace(marker, epoch=chain.linked(replace(marker.epoch, manifest=None)))
