"""Encode bad rows as text for a quarantine, and decode them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.spark import digest
from onceonly.spark.expression_check import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    # An old offset from UTC has seconds, which no offset in a text has.
    "timeZone": "UTC",
}
"""Spark's own formats end at the millisecond."""

_WRITTEN = {**_TIMES, "ignoreNullFields": "false"}
"""Else a column that is null would be one that is not there."""


def kept(rows: DataFrame, reasons: Column, *, records: bool, values: bool) -> tuple[Column, ...]:
    """Build the columns of a bad row in its output.

    With ``records`` it becomes the record of a topic, all in one text. ``reasons`` is a JSON list. With ``values`` the
    row's own values are kept.
    """
    from pyspark.sql import functions as f

    row = f.to_json(f.struct("*"), _WRITTEN) if values else None
    hashed = digest.row_hash(rows.schema)
    if not records:
        said = f.lit(None).cast("string") if row is None else row
        return reasons.alias("reasons"), said.alias("row"), hashed.alias("hash")
    parts = [f.lit('{"reasons":'), reasons, *([] if row is None else [f.lit(',"row":'), row])]
    value = f.concat(*parts, f.lit(',"hash":'), hashed.cast("string"), f.lit("}"))
    return hashed.cast("string").alias("key"), value.alias("value"), reasons.alias("reasons")


@checks_arguments
def bad_rows(kept: DataFrame, schema: str | StructType) -> DataFrame:
    """Decode the rows of a quarantine, for a query that writes them again after their repair.

    Such a query is one like any other, with a name and a checkpoint of its own. Its epochs record its offsets in the
    quarantine, so no row comes back twice. A Delta table or a topic is a stream of Spark's. Read a topic with
    ``kafka.isolation.level=read_committed``.

    Args:
        kept: read from a quarantine, as a stream or not: with columns ``reasons``, ``row`` and ``hash``, or ``value``
            of a topic.
        schema: columns and types of the rows when they were set aside, as DDL or a type of Spark's.

    Returns:
        ``row``, a structure of these columns, ``reasons``, a JSON list, and ``intact``, whether by its hash the row has
        all its values. It is false if ``schema`` is another one, a text was no UTF-8, or ``values=False``.

    Raises:
        ConfigurationError: E110, no such columns, or a type that cannot be read from JSON.

    Example:
        ``bad_rows(bad, "id bigint, amount double").where("intact").select("row.*")``
    """
    from pyspark.sql import functions as f

    if {"reasons", "row", "hash"} <= {*kept.columns}:
        reasons, hashed = f.col("reasons"), f.col("hash")
        text, whole = f.col("row"), False
    elif "value" in kept.columns:
        parts = f.from_json(f.col("value").cast("string"), "reasons string, hash bigint")
        reasons, hashed = parts.getField("reasons"), parts.getField("hash")
        text, whole = f.col("value").cast("string"), True
    else:
        raise _unread(f"got columns {', '.join(kept.columns)}.", "these are not those of a quarantine", _COLUMNS)
    try:
        columns = _columns(schema)
        form = _within(columns) if whole else columns
        read = f.from_json(text, form, _TIMES)
        found = kept.select(
            (read.getField("row") if whole else read).alias("row"), reasons.alias("reasons"), hashed.alias("hash")
        )
        intact = f.coalesce(digest.row_hash(columns, within="row") == f.col("hash"), f.lit(False))
        return found.select("row", "reasons", intact.alias("intact"))
    except Exception as error:  # of Spark's many classes: what it says is what the user needs
        raise _unread(f"cannot read rows of {schema!r}.", first_line(error), _AS_TEXT) from error


_COLUMNS = "give what was read of the quarantine: reasons, row and hash of a table, value of a topic"
_AS_TEXT = 'correct the schema; a type that JSON lacks is read as text: bad_rows(df, "at string")'


def _columns(schema: str | StructType) -> StructType:
    from pyspark.sql.types import StructType

    if not isinstance(schema, str):
        return schema
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise TypeError(f"{schema} names no column")
    return parsed


def _within(columns: StructType) -> StructType:
    from pyspark.sql.types import StructType

    return StructType().add("row", columns)


def _unread(problem: str, cause: str, way: str) -> Exception:
    return refuse("E110", problem=f"bad_rows() {problem}", cause=cause, next=way)
