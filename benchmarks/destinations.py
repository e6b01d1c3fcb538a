"""The ways of writing a stream: how a query gets its destination, what that then holds, and how it is taken away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import bars, topics
from onceonly import Storage, exactly_once
from onceonly_lab.reading import delta_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    Attach = Callable[["TestBed", DataStreamWriter, str], DataStreamWriter]


@dataclass(frozen=True, slots=True)
class TestBed:
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
    count: Callable[[TestBed, str], Counted | None]
    remove: Callable[[TestBed, str], None] = field(default=lambda testbed, name: None)


# ---- what they hold


def _postgres_count(testbed: TestBed, name: str) -> Counted:
    with psycopg.connect(testbed.dsn) as connection:
        row = connection.execute(f'SELECT count(*), coalesce(sum(id), 0)::bigint FROM "{name}"').fetchone()
    assert row is not None
    return Counted(*row)


def _postgres_remove(testbed: TestBed, name: str) -> None:
    """Drop the table and flush: the next run must not pay for this one's dirty pages."""
    with psycopg.connect(testbed.dsn, autocommit=True) as connection:
        connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        connection.execute("CHECKPOINT")


def _delta_count(testbed: TestBed, name: str) -> Counted:
    return _delta_rows(testbed.tables / name)


def _delta_rows(path: Path) -> Counted:
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    ids = delta_rows(DeltaTable(str(path)), ["id"]).column("id")
    return Counted(len(ids), pc.sum(ids).as_py() or 0)


def _delta_remove(testbed: TestBed, name: str) -> None:
    shutil.rmtree(testbed.tables / name, ignore_errors=True)


def _kafka_count(testbed: TestBed, name: str) -> Counted:
    return Counted(*topics.count(testbed.servers, name))


def _kafka_remove(testbed: TestBed, name: str) -> None:
    topics.remove(testbed.servers, name)


def _twice_count(testbed: TestBed, name: str) -> Counted:
    return _alike(_delta_rows(path) for path in _pair(testbed, name))


def _twice_remove(testbed: TestBed, name: str) -> None:
    for path in _pair(testbed, name):
        shutil.rmtree(path, ignore_errors=True)


def _pair(testbed: TestBed, name: str) -> tuple[Path, Path]:
    return testbed.tables / f"{name}_1", testbed.tables / f"{name}_2"


def _together_count(testbed: TestBed, name: str) -> Counted:
    return _alike(count(testbed, name) for count in (_postgres_count, _kafka_count, _delta_count))


def _together_remove(testbed: TestBed, name: str) -> None:
    for remove in (_postgres_remove, _kafka_remove, _delta_remove):
        remove(testbed, name)


def _alike(counts: Iterable[Counted]) -> Counted:
    """What every target holds.

    Raises:
        AssertionError: they differ.
    """
    first, *others = counts
    assert all(other == first for other in others), (first, others)
    return first


def _nothing(testbed: TestBed, name: str) -> None:
    return None


# ---- who writes


def _noop(testbed: TestBed, writer: Any, name: str) -> Any:
    def write(df: DataFrame, batch_id: int) -> None:
        df.write.format("noop").mode("append").save()

    return writer.foreachBatch(write)


def _spark_delta(testbed: TestBed, writer: Any, name: str) -> Any:
    return writer.format("delta").option("path", str(testbed.tables / name))


_JDBC = {"driver": "org.postgresql.Driver", "batchsize": "10000"}


def _rewriting(testbed: TestBed) -> str:
    return f"{testbed.jdbc_url}&reWriteBatchedInserts=true"


def _jdbc(testbed: TestBed, writer: Any, name: str, *, rewrite: bool) -> Any:
    url = _rewriting(testbed) if rewrite else testbed.jdbc_url

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.jdbc(url, name, mode="append", properties=_JDBC)

    return writer.foreachBatch(write)


def _postgres(testbed: TestBed, writer: Any, name: str, *, via: Any) -> Any:
    from onceonly_sinks.postgres import PostgresSink, PostgresTuning

    return writer.foreachBatch(exactly_once(PostgresSink(testbed.dsn, name, tuning=PostgresTuning(load=via))))


def _delta(testbed: TestBed, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink

    return writer.foreachBatch(exactly_once(DeltaSink(str(testbed.tables / name))))


def _staged(testbed: TestBed, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink

    stage = testbed.root / name / "staging"
    return writer.foreachBatch(exactly_once(DeltaSink(str(testbed.tables / name)), storage=Storage(staging=str(stage))))


def _spark_kafka(testbed: TestBed, writer: Any, name: str) -> Any:
    topics.make(testbed.servers, name)
    return writer.format("kafka").option("kafka.bootstrap.servers", testbed.servers).option("topic", name)


def _kafka(testbed: TestBed, writer: Any, name: str) -> Any:
    from onceonly_sinks.kafka import KafkaSink

    topics.make(testbed.servers, name)
    return writer.foreachBatch(exactly_once(KafkaSink(testbed.servers, topic=name)))


def _twice(testbed: TestBed, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink

    first, second = _pair(testbed, name)
    return writer.foreachBatch(exactly_once(DeltaSink(str(first)), DeltaSink(str(second))))


def _together(testbed: TestBed, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink
    from onceonly_sinks.kafka import KafkaSink
    from onceonly_sinks.postgres import PostgresSink

    topics.make(testbed.servers, name)
    postgres, kafka = PostgresSink(testbed.dsn, name), KafkaSink(testbed.servers, topic=name)
    return writer.foreachBatch(exactly_once(postgres, kafka, DeltaSink(str(testbed.tables / name))))


def _three_writers(testbed: TestBed, writer: Any, name: str) -> Any:
    topics.make(testbed.servers, name)
    kafka = {"kafka.bootstrap.servers": testbed.servers, "topic": name}

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.format("delta").mode("append").save(str(testbed.tables / name))
        df.write.jdbc(_rewriting(testbed), name, mode="append", properties=_JDBC)
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
    bars.JDBC: _into_postgres(lambda testbed, writer, name: _jdbc(testbed, writer, name, rewrite=False)),
    bars.JDBC_REWRITE: _into_postgres(lambda testbed, writer, name: _jdbc(testbed, writer, name, rewrite=True)),
    bars.DRIVER: _into_postgres(lambda testbed, writer, name: _postgres(testbed, writer, name, via="driver")),
    bars.EXECUTORS: _into_postgres(lambda testbed, writer, name: _postgres(testbed, writer, name, via="executors")),
    bars.AUTO: _into_postgres(lambda testbed, writer, name: _postgres(testbed, writer, name, via="auto")),
    bars.SPARK_KAFKA: _into_kafka(_spark_kafka),
    bars.KAFKA: _into_kafka(_kafka),
    bars.STAGED: _into_delta(_staged),
    bars.TWICE: Variant(_twice, _twice_count, _twice_remove),
    bars.THREE_WRITERS: Variant(_three_writers, _together_count, _together_remove),
    bars.TOGETHER: Variant(_together, _together_count, _together_remove),
}
"""Every way of writing, by the name that the table shows."""
