"""A plan is carried out whole, twice if need be, and never over something else without being told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.checkpoints.samples import QUERY, at, file, files_text, history, offsets_text, write_checkpoint

from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.model import InputFile
from onceonly_checkpoints.spark import logs, offsets, rebuild
from onceonly_checkpoints.spark.logs import input_files
from onceonly_checkpoints.spark.rebuild import FileToWrite, InTheWay
from onceonly_checkpoints.spark.verify import verify
from onceonly_checkpoints.storage import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "checkpoint")


@pytest.fixture
def records() -> list[EpochRecord]:
    return list(history(4))


def content(storage: LocalStorage) -> dict[str, bytes]:
    root = Path(storage.url)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def replace(storage: LocalStorage, path: str, text: str) -> None:
    storage.delete(path)
    storage.create(path, text.encode())


def test_a_plan_becomes_a_sound_checkpoint(storage: LocalStorage, records: list[EpochRecord]) -> None:
    plan = rebuild.plan_rebuild(records, 4)
    assert rebuild.apply(plan, storage) == tuple(each.path for each in plan)
    assert verify(storage) == ()
    assert offsets.slice_of(storage, 3) == records[3].epoch.written
    assert input_files(storage, 0, None, 3) == tuple(file(number) for number in range(4))


def test_carrying_out_a_plan_twice_writes_nothing_the_second_time(
    storage: LocalStorage, records: list[EpochRecord]
) -> None:
    plan = rebuild.plan_rebuild(records, 4)
    rebuild.apply(plan, storage)
    before = content(storage)
    assert rebuild.apply(plan, storage) == ()
    assert content(storage) == before


@pytest.mark.parametrize("done", range(8))
def test_a_crash_between_two_files_is_repeated_to_the_same_end(
    storage: LocalStorage, records: list[EpochRecord], done: int
) -> None:
    plan = rebuild.plan_rebuild(records, 4)
    rebuild.apply(plan[:done], storage)
    rebuild.apply(plan, storage)
    assert content(storage) == {each.path: each.text.encode() for each in plan}


def test_another_querys_checkpoint_is_not_overwritten(storage: LocalStorage, records: list[EpochRecord]) -> None:
    storage.create("metadata", b'{"id":"another"}')
    storage.create("offsets/0", offsets_text('{"logOffset":9}').encode())
    before = content(storage)
    with pytest.raises(InTheWay, match="metadata"):
        rebuild.apply(rebuild.plan_rebuild(records, 1), storage)
    assert content(storage) == before


def test_entries_that_say_the_same_stay_with_the_settings_they_hold(
    storage: LocalStorage, records: list[EpochRecord]
) -> None:
    rebuild.apply(rebuild.plan_rebuild(records, 4), storage)
    about = {"batchWatermarkMs": 43, "batchTimestampMs": 1_700_000_000_003, "conf": {"real": "setting"}}
    replace(storage, "offsets/3", f'v1\n{json.dumps(about)}\n{{"logOffset": 3}}')
    replace(storage, "commits/3", 'v1\n{"nextBatchWatermarkMs":99}')
    storage.delete("metadata")

    assert rebuild.apply(rebuild.plan_rebuild(records, 4), storage) == ("metadata",)
    assert dict(offsets.offset_entry(storage, 3).conf) == {"real": "setting"}
    assert offsets.commit_entry(storage, 3).next_watermark_ms == 99


def test_settings_that_survive_in_one_entry_are_carried_into_the_others(
    storage: LocalStorage, records: list[EpochRecord]
) -> None:
    write_checkpoint(storage, 4)
    replace(storage, "offsets/3", "")
    rebuild.apply(rebuild.plan_rebuild(records, 4), storage, replacing=True)
    assert dict(offsets.offset_entry(storage, 3).conf) == {"a": "1", "b": "2", "spark.sql.shuffle.partitions": "200"}


def test_a_rolled_back_position_gets_rid_of_everything_newer(storage: LocalStorage, records: list[EpochRecord]) -> None:
    write_checkpoint(storage, 8)
    plan = rebuild.plan_rebuild(records, 4)
    with pytest.raises(InTheWay) as error:
        rebuild.apply(plan, storage)
    assert {"offsets/4", "offsets/7", "commits/4", "sources/0/7"} <= set(error.value.paths)
    rebuild.apply(plan, storage, replacing=True)
    assert offsets.offset_ids(storage) == (0, 1, 2, 3)
    assert offsets.commit_ids(storage) == (0, 1, 2, 3)
    assert sorted(storage.names("sources/0")) == ["-1.compact", "-11.compact", "0", "1", "2", "3"]
    assert verify(storage) == ()


def test_while_something_is_replaced_spark_cannot_start(
    storage: LocalStorage, records: list[EpochRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(storage, 8)
    plan = rebuild.plan_rebuild(records, 4)
    seen: list[bool] = []
    original = LocalStorage.delete

    def delete(self: LocalStorage, path: str) -> None:
        original(self, path)
        seen.append(self.exists("metadata"))

    monkeypatch.setattr(LocalStorage, "delete", delete)
    rebuild.apply(plan, storage, replacing=True)
    assert seen
    assert not any(seen)
    assert offsets.query_id(storage) == QUERY


@pytest.mark.parametrize("damage", ["", "v1\n", "\0\0\0", "v1\n{}\n{cut"])
def test_a_damaged_entry_is_in_the_way_until_it_may_be_replaced(
    storage: LocalStorage, records: list[EpochRecord], damage: str
) -> None:
    write_checkpoint(storage, 4)
    replace(storage, "offsets/3", damage)
    plan = [rebuild.plan_entry(records[3])]
    assert rebuild.in_the_way(plan, storage) == ("offsets/3",)
    rebuild.apply(plan, storage, replacing=True)
    assert offsets.offset_entry(storage, 3).offsets == at(3)


def test_writing_one_entry_leaves_older_ones_alone(storage: LocalStorage, records: list[EpochRecord]) -> None:
    write_checkpoint(storage, 4)
    storage.delete("commits/3")
    replace(storage, "offsets/3", offsets_text('{"logOffset":7}'))
    before = content(storage)
    rebuild.apply([rebuild.plan_entry(records[3])], storage, replacing=True)
    assert {path for path, data in content(storage).items() if before[path] != data} == {"offsets/3"}


class TestInputs:
    """Entries of a file source's log are put back to what the epoch read."""

    def test_a_log_that_says_the_same_is_left_alone(self, storage: LocalStorage, records: list[EpochRecord]) -> None:
        write_checkpoint(storage, 4)
        assert rebuild.plan_inputs(records[3], storage) == []

    def test_more_files_under_the_same_log_offset_are_taken_out(
        self, storage: LocalStorage, records: list[EpochRecord]
    ) -> None:
        write_checkpoint(storage, 4)
        more = [file(3), InputFile("file:/in/late.csv", 5, 3, "0")]
        replace(storage, "sources/0/3", logs.render_files(more))
        self.carry_out(rebuild.plan_inputs(records[3], storage), storage)
        assert input_files(storage, 0, 2, 3) == (file(3),)

    def test_a_missing_log_is_written(self, storage: LocalStorage, records: list[EpochRecord]) -> None:
        write_checkpoint(storage, 3)
        self.carry_out(rebuild.plan_inputs(records[3], storage), storage)
        assert input_files(storage, 0, 2, 3) == (file(3),)

    def test_a_compacted_log_is_amended_and_keeps_the_rest(self, storage: LocalStorage) -> None:
        records = list(history(10))
        write_checkpoint(storage, 10)
        late = InputFile("file:/in/late.csv", 5, 9, "0")
        whole = [*(file(number) for number in range(10)), late]
        replace(storage, "sources/0/9.compact", logs.render_files(whole))
        self.carry_out(rebuild.plan_inputs(records[9], storage), storage)
        assert storage.read("sources/0/9.compact").decode() == logs.render_files(file(n) for n in range(10))

    def test_a_torn_log_is_replaced(self, storage: LocalStorage, records: list[EpochRecord]) -> None:
        write_checkpoint(storage, 4)
        replace(storage, "sources/0/3", files_text(3)[:20])
        self.carry_out(rebuild.plan_inputs(records[3], storage), storage)
        assert input_files(storage, 0, 2, 3) == (file(3),)

    @staticmethod
    def carry_out(plan: Sequence[FileToWrite], storage: LocalStorage) -> None:
        assert plan
        rebuild.apply(plan, storage, replacing=True)
