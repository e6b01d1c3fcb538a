"""Floats that were added up leave the digest wherever they go, and nothing else does: a replay in another order passes,
one with another value does not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.streams import FileStream, settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from onceonly import ExactlyOnce, OnceOnlyError, Storage, exactly_once
from onceonly.spark import engine, fingerprint
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore

pytestmark = pytest.mark.spark

VALUES = (1e16, 1.0, -1e16, 1.0)
"""Their sum is 1 in this order, 0 in the reverse one."""

VALUE = f"element_at(array({', '.join(f'double({value})' for value in VALUES)}), cast(id + 1 as int))"

ROCKS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}

Shape = Callable[[DataFrame], DataFrame]


def valued(df: DataFrame) -> DataFrame:
    return df.select("id", "word", f.expr(VALUE).alias("value"), (f.col("id") % 1).alias("key"))


def summed(df: DataFrame) -> DataFrame:
    return valued(df).groupBy("key").agg(f.sum("value").alias("s"), f.count("*").alias("n"), f.max("value").alias("m"))


def by_state(df: DataFrame) -> DataFrame:
    """The user's own function adds up, and Spark knows no aggregate in it."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    def add(key: Any, parts: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        values = [value for part in parts for value in part["value"]]
        total = 0.0
        for value in values:
            total += value
        yield pd.DataFrame({"key": [key[0]], "total": [total], "n": [len(values)]})

    asked = "key bigint, total double, n bigint"
    grouped = valued(df).groupBy("key")
    return grouped.applyInPandasWithState(add, asked, "seen bigint", "update", GroupStateTimeout.NoTimeout)


def transformed(df: DataFrame) -> DataFrame:
    pytest.importorskip("google.protobuf", reason="transformWithState in Python needs protobuf")
    from pyspark.sql.streaming import StatefulProcessor

    class Adds(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N803
            import pandas as pd

            values = [value for part in rows for value in part["value"]]
            total = 0.0
            for value in values:
                total += value
            yield pd.DataFrame({"key": [key[0]], "total": [total], "n": [len(values)]})

        def close(self) -> None: ...

    asked = "key bigint, total double, n bigint"
    return valued(df).groupBy("key").transformWithStateInPandas(Adds(), asked, "update", "None")


def same(df: DataFrame) -> DataFrame:
    return df


def in_other_columns(df: DataFrame) -> DataFrame:
    return df.select(
        "key",
        "n",
        "m",
        f.col("s").alias("total"),
        f.when(f.col("s") > 0.5, "much").otherwise("little").alias("word"),
        f.struct("s", "n").alias("record"),
        f.array("s", "m").alias("list"),
        f.explode(f.array("s")).alias("each"),
    )


def added_up_later(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(f.avg("m").alias("mean"), f.sum("n").alias("n"))


def joined(df: DataFrame) -> DataFrame:
    other = df.select("key", f.col("s").alias("again"))
    return df.select("key", "n").join(other, "key").unionByName(df.selectExpr("key", "n", "m AS again"))


BEFORE: dict[str, tuple[Shape, set[str]]] = {
    "as it is": (same, {"s"}),
    "renamed, derived, nested and exploded": (in_other_columns, {"total", "word", "record", "list", "each"}),
    "added up in transform=": (added_up_later, {"mean"}),
    "joined": (joined, {"again"}),
}
"""What becomes of the sums of one query, and which columns the digest leaves out then."""

WITH_STATE = {"a function with state": by_state, "transformWithState": transformed}
"""Sums that the user's own function adds up."""


def rewrite(stream: FileStream, change: Callable[[pa.Table], pa.Table]) -> None:
    """Put other rows into the file that the query has read, as if they had been in it all the time."""
    [path] = stream.inbox.glob("*.parquet")
    times = path.stat()
    pq.write_table(change(pq.read_table(path)), path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def turned_round(table: pa.Table) -> pa.Table:
    return table.take(list(reversed(range(table.num_rows))))


def skipped(ledger: SqlLedger, name: str) -> list[int | None]:
    return [event.epoch for event in ledger.events(name) if event.kind is EventKind.SKIPPED]


def test_a_replay_in_another_order_is_a_proven_skip_and_one_with_another_value_elsewhere_is_refused(
    stream: FileStream, ledger: SqlLedger
) -> None:
    """One query of sums, and a pipeline for each thing that becomes of them."""
    stores = {name: MemoryStore() for name in BEFORE}

    def start(write: Callable[[ExactlyOnce, DataFrame, int], None]) -> dict[str, ExactlyOnce]:
        sinks = {name: MemorySink(f"memory:{name}", store) for name, store in stores.items()}
        made = {
            name: exactly_once(sinks[name], name=name, storage=Storage(ledger=ledger), transform=before)
            for name, (before, _) in BEFORE.items()
        }

        def each(df: DataFrame, batch_id: int) -> None:
            for wrapped in made.values():
                write(wrapped, df, batch_id)

        stream.run(each, shape=summed, mode="update")
        return made

    def must_refuse(wrapped: ExactlyOnce, df: DataFrame, batch_id: int) -> None:
        try:
            wrapped(df, batch_id)
            refusals.append("none")
        except OnceOnlyError as refused:
            refusals.append(refused.code)

    refusals: list[str] = []
    stream.receive(range(4))
    start(lambda wrapped, df, batch_id: wrapped(df, batch_id))
    rows = {name: MemorySink(f"memory:{name}", store).rows() for name, store in stores.items()}
    stream.remove("commits", 0)
    rewrite(stream, turned_round)
    again = start(lambda wrapped, df, batch_id: wrapped(df, batch_id))
    found = {}
    for name in BEFORE:
        [record] = ledger.epochs(name)
        found[name] = (set(record.epoch.digest.left_out), skipped(ledger, name))
    assert found == {name: (left_out, [1]) for name, (_, left_out) in BEFORE.items()}
    unsaid = [
        name
        for name, (_, left_out) in BEFORE.items()
        if f"excludes {', '.join(sorted(left_out))}" not in again[name].explain()
    ]
    assert unsaid == []
    stream.remove("commits", 0)
    rewrite(stream, lambda table: table.slice(1))
    start(must_refuse)
    assert dict(zip(BEFORE, refusals, strict=True)) == dict.fromkeys(BEFORE, "E215")
    assert {name: MemorySink(f"memory:{name}", store).rows() for name, store in stores.items()} == rows


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a function with state", pytest.param("transformWithState", marks=pytest.mark.slow)])
def test_sums_of_the_users_own_function_with_state_are_left_out_and_the_other_columns_are_compared(
    spark: SparkSession, stream: FileStream, sink: MemorySink, ledger: SqlLedger, case: str
) -> None:
    shape = WITH_STATE[case]
    with settings(spark, ROCKS if shape is transformed else {}):
        stream.receive(range(4)).run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=shape, mode="update")
        stream.remove("commits", 0)
        rewrite(stream, turned_round)
        again = exactly_once(sink, storage=Storage(ledger=ledger))
        stream.run(again, shape=shape, mode="update")
        [record] = ledger.epochs("orders")
        assert record.epoch.digest.left_out == ("total",)
        assert skipped(ledger, "orders") == [1]
        assert "excludes total" in again.explain()
        stream.remove("commits", 0)
        rewrite(stream, lambda table: table.slice(1))
        said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)), shape=shape, mode="update")
    assert "[ONCE-E215]" in said


