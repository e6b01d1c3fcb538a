"""The state of the coordinator: frozen, hashable, everything the machine knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from onceonly.machine import division_rules
from onceonly.machine.division_rules import MaxBad, WindowsConfig
from onceonly.machine.event_time import EventTimeConfig, PreviousTime
from onceonly.machine.facts import Adopt, Happening, Offer, OnRefresh, OutOfPhase, Overlap, PeekFacts, Reading, Refusal
from onceonly.machine.writer_progress import RewoundPosition, TimedMarker
from onceonly.protocol.batch import RecordedInputFiles, Trim
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Marker, OutputColumns, Receipt
from onceonly_checkpoints.model import Adoption, Slice

MAX_OPENINGS = 5
"""How often an opening starts again higher: it met an equal generation, a commit was found absent, or taken back."""

MAX_UNKNOWN = 5
"""How often a lost answer is looked up before the query stops."""


class Phase(Enum):
    """Phase of the machine. The text of ``coordinator.py`` explains each."""

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
    """Input of one call. It is constant over all its commands and openings.

    Attributes:
        sinks: sink ids in commit order.
        owner: this call's random token.
        offer: the engine's batch. ``None`` if a pipeline is only opened (``recover resolve``, ``recover adopt``).
        adopt: start of a target that we have never written.
        dropped: the sink that the opening removes from the pipeline (``recover drop-sink``).
        heals: whether to heal a sink that once held the epoch of the others (``recover resolve``).
        stages: whether epochs are staged in files even if no sink may need healing.
        max_bad: how many rows of an epoch may be bad.
        transaction_groups: groups of sinks that can commit in one transaction. Any other sink has its own.
        windows: how rows are aggregated, or ``None`` if they are written without windows.
        rewound: sinks that may lack epochs, because they are brought level after the opening (``recover rewind``).
        aside: the checks for which, if they do not hold, all rows of an epoch are bad.
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
    transaction_groups: tuple[tuple[str, ...], ...] = ()
    divided: bool = False
    noting: EventTimeConfig | None = None
    windows: WindowsConfig | None = None
    rewound: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()

    @property
    def staged(self) -> bool:
        """Whether rows are staged: several sinks must get the same ones, or one sink may be configured to."""
        return self.stages or self.divided or len(self.sinks) > 1

    @property
    def lasting(self) -> bool:
        """Whether staged rows must outlive the driver: one transaction may commit them and another one lack them."""
        return self.stages or len(self.transactions(self.sinks)) > 1

    def transactions(self, sinks: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Group sinks by their transaction, in the order of the first of each."""
        group = {sink: transaction_sinks for transaction_sinks in self.transaction_groups for sink in transaction_sinks}
        sinks_by_group: dict[tuple[str, ...], list[str]] = {}
        for sink in sinks:
            sinks_by_group.setdefault(group.get(sink, (sink,)), []).append(sink)
        return tuple(map(tuple, sinks_by_group.values()))

    def of(self, offer: Offer | None) -> Job:
        """Copy for another batch. An operator's decisions and a target's start belong to the first one only."""
        return replace(self, offer=offer, adopt=None, accepted=None, dropped="", heals=False, rewound=())


@dataclass(frozen=True, slots=True)
class Opening:
    """Facts that one opening, under one generation, has read.

    Attributes:
        fence: ours. Generation 0 until one was proposed, and again after a refusal before its installation.
        before: the newest fence found before ours, or ``None`` for none.
        conflicts: number of rollbacks of the batch's epoch for the sake of other writers.
        ended: generations of openings that are known to have ended.
        peek: result of a peek while the batch is compared with it, else ``None``.
        last: the newest epoch that every sink holds. With ``peek``, the newest one in the peek.
        healed: number of the last healed epoch, to notice a sink that stays behind.
        lost: the epoch that sinks could not get, when that loss is accepted, or 0 for none.
        unindexed: epochs that the ledger lacks.
        cut: rewind of the position, until an epoch follows it, or ``None`` for none.
        held: input files of recorded epochs, or ``None`` if not read. Without those of this opening: a checkpoint hands
            out no file twice.
        columns: the newest recorded ones, or nothing if they are unknown.
        left: states that replays left, in words.
    """

    fence: Fence
    before: Fence | None = None
    attempt: int = 0
    conflicts: int = 0
    ended: frozenset[int] = frozenset()
    head: EpochRecord | None = None
    peek: PeekFacts | None = None
    readings: tuple[Reading, ...] = ()
    last: Epoch | None = None
    healed: int = 0
    lost: int = 0
    unindexed: tuple[tuple[Marker, tuple[Receipt, ...]], ...] = ()
    cut: RewoundPosition | None = None
    held: RecordedInputFiles | None = None
    columns: tuple[OutputColumns, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def for_next_batch(self) -> Opening:
        """Opening for the next batch: same fence, and the position of the epoch just finished."""
        last, cut, held, columns = self.last, self.cut, self.held, self.columns
        return Opening(self.fence, last=last, healed=self.healed, cut=cut, held=held, columns=columns)

    def next_opening(self, fence: Fence, before: Fence | None) -> Opening:
        """Next opening of the call. The positions of the sinks are unknown until it has read them."""
        return Opening(fence, before, self.attempt + 1, self.conflicts, healed=self.healed)


@dataclass(frozen=True, slots=True)
class Work:
    """State of the batch and epoch in progress. It is discarded with either.

    Attributes:
        index: next sink, or next transaction, in a phase that visits several of them.
        unknowns: lost answers in a row.
        healing: sinks that get the epoch of the others. Empty while a new epoch is written.
        descent: recorded epochs from the offered batch id on, or ``None`` if not read.
        preceding: the epoch before them, or ``None``.
        written: part of the offered batch that is written, if it differs from its slice.
        replaces: first and last of the epochs whose rows the current epoch replaces, or ``None`` for none.
        polled: newest progress of other writers, or ``None`` if not polled. It is kept as long as the rows, because it
            decides which of them are late.
        number: number of the epoch being written, or 0 for none.
        epoch: the epoch being written, or the one that was proven to be written.
        skipped: whether the batch was proven to be written already.
        aside: the checks for which all rows are bad.
    """

    index: int = 0
    unknowns: int = 0
    healing: tuple[str, ...] = ()
    descent: tuple[Epoch, ...] | None = None
    preceding: Epoch | None = None
    written: Slice | None = None
    trim: Trim | None = None
    replaces: tuple[int, int] | None = None
    polled: tuple[TimedMarker, ...] | None = None
    number: int = 0
    epoch: Epoch | None = None
    receipts: tuple[Receipt, ...] = ()
    skipped: bool = False
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """Everything the machine knows, by lifetime. Built by ``coordinator.start`` and ``coordinator.resume``.

    ``happenings`` are not noted yet. With ``waiting`` the machine waits before the next command.
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
        """Sinks that get the current epoch."""
        return self.work.healing or self.job.sinks

    @property
    def transactions(self) -> tuple[tuple[str, ...], ...]:
        """The targets, by transaction."""
        return self.job.transactions(self.targets)

    @property
    def transaction(self) -> tuple[str, ...]:
        """Sinks of the next transaction, in a phase that visits several of them."""
        return self.transactions[self.work.index]

    @property
    def sink(self) -> str:
        """The next sink in a phase that visits several of them, or the first sink of the next transaction."""
        committing = self.phase in {Phase.COMMIT, Phase.LOOK_UP}
        return self.transaction[0] if committing else self.targets[self.work.index]

    @property
    def offered(self) -> Offer:
        """The batch, for phases that have one, else ``OutOfPhase``."""
        if self.job.offer is None:
            raise OutOfPhase(self.phase.value, "a batch")
        return self.job.offer

    @property
    def current(self) -> Epoch:
        """The current epoch, for phases that have one, else ``OutOfPhase``."""
        if self.work.epoch is None:
            raise OutOfPhase(self.phase.value, "an epoch")
        return self.work.epoch

    @property
    def written(self) -> Slice:
        """Slice that is written of the current batch, else ``OutOfPhase``."""
        return self.work.written or self.offered.slice

    @property
    def series(self) -> int:
        """First epoch of the current epoch's series: its own number if it begins one."""
        if self.work.epoch:
            return self.work.epoch.series
        if self.work.replaces:
            return self.work.number
        return self.opening.last.series if self.opening.last else 1

    @property
    def previous_time(self) -> PreviousTime:
        """Known time before the rows of the current epoch are read."""
        work, opening = self.work, self.opening
        return PreviousTime(self.job.pipeline, work.number, opening.last, self.begins, work.polled or (), opening.cut)

    @property
    def begins(self) -> bool:
        """Whether the current epoch begins a new series, which replaces all earlier rows."""
        return self.work.replaces is not None

    @property
    def before(self) -> Epoch | None:
        """The epoch before the current one. For a healed epoch, only if a sink is still at it."""
        if not self.work.healing:
            return self.opening.last
        held = (reading.position.marker for reading in self.opening.readings)
        return division_rules.before(self.current, tuple(marker.epoch for marker in held if marker))

    @property
    def past(self) -> Epoch:
        """The newest epoch that every sink holds, for phases that have one, else ``OutOfPhase``."""
        if self.opening.last is None:
            raise OutOfPhase(self.phase.value, "an epoch before")
        return self.opening.last
