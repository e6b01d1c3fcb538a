"""M23, M24, M25: a program that calls twice is not told, an operator's word covers too much, or is taken down wrongly.

Beside each stands what people do in that run: it is done to the unbroken twin, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from onceonly import acceptance, calls, recovery, stops, transitions
from onceonly.acceptance import Stop
from onceonly.commands import Refuse
from onceonly.protocol import Sink
from onceonly.sources import kafka_identity
from onceonly.state import State
from onceonly_checkpoints.adoption import Adoption
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.slices import Slice
from onceonly_lab.history import RESTORE
from onceonly_lab.model.spark import Checkpoint
from onceonly_lab.model.ways import Way
from onceonly_lab.stores.driver import Driver
from onceonly_lab.stores.operator import Operator
from onceonly_lab.stores.places import DeltaPlace, Place, PostgresPlace
from onceonly_lab.stores.told import ToldRunner
from onceonly_lab.stores.world import World

P = TypeVar("P", bound=Place)


class SkipsASecondCall(Driver):
    """M23: a call for a batch that is done is taken for a replay, and passed over without a word."""

    def admits(self, call: calls.Call) -> bool:
        """What would be refused is skipped."""
        return calls.decide_call(call) is None


class TakesAWordForAll(Operator):
    """M24: while something is accepted, no rule of the opening speaks, whatever it is about."""

    def carry_out(self, way: Way, sinks: Sequence[Sink], ledger: Ledger) -> None:
        """The command's own opening asks no rule either."""
        with _any_word():
            super().carry_out(way, sinks, ledger)


@contextmanager
def _any_word() -> Generator[None]:
    def covers(accepted: Adoption | None, _: Stop) -> bool:
        return accepted is not None

    kept: Any = acceptance.covers
    changed: tuple[Any, ...] = (acceptance, recovery, transitions)  # the one that decides, and who has it by name
    for module in changed:
        module.covers = covers
    try:
        yield
    finally:
        for module in changed:
            module.covers = kept


class RemembersNoStart(ToldRunner):
    """M25: of a refused batch what the engine's log says is kept; of a checkpoint's first one that is no offset."""

    def _refuse(self, state: State, command: Refuse) -> NoReturn:
        with _remembered(state.offer.slice if state.offer else None):
            super()._refuse(state, command)


@contextmanager
def _remembered(offered: Slice | None) -> Generator[None]:
    kept = stops.remember

    def remember(ledger: Ledger, pipeline: str, fence: Fence, stop: Stop) -> None:
        kept(ledger, pipeline, fence, replace(stop, offered=offered))

    changed: Any = stops
    changed.remember = remember
    try:
        yield
    finally:
        changed.remember = kept


# ---- what people do


def move_table(world: World) -> None:
    """A table is replaced by a copy of itself, as a migration does."""
    import psycopg
    from psycopg import sql

    place = _of(world, PostgresPlace)
    table = sql.Identifier(place.table)
    with psycopg.connect(place.direct) as connection:
        connection.execute(sql.SQL("ALTER TABLE {} RENAME TO moved").format(table))
        connection.execute(sql.SQL("CREATE TABLE {} (LIKE moved INCLUDING ALL)").format(table))
        connection.execute(sql.SQL("INSERT INTO {} SELECT * FROM moved").format(table))
        connection.execute("DROP TABLE moved")
    world.scribe.fault(f"the table of {place.id} is replaced by a copy")


def back_up(world: World) -> None:
    """Copy a Delta table, as it is now."""
    place = _of(world, DeltaPlace)
    shutil.copytree(place.root, _backup(place))


def restore(world: World) -> None:
    """Put the copy in its place."""
    place = _of(world, DeltaPlace)
    shutil.rmtree(place.root)
    shutil.copytree(_backup(place), place.root)
    world.scribe.fault(RESTORE, place.id)


def move_topic(world: World) -> None:
    """The topic goes on in another cluster, and a new checkpoint begins there exactly where the old one ended."""
    old = world.checkpoints[-1]
    world.checkpoints.append(Checkpoint(old.name, f"{old.query}'", plans=100 + old.plans, begin=old.entries[-1].end))
    world.source.identity = replace(world.source.identity, identity=kafka_identity("another", {"events": "the topic"}))
    world.scribe.fault("the topic is moved to another cluster, and the checkpoint is new")


def _backup(place: DeltaPlace) -> Path:
    return place.root.with_name(f"{place.root.name}-backup")


def _of(world: World, kind: type[P]) -> P:
    return next(place for place in world.places.values() if isinstance(place, kind))