@pytest.mark.slow
def test_floats_that_are_not_added_up_stay_in_the_digest(stream, sink, ledger) -> None:
    def largest(df: DataFrame) -> DataFrame:
        kept = valued(df).groupBy((f.col("value") / 2).alias("half")).agg(f.max("value").alias("m"))
        return kept.select("half", "m", f.struct("half", "m").alias("both"))

    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
    stream.receive(range(4)).run(wrapped, shape=largest, mode="update")
    [record] = ledger.epochs("orders")
    assert record.epoch.digest.left_out == ()
    stream.remove("commits", 0)
    rewrite(stream, lambda table: table.set_column(0, "id", pa.array([0, 1, 1, 1])))
    assert "[ONCE-E215]" in stream.fail(
        exactly_once(sink, storage=Storage(ledger=ledger)), shape=largest, mode="update"
    )


def test_what_another_run_computes_otherwise_is_refused_after_state_in_before_too(
    stream: FileStream, sink: MemorySink, ledger: SqlLedger
) -> None:
    def unstable(expression: str) -> Shape:
        return lambda df: df.withColumn("noise", f.expr(expression).cast(t.StringType()))

    said: dict[str, str] = {}

    def write(df: DataFrame, batch_id: int) -> None:
        for expression in ("rand()", "current_timestamp()"):
            one = MemorySink(f"memory:{expression}", sink.store)
            wrapped = exactly_once(one, name=expression, storage=Storage(ledger=ledger), transform=unstable(expression))
            with pytest.raises(OnceOnlyError) as refused:
                wrapped(df, batch_id)
            said[expression] = str(refused.value)
        df.count()  # else Spark misses the batch's state

    stream.receive(range(4)).run(write, shape=summed, mode="update")
    assert len(said) == 2
    assert [one for one in said.items() if "[ONCE-E109]" not in one[1] or one[0][:-1] not in one[1]] == []
    assert sink.rows() == []


@pytest.mark.parametrize("stateful", [False, True])
def test_a_plan_that_is_nested_too_deeply_to_be_followed_stops_nobody(spark: SparkSession, stateful: bool) -> None:
    depth = 5000
    queries = '[{"class": "x.ScalarSubquery", "num-children": 0, "plan": ' * depth + "[]" + "}]" * depth
    plan = engine.QueryPlan(stateful=stateful, nondeterministic=None, sources=(), text=queries)
    rows = spark.range(1).select("id", f.lit(1.0).alias("value"))
    found = fingerprint.look(plan, rows)
    assert found.left_out == (frozenset({"value"}) if stateful else frozenset())
    assert found.functions == ()
