"""The driver program that tests kill, stop and race: real queries over one directory of files, run one after the other.

It starts before it has a task, so that the start of one overlaps with the work of another. It prints one JSON line per
event, straight to the file descriptor: what a killed process had buffered would be lost.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from onceonly import Dedupe, EventTime, Output, Quality, Recovery, Storage, bad_rows, exactly_once, faults
from onceonly.event_time import FromUpstream, Writers, heartbeat
from onceonly.lineage import OpenLineage
from onceonly.protocol import Sink
from onceonly.spark.detect import line
from onceonly.spark.jars import fast_session
from onceonly.windows import AtCount, AtWatermark, Custom, Last, Sessions, Sum, Tumbling, Windows
from onceonly_lab.demo import streaming102
from onceonly_lab.driver import end_with_parent
from onceonly_lab.servers.spark import attach, is_warm
from onceonly_lab.session.launch import end_jvm

SCHEMA = "id bigint, word string"
"""Columns of the input."""

TABLE = "arrivals"
"""The table in Postgres."""

SEEN = "arrivals_seen"
"""The table of ids."""

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Job:
    """One query.

    Attributes:
        name: ``queryName``, and so the pipeline.
        kind: ``postgres``, with ``:table`` behind it for another table, ``delta``, ``delta-spark``, where Spark
            commits, or ``kafka``, with ``:executors`` behind it for rows that tasks send.
        target: DSN of the database, path of the table, or ``<brokers> <topic>``.
        inbox: directory with the input.
        checkpoint: its checkpoint.
        ledger: URL or path; ``None`` for the default place.
        unique: drop duplicate ids, which makes the query stateful.
        also: kind and target of every further sink of the same query.
        shout: write words in capitals: what a changed program does.
        on_refresh: what becomes of a full refresh.
        outputs: of three sinks the second gets an output of all rows, as a topic takes them, the third one of even ids.
        expect: what is expected of each row; the second sink is then the quarantine, and a third one gets an output of
            even ids. Empty: nothing.
        mends: read a quarantine, a Delta table, in place of files, and bring its rows in with another word.
        late: newer files bring older changes: of a hundred keys, a fifth of the changes removes; into the first sink, a
            table of Postgres that remembers what was removed.
        once: for how long ids are known, in a table of the first sink's database; empty: they are not kept.
        ids: path of a Delta table that keeps them instead.
        timed: note the greatest id as the time of all rows.
        ingest: note the moment at which the engine planned each batch.
        writers: names of the jobs that write the same dataset, this one among them; each notes the greatest id.
        follows: name of the job whose table, or topic, ``inbox`` is: time goes on from there.
        figure: a case of Streaming 102: its rows, its panes and what it notes.
        panes: sums of ids in windows of ten of them, by word, with the time of the greatest id; the sinks get results
            instead of rows, and windows lie beside the first sink, in Postgres.
        quiet: a second directory of files, read beside ``inbox``, and beside both a heartbeat: the query goes on until
            it is killed or stopped, with an epoch each second.
        sessions: with ``panes``: sessions with a gap of ten ids in place of windows.
        tens: with ``panes``: the same windows, which rows name themselves.
        windows_in: a database for windows as those of ``panes``, of which a topic gets word and greatest id.
        too_late: with ``panes``: a table of the first sink's database for rows that come too late, whole.
        order: how a topic orders the rows of a thousand keys, which are mixed before; ``any``: it does not.
        unbalanced: rows whose debit has no credit; an epoch with one is set aside as a whole in a table of the first
            sink's database, a table that is checked in its transaction as well.
        notes: so many columns beside the two: what a changed program writes, in Postgres and Delta.
        lineage: receiver of lineage events.
        wordless: rows whose word is null; with ``expect``, where the first sink's table may demand one.
    """

    name: str
    kind: str
    target: str
    inbox: str
    checkpoint: str
    ledger: str | None = None
    unique: bool = False
    also: tuple[tuple[str, str], ...] = ()
    shout: bool = False
    on_refresh: str = "stop"
    outputs: bool = False
    expect: str = ""
    mends: bool = False
    late: bool = False
    notes: int = 0
    wordless: str = ""
    once: str = ""
    ids: str = ""
    timed: bool = False
    ingest: bool = False
    writers: tuple[str, ...] = ()
    follows: str = ""
    figure: str = ""
    panes: bool = False
    quiet: str = ""
    sessions: bool = False
    tens: bool = False
    too_late: str = ""
    windows_in: str = ""
    order: str = ""
    unbalanced: str = ""
    lineage: str = ""

    @property
    def speaks_kafka(self) -> bool:
        """Whether any sink is a topic."""
        return "kafka" in {kind.partition(":")[0] for kind in (self.kind, *(kind for kind, _ in self.also))}

    def sinks(self) -> list[Sink]:
        """The sinks in commit order."""
        if self.late:
            from onceonly_sinks.postgres import Keep, PostgresSink

            keyed = {"key": "key", "sequence": "seq", "delete_flag": "gone", "keep": Keep(tombstones="7 days")}
            return [PostgresSink(self.target, table=TABLE, **keyed)]
        if self.unbalanced:
            from onceonly_sinks.postgres import PostgresSink

            bank = PostgresSink(self.target, table=TABLE, check_table=BALANCED)
            return [bank, *(make_sink(kind, target) for kind, target in self.also)]
        if self.order:
            from onceonly_sinks.kafka import KafkaSink

            return [KafkaSink(*self.target.split(" "), order=None if self.order == "any" else self.order)]
        schema: Any = {"schema": "add_columns"} if self.notes else {}
        return [make_sink(kind, target, **schema) for kind, target in ((self.kind, self.target), *self.also)]

    def divided(self) -> list[Sink | Output]:
        """The sinks, in outputs where the job has them."""
        if not self.outputs and not self.expect:
            return [*self.sinks()]
        if self.expect:
            whole, _, *rest = self.sinks()
            return [whole, *(Output(one, name="even", where="id % 2 = 0", select=["id", "word"]) for one in rest)]
        whole, topic, table = self.sinks()
        as_events = ["CAST(id AS STRING) AS key", "to_json(struct(*)) AS value"]
        even = Output(table, name="even", where="id % 2 = 0", select=["id", "upper(word) AS loud"])
        return [whole, Output(topic, name="events", select=as_events), even]


@dataclass(frozen=True, slots=True)
class Task:
    """What a driver is told, as a JSON file.

    Attributes:
        jobs: the queries.
        fault: as in ``ONCEONLY_FAULT``, armed anew for each query. ``killgroup`` waits at its point until every query
            of the driver has come to it, so that one kill meets all of them there.
        hold: ``(point, file)``: a query that comes to the point waits there until the file exists.
        graceful: SIGTERM stops the query instead of the process.
    """

    jobs: tuple[Job, ...]
    fault: str = ""
    hold: tuple[str, str] | None = None
    graceful: bool = False

    @classmethod
    def load(cls, path: Path) -> Self:
        """Inverse of :meth:`save`."""
        fields = json.loads(path.read_text())
        fields["jobs"] = tuple(
            Job(**{**job, "also": tuple((kind, target) for kind, target in job["also"])}) for job in fields["jobs"]
        )
        return cls(**fields)

    def save(self, path: Path) -> None:
        """Write it as JSON, complete or not at all: a driver waits for the file."""
        hidden = path.with_suffix(".tmp")
        hidden.write_text(json.dumps(asdict(self), indent=1))
        hidden.rename(path)


def say(event: str, **facts: object) -> None:
    os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")


def session() -> SparkSession:
    """A session of a driver: small, quick, silent. In a JVM of its own, or in one that it was given."""
    builder = SparkSession.builder.master("local[2]").appName("driver")
    made = attach(builder) if is_warm() else fast_session(builder, delta=line().delta is not None)
    made.sparkContext.setLogLevel("OFF")
    return made


def start(spark: SparkSession, job: Job, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start a query: one file per batch until the files are used up."""
    few = spark.readStream.option("maxFilesPerTrigger", 1)
    if job.follows:
        files = _followed(spark, job.inbox)
    elif job.mends:
        bad = bad_rows(few.format("delta").load(job.inbox), SCHEMA).where("intact").select("row.*")
        files = bad.withColumn("word", f.lit("mended"))
    else:
        files = few.schema(streaming102.COLUMNS if job.figure else SCHEMA).parquet(job.inbox)
    rows = files.dropDuplicates(["id"]) if job.unique else files
    if job.shout:
        rows = rows.withColumn("word", f.upper("word"))
    if job.quiet:
        beside = few.schema(SCHEMA).parquet(job.quiet)
        rows = rows.unionByName(beside).unionByName(heartbeat(spark, like=rows))
    writer = rows.writeStream.queryName(job.name).option("checkpointLocation", job.checkpoint).foreachBatch(write)
    ends: Any = {"processingTime": "1 second"} if job.quiet else {"availableNow": True}
    return writer.trigger(**ends).start()


