"""Staging tables that executors fill, one unlogged table per attempt.

Every row is tagged with the task attempt that wrote it. Spark may run a task twice, and an attempt that lost may have
written all its rows. So only the pairs (partition, attempt) in Spark's answers are taken over. A crash of the server
empties an unlogged table: the rows are counted again before the commit.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.protocol import Attempt
from onceonly_sinks.postgres import errors
from onceonly_sinks.postgres.copy import Encoder, copy_in, statement
from onceonly_sinks.postgres.lanes import ValueRefused
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import Server, quote
from onceonly_sinks.postgres.type_mapping import TypeMapping

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

    from onceonly_sinks.postgres.upsert import Waiting

# What a crash could take from an unflushed commit, it takes from an unlogged table anyhow.
_SETTINGS = "SELECT set_config('synchronous_commit', 'off', true), set_config('statement_timeout', '0', true)"

PARTITION, ATTEMPT = "_once_partition", "_once_attempt"

BATCH = "onceonly_batch"
"""Name of the rows in the transaction that commits them."""


def new_name(tag: str, generation: int, epoch: int) -> str:
    """A name that no earlier attempt had, at most 63 bytes."""
    return f"stage_{tag}_{generation}_{epoch}_{secrets.token_hex(3)}"


def generation_of(name: str, tag: str) -> int | None:
    """Generation in the name of one of our staging tables, or ``None`` if it is none."""
    parts = name.removeprefix(f"stage_{tag}_").split("_")
    ours = name.startswith(f"stage_{tag}_") and len(parts) == 3 and parts[0].isdigit()
    return int(parts[0]) if ours else None


def create(connection: Connection, name: str, plan: TypeMapping) -> None:
    """Create a staging table with the columns of the plan."""
    lines = f"{plan.ddl}, {PARTITION} integer NOT NULL, {ATTEMPT} bigint NOT NULL"
    # Logged, 1M rows take 7.5 s and not 7.1, and the log is shipped to every standby; what a crash of the server takes
    # from here is missed when the rows are counted.
    connection.exec_driver_sql(f"CREATE UNLOGGED TABLE onceonly.{quote(name)} ({lines})", {})


def create_temporary(connection: Connection, plan: TypeMapping, name: str = BATCH) -> str:
    """Create a table of the open transaction with the columns of the plan, and return its quoted name."""
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {name} ({plan.ddl}) ON COMMIT DROP", {})
    return f"pg_temp.{name}"


def drop(connection: Connection, name: str) -> None:
    """Drop a staging table."""
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS onceonly.{quote(name)}", {})


def names(connection: Connection) -> list[str]:
    """Every staging table of every sink."""
    query = (
        "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = 'onceonly' AND c.relkind = 'r' AND starts_with(c.relname, 'stage_')"
    )
    return list(connection.exec_driver_sql(query, {}).scalars())


@dataclass(frozen=True, slots=True)
class StageTask:
    """Writes one partition to the staging table, on an executor.

    Answers ``partition``, ``attempt``, ``rows``, and ``refused`` if the table cannot hold a value. ``application``
    names the session, so that a newer driver can end it.
    """

    sink: str
    server: Server
    application: str
    name: str
    plan: TypeMapping
    address: str

    def __call__(self, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        """Write the partition in one transaction.

        Raises E501, E502, E507 and the like: Spark may try the task again.
        """
        answer: dict[str, Any] = {"partition": attempt.partition, "attempt": attempt.attempt, "rows": 0}
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return answer
        try:
            return {**answer, "rows": self._write(attempt, itertools.chain([first], filled))}
        except ValueRefused as error:
            for _ in filled:
                pass  # the contract: a task consumes its partition
            return {**answer, "refused": [error.column, error.spark, error.reason]}

    def _write(self, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> int:
        import pyarrow as pa

        tags = {PARTITION: pa.scalar(attempt.partition, pa.int32()), ATTEMPT: pa.scalar(attempt.attempt, pa.int64())}
        copy = statement(f"onceonly.{quote(self.name)}", [*self.plan.columns, *tags])
        with (
            errors.refusing(errors.Context(self.sink, self.address, types=self.plan.types)),
            self.server.connect(application_name=self.application) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(_SETTINGS)
            return copy_in(cursor, copy, Encoder(self.plan, tags, spoken(attempt.partition)), batches)


def spoken(partition: int) -> str:
    """Name of a partition of the batch in messages, unlike Kafka's partitions."""
    return f"Spark partition {partition}"


def take(sink: str, answers: Sequence[Mapping[str, Any]]) -> int:
    """Count the rows of the winning attempts. Raises E503: the table cannot hold a value."""
    for answer in answers:
        if "refused" in answer:
            column, spark, reason = answer["refused"]
            raise refused(sink, ValueRefused(column, spark, reason))
    return sum(int(answer["rows"]) for answer in answers)


def refused(sink: str, error: ValueRefused) -> Exception:
    """The error for a value that the table cannot hold."""
    next_ = "change it in the query, e.g. with transform=, or the column's type in the table"
    return refuse("E503", sink=sink, column=f"{error.column} ({error.spark})", reason=error.reason, next=next_)


def waiting(name: str, plan: TypeMapping, answers: Sequence[Mapping[str, Any]]) -> Waiting:
    """The rows of the winning attempts."""
    from onceonly_sinks.postgres.upsert import Waiting

    won = [answer for answer in answers if answer["rows"]]
    # A task that died after its COPY had committed left 50,000 rows for 40,000. The partition alone tells nothing: it
    # may hold other rows at the next attempt.
    pairs = "SELECT * FROM unnest(%(partitions)s::int[], %(attempts)s::bigint[])"
    parameters = {"partitions": [a["partition"] for a in won], "attempts": [a["attempt"] for a in won]}
    winners = f"(s.{PARTITION}, s.{ATTEMPT}) IN ({pairs})"
    return Waiting(f"onceonly.{quote(name)}", winners, parameters, plan.stored)


def temporary(relation: str, plan: TypeMapping) -> Waiting:
    """All rows of the transaction's own table."""
    from onceonly_sinks.postgres.upsert import Waiting

    return Waiting(relation, "true", {}, plan.stored)


def same_shape(old_table: Table, now: Table) -> bool:
    """Whether the table is unchanged since the rows were prepared, or was made since as they planned it."""
    if old_table.oid:
        return (old_table.oid, old_table.columns, old_table.epoch_column) == (now.oid, now.columns, now.epoch_column)
    return old_table.keys <= now.keys and (_forms(old_table), old_table.epoch_column) == (_forms(now), now.epoch_column)


def _forms(table: Table) -> list[tuple[object, ...]]:
    """Facts that a binary COPY depends on. Only the catalogue knows a type's spelling."""
    return [(column.name, column.type, column.modifier, column.array, column.required) for column in table.columns]
