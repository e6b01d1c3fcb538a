"""Hashes the rows that stand in a sink, with the expression that hashed them when they were written. Needs Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onceonly import digest
from onceonly.audit.facts import Content, reason_of
from onceonly.errors import OnceOnlyError
from onceonly.protocol import EPOCH, Legible, Sink
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Digest, Epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_NOT_TOLD = "the sink does not tell the rows of epochs apart, or replaces them"
_OTHER_TYPES = "the target gives back other types than were written, or mixed their rows with those of other epochs"


def read_content(sink: Sink, spark: SparkSession, epochs: Sequence[Epoch]) -> Content:
    """Read a sink's rows and hash them per epoch.

    Args:
        sink: opened for reading.
        spark: what reads and hashes.
        epochs: those to hash; the fingerprint of their columns says how.
    """
    from pyspark.errors import PySparkException

    try:
        rows = sink.read_back(spark) if isinstance(sink, Legible) else None
    except PySparkException as error:
        return Content({}, f"Spark could not read them ({error.getCondition() or type(error).__name__})")
    except (OnceOnlyError, OSError) as error:
        return Content({}, reason_of(error))
    if rows is None:
        return Content({}, _NOT_TOLD)
    return _content(rows, epochs)


def _content(rows: DataFrame, epochs: Sequence[Epoch]) -> Content:
    from pyspark.errors import PySparkException

    found: dict[int, Digest] = {}
    try:
        for (schema, left_out), numbers in _alike(epochs).items():
            columns = written_columns(rows.dtypes[:-1], schema)
            if columns:
                found.update(_hashed(rows, columns, frozenset(left_out), numbers))
    except PySparkException as error:
        log.info("rows cannot be read back: %s", error)
        return Content(found, f"Spark could not read them ({error.getCondition() or type(error).__name__})")
    return Content(found, _OTHER_TYPES)


def _alike(epochs: Sequence[Epoch]) -> Mapping[tuple[str, tuple[str, ...]], list[int]]:
    """Epochs by what is hashed of their rows: the columns' fingerprint, and those that the digest left out."""
    found: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for epoch in epochs:
        if epoch.digest.rows:
            found.setdefault((epoch.schema, epoch.digest.left_out), []).append(epoch.number)
    return found


def written_columns(columns: Sequence[tuple[str, str]], schema: str) -> int:
    """How many of the leading columns were written by an epoch with this fingerprint; 0 where none or others were."""
    return next((count for count in range(len(columns), 0, -1) if chain.fingerprint(columns[:count]) == schema), 0)


def _hashed(
    rows: DataFrame, columns: int, leave_out: frozenset[str], numbers: Sequence[int]
) -> Iterator[tuple[int, Digest]]:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    sums = digest.metrics(StructType(rows.schema.fields[:columns]), leave_out)
    epoch = f.col(digest.quote(EPOCH))
    asked = rows.where(epoch.between(min(numbers), max(numbers))).groupBy(epoch.alias("epoch")).agg(*sums)
    absent = set(numbers)
    for row in asked.collect():
        if row["epoch"] in absent:
            absent.remove(row["epoch"])
            yield row["epoch"], digest.from_metrics(row.asDict(), leave_out)
    # Only where every row has an owner is an epoch that owns none without rows.
    if absent and rows.where(epoch.isNull()).isEmpty():
        yield from ((number, Digest(0, left_out=tuple(sorted(leave_out)))) for number in absent)
