"""What the engine of Spark Connect is asked: versions, files that nothing but Spark reaches, plans by their text."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest
from integration.connect.streams import ConnectStream
from integration.targets import DeltaTarget
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.connect.plan import LogicalPlan

from onceonly.errors import ConfigurationError
from onceonly.spark.connect.reads import SessionFiles, size
from onceonly.spark.detect import engine_for
from onceonly_checkpoints.storage import LocalStorage

pytestmark = pytest.mark.connect

FIELDS = "spark.sql.debug.maxToStringFields"


def test_a_spark_whose_connect_is_too_old_is_refused(remote: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(ConfigurationError, match="E113") as caught:
        engine_for(remote.range(1))
    assert "Spark Connect needs PySpark 4.0 or newer" in caught.value.what


def test_what_spark_reads_of_a_checkpoint_is_what_lies_on_the_disk(
    connected: ConnectStream, delta: DeltaTarget
) -> None:
    connected.receive(range(3), range(3, 6)).write(delta.sink())
    by_spark = SessionFiles(connected.spark, f"file:{connected.checkpoint}")
    on_disk = LocalStorage(connected.checkpoint)
    for folder in ("offsets", "commits", "sources/0", "nowhere"):
        assert by_spark.names(folder) == on_disk.names(folder)
        assert by_spark.exists(folder) == on_disk.exists(folder)
    for file in ("metadata", "offsets/1", "sources/0/0"):
        assert by_spark.read(file) == on_disk.read(file)
    with pytest.raises(FileNotFoundError):
        by_spark.read("offsets/7")


def test_the_size_of_a_file_is_asked_of_spark(remote: SparkSession, tmp_path: Path) -> None:
    for name in ("plain", "[odd] {name}*?"):
        (tmp_path / name).write_bytes(os.urandom(17))
        assert size(remote, f"file:{tmp_path}/{name}") == 17
    assert size(remote, f"file:{tmp_path}/gone") is None


def test_what_spark_has_read_for_another_client_of_the_session_is_read_anew(
    remote: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every run's worker is a client of the one session, and each numbers its plans from nought: two of them come to ask
    # with the same numbers, and the server keeps plans by what it was asked.
    asked_first = LogicalPlan._nextPlanId
    by_spark = SessionFiles(remote, f"file:{tmp_path}")
    (tmp_path / "0").write_bytes(b"nought")
    assert by_spark.names("") == ("0",)
    (tmp_path / "1").write_bytes(b"one")
    monkeypatch.setattr(LogicalPlan, "_nextPlanId", asked_first)
    assert by_spark.names("") == ("0", "1")


def test_a_plan_is_looked_at_whole_and_the_session_stays_as_it_was(connected: ConnectStream) -> None:
    def wide(df: DataFrame) -> DataFrame:
        return df.select("*", *[f.lit(number).alias(f"c{number}") for number in range(40)], f.uuid().alias("last"))

    before = connected.spark.conf.get(FIELDS, None)
    found = engine_for(connected.read()).foreseen(wide(connected.read()))
    assert found.nondeterministic is not None
    assert found.nondeterministic.startswith("uuid(")
    assert (found.stateful, [source.reads_files for source in found.sources]) == (False, [True])
    assert connected.spark.conf.get(FIELDS, None) == before


@pytest.mark.parametrize(
    ("query", "stateful"),
    [
        ("select word, count(*) from stream group by word", True),
        ("select distinct word from stream", True),
        ("select id + 1 from stream where word <> 'x'", False),
    ],
)
def test_state_is_foreseen(connected: ConnectStream, query: str, stateful: bool) -> None:
    connected.read().createOrReplaceTempView("stream")
    assert engine_for(connected.read()).foreseen(connected.spark.sql(query)).stateful is stateful
