"""The state of the coordinator: frozen, hashable, everything the machine knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from onceonly.machine import window_rules
from onceonly.machine.event_time import EventTimeConfig, PreviousTime
from onceonly.machine.facts import Adopt, Happening, Offer, OnRefresh, OutOfPhase, Overlap, PeekFacts, Reading, Refusal
from onceonly.machine.output_rules import MaxBad
from onceonly.machine.window_rules import WindowsConfig
from onceonly.machine.writer_progress import RewoundPosition, TimedMarker
from onceonly.protocol.batch import RecordedInputFiles, Trim
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Marker, Receipt
from onceonly_checkpoints.model import Adoption, Slice

MAX_OPENINGS = 5
"""How often an opening starts again higher: it met an equal generation, a commit was found absent, or taken back."""

MAX_UNKNOWN = 5
"""How often a lost answer is looked up before the query stops."""


class Phase(Enum):
    """Where the machine stands; see the module's text."""

    PROBE = "probe"
    RECALL = "recall"
    LOOK = "look"
    INSTALL = "install"
    READ = "read"
    INDEX = "index"
    COMPARE = "compare"
    RECOLLECT = "recollect"
    GATHER = "gather"
    EXECUTE = "execute"
    INTEND = "intend"
    POLL = "poll"
    FETCH = "fetch"
    STAGE = "stage"
    PREPARE = "prepare"
    COMMIT = "commit"
    LOOK_UP = "look up"
    RECORD = "record"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Job:
    """What one call is about: the same from its first command to its last, however often it opens.

    Attributes:
        pipeline: its name.
        sinks: sink ids in commit order.
        owner: this call's random token.
        offer: the engine's batch; ``None`` when a pipeline is only opened (``txn resolve``, ``queries adopt``).
        adopt: where a target stands that we have never written.
        accepted: what the opening accepts (``queries adopt``); ``None`` for an ordinary one.
        dropped: the sink that the opening takes out of the pipeline (``queries drop-sink``).
        heals: whether a sink is brought to the epoch of the others although it once held it (``txn resolve``).
        overlap: what becomes of a batch that offers rows of recorded epochs.
        stages: epochs are staged in files although nobody may have to be brought to one.
        on_refresh: what becomes of a full refresh.
        max_bad: how many rows of an epoch may be bad.
        together: sinks that can commit in one transaction, group by group; any other sink has its own.
        divided: batches have outputs.
        noting: how time is said; ``None`` where nobody says it.
        windows: how rows are aggregated in windows; ``None`` where they are written as they come.
        rewound: sinks that may lack epochs, for they are brought level after the opening (``queries rewind``).
    """

    pipeline: str
    sinks: tuple[str, ...]
    owner: str
    offer: Offer | None = None
    adopt: Adopt = None
    accepted: Adoption | None = None
    dropped: str = ""
    heals: bool = False
    overlap: Overlap = "stop"
    stages: bool = False
    on_refresh: OnRefresh = "stop"
    max_bad: MaxBad = None
    together: tuple[tuple[str, ...], ...] = ()
    divided: bool = False
    noting: EventTimeConfig | None = None
    windows: WindowsConfig | None = None
    rewound: tuple[str, ...] = ()

    @property
    def staged(self) -> bool:
        """Whether an epoch's rows are staged: several sinks must get the same ones, one may be asked to."""
        return self.stages or self.divided or len(self.sinks) > 1

    @property
    def lasting(self) -> bool:
        """Whether staged rows must outlive the driver: a transaction may commit them, and another one lack them."""
        return self.stages or len(self.transactions(self.sinks)) > 1

    def transactions(self, sinks: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Sinks by the transaction that they commit in, in the order of the first of each."""
        group = {sink: together for together in self.together for sink in together}
        found: dict[tuple[str, ...], list[str]] = {}
        for sink in sinks:
            found.setdefault(group.get(sink, (sink,)), []).append(sink)
        return tuple(map(tuple, found.values()))

    def of(self, offer: Offer | None) -> Job:
        """The same for another batch; what an operator said, and the start of a target, belong to the first one."""
        return Job(
            self.pipeline,
            self.sinks,
            self.owner,
            offer,
            overlap=self.overlap,
            stages=self.stages,
            on_refresh=self.on_refresh,
            max_bad=self.max_bad,
            together=self.together,
            divided=self.divided,
            noting=self.noting,
            windows=self.windows,
        )


@dataclass(frozen=True, slots=True)
class Opening:
    """What one opening, under one generation, has learned of the pipeline.

    Attributes:
        fence: ours; generation 0 until one was proposed, and again where a batch is refused before it was installed.
        before: the newest fence that was found before ours; ``None`` if there was none.
        attempt: how often this call has proposed a generation.
        conflicts: how often a sink took the batch's epoch back for the sake of others.
        ended: generations of openings that are known to have ended.
        head: the ledger's newest record.
        seen: what a look showed, while the batch is compared with it; ``None`` before and after.
        readings: what the sinks said under our fence.
        last: the newest epoch that every sink holds; while ``seen`` is there, the newest one that was seen.
        healed: number of the last epoch that sinks were brought to, so that a sink that stays behind is noticed.
        lost: the epoch that sinks could not be brought to, when that loss is accepted; 0 for none.
        unindexed: epochs that the ledger has to learn.
        cut: that the position was cut back, until an epoch is written behind it; ``None`` where it was not.
        held: input files of recorded epochs; ``None``: not looked up. What this opening adds to them is left out: a
            checkpoint hands out no file twice.
    """

    fence: Fence
    before: Fence | None = None
    attempt: int = 0
    conflicts: int = 0
    ended: frozenset[int] = frozenset()
    head: EpochRecord | None = None
    seen: PeekFacts | None = None
    readings: tuple[Reading, ...] = ()
    last: Epoch | None = None
    healed: int = 0
    lost: int = 0
    unindexed: tuple[tuple[Marker, tuple[Receipt, ...]], ...] = ()
    cut: RewoundPosition | None = None
    held: RecordedInputFiles | None = None

    @property
    def standing(self) -> Opening:
        """What the next batch goes on from: the fence stands, the position is the epoch just finished."""
        return Opening(self.fence, last=self.last, healed=self.healed, cut=self.cut, held=self.held)

    def again(self, fence: Fence, before: Fence | None) -> Opening:
        """The call's next opening: until it has read, nobody knows where the sinks stand."""
        return Opening(fence, before, self.attempt + 1, self.conflicts, healed=self.healed)


@dataclass(frozen=True, slots=True)
class Work:
    """The batch and the epoch at hand; nothing of it outlives either.

    Attributes:
        index: which sink, or which transaction, is next in a phase that goes through several of them.
        unknowns: lost answers in a row.
        healing: sinks that are brought to the epoch of the others; empty while a new epoch is written.
        descent: recorded epochs from the offered batch id on; ``None``: not looked up.
        written: what is written of the offered batch, where that is not plainly its own slice.
        trim: what of the offered batch is left out.
        replaces: first and last of the epochs whose rows leave with the epoch at hand; ``None`` for none.
        polled: what other writers of the dataset said last; ``None``: not asked. The rows are judged by it, so the
            answer is kept as long as they are.
        number: number of the epoch being written; 0 for none.
        epoch: the epoch being written, or the one that was proven to be written.
        receipts: answers so far.
        skipped: whether the batch was proven to be written already.
    """

    index: int = 0
    unknowns: int = 0
    healing: tuple[str, ...] = ()
    descent: tuple[Epoch, ...] | None = None
    written: Slice | None = None
    trim: Trim | None = None
    replaces: tuple[int, int] | None = None
    polled: tuple[TimedMarker, ...] | None = None
    number: int = 0
    epoch: Epoch | None = None
    receipts: tuple[Receipt, ...] = ()
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """Everything the machine knows, by how long it lasts. Built by ``coordinator.start`` and ``coordinator.resume``.

    Attributes:
        phase: where the machine stands.
        job: what never changes in one call.
        opening: what this opening has learned.
        work: the batch and the epoch at hand.
        happenings: events not yet noted.
        waiting: whether to wait before the next command.
        refusal: why the machine stopped.
    """

    phase: Phase
    job: Job
    opening: Opening
    work: Work = Work()
    happenings: tuple[Happening, ...] = ()
    waiting: bool = False
    refusal: Refusal | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The sinks that the epoch at hand goes to."""
        return self.work.healing or self.job.sinks

    @property
    def transactions(self) -> tuple[tuple[str, ...], ...]:
        """The same sinks, by the transaction that they commit in."""
        return self.job.transactions(self.targets)

    @property
    def transaction(self) -> tuple[str, ...]:
        """The sinks of the transaction that is next, in a phase that goes through several of them."""
        return self.transactions[self.work.index]

    @property
    def sink(self) -> str:
        """The sink that is next in a phase that goes through several of them, or the first of a transaction."""
        committing = self.phase in {Phase.COMMIT, Phase.LOOK_UP}
        return self.transaction[0] if committing else self.targets[self.work.index]

    @property
    def offered(self) -> Offer:
        """The batch, for phases that are only reached with one.

        Raises:
            OutOfPhase: there is none.
        """
        if self.job.offer is None:
            raise OutOfPhase(self.phase.value, "a batch")
        return self.job.offer

    @property
    def current(self) -> Epoch:
        """The epoch at hand, for phases that are only reached with one.

        Raises:
            OutOfPhase: there is none.
        """
        if self.work.epoch is None:
            raise OutOfPhase(self.phase.value, "an epoch")
        return self.work.epoch

    @property
    def written(self) -> Slice:
        """What is written of the batch at hand.

        Raises:
            OutOfPhase: there is no batch.
        """
        return self.work.written or self.offered.slice

    @property
    def series(self) -> int:
        """The first epoch of the series that the epoch at hand belongs to: its own number where it begins one."""
        if self.work.epoch:
            return self.work.epoch.series
        if self.work.replaces:
            return self.work.number
        return self.opening.last.series if self.opening.last else 1

    @property
    def known(self) -> PreviousTime:
        """What is known of time before the rows of the epoch at hand are read."""
        work, opening = self.work, self.opening
        return PreviousTime(self.job.pipeline, work.number, opening.last, self.begins, work.polled or (), opening.cut)

    @property
    def begins(self) -> bool:
        """Whether the epoch at hand begins a new series: rows of before leave with it."""
        return self.work.replaces is not None

    @property
    def before(self) -> Epoch | None:
        """The epoch before the one at hand; of one that sinks are brought to, if one of them still stands there."""
        if not self.work.healing:
            return self.opening.last
        held = (reading.position.marker for reading in self.opening.readings)
        return window_rules.before(self.current, tuple(marker.epoch for marker in held if marker))

    @property
    def past(self) -> Epoch:
        """The newest epoch that every sink holds, for phases that are only reached with one.

        Raises:
            OutOfPhase: there is none.
        """
        if self.opening.last is None:
            raise OutOfPhase(self.phase.value, "an epoch before")
        return self.opening.last
