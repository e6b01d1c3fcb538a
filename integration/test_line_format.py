"""What each line of Spark must do that has data sources in Python: ``format("onceonly")``; others refuse it by name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from integration.datasources import SourceStream
from integration.targets import DeltaTarget, PostgresTarget, events
from integration.test_datasource import every_type, stream_ledger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly import exactly_once
from onceonly.errors import ConfigurationError
from onceonly_checkpoints.ledger import EventKind

pytestmark = [pytest.mark.spark, pytest.mark.source]

HAS_DATA_SOURCES = find_spec("pyspark.sql.datasource") is not None

needs_data_sources = pytest.mark.skipif(not HAS_DATA_SOURCES, reason="this PySpark has no data sources in Python")


def every_type_in_autumn(df: DataFrame) -> DataFrame:
    """Of every type, with times in the hour that clocks of New York pass twice."""
    return every_type(df).withColumn("autumn", f.timestamp_seconds(f.lit(1383454800) + f.col("id") * 600))


@needs_data_sources
def test_rows_and_digest_are_those_of_foreach_batch(spark: SparkSession, tmp_path: Path) -> None:
    one, other = SourceStream(spark, tmp_path / "one"), SourceStream(spark, tmp_path / "other")
    here, there = DeltaTarget(str(tmp_path / "here")), DeltaTarget(str(tmp_path / "there"))
    for stream in (one, other):
        stream.receive(range(40), range(40, 100))
    one.run_to(here.sink(), shape=every_type_in_autumn)
    other.run(exactly_once(there.sink()), shape=every_type_in_autumn)
    epochs = []
    for stream in (one, other):
        with stream_ledger(str(stream.checkpoint.with_name("ck.onceonly.db"))) as ledger:
            epochs.append([(record.epoch.digest, record.epoch.schema) for record in ledger.epochs("orders")])
    assert epochs[0] == epochs[1]
    assert [digest.rows for digest, _ in epochs[0]] == [40, 60]
    in_order = [("id", "ascending")]
    assert here.table.to_pyarrow_table().sort_by(in_order) == there.table.to_pyarrow_table().sort_by(in_order)


@needs_data_sources
@pytest.mark.postgres
def test_a_replay_is_skipped_and_state_is_compared(spark: SparkSession, tmp_path: Path, pg: PostgresTarget) -> None:
    stream = SourceStream(spark, tmp_path).receive(range(10), range(5, 15))
    said = {"shape": lambda df: df.dropDuplicates(["id"]), "deterministic": "true"}
    stream.run_to(pg.sink(), **said)
    stream.remove("commits", 1)
    stream.receive(range(10, 20)).run_to(pg.sink(), **said)
    assert pg.ids() == [*range(20)]
    with stream_ledger(pg.dsn) as ledger:
        assert len(events(ledger, EventKind.SKIPPED)) == 1


@pytest.mark.skipif(HAS_DATA_SOURCES, reason="this PySpark has data sources in Python")
def test_the_format_is_refused_by_name_where_there_are_no_data_sources(spark: SparkSession, tmp_path: Path) -> None:
    import pyspark_onceonly

    with pytest.raises(ConfigurationError, match=r'format\("onceonly"\) needs PySpark 4.0 or newer') as caught:
        pyspark_onceonly.DefaultSource  # noqa: B018
    assert caught.value.code == "E113"
    stream = SourceStream(spark, tmp_path).receive(range(3))
    with pytest.raises(Exception, match="onceonly"):
        stream.run_to(DeltaTarget(str(tmp_path / "table")).sink())
