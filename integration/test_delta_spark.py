"""The Delta sink beside a real Spark: both committers on one table, what Spark does to it, what Spark reads of it."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from onceonly import exactly_once, faults
from onceonly.errors import DestinationError, IdentityError
from onceonly.protocol import Estimate, OutcomeUnknown, Superseded
from onceonly.sparkbatch import SparkBatch
from onceonly_checkpoints.epoch import Fence, Receipt
from onceonly_sinks.conformance import SinkHarness
from onceonly_sinks.conformance.story import PIPELINE, Driver, Story
from onceonly_sinks.delta import DeltaSink, Merge
from onceonly_sinks.delta.sparkcommitter import SparkCommitter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CLUSTERED = "CREATE TABLE delta.`{path}` (id BIGINT, step BIGINT, note STRING) USING delta CLUSTER BY (id)"
"""deltalake reads a clustered table and refuses to commit to it."""

UNKNOWN = Estimate(None, None)


class SparkHarness(SinkHarness):
    """Batches are Spark's; each driver may have other options than the one before."""

    def __init__(self, spark: SparkSession, path: Path, create: str | None = None, **options: Any) -> None:
        self.path = path
        self.options = options
        self.estimate: Estimate | None = None
        self._spark = spark
        if create:
            spark.sql(create.format(path=path))

    def connect(self) -> DeltaSink:
        return DeltaSink(self.path, **self.options)

    def rows(self) -> list[dict[str, Any]]:
        return [row.asDict() for row in self._spark.read.format("delta").load(str(self.path)).collect()]

    def batch(self, table: pa.Table, **_: bool) -> SparkBatch:
        return SparkBatch(self._spark.createDataFrame(table), self.estimate or Estimate(table.num_rows, table.nbytes))


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> SparkHarness:
    return SparkHarness(spark, tmp_path / "rows")


def operations(path: Path) -> list[str]:
    return [entry["engineInfo"].split("/")[0].split(":")[0] for entry in reversed(DeltaTable(path).history())]


def test_both_committers_interleaved_on_one_table_stay_exact(harness: SparkHarness) -> None:
    with Story(harness) as story:
        written = []
        for committer in ("log", "spark", "log", "spark"):
            harness.options = {"committer": committer}
            driver = story.driver()
            written += [driver.writes(rows=5), driver.writes(rows=0 if committer == "spark" else 3)]
        story.holds(*written)
        assert {"delta-rs", "Apache-Spark"} <= set(operations(harness.path))
        assert sum((story.reader().recount() or {}).values()) == 2 * 5 + 2 * 8


def test_a_driver_of_one_committer_is_fenced_by_a_driver_of_the_other(harness: SparkHarness) -> None:
    with Story(harness) as story:
        written = [story.driver().writes()]
        for mine, theirs in (("spark", "log"), ("log", "spark")):
            harness.options = {"committer": mine}
            zombie = story.driver()
            planned = zombie.plan()
            prepared = zombie.prepares(planned)
            harness.options = {"committer": theirs}
            owner = story.driver()
            with pytest.raises(Superseded):
                zombie.commits(planned, prepared)
            written.append(owner.writes())
        story.holds(*written)


def test_spark_skips_a_stale_commit_without_a_word_and_is_found_out(harness: SparkHarness, spark: SparkSession) -> None:
    harness.options = {"committer": "spark"}
    with Story(harness) as story:
        zombie = story.driver()
        first = zombie.writes()
        planned = zombie.plan()
        prepared = zombie.prepares(planned)
        table = zombie.sink._open.table  # type: ignore[attr-defined]
        checks = table.check_retention

        def then_overtake() -> None:
            table.check_retention = checks
            checks()
            story.driver()

        table.check_retention = then_overtake
        with pytest.raises(Superseded):
            zombie.commits(planned, prepared)
        story.holds(first)


@pytest.mark.slow
def test_a_table_that_only_spark_writes_is_written_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", CLUSTERED)
    with Story(harness) as story:
        driver = story.driver()
        written = [driver.writes(), driver.writes(rows=0)]
        planned = driver.plan()
        prepared = driver.prepares(planned)
        faults.arm("commit.sent", "raise")
        with pytest.raises(OutcomeUnknown):
            driver.commits(planned, prepared)
        faults.disarm()
        prepared.abandon()
        assert driver.looks_up(planned) is not None
        absent = driver.plan()
        assert driver.looks_up(absent) is None
        story.holds(*written, planned, driver.writes())
        assert set(operations(harness.path)) == {"Apache-Spark"}


