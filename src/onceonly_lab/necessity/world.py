"""Durable state, readers and output errors of the necessity model.

Also holds its durable steps. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from onceonly_lab.strenum import StrEnum

# ---- What outlives a crash in the model, the function F that is computed, and readers of its outputs. Pure.

RECORDS = 6
"""Length of the source. Record ``n`` has the value ``n``, from 1."""

TAKEN = 2
"""Records of an epoch."""


class Function(StrEnum):
    """What F is like when it runs again."""

    DETERMINISTIC = "deterministic F"
    RANDOM_STATE = "random values in state"
    RANDOM_IDS = "random row ids"


@dataclass(frozen=True, slots=True)
class State:
    """Operator state: what F keeps from record to record.

    Attributes:
        total: running sum of the values.
        draws: what chance gave for each record so far; zeros where F is deterministic.
    """

    total: int = 0
    draws: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the output.

    Attributes:
        record: the record it comes from.
        draw: what chance put into its id; 0 where ids are stable.
        epoch: the epoch that wrote it.
        state: the state after its record.
    """

    record: int
    draw: int
    epoch: int
    state: State

    @property
    def key(self) -> tuple[int, int]:
        """What an upsert goes by."""
        return self.record, self.draw


@dataclass(frozen=True, slots=True)
class Result:
    """What F made of one epoch's input.

    Attributes:
        epoch: its number, from 1.
        rows: the output.
        state: afterwards.
        end: records up to here are taken.
    """

    epoch: int
    rows: tuple[Row, ...]
    state: State
    end: int


@dataclass(frozen=True, slots=True)
class World:
    """Everything durable.

    Attributes:
        rows: in the sink.
        marker: newest epoch that the sink's marker names, 0 without one.
        second: rows in the second sink.
        second_marker: as ``marker``.
        state: operator state that a restart loads.
        position: records that a restart does not read again.
        epoch: newest epoch that the engine has logged as done.
        staged: results of the newest staged epoch.
        prepared: results that a sink holds ready, invisible.
        decided: newest epoch that is decided to be committed.
    """

    rows: tuple[Row, ...] = ()
    marker: int = 0
    second: tuple[Row, ...] = ()
    second_marker: int = 0
    state: State = State()
    position: int = 0
    epoch: int = 0
    staged: Result | None = None
    prepared: Result | None = None
    decided: int = 0


def compute(world: World, function: Function, attempt: int, take: int) -> Result:
    """Run F on the next records.

    Args:
        world: where a restart begins.
        function: what F is like.
        attempt: from 0; stands for chance, which no two attempts have alike.
        take: records.
    """
    epoch, end = world.epoch + 1, min(world.position + take, RECORDS)
    drawn = attempt if function is not Function.DETERMINISTIC else 0
    in_id = drawn if function is Function.RANDOM_IDS else 0
    rows: list[Row] = []
    state = world.state
    for record in range(world.position + 1, end + 1):
        state = State(state.total + record, (*state.draws, drawn))
        rows.append(Row(record, in_id, epoch, state))
    return Result(epoch, tuple(rows), state, end)


Reader = Callable[[World], tuple[Row, ...]]
"""What somebody who reads the sink sees."""


def raw(world: World) -> tuple[Row, ...]:
    """All rows."""
    return world.rows


def isolated(world: World) -> tuple[Row, ...]:
    """Rows of epochs that are done, by the epoch in their isolation column."""
    return tuple(row for row in world.rows if row.epoch <= world.epoch)


# ---- Durable steps, each a pure change of the world that happens as a whole or not at all.

Write = Callable[[World], World]
"""One durable step. A crash comes before it or after it."""


def together(*writes: Write) -> Write:
    """Several steps in one transaction."""

    def step(world: World) -> World:
        for write in writes:
            world = write(world)
        return world

    return step


def append(*rows: Row) -> Write:
    """Add rows to the sink."""
    return lambda world: replace(world, rows=world.rows + rows)


def upsert(row: Row) -> Write:
    """Put a row into the sink in place of the one with its key."""
    return lambda world: replace(
        world, rows=(*(other_row for other_row in world.rows if other_row.key != row.key), row)
    )


