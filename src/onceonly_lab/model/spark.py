"""Simulated Spark checkpoint: offset log, commit log, planning and damage.

Each kind of damage does what was seen on a real engine, including the refusals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from onceonly.machine.facts import Offer
from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.model import Slice
from onceonly_checkpoints.spark.offsets import PreviousBatch
from onceonly_lab.model.parts import SOURCE, Records, between, directory, entries, files, is_there, offsets
from onceonly_lab.strenum import StrEnum

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
        unlisted: records of files that nobody finds any more, so that no batch names them.
    """

    batch_id: int
    start: int
    end: int
    clock: int
    first: bool
    unlisted: Records = 0

    @property
    def records(self) -> Records:
        """What it reads."""
        return between(self.start, self.end) & ~self.unlisted


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
        begin: how many records come before its first batch.
        gone: whether another directory has taken its place: nobody starts on it any more.
        unreadable: why the engine refuses to start on it; empty if it does not.
        beside: the newest batches that its lower siblings still hold.
        unlisted: records whose files were gone when it was cut back: its directory is listed anew from there.
    """

    name: str
    query: str
    entries: tuple[Entry, ...] = ()
    done: bool = True
    plans: int = 0
    begin: int = 0
    gone: bool = False
    unreadable: str = ""
    beside: tuple[PreviousBatch, ...] = ()
    unlisted: Records = 0

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
            yield self, self.planned(newest)
            return
        if holding is not None and holding != newest:
            raise Refused("the offset log has this batch already: another query uses the checkpoint")
        start = self.entries[-1].end if self.entries else self.begin
        for end in range(start + 1, min(start + longest, records) + 1):
            if not between(start, end) & ~self.unlisted:
                continue  # no batch is planned for what nobody finds
            entry = Entry(end, 1 + self.plans)
            planned = replace(self, entries=(*self.entries, entry), done=False, plans=self.plans + 1)
            yield planned, planned.planned(newest + 1)

    def planned(self, batch_id: int) -> Planned:
        """A batch of the offset log."""
        start = self.entries[batch_id - 1].end if batch_id else self.begin
        entry = self.entries[batch_id]
        return Planned(batch_id, start, entry.end, entry.clock, batch_id == 0, self.unlisted)

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
        return tuple(self.planned(batch) for batch in range(count))


@dataclass(frozen=True, slots=True)
class Source:
    """What a query reads, and what of it the callback sees.

    Attributes:
        files: whether it is a directory, whose offsets count the batches of one checkpoint; else it is a topic.
        begins: whether a topic says where it begins; else its start is unset until the second batch.
        stateful: whether the plan keeps state.
    """

    files: bool = False
    begins: bool = False
    stateful: bool = False


TOPIC = Source()
"""A topic of which nobody says where it begins."""


@cache
def offer(
    checkpoint: Checkpoint, planned: Planned, source: Source, *, gone: Records = 0, looks_back: bool = False
) -> Offer:
    """What the callback sees of a batch.

    Args:
        checkpoint: where it was planned.
        planned: the batch.
        source: what it reads.
        gone: records whose files are gone.
        looks_back: whether the files that the checkpoint handed out earlier are asked for.
    """
    lineage = Lineage(checkpoint.query, "run", checkpoint.name, planned.batch_id, planned.clock, 0)
    if source.files:
        listed = tuple(file for file in files(planned.start, planned.end) if is_there(file.path, planned.unlisted))
        return Offer(
            Slice(entries(planned.batch_id), entries(planned.batch_id + 1)),
            lineage,
            (directory(listed),),
            _SCHEMA,
            source.stateful,
            missing=tuple(file.path for file in listed if not is_there(file.path, gone)),
            files=listed,
            earlier=files(checkpoint.begin, planned.start) if looks_back else None,
            earlier_checkpoints=checkpoint.beside if planned.first else (),
        )
    begins = offsets(planned.start) if source.begins and planned.first else None
    start = offsets(None if planned.first else planned.start)
    slice_, previous_batches = Slice(start, offsets(planned.end)), checkpoint.beside if planned.first else ()
    return Offer(
        slice_, lineage, (SOURCE,), _SCHEMA, source.stateful, begins=begins, earlier_checkpoints=previous_batches
    )


class Damage(StrEnum):
    """What can happen to a checkpoint; the value says it in words."""

    DELETED = "deleted"
    DELETED_LATER = "deleted; the new one begins behind it"
    COMMIT_REMOVED = "robbed of its newest commit entry"
    CUT_OFF = "robbed of its newest offset and commit entry"
    ROLLED_BACK = "put back to the state before its newest commit"
    ROLLED_BACK_TWO = "put back to the state before its last two commits"
    COPIED = "copied; both copies are used"
    ANOTHER = "not the only one: another job of the same name has its own"
    EMPTIED = "left with an empty newest entry"
    OFFSETS_REMOVED = "robbed of its offset log"
    METADATA_REMOVED = "robbed of its metadata"
    SOURCES_REMOVED = "robbed of its sources"
    REFRESHED = "left behind by a full refresh, beside the one that begins anew"


SHARED = frozenset({Damage.COPIED, Damage.ANOTHER})
"""After these the first checkpoint is used, too."""

REFUSALS = {
    Damage.EMPTIED: "Incomplete log file",
    Damage.OFFSETS_REMOVED: "a commit log without an offset log",
    Damage.METADATA_REMOVED: "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    Damage.SOURCES_REMOVED: "a batch of the source does not exist",
}
"""Damage on which the engine itself refuses to start."""

OTHERS = frozenset({Damage.DELETED_LATER, Damage.ANOTHER, Damage.REFRESHED})
"""What people do with a checkpoint, rather than what befalls it."""

RESTARTED = tuple(damage for damage in Damage if damage not in REFUSALS and damage not in OTHERS)
"""Damage after which the engine starts, and hands over what it then takes for the next batch."""


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
        # Before anything was written nobody can tell that the source began elsewhere.
        Damage.DELETED_LATER: Checkpoint(
            checkpoint.name, f"{checkpoint.query}'", plans=clock, begin=checkpoint.entries[-1].end + 1
        )
        if done
        else None,
        Damage.ANOTHER: Checkpoint(f"another than {checkpoint.name}", f"{checkpoint.query}'", plans=clock),
        Damage.COPIED: replace(fresh, name=f"copy of {checkpoint.name}"),
        Damage.COMMIT_REMOVED: replace(fresh, done=False) if checkpoint.done else None,
        Damage.CUT_OFF: replace(fresh, entries=checkpoint.entries[:-1], done=True),
        Damage.ROLLED_BACK: _rolled_back(fresh, done),
        Damage.ROLLED_BACK_TWO: _rolled_back(fresh, done - 1),
        Damage.REFRESHED: Checkpoint(
            f"{checkpoint.name}/1", f"{checkpoint.query}'", plans=clock, beside=_beside(checkpoint)
        ),
    }
    return after[damage]


def _beside(checkpoint: Checkpoint) -> tuple[PreviousBatch, ...]:
    """What its offset log still tells of its newest batches; of a directory, in the log that the checkpoint keeps."""
    newest = [(batch, checkpoint.planned(batch)) for batch in range(len(checkpoint.entries))][-3:]
    return tuple(
        PreviousBatch(Lineage(checkpoint.query, "", checkpoint.name, batch, planned.clock, 0), end)
        for batch, planned in newest
        for end in (offsets(planned.end), entries(batch + 1))
    )


def _rolled_back(checkpoint: Checkpoint, batches: int) -> Checkpoint | None:
    """As it was when ``batches`` had been planned and the last of them was not yet committed."""
    if batches < 1:
        return None
    return replace(checkpoint, entries=checkpoint.entries[:batches], done=False)
