"""Demo driver program that gets killed: streaming queries over files.

Of the flights each sink has one query, or one query writes into several sinks. The second act has windows.

It says when a batch begins and when it has ended, for whoever watches it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from onceonly import EventTime, ExactlyOnce, Recovery, Storage, exactly_once, faults
from onceonly.event_time import Writers
from onceonly.faults import Point
from onceonly.spark.jars import fast_session
from onceonly_lab.chaos.environment import say
from onceonly_lab.demo import input
from onceonly_lab.demo.input import CLICK_COLUMNS, CLICK_WRITERS, CLICKS, WINDOWS, Target, query_name
from onceonly_lab.demo.plan import OPENING, UNSEEN, WINDOW, Kill
from onceonly_lab.demo.streaming102 import COLUMNS, Case, cases, milliseconds, set_clock
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
        variant: ``plain`` or ``onceonly``, with a query per sink, ``several``: wrapped, one query into all of them, or
            ``windows``: figures of Streaming 102.
        source: folder with the input files.
        checkpoints: folder that gets one checkpoint per query.
        targets: the sinks; of one query, in the order of their commits.
        figures: of ``windows``: query to case.
        idle: of ``windows``: the writer of the shared table that the last driver lets wait for its second file.
        aim: where this driver kills its own process group, or says that somebody is to do it; ``None``: nowhere.
    """

    variant: str
    source: str
    checkpoints: str
    targets: tuple[Target, ...]
    figures: Mapping[str, str] = field(default_factory=dict)
    idle: str = ""
    aim: Kill | None = None

    @property
    def queries(self) -> dict[str, tuple[Target, ...]]:
        """The sinks of each query, by its name."""
        by_query: dict[str, tuple[Target, ...]] = {}
        for target in self.targets:
            name = target.query or target.kind
            by_query[name] = (*by_query.get(name, ()), target)
        return by_query

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
        self._waiting = set[str]()
        self._held = False
        self._changed = threading.Condition()

    def await_turn(self, name: str, batch: int) -> None:
        """Block until no other query is more than a batch behind."""
        with self._changed:
            self._next[name] = batch
            self._wait(name, lambda: batch <= min(self._next.values()) + _LEAD)

    def end(self, name: str) -> None:
        """Let a batch end, unless another query holds all of them."""
        with self._changed:
            self._wait(name, lambda: True)

    def hold(self, name: str) -> None:
        """Block until every other query waits within a batch, where it stays."""
        with self._changed:
            self._held = True
            self._changed.wait_for(lambda: self._waiting >= self._next.keys() - {name})

    def _wait(self, name: str, may_go: Callable[[], bool]) -> None:
        self._waiting.add(name)
        self._changed.notify_all()
        self._changed.wait_for(lambda: not self._held and may_go())
        self._waiting.discard(name)

    def leave(self, name: str) -> None:
        """The query has ended: nobody waits for it any more."""
        with self._changed:
            del self._next[name]
            self._changed.notify_all()


class Batches:
    """Tells the watcher about every batch, and pulls the trigger at the one that was aimed at.

    Args:
        pace: of the queries.
        aim: the kill.
        within: let the kill find every query within a batch. Between two batches it may leave a file in the log of
            Spark's file source alone: the next batch then has two files, and a figure another epoch.
    """

    def __init__(self, pace: Pace, aim: Kill | None, *, within: bool) -> None:
        self._pace, self._aim, self._within = pace, aim, within
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
            self._pace.end(query)

        return batch

    def _pull(self, aim: Kill, point: Point) -> None:
        # All queries pass the same points, each in its own thread. A batch that is already written passes few of them.
        sink, begun = getattr(self._here, "batch", ("", 0))
        if sink == aim.sink and begun >= aim.batch:
            self._here.passed += 1
        if sink != aim.sink or begun < aim.batch or self._here.passed < max(aim.written, 1):
            faults.arm(point, partial(self._pull, aim, point))
            return
        if self._within:
            self._pace.hold(sink)
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
    targets, checkpoint = job.queries[name], Path(job.checkpoints) / name
    stream = spark.readStream.option("maxFilesPerTrigger", 1)
    if job.variant == WINDOWS:
        write = figure(cases()[job.figures[name]], targets, checkpoint)
        rows = stream.schema(COLUMNS).parquet(f"{job.source}/{name}")
    else:
        write = plain(*targets) if job.variant == "plain" else wrapped(targets)
        rows = stream.schema(input.spark_schema()).options(**input.spark_options()).csv(job.source)
    return _started(rows, query_name(name), checkpoint, batches.watched(name, write))


def _started(rows: DataFrame, name: str, checkpoint: Path, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
    writer = rows.writeStream.queryName(name).option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    return writer.trigger(availableNow=True).start()


def windowed(case: Case, targets: Sequence[Target]) -> ExactlyOnce:
    """Results of a figure's windows."""
    sinks, ledger = [target.sink() for target in targets], Storage(ledger=targets[0].ledger)
    return exactly_once(*sinks, storage=ledger, event_time=case.event_time, windows=case.windows)


def figure(case: Case, targets: Sequence[Target], checkpoint: Path) -> ForeachBatch:
    """Results of a figure's windows, each batch at the clock of the script."""
    write = windowed(case, targets)

    def batch(frame: DataFrame, batch_id: int) -> None:
        set_clock(checkpoint, batch_id, milliseconds(case.epochs[batch_id]["clock"]))
        write(frame, batch_id)

    return batch


def share(spark: SparkSession, job: Job) -> None:
    """Two queries write one table, and one of them is idle until its second file is there."""
    from onceonly_sinks.postgres import PostgresSink

    def run(name: str) -> None:
        both = Writers(EventTime("at", max_delay="0s"), writers=CLICK_WRITERS)
        sink, ledger = PostgresSink(job.targets[0].address, CLICKS), Storage(ledger=job.targets[0].ledger)
        write = exactly_once(sink, storage=ledger, event_time=both, recovery=Recovery(adopt="here"))
        rows = spark.readStream.schema(CLICK_COLUMNS).parquet(f"{job.source}/{name}")
        _started(rows, name, Path(job.checkpoints) / name, write).awaitTermination()

    for name in CLICK_WRITERS:
        run(name)
    say("idle")
    while len(list(Path(job.source, job.idle).glob("*.parquet"))) < 2:
        time.sleep(_POLL_SECONDS)
    run(job.idle)


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
    batches = Batches(pace, job.aim, within=job.variant == WINDOWS)
    spark = _session(delta=any(target.kind == "delta" for target in job.targets))
    say("up")
    await_all({name: start(spark, job, name, batches) for name in job.queries}, pace)
    if job.idle and job.aim is None:
        share(spark, job)
    return end_jvm(spark)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
