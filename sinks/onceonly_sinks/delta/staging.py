"""Name and remove Spark's staging folders beside a table."""

from __future__ import annotations

import hashlib
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from onceonly_checkpoints.storage import is_local
from onceonly_sinks.delta.log import remote

STAGING = "_onceonly_staging"
"""In the table's directory; Delta and its VACUUM pass over names that begin with an underscore."""

_ATTEMPT = re.compile(r"g(\d+)-e\d+-[0-9a-f]{32}")


def root_of(app: str) -> str:
    """Staging folder of one application, relative to the table."""
    return f"{STAGING}/{hashlib.sha256(app.encode()).hexdigest()[:16]}"


def attempt(app: str, generation: int, epoch: int) -> str:
    """A folder for one attempt at an epoch, relative to the table. It is never used twice."""
    return f"{root_of(app)}/g{generation}-e{epoch}-{uuid.uuid4().hex}"


def is_older(name: str, generation: int) -> bool:
    """Whether a folder's name is that of an attempt of a lower generation."""
    named = _ATTEMPT.fullmatch(name)
    return named is not None and int(named[1]) < generation


def delete(root: str, options: Mapping[str, str] | None, folder: str) -> None:
    """Delete a folder of a table, if it exists. Never fails: leftovers are invisible, and swept later.

    ``root`` is a directory or URI, and ``folder`` is relative to it. ``options`` are deltalake's storage options.
    """
    if is_local(root):
        shutil.rmtree(Path(root) / folder, ignore_errors=True)
        return
    with suppress(Exception):
        remote(root, options).delete_dir(folder)


def sweep(root: str, options: Mapping[str, str] | None, app: str, generation: int) -> None:
    """Delete folders that lower generations staged."""
    base = root_of(app)
    for name in list(_names(root, options, base)):
        if is_older(name, generation):
            delete(root, options, f"{base}/{name}")


def _names(root: str, options: Mapping[str, str] | None, folder: str) -> Iterator[str]:
    if is_local(root):
        place = Path(root) / folder
        yield from (path.name for path in place.iterdir()) if place.is_dir() else ()
        return
    import pyarrow.fs as pa_fs

    for info in remote(root, options).get_file_info(pa_fs.FileSelector(folder, allow_not_found=True)):
        yield str(info.base_name)
