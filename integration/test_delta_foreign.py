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

from onceonly import ExactlyOnce, Storage, exactly_once
from onceonly.audit import audit
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario
from onceonly_sinks.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

APPENDING = "INSERT INTO {t} VALUES (1, 1, 'x')"
PASSING = {
    "DELETE FROM {t} WHERE note = 'row 0 of {n}'": "deletes",
    "UPDATE {t} SET note = 'x' WHERE note = 'row 0 of {n}'": "changes",
    "MERGE INTO {t} t USING (SELECT {n}L step) s ON t.step = s.step WHEN MATCHED THEN DELETE": "changes",
    "INSERT OVERWRITE {t} SELECT 1L, 1L, 'x'": "changes",
    APPENDING: "appends",
}
"""What Spark may do to the rows of epoch ``n``, with the lowest rung that lets it pass."""

VECTORS = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
RUNGS = ("nothing", "appends", "deletes", "changes")

VECTORED = tuple(statement for statement in PASSING if statement.startswith(("DELETE", "UPDATE")))
"""What writes deletion vectors in a way of its own: the others write what they write without, or as an UPDATE does."""

OTHERS = tuple(statement for statement in PASSING if statement not in VECTORED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "vectored"),
    [((APPENDING,), VECTORED), (tuple(PASSING), OTHERS)],
    ids=["each rung", "all others"],
)
def test_spark_changes_a_table_and_the_rung_decides(
    spark: SparkSession, tmp_path: Path, without: tuple[str, ...], vectored: tuple[str, ...]
) -> None:
    """One after the other: an epoch, a change to its rows, a driver that is too strict for it, and one that is not."""
    path = tmp_path / "rows"
    harness = SparkHarness(spark, path, external_changes="changes")
    told = {}
    with Scenario(harness) as story:
        number = story.driver().writes().epoch.number
        for statement in (*without, f"ALTER TABLE {{t}} SET {VECTORS}", *vectored):
            spark.sql(statement.format(t=f"delta.`{path}`", n=number))
            if statement not in PASSING:
                continue
            lowest = RUNGS.index(PASSING[statement])
            found = []
            for rung in RUNGS[lowest - 1 : lowest + 1]:
                harness.options = {"external_changes": rung}
                driver = story.driver()
                found.append(
                    [(disturbance.fatal, disturbance.allowed) for disturbance in driver.position().disturbances]
                )
            if found != [[(True, False)], [(False, True)]]:
                told[statement] = found
            number = driver.writes().epoch.number
    assert told == {}, "a rung below the lowest, and the lowest: whether it is fatal, and allowed"


PURGE = "REORG TABLE {t} APPLY (PURGE)"
COMPACTED = "rewritten in one file as Delta's manual has it"
QUIET = {
    PURGE: "REORG",
    "OPTIMIZE {t}": "OPTIMIZE",
    "ALTER TABLE {t} ADD COLUMNS (later INT)": "ADD COLUMNS",
    "VACUUM {t}": "VACUUM END",
    COMPACTED: "WRITE",
    "OPTIMIZE {t} ZORDER BY (id)": "OPTIMIZE",
    "ALTER TABLE {t} SET TBLPROPERTIES ('nightly' = 'yes')": "SET TBLPROPERTIES",
    "ALTER TABLE {t} ALTER COLUMN later COMMENT 'later'": "CHANGE COLUMN",
}
"""What Spark does without changing a row, and what Delta's history calls it."""


FEW = ("OPTIMIZE {t}", "ALTER TABLE {t} ADD COLUMNS (later INT)")


