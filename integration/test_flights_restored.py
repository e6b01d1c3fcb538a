"""Real flights: a table that was set back is brought back; by another rule they are run again, compared, swapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.printed import obey, run
from integration.targets import Backup, PostgresTarget
from integration.test_publish import read_while
from pyspark.sql import DataFrame, SparkSession

from onceonly import Storage, exactly_once, replay
from onceonly_lab.demo import input
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

FILES = 8


class Delayed:
    """Flights that left late, by a rule that says what late is, into a table of its own.

    Args:
        spark: a session.
        home: of input, checkpoint and ledger.
        pg: a database.
    """

    def __init__(self, spark: SparkSession, home: Path, pg: PostgresTarget) -> None:
        self.spark, self.home, self.pg = spark, home, pg
        self.ledger, self.inbox = str(home / "ledger.db"), home / "flights"

    def job(self, minutes: int) -> Callable[[SparkSession], DataFrame]:
        def stream(spark: SparkSession) -> DataFrame:
            files = spark.readStream.schema(input.spark_schema()).options(**input.spark_options())
            read = files.option("maxFilesPerTrigger", 1).csv(str(self.inbox))
            return read.where(f"dep_delay > {minutes}").select("row", "carrier", "flight", "dep_delay")

        return stream

    def sink(self, table: str = "delayed") -> PostgresSink:
        return PostgresSink(self.pg.dsn, table=table)

    def start(self, minutes: int) -> Any:
        writer = self.job(minutes)(self.spark).writeStream.foreachBatch(
            exactly_once(self.sink(), storage=Storage(ledger=self.ledger))
        )
        writer = writer.queryName("delayed").option("checkpointLocation", str(self.home / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def rows(self) -> list[int]:
        return [row for (row,) in self.pg.says("select row from delayed order by row")]

    def audit(self) -> str:
        return run(["onceonly", "audit", "delayed", "--ledger", self.ledger, "--deep"])


def test_flights_are_brought_back_after_a_restore_and_swapped_after_a_rule_was_wrong(
    spark: SparkSession, tmp_path: Path, pg: PostgresTarget
) -> None:
    delayed = Delayed(spark, tmp_path, pg)
    input.write(tmp_path / "all", input.AVAILABLE, FILES)
    files = sorted((tmp_path / "all").glob("*.csv"))
    flights = input.read(tmp_path / "all").to_pylist()
    assert len(files) == FILES
    delayed.inbox.mkdir()

    def arrive(some: list[Path]) -> None:
        for file in some:
            (delayed.inbox / file.name).write_bytes(file.read_bytes())

    def late(minutes: int) -> list[int]:
        """By the values, without Spark."""
        return sorted(flight["row"] for flight in flights if (flight["dep_delay"] or 0) > minutes)

    # Three epochs back, from a backup of that night.
    arrive(files[:4])
    delayed.start(15).awaitTermination()
    backup = Backup(pg.dsn)
    arrive(files[4:7])
    delayed.start(15).awaitTermination()
    backup.put_back()
    arrive(files[7:])
    with pytest.raises(Exception, match="ONCE-E207") as refused:
        delayed.start(15).awaitTermination()
    obey(str(refused.value), "recover rewind")
    delayed.start(15).awaitTermination()
    assert delayed.rows() == late(15)
    assert delayed.audit().startswith("EXACTLY ONCE")

    # The rule was wrong: late is more than half an hour.
    told = {"ledger": delayed.ledger, "spark": spark}
    again = replay.rerun("delayed", job=delayed.job(30), into=delayed.sink("delayed_v2"), **told)
    differs = again.diff(spark, delayed.sink())
    assert differs is not None
    assert (differs.less, differs.more) == (len(late(15)) - len(late(30)), 0)
    assert {sign for sign, _ in differs.examples} == {"-"}
    assert {row.row for _, row in differs.examples} <= set(late(15)) - set(late(30))
    swaps = {"source": delayed.sink("delayed_v2"), "sink": delayed.sink()}
    seen = read_while(delayed.rows, lambda: replay.publish("delayed~v2", over="delayed", **swaps, **told))
    assert (seen[0], seen[-1]) == (late(15), late(30))
    assert all(one in (late(15), late(30)) for one in seen)
    delayed.start(30).awaitTermination()
    assert delayed.rows() == late(30)
    assert delayed.audit().startswith("EXACTLY ONCE")
