"""What replays, rewinds and sealed reads cost: an epoch run again, an epoch brought back, a read point, a seal.

``python -m benchmarks.replay`` prints a table and writes it to ``results/replay.md``; about ten quiet minutes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

import psycopg

from benchmarks import machine, streams
from benchmarks import report as reports
from benchmarks.data import SCHEMAS, Shape, generate
from benchmarks.long import Lived
from onceonly import Storage, exactly_once
from onceonly.machine.rewind import BringUp, RewindRequest
from onceonly.protocol import Estimate
from onceonly.reading import read_point
from onceonly.replay import rewind
from onceonly.replay.recompute import Digests
from onceonly.replay.spark_replay import Replay
from onceonly.runtime.remedies import CommandContext
from onceonly.spark.batch import SparkBatch
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = Path(__file__).parent / "results"

FEW, MANY = Shape("replay", 4, 100), Shape("rewind", 16, 200_000, tasks=2)
EPOCHS = 100_000
"""Epochs of the ledger whose read point is asked for."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    Attributes:
        what: was measured.
        found: a figure for each round.
        unit: of it.
        most: the limit; less is better.
    """

    what: str
    found: Sequence[float]
    unit: str
    most: float

    @property
    def line(self) -> str:
        """The row: missed only where the better end of the spread misses."""
        lower, _, upper = quantiles(self.found, n=4)
        met = "" if lower <= self.most else ", missed"
        spread = f"{lower:.3g} to {upper:.3g}"
        return f"| {self.what} | {median(self.found):.3g} {self.unit} | {spread} | {self.most:g} {self.unit}{met} |"


def main() -> int:
    """Measure all of it; always 0: a figure that is missed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="figures of each kind")
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, help="epochs of the ledger that is asked for a read point"
    )
    asked = parser.parse_args()
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-replay-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        server = stack.enter_context(EmbeddedPostgres(root / "postgres"))
        spark = streams.session()
        stack.callback(spark.stop)
        about = machine.describe(server.dsn, spark.sparkContext._jvm.System.getProperty("java.version"))
        found = [
            replays(spark, root / "replay", asked.rounds),
            brought_up(spark, server.dsn, root / "rewind", asked.rounds),
            *points(root / "points", asked.epochs, asked.rounds),
            seals(server, root, asked.rounds),
        ]
    head = [
        "# What replays, rewinds and sealed reads cost",
        "",
        f"{reports.place(about)} By `python -m benchmarks.replay`.",
    ]
    table = ["", "| what | median | quartiles | limit |", "|---|--:|--:|--:|", *(one.line for one in found)]
    text = "\n".join([*head, *table, "", _ABOUT])
    print(text)
    if asked.epochs == EPOCHS:
        (RESULTS / "replay.md").write_text(text)
    return 0


_ABOUT = """An epoch run again is started on its own; what the same rows take as a batch, read and hashed, is taken off.
An epoch that is brought back from staged bytes is opened, fenced and committed by itself, and compared with what the
sink took for it the first time: PREPARE and COMMIT of the record. A read point is asked of an open ledger, and of one
that is opened for it. Sealed reads (`sealed_view=True`) cost a single sink nothing: its own commit says that it holds
the epoch. Of several sinks each gets a statement more once the epoch is recorded, which is not measured here.
"""


def _files(spark: SparkSession, shape: Shape) -> DataFrame:
    reader = spark.readStream.schema(SCHEMAS[shape.kind]).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(generate(shape)))


def _write(spark: SparkSession, shape: Shape, root: Path, wrapped: Callable[[DataFrame, int], None]) -> None:
    writer = _files(spark, shape).writeStream.queryName("orders").option("checkpointLocation", str(root / "checkpoint"))
    writer.trigger(availableNow=True).foreachBatch(wrapped).start().awaitTermination()


def replays(spark: SparkSession, root: Path, rounds: int) -> Figure:
    """Seconds that a replay takes for an epoch beyond what its rows take."""
    root.mkdir()
    place, sink = str(root / "ledger.db"), MemorySink(id="memory:orders")
    _write(spark, FEW, root, exactly_once(sink, storage=Storage(ledger=place)))
    with closing(SqlLedger(place)) as ledger:
        records = ledger.epochs("orders")
    replay = Replay(spark, lambda session: _files(session, FEW), records, str(root / "checkpoint"), place)
    numbers, files = range(1, FEW.epochs + 1), sorted(map(str, generate(FEW).glob("*.parquet")))
    found: list[float] = []
    for number in range(rounds + 1):
        begun = time.perf_counter()
        Digests(replay).apart(numbers, lambda *_: None)
        replayed = time.perf_counter() - begun
        begun = time.perf_counter()
        for file in files:
            SparkBatch(spark.read.parquet(file), Estimate(None, None), frozenset()).execute()
        alone = time.perf_counter() - begun
        if number:
            found.append((replayed - alone) / FEW.epochs)
        print(f"replay {number}: {replayed:.2f} s, {alone:.2f} s", file=sys.stderr)
    return Figure(f"an epoch of {FEW.rows} rows run again, beyond its plan", found, "s", 1.0)


