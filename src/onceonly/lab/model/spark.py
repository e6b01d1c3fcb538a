"""Spark's side: the checkpoint with its offset and commit log, what is planned from it, and what damage makes of it.

Each kind of damage does what was seen on a real engine, including the refusals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from onceonly.facts import Offer
from onceonly.lab.model.parts import SOURCE, directory, offsets
from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.slices import Slice

_SCHEMA = "columns"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the offset log: where the batch ends, and the clock reading that was logged with it."""

    end: int
    clock: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch as the engine has it in hand.

    Attributes:
        batch_id: the engine's number.
        start: records before it.
        end: records up to its end.
        clock: the logged clock reading.
        first: whether it is the first of its checkpoint, so that its start offset is unset.
    """

    batch_id: int
    start: int
    end: int
    clock: int
    first: bool


class Refused(Exception):
    """The engine does not go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint directory.

    Attributes:
        name: of the directory.
        query: Spark's query id, kept in it.
        entries: the offset log from batch 0 on.
        done: whether the commit log has the newest entry.
        plans: how many batches were ever planned; the engine's clock.
        gone: whether another directory has taken its place: nobody starts on it any more.
        unreadable: why the engine refuses to start on it; empty if it does not.
    """

    name: str
    query: str
    entries: tuple[Entry, ...] = ()
    done: bool = True
    plans: int = 0
    gone: bool = False
    unreadable: str = ""

    def next(self, records: int, longest: int, holding: int | None) -> Iterator[tuple[Checkpoint, Planned]]:
        """Every way to plan the next batch; nothing if the source has nothing more.

        Args:
            records: how many the source has.
            longest: how many of them a batch may take.
            holding: the batch that the driver has just returned; ``None`` at the start of a query.

        Raises:
            Refused: the checkpoint is damaged, or somebody else has gone on in it.
        """
        if self.unreadable:
            raise Refused(self.unreadable)
        newest = len(self.entries) - 1
        if holding is None and not self.done:
            yield self, self._planned(newest)
            return
        if holding is not None and holding != newest:
            raise Refused("the offset log has this batch already: another query uses the checkpoint")
        start = self.entries[-1].end if self.entries else 0
        for end in range(start + 1, min(start + longest, records) + 1):
            entry = Entry(end, 1 + self.plans)
            planned = replace(self, entries=(*self.entries, entry), done=False, plans=self.plans + 1)
            yield planned, planned._planned(newest + 1)

    def _planned(self, batch_id: int) -> Planned:
        start = self.entries[batch_id - 1].end if batch_id else 0
        entry = self.entries[batch_id]
        return Planned(batch_id, start, entry.end, entry.clock, first=batch_id == 0)

    def commit(self, batch_id: int) -> Checkpoint:
        """Write the commit log's entry of a batch.

        Raises:
            Refused: it is there already.
        """
        newest = len(self.entries) - 1
        if batch_id < newest or self.done:
            raise Refused("the commit log has this batch already: another query uses the checkpoint")
        return replace(self, done=True)

    @property
    def returned(self) -> tuple[Planned, ...]:
        """Batches that the engine takes for written."""
        count = len(self.entries) if self.done else len(self.entries) - 1
        return tuple(self._planned(batch) for batch in range(count))


def offer(checkpoint: Checkpoint, planned: Planned, *, files: bool = False, stateful: bool = False) -> Offer:
    """What the callback sees of a batch.

    Args:
        checkpoint: where it was planned.
        planned: the batch.
        files: whether the source is a directory, whose offsets count batches.
        stateful: whether the plan keeps state.
    """
    lineage = Lineage(checkpoint.query, "run", checkpoint.name, planned.batch_id, planned.clock, 0)
    if files:
        slice_ = Slice(offsets(planned.batch_id), offsets(planned.batch_id + 1))
        return Offer(slice_, lineage, (directory(planned.start, planned.end),), _SCHEMA, stateful)
    start = offsets(0) if planned.first else offsets(planned.start)
    return Offer(Slice(start, offsets(planned.end)), lineage, (SOURCE,), _SCHEMA, stateful)


class Damage(StrEnum):
    """What can happen to a checkpoint; the value says it in words."""

    DELETED = "deleted"
    COMMIT_REMOVED = "robbed of its newest commit entry"
    CUT_OFF = "robbed of its newest offset and commit entry"
    ROLLED_BACK = "put back to the state before its newest commit"
    ROLLED_BACK_TWO = "put back to the state before its last two commits"
    COPIED = "copied; both copies are used"
    EMPTIED = "left with an empty newest entry"
    OFFSETS_REMOVED = "robbed of its offset log"
    METADATA_REMOVED = "robbed of its metadata"
    SOURCES_REMOVED = "robbed of its sources"


REFUSALS = {
    Damage.EMPTIED: "Incomplete log file",
    Damage.OFFSETS_REMOVED: "a commit log without an offset log",
    Damage.METADATA_REMOVED: "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    Damage.SOURCES_REMOVED: "a batch of the source does not exist",
}
"""Damage on which the engine itself refuses to start."""


def damaged(checkpoint: Checkpoint, damage: Damage) -> Checkpoint | None:
    """The directory that the next query starts on; ``None`` where there is nothing to damage in this way."""
    clock = 100 + checkpoint.plans
    fresh = replace(checkpoint, plans=clock)
    count = len(checkpoint.entries)
    if not count:
        return None
    if damage in REFUSALS:
        return replace(fresh, unreadable=REFUSALS[damage])
    done = count if checkpoint.done else count - 1
    after = {
        Damage.DELETED: Checkpoint(checkpoint.name, f"{checkpoint.query}'", plans=clock),
        Damage.COPIED: replace(fresh, name=f"copy of {checkpoint.name}"),
        Damage.COMMIT_REMOVED: replace(fresh, done=False) if checkpoint.done else None,
        Damage.CUT_OFF: replace(fresh, entries=checkpoint.entries[:-1], done=True),
        Damage.ROLLED_BACK: _rolled_back(fresh, done),
        Damage.ROLLED_BACK_TWO: _rolled_back(fresh, done - 1),
    }
    return after[damage]


def _rolled_back(checkpoint: Checkpoint, batches: int) -> Checkpoint | None:
    """As it was when ``batches`` had been planned and the last of them was not yet committed."""
    if batches < 1:
        return None
    return replace(checkpoint, entries=checkpoint.entries[:batches], done=False)
