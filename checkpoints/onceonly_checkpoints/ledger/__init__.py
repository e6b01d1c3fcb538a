"""Ledger protocol: a pipeline's index, history and event log.

It is never an authority: it can be rebuilt from the sinks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence
from onceonly_checkpoints.model import Slice
from onceonly_checkpoints.strenum import StrEnum


class LedgerUnavailable(Exception):
    """The ledger cannot be read or written. The text holds no secret."""


class NoLedger(LedgerUnavailable):
    """The place exists, but no ledger was recorded in it yet."""


class LedgerConflict(LedgerUnavailable):
    """The ledger holds another epoch under the same number.

    ``recorded`` is the chain in the ledger, and ``offered`` is that of the new record.
    """

    def __init__(self, pipeline: str, epoch: int, recorded: str, offered: str) -> None:
        super().__init__(f'epoch {epoch} of "{pipeline}" is recorded with chain {recorded[:12]}, not {offered[:12]}')
        self.pipeline = pipeline
        self.epoch = epoch
        self.recorded = recorded
        self.offered = offered


class EventKind(StrEnum):
    """Events of a pipeline besides ordinary epochs."""

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
    EXTERNAL_CHANGE = "external-change"
    PROMISED = "promised"
    WARNED = "warned"
    LATE = "late-rows"
    QUARANTINED = "quarantined"
    TIME_HELD = "time-held"
    TIME_BACK = "time-back"
    WRITER_TIMED_OUT = "writer-timed-out"
    SOURCE_IDLE = "source-idle"
    UNPOLLED = "writers-unread"
    BEHIND = "behind-time"
    PLAN_CHANGED = "plan-changed"
    PLAN_NOT_COMPARABLE = "plan-not-comparable"
    SCHEMA_CHANGED = "schema-changed"
    STATE_LEFT = "state-left"
    REWOUND = "rewound"
    ROLLED_FORWARD = "rolled-forward"
    LINEAGE_SENT = "lineage-sent"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the pipeline's log.

    ``epoch`` is 0 for none, ``generation`` that of the opening that saw it. ``at_ms`` is in milliseconds since 1970,
    with 0 filled in by the ledger.
    """

    pipeline: str
    kind: EventKind
    reason: str
    epoch: int = 0
    generation: int = 0
    at_ms: int = 0

    @property
    def code(self) -> str:
        """The code at the beginning of the reason, ``E203``, or empty."""
        code, colon, _ = self.reason.partition(":")
        return code if colon and len(code) == _CODE and code[0] == "E" and code[1:].isdigit() else ""


_CODE = len("E203")


@dataclass(frozen=True, slots=True)
class Intent:
    """An epoch that a driver was about to write, for observers while it writes or after it died.

    Recovery asks the sinks, never this. An operator's answer to a refused batch is checked against it.

    Attributes:
        epoch: number of the begun epoch, 0 if none was begun because the batch was refused.
        slice: input that was to be written.
        at_ms: milliseconds since 1970, with 0 filled in by the ledger.
        refused: all details of a refusal, as JSON.
    """

    pipeline: str
    epoch: int
    fence: Fence
    slice: Slice
    at_ms: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One row of the list of pipelines, as of the last opening.

    ``sinks`` are ``(sink id, address)``, without secrets. ``opened_ms`` is in milliseconds since 1970. ``epoch`` is the
    newest recorded one, 0 for none.
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
    """An epoch that a pipeline was cut back behind. Its number has come again, or will.

    ``at_ms`` is in milliseconds since 1970, with 0 filled in by the ledger.
    """

    pipeline: str
    epoch: Epoch
    why: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Pin:
    """An epoch that a reader reads for a while, with the reader's random ``token``.

    ``since_ms`` and ``until_ms`` (if the pin is not renewed) are in milliseconds since 1970. The ledger fills in a
    ``since_ms`` of 0.
    """

    pipeline: str
    token: str
    epoch: int
    owner: str
    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """The plan behind a run's fingerprint (``PlanFingerprint.text``).

    ``body`` has plans and functions, a line each. ``first_epoch`` is the first one that was to run it, as far as the
    ledger knows.
    """

    pipeline: str
    plan: str
    body: str
    first_epoch: int


@runtime_checkable
class Ledger(Protocol):
    """Storage of a pipeline's ledger. All methods raise :class:`LedgerUnavailable`.

    A given ``connection`` (an SQLAlchemy ``Connection``) joins the caller's transaction instead of opening one: the
    caller commits.
    """

    @property
    def address(self) -> str:
        """Its location, without secrets."""
        ...

    def open(self) -> None:
        """Create or upgrade the tables. Several drivers may start at once."""
        ...

    def enter(self, pipeline: Pipeline) -> None:
        """Insert or update a pipeline's row (``epoch`` is ignored)."""
        ...

    def pipelines(self) -> Sequence[Pipeline]:
        """All pipelines by name."""
        ...

    def intend(self, intent: Intent) -> None:
        """Note an intent. A later one for the same epoch replaces it."""
        ...

    def intent(self, pipeline: str, epoch: int) -> Intent | None:
        """The newest intent for an epoch."""
        ...

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record an epoch with receipts and files. The same epoch and chain again updates it, another chain raises."""
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
        """Set epochs from ``first`` on aside, forget their intents, and return them, oldest first."""
        ...

    def superseded(self, pipeline: str, after: int = 0) -> Sequence[RemovedEpoch]:
        """All superseded epochs beyond ``after``, oldest first."""
        ...

    def pin(self, pin: Pin) -> None:
        """Pin an epoch, or renew its pin. Expired pins are deleted."""
        ...

    def unpin(self, pipeline: str, token: str) -> None:
        """Delete a pin."""
        ...

    def pins(self, pipeline: str) -> Sequence[Pin]:
        """Valid pins, the oldest epoch first."""
        ...

    def keep_plan(self, plan: KeptPlan) -> None:
        """Keep a plan. One that is kept already stays as it is."""
        ...

    def plans(self, pipeline: str) -> Sequence[KeptPlan]:
        """Kept plans, by their first epoch."""
        ...

    def prune(self, pipeline: str, before: int) -> None:
        """Forget epochs below ``before`` with their intents, to save room."""
        ...

    def forget(self, pipeline: str) -> None:
        """Forget a pipeline's row, epochs, intents and events. No sink is touched."""
        ...

    def note(self, event: Event) -> None:
        """Append an event."""
        ...

    def events(self, pipeline: str, limit: int = 1000, kind: EventKind | None = None) -> Sequence[Event]:
        """The newest ``limit`` events, of one kind or of any, oldest first."""
        ...

    def close(self) -> None:
        """Release connections. May repeat."""
        ...


LedgerPlace: TypeAlias = str | os.PathLike[str] | Ledger
"""A ledger by its path or URL, or an open one."""
