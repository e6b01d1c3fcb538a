"""However a batch is cut, the same changes leave the same row: for each type of ``sequence=``, on each store."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.memory_harness import MemoryHarness
from tests.sinks.postgres_harness import PostgresHarness

from onceonly.protocol.values import order
from onceonly_lab.conformance import SinkHarness
from onceonly_lab.conformance.scenario import Scenario
from onceonly_sinks.delta.columns import one_per_key
from onceonly_sinks.delta.merge import Upsert

UTC = timezone.utc
SEQUENCES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bigint": (pa.int64(), [(0, -1), (1, 9), (2, 10)]),
    "double": (pa.float64(), [(0, -1.5), (1, -0.0), (1, 0.0), (2, math.inf), (3, math.nan)]),
    "text": (pa.string(), [(0, "10"), (1, "9"), (2, "a"), (3, "\uffff"), (4, "\U0001f9fe")]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [
            (0, datetime(1899, 1, 1, tzinfo=UTC)),
            (1, datetime(2026, 3, 1, tzinfo=UTC)),
            (2, datetime.max.replace(tzinfo=UTC)),
        ],
    ),
    "local time": (pa.timestamp("us"), [(0, datetime(2026, 3, 29, 2, 30)), (1, datetime(2026, 3, 29, 3, 30))]),
    "date": (pa.date32(), [(0, date(1500, 1, 1)), (1, date(2026, 1, 1))]),
    "decimal": (pa.decimal128(20, 2), [(0, Decimal("9.99")), (1, Decimal("10.00"))]),
    "boolean": (pa.bool_(), [(0, False), (1, True)]),
}
"""Values by their places; of one place are those that are equal."""

Change = tuple[int, int, Any, int]
"""Key, place and value of the sequence, and a number of the change."""

KEYS, LENGTH = 6, 5


def drawn(dice: random.Random, values: list[Any]) -> list[Change]:
    changes = [(key, *dice.choice(values)) for key in range(KEYS) for _ in range(LENGTH)]
    dice.shuffle(changes)
    return [(*change, number) for number, change in enumerate(changes)]


def cut(dice: random.Random, changes: list[Change]) -> Iterator[list[Change]]:
    """Cut changes at random; where two in one epoch would be equally new, between all of them."""
    ends = sorted(dice.sample(range(1, len(changes)), 4))
    for begin, end in itertools.pairwise([0, *ends, len(changes)]):
        part = changes[begin:end]
        tops = {key: max(place for other, place, *_ in part if other == key) for key, *_ in part}
        newest = sum(place == tops[key] for key, place, *_ in part)
        yield from ([part] if newest == len(tops) else ([one] for one in part))


def left(changes: list[Change]) -> dict[int, int]:
    """Number of the change that stands of each key."""
    stands: dict[int, tuple[int, int]] = {}
    for key, place, _, number in changes:
        if key not in stands or place >= stands[key][0]:
            stands[key] = place, number
    return {key: number for key, (_, number) in sorted(stands.items())}


def written(harness: SinkHarness, kind: pa.DataType, epochs: Iterator[list[Change]]) -> dict[int, int]:
    with closing(harness), Scenario(harness) as story:
        driver = story.driver()
        for part in epochs:
            keys, _, values, numbers = zip(*part, strict=True)
            rows = {"id": keys, "step": pa.array(values, kind), "note": [str(number) for number in numbers]}
            driver.tries(replace(driver.plan(rows=len(part)), table=pa.table(rows)))
        return {row["id"]: int(row["note"]) for row in sorted(harness.rows(), key=lambda row: row["id"])}


@pytest.fixture(params=["memory", "delta", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], SinkHarness]:
    said: dict[str, Any] = {"key": ("id",), "sequence": "step"}
    if request.param == "memory":
        return lambda _: MemoryHarness(**said)
    if request.param == "delta":
        return lambda kind: DeltaHarness(tmp_path / kind, **said)
    dsn = request.getfixturevalue("postgres").database("cuts")
    return lambda _: PostgresHarness(dsn, **said)


def test_the_cut_decides_nothing_for_any_type_of_sequence(store: Callable[[str], SinkHarness]) -> None:
    wrong = {}
    for name, (kind, values) in SEQUENCES.items():
        dice = random.Random(name)
        changes = drawn(dice, values)
        found = written(store(name), kind, cut(dice, changes))
        if found != left(changes):
            wrong[name] = changes, found
    assert not wrong


def test_a_row_whose_sequence_is_nan_stands_beside_others_of_its_batch() -> None:
    rows = pa.table({"id": [1, 1, 2], "step": [1.0, 2.0, math.nan]})
    found = one_per_key("delta:rows", rows, Upsert(("id",), "step"))
    assert sorted(found["id"].to_pylist()) == [1, 2]


def test_values_are_ordered_as_stores_order_them() -> None:
    for _, values in SEQUENCES.values():
        for (place, one), (at, other) in itertools.product(values, repeat=2):
            assert (order(one) < order(other), order(one) == order(other)) == (place < at, place == at)
            assert order(None) < order(one)
