"""A structure that is null where its parts never are: a row of which something is only there on a condition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from integration.cases import each
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame

from onceonly import exactly_once
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def shape(df: DataFrame) -> DataFrame:
    return df.selectExpr("id", "if(id > 4, struct(id AS x, struct(word AS y) AS z), null) AS record")


WANTED = [None] * 5 + [{"x": number, "z": {"y": f"w{number}"}} for number in range(5, 10)]


def test_it_reaches_postgres_by_each_way_and_delta(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, tmp_path: Path
) -> None:
    alone = DeltaTarget(str(tmp_path / "alone"))

    def into(table: str, **options: Any) -> PostgresSink:
        return PostgresSink(pg.dsn, table=table, **options)

    wrapped = {
        "driver": exactly_once(into("by_driver", tuning=PostgresTuning(load="driver")), name="driver"),
        "executors": exactly_once(into("by_executors", tuning=PostgresTuning(load="executors")), name="executors"),
        "staged": exactly_once(into("staged"), delta.sink(), name="staged"),
        "delta alone": exactly_once(alone.sink(), name="alone"),
    }
    said = each(stream.receive(range(10)), wrapped, shape=shape)
    assert said == dict.fromkeys(wrapped, "")
    found = {table: records(pg, table) for table in ("by_driver", "by_executors", "staged")}
    found |= {one.path: one.table.to_pyarrow_table().sort_by("id")["record"].to_pylist() for one in (delta, alone)}
    assert {place: rows for place, rows in found.items() if rows != WANTED} == {}


def records(pg: PostgresTarget, table: str) -> list[Any]:
    rows = pg.says(f"select record from {table} order by id")
    return [json.loads(one) if isinstance(one, str) else one for (one,) in rows]
