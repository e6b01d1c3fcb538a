"""The parts of a world, each a frozen value: targets, staging, ledger, budget; and what can be said of offsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

from onceonly.facts import Offer
from onceonly.sources import FILES
from onceonly_checkpoints.epoch import Digest, Epoch, EpochRecord, Fence, Marker, Receipt
from onceonly_checkpoints.slices import Slice, SourceIdentity, SourceOffsets

PIPELINE = "orders"
SOURCE = SourceIdentity("0", "kafka:events")
IDENTITY = "the only one"
"""What every simulated target is: none is replaced."""

NOBODY = Fence(0, "")


class Kind(StrEnum):
    """Which real sink a target is like."""

    POSTGRES = "postgres"
    DELTA = "delta"
    KAFKA = "kafka"


@cache
def offsets(record: int) -> SourceOffsets:
    """Where a source stands that has given ``record`` records; unset before the first."""
    return SourceOffsets.of({"0": str(record) if record else None})


def record_at(said: SourceOffsets) -> int:
    """Inverse of :func:`offsets`."""
    return int(said.entries[0][1] or 0)


def directory(start: int, end: int) -> SourceIdentity:
    """A directory of files, one for each record, with the list of those that a batch reads; a real list is hashed."""
    return SourceIdentity(SOURCE.source, f"{FILES}events", f"{start}-{end}")


def records(slice_: Slice, sources: tuple[SourceIdentity, ...]) -> tuple[int, int]:
    """Which records of the source a batch or an epoch holds: how many come before it, and before its end.

    Offsets of a directory count batches of one checkpoint, and say nothing of that.
    """
    listed = sources[0].inputs if sources else None
    if listed is None:
        return record_at(slice_.start), record_at(slice_.end)
    start, _, end = listed.partition("-")
    return int(start), int(end)


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of one epoch as they lie in a target.

    Attributes:
        epoch: the epoch; its slice says which records of the source these rows are.
        marker: the marker beside them; ``None`` where it was not written yet.
        content: which computation of the slice they are.
        whole: whether all of them are there.
        stale: whether they landed under a fence that was not the newest of the target.
    """

    epoch: Epoch
    marker: Marker | None
    content: Digest | None
    whole: bool = True
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """A change that was sent and not answered, which may land yet.

    Attributes:
        fence: whose change it is; the fence itself, where it brings no rows.
        held: the rows it brings; ``None`` for a fence.
        decided: it has been decided and is only hidden (Kafka); it lands before anybody who waits for it reads.
        turn: the target's turn that it was made for.
    """

    fence: Fence
    held: Held | None
    decided: bool = False
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """What one sink writes to.

    Attributes:
        name: the sink's id.
        kind: which real sink it is like.
        fence: the newest fence.
        held: rows, in the order in which they landed.
        flights: changes without an answer.
        turn: length of the Delta log, epoch of the Kafka producer; counted only where steps are fine.
        half: rows in an open Kafka transaction that an older end may yet commit.
        lowered: whether a fence was ever replaced by a lower one.
    """

    name: str
    kind: Kind
    fence: Fence | None = None
    held: tuple[Held, ...] = ()
    flights: tuple[Flight, ...] = ()
    turn: int = 0
    half: Held | None = None
    lowered: bool = False

    def __hash__(self) -> int:
        # The rest is told apart by equality, which is quick where values share their parts.
        return hash(
            (self.name, self.fence, tuple([held.epoch.chain for held in self.held]), len(self.flights), self.turn)
        )

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Markers, oldest first."""
        return tuple(held.marker for held in self.held if held.marker)

    @property
    def newest(self) -> Marker | None:
        """The newest marker."""
        markers = self.markers
        return markers[-1] if markers else None


def fenced(target: Target, fence: Fence) -> Target:
    """The target with another newest fence."""
    lowered = target.fence is not None and fence.generation < target.fence.generation
    return replace(target, fence=fence, lowered=target.lowered or lowered)


def receipt(marker: Marker) -> Receipt:
    """What a target answers for an epoch. Positions are left out: no decision reads them."""
    epoch = marker.epoch
    return Receipt(marker.sink, epoch.number, epoch.chain, IDENTITY, (), epoch.digest.rows)


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """One directory below staging.

    Attributes:
        reference: what markers carry.
        number: of the epoch.
        generation: of the opening that staged it.
        content: which computation it is.
        flushed: whether it survives a power failure.
        torn: whether a power failure took some of it.
    """

    reference: str
    number: int
    generation: int
    content: Digest
    flushed: bool = True
    torn: bool = False


@dataclass(frozen=True, slots=True)
class StagingArea:
    """Everything staged, by reference."""

    epochs: tuple[StagedEpoch, ...] = ()

    def holds(self, reference: str) -> StagedEpoch | None:
        """What a reference leads to."""
        return next((staged for staged in self.epochs if staged.reference == reference), None)

    def add(self, staged: StagedEpoch) -> StagingArea:
        """One epoch more."""
        kept = self.drop(staged.reference).epochs
        return StagingArea(tuple(sorted((*kept, staged), key=lambda one: one.reference)))

    def drop(self, reference: str | None) -> StagingArea:
        """Without that epoch."""
        return StagingArea(tuple(staged for staged in self.epochs if staged.reference != reference))

    def sweep(self, generation: int, keep: str | None) -> StagingArea:
        """Without what lower generations left; ``keep`` stays."""
        stays = (one for one in self.epochs if one.generation >= generation or one.reference == keep)
        return StagingArea(tuple(stays))

    def after_power_failure(self) -> StagingArea:
        """Torn, as far as it was not flushed."""
        return StagingArea(tuple(one if one.flushed else replace(one, torn=True) for one in self.epochs))


class Conflict(Exception):
    """The ledger holds another epoch under the same number."""


@dataclass(frozen=True, slots=True)
class SimulatedLedger:
    """Records by number; the fence that wrote one is left out, because no decision reads it.

    Attributes:
        records: oldest first.
        generation: the newest one that was entered; kept only where generations are taken from the ledger.
    """

    records: tuple[EpochRecord, ...] = ()
    generation: int = 0

    def __hash__(self) -> int:
        return hash((self.generation, tuple([record.epoch.chain for record in self.records])))

    @property
    def head(self) -> EpochRecord | None:
        """The newest record."""
        return self.records[-1] if self.records else None

    def record(self, epoch: Epoch, receipts: tuple[Receipt, ...]) -> SimulatedLedger:
        """One record more, or the same one with its receipts replaced where some are given.

        Raises:
            Conflict: another chain is recorded under this number.
        """
        known = {record.epoch.number: record for record in self.records}
        earlier = known.get(epoch.number)
        if earlier and earlier.epoch.chain != epoch.chain:
            raise Conflict(epoch.number)
        if earlier is None or receipts:
            known[epoch.number] = EpochRecord(PIPELINE, NOBODY, epoch, receipts)
        return replace(self, records=tuple(known[number] for number in sorted(known)))

    def descent(self, query_id: str, batch_id: int, last: int) -> tuple[Epoch, ...]:
        """The newest epoch that a batch of a query became, with those after it up to ``last``."""
        found = [
            record.epoch.number
            for record in self.records
            if record.epoch.lineage
            and (record.epoch.lineage.query_id, record.epoch.lineage.batch_id) == (query_id, batch_id)
        ]
        if not found:
            return ()
        return tuple(record.epoch for record in self.records if found[-1] <= record.epoch.number <= last)

    def alike(self, offered: Offer, last: int) -> tuple[Epoch, ...]:
        """What a ledger answers that goes by the text of a slice: the epoch, in the names of the offered batch."""
        found = [record.epoch for record in self.records if record.epoch.slice == offered.slice]
        if not found:
            return ()
        taken = replace(found[-1], lineage=offered.lineage, sources=offered.sources)
        return (taken, *(one.epoch for one in self.records if found[-1].number < one.epoch.number <= last))


@dataclass(frozen=True, slots=True)
class Left:
    """How often something may still happen.

    Attributes:
        times: 0: not any more.
    """

    times: int

    @property
    def less(self) -> Left:
        """One time less."""
        return Left(self.times - 1)
