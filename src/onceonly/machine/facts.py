"""Facts and decisions of the recovery table, frozen, without rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onceonly.protocol import Position
from onceonly.protocol.batch import RecordedInputFiles, Trim
from onceonly_checkpoints.epoch import Epoch, Lineage, Marker, OutputColumns, Receipt, ReplayedEpochs, StateVersion
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import Adoption, InputFile, Slice, SourceIdentity, SourceOffsets
from onceonly_checkpoints.spark.offsets import PreviousBatch

Adopt = Literal["here"] | SourceOffsets | None
"""Take a target over as it stands; or the offsets that it already contains; or nothing."""

Overlap = Literal["stop", "trim"]
"""What becomes of a batch that offers rows of recorded epochs: it stops the query, or is written without them."""

OnRefresh = Literal["stop", "replace"]
"""What becomes of a full refresh: it stops the query, or its rows take the place of all before."""


class OutOfPhase(RuntimeError):
    """A phase or rule lacks its input: a bug of ours that no user can cause or fix."""

    def __init__(self, phase: str, what: str) -> None:
        super().__init__(f"phase {phase} was reached without {what}: this is a bug in onceonly")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The pipeline must stop. ``code`` and ``details`` make the error, see ``onceonly.errors.codes``."""

    code: str
    details: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, code: str, **details: object) -> Refusal:
        """Build with keyword details."""
        return cls(code, tuple(details.items()))


@dataclass(frozen=True, slots=True)
class Happening:
    """Something for the ledger's event log. ``epoch`` is 0 for none.

    ``once``: noted only if the pipeline's log does not have it already.
    """

    kind: EventKind
    reason: str
    epoch: int = 0
    once: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """Answer of one sink under our fence, with the ledger's record of it.

    Attributes:
        ahead: markers and receipts of epochs that the ledger does not have, oldest first.
        content: epoch whose rows a new target holds. ``None`` if unknown, or if the target is the same.
    """

    sink: str
    position: Position
    receipt: Receipt | None
    ahead: tuple[tuple[Marker, Receipt], ...] = ()
    content: int | None = None


@dataclass(frozen=True, slots=True)
class OpeningFacts:
    """Everything that an opening is decided on.

    Attributes:
        readings: one per sink, in the order of the call.
        adopt: whether the user allowed rows of unknown origin.
        accepted: acceptance, set by ``recover adopt`` only.
        dropped: the sink that is removed from the pipeline, set by ``recover drop-sink`` only.
        lost: the epoch that sinks cannot get, when that loss is accepted, or 0 for none.
        heals: set by ``recover resolve`` only: heal a sink that once held the epoch of the others.
        rewound: set by ``recover rewind`` only: sinks that may lack epochs or be new, because they are brought level.
    """

    pipeline: str
    readings: tuple[Reading, ...]
    head: Epoch | None
    adopt: bool = False
    accepted: Adoption | None = None
    dropped: str = ""
    lost: int = 0
    heals: bool = False
    rewound: tuple[str, ...] = ()

    @property
    def held(self) -> tuple[Reading, ...]:
        """Readings of sinks that must hold the epochs that they confirmed."""
        return tuple(reading for reading in self.readings if reading.sink not in self.rewound)


@dataclass(frozen=True, slots=True)
class PeekFacts:
    """Result of an unlocked peek, to compare a batch with before another driver is fenced out.

    Attributes:
        last: the newest epoch in any sink, which all hold after healing, or ``None`` before the first.
        recorded: number of the newest epoch in the ledger, or 0 for none.
        ahead: the epochs in sinks between that one and ``last``, or ``None`` if not read.
    """

    last: Epoch | None
    recorded: int
    ahead: tuple[Epoch, ...] | None = None


@dataclass(frozen=True, slots=True)
class Proceed:
    """R2, R5: all sinks agree. ``index`` has the epochs that the ledger lacks."""

    last: Epoch | None
    index: tuple[tuple[Marker, tuple[Receipt, ...]], ...] = ()
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class Heal:
    """R3: write the epoch of ``marker`` to ``sinks`` from its manifest."""

    sinks: tuple[str, ...]
    marker: Marker


