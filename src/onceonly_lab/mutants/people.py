"""Mutants of user programs, operators and refused batches (M23-M27).

A program calls twice. An operator's decision, or a refusal by a destination, is not recognised.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from onceonly.errors import OnceOnlyError
from onceonly.machine import acceptance, callback_rules, opening, transitions
from onceonly.machine.acceptance import Stop
from onceonly.machine.commands import Refuse
from onceonly.machine.source_order import kafka_identity
from onceonly.machine.state import State
from onceonly.protocol import Batch, OutcomeUnknown, Prepared, Recorder, Sink
from onceonly.runtime import remedies
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import Adoption, Slice
from onceonly_lab.history import RESTORE
from onceonly_lab.model.spark import Checkpoint
from onceonly_lab.model.ways import Way
from onceonly_lab.mutants.wrapped import Held, Wrapped, held
from onceonly_lab.play.driver import Driver
from onceonly_lab.stores.operator import Operator
from onceonly_lab.stores.places import PATIENCE, DeltaPlace, Place, PostgresPlace
from onceonly_lab.stores.runner import RecordingRunner
from onceonly_lab.stores.world import Stores
from onceonly_sinks.postgres import PostgresSink, PostgresTuning, load, schema
from onceonly_sinks.postgres.server import TableName

# ---- M23, M24, M25: a program that calls twice is not told, an operator's word covers too much, or is taken down
# wrongly.
#
# Beside each stands what people do in that run: it is done to the unbroken twin, too.

P = TypeVar("P", bound=Place)


class SkipsASecondCall(Driver):
    """M23: a call for a batch that is done is taken for a replay, and passed over without a word."""

    def admits(self, call: callback_rules.Call) -> bool:
        """What would be refused is skipped."""
        return callback_rules.decide_call(call) is None


class TakesAWordForAll(Operator):
    """M24: while something is accepted, no rule of the opening speaks, whatever it is about."""

    def carry_out(self, remedy: Way, sinks: Sequence[Sink], ledger: Ledger) -> None:
        """The command's own opening asks no rule either."""
        with _any_word():
            super().carry_out(remedy, sinks, ledger)


@contextmanager
def _any_word() -> Generator[None]:
    def covers(accepted: Adoption | None, _: Stop) -> bool:
        return accepted is not None

    original: Any = acceptance.covers
    changed: tuple[Any, ...] = (acceptance, opening, transitions)  # the one that decides, and who has it by name
    for module in changed:
        module.covers = covers
    try:
        yield
    finally:
        for module in changed:
            module.covers = original


class RemembersNoStart(RecordingRunner):
    """M25: of a refused batch what the engine's log says is kept; of a checkpoint's first one that is no offset."""

    def _refuse(self, state: State, command: Refuse) -> NoReturn:
        with _remembered(state.job.offer.slice if state.job.offer else None):
            super()._refuse(state, command)


@contextmanager
def _remembered(offered: Slice | None) -> Generator[None]:
    original = remedies.remember

    def remember(ledger: Ledger, pipeline: str, fence: Fence, stop: Stop) -> None:
        original(ledger, pipeline, fence, replace(stop, offered=offered))

    changed: Any = remedies
    changed.remember = remember
    try:
        yield
    finally:
        changed.remember = original


# ---- what people do


def move_table(world: Stores) -> None:
    """A table is replaced by a copy of itself, as a migration does."""
    import psycopg
    from psycopg import sql

    store = _of(world, PostgresPlace)
    table = sql.Identifier(store.table)
    with psycopg.connect(store.direct) as connection:
        connection.execute(sql.SQL("ALTER TABLE {} RENAME TO moved").format(table))
        connection.execute(sql.SQL("CREATE TABLE {} (LIKE moved INCLUDING ALL)").format(table))
        connection.execute(sql.SQL("INSERT INTO {} SELECT * FROM moved").format(table))
        connection.execute("DROP TABLE moved")
    world.recorder.fault(f"the table of {store.id} is replaced by a copy")


def back_up(world: Stores) -> None:
    """Copy a Delta table, as it is now."""
    store = _of(world, DeltaPlace)
    shutil.copytree(store.root, _backup(store))


