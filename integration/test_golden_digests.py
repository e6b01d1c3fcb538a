"""Rows of every type have one digest on every line of Spark, whichever way they go: else a replay after a move from one
line to another would be taken for other rows.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from integration.test_digest import FEW, driver, hashes_of, nowhere, plain, rows, with_hashes
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from tests.plain_values import PLAIN

from onceonly.spark import digest
from onceonly.spark.batch import SparkBatch
from onceonly_checkpoints.digests import Digest

__all__ = ["rows"]

pytestmark = pytest.mark.spark

KNOWN = Path(__file__).parent / "golden_digests.json"

MORE = {
    "months": "if(id % 3 = 0, null, make_ym_interval(cast(id % 5 as int), cast(id % 12 as int)))",
    "duration": "if(id % 3 = 0, null, make_dt_interval(cast(id % 5 as int), 1, 2, id / 7))",
    "nested": "array(map(named_struct('k', id), array(cast(id as double) / 3, -0.0D, null)), map())",
    "fixed": "cast(cast(id as string) as char(5))",
    "void": "null",
}
"""Columns in SQL, of types that the others have not. No sink takes all of them; a digest does."""

VARIANTS = 'if(id % 3 = 0, null, parse_json(concat(\'{"a": [\', id, \', null, 1.5], "b": {"c": "\', id, \'"}}\')))'


def golden(name: str, found: dict[str, Digest]) -> None:
    """Compare with what is written down; ONCEONLY_NEW_DIGESTS=1 writes it down as it is now."""
    now = {column: [digest.rows, digest.high, digest.low] for column, digest in found.items()}
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    if os.environ.get("ONCEONLY_NEW_DIGESTS"):
        known[name] = now
        KNOWN.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert now == known[name]


def by_column(df: DataFrame) -> dict[str, Digest]:
    """What Spark sums up of each column by itself, in one job."""
    fields = df.schema.fields
    summed = [f.struct(*digest.metrics(t.StructType([field]))).alias(str(at)) for at, field in enumerate(fields)]
    [found] = df.agg(*summed).collect()
    return {field.name: digest.from_metrics(found[str(at)].asDict()) for at, field in enumerate(fields)}


def test_plain_rows_hashed_by_the_driver(spark: SparkSession) -> None:
    df = plain(spark)
    table = pa.Table.from_batches(list(SparkBatch(df, FEW).arrow()))
    found = {}
    for field in df.schema.fields:
        hashed = digest.hashing(t.StructType([field]))
        assert hashed is not None
        found[field.name] = sum((hashed(part) for part in table.select([field.name]).to_batches()), Digest(0))
    golden("plain", found | {"all": driver(df, FEW)})


def test_plain_rows_hashed_in_the_cluster(spark: SparkSession) -> None:
    df = plain(spark)
    assert set(PLAIN) == set(df.columns)
    golden("plain", by_column(df) | {"all": nowhere(df)})


def test_rows_of_every_type_hashed_on_their_way_to_the_driver(rows: DataFrame) -> None:
    table = with_hashes(rows)
    hashed = {name: digest.of_hashes(hashes_of(table, at)) for at, name in enumerate(rows.columns)}
    golden("rows", hashed | {"all": driver(rows)})


def test_rows_of_every_type_hashed_where_they_are_written(rows: DataFrame) -> None:
    golden("rows", by_column(rows) | {"all": nowhere(rows)})


def test_types_that_only_sql_makes(spark: SparkSession) -> None:
    df = spark.range(0, 300, 1, 4).selectExpr(*(f"{sql} AS {name}" for name, sql in MORE.items()))
    golden("more", by_column(df) | {"all": nowhere(df)})


@pytest.mark.skipif(not hasattr(t, "VariantType"), reason="this Spark has no VARIANT")
def test_variants(spark: SparkSession) -> None:
    df = spark.range(0, 300, 1, 4).selectExpr(f"{VARIANTS} AS free", f"array({VARIANTS}) AS listed")
    golden("variant", by_column(df) | {"all": nowhere(df)})
