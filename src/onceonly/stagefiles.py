"""Where staged files lie: a directory that driver and executors share, or any store that fsspec and Spark both reach.

Spark writes and reads the files by its own file system; this process lists, checks and removes them, and brings their
rows to sinks that write from the driver.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol, Self

from onceonly.errors import refuse
from onceonly_checkpoints.storage import (
    FsspecStorage,
    LocalStorage,
    UnreachableStorage,
    file_in_the_way,
    file_system,
    flush_directory,
    is_local,
    local_path,
    make_directories,
    without_secrets,
)


class Directory(Protocol):
    """A directory of staged files, or the one above such directories."""

    @property
    def address(self) -> str:
        """As Spark and markers spell it: an absolute path, or a URL without secrets."""
        ...

    def child(self, name: str) -> Self:
        """A directory in this one, made or not."""
        ...

    def make(self) -> None:
        """Make it with those above; may repeat."""
        ...

    def names(self) -> tuple[str, ...]:
        """Names of what lies in it, sorted; empty where it is not there."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a file; ``None`` where there is none."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading, seekable."""
        ...

    def read(self, name: str) -> bytes:
        """Content of a small file."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Create a small file, whole or not at all, that lasts when this returns."""
        ...

    def flush(self, name: str) -> None:
        """Have a file's bytes last."""
        ...

    def flush_names(self) -> None:
        """Have the names in it last."""
        ...

    def remove(self, first: str) -> None:
        """Remove it with all it holds; what cannot be removed stays.

        Args:
            first: the file to remove before all others: without its manifest the rest is nobody's, whatever a crash
                leaves of it.
        """
        ...


def directory(place: str) -> Directory:
    """The directory at a place as a user spells it.

    Args:
        place: a path, a ``file:`` URI, or a URL that Spark and an installed driver of fsspec understand.

    Raises:
        ConfigurationError: E114, no driver of fsspec reads it here, it carries a secret, or a file is in the way.
    """
    if not is_local(place):
        return RemoteDirectory(place)
    path = local_path(place).absolute()
    if found := file_in_the_way(path):
        raise refuse("E114", place=place, cause=f"{found} is a file")
    return LocalDirectory(path)


class LocalDirectory:
    """On a disk that driver and executors share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def address(self) -> str:
        """The absolute path."""
        return str(self.path)

    def child(self, name: str) -> LocalDirectory:
        """A directory in this one."""
        return LocalDirectory(self.path / name)

    def make(self) -> None:
        """Make it; its name and those above last."""
        make_directories(self.path)

    def names(self) -> tuple[str, ...]:
        """What lies in it."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return tuple(sorted(path.name for path in self.path.iterdir()))
        return ()

    def size(self, name: str) -> int | None:
        """Bytes of a file, if it is one."""
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        return (self.path / name).open("rb")

    def read(self, name: str) -> bytes:
        """Content of a file."""
        return (self.path / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        """Create a flushed file under a flushed name."""
        LocalStorage(self.path).create(name, data)

    def flush(self, name: str) -> None:
        """Flush a file that somebody else has written."""
        with self.open(name) as stream:
            os.fsync(stream.fileno())

    def flush_names(self) -> None:
        """Flush the directory."""
        flush_directory(self.path)

    def remove(self, first: str) -> None:
        """Remove it, the file ``first`` before the rest."""
        with suppress(OSError):
            (self.path / first).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


class RemoteDirectory:
    """In a store that fsspec reaches: what it has taken lasts, so nothing is to be flushed."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        if without_secrets(self._url) != self._url:
            cause = "its URL carries a login or a query, which every marker would show"
            raise refuse("E114", place=without_secrets(url), cause=cause)
        try:
            self._files, self._root = file_system(self._url)
            self._storage = FsspecStorage(self._url)
        except UnreachableStorage as error:
            raise refuse("E114", place=url, cause=str(error)) from error

    @property
    def address(self) -> str:
        """The URL."""
        return self._url

    def child(self, name: str) -> RemoteDirectory:
        """A directory in this one."""
        return RemoteDirectory(f"{self._url}/{name}")

    def make(self) -> None:
        """Make it, where the store has directories at all."""
        self._files.makedirs(self._root, exist_ok=True)

    def names(self) -> tuple[str, ...]:
        """What lies in it."""
        return self._storage.names("")

    def size(self, name: str) -> int | None:
        """Bytes of a file, if it is one."""
        self._files.invalidate_cache()
        try:
            found: dict[str, Any] = self._files.info(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return int(found["size"]) if found["type"] == "file" else None

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        opened: IO[bytes] = self._files.open(f"{self._root}/{name}", "rb")
        return opened

    def read(self, name: str) -> bytes:
        """Content of a file."""
        return self._storage.read(name)

    def create(self, name: str, data: bytes) -> None:
        """Put a file where there is none."""
        self._storage.create(name, data)

    def flush(self, name: str) -> None:
        """Nothing to do."""

    def flush_names(self) -> None:
        """Nothing to do."""

    def remove(self, first: str) -> None:
        """Remove it, the file ``first`` before the rest."""
        # Whatever a store answers: garbage that stays is swept at the next opening.
        with suppress(OSError):
            self._storage.delete(first)
            self._files.rm(self._root, recursive=True)
