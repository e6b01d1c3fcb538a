"""Random runs of writers, judged by X-TIME after every step.

Reports the first finding of each design, and the number of runs that it took. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from onceonly_lab.writers.designs import MUTANTS, SHIPPED, Design
from onceonly_lab.writers.world import Commit, World

NAME = "X-TIME"
"""What a finding is called."""

MUST_HOLD = (
    "What is noted and what is complete never go back, but where a position was put back. No row earlier than what "
    "is complete comes uncounted from a writer that was neither silent nor new when that was concluded. A batch that "
    "is done again is of the clock of its first attempt. Two readers of one state are told the same."
)

STEPS = 30
"""Things that happen in a run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The first thing that does not hold in a run.

    Attributes:
        seed: of the run.
        step: which one.
        what: in words.
    """

    seed: int
    step: int
    what: str


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of many runs of one design.

    Attributes:
        design: what was played.
        runs: how many.
        findings: one for each run in which something does not hold.
        took: runs up to and with the first finding; 0 for none.
    """

    design: Design
    runs: int
    findings: int
    took: int
    first: Finding | None

    @property
    def as_expected(self) -> bool:
        """Whether a mutant was found, and what ships was not."""
        return bool(self.findings) == bool(self.design.broken)


def tally(design: Design, runs: int, seed: int) -> Tally:
    """Play runs with the seeds ``seed``, ``seed + 1`` and so on."""
    findings = [finding for each in range(seed, seed + runs) if (finding := play(design, each)) is not None]
    first = findings[0] if findings else None
    return Tally(design, runs, len(findings), first.seed - seed + 1 if first else 0, first)


def tallies(runs: int, seed: int, designs: Sequence[Design] = (SHIPPED, *MUTANTS)) -> Iterator[Tally]:
    """Each design in the same runs."""
    for design in designs:
        yield tally(design, runs, seed)


def play(design: Design, seed: int) -> Finding | None:
    """One run; what first does not hold in it, if anything."""
    world, read = World(design, Random(seed)), Reading()
    for step in range(1, STEPS + 1):
        made = world.step()
        what = _judged(world, made) or read.judged(world)
        if what:
            return Finding(seed, step, what)
    return None


def _judged(world: World, made: Commit | None) -> str:
    return "" if made is None else _went_back(made) or _came_early(world, made) or _another_clock(made)


def _another_clock(made: Commit) -> str:
    ingest, planned = made.timed.time.batch_timestamp_ms, made.planned
    text = f"{made.timed.writer} has planned a batch at {planned}, and done again it is of {ingest}"
    return text if ingest != planned else ""


def _went_back(made: Commit) -> str:
    before, now = made.before, made.timed
    if before is None:
        return ""
    if _less(now.time.complete_until, before.timed.time.complete_until):
        return f"{now.writer} noted {before.timed.time.complete_until}, then {now.time.complete_until}"
    has_same_turns = all(made.heard[name] == turn for name, turn in before.heard.items())
    complete, earlier = now.time.dataset_complete_until, before.timed.time.dataset_complete_until
    if has_same_turns and _less(complete, earlier):
        return f"{now.writer} called {earlier} complete, then {complete}"
    return ""


def _less(now: int | None, before: int | None) -> bool:
    return before is not None and (now is None or now < before)


def _came_early(world: World, made: Commit) -> str:
    """Whether a row came that somebody had called complete, that nobody counted, and whose writer was waited for."""
    writer = made.timed.writer
    for row in made.rows:
        concluded = next(
            (commit for commit in world.commits if commit is not made and _covers(commit, row, world)), None
        )
        if concluded is not None and _waited_for(writer, concluded, world):
            by, lower = concluded.timed.writer, concluded.timed.time.dataset_complete_until
            return f"a row of {writer} at {row} came uncounted, after {by} had called {lower} complete"
    return ""


def _covers(commit: Commit, row: int, world: World) -> bool:
    lower = commit.timed.time.dataset_complete_until
    return lower is not None and row < lower and stands(commit, world)


def stands(commit: Commit, world: World) -> bool:
    """Whether none of those that an epoch's driver had heard of was put back since."""
    turns = world.turns
    return all(turns[name] == turn for name, turn in commit.heard.items())


def _waited_for(writer: str, commit: Commit, world: World) -> bool:
    new = writer not in commit.heard and writer not in world.said.declared
    return not new and writer not in commit.timed.time.timed_out


class Reading:
    """What readers were told so far."""

    def __init__(self) -> None:
        self._lower: int | None = None

    def judged(self, world: World) -> str:
        """Read at two clocks; what does not hold, if anything."""
        newest, clock = world.newest, world.clock
        earlier, later = (world.design.read(newest, at) for at in (clock, clock + world.chance.randint(1, 200)))
        if earlier.lower != later.lower:
            return f"two readers of one state are told {earlier.lower} and {later.lower}"
        if any(writer.returns for writer in world.writers):
            self._lower = None
            return ""
        if _less(earlier.lower, self._lower) and _settled(world):
            return f"a reader is told {self._lower}, then {earlier.lower}"
        self._lower = earlier.lower if _settled(world) else None
        return _unfounded(world, earlier.lower)


def _settled(world: World) -> bool:
    """Whether every writer has heard of every turn: as long as one has not, what it concludes is void."""
    return all(stands(writer.line[-1], world) for writer in world.writers if writer.line)


def _unfounded(world: World, lower: int | None) -> str:
    if lower is None:
        return ""
    founded = max(
        (commit.timed.time.dataset_complete_until or 0 for commit in world.commits if stands(commit, world)), default=0
    )
    return f"a reader is told {lower}, and nobody has concluded more than {founded}" if lower > founded else ""
