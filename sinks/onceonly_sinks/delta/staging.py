"""The folder where Spark stages an epoch's rows beside a table: its names, and its removal."""

from __future__ import annotations

import hashlib
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGING = "_onceonly_staging"
"""In the table's directory; Delta and its VACUUM pass over names that begin with an underscore."""

_ATTEMPT = re.compile(r"g(\d+)-e\d+-[0-9a-f]{32}")


def root_of(table: str, app: str) -> str:
    """Staging folder of one application; ``table`` is the table's URI."""
    return f"{table}/{STAGING}/{hashlib.sha256(app.encode()).hexdigest()[:16]}"


def attempt(table: str, app: str, generation: int, epoch: int) -> str:
    """A folder for one attempt at an epoch; never used twice."""
    return f"{root_of(table, app)}/g{generation}-e{epoch}-{uuid.uuid4().hex}"


def is_older(name: str, generation: int) -> bool:
    """Whether a folder's name is that of an attempt of a lower generation."""
    named = _ATTEMPT.fullmatch(name)
    return named is not None and int(named[1]) < generation


def delete(folder: str, session: SparkSession | None) -> None:
    """Delete a folder, if it is there. Never fails: what is left is invisible, and the next opening sweeps it."""
    if local := _local(folder):
        shutil.rmtree(local, ignore_errors=True)
    elif session is not None:
        try:
            files, path = _hadoop(session, folder)
            files.delete(path, True)
        except Exception:  # noqa: BLE001  any failure of any store; see above
            return


def sweep(table: str, app: str, generation: int, session: SparkSession | None) -> None:
    """Delete the attempts of lower generations. In an object store only Spark can."""
    root = root_of(table, app)
    for name in list(_names(root, session)):
        if is_older(name, generation):
            delete(f"{root}/{name}", session)


def _names(folder: str, session: SparkSession | None) -> Iterator[str]:
    if local := _local(folder):
        if local.is_dir():
            yield from (path.name for path in local.iterdir())
    elif session is not None:
        files, path = _hadoop(session, folder)
        if files.exists(path):
            yield from (status.getPath().getName() for status in files.listStatus(path))


def _local(folder: str) -> Path | None:
    parts = urlsplit(folder)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def _hadoop(session: SparkSession, folder: str) -> tuple[Any, Any]:
    """Hadoop's file system of a folder: it has the credentials with which Spark wrote there."""
    jvm: Any = session.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    return path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()), path
