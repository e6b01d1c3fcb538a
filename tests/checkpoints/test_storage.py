"""Files are created whole or not at all, never over another; Hadoop's checksums never outlive what they vouch for."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from onceonly_checkpoints.storage import (
    FileStore,
    FsspecStorage,
    LocalStorage,
    UnreachableStorage,
    companion,
    open_storage,
    root_by_spark,
)


@pytest.fixture(params=["local", "fsspec over local files", "fsspec in memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    if request.param == "local":
        return LocalStorage(tmp_path / "root")
    if request.param == "fsspec over local files":
        return FsspecStorage(f"local://{tmp_path}/root")
    return FsspecStorage(f"memory://{tmp_path}/root")


def test_what_was_created_can_be_read_and_listed(storage: FileStore) -> None:
    storage.create("offsets/10", b"ten")
    storage.create("offsets/9", b"nine")
    storage.create("metadata", b"{}")
    assert storage.read("offsets/10") == b"ten"
    assert storage.names("offsets") == ("10", "9")
    assert storage.names("") == ("metadata", "offsets")
    assert storage.exists("offsets/9")
    assert storage.exists("offsets")


def test_a_second_creation_is_refused_and_changes_nothing(storage: FileStore) -> None:
    storage.create("a", b"first")
    with pytest.raises(FileExistsError):
        storage.create("a", b"second")
    assert storage.read("a") == b"first"


def test_what_is_not_there_is_missing_not_wrong(storage: FileStore) -> None:
    assert storage.names("nowhere") == ()
    assert not storage.exists("nowhere/file")
    storage.delete("nowhere/file")
    with pytest.raises(FileNotFoundError):
        storage.read("nowhere/file")


def test_creating_drops_the_checksum_that_an_older_file_left(storage: FileStore) -> None:
    storage.create("offsets/.3.crc", b"stale")
    storage.create("offsets/3", b"new")
    assert not storage.exists("offsets/.3.crc")
    assert storage.names("offsets") == ("3",)


def test_deleting_takes_the_checksum_along(storage: FileStore) -> None:
    storage.create("offsets/3", b"x")
    storage.create("offsets/.3.crc", b"sum")
    storage.delete("offsets/3")
    assert not storage.exists("offsets/3")
    assert not storage.exists("offsets/.3.crc")


def test_a_refused_creation_keeps_the_checksum(storage: FileStore) -> None:
    storage.create("offsets/3", b"x")
    storage.create("offsets/.3.crc", b"sum")
    with pytest.raises(FileExistsError):
        storage.create("offsets/3", b"y")
    assert storage.exists("offsets/.3.crc")


def test_hidden_and_temporary_files_are_not_listed(storage: FileStore) -> None:
    storage.create("offsets/.4.6e0c.TID12.tmp", b"")
    storage.create("offsets/4", b"")
    assert storage.names("offsets") == ("4",)


def test_of_many_creators_one_wins_with_its_whole_content(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    barrier, winners = threading.Barrier(8), []

    def race(number: int) -> None:
        barrier.wait()
        try:
            storage.create("offsets/1", bytes([number]) * 50_000)
            winners.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert storage.read("offsets/1") == bytes([winners[0]]) * 50_000
    assert [each.name for each in (tmp_path / "offsets").iterdir()] == ["1"]


def test_without_hard_links_creation_is_still_exclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    storage = LocalStorage(tmp_path)
    storage.create("a", b"first")
    with pytest.raises(FileExistsError):
        storage.create("a", b"second")
    assert storage.read("a") == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    storage = LocalStorage(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        storage.create("a", b"x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spelling", ["{}/my dir", "file:{}/my%20dir", "file://{}/my%20dir"])
def test_local_roots_are_understood_as_spark_spells_them(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "my dir").mkdir()
    (tmp_path / "my dir" / "metadata").write_text("{}")
    storage = open_storage(spelling.format(tmp_path))
    assert storage.read("metadata") == b"{}"
    assert storage.url == f"{tmp_path}/my dir"


def test_a_plain_path_is_not_decoded(tmp_path: Path) -> None:
    (tmp_path / "a%20b").mkdir()
    assert open_storage(f"{tmp_path}/a%20b").exists("")


@pytest.mark.parametrize("name", ["a%20b", "50%25 #1?, ü", "100% of it"])
@pytest.mark.parametrize("spelling", ["file:{}/{}", "file://{}/{}", "file://localhost{}/{}"])
def test_a_path_that_exists_as_hadoop_spells_it_is_not_decoded(tmp_path: Path, name: str, spelling: str) -> None:
    (tmp_path / name).mkdir()
    assert open_storage(spelling.format(tmp_path, name)).url == f"{tmp_path}/{name}"


@pytest.mark.parametrize(
    ("told", "root"),
    [
        ("/a b/50%25", "file:/a b/50%25"),
        ("file:///a/ck#1", "file:/a/ck#1"),
        ("file:/a%20b/ck", "file:/a b/ck"),
        ("s3a://bucket/ck/", "s3a://bucket/ck"),
    ],
)
def test_a_root_is_spelled_as_a_running_query_spells_it(told: str, root: str) -> None:
    assert root_by_spark(told) == root


def test_a_relative_path_is_a_directory_of_this_machine() -> None:
    assert open_storage("some/where").url == f"{Path.cwd()}/some/where"


def test_other_schemes_go_through_fsspec() -> None:
    assert isinstance(open_storage("memory://bucket/root"), FsspecStorage)


def test_an_unknown_scheme_is_refused_in_words() -> None:
    with pytest.raises(UnreachableStorage, match="nosuch://"):
        open_storage("nosuch://bucket/root")


def test_a_url_is_shown_without_its_secrets() -> None:
    storage = FsspecStorage("memory://user:secret@bucket/root")
    assert "secret" not in storage.url
    assert storage.url == "memory://bucket/root"


def test_a_companion_lies_beside_its_file() -> None:
    assert (companion("offsets/3"), companion("metadata")) == ("offsets/.3.crc", ".metadata.crc")
