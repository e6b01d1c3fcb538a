"""A client of Spark Connect to kill: it starts queries and starts again those that fail, until a file says stop.

What the callback of a query strikes by its wish happens inside of the worker, at a named point: of the worker itself,
of the server, or of this process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from integration.jobs import SCHEMA, Job
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import onceonly
from onceonly import Storage, exactly_once, faults

_POLL_S = 0.1


@dataclass(frozen=True)
class Wish:
    """One kill that is wanted.

    Attributes:
        number: tells it from others.
        victim: ``worker``, ``server`` or ``client``.
        point: where in the callback.
        linger_s: for how long a worker stays within the callback, once its server is dead and its watch is blind;
            ``None``: it goes on at once, and its watch sees.
    """

    number: int
    victim: str
    point: str
    linger_s: float | None = None


def wish(folder: Path, query: str, wanted: Wish) -> None:
    """Have the next batch of a query struck."""
    hidden = folder / f".wish-{query}"
    hidden.write_text(json.dumps(asdict(wanted)))
    hidden.rename(folder / f"wish-{query}")


def fired(folder: Path) -> list[dict[str, Any]]:
    """What was struck, in order."""
    file = folder / "fired"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def strike(folder: str, query: str, df: DataFrame) -> DataFrame:
    """``transform=`` of each query: takes a wish; rows as all sinks take them."""
    place = Path(folder)
    with suppress(FileNotFoundError):
        taken = (place / f"wish-{query}").rename(place / f"taken-{query}-{os.getpid()}-{time.time_ns()}")
        wanted = Wish(**json.loads(taken.read_text()))
        faults.arm(wanted.point, partial(_strike, place, query, wanted))
    if query.endswith("kafka"):
        return df.select("*", f.col("id").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value"))
    return df


def _strike(folder: Path, query: str, wanted: Wish) -> None:
    server = os.getppid()
    line = json.dumps({**asdict(wanted), "query": query, "pid": os.getpid()}).encode() + b"\n"
    file = os.open(folder / "fired", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if wanted.victim == "server" and wanted.linger_s is not None:
        os.getppid = lambda: server
    victim = {"worker": os.getpid(), "server": server}.get(wanted.victim) or int((folder / "client").read_text())
    os.write(file, line)
    os.close(file)
    os.kill(victim, signal.SIGKILL)
    until = time.monotonic() + (wanted.linger_s or 0)
    while time.monotonic() < until and not (folder / "go").exists():
        time.sleep(0.02)


def start(spark: SparkSession, folder: Path, job: Job) -> StreamingQuery:
    """Start a query that goes on until it is stopped, a file a batch."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(job.inbox)
    writer = files.writeStream.trigger(processingTime="50 milliseconds")
    before = partial(strike, str(folder), job.name)
    sinks = job.sinks()
    return onceonly.start(
        writer,
        exactly_once(
            *sinks,
            name=job.name,
            checkpoint=job.checkpoint,
            transform=before,
            storage=Storage(ledger=job.ledger),
        ),
    )


def session(url: str) -> SparkSession:
    """A session of one's own, which is told at once that the server is gone."""
    made: Any = SparkSession.builder.remote(url).create()
    made.client.set_retry_policies([])
    return made


def say(**facts: object) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


def _told(error: BaseException | None) -> Mapping[str, object]:
    refused = onceonly.errors.refusal(error) if error is not None else None
    return {"code": refused.code if refused else None, "said": f"{type(error).__name__}: {error}"[:2000]}


def serve(url: str, folder: Path, jobs: list[Job]) -> None:
    """Keep all queries running until there is a file ``stop``."""
    spark = session(url)
    queries = {job.name: start(spark, folder, job) for job in jobs}
    say(event="up")
    while not (folder / "stop").exists():
        for job in jobs:
            if not queries[job.name].isActive:
                say(event="failed", query=job.name, **_told(queries[job.name].exception()))
                queries[job.name] = start(spark, folder, job)
        time.sleep(_POLL_S)
    for query in queries.values():
        query.stop()


def main(url: str, folder: Path) -> None:
    """Serve, and begin again where the server is gone."""
    hidden = folder / ".client"
    hidden.write_text(str(os.getpid()))
    hidden.rename(folder / "client")
    told = json.loads((folder / "jobs.json").read_text())
    jobs = [Job(**{**job, "also": tuple(map(tuple, job["also"]))}) for job in told]
    while not (folder / "stop").exists():
        try:
            serve(url, folder, jobs)
        except Exception as error:  # a server that dies is told in many ways
            say(event="lost", **_told(error))
            time.sleep(_POLL_S)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
