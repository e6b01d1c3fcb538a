"""Each replacement on the page "From foreachBatch" writes what the callback wrote, also after a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from integration.streams import FileStream
from integration.targets import PostgresTarget
from pyspark.sql import SparkSession
from tests.test_docs import ROOT, blocks

from onceonly import Output, exactly_once
from onceonly.spark.detect import line as spark_line
from onceonly_sinks.delta import DeltaSink, Merge
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.docs]

PAGE = ROOT / "docs" / "how-to" / "from-foreachbatch.md"
Batches = tuple[dict[str, list[Any]], ...]

SCHEMA = "id bigint, item string, amount bigint, op string, seq bigint"
BATCHES: Batches = (
    {"id": [1, 2, 2], "item": ["pen", "ink", "ink"], "amount": [2000, 5, 5], "op": ["u", "u", "u"], "seq": [1, 2, 2]},
    {"id": [3], "item": ["pen"], "amount": [1500], "op": ["u"], "seq": [3]},
)
BY_KEY: Batches = (
    {"id": [1, 2, 4], "item": ["pen", "ink", "cup"], "amount": [2000, 5, 9], "op": ["u", "u", "u"], "seq": [1, 2, 9]},
    {
        "id": [2, 1, 3, 4, 5],
        "item": ["blue ink", "pen", "pad", "mug", "cap"],
        "amount": [6, 2000, 7, 8, 1],
        "op": ["u", "d", "u", "u", "d"],
        "seq": [4, 5, 6, 3, 7],
    },
)
"""An update, a delete, an insert, an older update, a delete of an unknown key."""
TABLES = {
    "MERGE": SCHEMA,
    "MERGE with delete": "id bigint, item string, seq bigint",
    "MERGE with your own clauses": "id bigint, item string, amount bigint, seq bigint",
}
"""Sections whose callback needs a table, with its columns."""
NOT_RUN = {"An API call"}
"""Sections whose callback would leave this machine."""


def bodies() -> dict[str, tuple[str, str]]:
    """By heading: the callback's body, and its replacement."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        for block in blocks(section):
            if block.info == "diff":
                lines = block.code.splitlines()
                before, after = ("\n".join(line[1:] for line in lines if line[:1] == sign) for sign in "-+")
                found[section.partition("\n")[0]] = before, after
    return found


@pytest.mark.parametrize("heading", bodies())
def test_a_replacement_writes_the_rows_of_the_callback_also_after_a_replay(
    heading: str, spark: SparkSession, tmp_path: Path, pg: PostgresTarget
) -> None:
    before, after = bodies()[heading]
    batches = BY_KEY if heading in TABLES else BATCHES
    old, new = (Place(spark, tmp_path / name, pg.dsn, batches) for name in ("old", "new"))
    if heading not in NOT_RUN:
        if spark_line().delta is None:
            pytest.skip("no jars of Delta are known for this Spark")
        old.prepare(TABLES.get(heading))
        old.run(lambda batch, number: exec(before, old.names(batch=batch, batch_id=number)))
        wanted = old.rows()
        assert wanted["table"] or wanted["stock"]
    new.prepare(TABLES[heading] if "merge=" in after else None)
    names = new.names()
    exec(after, names)
    new.run(names["write"])
    new.replay(names["write"])
    if heading in NOT_RUN:
        assert pg.says("SELECT id FROM outbox ORDER BY id") == [(1,), (2,), (2,), (3,)]
    else:
        assert new.rows() == wanted


def test_each_body_on_the_page_has_a_replacement() -> None:
    found = bodies()
    assert len(found) >= 8
    assert all(before and "write = exactly_once(" in after for before, after in found.values())
    assert set(found) >= {*NOT_RUN, *TABLES}


class Place:
    """A query over the batches, its tables and its database."""

    def __init__(self, spark: SparkSession, root: Path, dsn: str, batches: Batches) -> None:
        self.spark, self.root, self.dsn = spark, root, dsn
        self.stream = FileStream(spark, root)
        for batch in batches:
            self.stream.drop(pa.table(batch))

    @property
    def paths(self) -> dict[str, str]:
        return {"path": str(self.root / "table"), "alerts": str(self.root / "alerts")}

    def names(self, **more: Any) -> dict[str, Any]:
        """What a callback on the page takes for granted."""
        from delta.tables import DeltaTable as ByDelta

        sinks = {"exactly_once": exactly_once, "Output": Output, "DeltaSink": DeltaSink, "PostgresSink": PostgresSink}
        modules = {"psycopg": psycopg, "DeltaTable": ByDelta, "Merge": Merge}
        return {**sinks, **modules, **self.paths, "spark": self.spark, "dsn": self.dsn, **more}

    def prepare(self, schema: str | None) -> None:
        """Make the tables that the callback's author made: one to merge into, and the one of its SQL."""
        with psycopg.connect(self.dsn, autocommit=True) as owner:
            owner.execute("DROP TABLE IF EXISTS stock")
            owner.execute("CREATE TABLE stock (item text PRIMARY KEY, amount bigint)")
        if schema:
            self.spark.createDataFrame([], schema).write.format("delta").save(self.paths["path"])

    def run(self, write: Any) -> None:
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.stream.inbox))
        query = source.writeStream.queryName("orders").foreachBatch(write)
        query = query.option("checkpointLocation", str(self.stream.checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    def replay(self, write: Any) -> None:
        self.stream.remove("commits", self.stream.newest("commits"))
        self.run(write)

    def rows(self) -> dict[str, list[Any]]:
        with psycopg.connect(self.dsn) as connection:
            stock = connection.execute("SELECT item, amount FROM stock ORDER BY item").fetchall()
        return {"stock": stock, **{Path(path).name: _delta_rows(path) for path in self.paths.values()}}


def _delta_rows(path: str) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(path):
        return []
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=str)
