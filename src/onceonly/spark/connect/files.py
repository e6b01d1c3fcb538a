"""Read files through the Spark Connect session."""

from __future__ import annotations

import errno
import logging
import os
import re
import uuid
from typing import Any

from onceonly_checkpoints.storage import (
    LocalStorage,
    Readable,
    UnreachableStorage,
    is_local,
    open_storage,
    visible,
    without_secrets,
)

log = logging.getLogger(__name__)

_MISSING = "PATH_NOT_FOUND"


class SessionFiles:
    """Reading half of a storage by ``spark.read``. Each call is a job, so for stores that nothing else reaches."""

    def __init__(self, session: Any, url: str) -> None:
        self._session, self._root = session, url.rstrip("/")

    @property
    def url(self) -> str:
        """The given root, without credentials."""
        return without_secrets(self._root)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return names of files in a directory, sorted, without hidden ones."""
        found = self._found(directory, "path")
        return visible(str(row.path).rsplit("/", 1)[-1] for row in found or ())

    def read(self, path: str) -> bytes:
        """Read a file."""
        found = self._found(path, "content")
        if not found:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return bytes(found[0].content)

    def exists(self, path: str) -> bool:
        """Check whether there is a file or directory."""
        return self._found(path, "path") is not None

    def _found(self, path: str, column: str) -> Any:
        return _asked(self._session, f"{self._root}/{path}" if path else self._root, column)


def size(session: Any, path: str) -> int | None:
    """Return bytes of a file, or ``None`` if it is gone."""
    found = _asked(session, path, "length")
    return int(found[0].length) if found else None


def _asked(session: Any, path: str, column: str) -> Any:
    """Return rows of the files at a path, or ``None`` if there is neither file nor directory."""
    from pyspark.errors import AnalysisException

    literal = re.sub(r"([\\*?{}\[\]])", r"\\\1", path)
    try:
        # A server keeps the plans of a session by what was asked, the client's own number of the plan included; and
        # every run's worker is a client of that session that numbers from nought. What this call adds is asked never
        # again, so it is not answered out of what another client saw there.
        reader = session.read.format("binaryFile").option("onceonly.asked", uuid.uuid4().hex)
        return reader.load(literal).select(column).collect()
    except AnalysisException as error:
        if error.getCondition() != _MISSING:
            raise
        return None


def files_of(session: Any, checkpoint: str) -> Readable:
    """Return a checkpoint's files: local, by a driver of fsspec, else by the session, with the server's login."""
    if is_local(checkpoint):
        return LocalStorage(checkpoint)
    try:
        storage = open_storage(checkpoint)
        if storage.exists("metadata"):
            return storage
    except UnreachableStorage as error:
        log.info("%s is read by Spark: %s", without_secrets(checkpoint), error)
    except Exception as error:  # noqa: BLE001 - whatever a driver's own login comes to, the server's is another one
        log.info("%s is read by Spark: %s", without_secrets(checkpoint), type(error).__name__)
    return SessionFiles(session, checkpoint)
