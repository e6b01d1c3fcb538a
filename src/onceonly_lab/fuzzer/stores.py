"""Simulated ledger, staging and batches for the production runner.

They implement the contracts through which the runner knows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly.machine.facts import Offer
from onceonly.protocol import Batch, Estimate, Task
from onceonly.protocol.batch import Bound, Notes, Trim
from onceonly.protocol.row_times import NO_TIMES, Clock, RowTimes
from onceonly.runtime.staging import StagedData
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, OutputColumns
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.ledger import Event, EventKind, Intent, LedgerConflict, Pipeline
from onceonly_checkpoints.manifest import Reference, UnreadableManifest
from onceonly_checkpoints.model import Slice
from onceonly_lab.fuzzer.scene import Scene
from onceonly_lab.history import LEDGER, Kind, Op
from onceonly_lab.model.bench import LedgerOverModel
from onceonly_lab.model.division import UNDIVIDED, Division
from onceonly_lab.model.openwindows import behind
from onceonly_lab.model.parts import (
    Records,
    SimulatedLedger,
    StagedEpoch,
    StagingArea,
    computed,
    good_of,
    kept,
    missing,
    records_in,
    spelled,
    together,
)
from onceonly_lab.model.rules import Rule
from onceonly_lab.play.world import Process

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_NO_ROWS = "the lab's batches have a digest and no rows"


class SimulatedBatch:
    """The engine's batch: counted and fingerprinted, without rows.

    Args:
        records: what it reads.
        process: computes it.
        same: whether every computation gives the same rows.
        division: what the call makes of them.
    """

    def __init__(
        self, records: Records, process: Process, *, same: bool = False, division: Division = UNDIVIDED
    ) -> None:
        self.rows = records.bit_count()
        self._records = records
        self._process = process
        self._same = same
        self._division = division
        self._computed: Digest | None = None

    def execute(self) -> Digest:
        """Run the plan, and count what is good of what it gives."""
        self._computed, _ = self._division.of(self._run())
        return self._computed

    def _run(self) -> Digest:
        """Where the plan is not deterministic, no two runs give the same rows."""
        self._computed = computed(self._records, 0 if self._same else self._process.salt)
        return self._computed

    def trimmed(self, trim: Trim) -> SimulatedBatch:
        """The same batch without the rows that are left out."""
        records = kept(self._records, trim)
        return SimulatedBatch(records, self._process, same=self._same, division=self._division)

    def read(self) -> Digest:
        """Which computation a sink gets that takes the rows: of a plan that runs for it, another one each time."""
        return self._run()

    def digest(self) -> Digest:
        """Of the run before."""
        assert self._computed is not None, "no action was run"
        return self._computed

    @property
    def schema(self) -> pa.Schema:
        """There is none."""
        raise TypeError(_NO_ROWS)

    @property
    def estimate(self) -> Estimate:
        """Exact rows."""
        return Estimate(self.rows, None)

    @property
    def dataframe(self) -> DataFrame:
        """There is none."""
        raise TypeError(_NO_ROWS)

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """There are none."""
        raise TypeError(_NO_ROWS)

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """There are none."""
        raise TypeError(_NO_ROWS)


class WindowedBatch(SimulatedBatch):
    """A batch whose rows go into windows, with the state that the keeper holds when it is run.

    Args:
        batch: of the engine.
        scene: where the keeper stands.
        process: who reads it.
    """

    def __init__(self, batch: SimulatedBatch, scene: Scene, process: Process) -> None:
        super().__init__(batch._records, process, same=batch._same, division=batch._division)
        self._scene = scene
        self._said: tuple[RowTimes, EpochWindows] | None = None

    def trimmed(self, trim: Trim) -> WindowedBatch:
        """The same batch without the rows that are left out."""
        return WindowedBatch(super().trimmed(trim), self._scene, self._process)

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> WindowedBatch:
        """Run it, and read the state."""
        scene, process, number = self._scene, self._process, to.as_of.epoch
        scene.step(process)
        recalled = scene.seen(process, number, good_of)
        self._computed = rows = scene.fresh(process, self._run(), number)
        scene.told(f"{process.name} goes on with windows that hold records {spelled(recalled)}")
        times, _ = notes(NO_TIMES, self.rows)
        good, _ = self._division.of(rows)
        scene.actors["windows leave a bad row out"] += good != rows
        self._said = times, behind(to, recalled, rows if Rule.GOOD_IN_WINDOWS in scene.off else good)
        return self

    def read(self) -> Digest:
        """Rows as they were when the state was read, without repeated ones."""
        return self.digest()

    def times(self) -> RowTimes:
        """What is said of time."""
        assert self._said is not None, "it was not bound"
        return self._said[0]

    def columns(self) -> tuple[OutputColumns, ...]:
        """None: columns are not simulated here."""
        return ()

    def panes(self) -> EpochWindows:
        """What the epoch says of its windows."""
        assert self._said is not None, "it was not bound"
        return self._said[1]

    def outputs(self) -> tuple[OutputDigest, ...]:
        """All sinks get all rows; state is where the keeper's rows are."""
        return ()