@pytest.mark.parametrize("statements", [FEW, pytest.param((*QUIET,), marks=pytest.mark.slow)], ids=["few", "all"])
def test_what_spark_does_without_changing_a_row_passes_on_the_lowest_rung(
    spark: SparkSession, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    path = tmp_path / "rows"
    table = f"delta.`{path}`"
    harness = SparkHarness(spark, path, external_changes="nothing")
    before = []
    if PURGE in statements:  # a deletion vector, from before the first epoch
        before = [1]
        spark.sql(f"CREATE TABLE {table} (id BIGINT, step BIGINT, note STRING) USING delta {VECTORS}")
        spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, 0L, 'old' FROM range(2)")
        spark.sql(f"DELETE FROM {table} WHERE id = 0")
    told = {}
    with Scenario(harness) as story:
        driver = story.driver()
        written = [driver.writes(), driver.plan()]
        receipt = driver.tries(written[-1])
        for statement in statements:
            if statement == COMPACTED:
                rows = spark.read.format("delta").load(str(path)).repartition(1)
                rows.write.format("delta").option("dataChange", "false").mode("overwrite").save(str(path))
                assert len(DeltaTable(path).file_uris()) == 1
            else:
                spark.sql(statement.format(t=table))
            [newest] = DeltaTable(path).history(1)
            # The driver is not asked for its position: it would be told what was done, and judge it no more.
            found = driver.sink.external_changes(receipt)  # type: ignore[attr-defined]
            if (newest["operation"], found) != (QUIET[statement], ()):
                told[statement] = newest["operation"], found
        written.append(driver.plan(after=written[-1].epoch))
        driver.tries(written[-1])
        assert told == {}, "what was done last, and what is told of it"
        assert driver.sink.tolerated_now() == ()  # type: ignore[attr-defined]
    ids = [*before, *(one for planned in written for one in planned.ids)]
    assert sorted(row["id"] for row in harness.rows()) == ids


def goes_on(driver: Driver, last: PlannedEpoch, receipt: Receipt) -> tuple[PlannedEpoch, Receipt]:
    """Write the epoch after the last, of which nothing is to be told, neither by its receipt nor by the commit.

    The driver is not asked for its position: it would be told what was done, and judge it no more.
    """
    assert driver.sink.external_changes(receipt) == ()  # type: ignore[attr-defined]
    planned = driver.plan(after=last.epoch)
    written = driver.tries(planned)
    assert driver.sink.tolerated_now() == ()  # type: ignore[attr-defined]
    return planned, written


@pytest.mark.slow
def test_a_clustered_table_is_clustered_anew_without_a_word(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Scenario(SparkHarness(spark, path, CLUSTERED, external_changes="nothing")) as story:
        driver = story.driver()
        planned = driver.plan()
        receipt = driver.tries(planned)
        spark.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (step)")
        spark.sql(f"OPTIMIZE delta.`{path}` FULL")
        goes_on(driver, planned, receipt)


@pytest.mark.slow
def test_an_erasure_request_stops_a_stream_that_does_not_allow_it_and_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, ledger = tmp_path / "rows", tmp_path / "ledger.db"
    stream = FileStream(spark, tmp_path)

    def wrapped(foreign: str) -> ExactlyOnce:
        return exactly_once(
            DeltaSink(path, external_changes=foreign), name="erased", storage=Storage(ledger=str(ledger))
        )

    stream.receive(range(10)).run(wrapped("deletes"))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 5 = 0")
    assert "[ONCE-E209]" in stream.receive(range(10, 20)).fail(wrapped("appends"))
    stream.run(wrapped("deletes"))
    events = SqlLedger(str(ledger)).events("erased")
    foreign_events = [event for event in events if event.kind is EventKind.EXTERNAL_CHANGE]
    assert [event.reason.split(",")[0] for event in foreign_events] == ["delta:rows: DELETE as version 3"]
    reader = DeltaSink(path, external_changes="deletes")
    result = audit(None, "erased", [reader])
    assert result.spoken.startswith("EXACTLY ONCE ("), result.text
    assert DeltaTarget(str(path)).ids() == [number for number in range(20) if number % 5 or number >= 10]


@pytest.mark.slow
def test_a_change_between_two_epochs_of_a_run_is_refused_and_the_restart_prints_what_leads_on(
    stream: FileStream, delta: DeltaTarget, ledger: SqlLedger
) -> None:
    def erased(df: DataFrame) -> DataFrame:
        if DeltaTable.is_deltatable(delta.path) and 1 in delta.ids():
            stream.spark.sql(f"DELETE FROM delta.`{delta.path}` WHERE id = 1")
        return df

    said = stream.receive(range(5), range(5, 10)).fail(
        exactly_once(delta.sink(), storage=Storage(ledger=ledger), transform=erased)
    )
    assert "[ONCE-E209]" in said
    assert "restart the query: its opening prints" in said
    assert "LEDGER" not in said
    said = stream.fail(exactly_once(delta.sink(), storage=Storage(ledger=ledger)))
    assert "[ONCE-E209]" in said
    obey(said, "--accept-change")
    stream.run(exactly_once(delta.sink(), storage=Storage(ledger=ledger)))
    assert delta.ids() == [0, 2, 3, 4, *range(5, 10)]
