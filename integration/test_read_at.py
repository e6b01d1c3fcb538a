"""Sinks read by Spark as of one epoch: the same rows as without it, when they are asked for, while epochs go on."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.core.several import rows
from tests.sinks.kafka_harness import PARTITIONS, as_records
from tests.sinks.test_rows_by_epoch import One

from onceonly import OnceOnlyError
from onceonly.reading import read_at, read_point
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.postgres import Keep, PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kafka]

KINDS: Mapping[str, dict[str, Any]] = {
    "delta": {},
    "delta numbered": {"tuning": DeltaTuning(epoch_column="_epoch")},
    "delta upsert": {"key": "id"},
    "postgres": {},
    "postgres history": {"key": "id", "keep": Keep(history="all")},
    "postgres upsert": {"key": "id"},
    "kafka": {},
    "memory": {},
}


def now(*kinds: str) -> pytest.MarkDecorator:
    """Sinks of these kinds; the others among the slow tests."""
    params = [kind if kind in kinds else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
    return pytest.mark.parametrize("one", params, indirect=True)


@pytest.fixture
def one(request: pytest.FixtureRequest, tmp_path: Path) -> One:
    kind, options = request.param.split()[0], KINDS[request.param]
    if kind == "delta":
        return One(tmp_path, lambda: DeltaSink(tmp_path / "rows", **options))
    if kind == "postgres":
        server: Any = request.getfixturevalue("any_postgres")
        dsn = server.database(f"read_at_{uuid.uuid4().hex[:8]}")
        return One(tmp_path, lambda: PostgresSink(dsn, "target", **options))
    if kind == "memory":
        store = MemoryStore()
        return One(tmp_path, lambda: MemorySink("memory:a", store))
    broker: Any = request.getfixturevalue("any_kafka")
    topic = broker.topic(f"read-at-{uuid.uuid4().hex[:8]}", PARTITIONS)
    return One(tmp_path, lambda: KafkaSink(broker.servers, topic, id=f"kafka:{topic}"), as_records)


@now("postgres")
def test_spark_reads_what_is_read_without_it(one: One, spark: SparkSession) -> None:
    one.written(1, 2, 3)
    newest_alone = "key=" in one.make().address and "history" not in one.make().address and "postgres" in one.make().id
    for epoch in (3,) if newest_alone else (1, 2, 3):
        whole = read_at("orders", epoch, one.make(), ledger=one.ledger)
        frame = read_at("orders", epoch, one.make(), ledger=one.ledger, spark=spark)
        assert told(row.asDict() for row in frame.collect()) == told(whole.to_pylist())
        assert len(whole) == 10 * epoch
    one.ledger.close()


@now("delta")
def test_a_frame_stays_that_of_its_epoch_however_late_it_is_read(one: One, spark: SparkSession) -> None:
    driver = one.driver()
    driver.writes(1, 2, table=one.shape(rows(1)))
    try:
        frame = read_at("orders", 2, one.make(), ledger=one.ledger, spark=spark)
        before = frame.count()
        driver.writes(3, table=one.shape(rows(3)))
        assert frame.count() == before
    finally:
        driver.sinks[0].close()
        one.ledger.close()


@now("postgres")
def test_spark_reads_later_rows_alone(one: One, spark: SparkSession) -> None:
    one.written(1, 2, 3)
    address = one.make().address
    if "key=" in address and "history" not in address:
        with pytest.raises(OnceOnlyError, match="E244"):
            read_at("orders", 3, one.make(), ledger=one.ledger, spark=spark, since=1)
    else:
        assert read_at("orders", 3, one.make(), ledger=one.ledger, spark=spark, since=1).count() == 20
    one.ledger.close()


@pytest.mark.slow
def test_the_statement_of_a_point_is_one_that_spark_runs(spark: SparkSession, tmp_path: Path) -> None:
    one = One(tmp_path, lambda: DeltaSink(tmp_path / "rows")).written(1, 2, 3)
    assert spark.sql(read_point("orders", 2, ledger=one.ledger).sql(one.make())).count() == 20
    one.ledger.close()


def told(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows as text; when a record came is spelled in the zone of whoever reads."""
    plain = [{name: bytes(v) if isinstance(v, bytearray) else v for name, v in row.items()} for row in found]
    return sorted(str({name: value for name, value in row.items() if name != "timestamp"}) for row in plain)
