"""M26, M27: what a destination refuses, or would lose, is not seen for what it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Batch, OutcomeUnknown, Prepared, Recorder, Sink
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_lab.mutants.wrapped import Held, Wrapped, held
from onceonly_lab.stores.places import PATIENCE, Place, PostgresPlace
from onceonly_lab.stores.world import World
from onceonly_sinks.postgres import PostgresSink, loading, schema
from onceonly_sinks.postgres.server import TableName


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
class Unseeing(loading.Target):
    """A table whose own entry in the catalogue is all that is asked."""

    def look(self, connection: Any, *, lock: bool = False) -> Any:
        """Its partitions are not."""
        return schema.inspect(connection, self.name, self.writer.sink, self.epoch_column, lock=lock)


class AsksTheParentAlone(PostgresSink):
    """M27: where the rows of a partitioned table really lie is not looked at."""

    def _aiming_at(self, name: TableName) -> loading.Target:
        aim = super()._aiming_at(name)
        return Unseeing(**{one.name: getattr(aim, one.name) for one in fields(aim)})


def careless(place: Place) -> Sink:
    """M27's sink."""
    known: Any = place
    sink: Any = AsksTheParentAlone(known.dsn, known.table, patience=PATIENCE)
    made: Sink = sink
    return made


# ---- what befalls the destination


def forbid(world: World) -> None:
    """A constraint of the table refuses the rows of the third record."""
    import psycopg
    from psycopg import sql

    for place in _tables(world):
        with psycopg.connect(place.direct) as connection:
            table = sql.Identifier(place.table)
            connection.execute(sql.SQL("ALTER TABLE {} ADD CHECK (amount < 20)").format(table))
        world.scribe.fault(f"{place.id} refuses a row from now on")


def unlogged_partition(world: World) -> None:
    """The table is made of partitions, and one of them is not logged."""
    import psycopg
    from psycopg import sql

    for place in _tables(world):
        names = {"table": sql.Identifier(place.table), "part": sql.Identifier(f"{place.table}_k0")}
        with psycopg.connect(place.direct) as connection:
            for statement in _PARTITIONED:
                connection.execute(sql.SQL(statement).format(**names))


_PARTITIONED = (
    "ALTER TABLE {table} RENAME TO plain",
    "CREATE TABLE {table} (LIKE plain) PARTITION BY LIST (key)",
    "CREATE UNLOGGED TABLE {part} PARTITION OF {table} FOR VALUES IN ('k0')",
    "DROP TABLE plain",
)


def crash(world: World) -> None:
    """Every process of the server is killed, and it starts again."""
    for place in _tables(world):
        place.server.kill()
        place.server.start()
        world.scribe.fault(f"the server of {place.id} is killed and starts again")


def _tables(world: World) -> list[PostgresPlace]:
    return [place for place in world.places.values() if isinstance(place, PostgresPlace)]
