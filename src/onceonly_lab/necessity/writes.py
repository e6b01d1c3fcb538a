"""Durable steps, each a pure change of the world that happens as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onceonly_lab.necessity.world import Result, Row, World

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
    return lambda world: replace(world, rows=(*(one for one in world.rows if one.key != row.key), row))


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
