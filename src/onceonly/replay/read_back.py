"""Read recorded epochs back, from another sink or the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.estimate import TEXT_BYTES, schema_width
from onceonly.machine.rewind import OriginKind, Step
from onceonly.protocol import Batch, Estimate, ReadsRows, Sink
from onceonly.protocol.capabilities import EPOCH
from onceonly.protocol.values import SOURCE
from onceonly.replay.spark_replay import Replay
from onceonly.spark import frames
from onceonly.spark.batch import SparkBatch, ordered
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.spark.replay_plan import StateFrom

Take = Callable[[Step, Batch], None]
"""Writes the rows of one step."""


def rows_of(
    sinks: Iterable[Sink], spark: SparkSession, replay: Replay | None = None, state: StateFrom = StateFrom.COPIED
) -> Callable[[Sequence[Step], Take], None]:
    """Return a function that reads the rows of steps: ``replay.rewind.Give``.

    ``replay`` runs epochs again whose rows come from the source, with a query's state from ``state``.
    """
    by_id = {sink.id: sink for sink in sinks}

    def give(steps: Sequence[Step], take: Take) -> None:
        if replay and steps[0].origin.kind is OriginKind.SOURCE:
            _rerun_epochs(replay, steps, state, take, by_id)
        else:
            for step in steps:
                take(step, _of(by_id[step.origin.sink], step, spark, by_id[step.sink]))

    return give


def _rerun_epochs(
    replay: Replay, steps: Sequence[Step], state: StateFrom, take: Take, sinks: Mapping[str, Sink]
) -> None:
    """Run consecutive epochs through the query's own code. Spark reads a batch only inside its callback."""
    by_number = {step.epoch.number: step for step in steps}

    def each(ran: tuple[EpochRecord, ...], rows: DataFrame) -> None:
        step = by_number[ran[-1].epoch.number]
        take(step, _batch(ordered_for(rows, step, sinks[step.sink]), step.epoch.digest_in(step.sink)))

    replay.run(range(steps[0].epoch.number, steps[-1].epoch.number + 1), each, state=state)


def ordered_for(rows: DataFrame, step: Step, sink: Sink) -> DataFrame:
    """Order rows as the sink that gets them asks (E232: their order is not known)."""
    order = sink.capabilities.order
    if not order:
        return rows
    if step.origin.kind is OriginKind.SOURCE if order == SOURCE else order in rows.columns:
        return ordered(rows, order, Estimate(None, None), keyed=False)
    reason = f"its rows are written in the order of {order}, which they do not have there"
    raise _unreadable(step, reason, "recover rewind with --from source and the query's code, which order them")


def _unreadable(step: Step, reason: str, next_: str) -> OnceOnlyError:
    details = {"pipeline": "the query", "sink": step.sink, "epoch": step.epoch.number, "reason": reason}
    return refuse("E232", **details, next=next_)


def _of(sink: Sink, step: Step, spark: SparkSession, target: Sink) -> Batch:
    """Read the rows of an epoch, without later columns (E232: no owner of rows by now, or other types)."""
    epoch = step.epoch
    selection = _written(sink, epoch.schema_in(sink.id), spark)
    if selection is None:
        reason = f"{sink.id} returns other columns or types than were written, or no longer knows the pipeline of a row"
        next_ = "restore a newer backup of the sink, or start the query: its message prints how you give the rows up"
        raise _unreadable(step, reason, next_)
    rows, columns = selection
    of_epoch = ordered_for(rows.where(f.col(EPOCH) == epoch.number).select(columns), step, target)
    return _batch(of_epoch, epoch.digest_in(step.sink))


def all_of(sink: Sink, epoch: Epoch, spark: SparkSession) -> Batch | None:
    """Return all rows of a sink as an epoch's batch with its digest and schema. ``None``: they cannot be read back."""
    selection = _written(sink, epoch.schema, spark)
    return _batch(selection[0].select(selection[1]), epoch.digest) if selection else None


def _written(sink: Sink, schema: str, spark: SparkSession) -> tuple[DataFrame, list[Column]] | None:
    """Read rows with their epoch, and the columns written. ``None``: no owner of rows by now, or other types."""
    rows = sink.read_with_spark(spark) if isinstance(sink, ReadsRows) else None
    columns = chain.written(rows.dtypes[:-1], schema) if rows is not None else 0
    if rows is None or not columns:
        return None
    return rows, [f.col(f"`{name.replace('`', '``')}`") for name in rows.columns[:columns]]


def _batch(rows: DataFrame, digest: Digest) -> Batch:
    size = digest.rows * max(1, schema_width(frames.arrow_schema(rows), TEXT_BYTES))
    return SparkBatch(rows, Estimate(digest.rows, size), frozenset(digest.left_out))
