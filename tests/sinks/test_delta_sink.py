"""What the Delta sink does beyond the contract: maintenance, what others do to the table, bad places, bad rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType
from tests.sinks.delta_harness import DeltaHarness

from onceonly import faults
from onceonly.batch import ArrowBatch
from onceonly.errors import ConfigurationError, DestinationError, IdentityError
from onceonly.protocol import Estimate, OutcomeUnknown, Position, Superseded, Task
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.conformance.story import PIPELINE, Driver, Story
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.delta.marker import application_id, pack
from onceonly_sinks.delta.prepared import WrittenFiles
from onceonly_sinks.delta.table import CHECKPOINT_EVERY


@pytest.fixture
def harness(tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(tmp_path)


def kinds(position: Position) -> list[tuple[str, bool]]:
    return [(found.kind, found.fatal) for found in position.disturbances]


def foreign(path: Path, number: int = 900_000) -> None:
    write_deltalake(path, pa.table({"id": [number], "step": [0], "note": ["foreign"]}), mode="append")


# ---- the log is maintained by others


def test_the_newest_marker_outlives_the_log_it_was_written_to(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        written = [driver.writes() for _ in range(3)]
        harness.maintain()
        story.driver()
        harness.forget_log_before_checkpoint()
        position = story.driver().position()
        assert position.marker == driver.marker(written[-1].epoch)
        assert kinds(position) == []


def test_once_the_marker_has_aged_out_its_number_still_stands_and_fences(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver(4)
        first = driver.tries(driver.plan())
        foreign(harness.path)
        DeltaTable(harness.path).create_checkpoint()
        harness.forget_log_before_checkpoint()
        assert story.reader().fence() == Fence(4, "")
        late = story.stranger(4, "owner-4")
        with pytest.raises(Superseded):
            late.sink.install(late.fence)
        owner = story.stranger(5, "owner-5")
        owner.sink.install(owner.fence)
        position = owner.sink.position(first)
        assert (position.marker, position.epoch) == (None, 1)
        assert kinds(position) == [("unreadable", True)]


def test_foreign_commits_between_ours_hide_no_marker(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        written = driver.writes()
        for number in range(30):
            foreign(harness.path, 900_000 + number)
        DeltaTable(harness.path).optimize.compact()
        later = story.driver()
        assert later.position().marker == driver.marker(written.epoch)
        assert kinds(later.position()) == []
        later.writes()


def test_a_long_run_leaves_checkpoints_and_stays_exact(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        plans = [driver.writes(rows=1) for _ in range(2 * CHECKPOINT_EVERY + 3)]
        assert len(list((harness.path / "_delta_log").glob("*.checkpoint.parquet"))) == 2
        story.holds(*plans)


# ---- what others do to the table


def restored(path: Path) -> None:
    DeltaTable(path).restore(DeltaTable(path).version() - 1)


def overwritten(path: Path) -> None:
    write_deltalake(path, pa.table({"id": [1], "step": [0], "note": ["x"]}), mode="overwrite")


def deleted(path: Path) -> None:
    DeltaTable(path).delete("id >= 0")


@pytest.mark.parametrize("mishap", [restored, overwritten, deleted], ids=lambda mishap: mishap.__name__)
def test_a_mishap_is_found_at_the_next_opening(harness: DeltaHarness, mishap: Callable[[Path], None]) -> None:
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        receipt = driver.tries(driver.plan())
        mishap(harness.path)
        for since in (receipt, None):
            later = story.stranger(story.driver().fence.generation + 1, "later")
            later.sink.install(later.fence)
            assert kinds(later.sink.position(since)) == [(mishap.__name__, True)]
            story._generation += 1


@pytest.mark.parametrize("mishap", [restored, overwritten, deleted], ids=lambda mishap: mishap.__name__)
def test_a_mishap_between_two_epochs_stops_the_second(harness: DeltaHarness, mishap: Callable[[Path], None]) -> None:
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        mishap(harness.path)
        left = harness.rows()
        with pytest.raises(IdentityError) as refused:
            driver.commits(planned, prepared)
        assert refused.value.code == "E209"
        assert harness.rows() == left


def test_a_known_mishap_is_not_held_against_the_epoch_that_accepts_it(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        first = story.driver()
        first.writes()
        deleted(harness.path)
        accepting = story.driver()
        assert kinds(accepting.position()) == [("deleted", True)]
        accepting.commits(accepting.plan(rows=0), None)
        assert kinds(story.driver().position()) == []


@pytest.mark.parametrize("limit", [0, 1 << 20], ids=["executors", "driver"])
def test_a_mishap_between_check_and_commit_is_found_by_the_next_look(tmp_path: Path, limit: int) -> None:
    # A commit may be put behind foreign ones that came in between; the next look must not begin after it.
    harness = DeltaHarness(tmp_path, driver_limit=limit)
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        after_the_check(driver, lambda: deleted(harness.path))
        with suppress(OutcomeUnknown):
            driver.commits(planned, prepared)
        assert kinds(story.driver().position()) == [("deleted", True)]


def after_the_check(driver: Driver, act: Callable[[], object]) -> None:
    """Do something once, between what a commit reads and what it sends."""
    table = driver.sink._open.table  # type: ignore[attr-defined]
    checks = table.check_retention

    def then() -> None:
        table.check_retention = checks
        checks()
        act()

    table.check_retention = then


def test_a_table_dropped_and_made_again_has_no_fence_of_ours(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        receipt = driver.tries(driver.plan())
        planned = driver.plan()
        shutil.rmtree(harness.path)
        foreign(harness.path)
        with pytest.raises(DestinationError) as refused:
            driver.tries(planned)
        assert refused.value.code == "E508"
        later = story.driver()
        assert later.sink.position(receipt).identity != receipt.identity
        assert later.sink.position(receipt).epoch == 0


def test_a_dropped_table_is_not_written_to(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        shutil.rmtree(harness.path)
        with pytest.raises(DestinationError) as refused:
            driver.commits(planned, prepared)
        assert refused.value.code == "E508"
        assert not harness.path.exists()


def test_a_table_that_forgets_markers_is_refused(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        driver.writes()
        table = DeltaTable(harness.path)
        table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
        with pytest.raises(DestinationError) as refused:
            driver.writes()
        assert refused.value.code == "E509"
        late = story.stranger(9, "late")
        with pytest.raises(DestinationError) as refused:
            late.fences()
        assert refused.value.code == "E509"


# ---- commits of drivers that do not know better


def test_a_zombie_between_its_check_and_its_commit_writes_nothing(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        zombie = story.driver(1)
        first = zombie.writes()
        planned = zombie.plan()
        prepared = zombie.prepares(planned)
        after_the_check(zombie, lambda: story.driver(2))
        with pytest.raises(Superseded) as fenced:
            zombie.commits(planned, prepared)
        assert fenced.value.found == Fence(2, "owner-2")
        story.holds(first)


def test_a_commit_of_ours_that_another_handle_made_is_not_repeated(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        twin = story.stranger(driver.fence.generation, driver.fence.owner)
        twin.fences()
        planned = driver.plan()
        twin.tries(planned)
        with pytest.raises(IdentityError) as refused:
            driver.tries(planned)
        assert refused.value.code == "E209"
        story.holds(planned)


def test_giving_up_a_preparation_whose_answer_was_lost_deletes_nothing_that_landed(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, driver_limit=0)
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        faults.arm("commit.sent", "raise")
        with pytest.raises(OutcomeUnknown):
            driver.commits(planned, prepared)
        faults.disarm()
        prepared.abandon()
        assert driver.looks_up(planned) is not None
        story.holds(planned)


def test_a_generation_beyond_the_format_is_refused_before_anything_is_written(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        late = story.stranger(2**23, "late")
        with pytest.raises(DestinationError) as refused:
            late.fences()
        assert refused.value.code == "E512"
        assert not harness.path.exists()


# ---- one note for every reader


def test_history_of_the_table_shows_the_marker(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.writes()
        newest = DeltaTable(harness.path).history(1)[0]
        shown = json.loads(newest["userMetadata"])
        assert shown["marker"] == driver.marker(planned.epoch).to_json()
        app = application_id(PIPELINE, driver.sink.id)
        assert DeltaTable(harness.path).transaction_version(app) == pack("", driver.fence.generation, 1)


def test_two_sinks_on_one_table_do_not_disturb_each_other(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver(7)
        first = driver.writes()
        other = DeltaSink(harness.path, id="second")
        other.open(PIPELINE)
        assert other.fence() is None
        other.install(Fence(1, "other"))
        second = driver.writes()
        assert [marker.epoch for marker, _ in story.reader().history()] == [first.epoch, second.epoch]
        assert list(other.history()) == []
        other.close()


def test_an_address_carries_a_chosen_id_and_no_secret(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "rows", id="orders copy", storage_options={"secret": "hunter2"})
    assert "hunter2" not in sink.address
    found = DeltaSink.from_address(sink.address)
    assert (found.id, found.address) == (sink.id, sink.address)


def test_a_relative_path_and_a_file_uri_are_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    addresses = {DeltaSink(target).address for target in ("./rows", f"file://{tmp_path}/rows", tmp_path / "rows/")}
    assert addresses == {f"delta:{tmp_path}/rows"}


# ---- bad places and bad arguments


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.parquet").write_bytes(b"x")
    with pytest.raises(DestinationError) as refused:
        DeltaSink(tmp_path).open(PIPELINE)
    assert refused.value.code == "E508"


def test_a_file_is_no_place_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(DestinationError) as refused:
        DeltaSink(tmp_path / "file").open(PIPELINE)
    assert refused.value.code == "E508"


def test_a_table_name_needs_a_session(tmp_path: Path) -> None:
    with pytest.raises(DestinationError) as refused:
        DeltaSink("sales.orders").open(PIPELINE)
    assert refused.value.code == "E508"
    assert "sales.orders" in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "upsert"},
        {"mode": "merge"},
        {"mode": "append", "key": "id"},
        {"sequence": "step"},
        {"committer": "rust"},
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_together_are_refused_at_once(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        DeltaSink(tmp_path, **arguments)
    assert refused.value.code == "E110"


def test_the_spark_committer_without_a_session_is_refused_before_the_action(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, committer="spark")
    with Story(harness) as story:
        driver = story.driver()
        with pytest.raises(ConfigurationError) as refused:
            driver.prepares(driver.plan())
        assert refused.value.code == "E110"
        assert "with_delta" in str(refused.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.long
@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["executors", "driver"])
def test_a_full_disk_is_named_and_loses_nothing(small_disk: Path, limit: int) -> None:
    harness = DeltaHarness(small_disk, driver_limit=limit)
    with Story(harness) as story:
        driver = story.driver()
        first = driver.writes()
        planned = driver.plan()
        rows = planned.table.slice(0, 1)
        large = pa.concat_tables([rows.set_column(2, "note", [[os.urandom(40).hex()]]) for _ in range(40_000)])
        for batch in (ArrowBatch(large), None):
            if batch is None:
                (small_disk / "filler").write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 4096))
            with pytest.raises(DestinationError) as refused:
                driver.commits(planned, driver.sink.prepare(batch or ArrowBatch(planned.table), planned.epoch.number))
            assert refused.value.code == "E507"
        (small_disk / "filler").unlink()
        driver.tries(planned)
        story.holds(first, planned)


# ---- columns and rows


def batch(columns: dict[str, Any]) -> ArrowBatch:
    return ArrowBatch(pa.table(columns))


def standing(harness: DeltaHarness, story: Story) -> Driver:
    driver = story.driver()
    driver.writes()
    return driver


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"id": [1], "step": [1]}, "note is missing"),
        ({"id": [1], "step": [1], "note": ["a"], "extra": [1]}, "extra is new"),
        ({"id": ["1"], "step": [1], "note": ["a"]}, "id is long in the table and string in the batch"),
        ({"id": pa.array([1], pa.int32()), "step": [1], "note": ["a"]}, "id is long in the table and integer"),
        ({"id": [1], "step": [1], "note": ["a"], "t": pa.array([1], pa.time64("us"))}, "column t is time64[us]"),
        ({"id": [1], "step": [1], "note": pa.array([1], pa.timestamp("ns"))}, "column note is timestamp[ns]"),
    ],
)
def test_other_columns_are_refused_by_name(harness: DeltaHarness, columns: dict[str, Any], told: str) -> None:
    with Story(harness) as story:
        driver = standing(harness, story)
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(batch(columns), 2)
        assert refused.value.code == "E506"
        assert told in str(refused.value)
        driver.writes()


def test_columns_may_come_in_another_order_and_another_arrow_form(harness: DeltaHarness) -> None:
    with Story(harness) as story:
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
    with Story(harness) as story:
        driver = story.driver()
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(batch({"id": pa.array([1, None], pa.int64()), "step": [1, 1], "note": ["a", "b"]}), 1)
        assert refused.value.code == "E503"
        assert "id" in str(refused.value)
        assert not list(harness.path.glob("*.parquet"))
        driver.writes()


def test_a_row_that_breaks_a_constraint_is_refused_and_the_next_one_goes_on(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = standing(harness, story)
        DeltaTable(harness.path).alter.add_constraint({"few": "id < 100000000"})
        planned = driver.plan(salt=1)
        prepared = driver.prepares(planned)
        with pytest.raises(DestinationError) as refused:
            driver.commits(planned, prepared)
        assert refused.value.code == "E503"
        driver.writes()


def test_large_epochs_on_a_table_with_constraints_still_have_them_checked(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, driver_limit=0)
    with Story(harness) as story:
        driver = standing(harness, story)
        DeltaTable(harness.path).alter.add_constraint({"few": "id < 100000000"})
        planned = driver.plan(salt=1)
        with pytest.raises(DestinationError) as refused:
            driver.tries(planned)
        assert refused.value.code == "E503"


def test_null_and_repeated_keys_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key=("id", "step"))
    with Story(harness) as story:
        driver = standing(harness, story)
        for rows, code in (([(None, 1)], "E504"), ([(7, 1), (7, 1)], "E505")):
            ids, steps = zip(*rows, strict=True)
            columns = {"id": pa.array(ids, pa.int64()), "step": pa.array(steps, pa.int64()), "note": ["a"] * len(rows)}
            with pytest.raises(DestinationError) as refused:
                driver.sink.prepare(batch(columns), 2)
            assert refused.value.code == code


def test_a_key_that_the_batch_does_not_have_is_named(tmp_path: Path) -> None:
    with Story(DeltaHarness(tmp_path, key="order_id")) as story:
        driver = story.driver()
        with pytest.raises(DestinationError) as refused:
            driver.prepares(driver.plan())
        assert refused.value.code == "E506"
        assert "order_id" in str(refused.value)


def test_the_newest_change_of_a_key_wins_within_and_across_epochs(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key="id", sequence="step")
    with Story(harness) as story:
        driver = story.driver()
        for steps in ([(1, 5, "a"), (1, 7, "b"), (2, 1, "c")], [(1, 6, "late"), (2, 2, "d")], [(2, 2, "equal")]):
            planned = driver.plan()
            ids, sequence, notes = zip(*steps, strict=True)
            rows = pa.table({"id": ids, "step": sequence, "note": notes})
            driver.commits(planned, driver.sink.prepare(ArrowBatch(rows), planned.epoch.number))
        assert sorted((row["id"], row["note"]) for row in harness.rows()) == [(1, "b"), (2, "d")]
        assert driver.position().epoch == 3


def test_a_merged_table_found_by_its_address_says_that_it_cannot_recount(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key="id")
    with Story(harness) as story:
        driver = standing(harness, story)
        found = DeltaSink.from_address(driver.sink.address)
        found.open(PIPELINE)
        assert found.recount() is None
        found.close()


def test_the_epoch_column_says_which_epoch_brought_a_row(tmp_path: Path) -> None:
    for limit in (0, 1 << 20):
        harness = DeltaHarness(tmp_path / str(limit), epoch_column="_epoch", driver_limit=limit)
        with Story(harness) as story:
            driver = story.driver()
            driver.writes()
            driver.writes()
            assert all(row["_epoch"] == row["step"] for row in harness.rows())


def test_a_table_is_created_with_the_partitions_asked_for(tmp_path: Path) -> None:
    for limit in (0, 1 << 20):
        harness = DeltaHarness(tmp_path / str(limit), partition_by="step", driver_limit=limit)
        with Story(harness) as story:
            driver = story.driver()
            plans = [driver.writes(), driver.writes()]
            assert DeltaTable(harness.path).metadata().partition_columns == ["step"]
            story.holds(*plans)


def test_a_table_created_for_its_fence_takes_the_columns_of_the_first_batch(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        driver = story.driver()
        before = driver.position()
        assert harness.rows() == []
        driver.writes()
        assert [field.name for field in DeltaTable(harness.path).schema().fields] == ["id", "step", "note"]
        assert driver.position().identity == before.identity


def test_a_second_fence_on_a_table_without_columns_fences_the_first(harness: DeltaHarness) -> None:
    with Story(harness) as story:
        first, second = story.driver(1), story.driver(2)
        planned = second.plan()
        with pytest.raises(Superseded):
            first.tries(planned)
        second.tries(planned)
        story.holds(planned)


def test_a_retention_that_others_set_later_does_not_make_our_version_expire_unseen(harness: DeltaHarness) -> None:
    # A transaction without a time would be ignored at once by a table with a retention.
    with Story(harness) as story:
        driver = standing(harness, story)
        newest = sorted((harness.path / "_delta_log").glob("*.json"))[-1]
        actions = [json.loads(line) for line in newest.read_text().splitlines()]
        [stamp] = [action["txn"]["lastUpdated"] for action in actions if "txn" in action]
        assert abs(stamp - time.time() * 1000) < 600_000
        driver.writes()


def test_a_foreign_application_version_is_no_fence(harness: DeltaHarness) -> None:
    foreign(harness.path)
    DeltaTable(harness.path).create_write_transaction(
        [],
        "append",
        DeltaTable(harness.path).schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction("someone", 5, 1)]),
    )
    with Story(harness) as story:
        assert story.reader().fence() is None


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
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=50)
        batch = Understated(planned.table)
        prepared = driver.sink.prepare(batch, 1)
        assert isinstance(prepared, WrittenFiles)
        assert (batch.actions, prepared.rows) == (2, 50)
        driver.commits(planned, prepared)
        story.holds(planned)
