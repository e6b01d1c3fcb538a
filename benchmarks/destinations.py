"""The ways of writing a stream: how a query gets its destination, what that then holds, and how it is taken away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import bars, topics
from onceonly import exactly_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    Attach = Callable[["Ground", DataStreamWriter, str], DataStreamWriter]


@dataclass(frozen=True, slots=True)
class Ground:
    """What all runs share.

    Attributes:
        spark: the session.
        dsn: of the Postgres server.
        jdbc_url: of the same.
        servers: of Kafka; empty where no variant needs it.
        root: a directory of our own.
    """

    spark: SparkSession
    dsn: str
    jdbc_url: str
    servers: str
    root: Path

    @property
    def addresses(self) -> tuple[str, str, str]:
        """Of the servers, for a process of its own."""
        return self.dsn, self.jdbc_url, self.servers

    @property
    def tables(self) -> Path:
        """Parent of the Delta tables."""
        return self.root / "tables"


@dataclass(slots=True)
class Counted:
    """What a target holds."""

    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of writing a stream.

    Attributes:
        attach: gives a writer its destination; the text names the run.
        count: what the destination holds; ``None`` where nothing is kept.
        remove: takes it away.
    """

    attach: Attach
    count: Callable[[Ground, str], Counted | None]
    remove: Callable[[Ground, str], None] = field(default=lambda ground, name: None)


# ---- what they hold


def _postgres_count(ground: Ground, name: str) -> Counted:
    with psycopg.connect(ground.dsn) as connection:
        row = connection.execute(f'SELECT count(*), coalesce(sum(id), 0)::bigint FROM "{name}"').fetchone()
    assert row is not None
    return Counted(*row)


def _postgres_remove(ground: Ground, name: str) -> None:
    """Drop the table and flush: the next run must not pay for this one's dirty pages."""
    with psycopg.connect(ground.dsn, autocommit=True) as connection:
        connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        connection.execute("CHECKPOINT")


def _delta_count(ground: Ground, name: str) -> Counted:
    return _delta_rows(ground.tables / name)


def _delta_rows(path: Path) -> Counted:
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    ids = DeltaTable(str(path)).to_pyarrow_table(columns=["id"]).column("id")
    return Counted(len(ids), pc.sum(ids).as_py() or 0)


def _delta_remove(ground: Ground, name: str) -> None:
    shutil.rmtree(ground.tables / name, ignore_errors=True)


def _kafka_count(ground: Ground, name: str) -> Counted:
    return Counted(*topics.count(ground.servers, name))


def _kafka_remove(ground: Ground, name: str) -> None:
    topics.remove(ground.servers, name)


def _twice_count(ground: Ground, name: str) -> Counted:
    return _alike(_delta_rows(path) for path in _pair(ground, name))


def _twice_remove(ground: Ground, name: str) -> None:
    for path in _pair(ground, name):
        shutil.rmtree(path, ignore_errors=True)


def _pair(ground: Ground, name: str) -> tuple[Path, Path]:
    return ground.tables / f"{name}_1", ground.tables / f"{name}_2"


def _together_count(ground: Ground, name: str) -> Counted:
    return _alike(count(ground, name) for count in (_postgres_count, _kafka_count, _delta_count))


def _together_remove(ground: Ground, name: str) -> None:
    for remove in (_postgres_remove, _kafka_remove, _delta_remove):
        remove(ground, name)


def _alike(counts: Iterable[Counted]) -> Counted:
    """What every target holds.

    Raises:
        AssertionError: they differ.
    """
    first, *others = counts
    assert all(other == first for other in others), (first, others)
    return first


def _nothing(ground: Ground, name: str) -> None:
    return None


# ---- who writes


def _noop(ground: Ground, writer: Any, name: str) -> Any:
    def write(df: DataFrame, batch_id: int) -> None:
        df.write.format("noop").mode("append").save()

    return writer.foreachBatch(write)


def _spark_delta(ground: Ground, writer: Any, name: str) -> Any:
    return writer.format("delta").option("path", str(ground.tables / name))


_JDBC = {"driver": "org.postgresql.Driver", "batchsize": "10000"}


