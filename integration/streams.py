"""Small real streams for integration tests: a directory of files, a query over it, surgery on its checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

SCHEMA = "id bigint, word string"
"""Columns of the input."""


def all_settings(spark: SparkSession) -> Mapping[str, str]:
    """Every option of a session."""
    conf: Any = spark.conf
    if hasattr(type(conf), "getAll"):
        found: Mapping[str, str] = conf.getAll
        return found
    own: Any = spark  # PySpark 3.5 asks for one at a time
    return dict(own._jvm.scala.collection.JavaConverters.mapAsJavaMap(own._jsparkSession.conf().getAll()))


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Generator[None]:
    """Set options of the shared session for a while. What they were comes back: unsetting would give Spark's defaults
    to every later test, 200 shuffle partitions among them."""
    before = all_settings(spark)
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in wanted:
            if name in before:
                spark.conf.set(name, before[name])
            else:
                spark.conf.unset(name)


class FileStream:
    """A file source under ``root`` and the query over it.

    Args:
        spark: the shared session.
        root: a directory of its own.
        name: ``queryName``; ``None`` for none.
    """

    def __init__(self, spark: SparkSession, root: Path, name: str | None = "orders") -> None:
        self.spark, self.root, self.name = spark, root, name
        self.inbox, self.checkpoint = root / "in", root / "ck"
        self.inbox.mkdir(parents=True, exist_ok=True)
        self._files = 0
        self.per_trigger = 1

    def receive(self, *batches: Iterable[int]) -> FileStream:
        """Drop one file per range of ids; a name earlier in the alphabet is an older file."""
        for ids in batches:
            self.drop(pa.table({"id": list(ids), "word": [f"w{number}" for number in ids]}))
        return self

    def drop(self, table: pa.Table) -> None:
        """Drop a file with these rows: whole or not at all, and a second younger than the one before it.

        Spark takes the older file first, and of two that are made in a moment some file systems call neither older.
        """
        hidden = self.inbox / f"_part-{self._files:04d}"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_700_000_000 + self._files,) * 2)
        hidden.rename(self.inbox / f"part-{self._files:04d}.parquet")
        self._files += 1

    def read(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", self.per_trigger)
        return reader.parquet(str(self.inbox))

    def start(
        self,
        write: Callable[[DataFrame, int], None],
        shape: Callable[[DataFrame], DataFrame] = lambda df: df,
        mode: str = "append",
        **trigger: Any,
    ) -> StreamingQuery:
        writer = shape(self.read()).writeStream.outputMode(mode).foreachBatch(write)
        if self.name:
            writer = writer.queryName(self.name)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, write: Callable[[DataFrame, int], None], **options: Any) -> None:
        """Run until the input is used up; raises what the query died of."""
        self.start(write, **options).awaitTermination()

    def fail(self, write: Callable[[DataFrame, int], None], **options: Any) -> str:
        """Run a query that must die, and return what its user sees."""
        query = self.start(write, **options)
        try:
            ended = query.awaitTermination(60)
        except Exception as error:  # whatever class the client makes of it: the text is what users get
            return str(error)
        raise AssertionError(f"the query was expected to stop, but it {'finished' if ended else 'ran on for 60 s'}")

    # ---- surgery: what crashes, restores and careless hands leave behind

    def log_entry(self, log: str, number: int) -> Path:
        return self.checkpoint / log / str(number)

    def remove(self, log: str, *numbers: int) -> None:
        for number in numbers:
            self.log_entry(log, number).unlink()
            self.forget_checksum(log, number)

    def forget_checksum(self, log: str, number: int) -> None:
        (self.checkpoint / log / f".{number}.crc").unlink(missing_ok=True)

    def edit(self, log: str, number: int, text: str) -> None:
        self.log_entry(log, number).write_text(text)
        self.forget_checksum(log, number)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def newest(self, log: str) -> int:
        return max(int(path.name) for path in (self.checkpoint / log).iterdir() if path.name.isdigit())


# ---- when the engine planned a batch


def planned(checkpoint: Path, batch: int) -> int:
    """The moment that a checkpoint's offset log says, milliseconds since 1970."""
    return int(json.loads(_entry(checkpoint, batch)[1])["batchTimestampMs"])


def plan_earlier(checkpoint: Path, batch: int, moment: int) -> None:
    """Have the offset log say that a batch was planned earlier, as though it had waited since then."""
    lines = _entry(checkpoint, batch)
    lines[1] = json.dumps({**json.loads(lines[1]), "batchTimestampMs": moment})
    path = checkpoint / "offsets" / str(batch)
    path.write_text("\n".join(lines))
    path.with_name(f".{batch}.crc").unlink()


def _entry(checkpoint: Path, batch: int) -> list[str]:
    return (checkpoint / "offsets" / str(batch)).read_text().split("\n")
