"""Designs that make an epoch durable, and their variants.

Each variant lists the conditions that it keeps, and the anomalies that must appear. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onceonly_lab.necessity.world import (
    TAKEN,
    Function,
    Reader,
    Result,
    Symptom,
    World,
    Write,
    append,
    commit,
    commit_second,
    decide,
    isolated,
    prepare,
    raw,
    save,
    save_position,
    save_state,
    stage,
    together,
    upsert,
)

# ---- Ways to make an epoch durable: the steps that a driver still has to take, given what it finds. Pure.
#
# Each takes the world at the start of an epoch, or after a restart in the midst of one, and what F gives this time.

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
        staged_result = world.staged
        if staged_result and staged_result.epoch == result.epoch:
            return design(world, staged_result)
        return (stage(result), *design(world, result))

    return steps


def fanned_out(world: World, result: Result) -> Steps:
    """Two sinks, each with its marker, one after the other; then state and position."""
    second = (commit_second(result),) if world.second_marker < result.epoch else ()
    return (*_unless_marked(world, result), *second, save(result))


def _unless_marked(world: World, result: Result) -> Steps:
    return (commit(result),) if world.marker < result.epoch else ()


# ---- The variants: which conditions each keeps, and what must therefore be seen. Pure data.

Shows = Mapping[Function, frozenset[Symptom]]


def _shows(always: str, state: str = "", ids: str = "") -> Shows:
    """Symptoms with every F, and what random state, and random ids besides that, add."""
    every, more, most = (frozenset(Symptom(word) for word in words.split()) for words in (always, state, ids))
    return {
        Function.DETERMINISTIC: every,
        Function.RANDOM_STATE: every | more,
        Function.RANDOM_IDS: every | more | most,
    }


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a pipeline.

    Attributes:
        name: what is done, in words.
        drops: the condition that is not kept; empty where all are.
        design: its durable steps.
        shows: what must be seen over all schedules of crashes, and nothing else, for each kind of F.
        reader: what a reader sees.
        retaken: records that a retry takes; other than :data:`TAKEN` where nothing logs an epoch's range.
    """

    name: str
    drops: str
    design: Design
    shows: Shows
    reader: Reader = raw
    retaken: int = TAKEN


_ATOMIC, _ISOLATED, _RANGE, _STORED = (
    "outputs, state and position become durable together",
    "nothing uncommitted is seen",
    "an epoch's range is logged before it is used",
    "results are stored, not computed again",
)

VARIANTS: tuple[Variant, ...] = (
    Variant("append, position saved after", _ATOMIC, saved_after, _shows("DUP TORN", "CHANGED")),
    Variant("append, position saved before", _ATOMIC, saved_before, _shows("LOSS TORN")),
    Variant("upsert row by row, position after", _ISOLATED, upserted, _shows("TORN", "CHANGED", "DUP")),
    Variant(
        "the same, state and position saved apart",
        _ATOMIC,
        upserted_saved_apart,
        _shows("WRONG TORN CHANGED", ids="DUP"),
    ),
    Variant("one transaction for outputs, state, position", "", one_transaction, _shows("")),
    Variant("two stores, output first", _ATOMIC, output_first, _shows("DUP", "CHANGED")),
    Variant("two stores, position first", _ATOMIC, position_first, _shows("LOSS")),
    Variant("sink commit with marker, state apart", _STORED, marked, _shows("", "BROKEN")),
    Variant("the same, epoch's range not logged", _RANGE, marked, _shows("LOSS TORN", "BROKEN"), retaken=3),
    Variant("prepare, decide, commit, roll forward", "", decided_first, _shows("")),
    Variant("the same without the durable decision", _STORED, undecided, _shows("", "BROKEN")),
    Variant("staged, upsert row by row", _ISOLATED, staged(upserted), _shows("TORN")),
    Variant("staged, appended row by row", _ATOMIC, staged(saved_after), _shows("DUP TORN")),
    Variant("staged, sink commit with marker", "", staged(marked), _shows("")),
    Variant("visible rows, raw reader", _ISOLATED, upserted, _shows("TORN", "CHANGED", "DUP")),
    Variant("visible rows, reader filters by epoch", "", upserted, _shows("", ids="DUP CHANGED"), isolated),
    Variant("two sinks with markers, unstaged", _STORED, fanned_out, _shows("", "DISAGREE BROKEN")),
    Variant("two sinks with markers, staged", "", staged(fanned_out), _shows("")),
)
"""In the order in which they are shown."""
