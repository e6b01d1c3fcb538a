"""Staged files in a shared directory, or through fsspec.

Spark writes and reads the files by its own file system. This process lists, checks and removes them, and brings their
rows to sinks that write from the driver.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from onceonly.errors import refuse
from onceonly_checkpoints import storage

SHARED = "a directory that driver and executors share: exactly_once(..., storage=Storage(staging='/shared/staging'))"
"""What can be named in place of any that does not serve."""

_FULL = ("the disk or the quota is full", f"make room, or name another: {SHARED}")
_FORBIDDEN = ("the driver's user may not write there", f"give it the right to, or name another: {SHARED}")
_READ_ONLY = ("a file system that is read-only", f"mount it for writing, or name another: {SHARED}")
_IN_THE_WAY = ("a file is in the place of a directory", f"move the file away, or name another: {SHARED}")
_NOT_SHARED = (
    "what executors wrote is not there for the driver: they do not share the directory, or files were removed",
    f"name {SHARED}",
)
_BROKEN = ("its disk or store", f"repair it, then restart the query; or name another: {SHARED}")

_TOO_MANY = (
    "this process or this machine has too many files open",
    "raise the limit (ulimit -n) of the driver's user, then restart the query",
)

_WORDS: Mapping[int, tuple[str, str]] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _READ_ONLY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOENT: _NOT_SHARED,
    errno.EMFILE: _TOO_MANY,
    errno.ENFILE: _TOO_MANY,
}

_CLASSES: Mapping[type[OSError], tuple[str, str]] = {
    PermissionError: _FORBIDDEN,
    FileNotFoundError: _NOT_SHARED,
    NotADirectoryError: _IN_THE_WAY,
    FileExistsError: _IN_THE_WAY,
}
"""Drivers of fsspec raise these without a number."""

_DRIVER = (
    "install the driver of fsspec for that store (s3fs, gcsfs, adlfs ...) and give both it and Spark the login by "
    f"their own settings; or name {SHARED}"
)
_SCHEME = f"correct the URL; or name {SHARED}"


def hindrance(error: OSError) -> tuple[str, str]:
    """Return the cause that keeps this process from staging, and the next step."""
    if error.errno:
        return _WORDS.get(error.errno, _BROKEN)
    return next((words for kind, words in _CLASSES.items() if isinstance(error, kind)), _BROKEN)


def directory(location: str) -> Directory:
    """Return the directory at a path, a ``file:`` URI, or a URL that Spark and an installed fsspec driver understand.

    Raises E114: no fsspec driver reads it here, it carries a secret, or a file is in the way.
    """
    if not storage.is_local(location):
        return RemoteDirectory(location)
    path = storage.local_path(location).absolute()
    if blocking_file := storage.file_in_the_way(path):
        raise refuse("E114", place=location, cause=f"{blocking_file} is a file", next=_IN_THE_WAY[1])
    return LocalDirectory(path)


class LocalDirectory:
    """A directory on a disk that driver and executors share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def address(self) -> str:
        """The absolute path, as in Spark and markers."""
        return str(self.path)

    def child(self, name: str) -> LocalDirectory:
        """Return a directory in this one, created or not."""
        return LocalDirectory(self.path / name)

    def make(self) -> None:
        """Create it with its parents, and make their names durable. Idempotent."""
        storage.make_directories(self.path)

    def names(self) -> tuple[str, ...]:
        """Sorted names in it. Empty if it does not exist."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return tuple(sorted(path.name for path in self.path.iterdir()))
        return ()

    def size(self, name: str) -> int | None:
        """Bytes of a file, or ``None`` if there is none."""
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading, seekable."""
        return (self.path / name).open("rb")

    def read(self, name: str) -> bytes:
        """Content of a small file."""
        return (self.path / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        """Create a flushed file under a flushed name."""
        storage.LocalStorage(self.path).create(name, data)

    def flush(self, name: str) -> None:
        """Flush a file that another process has written."""
        with self.open(name) as stream:
            os.fsync(stream.fileno())

    def flush_names(self) -> None:
        """Flush the directory."""
        storage.flush_directory(self.path)

    def remove(self, first: str) -> None:
        """Remove it, ``first`` before all: without its manifest the rest is garbage. Unremovable files stay."""
        with suppress(OSError):
            (self.path / first).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


class RemoteDirectory:
    """A directory in a store that fsspec reaches. Its writes are durable, so ``flush`` does nothing."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        if storage.without_secrets(self._url) != self._url:
            cause = "its URL carries a login or a query, which every marker would show"
            next_ = "take both out of the URL, and give the login to Spark and to fsspec's driver by their own settings"
            raise refuse("E114", place=storage.without_secrets(url), cause=cause, next=next_)
        try:
            self._files, self._root = storage.file_system(self._url)
            self._storage = storage.FsspecStorage(self._url)
        except storage.UnreachableStorage as error:
            next_ = _DRIVER if isinstance(error.__cause__, ImportError) else _SCHEME
            raise refuse("E114", place=url, cause=str(error), next=next_) from error
        except OSError as error:
            # The driver of HDFS loads Hadoop's native library only here.
            scheme, first = self._url.partition("://")[0], (str(error).splitlines() or [""])[0]
            cause = f"the driver of fsspec for {scheme}:// does not work here: {first}"
            raise refuse("E114", place=url, cause=cause, next=_DRIVER) from error

    @property
    def address(self) -> str:
        """The URL without secrets, as in Spark and markers."""
        return self._url

    def child(self, name: str) -> RemoteDirectory:
        """Return a directory in this one, created or not."""
        return RemoteDirectory(f"{self._url}/{name}")

    def make(self) -> None:
        """Create it, if the store has directories at all."""
        self._files.makedirs(self._root, exist_ok=True)

    def names(self) -> tuple[str, ...]:
        """Sorted names in it. Empty if it does not exist."""
        return self._storage.names("")

    def size(self, name: str) -> int | None:
        """Bytes of a file, or ``None`` if there is none."""
        self._files.invalidate_cache()
        try:
            info: dict[str, Any] = self._files.info(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading, seekable."""
        opened: IO[bytes] = self._files.open(f"{self._root}/{name}", "rb")
        return opened

    def read(self, name: str) -> bytes:
        """Content of a small file."""
        return self._storage.read(name)

    def create(self, name: str, data: bytes) -> None:
        """Create a file, unless it exists."""
        self._storage.create(name, data)

    def flush(self, name: str) -> None:
        """Nothing to do."""

    def flush_names(self) -> None:
        """Nothing to do."""

    def remove(self, first: str) -> None:
        """Remove it, the file ``first`` before the rest."""
        # The next opening sweeps garbage that stays.
        with suppress(OSError):
            self._storage.delete(first)
            self._files.rm(self._root, recursive=True)


Directory = LocalDirectory | RemoteDirectory
"""A directory of staged files, or the one above such directories."""