def batch_of(records: Records, offer: Offer, process: Process, division: Division = UNDIVIDED) -> SimulatedBatch:
    """What a call hands over. A plan that keeps state must be deterministic, so it is simulated so."""
    return SimulatedBatch(records & ~missing(offer), process, same=offer.stateful, division=division)


class StillBatch(SimulatedBatch):
    """Staged bytes.

    Args:
        content: which computation they are.
        process: reads them.
        original: what the marker that names them says; what they are, unless manifests are found by number.
        outputs: what some sinks get of them.

    Attributes:
        given: good rows and outputs that sinks really get.
    """

    def __init__(
        self, content: Digest, process: Process, original: Digest | None = None, outputs: tuple[OutputDigest, ...] = ()
    ) -> None:
        super().__init__(records_in(content), process)
        self.rows = together(content, outputs).rows
        self._content = content
        self._computed = original or content
        self.outputs = outputs
        self.given = content, outputs

    def read(self) -> Digest:
        """The bytes as they lie there."""
        return self._content

    def times_of(self, clock: Clock) -> RowTimes:
        """There are none."""
        raise TypeError(_NO_ROWS)

    def output(self, name: str | None) -> StillBatch:
        """What a sink gets: an output by its name, or all rows."""
        content, outputs = self.given
        digest = next((output_digest.digest for output_digest in outputs if output_digest.name == name), content)
        return self if digest == self._content else StillBatch(digest, self._process)


class SceneStaging:
    """``onceonly.runtime.staging`` in the scene.

    Args:
        scene: what is shared.
        process: whose it is.
    """

    def __init__(self, scene: Scene, process: Process) -> None:
        self._scene = scene
        self._process = process

    def write(self, batch: Batch, epoch: int, fence: Fence, slice_: Slice) -> StagedData:
        """Stage an epoch."""
        scene, process = self._scene, self._process
        scene.step(process)
        scene.recorder.asks(process.number, Op.STAGE, epoch=epoch)
        assert isinstance(batch, SimulatedBatch)
        content = batch.read()
        reference = Reference(f"e{epoch}-g{fence.generation}-{fence.owner}-{process.computed}", "0")
        if not scene.bound.windows:  # else repeated rows were left out when the batch was bound
            content = scene.fresh(process, content, epoch)
        content, outputs = self.divided(content)
        staged = StagedEpoch(reference.text, epoch, fence.generation, content, outputs=outputs)
        scene.ever_staged[reference.text] = staged
        if Rule.KEPT not in scene.off:
            scene.staging = scene.staging.add(staged)
        scene.recorder.staged(process.number, epoch, content, reference.text, outputs=scene.parts_of(outputs))
        scene.told(f"{process.name} stages epoch {epoch} as {reference.directory}")
        return StagedData(reference, StillBatch(content, process, outputs=outputs))

    def divided(self, content: Digest) -> tuple[Digest, tuple[OutputDigest, ...]]:
        """What all sinks get of rows, and what some of them."""
        return self._scene.division(self._process.number).of(content)

    def fetch(self, reference: str, live: Batch | None) -> StillBatch:
        """Read staged bytes back.

        Raises:
            UnreadableManifest: they are gone.
        """
        scene, process = self._scene, self._process
        scene.step(process)
        original = scene.ever_staged[reference]
        staged_epoch = scene.staging.holds(reference)
        if Rule.NAMED in scene.off:
            staged_epoch = next((epoch for epoch in scene.staging.epochs if epoch.number == original.number), None)
        if staged_epoch is None:
            scene.told(f"{process.name} does not find the staged bytes")
            raise UnreadableManifest(f"{reference} is gone")
        scene.told(f"{process.name} takes the staged bytes {staged_epoch.reference}")
        batch = StillBatch(staged_epoch.content, process, original.content, staged_epoch.outputs)
        if Rule.MARKERS_OUTPUT in scene.off:
            batch.given = self.divided(together(staged_epoch.content, staged_epoch.outputs))
        return batch

    def drop(self, reference: str) -> None:
        """Remove an epoch's bytes. A process that is dead does not."""
        if not self._process.dead:
            self._scene.staging = self._scene.staging.drop(reference)

    def sweep(self, generation: int, keep: str | None) -> None:
        """Remove what lower generations left."""
        self._scene.alive(self._process)
        self._scene.staging = self._scene.staging.sweep(generation, keep)

    def sweep_early(self) -> None:
        """What a product does that does not wait for its fences: remove what no newest marker names."""
        scene = self._scene
        highest = max((target.fence.generation for target in scene.targets.values() if target.fence), default=0)
        named = {target.newest.epoch.manifest for target in scene.targets.values() if target.newest}
        epochs = scene.staging.epochs
        scene.staging = StagingArea(
            tuple(epoch for epoch in epochs if epoch.reference in named or epoch.generation > highest)
        )


