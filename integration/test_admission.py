"""What is refused before epoch 1 on real Spark, at each door, and the printed call that leads out."""

from __future__ import annotations

import re

import pytest
from integration.streams import FileStream

from onceonly import Output, exactly_once
from onceonly_checkpoints.ledger import Ledger
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.spark

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
"""No server answers there: what is refused so was refused before a sink was opened."""
LONG = "parcel_handover_confirmed_by_recipient_signature_captured_at_utc_1"


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
        told = stream.fail(exactly_once(sink, ledger=ledger), shape=lambda df, select=select: df.selectExpr(*select))
        harmed += [told] if "[ONCE-E138]" not in told or wanted not in told else []
    assert harmed == []
    twice = stream.fail(exactly_once(MemorySink(), ledger=ledger), shape=lambda df: df.select("id", "word", "id"))
    printed = re.search(r"df\.toDF\([^)]*\)", twice)
    assert printed
    sink = MemorySink()
    before = eval(f"lambda df: {printed[0]}")
    stream.run(exactly_once(sink, ledger=ledger, before=before), shape=lambda df: df.select("id", "word", "id"))
    assert sink.table().to_pylist() == [{"id": n, "word": f"w{n}", "id_2": n} for n in range(3)]
