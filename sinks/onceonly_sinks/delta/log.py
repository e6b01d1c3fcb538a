"""Reads the commit files of a Delta log one by one, without a table handle, on a local disk or in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from onceonly_sinks.delta import loginspect
from onceonly_sinks.delta.loginspect import Entry
from onceonly_sinks.delta.stores import is_local, remote

LOG = "_delta_log"


class _Files(Protocol):
    def read(self, name: str) -> str | None: ...

    def names(self) -> list[str]: ...


class _Local:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> str | None:
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        try:
            return [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []


class _Remote:
    def __init__(self, root: str, options: dict[str, str] | None) -> None:
        self._root = root
        self._options = options

    @cached_property
    def _store(self) -> Any:
        return remote(self._root, self._options)

    def read(self, name: str) -> str | None:
        try:
            with self._store.open_input_file(f"{LOG}/{name}") as file:
                return str(file.read(), "utf-8")
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        import pyarrow.fs as pa_fs

        found = self._store.get_file_info(pa_fs.FileSelector(LOG, allow_not_found=True))
        return [info.base_name for info in found]


class DeltaLog:
    """The commit files of one table, seen by one application.

    Args:
        root: the table's directory, or its URI.
        app: application id whose notes are meant.
        options: storage options of deltalake.
    """

    def __init__(self, root: str, app: str, options: dict[str, str] | None = None) -> None:
        self.app = app
        self._files: _Files = _Local(Path(root) / LOG) if is_local(root) else _Remote(root, options)

    def entry(self, version: int) -> Entry | None:
        """One version; ``None`` if its file is not there: not written yet, or cleaned away."""
        text = self.text(version)
        return None if text is None else loginspect.parse(version, text, self.app)

    def text(self, version: int) -> str | None:
        """Text of one version's commit file; ``None`` if it is not there."""
        return self._files.read(f"{version:020d}.json") if version >= 0 else None

    def since(self, version: int) -> Iterator[Entry]:
        """Entries from ``version`` on, until the first that is missing."""
        while (entry := self.entry(version)) is not None:
            yield entry
            version += 1

    def before(self, version: int) -> Iterator[Entry]:
        """Entries from ``version`` down, until the first that is missing."""
        while (entry := self.entry(version)) is not None:
            yield entry
            version -= 1

    def newest(self, head: int) -> Entry | None:
        """Our newest commit at or below ``head``; others' commits may lie above it. ``None``: none, or cleaned away."""
        return next((entry for entry in self.before(head) if entry.note), None)

    def versions(self) -> list[int]:
        """Versions whose commit files still exist, ascending."""
        stems = (name.removesuffix(".json") for name in self._files.names() if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def head(self) -> int:
        """The newest version; -1 if there is none."""
        return max(self.versions(), default=-1)
