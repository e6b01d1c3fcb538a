"""Where epochs cannot be staged, and whose fault that is: the cause that is true, with the one remedy that applies."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.core.several import offered, rows

from onceonly import exactly_once
from onceonly.batch import ArrowBatch
from onceonly.errors import ConfigurationError, DestinationError
from onceonly.stagefiles import hindrance
from onceonly.staging import Staged, Staging
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.memory import MemorySink


class Failing(ArrowBatch):
    """A batch whose action fails after it has written its rows."""

    def __init__(self, error: OSError, file: str = "") -> None:
        super().__init__(rows(1))
        self.error, self.file = error, file

    def write(self, directory: str) -> None:
        super().write(directory)
        if self.file:
            self.error.filename = f"{directory}/{self.file}"
        raise self.error


class Scattering(ArrowBatch):
    """A batch whose files are gone when the driver looks for them."""

    def write(self, directory: str) -> None:
        super().write(directory)
        for file in Path(directory).iterdir():
            file.unlink()
            file.symlink_to("/nowhere/at/all.parquet")


def stage(place: Path | str, batch: ArrowBatch) -> Staged:
    """Stage a batch as the first epoch of a pipeline."""
    staging = Staging(str(place), "orders", [MemorySink("a"), MemorySink("b")])
    return staging.write(batch, 1, Fence(1, "owner"), offered(1).slice)


def left(place: Path) -> list[str]:
    """What attempts have left there."""
    return [path.name for path in place.glob("*/*")]


def remedy(place: object) -> str:
    with pytest.raises(ConfigurationError) as refused:
        exactly_once(MemorySink("a"), MemorySink("b"), staging=place)  # type: ignore[arg-type]
    assert refused.value.code == "E114"
    return refused.value.remedy


def test_a_file_in_the_way_is_to_be_moved_and_no_driver_installed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = remedy(tmp_path / "file" / "staging")
    assert said.startswith("move the file away, or name another")
    assert "fsspec" not in said


def test_a_login_in_the_url_is_to_be_taken_out() -> None:
    said = remedy("s3a://user:password@bucket/staging")
    assert said.startswith("take both out of the URL")
    assert "install" not in said
    assert "password" not in said


def test_a_driver_that_is_not_installed_is_to_be_installed() -> None:
    assert remedy("gcs://bucket/staging").startswith("install the driver of fsspec")


def test_an_unknown_scheme_is_to_be_corrected() -> None:
    said = remedy("s4://bucket/staging")
    assert said.startswith("correct the URL")
    assert "install" not in said


@pytest.mark.parametrize(
    ("number", "cause", "first"),
    [
        (errno.ENOSPC, "full", "make room"),
        (errno.EDQUOT, "quota", "make room"),
        (errno.EACCES, "may not write", "give it the right"),
        (errno.EROFS, "read-only", "mount it for writing"),
        (errno.ENOTDIR, "a file lies", "move the file away"),
        (errno.ENOENT, "do not share", "name a directory that driver and executors share"),
        (errno.EIO, "the disk or the store", "find out what is wrong"),
    ],
    ids=lambda value: errno.errorcode.get(value) if isinstance(value, int) else "",
)
def test_what_keeps_a_driver_from_staging_has_words_that_fit(number: int, cause: str, first: str) -> None:
    found, next_ = hindrance(OSError(number, os.strerror(number)))
    assert cause in found
    assert next_.startswith(first)


def test_a_store_says_by_its_class_what_it_has_no_number_for() -> None:
    assert hindrance(PermissionError("denied")) == hindrance(OSError(errno.EACCES, ""))
    assert hindrance(FileNotFoundError("bucket")) == hindrance(OSError(errno.ENOENT, ""))
    assert hindrance(OSError("503")) == hindrance(OSError(errno.EIO, ""))


def test_what_executors_wrote_elsewhere_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(DestinationError) as refused:
        stage(tmp_path, Scattering(rows(1)))
    assert refused.value.code == "E515"
    assert "do not share" in str(refused.value)
    assert "room" not in str(refused.value)


def test_a_place_that_the_system_keeps_for_itself_is_a_matter_of_rights() -> None:
    """A place where root, too, makes no directory."""
    with pytest.raises(DestinationError) as refused:
        stage("/sys/kernel/onceonly", ArrowBatch(rows(1)))
    assert refused.value.code == "E515"
    assert "may not write" in str(refused.value) or "read-only" in str(refused.value)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/data/lookup.csv"),
        OSError("a source of the user's own"),
    ],
    ids=["gateway", "file of the user", "source of the user"],
)
def test_what_spark_or_the_user_fails_of_is_not_the_stagings(tmp_path: Path, error: OSError) -> None:
    with pytest.raises(type(error)) as raised:
        stage(tmp_path, Failing(error))
    assert raised.value is error
    assert left(tmp_path) == []


def test_what_the_action_fails_of_in_our_own_directory_is_the_stagings(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(DestinationError) as refused:
        stage(tmp_path, Failing(full, "part-00000.parquet"))
    assert refused.value.code == "E515"
    assert refused.value.remedy.startswith("make room")
    assert left(tmp_path) == []
