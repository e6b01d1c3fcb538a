"""Delta at a full refresh: one version takes all old rows away and brings the first new ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.sinks.delta_harness import DeltaHarness

from onceonly import faults
from onceonly.audit import audit
from onceonly.errors import OnceOnlyError
from onceonly.faults import InjectedFault, Point
from onceonly.protocol import OutcomeUnknown, ReplacesRows
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.chain import linked
from onceonly_checkpoints.epoch import Epoch, Receipt
from onceonly_lab.conformance.scenario import PIPELINE, Driver, PlannedEpoch, Scenario
from onceonly_sinks.delta import DeltaSink, DeltaTuning, Merge


def table(*ids: int, note: str = "anew", gone: bool | None = None) -> pa.Table:
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "step": pa.array([9] * len(ids), pa.int64()),
        "note": pa.array([note] * len(ids), pa.string()),
    }
    return pa.table(columns | ({} if gone is None else {"gone": pa.array([gone] * len(ids))}))


def stands(path: Path) -> list[int]:
    return sorted(row["id"] for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def replacing(driver: Driver, rows: pa.Table) -> PlannedEpoch:
    """The next epoch, in place of all before."""
    planned = driver.plan()
    epoch = planned.epoch
    digest = ArrowBatch(rows).digest()
    made: Epoch = linked(replace(epoch, digest=digest, series=epoch.number, replaces=(1, epoch.number - 1)))
    return PlannedEpoch(made, rows)


def replaces(driver: Driver, rows: pa.Table) -> Receipt:
    planned = replacing(driver, rows)
    span = planned.epoch.replaces
    assert span is not None
    assert driver.sink.cannot_replace(span) == ""  # type: ignore[attr-defined]
    prepared = driver.sink.prepare_replacement(ArrowBatch(rows), planned.epoch.number, span)  # type: ignore[attr-defined]
    return driver.commits(planned, prepared)


# Through memory; files that executors write; an epoch column beside the rows; partitions.
VARIANTS: dict[str, dict[str, Any]] = {
    "driver": {},
    "executors": {"tuning": DeltaTuning(driver_limit=0)},
    "epoch column": {"tuning": DeltaTuning(epoch_column="epoch")},
    "partitions": {"partition_by": "note", "tuning": DeltaTuning(driver_limit=0)},
}


@pytest.fixture(params=VARIANTS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(tmp_path, **VARIANTS[request.param])


def test_it_says_that_it_can(tmp_path: Path) -> None:
    assert isinstance(DeltaSink(tmp_path / "rows"), ReplacesRows)


def test_one_version_takes_all_rows_away_and_brings_the_new_ones(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        before = DeltaTable(harness.path).version()
        replaces(driver, table(100, 101))
        assert DeltaTable(harness.path).version() == before + 1
        assert stands(harness.path) == [100, 101]
        driver.writes()
        assert len(stands(harness.path)) == 5
        assert driver.sink.recount() == {1: 0, 2: 0, 3: 2, 4: 3}
        assert [marker.epoch.number for marker, _ in driver.sink.history()] == [1, 2, 3, 4]
        result = audit(None, PIPELINE, [driver.sink])
        assert [finding.code for finding in result.findings if finding.code in ("A121", "A122", "A126", "A127")] == []
        assert "5 committed since epoch 3" in result.scope


def test_an_empty_first_batch_empties_the_table(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        replaces(driver, table())
        assert stands(harness.path) == []


def test_a_second_refresh_replaces_the_first(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        replaces(driver, table(100))
        replaces(driver, table(200))
        assert stands(harness.path) == [200]


def test_nothing_leaves_before_the_commit_and_a_lost_answer_is_looked_up(harness: DeltaHarness) -> None:
    def lose() -> None:
        raise InjectedFault("the answer was lost")

    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        planned = replacing(driver, table(100))
        prepared = driver.sink.prepare_replacement(ArrowBatch(planned.table), 2, (1, 1))  # type: ignore[attr-defined]
        assert len(stands(harness.path)) == 3
        faults.arm(Point.COMMIT_SENT, lose)
        with pytest.raises(OutcomeUnknown):
            driver.commits(planned, prepared)
        faults.disarm()
        assert driver.sink.look_up(driver.marker(planned.epoch)) is not None
        assert stands(harness.path) == [100]


def test_a_fence_that_repeats_the_marker_takes_nothing_away(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        replaces(driver, table(100))
        story.driver(driver.fence.generation + 1)
        assert stands(harness.path) == [100]


@pytest.mark.parametrize("limit", [1 << 20])
def test_a_merge_into_no_row_leaves_what_it_would_have_inserted(tmp_path: Path, limit: int) -> None:
    harness = DeltaHarness(tmp_path, key="id", sequence="step", delete_flag="gone", driver_limit=limit)
    with Scenario(harness) as story:
        driver = story.driver()
        for ids in ((1, 2), (2, 3)):
            planned = driver.plan()
            rows = table(*ids, note="old", gone=False)
            driver.commits(planned, driver.sink.prepare(ArrowBatch(rows), planned.epoch.number))
        before = DeltaTable(harness.path).version()
        new = pa.concat_tables([table(2, 9, gone=False), table(3, gone=True)])
        replaces(driver, new)
        assert stands(harness.path) == [2, 9]
        assert DeltaTable(harness.path).version() == before + 1
        assert {row["note"] for row in DeltaTable(harness.path).to_pyarrow_table().to_pylist()} == {"anew"}


def test_a_merge_of_the_users_own_inserts_as_into_an_empty_table(tmp_path: Path) -> None:
    own = Merge("t.id = s.id").when_matched_update(None, {"step": "t.step + s.step"}).when_not_matched_insert()
    write_deltalake(tmp_path / "rows", table().schema.empty_table())
    with Scenario(DeltaHarness(tmp_path, merge=own)) as story:
        driver = story.driver()
        driver.writes()
        replaces(driver, table(1, 2))
        assert stands(tmp_path / "rows") == [1, 2]


def refused(driver: Driver, words: str) -> None:
    span = (1, driver.plan().epoch.number - 1)
    assert words in driver.sink.cannot_replace(span)  # type: ignore[attr-defined]
    before = stands(driver.sink._root and Path(driver.sink._root))  # type: ignore[attr-defined]
    planned = replacing(driver, table(5))
    prepared = driver.sink.prepare(ArrowBatch(planned.table), planned.epoch.number)
    with pytest.raises(OnceOnlyError) as caught:
        driver.commits(planned, prepared)
    assert caught.value.code in ("E247", "E508")
    assert stands(Path(driver.sink._root)) == before  # type: ignore[attr-defined]


def test_rows_of_others_are_refused_by_name(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        held = DeltaTable(harness.path).to_pyarrow_table().slice(0, 1)
        write_deltalake(harness.path, held, mode="append")
        refused(driver, "not known to be ours alone: version")


def test_rows_that_others_add_between_the_check_and_the_commit_are_not_taken_away(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        planned = replacing(driver, table(1, 2))
        span = planned.epoch.replaces
        assert span is not None
        assert driver.sink.cannot_replace(span) == ""  # type: ignore[attr-defined]
        prepared = driver.sink.prepare_replacement(ArrowBatch(planned.table), planned.epoch.number, span)  # type: ignore[attr-defined]
        write_deltalake(harness.path, table(900), mode="append")
        held = stands(harness.path)
        with pytest.raises(OnceOnlyError, match="the table is not known to be ours alone"):
            driver.commits(planned, prepared)
        assert stands(harness.path) == held


def test_rows_of_ours_that_a_restore_brought_back_are_ours(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        epochs = [driver.writes() for _ in range(3)]
        driver.sink.close()
        harness.set_back(2)
        late = story.newcomer()
        assert isinstance(late.sink, DeltaSink)
        late.sink.reset_to(late.fence, 2)
        late.position()
        late.tries(epochs[2])
        replaces(late, table(100, 101))
        assert stands(harness.path) == [100, 101]


def test_rows_that_a_restore_brought_back_from_before_a_refresh_are_ours_and_can_be_replaced_again(
    tmp_path: Path,
) -> None:
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        for _ in range(2):
            driver.writes()
        stood = DeltaTable(harness.path).version()
        replaces(driver, table(100, 101))
        driver.sink.close()
        DeltaTable(harness.path).restore(stood)
        late = story.newcomer()
        assert isinstance(late.sink, DeltaSink)
        late.sink.reset_to(late.fence, 2)
        late.position()
        replaces(late, table(200))
        assert stands(harness.path) == [200]


def test_rows_of_others_are_refused_although_a_restore_came_after_them(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        held = DeltaTable(harness.path).to_pyarrow_table().slice(0, 1)
        write_deltalake(harness.path, held, mode="append")
        foreign = DeltaTable(harness.path).version()
        DeltaTable(harness.path).restore(foreign - 1)
        refused(driver, f"ours alone: version {foreign} ")


def test_a_log_that_was_cleaned_away_tells_too_little_until_a_refresh_is_in_it(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        harness.maintain()
        harness.forget_log_before_checkpoint()
        refused(driver, "no longer reaches back")


def test_a_table_of_which_the_owner_lets_no_row_go_is_refused(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        DeltaTable(harness.path).alter.set_table_properties({"delta.appendOnly": "true"})
        refused(driver, "delta.appendOnly")
