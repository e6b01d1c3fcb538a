"""What rows say of time, as Spark columns in the action that writes them; in Arrow: ``protocol.times``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onceonly.protocol.times import Clock, Times
from onceonly.spark.digest import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FIRST, _LAST, _LATE, _UNTIMED = "first time", "last time", "late", "untimed"


def metrics(clock: Clock | None, aside: str | None = None) -> tuple[Column, ...]:
    """Aggregates for ``DataFrame.observe``, beside those of the digest.

    Args:
        clock: what is asked; ``None`` for nothing.
        aside: the column of rows that are set aside, of whose times nothing follows; ``None`` for none.
    """
    if clock is None:
        return ()
    from pyspark.sql import functions as f

    column, good = f.col(quote(clock.column)), f.lit(True) if aside is None else f.col(quote(aside)).isNull()
    time = f.unix_millis(column) if clock.unit == "ms" else column.cast("bigint")
    kept = time if aside is None else f.when(good, time)
    # The horizon is another one in each epoch, so Spark compiles these anew; a literal of the column's own type would
    # not hold every number that may be noted.
    late = f.lit(False) if clock.horizon is None else kept < f.lit(clock.horizon)
    return (
        f.min(kept).alias(_FIRST),
        f.max(kept).alias(_LAST),
        f.count(f.when(late, 1)).alias(_LATE),
        f.count(f.when(good & column.isNull(), 1)).alias(_UNTIMED),
    )


def from_metrics(values: Mapping[str, Any]) -> Times:
    """What the observed metrics of a finished action say."""
    return Times(values[_FIRST], values[_LAST], values[_LATE], values[_UNTIMED])


def heartbeat(spark: SparkSession, like: DataFrame) -> DataFrame:
    """A stream without a row, whose offsets move: so a query notes time while its source is silent.

    Spark plans no batch for a plan without state that has nothing to read, and then nobody says that nothing came. This
    is Spark's ``rate`` source, a tick a second, with every tick filtered out: a tick is an offset and no row, as a
    restart replays it. It is a further source of the query, so it belongs there from the start.

    Args:
        spark: the session.
        like: the stream that it is united with, for its columns.

    Returns:
        A stream in the columns of ``like``: an epoch without rows at each trigger, unless there are others to read.

    Example:
        ``events.unionByName(heartbeat(spark, like=events))``
    """
    from pyspark.sql import functions as f

    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).load().where("value < 0")
    columns = [f.lit(None).cast(field.dataType).alias(field.name) for field in like.schema.fields]
    return ticks.select(*columns)
