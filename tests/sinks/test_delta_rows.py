"""Which columns and rows the Delta sink takes, and which it refuses before anything is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from tests.sinks.delta_harness import DeltaHarness

from onceonly.errors import DestinationError
from onceonly.protocol import Estimate, Task
from onceonly.protocol.batch import ArrowBatch
from onceonly_lab.conformance.scenario import PIPELINE, Driver, Scenario
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.delta.prepared import WrittenFiles


@pytest.fixture
def harness(tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(tmp_path)


# ---- columns and rows


def batch(columns: dict[str, Any]) -> ArrowBatch:
    return ArrowBatch(pa.table(columns))


def standing(harness: DeltaHarness, story: Scenario) -> Driver:
    driver = story.driver()
    driver.writes()
    return driver


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"id": [1], "step": [1], "note": ["a"], "extra": [1]}, "extra is new"),
        ({"id": ["1"], "step": [1], "note": ["a"]}, "id is long in the table and string in the batch"),
        ({"id": [1.5], "step": [1], "note": ["a"]}, "id is long in the table and double"),
        ({"id": [1], "step": [1], "note": ["a"], "t": pa.array([1], pa.time64("us"))}, "column t is time64[us]"),
        ({"id": [1], "step": [1], "note": pa.array([1], pa.timestamp("ns"))}, "column note is timestamp[ns]"),
    ],
)
def test_other_columns_are_refused_by_name(harness: DeltaHarness, columns: dict[str, Any], told: str) -> None:
    with Scenario(harness) as story:
        driver = standing(harness, story)
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(batch(columns), 2)
        assert refused.value.code == "E506"
        assert told in str(refused.value)
        driver.writes()


def test_columns_may_come_in_another_order_and_another_arrow_form(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = standing(harness, story)
        planned = driver.plan()
        rows = planned.table.select(["note", "step", "id"]).cast(
            pa.schema([("note", pa.large_string()), ("step", pa.int64()), ("id", pa.int64())])
        )
        prepared = driver.sink.prepare(ArrowBatch(rows), 2)
        driver.commits(planned, prepared)
        assert Counter(row["id"] for row in harness.rows())[planned.ids[0]] == 1


@pytest.mark.parametrize("limit", [0, 1 << 20], ids=["executors", "driver"])
def test_a_null_where_the_table_allows_none_is_refused(tmp_path: Path, limit: int) -> None:
    harness = DeltaHarness(tmp_path, driver_limit=limit)
    columns = [Field("id", PrimitiveType("long"), nullable=False), Field("step", PrimitiveType("long"))]
    DeltaTable.create(harness.path, Schema([*columns, Field("note", PrimitiveType("string"))]))
    with Scenario(harness) as story:
        driver = story.driver()
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(batch({"id": pa.array([1, None], pa.int64()), "step": [1, 1], "note": ["a", "b"]}), 1)
        assert refused.value.code == "E503"
        assert "id" in str(refused.value)
        assert not list(harness.path.glob("*.parquet"))
        driver.writes()


def test_a_row_that_breaks_a_constraint_is_refused_and_the_next_one_goes_on(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = standing(harness, story)
        DeltaTable(harness.path).alter.add_constraint({"few": "id < 100000000"})
        planned = driver.plan(salt=1)
        prepared = driver.prepares(planned)
        with pytest.raises(DestinationError) as refused:
            driver.commits(planned, prepared)
        assert refused.value.code == "E503"
        assert "few" in str(refused.value)
        assert not [id_ for id_ in planned.ids if str(id_) in str(refused.value)], "values of rows are nobody's"
        driver.writes()


def test_large_epochs_on_a_table_with_constraints_still_have_them_checked(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, driver_limit=0)
    with Scenario(harness) as story:
        driver = standing(harness, story)
        DeltaTable(harness.path).alter.add_constraint({"few": "id < 100000000"})
        planned = driver.plan(salt=1)
        with pytest.raises(DestinationError) as refused:
            driver.tries(planned)
        assert refused.value.code == "E503"


def test_null_and_repeated_keys_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key=("id", "step"))
    with Scenario(harness) as story:
        driver = standing(harness, story)
        for rows, code in (([(None, 1)], "E504"), ([(7, 1), (7, 1)], "E505")):
            ids, steps = zip(*rows, strict=True)
            columns = {"id": pa.array(ids, pa.int64()), "step": pa.array(steps, pa.int64()), "note": ["a"] * len(rows)}
            with pytest.raises(DestinationError) as refused:
                driver.sink.prepare(batch(columns), 2)
            assert refused.value.code == code


def test_a_key_that_the_batch_does_not_have_is_named(tmp_path: Path) -> None:
    with Scenario(DeltaHarness(tmp_path, key="order_id")) as story:
        driver = story.driver()
        with pytest.raises(DestinationError) as refused:
            driver.prepares(driver.plan())
        assert refused.value.code == "E506"
        assert "order_id" in str(refused.value)


def test_the_newest_change_of_a_key_wins_within_and_across_epochs(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key="id", sequence="step")
    with Scenario(harness) as story:
        driver = story.driver()
        for steps in ([(1, 5, "a"), (1, 7, "b"), (2, 1, "c")], [(1, 6, "late"), (2, 2, "d")], [(2, 2, "equal")]):
            planned = driver.plan()
            ids, sequence, notes = zip(*steps, strict=True)
            rows = pa.table({"id": ids, "step": sequence, "note": notes})
            driver.commits(planned, driver.sink.prepare(ArrowBatch(rows), planned.epoch.number))
        assert sorted((row["id"], row["note"]) for row in harness.rows()) == [(1, "b"), (2, "equal")]
        assert driver.position().epoch == 3


def test_a_merged_table_found_by_its_address_says_that_it_cannot_recount(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key="id")
    with Scenario(harness) as story:
        driver = standing(harness, story)
        found = DeltaSink.from_address(driver.sink.address)
        found.open(PIPELINE)
        assert found.recount() is None
        found.close()


def test_the_epoch_column_says_which_epoch_brought_a_row(tmp_path: Path) -> None:
    for limit in (0, 1 << 20):
        harness = DeltaHarness(tmp_path / str(limit), epoch_column="_epoch", driver_limit=limit)
        with Scenario(harness) as story:
            driver = story.driver()
            driver.writes()
            driver.writes()
            assert all(row["_epoch"] == row["step"] for row in harness.rows())


def test_a_table_is_created_with_the_partitions_asked_for(tmp_path: Path) -> None:
    for limit in (0, 1 << 20):
        harness = DeltaHarness(tmp_path / str(limit), partition_by="step", driver_limit=limit)
        with Scenario(harness) as story:
            driver = story.driver()
            plans = [driver.writes(), driver.writes()]
            assert DeltaTable(harness.path).metadata().partition_columns == ["step"]
            story.holds(*plans)


def test_a_table_created_for_its_fence_takes_the_columns_of_the_first_batch(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        before = driver.position()
        assert harness.rows() == []
        driver.writes()
        assert [field.name for field in DeltaTable(harness.path).schema().fields] == ["id", "step", "note"]
        assert driver.position().identity == before.identity


class Understated(ArrowBatch):
    """A batch that turns out larger than it was expected to be."""

    actions = 0

    @property
    def estimate(self) -> Estimate:
        return Estimate(1, 8)

    def arrow(self) -> Iterator[pa.RecordBatch]:
        self.actions += 1
        return super().arrow()

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        self.actions += 1
        return super().on_executors(task)


def test_a_batch_larger_than_expected_goes_through_executors_in_a_second_action(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, driver_limit=64)
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=50)
        batch = Understated(planned.table)
        prepared = driver.sink.prepare(batch, 1)
        assert isinstance(prepared, WrittenFiles)
        assert (batch.actions, prepared.rows) == (2, 50)
        driver.commits(planned, prepared)
        story.holds(planned)
