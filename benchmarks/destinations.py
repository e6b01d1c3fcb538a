"""The ways of writing a stream: how a query gets its destination, what that then holds, and how it is taken away."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

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


def _copy(testbed: TestBed, writer: Any, name: str) -> Any:
    """As a user would who has found JDBC slow: each task sends its rows over a connection of its own."""
    url, dsn = testbed.jdbc_url, testbed.dsn

    def send(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        from pyarrow import csv

        into = f'COPY "{name}" FROM STDIN (FORMAT csv)'.encode()
        with psycopg.connect(dsn) as connection, connection.cursor().copy(into) as copy:
            for batch in batches:
                text = io.BytesIO()
                csv.write_csv(batch, text, csv.WriteOptions(include_header=False))
                copy.write(text.getvalue())
        return iter(())

    def write(df: DataFrame, batch_id: int) -> None:
        if not batch_id:
            df.limit(0).write.jdbc(url, name, mode="append", properties=_JDBC)
        df.mapInArrow(send, "sent int").write.format("noop").mode("append").save()

    return writer.foreachBatch(write)


def _write_deltalake(testbed: TestBed, writer: Any, name: str) -> Any:
    path = str(testbed.tables / name)

    def write(df: DataFrame, batch_id: int) -> None:
        from deltalake import write_deltalake

        write_deltalake(path, df.toArrow(), mode="append")

    return writer.foreachBatch(write)


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


_TUNED = {"kafka.batch.size": "524288", "kafka.linger.ms": "20", "kafka.buffer.memory": "67108864"}


def _spark_kafka(testbed: TestBed, writer: Any, name: str, **options: str) -> Any:
    topics.make(testbed.servers, name)
    return writer.format("kafka").options(**_to_topic(testbed, name), **options)


def _to_topic(testbed: TestBed, name: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": testbed.servers, "topic": name}


def _kafka(testbed: TestBed, writer: Any, name: str, *, load: Any = "auto") -> Any:
    from onceonly_sinks.kafka import KafkaSink, KafkaTuning

    topics.make(testbed.servers, name)
    return writer.foreachBatch(exactly_once(KafkaSink(testbed.servers, topic=name, tuning=KafkaTuning(load=load))))


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


def _three_writers(testbed: TestBed, writer: Any, name: str, *, threads: int) -> Any:
    topics.make(testbed.servers, name)

    def write(df: DataFrame, batch_id: int) -> None:
        writes: list[Callable[[], None]] = [
            lambda: df.write.format("delta").mode("append").save(str(testbed.tables / name)),
            lambda: df.write.jdbc(_rewriting(testbed), name, mode="append", properties=_JDBC),
            lambda: df.write.format("kafka").options(**_to_topic(testbed, name), **_TUNED).save(),
        ]
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(one) for one in writes]:
                done.result()

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
    bars.COPY: _into_postgres(_copy),
    bars.WRITE_DELTALAKE: _into_delta(_write_deltalake),
    bars.SPARK_KAFKA: _into_kafka(_spark_kafka),
    bars.SPARK_KAFKA_TUNED: _into_kafka(lambda testbed, writer, name: _spark_kafka(testbed, writer, name, **_TUNED)),
    bars.KAFKA: _into_kafka(_kafka),
    bars.KAFKA_DRIVER: _into_kafka(partial(_kafka, load="driver")),
    bars.STAGED: _into_delta(_staged),
    bars.TWICE: Variant(_twice, _twice_count, _twice_remove),
    bars.THREE_WRITERS: Variant(partial(_three_writers, threads=1), _together_count, _together_remove),
    bars.THREE_THREADS: Variant(partial(_three_writers, threads=3), _together_count, _together_remove),
    bars.TOGETHER: Variant(_together, _together_count, _together_remove),
}
"""Every way of writing, by the name that the table shows."""
