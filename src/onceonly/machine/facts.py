"""Facts and decisions of the recovery table, frozen, without rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onceonly.protocol import Position
from onceonly.protocol.batch import RecordedInputFiles, Trim
from onceonly_checkpoints.epoch import Epoch, Lineage, Marker, Receipt, ReplayedEpochs
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import Adoption, InputFile, Slice, SourceIdentity, SourceOffsets
from onceonly_checkpoints.spark.previous_checkpoints import PreviousBatch

Adopt = Literal["here"] | SourceOffsets | None
"""Take a target over as it stands; or the offsets that it already contains; or nothing."""

Overlap = Literal["stop", "trim"]
"""What becomes of a batch that offers rows of recorded epochs: it stops the query, or is written without them."""

OnRefresh = Literal["stop", "replace"]
"""What becomes of a full refresh: it stops the query, or its rows take the place of all before."""


class OutOfPhase(RuntimeError):
    """A phase or a rule was reached without what it works on: a bug of ours, which no user can cause or mend.

    Args:
        phase: where the machine stands.
        what: what is not there.
    """

    def __init__(self, phase: str, what: str) -> None:
        super().__init__(f"phase {phase} was reached without {what}: this is a bug in onceonly")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The pipeline must stop. ``code`` and ``details`` make the error; see ``onceonly.errors.codes``."""

    code: str
    details: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, code: str, **details: object) -> Refusal:
        """Build with keyword details."""
        return cls(code, tuple(details.items()))


@dataclass(frozen=True, slots=True)
class Happening:
    """Something for the ledger's event log.

    Attributes:
        kind: what it is.
        reason: in words.
        epoch: number of the epoch that it belongs to; 0 for none.
        once: whether it is noted only where the pipeline's log does not say it already.
    """

    kind: EventKind
    reason: str
    epoch: int = 0
    once: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What one sink said under our fence, beside what the ledger remembers of it.

    Attributes:
        sink: sink id.
        position: where it stands.
        receipt: the newest receipt in the ledger; ``None`` if it has none.
        ahead: markers and receipts of epochs that the ledger does not have, oldest first.
        content: the epoch whose rows stand there, as a ``Settable`` sink says, where the target is another one than
            before; else, and where that is not known, ``None``.
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
        pipeline: its name.
        readings: one per sink, in the order of the call.
        head: the newest epoch in the ledger.
        adopt: whether the user allowed rows of unknown origin.
        accepted: set by ``queries adopt`` only: what is accepted.
        dropped: set by ``queries drop-sink`` only: the sink that is taken out of the pipeline.
        lost: the epoch that sinks cannot be brought to, and need not: that loss is accepted; 0 for none.
        heals: set by ``txn resolve`` only: a sink is brought to the epoch of the others although it once held it.
        rewound: set by ``queries rewind`` only: sinks that may lack epochs or be made anew, for they are brought level.
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
        """Readings of sinks that must hold what they confirmed."""
        return tuple(reading for reading in self.readings if reading.sink not in self.rewound)


@dataclass(frozen=True, slots=True)
class PeekFacts:
    """What an unlocked look showed, to compare a batch with before anybody is fenced out.

    Attributes:
        last: the newest epoch in any sink: what all hold once they are healed; ``None`` before the first.
        recorded: number of the newest epoch in the ledger; 0 for none.
        ahead: the epochs between that one and ``last`` that sinks tell of; ``None`` where that was not asked.
    """

    last: Epoch | None
    recorded: int
    ahead: tuple[Epoch, ...] | None = None


@dataclass(frozen=True, slots=True)
class Proceed:
    """R2, R5: all sinks agree. ``index``: epochs that the ledger has to learn first."""

    last: Epoch | None
    index: tuple[tuple[Marker, tuple[Receipt, ...]], ...] = ()
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class Heal:
    """R3: bring ``sinks`` to the epoch of ``marker`` from the manifest that it names."""

    sinks: tuple[str, ...]
    marker: Marker


@dataclass(frozen=True, slots=True)
class PreviousClock:
    """When the epoch before was, as windows go on from it.

    Attributes:
        clock: to when its timers ran, milliseconds since 1970; ``None`` without one.
        noted: what it noted; ``None`` for nothing.
    """

    clock: int | None = None
    noted: int | None = None


@dataclass(frozen=True, slots=True)
class Replays:
    """What a batch runs again.

    Attributes:
        replayed: the epochs.
        after: chain of the one before them that was to be run again; ``None``: they are the first.
        stood: when the recorded epoch before the first of all was, where windows went on from its time; else ``None``.
    """

    replayed: ReplayedEpochs
    after: str | None = None
    stood: PreviousClock | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What the engine offers, frozen at the callback's entry.

    Attributes:
        slice: the range the batch reads.
        lineage: the engine's names for it.
        sources: identity of each source.
        schema: fingerprint of the batch's columns.
        stateful: whether the plan keeps state, so that even a skip must execute the batch.
        missing: input of the slice that is gone.
        files: file lists of file sources.
        begins: where sources that had no offset yet began by their own note, beside the start of all others; ``None``
            if there is nothing to add.
        earlier: files that the checkpoint's file sources handed out before this batch; ``None`` if that was not looked
            up, since this run has written the batch before it.
        earlier_checkpoints: the newest batches that lower siblings of the checkpoint still hold; looked up for its
            first batch.
        replays: what it runs again; ``None`` for a batch of the query's own.
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

    @property
    def stood(self) -> PreviousClock | None:
        """When the recorded epoch was that the first one of a rerun goes on from; ``None`` where there is none."""
        return self.replays.stood if self.replays else None

    @property
    def start(self) -> SourceOffsets:
        """Where the batch starts, as far as that is known."""
        return self.begins or self.slice.start

    @property
    def range(self) -> Slice:
        """From where it starts, as far as that is known, to its end."""
        return Slice(self.start, self.slice.end)


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Everything that a batch is decided on.

    Attributes:
        pipeline: its name.
        sink: the sink to name in a refusal.
        last: the epoch that all sinks hold; ``None`` before the first.
        offer: what the engine offers.
        recorded: the epoch that this query's batch id became earlier, if any.
        descent: the epochs from ``recorded`` to ``last``.
        adopt: where a target stands that we have never written.
        overlap: what the user chose for rows of recorded epochs.
        held: input files of recorded epochs; ``None``: not looked up.
        on_refresh: what the user chose for a full refresh.
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

    @property
    def newest(self) -> Epoch:
        """The epoch that all sinks hold, for rules that are asked only after the first.

        Raises:
            OutOfPhase: there is none.
        """
        if self.last is None:
            raise OutOfPhase("compare", "an epoch before the batch")
        return self.last


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """R8: the batch goes on where the last epoch ended.

    Attributes:
        number: of the epoch.
        happenings: for the event log.
        written: what is written, where offsets alone do not prove that it is what was planned; else ``None``.
        trim: which rows of the batch are left out; ``None`` for none.
        replaces: first and last of the epochs whose rows leave with it; ``None`` for none.
    """

    number: int
    happenings: tuple[Happening, ...] = ()
    written: Slice | None = None
    trim: Trim | None = None
    replaces: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class NeedsInputFiles:
    """The decision hangs on the input files of all recorded epochs."""


@dataclass(frozen=True, slots=True)
class Skip:
    """R7: the batch is ``epoch``, and that is proven. ``execute``: Spark's state still needs it run."""

    epoch: Epoch
    execute: bool