def restore(world: Stores) -> None:
    """Put the copy in its place."""
    store = _of(world, DeltaPlace)
    shutil.rmtree(store.root)
    shutil.copytree(_backup(store), store.root)
    world.recorder.fault(RESTORE, store.id)


def move_topic(world: Stores) -> None:
    """The topic goes on in another cluster, and a new checkpoint begins there exactly where the old one ended."""
    old = world.checkpoints[-1]
    world.checkpoints.append(Checkpoint(old.name, f"{old.query}'", plans=100 + old.plans, begin=old.entries[-1].end))
    world.source.identity = replace(world.source.identity, identity=kafka_identity("another", {"events": "the topic"}))
    world.recorder.fault("the topic is moved to another cluster, and the checkpoint is new")


def _backup(store: DeltaPlace) -> Path:
    return store.root.with_name(f"{store.root.name}-backup")


def _of(world: Stores, kind: type[P]) -> P:
    return next(store for store in world.places.values() if isinstance(store, kind))


# ---- M26, M27: what a destination refuses, or would lose, is not seen for what it is.


class TakesARefusalForSilence(Wrapped):
    """M26: an error of the server is an error; whether it was an answer is not asked."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """What it says of a row is kept until the commit."""
        try:
            return super().prepare(batch, epoch)
        except OnceOnlyError:
            return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """An error on the way is filed as an outcome that nobody knows."""
        if isinstance(prepared, Held):
            raise OutcomeUnknown(self.id, "the server reported an error")
        return super().commit(prepared, marker)


@dataclass(frozen=True, slots=True)
class Unseeing(load.Target):
    """A table whose own entry in the catalogue is all that is asked."""

    def look(self, connection: Any, *, lock: bool = False) -> Any:
        """Its partitions are not."""
        return schema.inspect(connection, self.name, self.writer.sink, self.epoch_column, lock=lock)


class AsksTheParentAlone(PostgresSink):
    """M27: where the rows of a partitioned table really lie is not looked at."""

    def _aiming_at(self, name: TableName) -> load.Target:
        aim = super()._aiming_at(name)
        return Unseeing(**{field.name: getattr(aim, field.name) for field in fields(aim)})


def careless(store: Place) -> Sink:
    """M27's sink."""
    postgres_store: Any = store
    sink: Any = AsksTheParentAlone(
        postgres_store.dsn, postgres_store.table, tuning=PostgresTuning(commit_timeout=PATIENCE)
    )
    made: Sink = sink
    return made


# ---- what befalls the destination


def forbid(world: Stores) -> None:
    """A constraint of the table refuses the rows of the third record."""
    import psycopg
    from psycopg import sql

    for store in _tables(world):
        with psycopg.connect(store.direct) as connection:
            table = sql.Identifier(store.table)
            connection.execute(sql.SQL("ALTER TABLE {} ADD CHECK (amount < 20)").format(table))
        world.recorder.fault(f"{store.id} refuses a row from now on")


def unlogged_partition(world: Stores) -> None:
    """The table is made of partitions, and one of them is not logged."""
    import psycopg
    from psycopg import sql

    for store in _tables(world):
        names = {"table": sql.Identifier(store.table), "part": sql.Identifier(f"{store.table}_k0")}
        with psycopg.connect(store.direct) as connection:
            for statement in _PARTITIONED:
                connection.execute(sql.SQL(statement).format(**names))


_PARTITIONED = (
    "ALTER TABLE {table} RENAME TO plain",
    "CREATE TABLE {table} (LIKE plain) PARTITION BY LIST (key)",
    "CREATE UNLOGGED TABLE {part} PARTITION OF {table} FOR VALUES IN ('k0')",
    "DROP TABLE plain",
)


def crash(world: Stores) -> None:
    """Every process of the server is killed, and it starts again."""
    for store in _tables(world):
        store.server.kill()
        store.server.start()
        world.recorder.fault(f"the server of {store.id} is killed and starts again")


def _tables(world: Stores) -> list[PostgresPlace]:
    return [store for store in world.places.values() if isinstance(store, PostgresPlace)]
