"""Delta tables that Spark reads and may commit to: what the tests of the sink beside a real Spark share."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable
from tests.sinks.flat_options import delta_sink

from onceonly.protocol import Estimate
from onceonly.spark.batch import SparkBatch
from onceonly_checkpoints.epoch import Receipt
from onceonly_lab.conformance import SinkHarness
from onceonly_lab.conformance.scenario import PIPELINE, Driver
from onceonly_sinks.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLUSTERED = "CREATE TABLE delta.`{path}` (id BIGINT, step BIGINT, note STRING) USING delta CLUSTER BY (id)"
"""deltalake reads a clustered table and refuses to commit to it."""

UNKNOWN = Estimate(None, None)
"""Of a batch whose size nobody knows: executors write it."""


class SparkHarness(SinkHarness):
    """Batches are Spark's; each driver may have other options than the one before.

    Args:
        spark: the shared session.
        path: of the table.
        create: SQL that makes the table, with ``{path}`` in it.
        sink: its class.
        options: of the sink.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        create: str | None = None,
        *,
        sink: type[DeltaSink] = DeltaSink,
        **options: Any,
    ) -> None:
        self.path = path
        self.options = options
        self._sink = sink
        self.estimate: Estimate | None = None
        self._spark = spark
        if create:
            spark.sql(create.format(path=path))

    def connect(self) -> DeltaSink:
        return delta_sink(self.path, self._sink, **self.options)

    def rows(self) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(self.path)):
            return []
        return [row.asDict() for row in self._spark.read.format("delta").load(str(self.path)).collect()]

    def set_back(self, epoch: int) -> int:
        with closing(self.connect()) as sink:
            sink.open(PIPELINE)
            [version] = [one.at("version") for marker, one in sink.history() if marker.epoch.number == epoch]
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{self.path}`")
        # By the moment, as people do: the commit then names no version.
        [[moment]] = history.where(f"version = {version}").selectExpr("cast(timestamp AS string)").collect()
        self._spark.sql(f"RESTORE TABLE delta.`{self.path}` TO TIMESTAMP AS OF '{moment}'")
        return epoch

    def maintain(self) -> None:
        self._spark.sql(f"OPTIMIZE delta.`{self.path}`")

    def batch(self, table: pa.Table, *, duplicate_attempts: bool = False, breaks_off: bool = False) -> SparkBatch:
        frame: DataFrame = self._spark.createDataFrame(table)
        if breaks_off:
            frame = frame.selectExpr("id", "if(id >= 0, raise_error('broken off'), step) step", "note")
        return SparkBatch(frame, self.estimate or Estimate(table.num_rows, table.nbytes))


def operations(path: Path) -> list[str]:
    """Who made each version of a table, oldest first."""
    return [entry["engineInfo"].split("/")[0].split(":")[0] for entry in reversed(DeltaTable(path).history())]


def writes(driver: Driver, harness: SparkHarness, rows: pa.Table) -> Receipt:
    """Let a driver write these rows as its next epoch."""
    planned = driver.plan()
    return driver.commits(planned, driver.sink.prepare(harness.batch(rows), planned.epoch.number))
