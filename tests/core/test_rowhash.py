"""Hashes of many values at once are those of the library, one by one."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t
from xxhash import xxh64_intdigest

from onceonly.spark import digest, row_hash

SEEDS = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(st.binary(max_size=100), SEEDS), min_size=1, max_size=30))
def test_each_value_has_the_hash_of_the_library_with_its_own_seed(pairs: list[tuple[bytes, int]]) -> None:
    values, seeds = [value for value, _ in pairs], np.array([seed for _, seed in pairs], np.uint64)
    lengths = np.array([len(value) for value in values])
    data = np.frombuffer(b"".join(values), np.uint8)
    found = row_hash.of_values(data, lengths.cumsum() - lengths, lengths, seeds)
    assert found.tolist() == [xxh64_intdigest(value, seed) for value, seed in pairs]


def test_one_value_of_every_length_is_hashed_with_each_seed() -> None:
    values, seeds = [bytes(range(length)) for length in range(70)], np.array([0, 42, 2**64 - 1], np.uint64)
    found = {len(value): row_hash.of_one(value, seeds).tolist() for value in values}
    assert found == {len(value): [xxh64_intdigest(value, seed) for seed in seeds.tolist()] for value in values}


def test_the_digest_of_many_rows_is_that_of_the_same_rows_one_by_one() -> None:
    luck = random.Random(7)
    rows = 1000
    schema = t.StructType(
        [
            t.StructField("id", t.LongType()),
            t.StructField("a column whose name is longer than a stripe", t.StringType()),
            t.StructField("ratio", t.DoubleType()),
            t.StructField("price", t.DecimalType(30, 4)),
            t.StructField("flag", t.BooleanType()),
            t.StructField("nothing", t.StringType()),
        ]
    )

    def some(value: object) -> object:
        return None if luck.random() < 0.2 else value

    from decimal import Decimal

    columns = [
        pa.array(range(rows), pa.int64()),
        pa.array([some("ü" * luck.randrange(50)) for _ in range(rows)], pa.string()),
        pa.array([some(luck.choice([-0.0, 0.0, float("nan"), luck.random()])) for _ in range(rows)], pa.float64()),
        pa.array([some(Decimal(luck.randrange(-(10**20), 10**20))) for _ in range(rows)], pa.decimal128(30, 4)),
        pa.array([some(luck.random() < 0.5) for _ in range(rows)], pa.bool_()),
        pa.nulls(rows, pa.string()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema.names)
    hashed = digest.hashing(schema)
    assert hashed is not None
    whole, parts = hashed(batch), [hashed(batch.slice(at, 100)) for at in range(0, rows, 100)]
    assert whole == sum(parts[1:], parts[0])
