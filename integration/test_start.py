"""``onceonly.start`` on a classic session: the call that works on Spark Connect, too."""

from __future__ import annotations

import pytest
from integration.streams import FileStream
from integration.targets import DeltaTarget, ids
from pyspark.sql import functions as f

import onceonly
from onceonly import Storage, exactly_once
from onceonly.errors import ConfigurationError
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.spark


def test_one_call_names_the_query_places_its_checkpoint_and_writes(stream: FileStream, delta: DeltaTarget) -> None:
    writer = stream.receive(range(3)).read().writeStream.trigger(availableNow=True)
    query = onceonly.start(writer, exactly_once(delta.sink(), name="orders", checkpoint=stream.checkpoint))
    query.awaitTermination()
    assert query.name == "orders"
    assert (stream.checkpoint / "metadata").is_file()
    assert delta.ids() == [0, 1, 2]


def test_a_plan_that_could_never_write_is_refused_before_the_start(stream: FileStream, sink: MemorySink) -> None:
    rows = stream.receive(range(3)).read().withColumn("luck", f.rand()).groupBy("word").agg(f.sum("luck"))
    query = exactly_once(sink, name="orders", checkpoint=stream.checkpoint)
    with pytest.raises(ConfigurationError, match="E109"):
        onceonly.start(rows.writeStream.outputMode("update"), query)
    assert not stream.checkpoint.exists()


def test_a_checkpoint_that_was_said_is_compared_with_the_query_s(
    stream: FileStream, sink: MemorySink, ledger: SqlLedger
) -> None:
    said = stream.receive(range(3)).fail(
        exactly_once(sink, storage=Storage(ledger=ledger), checkpoint=stream.root / "other")
    )
    assert "[ONCE-E106]" in said
    assert "other" in said
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger), checkpoint=stream.checkpoint))
    assert ids(sink) == [0, 1, 2]
