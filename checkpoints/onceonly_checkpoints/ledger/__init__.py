"""The ledger: index, history and events of pipelines, rebuilt from sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence
from onceonly_checkpoints.model import Slice
from onceonly_checkpoints.strenum import StrEnum


class LedgerUnavailable(Exception):
    """The ledger cannot be read or written. The text holds no secret."""


class NoLedger(LedgerUnavailable):
    """The place is there, and nobody has recorded anything in it yet."""


class LedgerConflict(LedgerUnavailable):
    """The ledger holds another epoch under the same number.

    Attributes:
        pipeline: the user's stable name.
        epoch: the number.
        recorded: chain that the ledger holds.
        offered: chain that was to be recorded.
    """

    def __init__(self, pipeline: str, epoch: int, recorded: str, offered: str) -> None:
        super().__init__(f'epoch {epoch} of "{pipeline}" is recorded with chain {recorded[:12]}, not {offered[:12]}')
        self.pipeline = pipeline
        self.epoch = epoch
        self.recorded = recorded
        self.offered = offered


class EventKind(StrEnum):
    """What can happen to a pipeline besides an ordinary epoch."""

    OPENED = "opened"
    FENCED = "fenced"
    SKIPPED = "skipped-proven"
    TRIMMED = "trimmed"
    REPLACED = "replaced"
    RESOLVED = "resolved"
    DIVERGED = "diverged"
    ADOPTED = "adopted"
    REBUILT = "rebuilt"
    PRUNED = "pruned"
    FAILED = "failed"
    ENDED = "ended"
    FOREIGN = "foreign"
    PROMISED = "promised"
    WARNED = "warned"
    LATE = "late-rows"
    QUARANTINED = "quarantined"
    TIME_HELD = "time-held"
    TIME_BACK = "time-back"
    WRITER_SILENT = "writer-silent"
    UNPOLLED = "writers-unread"
    BEHIND = "behind-time"
    PLAN_CHANGED = "plan-changed"
    PLAN_NOT_COMPARABLE = "plan-not-comparable"
    REWOUND = "rewound"
    BROUGHT_UP = "brought-up"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the pipeline's log.

    Attributes:
        pipeline: the user's stable name.
        kind: what happened.
        reason: why, in words.
        epoch: the epoch it concerns; 0 for none.
        generation: whose opening saw it.
        at_ms: milliseconds since 1970; 0 = the ledger fills it in.
    """

    pipeline: str
    kind: EventKind
    reason: str
    epoch: int = 0
    generation: int = 0
    at_ms: int = 0

    @property
    def code(self) -> str:
        """The code that the reason begins with, ``E203``; empty if it begins with none."""
        code, colon, _ = self.reason.partition(":")
        return code if colon and len(code) == _CODE and code[0] == "E" and code[1:].isdigit() else ""


_CODE = len("E203")