def brought_up(spark: SparkSession, dsn: str, root: Path, rounds: int) -> Figure:
    """Times of its first write that an epoch takes which is brought back from staged bytes."""
    root.mkdir()
    place = str(root / "ledger.db")

    def sink() -> PostgresSink:
        return PostgresSink(dsn, table="orders")

    own = sink()
    _write(
        spark,
        MANY,
        root,
        exactly_once(own, storage=Storage(ledger=place, staging=root / "staged", keep_epochs=MANY.epochs)),
    )
    own.close()
    with closing(SqlLedger(place)) as ledger:
        firsts = {epoch.epoch.number: dict(epoch.phases) for epoch in ledger.epochs("orders")}
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("DROP TABLE orders")
            connection.execute("DROP SCHEMA onceonly CASCADE")
        with closing(sink()) as empty:
            of = rewind.Pipeline("orders", (empty,), ledger, CommandContext("orders", f" --ledger {place}"))
            asked = RewindRequest(0, (empty.id,))
            planned = rewind.plan(of, asked)
            assert isinstance(planned.direction, BringUp)
            found: list[float] = []
            for step in planned.direction.steps[: rounds + 1]:
                alone = replace(planned, direction=BringUp(step.epoch.number, (step,)))
                begun = time.perf_counter()
                rewind.bring_up(of, alone, asked, _nothing)
                took = time.perf_counter() - begun
                first = sum(firsts[step.epoch.number][phase] for phase in ("prepare", "commit"))
                if step.epoch.number > 1:  # the first makes the table
                    found.append(took / first)
                print(f"epoch {step.epoch.number}: {took:.2f} s, first {first:.2f} s", file=sys.stderr)
    return Figure(f"an epoch of {MANY.rows:,} rows brought back from its stage, by its first write", found, "x", 1.25)


def _nothing(*_: object) -> None:
    raise AssertionError("all of it is staged")


def points(root: Path, epochs: int, rounds: int) -> Iterator[Figure]:
    """Milliseconds that a read point takes of a ledger with many epochs."""
    root.mkdir()
    place = str(root / "ledger.db")
    with closing(Lived(MemorySink(id="memory:orders"), SqlLedger(place), "orders", carried=False, rows=0)) as lived:
        lived.grow(epochs)
    with closing(SqlLedger(place)) as ledger:
        near = [_milliseconds(lambda: read_point("orders", ledger=ledger)) for _ in range(rounds)]
    far = [_milliseconds(lambda: read_point("orders", ledger=place)) for _ in range(rounds)]
    yield Figure(f"a read point of {epochs:,} epochs, the ledger open", near, "ms", 5)
    yield Figure("the same, the ledger opened for it", far, "ms", 5)


def seals(server: EmbeddedPostgres, root: Path, rounds: int) -> Figure:
    """Milliseconds that sealed reads add to an epoch: two pipelines by turns, one of them with the view.

    Of a single sink the commit itself says it; of several each gets a statement more, which is not measured here.
    """

    def lived(name: str, *, seals: bool) -> Lived:
        dsn = server.database(name)
        ledger = SqlLedger(str(root / f"{name}.db"))
        return Lived(PostgresSink(dsn, table="orders", sealed_view=seals), ledger, "orders", carried=False)

    found: list[float] = []
    with closing(lived("plain", seals=False)) as plain, closing(lived("sealed", seals=True)) as sealed:
        both = (plain, sealed)
        for one in both:
            one.grow(_SETTLED)
        for _ in range(rounds):
            times: dict[Lived, list[float]] = {one: [] for one in both}
            for _ in range(_SETTLED):
                for one in both:
                    times[one].append(one.write().whole)
            found.append(median(times[sealed]) - median(times[plain]))
    return Figure("sealed reads of a single sink, in an epoch of 100 rows", found, "ms", 0.5)


_SETTLED = 50
"""Epochs before the first that counts, and of each round."""


def _milliseconds(act: Callable[[], object]) -> float:
    took: list[float] = []
    for _ in range(20):
        begun = time.perf_counter()
        act()
        took.append(time.perf_counter() - begun)
    return median(took) * 1000


if __name__ == "__main__":
    sys.exit(main())
