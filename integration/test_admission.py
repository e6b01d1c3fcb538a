"""What is refused before epoch 1 on real Spark, at each door, and the printed call that leads out."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from integration.streams import FileStream
from integration.targets import PostgresTarget, events
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from onceonly import Dedupe, Output, Quality, Storage, exactly_once
from onceonly_checkpoints.ledger import EventKind, Ledger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.spark

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
"""No server answers there: what is refused so was refused before a sink was opened."""
LONG = "parcel_handover_confirmed_by_recipient_signature_captured_at_utc_1"


@pytest.mark.slow
def test_columns_that_spark_or_a_sink_cannot_tell_apart_are_refused_and_the_printed_call_renames_them(
    stream: FileStream, ledger: Ledger
) -> None:
    stream.receive(range(3))
    selected = Output(PostgresSink(NOWHERE, "orders"), name="o", select=["id", f"word AS {LONG}"])
    cases = [
        (["id", "word", "id"], MemorySink(), "two columns are called id"),
        (["id", "word", "id AS ID"], MemorySink(), "id and ID are one name there"),
        (
            ["id", f"word AS {LONG}"],
            PostgresSink(NOWHERE, "orders"),
            f"column {LONG} has 66 bytes, of which 63 are kept",
        ),
        (["id", "word"], selected, f"column {LONG} has 66 bytes, of which 63 are kept"),
    ]
    harmed = []
    for select, sink, wanted in cases:
        told = stream.fail(
            exactly_once(sink, storage=Storage(ledger=ledger)), shape=lambda df, select=select: df.selectExpr(*select)
        )
        harmed += [told] if "[ONCE-E138]" not in told or wanted not in told else []
    assert harmed == []
    twice = stream.fail(
        exactly_once(MemorySink(), storage=Storage(ledger=ledger)), shape=lambda df: df.select("id", "word", "id")
    )
    printed = re.search(r"df\.toDF\([^)]*\)", twice)
    assert printed
    sink = MemorySink()
    before = eval(f"lambda df: {printed[0]}")
    stream.run(
        exactly_once(sink, storage=Storage(ledger=ledger), transform=before),
        shape=lambda df: df.select("id", "word", "id"),
    )
    assert sink.table().to_pylist() == [{"id": n, "word": f"w{n}", "id_2": n} for n in range(3)]


def test_two_spellings_of_one_target_are_refused_and_an_id_means_it(stream: FileStream, pg: PostgresTarget) -> None:
    stream.receive(range(4))
    one, other = pg.sink(), PostgresSink(pg.dsn, "public.orders")
    odd = {"name": "odd", "where": "id % 2 = 1"}
    for calls in (
        lambda: exactly_once(one, Output(other, **odd)),
        lambda: exactly_once(one, quality=Quality(expect={"even": "id % 2 = 0"}, quarantine=other, max_bad=1.0)),
        lambda: exactly_once(one, dedupe=Dedupe(key="id", within="1 day", store=other)),
    ):
        told = stream.fail(calls())
        assert "[ONCE-E139]" in told
        assert "public.orders" in told
    assert pg.says("select to_regclass('onceonly.head')") == [(None,)]  # not even a fence
    stream.run(exactly_once(one, Output(PostgresSink(pg.dsn, "public.orders", id="odd"), **odd)))
    assert pg.ids() == [0, 1, 1, 2, 3, 3]  # made by the first of the two, in the transaction of both


def test_a_query_does_not_write_into_what_it_reads(stream: FileStream, ledger: Ledger) -> None:
    write_deltalake(stream.inbox, pa.table({"id": [1, 2], "word": ["w1", "w2"]}))
    told = stream.fail(exactly_once(DeltaSink(stream.inbox / ".." / "in"), storage=Storage(ledger=ledger)))
    assert "[ONCE-E147]" in told
    assert DeltaTable(stream.inbox).version() == 0  # not even a fence


@pytest.mark.slow
def test_a_result_that_comes_whole_or_again_is_refused_or_told_where_rows_are_only_added(
    stream: FileStream, ledger: Ledger
) -> None:
    def counted(df: DataFrame) -> DataFrame:
        return df.groupBy((f.col("id") % 2).alias("k")).count()

    stream.receive(range(4), range(2))
    told = stream.fail(exactly_once(MemorySink(), storage=Storage(ledger=ledger)), shape=counted, mode="complete")
    assert "[ONCE-E137]" in told
    keyed = MemorySink(key="k")
    stream.run(exactly_once(keyed, storage=Storage(ledger=ledger)), shape=counted, mode="complete")
    assert sorted(keyed.table().to_pylist(), key=str) == [{"k": 0, "count": 3}, {"k": 1, "count": 3}]
    assert events(ledger, EventKind.WARNED) == []
    changes = MemorySink()
    wrapped = exactly_once(changes, name="changes", storage=Storage(ledger=ledger))
    stream.checkpoint = stream.root / "other"
    stream.run(wrapped, shape=counted, mode="update")
    assert changes.table().num_rows == 4
    [warned] = [event.reason for event in ledger.events("changes") if event.kind is EventKind.WARNED]
    assert warned.startswith("[ONCE-W717]")
    assert "a group that changes is a further row" in wrapped.explain()
