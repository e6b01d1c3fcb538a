"""Ways to make an epoch durable: the steps that a driver still has to take, given what it finds. Pure.

Each takes the world at the start of an epoch, or after a restart in the midst of one, and what F gives this time.
"""

from __future__ import annotations

from collections.abc import Callable

from onceonly_lab.necessity.world import Result, World
from onceonly_lab.necessity.writes import (
    Write,
    append,
    commit,
    commit_second,
    decide,
    prepare,
    save,
    save_position,
    save_state,
    stage,
    together,
    upsert,
)

Steps = tuple[Write, ...]

Design = Callable[[World, Result], Steps]


def saved_after(world: World, result: Result) -> Steps:
    """Rows one by one, then state and position."""
    return (*map(append, result.rows), save(result))


def saved_before(world: World, result: Result) -> Steps:
    """State and position, then rows one by one."""
    return (save(result), *map(append, result.rows))


def upserted(world: World, result: Result) -> Steps:
    """Rows one by one, each in place of its older self; then state and position."""
    return (*map(upsert, result.rows), save(result))


def upserted_saved_apart(world: World, result: Result) -> Steps:
    """As :func:`upserted`, with state and position in two transactions."""
    return (*map(upsert, result.rows), save_state(result), save_position(result))


def one_transaction(world: World, result: Result) -> Steps:
    """Outputs, state and position at once."""
    return (together(append(*result.rows), save(result)),)


def output_first(world: World, result: Result) -> Steps:
    """All rows at once in one store, then state and position in another."""
    return (append(*result.rows), save(result))


def position_first(world: World, result: Result) -> Steps:
    """State and position in one store, then all rows at once in another."""
    return (save(result), append(*result.rows))


def marked(world: World, result: Result) -> Steps:
    """Rows with a marker in one transaction, skipped where the marker has the epoch; then state and position."""
    return (*_unless_marked(world, result), save(result))


def decided_first(world: World, result: Result) -> Steps:
    """Prepare, decide, commit; a restart rolls forward what was decided and forgets what was not."""
    if world.decided == result.epoch and world.prepared:
        return marked(world, world.prepared)
    return (prepare(result), decide(result), *marked(world, result))


def undecided(world: World, result: Result) -> Steps:
    """Prepare and commit; a restart commits what is prepared, and takes its state from F run again."""
    ready = world.prepared
    if ready and ready.epoch == result.epoch:
        return (*_unless_marked(world, ready), prepare(result), save(result))
    return (prepare(result), *marked(world, result))


def staged(design: Design) -> Design:
    """A design that goes on with the results that are staged, and stages them first where none are."""

    def steps(world: World, result: Result) -> Steps:
        kept = world.staged
        if kept and kept.epoch == result.epoch:
            return design(world, kept)
        return (stage(result), *design(world, result))

    return steps


def fanned_out(world: World, result: Result) -> Steps:
    """Two sinks, each with its marker, one after the other; then state and position."""
    second = (commit_second(result),) if world.second_marker < result.epoch else ()
    return (*_unless_marked(world, result), *second, save(result))


def _unless_marked(world: World, result: Result) -> Steps:
    return (commit(result),) if world.marker < result.epoch else ()
