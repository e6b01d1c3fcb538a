"""The Python blocks of the documentation that need Spark run as they stand, with the names they take for granted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from integration.streams import FileStream
from integration.targets import PostgresTarget
from pyspark.sql import SparkSession
from tests.test_docs import CONSOLE, FILE, KNOWN, PAGES, ROOT, SQL, blocks, name, run

from onceonly import exactly_once
from onceonly.errors.read_refusal import read
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.delta import DeltaSink

pytestmark = [pytest.mark.spark, pytest.mark.docs]

README = ROOT / "README.md"


def spark_blocks(page: Path) -> list[Any]:
    return [block for block in blocks(page.read_text()) if block.info == "python spark"]


@pytest.mark.parametrize("page", [page for page in PAGES if spark_blocks(page) and page != README], ids=name)
def test_a_page_with_spark_can_be_followed_to_its_end(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [
        block
        for block in blocks(page.read_text())
        if block.info in {*KNOWN, CONSOLE, SQL} or FILE.fullmatch(block.info)
    ]
    given: dict[str, object] = {}
    if any(block.info == SQL for block in found):
        # Roles belong to a whole server, so it is one that goes with the tests.
        server: EmbeddedPostgres = request.getfixturevalue("postgres")
        given["dsn"] = server.database(f"docs_{page.stem.replace('-', '_')}")
        monkeypatch.setenv("ONCEONLY_LEDGER", str(given["dsn"]))
    run(page, found, given)


def test_the_spark_blocks_of_the_readme_write_what_they_say(
    stream: FileStream, pg: PostgresTarget, tmp_path: Path
) -> None:
    stream.receive(range(10), range(10, 20))
    given = {
        "SparkSession": SparkSession,
        "orders": stream.read(),
        "dsn": pg.dsn,
        "checkpoint": str(stream.checkpoint),
        "path": str(tmp_path / "delta"),
        "history": str(tmp_path / "history"),
    }
    made = run(README, spark_blocks(README), given)
    with psycopg.connect(pg.dsn) as connection:
        assert connection.execute("SELECT id FROM orders ORDER BY id").fetchall() == [(i,) for i in range(20)]
    stream.checkpoint = tmp_path / "second"
    stream.run(made["write"])
    # Another query into the first one's database, which also holds its ledger: a name of its own.
    stream.checkpoint, stream.name = tmp_path / "third", "both"
    stream.run(made["both"])
    for path in (given["path"], given["history"]):
        assert made["spark"].read.format("delta").load(path).count() == 20


def test_the_refusal_in_the_readme_is_what_is_printed(spark: SparkSession, tmp_path: Path) -> None:
    """But for ids of queries and the folder."""
    stream = FileStream(spark, tmp_path).receive(range(3))
    stream.checkpoint = tmp_path / "checkpoint"
    write = exactly_once(DeltaSink(str(tmp_path / "orders")))
    stream.run(write)
    stream.lose_checkpoint()
    said = read(stream.receive(range(3, 5)).fail(exactly_once(DeltaSink(str(tmp_path / "orders")))))
    [shown] = [block.code for block in blocks(README.read_text()) if block.code.startswith("[ONCE-E211]")]
    assert _anywhere(str(said), tmp_path) == _anywhere(shown.rstrip(), Path("/data"))


def _anywhere(said: str, folder: Path) -> str:
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", said.replace(str(folder), "FOLDER"))
