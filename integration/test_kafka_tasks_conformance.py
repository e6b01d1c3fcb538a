"""The Kafka sink passes the whole suite where Spark's tasks send the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from integration.delta_by_spark import UNKNOWN
from tests.sinks.kafka_harness import KafkaHarness, as_records

from onceonly.protocol import Batch
from onceonly.spark.batch import SparkBatch
from onceonly_lab.conformance.harness import Claim
from onceonly_lab.conformance.suite import CLAIMS
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaTuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


class ByTasks(KafkaHarness):
    """Batches are Spark's."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkSession) -> None:
        super().__init__(kafka, tuning=KafkaTuning(driver_limit=1))
        self._spark: SparkSession | None = spark

    def __getstate__(self) -> dict[str, Any]:
        """A driver in a process of its own has no Spark, and sends its rows itself."""
        return {**super().__getstate__(), "_spark": None}

    def another(self) -> ByTasks:
        assert self._spark
        return ByTasks(self._kafka, self._spark)

    def batch(self, table: pa.Table, *, duplicate_attempts: bool = False, breaks_off: bool = False) -> Batch:
        if self._spark is None:
            return super().batch(table, duplicate_attempts=duplicate_attempts, breaks_off=breaks_off)
        frame = self._spark.createDataFrame(as_records(table))
        if breaks_off:
            frame = frame.selectExpr("key", "if(value IS NOT NULL, raise_error('broken off'), value) AS value")
        return SparkBatch(frame, UNKNOWN)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_sent_by_tasks(claim: Claim, spark: SparkSession, kafka: EmbeddedKafka) -> None:
    claim.check(ByTasks(kafka, spark), seconds=300)
