"""The driver's hash of each type, against what Spark once said of the same values."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql.pandas.types import from_arrow_schema
from tests.plain_values import PLAIN, plain_table

from onceonly.spark import digest

GOLDEN = Path(__file__).parents[2] / "integration" / "golden_digests.json"


def test_the_driver_hashes_every_plain_type_as_spark_once_did() -> None:
    table = plain_table()
    known = json.loads(GOLDEN.read_text())["plain"]
    assert set(known) == {*PLAIN, "all"}
    otherwise = []
    for name, wanted in known.items():
        columns = table if name == "all" else table.select([name])
        hashed = digest.hashing(from_arrow_schema(columns.schema))
        assert hashed is not None
        [batch] = columns.combine_chunks().to_batches()
        parts = [hashed(batch.slice(at, 100)) for at in range(0, 400, 100)]
        for found in (hashed(batch), sum(parts[1:], parts[0])):
            if [found.rows, found.high, found.low] != wanted:
                otherwise.append((name, found, wanted))
    assert otherwise == []
