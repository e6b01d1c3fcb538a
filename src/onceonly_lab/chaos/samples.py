"""Sample jobs that together pass every fault point.

They serve ``onceonly lab points --level L3``, and a first try.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly import Storage
from onceonly_lab.chaos.pipeline import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from onceonly_lab.chaos.environment import Env

ALL = ("two_sinks", "stateful", "topic")
"""Names of the jobs that use onceonly."""


def _ledger(env: Env) -> str:
    """Beside the checkpoint, where the lab can lose it."""
    return f"{env.checkpoint}.onceonly.db"


@pipeline(rows=300, batches=6)
def two_sinks(env: Env) -> Any:
    """One query into Postgres and Delta: staged, healed."""
    from onceonly import exactly_once
    from onceonly_sinks.delta import DeltaSink
    from onceonly_sinks.postgres import PostgresSink

    live = PostgresSink(env.sinks.postgres("live"), table="live")
    history = DeltaSink(env.sinks.delta("history"))
    write = exactly_once(live, history, storage=Storage(ledger=_ledger(env)))
    return env.source.writeStream.queryName("two_sinks").foreachBatch(write)


@pipeline(rows=300, batches=6)
def stateful(env: Env) -> Any:
    """Distinct rows into Postgres: a batch that is skipped has to be executed all the same."""
    from onceonly import exactly_once
    from onceonly_sinks.postgres import PostgresSink

    # One store of state: a batch is to cost what the sink costs.
    env.spark.conf.set("spark.sql.shuffle.partitions", "1")
    write = exactly_once(PostgresSink(env.sinks.postgres("seen"), table="seen"), storage=Storage(ledger=_ledger(env)))
    return env.source.dropDuplicates(["id"]).writeStream.queryName("stateful").foreachBatch(write)


@pipeline(rows=300, batches=6)
def topic(env: Env) -> Any:
    """Rows into a topic: only brokers decide first and show later."""
    from onceonly import exactly_once
    from onceonly_sinks.kafka import KafkaSink

    servers, name = env.sinks.kafka("orders")
    write = exactly_once(KafkaSink(servers, topic=name), storage=Storage(ledger=_ledger(env)))
    rows = env.source.selectExpr("CAST(id AS string) AS key", "to_json(struct(*)) AS value")
    return rows.writeStream.queryName("topic").foreachBatch(write)


@pipeline(rows=3000, batches=4, workers=2, patience=300)
def on_workers(env: Env) -> Any:
    """The same two sinks, written by executors on a cluster, which can be killed by themselves."""
    from onceonly import exactly_once
    from onceonly_sinks.delta import DeltaSink
    from onceonly_sinks.postgres import PostgresSink, PostgresTuning

    live = PostgresSink(env.sinks.postgres("live"), table="live", tuning=PostgresTuning(load="executors"))
    history = DeltaSink(env.sinks.delta("history"))
    write = exactly_once(live, history, storage=Storage(ledger=_ledger(env)))
    return env.source.repartition(4).writeStream.queryName("on_workers").foreachBatch(write)


@pipeline(rows=300, batches=3)
def plain(env: Env) -> Any:
    """An ordinary ``foreachBatch`` that appends to a Delta table: it doubles rows."""
    path = env.sinks.delta("orders")

    def append(df: DataFrame, batch: int) -> None:
        df.write.format("delta").mode("append").save(path)

    return env.source.writeStream.queryName("plain").foreachBatch(append)
