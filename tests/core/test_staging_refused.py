"""Where epochs cannot be staged, and whose fault that is: the cause that is true, with the one remedy that applies."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import fsspec
import pytest
from tests.core.several import offered, rows

from onceonly import Storage, exactly_once
from onceonly.errors import ConfigurationError, DestinationError
from onceonly.machine.rewind import RewindRequest
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.remedies import CommandContext, set_back
from onceonly.runtime.staged_files import hindrance
from onceonly.runtime.staging import StagedData, StagedEpochs, fetch
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.manifest import UnreachableManifest, UnreadableManifest
from onceonly_checkpoints.model import Adoption, AdoptionKind
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
    """A batch whose executors have disks of their own: the driver sees what those on its machine wrote, and no more."""

    def write(self, directory: str) -> None:
        super().write(directory)
        for file in Path(directory).glob("*.parquet"):
            file.unlink()
        Path(directory, "_SUCCESS").touch()


def stage(place: Path | str, batch: ArrowBatch) -> StagedData:
    """Stage a batch as the first epoch of a pipeline."""
    staging = StagedEpochs(str(place), "orders", [MemorySink("a"), MemorySink("b")])
    return staging.write(batch, 1, Fence(1, "owner"), offered(1).slice)


def left(place: Path) -> list[str]:
    """What attempts have left there."""
    return [path.name for path in place.glob("*/*")]


def remedy(place: object) -> str:
    with pytest.raises(ConfigurationError) as refused:
        exactly_once(MemorySink("a"), MemorySink("b"), storage=Storage(staging=place))  # type: ignore[arg-type]
    assert refused.value.code == "E114"
    return refused.value.remedy


def test_a_file_in_the_way_is_to_be_moved_and_no_driver_installed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = remedy(tmp_path / "file" / "staging")
    assert said.startswith("move the file away, or name another")
    assert "fsspec" not in said


class Unusable(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A driver that is installed and does not work, as that of HDFS is without Hadoop's native library."""

    protocol = "unusable"
    cachable = False

    def __init__(self, **_: object) -> None:
        raise OSError("Unable to load libjvm\ndlopen(libjvm.so) failed")


def test_a_driver_that_does_not_work_is_a_refusal_with_its_first_words() -> None:
    fsspec.register_implementation("unusable", Unusable, clobber=True)
    with pytest.raises(ConfigurationError, match="E114") as refused:
        StagedEpochs("unusable://node/staging", "orders", [MemorySink("a"), MemorySink("b")])
    assert "driver of fsspec for unusable:// does not work here: Unable to load libjvm\n" in str(refused.value)
    assert "dlopen" not in str(refused.value)
    assert refused.value.remedy.startswith("install the driver of fsspec")


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
        (errno.ENOTDIR, "a file is in the place", "move the file away"),
        (errno.EMFILE, "too many files open", "raise the limit"),
        (errno.ENOENT, "do not share", "name a directory that driver and executors share"),
        (errno.EIO, "its disk or store", "repair it"),
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
    assert "0 of its 10 rows are there" in str(refused.value)
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


class NoCredentialsError(Exception):
    """As drivers of stores have their own, which are no OSError."""


class LockedStore(fsspec.AbstractFileSystem):
    """A store that lets nobody in from here."""

    protocol = "locked"

    def _open(self, path: str, *args: object, **options: object) -> NoReturn:
        raise NoCredentialsError(path)

    def info(self, path: str, **options: object) -> NoReturn:
        raise NoCredentialsError(path)


@pytest.mark.parametrize(
    ("place", "words"),
    [("locked://bucket/e1", "NoCredentialsError"), ("gcs://bucket/e1", "install gcsfs"), ("s4://bucket/e1", "s4")],
)
def test_a_store_that_gives_no_answer_here_has_not_lost_what_was_staged(place: str, words: str) -> None:
    fsspec.register_implementation("locked", LockedStore, clobber=True)
    with pytest.raises(UnreachableManifest) as refused:
        fetch(f"{place}#sha256={'0' * 64}", None)
    assert words in str(refused.value)
    assert "ONCE-" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_was_staged_and_is_gone_is_known_to_be_gone(tmp_path: Path) -> None:
    with pytest.raises(UnreadableManifest) as refused:
        fetch(f"{tmp_path}/e1#sha256={'0' * 64}", None)
    assert not isinstance(refused.value, UnreachableManifest)


def test_what_cannot_be_read_here_is_to_be_brought_from_where_it_can() -> None:
    lost, where = Adoption(AdoptionKind.ACCEPT_LOSS, ("a",), 3, 3), CommandContext("orders", " --ledger ledger.db")
    said = set_back(
        where, lost, level=RewindRequest(2, ("a",)), staged=True, amount="1 epoch", gone="gcs://bucket/e1: no driver"
    )
    assert "not readable here: gcs://bucket/e1: no driver. Run it where it is" in said
    first, last = said.splitlines()
    assert first.endswith("onceonly recover resolve --query orders --ledger ledger.db")
    assert last.startswith("or, if they are gone everywhere, give up 1 epoch: onceonly recover adopt orders")