@dataclass(frozen=True, slots=True)
class PreviousClock:
    """Time of the epoch before, from which windows continue: noted, and of its timers (ms since 1970)."""

    clock: int | None = None
    complete_until: int | None = None


@dataclass(frozen=True, slots=True)
class Replays:
    """Epochs that a batch runs again.

    ``after`` is the chain of the epoch before them that was to be run again, or ``None`` if they are the first.
    ``previous_clock`` is the time of the recorded epoch before the first of all, if windows continued from it.
    """

    replayed: ReplayedEpochs
    after: str | None = None
    previous_clock: PreviousClock | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """The engine's batch, frozen at the callback's entry.

    Attributes:
        stateful: whether the plan keeps state, so that even a skip must execute the batch.
        missing: input of the slice that is gone.
        begins: first offset of sources that had none yet, by their own note, with the start of all others. ``None`` if
            there is nothing to add.
        earlier: files that the checkpoint's file sources handed out before this batch. ``None`` if not read, because
            this run has written the batch before it.
        earlier_checkpoints: the newest batches that lower siblings of the checkpoint still hold. Read for batch 0.
        replays: epochs that it runs again, or ``None`` for a batch of the query's own.
        columns: of its rows and outputs, as far as the plan shows them.
        state: with which it begins. ``None`` if not read, as this run left it.
    """

    slice: Slice
    lineage: Lineage
    sources: tuple[SourceIdentity, ...]
    schema: str
    stateful: bool = False
    missing: tuple[str, ...] = ()
    files: tuple[InputFile, ...] = ()
    begins: SourceOffsets | None = None
    earlier: tuple[InputFile, ...] | None = None
    earlier_checkpoints: tuple[PreviousBatch, ...] = ()
    replays: Replays | None = None
    columns: tuple[OutputColumns, ...] = ()
    state: StateVersion | None = None

    @property
    def previous_clock(self) -> PreviousClock | None:
        """Time of the recorded epoch before the first one of a rerun, or ``None``."""
        return self.replays.previous_clock if self.replays else None

    @property
    def start(self) -> SourceOffsets:
        """Start of the batch, as far as known."""
        return self.begins or self.slice.start

    @property
    def range(self) -> Slice:
        """Slice of the batch with its known start."""
        return Slice(self.start, self.slice.end)


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Everything that a batch is decided on.

    Attributes:
        sink: the sink to name in a refusal.
        last: the epoch that all sinks hold, or ``None`` before the first.
        recorded: the epoch that this query's batch id became earlier, if any.
        descent: the epochs from ``recorded`` to ``last``.
        adopt: start of a target that we have never written.
        held: input files of recorded epochs, or ``None`` if not read.
        left: states that replays left, in words.
        preceding: the epoch before ``recorded``, or ``None``.
    """

    pipeline: str
    sink: str
    last: Epoch | None
    offer: Offer
    recorded: Epoch | None = None
    descent: tuple[Epoch, ...] = ()
    adopt: Adopt = None
    overlap: Overlap = "stop"
    held: RecordedInputFiles | None = None
    on_refresh: OnRefresh = "stop"
    left: tuple[str, ...] = ()
    preceding: Epoch | None = None

    @property
    def newest(self) -> Epoch:
        """The epoch that all sinks hold, for rules that apply only after the first, else ``OutOfPhase``."""
        if self.last is None:
            raise OutOfPhase("compare", "an epoch before the batch")
        return self.last


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """R8: the batch continues from the end of the last epoch.

    Attributes:
        written: slice that is written, if offsets alone do not prove that it is the planned one, else ``None``.
        replaces: first and last of the epochs whose rows it replaces, or ``None`` for none.
    """

    number: int
    happenings: tuple[Happening, ...] = ()
    written: Slice | None = None
    trim: Trim | None = None
    replaces: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class NeedsInputFiles:
    """The decision depends on the input files of all recorded epochs."""


@dataclass(frozen=True, slots=True)
class Skip:
    """R7: the batch is proven to be ``epoch``. With ``execute``, Spark's state still needs it to run."""

    epoch: Epoch
    execute: bool
