"""A sink of eight members, in real queries: it is run, healed and refused like any other."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.sinks.epochs import epoch_after
from tests.sinks.test_minimal_sink import EightMembers

from onceonly import Storage, exactly_once, faults
from onceonly.faults import Point
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_sinks.memory import MemoryStore

pytestmark = pytest.mark.spark

BATCHES = (range(10), range(10, 20), range(20, 25))


def test_each_row_is_there_once_over_lost_answers_and_restarts(stream, ledger):
    store = MemoryStore()
    faults.arm(Point.COMMIT_SENT, "raise", 2)  # looked up
    stream.receive(*BATCHES[:2]).run(exactly_once(EightMembers(store), storage=Storage(ledger=ledger)))
    faults.arm(Point.COMMIT_AFTER, "raise")  # skipped by the next start
    stream.receive(BATCHES[2])
    assert "InjectedFault" in stream.fail(exactly_once(EightMembers(store), storage=Storage(ledger=ledger)))
    stream.run(exactly_once(EightMembers(store), storage=Storage(ledger=ledger)))
    assert sorted(row["id"] for row in store.table().to_pylist()) == list(range(25))


def test_a_strangers_rows_are_refused_under_the_fence(stream, ledger):
    store, other = MemoryStore(), Fence(1, "other")
    stranger = EightMembers(store)
    stranger.open("another")
    stranger.install(other)
    epoch = epoch_after(None, stranger.id, 1)
    prepared = stranger.prepare(ArrowBatch(pa.table({"id": [1], "word": ["w1"]})), 1)
    stranger.commit(prepared, Marker("another", stranger.id, other, epoch))
    assert "ONCE-E201" in stream.receive(BATCHES[0]).fail(
        exactly_once(EightMembers(store), storage=Storage(ledger=ledger))
    )
    assert len(store.table()) == 1
