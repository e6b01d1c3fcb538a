"""A version of Spark's state as names and sizes of its files tell it."""

from __future__ import annotations

import re
from pathlib import Path

import fsspec
import pytest

from onceonly.spark.sources import _STATUS
from onceonly_checkpoints.spark.state import read_state
from onceonly_checkpoints.storage import FsspecStorage, LocalStorage

ONE = re.compile("1.delta")


def put(root: Path, *paths: str, size: int = 3) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x" * size)


@pytest.mark.parametrize("kind", ["delta", "changelog", "zip"])
def test_a_version_is_the_files_that_its_batch_wrote(tmp_path: Path, kind: str) -> None:
    put(tmp_path, f"state/0/0/2.{kind}", f"state/0/1/2.{kind}", f"state/0/0/1.{kind}", "state/0/_metadata/metadata")
    before = read_state(LocalStorage(tmp_path), 2)
    assert before is not None
    assert [(name, stores) for name, stores, _ in before.operators] == [("0", 2)]
    # What maintenance adds later, a companion and another version are no part of it.
    put(tmp_path, "state/0/0/2.snapshot", f"state/0/0/.2.{kind}.crc", f"state/0/0/3.{kind}", "state/0/0/SSTs/1-2.sst")
    assert read_state(LocalStorage(tmp_path), 2) == before
    put(tmp_path, f"state/0/1/2.{kind}", size=4)
    assert read_state(LocalStorage(tmp_path), 2) != before


def test_a_zip_that_comes_after_a_changelog_changes_nothing(tmp_path: Path) -> None:
    put(tmp_path, "state/0/0/2.changelog")
    before = read_state(LocalStorage(tmp_path), 2)
    put(tmp_path, "state/0/0/2.zip")
    assert read_state(LocalStorage(tmp_path), 2) == before


def test_a_replay_under_unique_ids_leaves_the_same_version(tmp_path: Path) -> None:
    # Spark's commit log names the files that it loads, so it finds those of another run by itself.
    put(tmp_path, "state/0/0/1_3f.zip")
    before = read_state(LocalStorage(tmp_path), 1)
    put(tmp_path, "state/0/0/1_a7.zip", size=4)
    assert read_state(LocalStorage(tmp_path), 1) == before


def test_a_folder_without_a_store_is_no_operator(tmp_path: Path) -> None:
    put(tmp_path, "state/0/0/1.delta", "state/5/notes.txt")
    state = read_state(LocalStorage(tmp_path), 1)
    assert state is not None
    assert [name for name, _, _ in state.operators] == ["0"]


def test_unique_ids_and_the_stores_of_a_join_are_read(tmp_path: Path) -> None:
    put(tmp_path, "state/0/0/left-keyWithIndexToValue/1_3f.zip", "state/0/0/right-keyToNumValues/1_4a.zip")
    state = read_state(LocalStorage(tmp_path), 1)
    assert state is not None
    assert state.operators[0][:2] == ("0", 2)
    (tmp_path / "state/0/0/right-keyToNumValues/1_4a.zip").unlink()
    lacking = read_state(LocalStorage(tmp_path), 1)
    assert lacking is not None
    assert lacking.text.endswith("missing in 0/0/right-keyToNumValues")


def test_a_partition_without_any_file_lacks_the_version(tmp_path: Path) -> None:
    put(tmp_path, "state/0/0/1.delta")
    (tmp_path / "state/0/1").mkdir()
    state = read_state(LocalStorage(tmp_path), 1)
    assert state is not None
    assert state.lacking == ("0/1",)


def test_a_state_that_was_removed_as_a_whole_has_no_files(tmp_path: Path) -> None:
    put(tmp_path, "offsets/0")
    state = read_state(LocalStorage(tmp_path), 1)
    assert state is not None
    assert state.text == "version 1; no files"


def test_every_storage_tells_the_same_sizes(tmp_path: Path) -> None:
    put(tmp_path, "state/0/0/1.delta", "state/0/0/inner/1.delta")
    put(tmp_path, "state/0/0/.1.delta.crc")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "state"), "/onceonly-state/state", recursive=True)
    try:
        local, elsewhere = LocalStorage(tmp_path), FsspecStorage("memory://onceonly-state")
        assert local.sizes("state/0/0", ONE) == elsewhere.sizes("state/0/0", ONE) == {"1.delta": 3, "inner": None}
        assert local.sizes("state/1", ONE) == elsewhere.sizes("state/1", ONE) == {}
        assert read_state(local, 1) == read_state(elsewhere, 1)
    finally:
        memory.rm("/onceonly-state", recursive=True)


def test_a_listing_of_hadoop_is_read_in_one_text() -> None:
    listed = (
        "[DeprecatedRawLocalFileStatus{path=file:/c/state/0/0/1.delta; isDirectory=false; length=46; replication=1; "
        "owner=; isSymlink=false}, FileStatus{path=file:/c/state/0/0/inner; isDirectory=true; modification_time=17}]"
    )
    found = [(match[1].rpartition("/")[2], match[2]) for match in _STATUS.finditer(listed)]
    assert found == [("1.delta", "46"), ("inner", None)]
