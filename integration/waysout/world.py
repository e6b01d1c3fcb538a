"""A pipeline with real input, checkpoint, sinks and ledger, which can be kept as it is and put back in its place."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from integration.processes import until
from integration.servers import KafkaAddress
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.kafka_client import put

from onceonly import Recovery, Storage, exactly_once
from onceonly.api import run_state
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink

CUT = 5
"""Rows per batch: a file, or as many offsets."""

WRITTEN = 4
"""Epochs that the sinks hold before anything goes wrong; two more batches wait in the source."""

STATELESS = tuple(range(6 * CUT))
STATEFUL = (*range(WRITTEN * CUT), 0, *range(WRITTEN * CUT, 6 * CUT - 1))
"""The input in order. A query with state has seen key 0 before, and drops it when it comes again."""

NAME = "orders"
_STATE_GONE = "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"


class Database:
    """A Postgres table ``orders`` in a database of its own.

    Args:
        dsn: of the database.
        id: of the sink.
    """

    def __init__(self, dsn: str, id: str = "postgres:orders") -> None:
        parts = urlsplit(dsn)
        self.dsn, self.id, self._name = dsn, id, parts.path[1:]
        self._server = parts._replace(path="/postgres").geturl()

    def sink(self) -> PostgresSink:
        return PostgresSink(self.dsn, table="orders", id=self.id)

    def rows(self) -> list[int]:
        with psycopg.connect(self.dsn) as connection:
            [(there,)] = connection.execute("select to_regclass('orders') is not null").fetchall()
            return [row[0] for row in connection.execute("select id from orders").fetchall()] if there else []

    def replace(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute("drop table orders")
            connection.execute("create table orders (id bigint)")

    def dump(self, epoch: int) -> None:
        """What a restored dump leaves: a table of this name with the rows up to an epoch, under an id of its own."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute(f"create table again as select * from orders where _epoch <= {epoch:d}")
            connection.execute("drop table orders")
            connection.execute("alter table again rename to orders")

    def keep_rows(self, epoch: int) -> None:
        """Only the rows up to an epoch, in the table that is there."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute(f"delete from orders where _epoch > {epoch:d}")

    def keep(self, label: str) -> None:
        self._says("drop database if exists {} with (force)", f"{self._name}_{label}")
        self._copy(self._name, f"{self._name}_{label}")

    def put_back(self, label: str) -> None:
        self._says("drop database if exists {} with (force)", self._name)
        self._copy(f"{self._name}_{label}", self._name)

    def _copy(self, source: str, target: str) -> None:
        others = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s"
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(others, (source,))
        self._says("create database {} template {}", target, source)

    def _says(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


class Table:
    """A Delta table.

    Args:
        path: its place.
        kept: where copies of it go.
    """

    id = "delta:table"

    def __init__(self, path: Path, kept: Path) -> None:
        self.path, self._kept = path, kept

    def sink(self) -> DeltaSink:
        return DeltaSink(str(self.path), id=self.id)

    def rows(self) -> list[int]:
        """Of files that are there: what a RESTORE brought back of files that were vacuumed, no reader has."""
        files = [path for path in DeltaTable(str(self.path)).file_uris() if Path(path).exists()]
        return [number for path in files for number in pq.read_table(path, columns=["id"])["id"].to_pylist()]

    def replace(self) -> None:
        schema = pa.schema([pa.field("id", pa.int64())])
        shutil.rmtree(self.path)
        DeltaTable.create(str(self.path), schema)

    def restore(self, versions: int, *, moment: bool = False) -> None:
        table = DeltaTable(str(self.path))
        past = {entry["version"]: entry["timestamp"] for entry in table.history()}
        at = table.version() - versions
        table.restore(datetime.fromtimestamp(past[at] / 1000, UTC) if moment else at)

    def restore_vacuumed(self) -> None:
        """RESTORE to where the rows were in files of their own, after these were compacted and vacuumed."""
        table = DeltaTable(str(self.path))
        before = table.version()
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        table.restore(before, ignore_missing_files=True)

    def keep(self, label: str) -> None:
        again(self.path, self._kept / f"table-{label}")

    def put_back(self, label: str) -> None:
        again(self._kept / f"table-{label}", self.path)


def again(source: Path, target: Path) -> None:
    """Copy a file or a tree to where it may be already."""
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


class Files:
    """A directory of files, a batch each."""

    kind = "files"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self.folder, self._count = spark, folder, 0

    def receive(self, ids: Sequence[int]) -> None:
        self.folder.mkdir(exist_ok=True)
        for first in range(0, len(ids), CUT):
            path = self.folder / f"part-{self._count:04d}.parquet"
            pq.write_table(pa.table({"id": list(ids[first : first + CUT])}), path)
            os.utime(path, (1_700_000_000 + self._count, 1_700_000_000 + self._count))
            self._count += 1

    def read(self, cut: int, starting: int) -> DataFrame:
        reader = self._spark.readStream.schema("id bigint").option("maxFilesPerTrigger", cut // CUT)
        return reader.parquet(str(self.folder)).select("id", "_metadata.file_path")


class Topic:
    """A topic of one partition."""

    kind = "Kafka"

    def __init__(self, spark: SparkSession, broker: KafkaAddress, name: str) -> None:
        self._spark, self._servers, self.name = spark, broker.servers, broker.topic(name)
        self._sent: list[int] = []

    def receive(self, ids: Sequence[int]) -> None:
        put(self._servers, self.name, ids)
        self._sent.extend(ids)

    def make_again(self, first: int = 0) -> None:
        """Delete it and make another of this name, with the rows from ``first`` on under offsets from 0 on."""
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        admin.delete_topics([self.name])[self.name].result(30)
        until(lambda: self.name not in admin.list_topics(timeout=10).topics, "the topic is gone")
        admin.create_topics([NewTopic(self.name, 1, 1)])[self.name].result(30)
        until(lambda: self.name in admin.list_topics(timeout=10).topics, "the topic is there again")
        sent, self._sent = self._sent, []
        self.receive(sent[first:])

    def read(self, cut: int, starting: int) -> DataFrame:
        reader = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._servers)
        reader = reader.option("startingOffsets", json.dumps({self.name: {"0": starting}}) if starting else "earliest")
        rows = reader.option("subscribe", self.name).option("maxOffsetsPerTrigger", cut).load()
        return rows.select(f.col("value").cast("string").cast("bigint").alias("id"), "topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Shape:
    """Which pipeline is meant: the columns of the table of ways out."""

    source: str
    state: str
    sinks: str


SHAPES = tuple(
    Shape(*names)
    for names in itertools.product(("files", "Kafka"), ("stateless", "stateful"), ("Postgres", "Delta", "three"))
)
"""All of them."""


class World:
    """A pipeline at epoch 4, and how it was at earlier epochs.

    Args:
        source: what it reads.
        sinks: what it writes; what happens to a sink happens to the first.
        root: a directory of its own.
        stateful: whether the query keeps state.
    """

    def __init__(self, source: Any, sinks: Sequence[Any], root: Path, *, stateful: bool) -> None:
        self.source, self.sinks, self.root, self.stateful = source, tuple(sinks), root, stateful
        self.checkpoint, self.ledger = root / "ck", root / "ledger.db"
        self.values = STATEFUL if stateful else STATELESS
        self.cut, self.starting = CUT, 0
        self.staging = root / "ck.onceonly.staging"

    @property
    def first(self) -> Any:
        """The sink that things happen to."""
        return self.sinks[0]

    def write_all(self) -> World:
        """Four epochs, kept after the first, the third and the last; then two batches more come in."""
        for begin, end in ((0, 1), (1, 3), (3, WRITTEN)):
            self.source.receive(self.values[begin * CUT : end * CUT])
            said = self.run()
            assert not said, said
            self.keep(f"at{end}")
        self.source.receive(self.values[WRITTEN * CUT :])
        return self

    def run(self, **recovery: Any) -> str:
        """Start the query until the input is used up; what its user sees if it dies, else nothing."""
        sinks = [sink.sink() for sink in self.sinks]
        write = exactly_once(
            *sinks,
            transform=lambda df: df.select("id"),
            recovery=Recovery(**recovery),
            storage=Storage(ledger=str(self.ledger)),
        )
        said = self.start(write)
        if _STATE_GONE in said:  # Spark stops before it calls us; its own text prints this way, and no other
            shutil.rmtree(self.checkpoint)
            said = self.start(write)
        return said

    def start(self, write: Callable[[DataFrame, int], None]) -> str:
        rows = self.source.read(self.cut, self.starting)
        if self.stateful:
            rows = rows.dropDuplicates(["id"])
        writer = rows.writeStream.foreachBatch(write).queryName(NAME).outputMode("append")
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except Exception as error:  # whatever class the client makes of it: the text is what users get
            return str(error)
        finally:
            for watch in run_state._watches:
                watch.join(10)  # what is kept next must not be written to meanwhile
        return ""

    def found(self) -> Mapping[str, Counter[int]]:
        """Rows of each sink, read without any code of ours."""
        return {sink.id: Counter(sink.rows()) for sink in self.sinks}

    # ---- as it was, in the same place

    def keep(self, label: str) -> None:
        for place in self._places:
            again(place, self._kept(place, label))
        for sink in self.sinks:
            sink.keep(label)

    def put_back(self, label: str) -> None:
        self.put_ledger_back(label)
        for place in self._places:
            again(self._kept(place, label), place)
        for sink in self.sinks:
            sink.put_back(label)

    def put_checkpoint_back(self, label: str) -> None:
        again(self._kept(self.checkpoint, label), self.checkpoint)

    def put_ledger_back(self, label: str) -> None:
        for trail in ("-wal", "-shm", "-journal"):
            self.ledger.with_name(self.ledger.name + trail).unlink(missing_ok=True)
        again(self._kept(self.ledger, label), self.ledger)

    def lose_ledger(self) -> None:
        for trail in ("", "-wal", "-shm", "-journal"):
            self.ledger.with_name(self.ledger.name + trail).unlink(missing_ok=True)

    @property
    def _places(self) -> tuple[Path, ...]:
        return (self.root / "ck", self.ledger, self.ledger.with_name("ledger.db-wal"), self.staging)

    def _kept(self, place: Path, label: str) -> Path:
        folder = self.root.with_name(self.root.name + "-kept") / label
        folder.mkdir(parents=True, exist_ok=True)
        return folder / place.name
