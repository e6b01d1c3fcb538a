"""Event times of rows as Spark columns in the writing action."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onceonly.errors.options import checks_arguments
from onceonly.protocol.capabilities import EPOCH
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.spark import digest
from onceonly.spark.digest import quote
from onceonly_checkpoints.epoch_time import Unit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class RowLimit:
    """How many milliseconds the time of a row in ``column`` may be ahead of the recorded clock of its batch."""

    column: str
    ahead: int

    def sql(self, clock_ms: int) -> str:
        """The condition in Spark SQL. A row without a time meets it."""
        time = quote(self.column)
        return f"{time} IS NULL OR unix_millis({time}) <= {digest.of_batch(clock_ms + self.ahead, time)}"

    @property
    def words(self) -> str:
        """The limit, in words."""
        return f"the limit of {self.column}, {timedelta(milliseconds=self.ahead)} ahead of the clock of its batch"


_FIRST, _LAST, _LATE, _TIMED = "first time", "last time", "late", "timed"


def metrics(clock: Clock) -> tuple[Column, ...]:
    """Build aggregates for ``DataFrame.observe``, besides those of the digest."""
    from pyspark.sql import functions as f

    time, converter = _read(clock.column, clock.unit)
    # A literal of the column's own type would not hold every number that may be noted.
    late = "false" if clock.horizon is None else f"{converter}({time}) < {digest.of_batch(clock.horizon, time)}"
    # As text: each call into the JVM that an expression is built by costs a small epoch a tenth of a millisecond.
    return tuple(f.expr(text) for text in _aggregates(time, converter, late))


def _read(column: str, unit: Unit) -> tuple[str, str]:
    """Return a row's time, and a function that makes a number of it."""
    return (quote(column), "unix_millis") if unit == "ms" else (f"CAST({quote(column)} AS BIGINT)", "")


def _aggregates(time: str, converter: str, late: str) -> Iterator[str]:
    expressions = {
        _FIRST: f"{converter}(min({time}))",
        _LAST: f"{converter}(max({time}))",
        _LATE: f"count(CASE WHEN {late} THEN 1 END)",
        _TIMED: f"count({time})",
    }
    return (f"{text} AS {quote(name)}" for name, text in expressions.items())


_HORIZON, _ROWS = "__onceonly_horizon", "rows"


def by_epoch(rows: DataFrame, column: str, unit: Unit, horizons: Mapping[int, int | None]) -> Mapping[int, RowTimes]:
    """Read the event times of epochs from a sink's rows, with the column of ``protocol.EPOCH``.

    ``horizons`` has the requested epochs, each with the time before which its rows are late. Epochs without rows are
    left out.
    """
    from pyspark.sql import functions as f

    time, converter = _read(column, unit)
    # A table and no literals: of a thousand epochs each has a horizon of its own.
    horizon_rows = rows.sparkSession.createDataFrame(list(horizons.items()), f"{_HORIZON}_of long, {_HORIZON} long")
    joined = rows.join(f.broadcast(horizon_rows), f.col(quote(EPOCH)) == f.col(f"{_HORIZON}_of"))
    sums = [f.expr(text) for text in _aggregates(time, converter, f"{converter}({time}) < {_HORIZON}")]
    counted = joined.groupBy(f"{_HORIZON}_of").agg(f.expr(f"count(1) AS {_ROWS}"), *sums)
    return {row[f"{_HORIZON}_of"]: _times(row.asDict()[_ROWS], row.asDict()) for row in counted.collect()}


def from_metrics(values: Mapping[str, Any]) -> RowTimes:
    """Read event times from the observed metrics of a finished action."""
    return _times(values[digest.metric("rows", "")], values)


def _times(rows: int, values: Mapping[str, Any]) -> RowTimes:
    return RowTimes(values[_FIRST], values[_LAST], values[_LATE], rows - values[_TIMED])


@checks_arguments
def heartbeat(spark: SparkSession, like: DataFrame) -> DataFrame:
    """Make a stream that has offsets but no rows. A query then records time while its source is idle.

    Without state and input, Spark plans no batch. This is Spark's ``rate`` source, a tick a second, with every tick
    filtered out: a restart replays a tick as an offset without a row. As a further source it belongs to the query from
    its start. It has the columns of ``like``, and gives an epoch at each trigger.

    Example:
        ``events.unionByName(heartbeat(spark, like=events))``
    """
    from pyspark.sql import functions as f

    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).load().where("value < 0")
    columns = [f.lit(None).cast(field.dataType).alias(field.name) for field in like.schema.fields]
    return ticks.select(*columns)
