"""Rows of recorded epochs out of a sink that got them, as batches that another sink is brought level with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly.machine.estimate import TEXT_BYTES, schema_width
from onceonly.machine.rewind import Step
from onceonly.protocol import Batch, Estimate, Legible, Sink
from onceonly.protocol.optional import EPOCH
from onceonly.spark import frames
from onceonly.spark.batch import SparkBatch
from onceonly_checkpoints import chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_of(sinks: Iterable[Sink], spark: SparkSession) -> Callable[[Step], Batch]:
    """What gives the rows of a step, which come from one of these sinks.

    Args:
        sinks: opened.
        spark: what reads.
    """
    by_id = {sink.id: sink for sink in sinks}
    return lambda step: _of(by_id[step.origin.sink], step, spark)


def _of(sink: Sink, step: Step, spark: SparkSession) -> Batch:
    """The rows of one epoch, in the columns that it was written with: some may have been added since.

    Raises:
        IdentityError: E232, the sink no longer tells them, or gives back other types than were written.
    """
    from pyspark.sql import functions as f

    epoch = step.epoch
    rows = sink.read_back(spark) if isinstance(sink, Legible) else None
    columns = chain.written(rows.dtypes[:-1], epoch.schema_in(sink.id)) if rows is not None else 0
    if rows is None or not columns:
        reason = (
            f"{sink.id} gives back other columns or types than were written, or no longer tells whose rows are whose"
        )
        next_ = "restore a newer backup of the sink, or start the query: its message says how the rows are given up"
        said = {"pipeline": "the query", "sink": step.sink, "epoch": epoch.number, "reason": reason, "next": next_}
        raise refuse("E232", **said)
    chosen = rows.where(f.col(EPOCH) == epoch.number)
    wanted = chosen.select([f.col(f"`{name.replace('`', '``')}`") for name in rows.columns[:columns]])
    digest = epoch.digest_in(sink.id)
    size = digest.rows * max(1, schema_width(frames.arrow_schema(wanted), TEXT_BYTES))
    return SparkBatch(wanted, Estimate(digest.rows, size), frozenset(digest.left_out))