@pytest.mark.slow
def test_a_large_merge_goes_through_spark_and_equals_a_dict(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", key="id", sequence="step", driver_limit=0)
    model: dict[int, tuple[int, str]] = {}
    with Story(harness) as story:
        driver = story.driver()
        for changes in (
            [(1, 5, "a"), (1, 7, "b"), (2, 1, "c")],
            [(1, 6, "late"), (2, 2, "d"), (3, 1, "e")],
            [(2, 2, "equal"), (3, 0, "old")],
            [],
        ):
            for key, step, note in changes:
                if key not in model or step > model[key][0]:
                    model[key] = (step, note)
            ids, steps, notes = zip(*changes, strict=True) if changes else ((), (), ())
            rows = pa.table(
                {
                    "id": pa.array(ids, pa.int64()),
                    "step": pa.array(steps, pa.int64()),
                    "note": pa.array(notes, pa.string()),
                }
            )
            planned = driver.plan()
            prepared = driver.sink.prepare(harness.batch(rows), planned.epoch.number)
            driver.commits(planned, prepared)
        assert {row["id"]: (row["step"], row["note"]) for row in harness.rows()} == model
        assert driver.position().epoch == 4
        assert "Apache-Spark" in operations(harness.path)


def writes(driver: Driver, harness: SparkHarness, rows: pa.Table) -> Receipt:
    planned = driver.plan()
    return driver.commits(planned, driver.sink.prepare(harness.batch(rows), planned.epoch.number))


BY_HAND = (
    Merge("t.id = s.id")
    .when_matched_delete("s.gone AND s.step > t.step")
    .when_matched_update("NOT s.gone AND s.step > t.step")
    .when_not_matched_insert("NOT s.gone")
    .leaving_out("gone")
)
MERGES: list[Any] = [{"key": "id", "sequence": "step", "delete": "gone"}, {"merge": BY_HAND}]


@pytest.mark.parametrize("options", [MERGES[0], pytest.param(MERGES[1], marks=pytest.mark.slow)], ids=["key", "merge"])
def test_both_committers_merge_and_remove_alike(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    epochs = (
        [(1, 5, False), (2, 5, False), (3, 5, False), (4, 5, True)],
        [(1, 4, True), (2, 6, True), (3, 6, False), (4, 6, False)],
        [(1, 9, True), (2, 1, False), (9, 1, True)],
    )
    for committer in ("log", "spark"):
        harness = SparkHarness(spark, tmp_path / committer, committer=committer, **options)
        with Story(harness) as story:
            driver = story.driver()
            for changes in epochs:
                ids, steps, gone = zip(*changes, strict=True)
                writes(driver, harness, pa.table({"id": ids, "step": steps, "gone": gone, "no`te": ["x"] * len(ids)}))
            kept = sorted((row["id"], row["step"], row["no`te"]) for row in harness.rows())
            assert kept == [(2, 1, "x"), (3, 6, "x"), (4, 6, "x")]
            assert "gone" not in harness.rows()[0]
            assert driver.position().epoch == 3


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.slow), pytest.param(MERGES[0], marks=pytest.mark.slow), MERGES[1]],
    ids=["append", "key", "merge"],
)
def test_spark_adds_columns_in_the_version_that_brings_them(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    narrow = pa.table({"id": [1], "step": [1], "gone": [False]})
    wide = pa.table({"id": [2, 1], "step": [2, 2], "gone": [False, False], "x.1": [1.5, 2.5]})
    if not options:
        narrow, wide = narrow.drop_columns("gone"), wide.slice(0, 1).drop_columns("gone")
    harness = SparkHarness(spark, tmp_path / "rows", committer="spark", schema="add_columns", **options)
    with Story(harness) as story:
        driver = story.driver()
        writes(driver, harness, narrow)
        before = DeltaTable(harness.path)
        receipt = writes(driver, harness, wide)
        after = DeltaTable(harness.path)
        assert receipt.at("version") == before.version() + 1 == after.version()
        assert after.metadata().id == before.metadata().id
        assert [field.name for field in after.schema().fields] == ["id", "step", "x.1"]
        found = sorted((row["id"], row["x.1"]) for row in harness.rows())
        assert found == [(1, 2.5 if options else None), (2, 1.5)]
        writes(driver, harness, narrow.set_column(1, "step", pa.array([9])).append_column("x.1", pa.array([0.5])))


@pytest.mark.slow
def test_what_spark_refuses_of_a_merge_is_told_and_the_next_epoch_goes(spark: SparkSession, tmp_path: Path) -> None:
    total = {"step": "t.step + s.step"}
    for on, rows in (("t.id = s.id", 2), ("t.id = s.nothing", 1), ("t.id = = s.id", 1)):
        merge = Merge(on).when_matched_update(None, total).when_not_matched_insert()
        harness = SparkHarness(spark, tmp_path / str(len(on)), committer="spark", key="id")
        with Story(harness) as story:
            writes(story.driver(), harness, pa.table({"id": [1], "step": [1]}))
            harness.options = {"committer": "spark", "merge": merge}
            driver = story.driver()
            with pytest.raises(DestinationError) as refused:
                writes(driver, harness, pa.table({"id": [1] * rows, "step": range(rows)}))
            assert refused.value.code == "E520", str(refused.value)
            harness.options = {"merge": BY_HAND}
            writes(story.driver(), harness, pa.table({"id": [1], "step": [7], "gone": [False]}))
            assert harness.rows() == [{"id": 1, "step": 7}]


@pytest.mark.slow
def test_a_merge_leaves_no_settings_behind_that_would_stamp_other_writes(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", key="id", committer="spark")
    other = str(tmp_path / "other")
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        for _ in range(2):
            spark.range(3).write.format("delta").mode("append").save(other)
        assert spark.read.format("delta").load(other).count() == 6
        assert DeltaTable(other).transaction_version(driver.sink._open.table.app) is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(("ids", "code"), [([1, None], "E504"), ([1, 1], "E505")])
def test_keys_that_no_merge_can_use_are_refused_by_spark_too(
    spark: SparkSession, tmp_path: Path, ids: list[int | None], code: str
) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", key="id", committer="spark")
    with Story(harness) as story:
        driver = story.driver()
        rows = pa.table({"id": pa.array(ids, pa.int64()), "step": [1, 1], "note": ["a", "b"]})
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(harness.batch(rows), 1)
        assert refused.value.code == code
        assert not list((harness.path / "_onceonly_staging").rglob("*.parquet"))


def test_staging_of_lower_generations_is_swept_and_nothing_else(harness: SparkHarness) -> None:
    harness.options = {"committer": "spark"}
    with Story(harness) as story:
        lost = story.driver()
        lost.prepares(lost.plan())
        owner = story.driver()
        prepared = owner.prepares(planned := owner.plan())
        staged = set((harness.path / "_onceonly_staging").glob("*/*"))
        owner.sink.sweep()
        kept = set((harness.path / "_onceonly_staging").glob("*/*"))
        assert [path.name.split("-")[0] for path in staged - kept] == ["g1"]
        owner.commits(planned, prepared)
        assert not set((harness.path / "_onceonly_staging").glob("*/*"))
        story.holds(planned)


@pytest.mark.parametrize(
    "options",
    [
        {"key": "id", "driver_limit": 0},
        pytest.param({"committer": "spark"}, marks=pytest.mark.slow),
        pytest.param({"driver_limit": 0}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_streaming_query_reaches_the_table_whichever_way(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    name = f"way{uuid.uuid4().hex[:8]}"
    for number in range(3):
        spark.range(number * 10, number * 10 + 10).write.mode("append").parquet(str(tmp_path / "source"))
        query = (
            spark.readStream.schema("id BIGINT")
            .parquet(str(tmp_path / "source"))
            .writeStream.queryName(name)
            .foreachBatch(exactly_once(DeltaSink(tmp_path / "rows", **options)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    read = spark.read.format("delta").load(str(tmp_path / "rows"))
    assert sorted(row.id for row in read.collect()) == list(range(30))
    by_spark = "Apache-Spark" in operations(tmp_path / "rows")
    assert by_spark == ("key" in options or "committer" in options)


# ---- what Spark does to a table


def test_spark_maintenance_between_epochs_disturbs_nothing(harness: SparkHarness, spark: SparkSession) -> None:
    with Story(harness) as story:
        driver = story.driver()
        written = [driver.writes() for _ in range(3)]
        spark.sql(f"OPTIMIZE delta.`{harness.path}`")
        spark.sql(f"ALTER TABLE delta.`{harness.path}` SET TBLPROPERTIES ('nightly' = 'yes')")
        written.append(driver.writes())
        later = story.driver()
        assert later.position().disturbances == ()
        story.has_rows_of(*written, later.writes())


@pytest.mark.slow
def test_a_restore_by_spark_is_found_although_it_keeps_the_application_version(
    harness: SparkHarness, spark: SparkSession
) -> None:
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        version = DeltaTable(harness.path).version()
        planned = driver.writes()
        following = driver.plan()
        spark.sql(f"RESTORE TABLE delta.`{harness.path}` TO VERSION AS OF {version}")
        with pytest.raises(IdentityError) as refused:
            driver.tries(following)
        assert refused.value.code == "E209"
        position = story.driver().position()
        assert position.epoch == planned.epoch.number
        assert [(found.kind, found.fatal) for found in position.disturbances] == [("restored", True)]


def test_create_or_replace_is_found_although_it_keeps_the_application_version(
    harness: SparkHarness, spark: SparkSession
) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    columns = "(id BIGINT, step BIGINT, note STRING)"
    spark.sql(f"CREATE TABLE {name} {columns} USING delta LOCATION '{harness.path}'")
    try:
        with Story(harness) as story:
            driver = story.driver()
            receipt = driver.tries(driver.plan())
            following = driver.plan()
            spark.sql(f"CREATE OR REPLACE TABLE {name} {columns} USING delta LOCATION '{harness.path}'")
            with pytest.raises(IdentityError) as refused:
                driver.tries(following)
            assert refused.value.code == "E208"
            position = story.driver().position()
            assert position.identity != receipt.identity
            assert {(found.kind, found.fatal) for found in position.disturbances} >= {("recreated", True)}
    finally:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.long
def test_a_clone_is_another_table_than_the_one_that_was_written(
    harness: SparkHarness, spark: SparkSession, tmp_path: Path
) -> None:
    harness.options = {"id": "delta:rows"}
    with Story(harness) as story:
        driver = story.driver()
        receipt = driver.tries(driver.plan())
        following = driver.plan()
        clone = tmp_path / "clone"
        spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{harness.path}`")
        harness.path = clone
        pointed = story.driver()
        position = pointed.position()
        assert position.identity != receipt.identity
        assert (position.marker, position.has_rows) == (None, True)
        with pytest.raises(IdentityError) as refused:
            pointed.tries(following)
        assert refused.value.code == "E209"


def test_a_named_table_is_found_through_the_catalog_and_later_without_it(spark: SparkSession, tmp_path: Path) -> None:
    name = f"orders{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, step BIGINT, note STRING) USING delta LOCATION '{tmp_path}/t'")
    try:
        sink = DeltaSink(name)
        sink.open(PIPELINE)
        assert sink.id == f"delta:{name}"
        found = DeltaSink.from_address(sink.address)
        assert (found.id, found.address) == (sink.id, sink.address)
        assert str(tmp_path) in sink.address
        with pytest.raises(DestinationError) as refused:
            DeltaSink("no_such_table").open(PIPELINE)
        assert refused.value.code == "E508"
    finally:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.slow
def test_describe_history_shows_the_marker_whichever_committer_wrote_it(
    harness: SparkHarness, spark: SparkSession
) -> None:
    with Story(harness) as story:
        for committer in ("log", "spark"):
            harness.options = {"committer": committer}
            driver = story.driver()
            planned = driver.writes()
            shown = spark.sql(f"DESCRIBE HISTORY delta.`{harness.path}` LIMIT 1").collect()[0].userMetadata
            assert json.loads(shown)["marker"] == driver.marker(planned.epoch).to_json()


# ---- what Spark reads of what executors and driver wrote


SCHEMA = """id BIGINT, small TINYINT, i INT, f FLOAT, d DOUBLE, n DECIMAL(20,4), s STRING, b BINARY, flag BOOLEAN, day
DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, tags ARRAY<STRING>, facts MAP<STRING, INT>, nested STRUCT<x: INT, y:
ARRAY<STRUCT<z: DATE>>>"""

ROWS = [
    (
        1, 7, -5, 1.5, math.nan, decimal.Decimal("1234567890123456.7891"), "naïve 🧾", b"\x00\xff", True,
        dt.date(1582, 10, 15), dt.datetime(2024, 2, 29, 23, 59, 59, 999999), dt.datetime(1969, 12, 31, 23, 59, 59, 1),
        ["a", None], {"k": 1}, (1, [(dt.date(2020, 1, 1),)]),
    ),
    (2, None, None, None, None, None, None, None, None, None, None, None, None, None, None),
    (
        3, -128, 2**31 - 1, -0.0, math.inf, decimal.Decimal("-0.0001"), "", b"", False,
        dt.date(9999, 12, 31), dt.datetime(1970, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        [], {}, (None, None),
    ),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "estimate", [UNKNOWN, pytest.param(Estimate(3, 1000), marks=pytest.mark.slow)], ids=["executors", "driver"]
)
def test_spark_reads_back_every_type_as_it_was_written(spark: SparkSession, tmp_path: Path, estimate: Estimate) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA).repartition(2)
    sink = DeltaSink(tmp_path / "types")
    driver = _Plain(sink)
    driver.writes(SparkBatch(frame, estimate))
    read = spark.read.format("delta").load(str(tmp_path / "types"))
    assert [(f.name, f.dataType) for f in read.schema] == [(f.name, f.dataType) for f in frame.schema]
    assert _texts(read) == _texts(frame)
    for condition in (
        "d > 1e300", "isnan(d)", "f <= 0", "i = 2147483647", "n < 0", "s = ''", "day >= date'9999-01-01'",
        "at >= timestamp'2024-02-29 23:59:59.9999'", "wall < timestamp_ntz'1969-12-31 23:59:59.000002'",
        "wall >= timestamp_ntz'9999-12-31 23:59:59.999999'", "s IS NULL", "small < -100", "nested.x = 1",
    ):  # fmt: skip
        assert _texts(read.filter(condition)) == _texts(frame.filter(condition)), condition
    sink.close()


def test_spark_finds_the_rows_of_every_partition_that_executors_wrote(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(n, text, day, flag) for n, (text, day, flag) in enumerate(
        [("a b/c=d%", dt.date(2024, 2, 29), True), (None, None, None), ("naïve", dt.date(1582, 10, 15), False)] * 3
    )]  # fmt: skip
    frame = spark.createDataFrame(rows, "id BIGINT, s STRING, day DATE, flag BOOLEAN").repartition(2)
    sink = DeltaSink(tmp_path / "parts", partition_by=["s", "day", "flag"])
    _Plain(sink).writes(SparkBatch(frame, UNKNOWN))
    read = spark.read.format("delta").load(str(tmp_path / "parts"))
    assert _texts(read) == _texts(frame)
    for condition in ("s IS NULL", "s = 'a b/c=d%'", "day < date'1600-01-01'", "flag", "s = 'naïve' AND NOT flag"):
        assert _texts(read.filter(condition)) == _texts(frame.filter(condition)), condition
    sink.close()


class _Plain:
    """Writes one batch as the first epoch."""

    def __init__(self, sink: DeltaSink) -> None:
        self.sink = sink
        sink.open(PIPELINE)
        sink.install(Fence(1, "me"))

    def writes(self, batch: SparkBatch) -> None:
        from onceonly_checkpoints.epoch import Marker
        from onceonly_sinks.conformance.story import plan

        marker = Marker(PIPELINE, self.sink.id, Fence(1, "me"), plan(None, self.sink.id).epoch)
        self.sink.commit(self.sink.prepare(batch, 1), marker)


def _texts(frame: DataFrame) -> Counter[str]:
    return Counter(row[0] for row in frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect())


def test_executors_write_what_lies_with_them_and_the_counts_are_theirs(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows")
    harness.estimate = UNKNOWN
    with Story(harness) as story:
        driver = story.driver()
        first = driver.writes(rows=50)
        batch = harness.batch(pa.table({"id": range(1000), "step": [0] * 1000, "note": ["x"] * 1000}))
        prepared = driver.sink.prepare(batch, 2)
        assert prepared.rows == batch.digest().rows == 1000
        story.has_rows_of(first)
        prepared.abandon()
        story.holds(first, driver.writes())


@pytest.mark.slow
def test_generated_columns_are_computed_and_constraints_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    name = f"gen{uuid.uuid4().hex[:8]}"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, step BIGINT, note STRING, twice BIGINT GENERATED ALWAYS AS (id * 2))"
        f" USING delta LOCATION '{tmp_path}/rows'"
    )
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (step > 0)")
    try:
        for committer in ("log", "spark"):
            harness = SparkHarness(spark, tmp_path / "rows", committer=committer)
            with Story(harness) as story:
                driver = story.stranger(1 if committer == "log" else 2, committer)
                driver.fences()
                driver.writes()
                assert all(row["twice"] == 2 * row["id"] for row in harness.rows())
                bad = pa.table({"id": [1], "step": [0], "note": ["x"]})
                planned = driver.plan()
                with pytest.raises(DestinationError) as refused:
                    driver.commits(planned, driver.sink.prepare(harness.batch(bad), planned.epoch.number))
                assert refused.value.code == "E503", committer
                driver.writes()
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_no_commit_is_called_absent_while_the_jvm_may_still_be_at_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", CLUSTERED)
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        monkeypatch.setattr(SparkCommitter, "_busy", {driver.sink._open.table.app})  # type: ignore[attr-defined]
        with pytest.raises(OutcomeUnknown):
            driver.looks_up(driver.plan())
