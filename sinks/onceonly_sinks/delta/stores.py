"""The object store behind a URI as a pyarrow file system rooted at the table, through deltalake and its credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def is_local(root: str) -> bool:
    """Whether a table's root is a directory; roots of object stores are URIs."""
    return "://" not in root


def remote(root: str, options: Mapping[str, str] | None) -> Any:
    """The store of a URI. Paths are relative to it."""
    import pyarrow.fs as pa_fs
    from deltalake.fs import DeltaStorageHandler

    handler = DeltaStorageHandler(root, dict(options) if options else None)
    return pa_fs.PyFileSystem(cast("pa_fs.FileSystemHandler", handler))
