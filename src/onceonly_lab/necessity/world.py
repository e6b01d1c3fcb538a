"""What outlives a crash in the model, the function F that is computed, and readers of its outputs. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

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
