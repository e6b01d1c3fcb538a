"""Which jars Spark found for ``spark.jars.packages`` the last time, so that it need not resolve them at every start.

A coordinate with a fixed version never changes its meaning. What is remembered is what Spark itself had resolved; where
one file of it is gone or has another size, Spark resolves again.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onceonly.cache import cache_directory
from onceonly.pins import SPARK_VERSION
from onceonly_checkpoints.storage import local_path

PACKAGES, JARS = "spark.jars.packages", "spark.jars"

_OTHER_MEANING = ("spark.jars.excludes", "spark.jars.repositories", "spark.jars.ivy")
_SETTINGS = "spark.jars.ivySettings"
_FIXED = re.compile(r"[\w.-]+:[\w.-]+:\d[\w.-]*")


def key(options: Mapping[str, Any]) -> str | None:
    """What the jars of these settings are remembered under; ``None`` where they may mean other jars tomorrow.

    Args:
        options: of a session's builder.
    """
    coordinates = split(options.get(PACKAGES))
    fixed = all(_FIXED.fullmatch(one) and not one.endswith("-SNAPSHOT") for one in coordinates)
    if not coordinates or not fixed or options.get(_SETTINGS):
        return None
    meant = [SPARK_VERSION, *coordinates, *(f"{name}={options.get(name) or ''}" for name in _OTHER_MEANING)]
    return hashlib.sha256("\n".join(meant).encode()).hexdigest()[:16]


def recall(key: str, cache: Path | None = None) -> tuple[Path, ...] | None:
    """The jars, in Spark's order; ``None`` if they are not known or not what they were."""
    try:
        noted = json.loads(_note(key, cache).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    jars = tuple(Path(path) for path, _ in noted)
    same = all(jar.is_file() and jar.stat().st_size == size for jar, (_, size) in zip(jars, noted, strict=True))
    return jars if same else None


def remember(key: str, jars: Sequence[Path], cache: Path | None = None) -> None:
    """Note what Spark resolved; nothing where a jar brings Python code, which only a package puts on Python's path."""
    if not jars or any(_brings_python(jar) for jar in jars):
        return
    note = _note(key, cache)
    note.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=note.parent, prefix=".note-", delete=False) as file:
        json.dump([[str(jar), jar.stat().st_size] for jar in jars], file)
    Path(file.name).replace(note)


def resolved(started: str, given: str | None) -> tuple[Path, ...]:
    """The jars that Spark added to those that the user named.

    Args:
        started: ``spark.jars`` of the running context.
        given: ``spark.jars`` of the builder.
    """
    named = {Path(jar).name for jar in split(given)}
    return tuple(jar for jar in local(split(started)) if jar.name not in named)


def local(jars: Iterable[str]) -> tuple[Path, ...]:
    """The jars among these paths and URIs that lie on this machine."""
    return tuple(path for path in map(local_path, jars) if path.is_absolute() and path.is_file())


def split(text: object) -> list[str]:
    """Parts of a list that is separated by commas."""
    return [part.strip() for part in str(text or "").split(",") if part.strip()]


def _note(key: str, cache: Path | None) -> Path:
    return (cache or cache_directory()) / "packages" / f"{key}.json"


def _brings_python(jar: Path) -> bool:
    with zipfile.ZipFile(jar) as opened:
        return any(name.endswith(".py") for name in opened.namelist())
