"""List, read and atomically create small files under one root."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

_ALIASES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfs"}
"""Hadoop's names of schemes that fsspec spells otherwise."""

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class UnreachableStorage(Exception):
    """A storage cannot be opened at all: unknown scheme, or its driver is not installed."""


class Readable(Protocol):
    """Reads small files below a root. Paths are relative, with ``/``. The root itself is ``""``."""

    @property
    def url(self) -> str:
        """The root, without secrets."""
        ...

    def names(self, directory: str) -> tuple[str, ...]:
        """Names in a directory, sorted, without hidden ones, empty if there is no such directory."""
        ...

    def read(self, path: str) -> bytes:
        """Content of a file. Raises ``FileNotFoundError`` if there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        ...


@runtime_checkable
class Sized(Readable, Protocol):
    """Lists sizes, too."""

    def sizes(self, directory: str, pattern: re.Pattern[str]) -> dict[str, int | None]:
        """Visible names in a directory, those that match with their bytes, others with ``None``. One listing."""
        ...


class FileStore(Readable, Protocol):
    """Reads and changes small files below a root.

    Hadoop writes a checksum companion ``.name.crc`` beside each local file. Spark can no longer read a file that was
    changed under its companion. So :meth:`create` and :meth:`delete` drop the companion too.
    """

    def create(self, path: str, data: bytes) -> None:
        """Create a file with its directories: whole or not at all, and never over another.

        Raises ``FileExistsError`` if there is one, which is not touched.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file, if there is one."""
        ...


def companion(path: str) -> str:
    """Path of Hadoop's checksum file for ``path``."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/.{name}.crc" if directory else f".{name}.crc"


def visible(names: Iterable[str]) -> tuple[str, ...]:
    """Names without hidden ones, sorted."""
    return tuple(sorted(name for name in names if not name.startswith(".")))


def open_storage(url: str) -> FileStore:
    """Storage for a checkpoint root as Spark spells it: a path, ``file:/path``, ``s3a://bucket/path`` ...

    Raises :class:`UnreachableStorage` if the scheme is unknown, or its fsspec driver is not installed.
    """
    return LocalStorage(url) if is_local(url) else FsspecStorage(url)


_AUTHORITY = re.compile("^//[^/]*")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")


def scheme_of(location: str) -> str:
    """The scheme of a place as people and Spark spell it, in lower case, empty for a path.

    Spark accepts one slash for a URL as well (``dbfs:/mnt``). Other readers need two (see :func:`half_url`).
    """
    match = _SCHEME.match(location)
    return match[1].lower() if match else "file" if location.startswith("file:") else ""


def is_local(url: str) -> bool:
    """Whether a place is a directory of this machine."""
    return scheme_of(url) in ("", "file")


def half_url(location: str) -> str:
    """Advice for a URL with one slash, ``dbfs:/mnt``, which Spark alone reads, empty for others."""
    scheme = scheme_of(location)
    if is_local(location) or location[len(scheme) :].startswith("://"):
        return ""
    rest = location[len(scheme) + 1 :].lstrip("/")
    mount = f"its mount, /dbfs/{rest}, or the URL of the store" if scheme == "dbfs" else "a URL with two slashes"
    return f"{mount}, {'s3://bucket' if scheme == 'dbfs' else f'{scheme}:/'}/{rest}; for a folder ./{location}"


def resolved(location: str) -> str:
    """Normalize a place: a path without links, or a URL by one name of its scheme."""
    if is_local(location):
        return str(local_path(location).resolve())
    scheme = scheme_of(location)
    return _ALIASES.get(scheme, scheme) + without_secrets(location)[len(scheme) :].rstrip("/")


def local_path(url: str) -> Path:
    """Path of a plain path, which is taken as it is, or of one after ``file:``.

    Hadoop writes the latter as it is too, with its blanks and signs. People write a URI. So an existing path counts as
    it is spelled, and any other is percent-decoded.
    """
    if not url.startswith("file:"):
        return Path(url)
    path = _AUTHORITY.sub("", url.removeprefix("file:"), count=1)
    return Path(path) if "%" not in path or Path(path).exists() else Path(unquote(path))


def path_next_to(checkpoint: str, what: str) -> str:
    """A path or URL next to a checkpoint, so that deleting the checkpoint keeps its files."""
    if not is_local(checkpoint):
        return f"{checkpoint.rstrip('/')}.{what}"
    root = local_path(checkpoint)
    return str(root.with_name(f"{root.name}.{what}"))


def root_by_spark(checkpoint: str) -> str:
    """A checkpoint's root as a running query spells it: with a scheme, and for a local disk with one slash."""
    return f"file:{local_path(checkpoint).absolute()}" if is_local(checkpoint) else checkpoint.rstrip("/")


def file_in_the_way(folder: Path) -> Path | None:
    """The file at a path, or at one of its parents, that prevents a directory there."""
    return next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)


