"""What a filter in front of the table of seen ids could save: the price of each epoch's question.

``python -m benchmarks.dedupe`` prints a table and writes it to ``results/dedupe.md``. One query writes into a Postgres
that knows ten million ids. Every other epoch asks for those ids alone that are known, as behind a filter that never
errs and costs nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import streams
from onceonly import Dedupe, Storage, exactly_once
from onceonly.protocol.batch import AsOf
from onceonly.protocol.capabilities import Lookup
from onceonly.quality.spark_dedupe import DedupingBatch
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.postgres import PostgresSink

RESULTS = Path(__file__).parent / "results"
KNOWN = 10_000_000
SHARES = (0.01, 0.5)
SIZES = (100, 100_000)
EPOCH = 1_700_000_000
SETTLING = 4
"""Epochs that are not counted: Spark compiles, Postgres fills its cache."""


@dataclass(frozen=True)
class Filtered:
    """Asks for the known ids alone."""

    lookup: Lookup
    known: frozenset[bytes]

    def __call__(self, pieces: Iterator[Sequence[bytes]]) -> Iterator[Collection[bytes]]:
        """Yield the known ids of each piece."""
        return self.lookup([row_id for row_id in piece if row_id in self.known] for piece in pieces)


def main() -> int:
    """Measure all sizes and shares; always 0: the table has the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dedupe", description=__doc__)
    parser.add_argument("--pairs", type=int, default=15, help="of epochs, asked and filtered (default %(default)s)")
    asked = parser.parse_args()
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-dedupe-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        spark = streams.session()
        stack.callback(spark.stop)
        server = stack.enter_context(EmbeddedPostgres(root / "postgres"))
        lines = ["# What a filter in front of seen ids could save", ""]
        lines += ["| rows per epoch | known before | asks for all | asks for the known alone | times | spread |"]
        lines += ["|--:|--:|--:|--:|--:|--:|"]
        for size in SIZES:
            for share in SHARES:
                lines += [measured(spark, server.dsn, root / f"{size}-{share}", size, share, asked.pairs)]
    text = "\n".join(lines)
    print(text)
    (RESULTS / "dedupe.md").write_text(f"{text}\n\n{_ABOUT}")
    return 0


def measured(spark: SparkSession, dsn: str, root: Path, size: int, share: float, pairs: int) -> str:
    """Run one query, and return its row of the table."""
    (root / "in").mkdir(parents=True)
    pg, name = PostgresSink(dsn, "orders"), f"orders_{size}_{int(100 * share)}"
    known_ids = Dedupe(key="id", within="30 days", store=pg.table("seen"))
    write = exactly_once(pg, name=name, dedupe=known_ids, storage=Storage(ledger=dsn))
    repeats, epochs = int(size * share), SETTLING + 2 * pairs
    known = {epoch: range(1 + epoch * repeats, 1 + (epoch + 1) * repeats) for epoch in range(epochs)}
    put(root, -1, [0])
    run(spark, root, write)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FILL, (KNOWN,))
        connection.execute("VACUUM ANALYZE seen")
    for epoch in range(epochs):
        fresh = range(KNOWN + 1 + epoch * size, KNOWN + 1 + (epoch + 1) * size - repeats)
        put(root, epoch, [*known[epoch], *fresh])
    plain, turn = DedupingBatch.as_of, iter(range(epochs))

    def as_of(batch: DedupingBatch, moment: AsOf) -> DedupingBatch:
        placed, epoch = plain(batch, moment), next(turn)
        if epoch % 2 and placed._lookup:
            placed._lookup = Filtered(placed._lookup, frozenset(map(id_of, known[epoch])))
        return placed

    DedupingBatch.as_of = as_of  # type: ignore[method-assign,assignment]
    try:
        took = run(spark, root, write)[SETTLING:]
    finally:
        DedupingBatch.as_of = plain  # type: ignore[method-assign]
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone()
        connection.execute("DROP TABLE orders, seen")
        connection.execute("DROP SCHEMA onceonly CASCADE")
    if row != (wanted := 1 + epochs * (size - repeats), wanted):
        raise streams.WrongRows(f"{name}: {row} rows, not {wanted}")
    times = [asked / filtered for asked, filtered in zip(took[::2], took[1::2], strict=True)]
    low, _, high = quantiles(times, n=4)
    columns = (f"{size:,}", f"{share:.0%}", f"{median(took[::2]):,.0f} ms", f"{median(took[1::2]):,.0f} ms")
    return f"| {' | '.join(columns)} | {median(times):.2f} | {low:.2f}-{high:.2f} |"


FILL = """INSERT INTO seen (id, at, _epoch)
SELECT substring(sha256(number::text::bytea) FROM 1 FOR 16), now(), 1 FROM generate_series(1, %s) AS number"""


def id_of(number: int) -> bytes:
    """Return the id of a row with this number."""
    return hashlib.sha256(str(number).encode()).digest()[:16]


def put(root: Path, epoch: int, ids: Sequence[int]) -> None:
    """Add a file, which is an epoch. Spark takes files by their time."""
    path = root / "in" / f"{epoch + 1:04}.parquet"
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
    os.utime(path, (EPOCH + epoch, EPOCH + epoch))


def run(spark: SparkSession, root: Path, write: object) -> list[float]:
    """Write what there is, and return ``durationMs.triggerExecution`` of each epoch."""
    files = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(str(root / "in"))
    writer = files.writeStream.trigger(availableNow=True).foreachBatch(write)
    query = writer.option("checkpointLocation", str(root / "checkpoint")).start()
    query.awaitTermination()
    return [one["durationMs"]["triggerExecution"] for one in query.recentProgress if "addBatch" in one["durationMs"]]


_ABOUT = """- Both ways take turns, epoch by epoch, in one query. Times are the median of the quotients of neighbours.
  The spread is their quartiles.
- A filter was to pay twofold somewhere, or be left out.
"""

if __name__ == "__main__":
    raise SystemExit(main())
