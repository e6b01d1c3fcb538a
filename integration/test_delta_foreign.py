"""Others change a Delta table by Spark while a query writes it: let pass as an event, or refused, as was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from integration.delta_by_spark import CLUSTERED, SparkHarness
from integration.printed import obey
from integration.streams import FileStream
from integration.targets import DeltaTarget

from onceonly import exactly_once
from onceonly.audit import audit
from onceonly.errors import IdentityError
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.conformance.story import Driver, Plan, Story
from onceonly_sinks.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PASSING = {
    "DELETE FROM {t} WHERE note = 'row 0 of 1'": "deletes",
    "UPDATE {t} SET note = 'x' WHERE note = 'row 0 of 1'": "changes",
    "MERGE INTO {t} t USING (SELECT 1L step) s ON t.step = s.step WHEN MATCHED THEN DELETE": "changes",
    "INSERT OVERWRITE {t} SELECT 1L, 1L, 'x'": "changes",
    "INSERT INTO {t} VALUES (1, 1, 'x')": "appends",
}
"""What Spark may do, with the lowest rung that lets it pass."""

QUIET = (
    "OPTIMIZE {t}",
    "OPTIMIZE {t} ZORDER BY (id)",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "REORG TABLE {t} APPLY (PURGE)",
    "ALTER TABLE {t} ADD COLUMNS (later INT)",
    "ALTER TABLE {t} ALTER COLUMN later COMMENT 'later'",
    "VACUUM {t}",
)
RUNGS = ("nothing", "appends", "deletes", "changes")

VECTORED = ("DELETE", "UPDATE")
"""What is tried with deletion vectors every time: others write what they write without, or as an UPDATE does."""

ON_TABLES = [
    pytest.param(
        statement,
        vectors,
        marks=pytest.mark.slow if vectors and not statement.startswith(VECTORED) else (),
        id=f"{statement}-{'vectors' if vectors else 'files'}",
    )
    for statement in PASSING
    for vectors in (False, True)
]


@pytest.mark.parametrize(("statement", "vectors"), ON_TABLES)
def test_spark_changes_a_table_and_the_rung_decides(
    spark: SparkSession, tmp_path: Path, statement: str, vectors: bool
) -> None:
    lowest = RUNGS.index(PASSING[statement])
    path = tmp_path / "rows"
    harness = SparkHarness(spark, path, foreign=RUNGS[lowest])
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        if vectors:
            spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        spark.sql(statement.format(t=f"delta.`{path}`"))
        if lowest:
            harness.options = {"foreign": RUNGS[lowest - 1]}
            strict = story.stranger(7, "strict")
            strict.sink.install(strict.fence)
            assert [one.fatal for one in strict.position().disturbances] == [True]
            harness.options = {"foreign": RUNGS[lowest]}
            driver = story.driver(8)
            assert [(one.fatal, one.allowed) for one in driver.position().disturbances] == [(False, True)]
            driver.writes()
        prepared.abandon()


def test_what_spark_does_without_changing_a_row_passes_on_the_lowest_rung(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Story(SparkHarness(spark, path, foreign="nothing")) as story:
        driver = story.driver()
        driver.writes()
        planned = driver.plan()
        receipt = driver.tries(planned)
        for statement in QUIET:
            spark.sql(statement.format(t=f"delta.`{path}`"))
            planned, receipt = goes_on(driver, planned, receipt)


def goes_on(driver: Driver, last: Plan, receipt: Receipt) -> tuple[Plan, Receipt]:
    """Write the epoch after the last, of which nothing is to be told, neither by its receipt nor by the commit.

    The driver is not asked for its position: it would be told what was done, and judge it no more.
    """
    assert driver.sink.disturbances(receipt) == ()  # type: ignore[attr-defined]
    planned = driver.plan(after=last.epoch)
    written = driver.tries(planned)
    assert driver.sink.passed() == ()  # type: ignore[attr-defined]
    return planned, written


def test_a_compaction_by_hand_as_deltas_manual_has_it_passes_on_the_lowest_rung(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "rows"
    with Story(SparkHarness(spark, path, foreign="nothing")) as story:
        driver = story.driver()
        written = [driver.writes(), driver.plan()]
        receipt = driver.tries(written[-1])
        rows = spark.read.format("delta").load(str(path)).repartition(1)
        rows.write.format("delta").option("dataChange", "false").mode("overwrite").save(str(path))
        assert len(DeltaTable(path).file_uris()) == 1
        written.append(goes_on(driver, written[-1], receipt)[0])
        story.holds(*written)


@pytest.mark.slow
def test_a_clustered_table_is_clustered_anew_without_a_word(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Story(SparkHarness(spark, path, CLUSTERED, foreign="nothing")) as story:
        driver = story.driver()
        planned = driver.plan()
        receipt = driver.tries(planned)
        spark.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (step)")
        spark.sql(f"OPTIMIZE delta.`{path}` FULL")
        goes_on(driver, planned, receipt)


def test_an_erasure_request_does_not_stop_a_stream_that_allows_it(spark: SparkSession, tmp_path: Path) -> None:
    path, ledger = tmp_path / "rows", tmp_path / "ledger.db"
    stream = FileStream(spark, tmp_path)
    for number, foreign in enumerate(("deletes", "deletes", "appends")):
        stream.receive(range(number * 10, number * 10 + 10))
        wrapped = exactly_once(DeltaSink(path, foreign=foreign), name="erased", ledger=str(ledger))
        if foreign == "appends":
            with pytest.raises(Exception, match="E209") as stopped:
                stream.run(wrapped)
            assert isinstance(stopped.value, IdentityError) or "E209" in str(stopped.value)
        else:
            stream.run(wrapped)
        spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 5 = 0")
    events = SqlLedger(str(ledger)).events("erased")
    foreign_events = [event for event in events if event.kind is EventKind.FOREIGN]
    assert [event.reason.split(",")[0] for event in foreign_events] == ["delta:rows: DELETE as version 3"]
    reader = DeltaSink(path, foreign="deletes")
    result = audit(None, "erased", [reader])
    assert result.spoken.startswith("EXACTLY ONCE ("), result.text


def test_a_change_between_two_epochs_of_a_run_is_refused_and_the_restart_prints_what_leads_on(
    stream: FileStream, delta: DeltaTarget, ledger: SqlLedger
) -> None:
    def erased(df: DataFrame) -> DataFrame:
        if DeltaTable.is_deltatable(delta.path) and 1 in delta.ids():
            stream.spark.sql(f"DELETE FROM delta.`{delta.path}` WHERE id = 1")
        return df

    said = stream.receive(range(5), range(5, 10)).fail(exactly_once(delta.sink(), ledger=ledger, before=erased))
    assert "[ONCE-E209]" in said
    assert "restart the query: its opening prints" in said
    assert "LEDGER" not in said
    said = stream.fail(exactly_once(delta.sink(), ledger=ledger))
    assert "[ONCE-E209]" in said
    obey(said, "--accept-change")
    stream.run(exactly_once(delta.sink(), ledger=ledger))
    assert delta.ids() == [0, 2, 3, 4, *range(5, 10)]
