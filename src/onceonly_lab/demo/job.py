"""Demo driver program that gets killed: streaming queries over flight files.

Each sink has one query, or one query writes into several sinks.

It says when a batch begins and when it has ended, for whoever watches it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from onceonly import Storage, exactly_once, faults
from onceonly.faults import Point
from onceonly.spark.jars import fast_session
from onceonly_lab.chaos.environment import say
from onceonly_lab.demo import input
from onceonly_lab.demo.input import SEVERAL, Target, query_name
from onceonly_lab.demo.plan import OPENING, UNSEEN, WINDOW, Kill
from onceonly_lab.driver import end_with_parent
from onceonly_lab.session.launch import end_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from typing_extensions import LiteralString, Self

ForeachBatch = Callable[["DataFrame", int], object]

_LEAD = 1
_POLL_SECONDS = 0.2

_CHECKPOINT_INTERVAL = "spark.databricks.delta.properties.defaults.checkpointInterval"
"""Commits between two checkpoints of a Delta table: for so small a table, one costs more time than all its commits."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a driver is told, as a JSON file.

    Attributes:
        variant: ``plain`` or ``onceonly``, with a query per sink, or ``several``: wrapped, one query into all of them.
        source: folder with the input files.
        checkpoints: folder that gets one checkpoint per query.
        targets: the sinks; of one query, in the order of their commits.
        aim: where this driver kills its own process group, or says that somebody is to do it; ``None``: nowhere.
    """

    variant: str
    source: str
    checkpoints: str
    targets: tuple[Target, ...]
    aim: Kill | None = None

    @property
    def queries(self) -> dict[str, tuple[Target, ...]]:
        """The sinks of each query: named by its only sink, or ``several``."""
        if self.variant == SEVERAL:
            return {SEVERAL: self.targets}
        return {target.kind: (target,) for target in self.targets}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Inverse of :meth:`save`."""
        fields = json.loads(path.read_text())
        targets = tuple(Target(**target) for target in fields.pop("targets"))
        aim = fields.pop("aim")
        if aim is not None:
            point = aim.pop("point")
            aim = Kill(**aim, point=Point(point) if point else None)
        return cls(**fields, targets=targets, aim=aim)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1))


class Pace:
    """Keeps the queries within a batch of each other, so that a kill finds every one of them at work."""

    def __init__(self, names: set[str]) -> None:
        self._next = dict.fromkeys(names, 0)
        self._changed = threading.Condition()

    def await_turn(self, name: str, batch: int) -> None:
        """Block until no other query is more than a batch behind."""
        with self._changed:
            self._next[name] = batch
            self._changed.notify_all()
            self._changed.wait_for(lambda: batch <= min(self._next.values()) + _LEAD)

    def leave(self, name: str) -> None:
        """The query has ended: nobody waits for it any more."""
        with self._changed:
            del self._next[name]
            self._changed.notify_all()


class Batches:
    """Tells the watcher about every batch, and pulls the trigger at the one that was aimed at."""

    def __init__(self, pace: Pace, aim: Kill | None) -> None:
        self._pace, self._aim = pace, aim
        self._begun: Counter[str] = Counter()
        self._here = threading.local()
        if aim is not None and aim.point is not None:
            faults.arm(aim.point, partial(self._pull, aim, aim.point))

    def watched(self, query: str, write: ForeachBatch) -> Callable[[DataFrame, int], None]:
        """Put the watching around a foreachBatch function."""

        def batch(frame: DataFrame, batch_id: int) -> None:
            self._pace.await_turn(query, batch_id)
            self._begun[query] += 1
            self._here.batch, self._here.passed = (query, self._begun[query]), 0
            say("begin", sink=query, batch=batch_id)
            aim = self._aim
            if aim is not None and aim.point is None and (aim.sink, aim.batch) == self._here.batch:
                say("due", fault=0, ms=1000 * aim.delay)
            write(frame, batch_id)
            say("end", sink=query, batch=batch_id)

        return batch

    def _pull(self, aim: Kill, point: Point) -> None:
        # All queries pass the same points, each in its own thread. A batch that is already written passes few of them.
        sink, begun = getattr(self._here, "batch", ("", 0))
        if sink == aim.sink and begun >= aim.batch:
            self._here.passed += 1
        if sink != aim.sink or begun < aim.batch or self._here.passed < max(aim.written, 1):
            faults.arm(point, partial(self._pull, aim, point))
            return
        say("struck", fault=0)
        faults.ACTIONS["killgroup"]()


