"""World of a dataset with two or three unreliable writers.

They poll late, crash, fall silent and are put back. The true events are recorded beside it.

Pure, by a seeded source of chance. Truth is kept apart from marks: which turn each driver has heard of, which rows
nobody counted as late. The rules under test never see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from onceonly.machine.writer_progress import TimedMarker, Vector, WriterSet, clamped, known_lower
from onceonly_checkpoints.epoch_time import EpochTime, WriterProgress
from onceonly_lab.writers.designs import Design

NAMES = ("A", "B", "C")


@dataclass(frozen=True, slots=True)
class Batch:
    """What a writer is about to commit: drawn once, and the same again after a crash.

    Attributes:
        rows: times of its rows.
        said: what is said to be complete with it.
        planned: the clock when it was drawn.
    """

    rows: tuple[int, ...]
    said: int | None
    planned: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed epoch, and what is true of it.

    Attributes:
        timed: what its marker says.
        before: the writer's epoch before it, of the same turn; ``None`` for the first of a turn.
        rows: times of those of its rows that were not counted as late.
        heard: for each writer that its driver has heard of, the newest turn of it, itself included.
        planned: the clock when its batch was drawn, before whatever crash.
    """

    timed: TimedMarker
    before: Commit | None
    rows: tuple[int, ...]
    heard: Mapping[str, int]
    planned: int


@dataclass(slots=True)
class Writer:
    """One writer as it is.

    Attributes:
        name: its pipeline.
        line: epochs that stand, oldest first.
        ever: all that it ever committed, those that were cut off included: a poll can still bring one of them.
        turn: how often it was put back.
        returns: whether its next epoch is the first since it was put back.
        known: marks that it knows of its own past.
        pending: what a crash left to be done again.
        progress: time of its events.
        asleep: until when it does nothing.
    """

    name: str
    line: list[Commit] = field(default_factory=list)
    ever: list[Commit] = field(default_factory=list)
    turn: int = 0
    returns: bool = False
    known: Vector = ()
    pending: Batch | None = None
    progress: int = 0
    asleep: int = 0


class World:
    """A dataset, its writers and the clock.

    Args:
        design: the rules.
        chance: where everything random comes from.
    """

    def __init__(self, design: Design, chance: Random) -> None:
        self.design, self.chance = design, chance
        self.writers = [Writer(name) for name in NAMES[: chance.choice((2, 2, 3))]]
        declared = tuple(writer.name for writer in self.writers) if chance.random() < 0.6 else ()
        self.said = WriterSet(declared, chance.choice((15, 30, 60)))
        self.clock = 0
        self.commits: list[Commit] = []

    @property
    def turns(self) -> Mapping[str, int]:
        """The newest turn of each writer."""
        return {writer.name: writer.turn for writer in self.writers}

    @property
    def newest(self) -> tuple[TimedMarker, ...]:
        """What a reader finds."""
        return tuple(writer.line[-1].timed for writer in self.writers if writer.line)

    def step(self) -> Commit | None:
        """Let one thing happen; return the epoch that was committed by it, if one was."""
        chance = self.chance
        self.clock += chance.choice((0, 1, 1, 2, 5, 20))
        awake = [writer for writer in self.writers if writer.asleep <= self.clock]
        if not awake:
            return None
        writer, what = chance.choice(awake), chance.random()
        if what < 0.08:
            writer.asleep = self.clock + chance.randint(5, 90)
        elif what < 0.16:
            writer.pending = writer.pending or self._batch(writer)
        elif what < 0.20 and writer.line:
            _put_back(writer, chance.randrange(len(writer.line)))
        else:
            return self._commit(writer)
        return None

    def _batch(self, writer: Writer) -> Batch:
        chance = self.chance
        writer.progress += chance.randint(0, 6)
        rows = tuple(writer.progress + chance.randint(-5, 4) for _ in range(chance.randint(0, 3)))
        complete_until = None if chance.random() < 0.05 else writer.progress - chance.randint(0, 6)
        return Batch(rows, complete_until, self.clock)

    def _polled(self, writer: Writer) -> list[Commit]:
        """What peers answered: the newest, an older one, even one that was cut off since, or nothing."""
        commits: list[Commit] = []
        for peer in self.writers:
            luck = self.chance.random()
            if peer is writer or not peer.ever or luck < 0.2:
                continue
            fresh = luck < 0.65 and peer.line
            commits.append(peer.line[-1] if fresh else self.chance.choice(peer.ever))
        return commits

    def _commit(self, writer: Writer) -> Commit:
        batch, polled = writer.pending or self._batch(writer), self._polled(writer)
        last = writer.line[-1] if writer.line else None
        own = self._own(writer, batch, last, polled)
        peer_markers, last_marker = [commit.timed for commit in polled], last.timed if last else None
        horizon = clamped(
            last_marker.time.complete_until if last_marker else None, known_lower(own, last_marker, peer_markers)
        )
        view = self.design.conclude(own, last_marker, peer_markers, self.said)
        high = max((*batch.rows, own.complete_until or 0))
        time = EpochTime(
            "integer",
            own.complete_until,
            view.lower,
            high,
            late_before=horizon,
            batch_timestamp_ms=own.batch_timestamp_ms,
            writers=view.observed,
            timed_out=view.silent,
            resets=own.resets,
        )
        uncounted = tuple(row for row in batch.rows if horizon is None or row >= horizon)
        heard = _heard([*polled, *([last] if last else [])], writer)
        before, timed = None if writer.returns else last, TimedMarker(writer.name, own.epoch, time)
        made = Commit(timed, before, uncounted, heard, batch.planned)
        self.commits.append(made)
        writer.line.append(made)
        writer.ever.append(made)
        writer.returns, writer.pending, writer.known = False, None, (*writer.known, own)
        return made

    def _own(self, writer: Writer, batch: Batch, last: Commit | None, polled: Sequence[Commit]) -> WriterProgress:
        complete_until = self.design.clamped(batch.said, last.timed.time.complete_until if last else None)
        turn = self.design.turn(
            writer.name, writer.returns, [writer.known, *(commit.timed.observed for commit in polled)]
        )
        ingest = self.design.recorded(batch.planned, self.clock)
        return WriterProgress(writer.name, last.timed.epoch + 1 if last else 1, complete_until, ingest, turn)


def _put_back(writer: Writer, to: int) -> None:
    """Its newest epochs are cut off with their rows; events come again from there."""
    del writer.line[to:]
    writer.turn += 1
    writer.returns = True
    writer.pending = None
    writer.progress = (writer.line[-1].timed.time.complete_until or 0) if writer.line else 0


def _heard(commits: Sequence[Commit], writer: Writer) -> dict[str, int]:
    heard: dict[str, int] = {}
    for commit in commits:
        for name, turn in commit.heard.items():
            heard[name] = max(heard.get(name, 0), turn)
    return {**heard, writer.name: writer.turn}