def mark(result: Result) -> Write:
    """Set the sink's marker."""
    return lambda world: replace(world, marker=result.epoch)


def commit(result: Result) -> Write:
    """Rows and marker in one transaction of the sink."""
    return together(append(*result.rows), mark(result))


def commit_second(result: Result) -> Write:
    """Rows and marker in one transaction of the second sink."""
    return lambda world: replace(world, second=world.second + result.rows, second_marker=result.epoch)


def save_state(result: Result) -> Write:
    """Save the operator state."""
    return lambda world: replace(world, state=result.state)


def save_position(result: Result) -> Write:
    """Log the epoch as done, and where the source goes on."""
    return lambda world: replace(world, position=result.end, epoch=result.epoch)


def save(result: Result) -> Write:
    """State and position in one transaction of the engine."""
    return together(save_state(result), save_position(result))


def stage(result: Result) -> Write:
    """Keep results where a retry finds them."""
    return lambda world: replace(world, staged=result)


def prepare(result: Result) -> Write:
    """Hold results ready in the sink, invisible."""
    return lambda world: replace(world, prepared=result)


def decide(result: Result) -> Write:
    """Decide that what is prepared will be committed."""
    return lambda world: replace(world, decided=result.epoch)


# ---- What can be wrong with the outputs of a run, by comparison with the source. Pure.

View = tuple[Row, ...]
"""What a reader sees at once."""


class Symptom(StrEnum):
    """What can be wrong."""

    LOSS = "LOSS"
    DUP = "DUP"
    WRONG = "WRONG"
    BROKEN = "BROKEN"
    TORN = "TORN"
    CHANGED = "CHANGED"
    DISAGREE = "DISAGREE"


MEANING: dict[Symptom, str] = {
    Symptom.LOSS: "a record has no row at the end",
    Symptom.DUP: "a record has several rows at the end",
    Symptom.WRONG: "a sum is not that of the records up to its own",
    Symptom.BROKEN: "a row does not follow from the committed row before it",
    Symptom.TORN: "a reader sees part of an epoch",
    Symptom.CHANGED: "a reader sees one record with two values",
    Symptom.DISAGREE: "two sinks hold different rows at the end",
}

_SUMS = tuple(accumulate(range(RECORDS + 1)))


def symptoms(views: Iterable[View], end: World, last: View) -> frozenset[Symptom]:
    """Everything that is wrong with a run.

    Args:
        views: what a reader saw after each durable step.
        end: the world after the run.
        last: what the reader sees in it.
    """
    distinct_views = set(views)
    return frozenset((*_at_the_end(last), *_seen(distinct_views), *([Symptom.DISAGREE] if _disagree(end) else [])))


def _at_the_end(last: View) -> Iterator[Symptom]:
    wrong: list[Symptom] = []
    records = {row.record for row in last}
    if len(records) < RECORDS:
        wrong.append(Symptom.LOSS)
    if len(last) > len(records):
        wrong.append(Symptom.DUP)
    if any(row.state.total != _SUMS[row.record] for row in last):
        wrong.append(Symptom.WRONG)
    # Where rows are missing, doubled or wrong, nothing can follow from the one before it.
    return iter(wrong or ([Symptom.BROKEN] if _breaks_off(last) else []))


def _breaks_off(last: View) -> bool:
    before: tuple[int, ...] = ()
    for row in sorted(last, key=lambda row: row.record):
        if row.state.draws[:-1] != before:
            return True
        before = row.state.draws
    return False


def _seen(views: set[View]) -> Iterator[Symptom]:
    if any(_torn({row.record for row in view}) for view in views):
        yield Symptom.TORN
    values = {(row.record, row.state) for view in views for row in view}
    if len(values) > len({record for record, _ in values}):
        yield Symptom.CHANGED


def _torn(records: set[int]) -> bool:
    return any((first in records) != (first + 1 in records) for first in range(1, RECORDS + 1, TAKEN))


def _disagree(end: World) -> bool:
    return end.second_marker > 0 and set(end.rows) != set(end.second)
