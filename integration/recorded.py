"""A query whose epochs are on record, to be run again: where its rows come from, what it does, what became of it."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.servers import KafkaAddress
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.kafka_client import put

from onceonly import Storage, exactly_once
from onceonly.api import run_state
from onceonly.errors import OnceOnlyError
from onceonly.protocol import Estimate
from onceonly.replay.replay_files import replays_of
from onceonly.replay.spark_replay import Replay
from onceonly.spark.batch import SparkBatch
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.spark.replay_plan import StateFrom
from onceonly_sinks.memory import MemorySink

BATCHES = 6
ROWS = 5
"""Rows of a batch."""


def replayed(
    spark: SparkSession,
    job: Callable[[SparkSession], Any],
    records: Sequence[EpochRecord],
    checkpoint: str,
    *,
    each: Callable[[EpochRecord, DataFrame], None],
    epochs: range | None = None,
    ledger: str,
    state: str = "copied",
    coalesce: int = 1,
) -> None:
    """Run recorded epochs again, by default all of ``records``, and pass each one's rows to ``each``, with its record.

    For coalesced epochs ``each`` gets the last record.
    """
    numbers = [record.epoch.number for record in records]
    requested = epochs if epochs is not None else range(min(numbers, default=1), max(numbers, default=0) + 1)
    replay = Replay(spark, job, records, checkpoint, ledger)
    replay.run(requested, lambda ran, rows: each(ran[-1], rows), state=StateFrom(state), coalesce=coalesce)


@dataclass
class Recorded:
    """A query into the reference sink, and what its ledger says of it."""

    spark: SparkSession
    home: Path
    source: Callable[[SparkSession], DataFrame]
    shape: Callable[[DataFrame], DataFrame] = lambda df: df
    sink: MemorySink = field(default_factory=lambda: MemorySink(id="memory:orders"))

    @property
    def checkpoint(self) -> str:
        return str(self.home / "ck")

    @property
    def ledger(self) -> str:
        return str(self.home / "ledger.db")

    def job(self, spark: SparkSession) -> DataFrame:
        return self.shape(self.source(spark))

    def run(self) -> Recorded:
        writer = self.job(self.spark).writeStream.foreachBatch(
            exactly_once(self.sink, storage=Storage(ledger=self.ledger))
        )
        writer = writer.queryName("orders").option("checkpointLocation", self.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return self

    @property
    def records(self) -> Sequence[EpochRecord]:
        ledger = SqlLedger(self.ledger)
        try:
            return ledger.epochs("orders")
        finally:
            ledger.close()

    def again(self, **options: Any) -> list[tuple[EpochRecord, Digest]]:
        """Digests of the epochs, run again.

        Args:
            options: of ``replayed``; ``found``: a list for what was run, where it may be refused half way.
        """
        found: list[tuple[EpochRecord, Digest]] = options.pop("found", [])
        records = options.pop("records", self.records)
        job = options.pop("job", self.job)

        def each(record: EpochRecord, rows: DataFrame) -> None:
            left_out = frozenset(record.epoch.digest.left_out)
            found.append((record, SparkBatch(rows, Estimate(None, None), left_out).execute()))

        replayed(self.spark, job, records, self.checkpoint, each=each, ledger=self.ledger, **options)
        return found

    def refused(self, **options: Any) -> OnceOnlyError:
        """What running them again is refused with; no epoch was handed on."""
        found: list[tuple[EpochRecord, Digest]] = []
        with pytest.raises(OnceOnlyError) as stopped:
            self.again(**options, found=found)
        assert found == []
        assert not list(Path(replays_of(self.checkpoint)).glob("*"))
        return stopped.value

    def files(self) -> list[str]:
        return sorted(str(path) for path in Path(self.checkpoint).rglob("*"))


class Kept:
    """A query that ran once for all cases of a module: each gets its directory as the run left it.

    Paths stay the same, since a checkpoint says which files were read. The sink is not put back: whoever writes to it,
    or puts files there and runs the query again, needs a :class:`Recorded` of its own.
    """

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.inbox = Inbox(home)
        self.inbox.put(BATCHES)
        self.orders = Recorded(spark, home, self.inbox.source).run()
        self._copy = home.with_name(f"{home.name}-kept")
        _let_go()
        shutil.copytree(home, self._copy)

    def put_back(self) -> Kept:
        """Have the directory be what it was."""
        _let_go()
        shutil.rmtree(self.orders.home)
        shutil.copytree(self._copy, self.orders.home)
        self.inbox.back_to(BATCHES)
        return self


def _let_go() -> None:
    """Wait for runs that have ended: SQLite, closing, would take the log of a file that came in its place along."""
    for watch in run_state._watches:
        watch.join(60)


def same(found: Sequence[tuple[EpochRecord, Digest]]) -> bool:
    return all(digest == record.epoch.digest for record, digest in found)


class Inbox:
    """Rows in files: one file is a batch."""

    def __init__(self, home: Path) -> None:
        self.home, self._files = home / "in", itertools.count()
        self.home.mkdir()

    def back_to(self, batches: int) -> None:
        """Go on behind so many files."""
        self._files = itertools.count(batches)

    def put(self, batches: int) -> None:
        for number in itertools.islice(self._files, batches):
            ids = range(number * ROWS, (number + 1) * ROWS)
            path = self.home / f"part-{number:04d}.parquet"
            hidden = path.with_name(f".{path.name}")
            pq.write_table(pa.table({"id": list(ids)}), hidden)
            # The file source goes by modification time, and two files of one millisecond have no order.
            os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
            hidden.rename(path)

    def source(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(str(self.home))


class Topic:
    """Rows in a topic: so many records are a batch."""

    def __init__(self, kafka: KafkaAddress, name: str) -> None:
        self.servers, self.topic, self._ids = kafka.servers, kafka.topic(name), itertools.count()

    def put(self, batches: int) -> None:
        put(self.servers, self.topic, itertools.islice(self._ids, batches * ROWS))

    def source(self, spark: SparkSession) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic, "startingOffsets": "earliest"}
        reader = spark.readStream.format("kafka").options(**options).option("maxOffsetsPerTrigger", ROWS)
        return reader.load().select(f.col("value").cast("string").cast("bigint").alias("id"))


class Table:
    """Rows in a Delta table: a commit is a batch."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.home, self._commits = spark, str(home / "in"), itertools.count()

    def put(self, batches: int) -> None:
        for number in itertools.islice(self._commits, batches):
            rows = self.spark.range(number * ROWS, (number + 1) * ROWS, numPartitions=1)
            rows.write.format("delta").mode("append").save(self.home)

    def source(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(self.home)


def timed(df: DataFrame) -> DataFrame:
    """Rows with a clock, and under a watermark."""
    return df.withColumn("at", f.timestamp_seconds("id")).withWatermark("at", "1 second").withColumn(
        "seen", f.current_timestamp()
    )  # fmt: skip


def counted(df: DataFrame) -> DataFrame:
    """Windows that close as the watermark goes on."""
    at = df.withColumn("at", f.timestamp_seconds("id")).withWatermark("at", "0 seconds")
    return at.groupBy(f.window("at", "4 seconds")).agg(f.count("*").alias("rows"), f.sum("id").alias("ids"))
