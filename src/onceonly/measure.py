"""How large a batch's input is and whether it is still there, asked before any action."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from onceonly.estimate import TEXT_BYTES
from onceonly_checkpoints.slices import InputFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stat(df: DataFrame, files: Sequence[InputFile]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Sizes in bytes of the input files that exist, and the paths of those that do not.

    Spark reads zero rows in place of a missing file and carries on, so this is asked before every action.
    """
    sizes: list[int] = []
    missing: list[str] = []
    for file in files:
        size = _size(df, file.path)
        if size is None:
            missing.append(file.path)
        else:
            sizes.append(size)
    return tuple(sizes), tuple(missing)


def _size(df: DataFrame, path: str) -> int | None:
    parsed = urlparse(path)
    if parsed.scheme in ("", "file"):
        try:
            return Path(unquote(parsed.path)).stat().st_size
        except FileNotFoundError:
            return None
    context: Any = df.sparkSession.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)
    system = place.getFileSystem(context._jsc.hadoopConfiguration())
    return int(system.getFileStatus(place).getLen()) if system.exists(place) else None


def row_width(df: DataFrame) -> int:
    """Bytes that one row is taken to need in Arrow form, 8 for a number."""
    fixed = (
        "int",
        "bigint",
        "smallint",
        "tinyint",
        "float",
        "double",
        "boolean",
        "date",
        "timestamp",
        "decimal",
    )
    return sum(8 if kind.startswith(fixed) else TEXT_BYTES for _, kind in df.dtypes) or 1