def _rewriting(ground: Ground) -> str:
    return f"{ground.jdbc_url}&reWriteBatchedInserts=true"


def _jdbc(ground: Ground, writer: Any, name: str, *, rewrite: bool) -> Any:
    url = _rewriting(ground) if rewrite else ground.jdbc_url

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.jdbc(url, name, mode="append", properties=_JDBC)

    return writer.foreachBatch(write)


def _postgres(ground: Ground, writer: Any, name: str, *, via: Any) -> Any:
    from onceonly_sinks.postgres import PostgresSink

    return writer.foreachBatch(exactly_once(PostgresSink(ground.dsn, name, via=via)))


def _delta(ground: Ground, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink

    return writer.foreachBatch(exactly_once(DeltaSink(str(ground.tables / name))))


def _staged(ground: Ground, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink

    stage = ground.root / name / "staging"
    return writer.foreachBatch(exactly_once(DeltaSink(str(ground.tables / name)), staging=str(stage)))


def _spark_kafka(ground: Ground, writer: Any, name: str) -> Any:
    topics.make(ground.servers, name)
    return writer.format("kafka").option("kafka.bootstrap.servers", ground.servers).option("topic", name)


def _kafka(ground: Ground, writer: Any, name: str) -> Any:
    from onceonly_sinks.kafka import KafkaSink

    topics.make(ground.servers, name)
    return writer.foreachBatch(exactly_once(KafkaSink(ground.servers, topic=name)))


def _twice(ground: Ground, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink

    first, second = _pair(ground, name)
    return writer.foreachBatch(exactly_once(DeltaSink(str(first)), DeltaSink(str(second))))


def _together(ground: Ground, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink
    from onceonly_sinks.kafka import KafkaSink
    from onceonly_sinks.postgres import PostgresSink

    topics.make(ground.servers, name)
    postgres, kafka = PostgresSink(ground.dsn, name), KafkaSink(ground.servers, topic=name)
    return writer.foreachBatch(exactly_once(postgres, kafka, DeltaSink(str(ground.tables / name))))


def _three_writers(ground: Ground, writer: Any, name: str) -> Any:
    topics.make(ground.servers, name)
    kafka = {"kafka.bootstrap.servers": ground.servers, "topic": name}

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.format("delta").mode("append").save(str(ground.tables / name))
        df.write.jdbc(_rewriting(ground), name, mode="append", properties=_JDBC)
        df.write.format("kafka").options(**kafka).save()

    return writer.foreachBatch(write)


def _into_postgres(attach: Attach) -> Variant:
    return Variant(attach, _postgres_count, _postgres_remove)


def _into_delta(attach: Attach) -> Variant:
    return Variant(attach, _delta_count, _delta_remove)


def _into_kafka(attach: Attach) -> Variant:
    return Variant(attach, _kafka_count, _kafka_remove)


VARIANTS: dict[str, Variant] = {
    bars.NOOP: Variant(_noop, _nothing),
    bars.SPARK_DELTA: _into_delta(_spark_delta),
    bars.DELTA: _into_delta(_delta),
    bars.JDBC: _into_postgres(lambda ground, writer, name: _jdbc(ground, writer, name, rewrite=False)),
    bars.JDBC_REWRITE: _into_postgres(lambda ground, writer, name: _jdbc(ground, writer, name, rewrite=True)),
    bars.DRIVER: _into_postgres(lambda ground, writer, name: _postgres(ground, writer, name, via="driver")),
    bars.EXECUTORS: _into_postgres(lambda ground, writer, name: _postgres(ground, writer, name, via="executors")),
    bars.AUTO: _into_postgres(lambda ground, writer, name: _postgres(ground, writer, name, via="auto")),
    bars.SPARK_KAFKA: _into_kafka(_spark_kafka),
    bars.KAFKA: _into_kafka(_kafka),
    bars.STAGED: _into_delta(_staged),
    bars.TWICE: Variant(_twice, _twice_count, _twice_remove),
    bars.THREE_WRITERS: Variant(_three_writers, _together_count, _together_remove),
    bars.TOGETHER: Variant(_together, _together_count, _together_remove),
}
"""Every way of writing, by the name that the table shows."""