@dataclass(frozen=True, slots=True)
class Intent:
    """What a driver was about to write, for those who look from outside, while it writes or after it died.

    Recovery asks the sinks, never this; of a refused batch it is what the operator's answer is measured by.

    Attributes:
        pipeline: the user's stable name.
        epoch: number of the epoch that was begun; 0: nothing was begun, the batch was refused.
        fence: whose opening it was.
        slice: what was to be written.
        at_ms: milliseconds since 1970; 0 = the ledger fills it in.
        refused: of a refusal, all that it names, as JSON.
    """

    pipeline: str
    epoch: int
    fence: Fence
    slice: Slice
    at_ms: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One row of the list of pipelines.

    Attributes:
        name: the user's stable name.
        sinks: ``(sink id, address)``; addresses hold no secrets.
        query_id: Spark's query id at the last opening.
        checkpoint: checkpoint root at the last opening.
        generation: newest generation.
        opened_ms: time of the last opening, milliseconds since 1970.
        epoch: newest recorded epoch; 0 for none.
    """

    name: str
    sinks: tuple[tuple[str, str], ...]
    query_id: str
    checkpoint: str
    generation: int
    opened_ms: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class RemovedEpoch:
    """An epoch that a pipeline was cut back behind; its number has come again, or will.

    Attributes:
        pipeline: the user's stable name.
        epoch: as it was recorded.
        why: in words.
        at_ms: when, milliseconds since 1970; 0 = the ledger fills it in.
    """

    pipeline: str
    epoch: Epoch
    why: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Pin:
    """An epoch that a reader reads for a while.

    Attributes:
        pipeline: the user's stable name.
        token: the reader's own, random.
        epoch: the number.
        owner: who reads, for people.
        since_ms: when it was pinned, milliseconds since 1970; 0 = the ledger fills it in.
        until_ms: until when, if it is not renewed.
    """

    pipeline: str
    token: str
    epoch: int
    owner: str
    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """What the fingerprint of a run was made of.

    Attributes:
        pipeline: the user's stable name.
        plan: the fingerprint, ``PlanFingerprint.text``.
        body: plans and functions, a line each.
        first_epoch: the first epoch that was to run it, as far as the ledger has been told.
    """

    pipeline: str
    plan: str
    body: str
    first_epoch: int


@runtime_checkable
class Ledger(Protocol):
    """What onceonly needs of a ledger. All methods raise :class:`LedgerUnavailable`.

    ``connection`` (an SQLAlchemy ``Connection``), where taken, joins the caller's transaction instead of opening one:
    the caller commits.
    """

    @property
    def address(self) -> str:
        """Where it lies, without secrets."""
        ...

    def open(self) -> None:
        """Create or upgrade the tables; safe when several drivers start at once."""
        ...

    def enter(self, pipeline: Pipeline) -> None:
        """Insert or update a pipeline's row (``epoch`` is ignored)."""
        ...

    def pipelines(self) -> Sequence[Pipeline]:
        """All pipelines by name."""
        ...

    def intend(self, intent: Intent) -> None:
        """Note an intent; a later one for the same epoch replaces it."""
        ...

    def intent(self, pipeline: str, epoch: int) -> Intent | None:
        """The newest intent for an epoch."""
        ...

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record an epoch with receipts and files; the same epoch and chain again updates it, another chain raises."""
        ...

    def head(self, pipeline: str) -> EpochRecord | None:
        """The newest recorded epoch."""
        ...

    def epochs(self, pipeline: str, first: int = 1, last: int | None = None) -> Sequence[EpochRecord]:
        """Recorded epochs with numbers in ``first..last``, oldest first."""
        ...

    def find(self, pipeline: str, query_id: str, batch_id: int) -> EpochRecord | None:
        """The newest epoch that a batch of a query became."""
        ...

    def discard(self, pipeline: str, first: int) -> None:
        """Forget epochs from ``first`` on (before a rebuild, or when a loss was accepted)."""
        ...

    def supersede(self, pipeline: str, first: int, why: str) -> Sequence[RemovedEpoch]:
        """Set epochs from ``first`` on aside, with their intents forgotten; returns them, oldest first."""
        ...

    def superseded(self, pipeline: str, after: int = 0) -> Sequence[RemovedEpoch]:
        """What was ever set aside of epochs beyond ``after``, oldest first."""
        ...

    def pin(self, pin: Pin) -> None:
        """Pin an epoch, or renew that; pins that are over go."""
        ...

    def unpin(self, pipeline: str, token: str) -> None:
        """Let a pin go."""
        ...

    def pins(self, pipeline: str) -> Sequence[Pin]:
        """Pins that hold, the oldest epoch first."""
        ...

    def keep_plan(self, plan: KeptPlan) -> None:
        """Keep a plan; one that is kept already stays as it is."""
        ...

    def plans(self, pipeline: str) -> Sequence[KeptPlan]:
        """Plans that were kept, by their first epoch."""
        ...

    def prune(self, pipeline: str, before: int) -> None:
        """Forget epochs below ``before`` with their intents, to save room."""
        ...

    def forget(self, pipeline: str) -> None:
        """Forget all there is of a pipeline: its row, epochs, intents and events. No sink is touched."""
        ...

    def note(self, event: Event) -> None:
        """Append an event."""
        ...

    def events(self, pipeline: str, limit: int = 1000, kind: EventKind | None = None) -> Sequence[Event]:
        """Events, of one kind or of any, oldest first; the newest ``limit`` of them."""
        ...

    def close(self) -> None:
        """Release connections. May repeat."""
        ...
