"""Leaves out of Spark's micro-batch the rows that recorded epochs hold: ``Trim.keeps`` as expressions.

A row whose position the batch does not offer ends the action: its columns are then not those of the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.trim import FileTrim, OffsetTrim, Trim

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PATH, _FRESH = "onceonly file", "onceonly fresh"
"""Columns of the list of files while it is joined."""


def trimmed(df: DataFrame, trim: Trim) -> DataFrame:
    """The rows of a batch that are written.

    Args:
        df: the batch, with the columns of ``trim.KAFKA_COLUMNS`` or ``trim.FILE_COLUMNS``.
        trim: what is left out.
    """
    match trim:
        case OffsetTrim():
            return df.where(_by_offset(trim))
        case FileTrim():
            return _by_file(df, trim)


def _by_offset(trim: OffsetTrim) -> Column:
    from pyspark.sql import functions as f

    offset = f.col("offset")
    kept = _stranger(f.concat_ws("-", "topic", "partition"), offset.cast("string"))
    for span in trim.spans:
        own = (f.col("topic") == span.topic) & (f.col("partition") == span.partition)
        inside = own & (offset >= span.first) & (offset < span.end)
        kept = f.when(inside, offset >= span.fresh).otherwise(kept)
    return kept


def _by_file(df: DataFrame, trim: FileTrim) -> DataFrame:
    import pyarrow as pa
    from pyspark.sql import functions as f

    # A list of literals takes a millisecond each to build; this takes a tenth of a second for any number of files.
    paths = [*trim.held, *trim.fresh]
    fresh = [False] * len(trim.held) + [True] * len(trim.fresh)
    files = df.sparkSession.createDataFrame(pa.table({_PATH: paths, _FRESH: fresh}))
    path = f.regexp_replace("file_path", r"^([A-Za-z][A-Za-z0-9+.-]*):///", "$1:/")
    joined = df.join(f.broadcast(files), path == f.col(f"`{_PATH}`"), "left")
    stranger = _stranger(f.col("file_path"), f.lit("file_path"))
    kept = joined.where(f.coalesce(f.col(f"`{_FRESH}`"), stranger))
    return kept.drop(_PATH, _FRESH)


def _stranger(position: Column, where: Column) -> Column:
    from pyspark.sql import functions as f

    text = f.concat(f.lit("a row's position is not in this batch: "), f.concat_ws(" ", position, where))
    return f.raise_error(text).cast("boolean")