def _followed(spark: SparkSession, target: str) -> DataFrame:
    """What another job wrote, a file or so at a time."""
    servers, _, topic = target.partition(" ")
    if not topic:
        return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(target)
    from onceonly_sinks.kafka import reader_options

    options = {**reader_options(servers, topic), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    told = spark.readStream.format("kafka").options(**options).load()
    return told.select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")


def make_sink(kind: str, target: str, **options: Any) -> Sink:
    """The sink of a job; a kind's driver is imported only where it is used."""
    kind, _, table = kind.partition(":")
    if kind == "postgres":
        from onceonly_sinks.postgres import PostgresSink

        return PostgresSink(target, table=table or TABLE, **options)
    if kind == "kafka":
        from onceonly_sinks.kafka import KafkaSink, KafkaTuning

        return KafkaSink(*target.split(" "), tuning=KafkaTuning(load=table or "auto"))
    from onceonly_sinks.delta import DeltaSink, DeltaTuning

    return DeltaSink(target, tuning=DeltaTuning(committer="spark" if kind == "delta-spark" else "auto"), **options)


def _with_value(df: DataFrame) -> DataFrame:
    """What a topic takes: the row as JSON, under its id. The other sinks keep the two columns as well."""
    return df.select("*", f.col("id").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value"))


def _noted(notes: int, df: DataFrame) -> DataFrame:
    return df.select("*", *(f.lit("noted").alias(f"note_{number}") for number in range(1, notes + 1)))


LATE = ("pmod(id, 100) AS key", "1000000 - id AS seq", "pmod(xxhash64(id), 5) = 0 AS gone")
"""A change of one of a hundred keys; the later it comes, the older it is."""


DELAY = 12
"""By how many ids a row of a job with panes may come later than others before its window is on time."""

PANES = Windows(
    key="word",
    aggregates={"total": Sum("id")},
    time="id",
    window=Tumbling(10),
    trigger=AtWatermark(early=AtCount(2), late=AtCount(1)),
    allowed_lateness=15,
    accumulation="retracting",
)


TENS = Custom("id - pmod(id, 10)", "id - pmod(id, 10) + 10")


def panes_of(job: Job) -> Windows | None:
    """What a job makes of its rows, if it has windows at all."""
    if job.figure:
        return streaming102.cases()[job.figure].windows
    if job.windows_in:
        values = {"value": Last("concat(word, ' ', id)", by="id")}
        state: Any = make_sink("postgres:windows", job.windows_in)
        return replace(PANES, key="key", aggregates=values, accumulation="accumulating", state_sink=state)
    if not job.panes:
        return None
    late: Any = make_sink(f"postgres:{job.too_late}", job.target) if job.too_late else "count"
    window = Sessions(10) if job.sessions else TENS if job.tens else PANES.window
    return replace(PANES, window=window, late_rows=late)


def _late(df: DataFrame) -> DataFrame:
    return df.selectExpr(*LATE)


def _by_word(df: DataFrame) -> DataFrame:
    return df.withColumn("key", f.col("word"))


MIXED = ("CAST(pmod(id, 1000) AS STRING) AS key", "id AS seq", "CAST(id AS STRING) AS value")
"""A record of one of a thousand keys; the later it comes, the greater it is."""


def _mixed(df: DataFrame) -> DataFrame:
    return df.selectExpr(*MIXED).repartition(7)


BALANCED = {"balanced": "sum(debit) = sum(credit)"}
"""A check of rows together."""


def booked(df: DataFrame, unbalanced: str) -> DataFrame:
    """Each row moves as much as its id says."""
    credit = f"CAST(IF({unbalanced}, 0, id) AS DECIMAL(20, 0)) AS credit"
    return df.selectExpr("id", "CAST(id AS DECIMAL(20, 0)) AS debit", credit)


def _without_word(where: str) -> Callable[[DataFrame], DataFrame]:
    return lambda df: df.withColumn("word", f.expr(f"if({where}, null, word)"))


def _told(job: Job) -> Callable[[DataFrame, int], None]:
    shaped = _with_value if job.speaks_kafka and not (job.outputs or job.expect) else None
    if job.late:
        shaped = _late
    if job.windows_in:
        shaped = _by_word
    if job.order:
        shaped = _mixed
    if job.unbalanced:
        shaped = partial(booked, unbalanced=job.unbalanced)
    if job.notes:
        shaped = partial(_noted, job.notes)
    if job.wordless:
        shaped = _without_word(job.wordless)
    quality = Quality(expect={"as expected": job.expect}, quarantine=job.sinks()[1]) if job.expect else None
    if job.unbalanced:
        apart = make_sink(f"postgres:{TABLE}_bad", job.target)
        quality = Quality(checks=BALANCED, quarantine=apart, on_broken="quarantine")
    write = exactly_once(
        *job.divided(),
        storage=Storage(ledger=job.ledger),
        transform=shaped,
        recovery=Recovery(on_refresh=job.on_refresh, adopt="here" if job.mends or job.writers else None),
        quality=quality,
        dedupe=Dedupe(key="id", within=job.once, store=_ids(job)) if job.once else None,
        event_time=_noting(job),
        windows=panes_of(job),
        lineage=OpenLineage(job.lineage) if job.lineage else None,
    )

    def batch(df: DataFrame, batch_id: int) -> None:
        say("begin", query=job.name, batch=batch_id)
        write(df, batch_id)
        say("end", query=job.name, batch=batch_id)

    return batch


def _ids(job: Job) -> Sink:
    return make_sink("delta", job.ids) if job.ids else make_sink(f"postgres:{SEEN}", job.target)


def _noting(job: Job) -> Any:
    if job.figure:
        return streaming102.cases()[job.figure].event_time
    if job.ingest:
        return "ingest"
    if job.follows:
        upstream = make_sink("kafka" if " " in job.inbox else "delta", job.inbox)
        return FromUpstream(upstream, pipeline=job.follows, unit="integer")
    time = EventTime("id", max_delay=DELAY if job.panes or job.windows_in else 0, unit="integer")
    if job.writers:
        return Writers(time, writers=job.writers)
    return time if job.timed or job.panes or job.windows_in else None


class _Gallows:
    """Holds each query at its point until the last one has come, then kills the process group."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.held = threading.Event()

    def arm(self, job: Job) -> None:
        self.held.clear()
        faults.disarm()
        for wish in filter(None, self._task.fault.split(",")):
            point, action, *hit = wish.split(":")
            together = action == "killgroup"
            act = partial(self._arrive, job, point) if together else partial(_strike, job, point, action)
            faults.arm(point, act, int(hit[0]) if hit else 1)
        if self._task.hold:
            point, file = self._task.hold
            faults.arm(point, partial(_hold, job, point, Path(file)))

    def _arrive(self, job: Job, point: str) -> None:
        say("at", query=job.name, point=point)
        if job is self._task.jobs[-1]:
            faults.ACTIONS["killgroup"]()
        self.held.set()
        time.sleep(3600)


def _strike(job: Job, point: str, action: str) -> None:
    say("struck", query=job.name, point=point)
    faults.ACTIONS[action]()


def _hold(job: Job, point: str, file: Path) -> None:
    say("hold", query=job.name, point=point)
    _await(file)


def _await(file: Path) -> None:
    while not file.exists():
        time.sleep(_POLL_S)


def _run(spark: SparkSession, job: Job, task: Task, gallows: _Gallows) -> bool:
    """Run a query to its end, or to where it is held; whether it did not fail."""
    gallows.arm(job)
    query = start(spark, job, _told(job))
    if task.graceful:
        _stop_on_sigterm(query)
    while query.isActive and not gallows.held.is_set():
        time.sleep(_POLL_S)
    failure = None if gallows.held.is_set() else query.exception()
    if failure is not None:
        print(f"{job.name}: {failure}", file=sys.stderr)
    return failure is None


def _stop_on_sigterm(query: StreamingQuery) -> None:
    def on_signal(*_: Any) -> None:
        say("sigterm")
        # The main thread may be in the middle of a call to the JVM, so the stop needs a connection of its own.
        threading.Thread(target=query.stop).start()

    signal.signal(signal.SIGTERM, on_signal)


def come_up() -> None:
    """Load what drivers load; but deltalake, which starts threads as soon as it is looked at."""
    for name in (
        "pandas",
        "pyarrow.parquet",
        "pyspark.sql.pandas.types",
        "onceonly.api.wrapper",
        "onceonly_sinks.postgres",
    ):
        importlib.import_module(name)


def main(argv: list[str]) -> int:
    """Start the session, await the task in ``argv[0]``, run it; ``done`` comes when all queries have ended."""
    end_with_parent()
    if is_warm():  # its JVM is its predecessor's until the task comes
        _await(Path(argv[0]))
    spark = session()
    say("up")
    _await(Path(argv[0]))
    task = Task.load(Path(argv[0]))
    gallows = _Gallows(task)
    ended_well = [_run(spark, job, task, gallows) for job in task.jobs]
    if all(ended_well):
        say("done")
    if not is_warm():
        end_jvm(spark)
    return 0 if all(ended_well) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
