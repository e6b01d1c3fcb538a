"""Epochs computed again through real Spark: equal, located where they differ, and told why where they cannot be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.recorded import BATCHES, ROWS, Inbox, Kept, Recorded, counted, timed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly import replay
from onceonly.audit.certificate import Certificate, RecomputedRange
from onceonly.errors import OnceOnlyError

pytestmark = pytest.mark.spark

EQUAL, DIFFERS, CANNOT = map(str, RecomputedRange)


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Six epochs of a file source, run once."""
    return Kept(spark, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def orders(kept: Kept) -> Recorded:
    """The six epochs, as they were left."""
    return kept.put_back().orders


@pytest.fixture
def inbox(kept: Kept) -> Inbox:
    """Their files."""
    return kept.put_back().inbox


def again(
    orders: Recorded, job: Callable[[SparkSession], DataFrame] | None = None, epochs: range | None = None, **more: Any
) -> Certificate:
    return replay.recompute("orders", epochs, job=job or orders.job, ledger=orders.ledger, spark=orders.spark, **more)


def shown(found: Certificate) -> list[tuple[int, int, str]]:
    return [(span.first, span.last, str(span.answer)) for span in found.spans]


def alter(inbox: Inbox, number: int) -> None:
    """Somebody changes a row of a file that was read, and nothing else."""
    path = inbox.home / f"part-{number:04d}.parquet"
    table = pq.read_table(path)
    ids = [*table.column("id").to_pylist()[:-1], 1_000_000]
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)


def test_a_query_gives_again_what_its_epochs_recorded(orders: Recorded) -> None:
    found = again(orders)
    assert shown(found) == [(1, BATCHES, EQUAL)]
    assert f"{BATCHES} of {BATCHES} epochs of orders" in found.text
    assert "spark.sql.session.timeZone=" in found.text
    assert found.spans[0].recorded.rows == BATCHES * ROWS


def test_a_row_that_was_altered_in_the_source_is_located(orders: Recorded, inbox: Inbox) -> None:
    alter(inbox, 3)
    assert shown(again(orders)) == [(1, 3, EQUAL), (4, 4, DIFFERS), (5, 6, EQUAL)]


@pytest.mark.slow
def test_other_code_differs_and_files_that_are_gone_are_told(orders: Recorded, inbox: Inbox) -> None:
    (inbox.home / "part-0000.parquet").unlink()
    found = again(orders, lambda spark: orders.job(spark).where("id <> 12"))
    assert shown(found)[0] == (1, 1, CANNOT)
    assert "part-0000.parquet is gone (E230)" in found.text
    assert [one for one in shown(found) if one[2] == DIFFERS] == [(3, 3, DIFFERS)]
    assert "epoch 3: 4 rows, and 5 on record" in found.text


@pytest.mark.slow
@pytest.mark.parametrize("shape", [timed, counted])
def test_rows_that_hang_on_clock_or_state_are_computed_one_by_one(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, shape: Callable[[DataFrame], DataFrame]
) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, shape).run()
    last = orders.records[-1].epoch.number
    assert shown(again(orders)) == [(1, last, EQUAL)]
    if shape is counted:
        shutil.rmtree(orders.checkpoint)
        assert shown(again(orders, epochs=range(3, 5))) == [(3, 4, CANNOT)]
        assert shown(again(orders, epochs=range(3, 5), state="beginning")) == [(3, 4, EQUAL)]


@pytest.mark.slow
def test_a_query_by_chance_proves_nothing(spark: SparkSession, tmp_path: Path, inbox: Inbox) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, lambda df: df.withColumn("chance", f.rand())).run()
    found = again(orders)
    assert shown(found) == [(1, BATCHES, CANNOT)]
    assert "rand(" in found.text


def test_epochs_that_are_not_on_record_are_not_computed(orders: Recorded) -> None:
    with pytest.raises(OnceOnlyError, match="does not hold epoch 7") as refused:
        again(orders, epochs=range(3, 9))
    assert refused.value.code == "E110"


@pytest.mark.slow
def test_a_thousand_epochs_are_one_batch_and_an_altered_row_is_found_in_twelve(
    spark: SparkSession, tmp_path: Path
) -> None:
    inbox = Inbox(tmp_path)
    inbox.put(1000)
    orders = Recorded(spark, tmp_path, inbox.source).run()
    shaped: list[DataFrame] = []

    def before(df: DataFrame) -> DataFrame:
        shaped.append(df)  # the stream once, for its plan, and each batch
        return df

    assert shown(again(orders, transform=before)) == [(1, 1000, EQUAL)]
    assert len(shaped) == 1 + 1
    alter(inbox, 332)
    assert [one for one in shown(again(orders, transform=before)) if one[2] != EQUAL] == [(333, 333, DIFFERS)]
    assert len(shaped) <= 2 + 1 + 12


JOB = """
def stream(spark):
    return spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet({inbox!r})
"""


@pytest.mark.slow
def test_an_audit_computes_again_and_says_so_on_its_page(spark: SparkSession, tmp_path: Path, inbox: Inbox, pg) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, sink=pg.sink()).run()
    (tmp_path / "jobs.py").write_text(JOB.format(inbox=str(inbox.home)))
    words = ["replay", "check", "1..6", "--query", "orders", "--ledger", orders.ledger, "--with", "jobs:stream"]

    def audit(*more: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).parent / "onceonly"
        typed = [program, *words, *more]
        return subprocess.run(typed, capture_output=True, text=True, timeout=180, cwd=tmp_path, check=False)

    clean = audit("--html", "page.html")
    assert clean.returncode == 0, clean.stdout + clean.stderr
    assert "RECOMPUTED EQUAL" in clean.stdout
    assert "epochs 1..6: 30 rows" in clean.stdout
    assert "A187" in (tmp_path / "page.html").read_text()
    alter(inbox, 3)
    found = audit()
    assert found.returncode == 1, found.stdout + found.stderr
    assert "A185 epoch 4" in found.stdout
