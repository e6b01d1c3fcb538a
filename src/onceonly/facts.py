"""What the recovery table is asked and what it answers: frozen facts and decisions, no rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onceonly.protocol import Position
from onceonly_checkpoints.epoch import (
    Epoch,
    InputFile,
    Lineage,
    Marker,
    Receipt,
    Slice,
    SourceIdentity,
    SourceOffsets,
)
from onceonly_checkpoints.ledger import EventKind

Adopt = Literal["here"] | SourceOffsets | None
"""Take a target over as it stands; or the offsets that it already contains; or nothing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The pipeline must stop. ``code`` and ``details`` make the error; see ``codes.py``."""

    code: str
    details: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, code: str, **details: object) -> Refusal:
        """Build with keyword details."""
        return cls(code, tuple(details.items()))


@dataclass(frozen=True, slots=True)
class Happening:
    """Something for the ledger's event log."""

    kind: EventKind
    reason: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What one sink said under our fence, beside what the ledger remembers of it.

    Attributes:
        sink: sink id.
        position: where it stands.
        receipt: the newest receipt in the ledger; ``None`` if it has none.
        ahead: markers and receipts of epochs that the ledger does not have, oldest first.
    """

    sink: str
    position: Position
    receipt: Receipt | None
    ahead: tuple[tuple[Marker, Receipt], ...] = ()


@dataclass(frozen=True, slots=True)
class OpeningFacts:
    """Everything that an opening is decided on.

    Attributes:
        pipeline: its name.
        readings: one per sink, in the order of the call.
        head: the newest epoch in the ledger.
        adopt: whether the user allowed rows of unknown origin.
        accepted: set by ``queries adopt`` only: what R6 finds is known and taken.
    """

    pipeline: str
    readings: tuple[Reading, ...]
    head: Epoch | None
    adopt: bool = False
    accepted: bool = False


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
    """

    slice: Slice
    lineage: Lineage
    sources: tuple[SourceIdentity, ...]
    schema: str
    stateful: bool = False
    missing: tuple[str, ...] = ()
    files: tuple[InputFile, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Everything that a batch is decided on.

    Attributes:
        pipeline: its name.
        sink: the sink to name in a refusal.
        last: the epoch that all sinks hold; ``None`` before the first.
        lineage: the newest lineage on record: that of ``last``, or of the epoch before an adoption.
        offer: what the engine offers.
        recorded: the epoch that this query's batch id became earlier, if any.
        descent: the epochs from ``recorded`` to ``last``.
        adopt: where a target stands that we have never written.
    """

    pipeline: str
    sink: str
    last: Epoch | None
    lineage: Lineage | None
    offer: Offer
    recorded: Epoch | None = None
    descent: tuple[Epoch, ...] = ()
    adopt: Adopt = None


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """R8: the batch goes on where the last epoch ended."""

    number: int
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class Skip:
    """R7: the batch is ``epoch``, and that is proven. ``execute``: Spark's state still needs it run."""

    epoch: Epoch
    execute: bool