class SceneLedger(LedgerOverModel):
    """The ledger contract over the scene's.

    Args:
        scene: what is shared.
        process: whose it is.
    """

    def __init__(self, scene: Scene, process: Process) -> None:
        self._scene = scene
        self._process = process
        self._intents = scene.intents

    @property
    def model(self) -> SimulatedLedger:
        """That of the scene."""
        return self._scene.ledger

    def change(self, model: SimulatedLedger) -> None:
        """Put another one in its place."""
        self._scene.ledger = model

    def offered(self, offer: Offer) -> Offer:
        """The batch at hand, for one whose slice reads like an epoch's where the ledger goes by that text alone."""
        if Rule.LINEAGE not in self._scene.off or not (alike := self._scene.ledger.alike(offer, 1 << 30)):
            return offer
        return replace(offer, lineage=alike[0].lineage or offer.lineage, sources=alike[0].sources)

    def enter(self, pipeline: Pipeline) -> None:
        """Its row in the list is of no account, but for its generation where that is taken from here."""
        self._scene.step(self._process)
        if Rule.HIGHEST in self._scene.off:
            self._scene.ledger = replace(self._scene.ledger, generation=pipeline.generation)
        self._scene.told(f"{self._process.name} enters itself into the ledger")

    def intend(self, intent: Intent) -> None:
        """Keep it for every process; commands read it."""
        self._scene.alive(self._process)
        super().intend(intent)

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record an epoch.

        Raises:
            LedgerConflict: another chain is recorded under its number.
        """
        scene, process = self._scene, self._process
        scene.step(process)
        ours = record.fence.owner == process.owner  # an opening also records what it reads back of others
        if ours:
            scene.recorder.asks(process.number, Op.RECORD, LEDGER, record.epoch, record.fence.generation)
        try:
            super().record(record)
        except LedgerConflict:
            if ours:
                scene.recorder.answers(process.number, Op.RECORD, Kind.FAIL, LEDGER, record.epoch)
            raise
        if ours:
            scene.recorder.answers(process.number, Op.RECORD, Kind.OK, LEDGER, record.epoch)
        scene.told(f"{process.name} records epoch {record.epoch.number}")

    def head(self, pipeline: str) -> EpochRecord | None:
        """The newest record."""
        scene, process = self._scene, self._process
        scene.step(process)
        head = scene.ledger.head
        scene.watched[process.number].recalls(scene.targets, scene.ledger)
        scene.told(f"{process.name} reads the ledger: {f'epoch {head.epoch.number}' if head else 'nothing'}")
        return head

    def find(self, pipeline: str, query_id: str, batch_id: int) -> EpochRecord | None:
        """The newest epoch that a batch of a query became."""
        scene, process = self._scene, self._process
        scene.step(process)
        records = [epoch for epoch in self.epochs(pipeline) if _is_of(epoch.epoch, query_id, batch_id)]
        words = f"epoch {records[-1].epoch.number}" if records else "no epoch"
        scene.told(f"{process.name} asks the ledger for batch {batch_id}: {words}")
        return records[-1] if records else None

    def note(self, event: Event) -> None:
        """Tell of it where others may have drawn conclusions; nobody reads the rest here."""
        self._scene.alive(self._process)
        if event.kind is EventKind.TIME_BACK:
            self._scene.steps.append(f"{self._process.name} notes that {event.reason}")
        if event.kind is EventKind.STATE_LEFT:
            self._scene.states_left.append(event)

    def events(self, pipeline: str, limit: int = 1000, kind: EventKind | None = None) -> Sequence[Event]:
        """Return what replays left of Spark's state."""
        return self._scene.states_left


def _is_of(epoch: Epoch, query_id: str, batch_id: int) -> bool:
    return epoch.lineage is not None and (epoch.lineage.query_id, epoch.lineage.batch_id) == (query_id, batch_id)