class LocalStorage:
    """A directory of this machine, given as a path or ``file:`` URI. It need not exist.

    A created file and its directory entry are on the disk when ``create`` returns.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = local_path(os.fspath(root)).absolute()

    @property
    def url(self) -> str:
        """The root's absolute path."""
        return str(self._root)

    def names(self, directory: str) -> tuple[str, ...]:
        """Names in a directory, sorted, without hidden ones."""
        try:
            return visible(entry.name for entry in (self._root / directory).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def sizes(self, directory: str, pattern: re.Pattern[str]) -> dict[str, int | None]:
        """Names, with bytes if they match."""
        try:
            with os.scandir(self._root / directory) as entries:
                by_name = {entry.name: entry for entry in entries}
                return {
                    name: by_name[name].stat().st_size if pattern.fullmatch(name) else None for name in visible(by_name)
                }
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def read(self, path: str) -> bytes:
        """Content of a file."""
        try:
            return (self._root / path).read_bytes()
        except NotADirectoryError as error:
            raise FileNotFoundError(error.errno, error.strerror, error.filename) from error

    def create(self, path: str, data: bytes) -> None:
        """Create a file atomically: a flushed temporary file is linked to its name, then the directory is flushed."""
        target = self._root / path
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        make_directories(target.parent)
        (self._root / companion(path)).unlink(missing_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            _publish(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        flush_directory(target.parent)

    def delete(self, path: str) -> None:
        """Delete a file and its companion."""
        (self._root / path).unlink(missing_ok=True)
        (self._root / companion(path)).unlink(missing_ok=True)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return (self._root / path).exists()


def _publish(temporary: Path, target: Path) -> None:
    try:
        target.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without hard links an exclusive empty file claims the name: a crash here leaves it empty, never half.
        target.open("xb").close()
        temporary.replace(target)


def make_directories(directory: Path) -> None:
    """Create a directory with its parents, each flushed into the one above it."""
    if directory.is_dir():
        return
    make_directories(directory.parent)
    directory.mkdir(exist_ok=True)
    flush_directory(directory.parent)


def flush_directory(directory: Path) -> None:
    """Flush the names in a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system that a URL names, and the path in it. Hadoop's scheme names are understood.

    Raises :class:`UnreachableStorage` if the scheme is unknown, or its driver is not installed.
    """
    import fsspec

    if instead := half_url(url):
        raise UnreachableStorage(f"{url} is neither a path nor a URL; write {instead}")
    scheme, separator, rest = url.partition("://")
    try:
        fs, root = fsspec.core.url_to_fs(f"{_ALIASES.get(scheme, scheme)}{separator}{rest}")
    except (ImportError, ValueError) as error:
        raise UnreachableStorage(f"{scheme}:// cannot be read here: {error}") from error
    return fs, str(root).rstrip("/")


_NOTHING = re.compile("")


class FsspecStorage:
    """A root on any fsspec file system, given as ``scheme://...``. Hadoop's scheme names are understood.

    How exclusive ``create`` is depends on the store: conditional if its driver offers that, else a check before the
    write. Fencing must not rest on it. Raises as :func:`file_system`.
    """

    def __init__(self, url: str) -> None:
        self._fs, self._root = file_system(url)
        self._url = without_secrets(url)

    @property
    def url(self) -> str:
        """The root as it was given, without credentials."""
        return self._url

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def names(self, directory: str) -> tuple[str, ...]:
        """Names in a directory, sorted, without hidden ones."""
        return tuple(sorted(self.sizes(directory, _NOTHING)))

    def sizes(self, directory: str, pattern: re.Pattern[str]) -> dict[str, int | None]:
        """Names, with bytes if they match."""
        # Object stores cache listings; a cached one hides what the running query has just written.
        self._fs.invalidate_cache()
        try:
            listing = self._fs.ls(self._at(directory), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        sizes = {str(entry["name"]).rstrip("/").rpartition("/")[2]: entry["size"] for entry in listing}
        return {name: sizes[name] if pattern.fullmatch(name) else None for name in visible(sizes)}

    def read(self, path: str) -> bytes:
        """Content of a file."""
        return bytes(self._fs.cat_file(self._at(path)))

    def create(self, path: str, data: bytes) -> None:
        """Create a file if there is none."""
        target = self._at(path)
        if self._fs.exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._drop(companion(path))
        self._fs.pipe_file(target, data, mode="create")

    def delete(self, path: str) -> None:
        """Delete a file and its companion."""
        self._drop(path)
        self._drop(companion(path))

    def _drop(self, path: str) -> None:
        try:
            self._fs.rm_file(self._at(path))
        except FileNotFoundError:
            return

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        self._fs.invalidate_cache()
        return bool(self._fs.exists(self._at(path)))


def without_secrets(url: str) -> str:
    """A URL without login, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
