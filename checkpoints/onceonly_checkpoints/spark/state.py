"""Read a version of Spark's state from names and sizes of files."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from onceonly_checkpoints.epoch import StateVersion
from onceonly_checkpoints.storage import Readable, Sized

VERSION = re.compile(r"(\d+)(_[^/]*)?\.(delta|snapshot|changelog|zip)")
"""A file of one version, of the HDFS provider or of RocksDB. ``_`` begins a unique id."""

_NOTES = {"_metadata", "_stateSchema"}
"""Folders of Spark's own notes beside the stores."""

_AT_ONCE = 16


def read_state(files: Readable, version: int) -> StateVersion | None:
    """Return a version of the state, or ``None`` if its storage tells no sizes. One listing per store.

    A store is one partition of one operator. A join keeps several per partition, each in a directory of its own.
    """
    if not isinstance(files, Sized):
        return None
    operators: list[tuple[str, int, str]] = []
    lacking: list[str] = []
    pattern = re.compile(rf"{version}(_[^/]*)?\.(delta|changelog|zip)")
    # One after the other, 200 listings of an object store would take ten seconds.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for operator in filter(str.isdigit, files.names("state")):
            numbers = filter(str.isdigit, files.names(f"state/{operator}"))
            partitions = pool.map(partial(_stores, files, pattern), [f"{operator}/{number}" for number in numbers])
            stores = [store for partition in partitions for store in partition]
            lines = [f"{store}/{name} {size}" for store, written in stores for name, size in written]
            lacking += [store for store, written in stores if not written]
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
            operators += [(operator, len(lines), digest)] if stores else []
    return StateVersion(version, tuple(operators), tuple(lacking))


def _stores(files: Sized, pattern: re.Pattern[str], partition: str) -> list[tuple[str, list[tuple[str, int]]]]:
    sizes = files.sizes(f"state/{partition}", pattern)
    folders = sorted(name for name in sizes if not VERSION.fullmatch(name) and name not in _NOTES)
    if not folders or any(map(VERSION.fullmatch, sizes)):
        return [(partition, _written(sizes))]
    stores = [f"{partition}/{folder}" for folder in folders]
    return [(store, _written(files.sizes(f"state/{store}", pattern))) for store in stores]


def _written(sizes: dict[str, int | None]) -> list[tuple[str, int]]:
    """Return the files that the batch itself wrote. Maintenance adds snapshots, and zips to changelogs, later.

    With a unique id in the name, Spark's commit log tells which of them it loads, and each replay leaves one more.
    """
    kinds: dict[str, dict[str, int]] = {}
    for name, size in sorted(sizes.items()):
        if size is not None:
            stem, _, kind = name.rpartition(".")
            version, unique, _ = stem.partition("_")
            kinds.setdefault(kind, {})[version] = 0 if unique else size
    return next(([*kinds[kind].items()] for kind in ("delta", "changelog", "zip") if kind in kinds), [])
