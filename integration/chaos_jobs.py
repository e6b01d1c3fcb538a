"""Jobs for the chaos tests: right ones, wrong ones, and some that cannot be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from onceonly import exactly_once
from onceonly.spark.jars import fast_options
from onceonly_lab import pipeline
from onceonly_lab.chaos.environment import Env
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink, KafkaTuning
from onceonly_sinks.postgres import PostgresSink, PostgresTuning


def build(source: DataFrame, write: Any) -> Any:
    return source.writeStream.queryName("orders").foreachBatch(write)


@pipeline(rows=60, batches=3)
def wrapped(env: Env) -> Any:
    return build(env.source, exactly_once(DeltaSink(env.sinks.delta("orders"))))


@pipeline(rows=60, batches=3)
def plain(env: Env) -> Any:
    path = env.sinks.delta("orders")
    return build(env.source, lambda df, batch: df.write.format("delta").mode("append").save(path))


@pipeline(rows=60, batches=3)
def skipping(env: Env) -> Any:
    """Writes its mark before its rows: what a crash leaves out is never written."""
    path, marks = env.sinks.delta("orders"), env.sinks.postgres("marks")

    def write(df: DataFrame, batch: int) -> None:
        with psycopg.connect(marks, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS marks (id bigint)")
            if connection.execute("SELECT 1 FROM marks WHERE id = %s", [batch]).fetchone():
                return
            connection.execute("INSERT INTO marks VALUES (%s)", [batch])
        df.write.format("delta").mode("append").save(path)

    return build(env.source, write)


@pipeline(rows=60, batches=3, order_by=("key", "seq"))
def ordered(env: Env) -> Any:
    """One topic and one table, in the order of the input."""
    topic = KafkaSink(*env.sinks.kafka("events"))
    table = PostgresSink(env.sinks.postgres("events"), table="events", tuning=PostgresTuning(load="driver"))

    def valued(df: DataFrame) -> DataFrame:
        return df.coalesce(1).select("*", f.to_json(f.struct("*")).alias("value"))

    return build(env.source, exactly_once(topic, table, transform=valued))


@pipeline(rows=60, batches=3, keeps=False, values=("total",), identity="key", row=lambda n: {"key": n % 5, "n": n})
def totals(env: Env) -> Any:
    """A sum for each key, replaced by every batch."""
    sums = env.source.groupBy("key").agg(f.sum("n").alias("total"))
    sink = DeltaSink(env.sinks.delta("totals"), key="key")
    return build(sums, exactly_once(sink)).outputMode("update")


KAFKA_CLIENTS = {name: path for name, path in fast_options(kafka=True).items() if name.endswith("extraClassPath")}


@pipeline(rows=3000, batches=4, workers=2, patience=300, options=KAFKA_CLIENTS)
def by_tasks(env: Env) -> Any:
    """Rows into a topic, sent by executors on a cluster in the transaction that the driver ends."""
    servers, name = env.sinks.kafka("orders")
    write = exactly_once(KafkaSink(servers, name, tuning=KafkaTuning(load="executors")))
    waits = "coalesce(nullif(java_method('java.lang.Thread', 'sleep', 5L), 'null'), '')"
    # Without a key, rows are sent by the task that reads them: one of them can die between two of its rows.
    return build(env.source.selectExpr(f"concat(to_json(struct(*)), {waits}) AS value"), write)


def adds_up(rows: Sequence[Mapping[str, Any]]) -> bool:
    return sum(row["amount"] for row in rows) == 0


def leg(number: int) -> dict[str, Any]:
    """Two rows after each other are the two sides of one transfer."""
    return {"id": number, "amount": number + 1 if number % 2 else -number - 2, "side": number % 2}


@pipeline(rows=60, batches=3, values=("amount",), row=leg, invariant=adds_up)
def bank(env: Env) -> Any:
    """Transfers, each in one epoch."""
    dsn = env.sinks.postgres("bank")
    sink = PostgresSink(dsn, table="bank", check_table={"balanced": "sum(amount) = 0"})
    return build(env.source, exactly_once(sink))


@pipeline(rows=60, batches=3, values=("amount",), row=leg, invariant=adds_up)
def one_side_first(env: Env) -> Any:
    """Takes the money in one transaction, and gives it in the next."""
    dsn = env.sinks.postgres("bank")

    def write(df: DataFrame, batch: int) -> None:
        for side in (0, 1):
            exactly_once_by_id(dsn, [tuple(row) for row in df.where(f"side = {side}").collect()])

    return build(env.source, write)


def exactly_once_by_id(dsn: str, rows: list[tuple[Any, ...]]) -> None:
    """No row is doubled by a replay, but whoever looks in between sees half of a transfer."""
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bank (id bigint PRIMARY KEY, amount bigint, side bigint)")
        insert = "INSERT INTO bank VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
        connection.cursor().executemany(insert, rows)


@pipeline(rows=6, batches=3)
def idle(env: Env) -> None:
    """Starts nothing."""
    env.sinks.delta("orders")


@pipeline(rows=6, batches=3)
def unseen(env: Env) -> Any:
    """Asks for no destination."""
    return build(env.source, lambda df, batch: df.count())


@pipeline(rows=6, batches=3)
def elsewhere(env: Env) -> Any:
    """Asks for one, and leaves it empty."""
    env.sinks.delta("orders")
    return build(env.source, lambda df, batch: df.count())


@pipeline(rows=6, batches=3)
def nameless(env: Env) -> Any:
    """Loses the column that tells rows apart."""
    path = env.sinks.delta("orders")
    return build(env.source.drop("id"), lambda df, batch: df.write.format("delta").mode("append").save(path))


@pipeline(rows=6, batches=3)
def broken(env: Env) -> Any:
    """Fails without any help."""

    def write(df: DataFrame, batch: int) -> None:
        raise RuntimeError("the job's own fault")

    env.sinks.delta("orders")
    return build(env.source, write)