def with_plain_faults(write: ForeachBatch) -> ForeachBatch:
    """Give a plain function the fault points of a wrapped one.

    Honest: every foreachBatch has these moments, before its write and between its write and Spark's commit log.
    """

    def batch(frame: DataFrame, batch_id: int) -> None:
        for point in (*OPENING, *UNSEEN):
            faults.fire(point)
        write(frame, batch_id)
        for point in WINDOW:
            faults.fire(point)

    return batch


def plain(target: Target) -> ForeachBatch:
    """What a careful user writes today: one transaction per batch."""
    write = _plain_delta if target.kind == "delta" else _plain_postgres
    return with_plain_faults(lambda frame, _: write(frame, target))


def _plain_delta(frame: DataFrame, target: Target) -> None:
    frame.write.format("delta").mode("append").save(target.address)


def _plain_postgres(frame: DataFrame, target: Target) -> None:
    import pgpq
    import psycopg
    from psycopg import sql

    rows = frame.toArrow()
    encoder = pgpq.ArrowToPostgresBinaryEncoder(rows.schema)
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(cast("LiteralString", column.data_type.ddl())))
        for column in encoder.schema().columns
    ]
    table = sql.Identifier(target.table)
    with psycopg.connect(target.address) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, sql.SQL(", ").join(columns)))
        with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(table)) as copy:
            copy.write(encoder.write_header())
            for block in rows.to_batches():
                copy.write(encoder.write_batch(block))
            copy.write(encoder.finish())


def _session(delta: bool) -> SparkSession:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName("onceonly-demo").master("local[2]")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config(_CHECKPOINT_INTERVAL, "100")
    return fast_session(builder, delta=delta)


def wrapped(targets: Sequence[Target]) -> ForeachBatch:
    """What it takes to have each row in every sink exactly once."""
    before = with_value if any(target.kind == "kafka" for target in targets) else None
    return exactly_once(
        *(target.sink() for target in targets), storage=Storage(ledger=targets[0].ledger), transform=before
    )


def with_value(frame: DataFrame) -> DataFrame:
    """Add what a topic takes: the row as JSON. The other sinks get the same columns."""
    from pyspark.sql import functions

    return frame.withColumn("value", functions.to_json(functions.struct("*")))


def start(spark: SparkSession, job: Job, name: str, batches: Batches) -> StreamingQuery:
    """Start one query: one file per epoch, until the files are used up."""
    targets = job.queries[name]
    write = plain(*targets) if job.variant == "plain" else wrapped(targets)
    stream = spark.readStream.schema(input.spark_schema()).options(**input.spark_options())
    return (
        stream.option("maxFilesPerTrigger", 1)
        .csv(job.source)
        .writeStream.queryName(query_name(name))
        .option("checkpointLocation", str(Path(job.checkpoints) / name))
        .foreachBatch(batches.watched(name, write))
        .trigger(availableNow=True)
        .start()
    )


def await_all(queries: dict[str, StreamingQuery], pace: Pace) -> None:
    """Wait for every query; the first failure ends the program."""
    while queries:
        for name in [name for name, query in queries.items() if not query.isActive]:
            if failure := queries.pop(name).exception():
                raise failure
            pace.leave(name)
        time.sleep(_POLL_SECONDS)


def main(argv: list[str]) -> int:
    """Run the job of the file ``argv[0]``."""
    end_with_parent()
    job = Job.load(Path(argv[0]))
    pace = Pace(set(job.queries))
    batches = Batches(pace, job.aim)
    spark = _session(delta=any(target.kind == "delta" for target in job.targets))
    say("up")
    await_all({name: start(spark, job, name, batches) for name in job.queries}, pace)
    return end_jvm(spark)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
