"""A slice's files are found wherever Spark has put them, reading no more than needed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoints.samples import file, files_text, write_checkpoint

from onceonly_checkpoints.model import InputFile
from onceonly_checkpoints.spark import logs
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint, input_files
from onceonly_checkpoints.storage import LocalStorage


class CountingStorage(LocalStorage):
    """Notes what is read and listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[str] = []
        self.listings: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)

    def names(self, directory: str) -> tuple[str, ...]:
        self.listings.append(directory)
        return super().names(directory)


@pytest.fixture
def storage(tmp_path: Path) -> CountingStorage:
    return CountingStorage(tmp_path)


def offsets(storage: CountingStorage, after: int | None, upto: int) -> list[int]:
    return [each.log_offset for each in input_files(storage, 0, after, upto)]


def test_every_range_is_found_across_compacted_files(storage: CountingStorage) -> None:
    write_checkpoint(storage, 25)
    ranges = list(itertools.product((None, 0, 4, 8, 9, 10, 19), (0, 5, 8, 9, 10, 18, 19, 20, 24)))
    found = {(after, upto): offsets(storage, after, upto) for after, upto in ranges}
    assert found == {(after, upto): list(range(0 if after is None else after + 1, upto + 1)) for after, upto in ranges}


def test_files_that_were_purged_after_a_compaction_are_found_in_it(storage: CountingStorage) -> None:
    write_checkpoint(storage, 25)
    for number in (*range(9), *range(10, 19)):
        storage.delete(f"sources/0/{number}")
    storage.delete("sources/0/9.compact")
    found = {after: offsets(storage, after, 22) for after in (None, 2, 8, 9, 18)}
    assert found == {after: list(range(0 if after is None else after + 1, 23)) for after in (None, 2, 8, 9, 18)}


def test_one_batch_costs_one_read_and_no_listing_however_long_the_log(storage: CountingStorage) -> None:
    write_checkpoint(storage, 25)
    storage.reads.clear()
    input_files(storage, 0, 22, 23)
    assert (storage.reads, storage.listings) == (["sources/0/23"], [])


def test_a_batch_that_is_itself_a_compaction_costs_one_read_and_no_listing(storage: CountingStorage) -> None:
    write_checkpoint(storage, 25)
    storage.reads.clear()
    assert input_files(storage, 0, 18, 19) == (file(19),)
    assert (storage.reads, storage.listings) == (["sources/0/19.compact"], [])


def test_a_whole_compacted_log_is_read_once(storage: CountingStorage) -> None:
    write_checkpoint(storage, 20)
    for number in range(9):
        storage.delete(f"sources/0/{number}")
    storage.reads.clear()
    input_files(storage, 0, None, 9)
    assert storage.reads == ["sources/0/9.compact"]


def test_an_empty_range_reads_nothing(storage: CountingStorage) -> None:
    assert input_files(storage, 0, 5, 5) == ()
    assert storage.reads == []


def test_several_files_of_one_batch_keep_their_order(storage: CountingStorage) -> None:
    text = logs.render_files([InputFile(f"file:/in/{name}", 5, 0, "0") for name in "cab"])
    storage.create("sources/0/0", text.encode())
    assert [each.path[-1] for each in input_files(storage, 0, None, 0)] == ["c", "a", "b"]


def test_a_source_under_a_name_has_its_own_directory(storage: CountingStorage) -> None:
    storage.create("sources/orders/0", files_text(0).encode())
    assert input_files(storage, "orders", None, 0) == (file(0, "orders"),)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("3", "", "empty"),
        ("3", "v2\n{}", "unknown-version"),
        ("3", 'v1\n{"path":"file:/a","timest', "torn"),
        ("3", 'v1\n{"path":"file:/a"}', "torn"),
        ("3.compact", 'v1\n{"path":"file:/a","timest', "torn"),
        ("3.compact", "v7\n", "unknown-version"),
        ("4", "v1", "missing"),
    ],
)
def test_a_damaged_log_is_refused_by_kind(storage: CountingStorage, name: str, text: str, kind: str) -> None:
    storage.create(f"sources/0/{name}", text.encode())
    with pytest.raises(UnreadableCheckpoint) as error:
        input_files(storage, 0, 2, 3)
    assert error.value.kind == kind
    assert error.value.path.startswith("sources/0/3")


@given(st.lists(st.builds(InputFile, st.text(min_size=1), st.integers(0), st.integers(0), st.just("0")), max_size=5))
def test_a_rendered_log_reads_back(files: list[InputFile]) -> None:
    assert list(logs.parse_files(logs.render_files(files), "0", "x")) == files


def test_only_compacted_names_have_a_compact_id() -> None:
    assert [logs.compact_id(name) for name in ("9.compact", "19", "x.compact", "9.compact.tmp")] == [
        9,
        None,
        None,
        None,
    ]
