"""A structure that is null where its parts never are: a row of which something is only there on a condition."""

from __future__ import annotations

import json
from typing import Any

import pytest
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame

from onceonly import exactly_once

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def shape(df: DataFrame) -> DataFrame:
    return df.selectExpr("id", "if(id > 4, struct(id AS x, struct(word AS y) AS z), null) AS record")


WANTED = [None] * 5 + [{"x": number, "z": {"y": f"w{number}"}} for number in range(5, 10)]


@pytest.mark.parametrize("through", ["driver", "executors", "staged"])
def test_it_reaches_every_destination(stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, through: str) -> None:
    via: Any = "auto" if through == "staged" else through
    tables = (delta.sink(),) if through == "staged" else ()
    if through == "staged":
        stream.receive(range(10)).run(exactly_once(pg.sink(), *tables), shape=shape)
    else:
        stream.receive(range(10)).run(exactly_once(pg.sink(via=via)), shape=shape)
    rows = pg.says("select record from orders order by id")
    assert [json.loads(one) if isinstance(one, str) else one for (one,) in rows] == WANTED
    if tables:
        assert delta.table.to_pyarrow_table().sort_by("id")["record"].to_pylist() == WANTED


def test_it_reaches_a_delta_table_alone(stream: FileStream, delta: DeltaTarget) -> None:
    stream.receive(range(10)).run(exactly_once(delta.sink()), shape=shape)
    assert delta.table.to_pyarrow_table().sort_by("id")["record"].to_pylist() == WANTED
