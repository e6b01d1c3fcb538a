"""Sinks that commit in one transaction: all of them hold an epoch or none does, and nothing is staged for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import CRASHES, NAMES, Crash, Pipeline, crash, offered, rows
from tests.core.stories import cut, offer
from tests.core.test_quality import Quarantined

from onceonly import exactly_once, faults
from onceonly.faults import Point
from onceonly.machine import commands as c
from onceonly.machine import coordinator
from onceonly.machine.facts import OutOfPhase
from onceonly.machine.state import Job, Phase
from onceonly.protocol import Conflict, Estimate, OutcomeUnknown, Prepared
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.runtime import shared_transaction
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_checkpoints.ledger import EventKind
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.memory.store import StoreEntry

PAIR = (("a", "c"),)


def job(*, stages: bool = False) -> Job:
    return Job("orders", NAMES, "us", stages=stages, transaction_groups=PAIR)


# ---- pure


def test_sinks_of_one_transaction_commit_with_the_first_of_them() -> None:
    assert job().transactions(("a", "b", "c")) == (("a", "c"), ("b",))
    assert job().transactions(("b", "c")) == (("b",), ("c",))
    assert Job("orders", NAMES, "us").transactions(NAMES) == (("a",), ("b",), ("c",))


def test_rows_need_not_outlive_the_driver_where_one_transaction_brings_all_of_them() -> None:
    assert job().lasting
    assert not Job("orders", NAMES, "us", transaction_groups=(NAMES,)).lasting
    assert Job("orders", NAMES, "us", transaction_groups=(NAMES,), stages=True).lasting
    assert not Job("orders", ("a",), "us").lasting


def test_rows_of_a_sink_that_does_not_say_what_it_holds_are_not_taken_into_the_driver(tmp_path: Path) -> None:
    alone, delta = MemorySink("memory:a", MemoryStore()), DeltaSink(tmp_path / "delta")
    assert shared_transaction.collect_in_memory(ArrowBatch(rows(1)), (alone,)) is not None
    assert shared_transaction.collect_in_memory(ArrowBatch(rows(1)), (delta,)) is None
    assert shared_transaction.collect_in_memory(ArrowBatch(rows(1)), (alone, delta)) is None


class Underestimated(ArrowBatch):
    """Rows of which Spark expected none."""

    @property
    def estimate(self) -> Estimate:
        return Estimate(0, 0)


class AtMost(MemorySink):
    """Holds fifteen rows of an epoch in the driver."""

    def fits_in_driver(self, size: Estimate) -> bool:
        return size.rows <= 15


def test_rows_that_prove_to_be_more_than_a_sink_holds_are_not_taken_into_the_driver() -> None:
    sinks = (MemorySink("memory:a", MemoryStore()), AtMost("memory:b", MemoryStore()))
    few, many = Underestimated(rows(1)), Underestimated(pa.concat_tables([rows(1), rows(2)]))
    taken = shared_transaction.collect_in_memory(few, sinks)
    assert taken is not None
    assert taken.estimate.rows == 10
    assert shared_transaction.collect_in_memory(many, sinks) is None


def test_rows_in_memory_say_of_time_what_they_hold() -> None:
    taken = shared_transaction.collect_in_memory(ArrowBatch(rows(2)), (MemorySink("memory:a", MemoryStore()),))
    assert taken is not None
    assert taken.times_of(Clock("id", "integer", 13)) == RowTimes(first=10, last=19, late=3)


def test_rows_in_memory_are_no_answer_where_they_must_last() -> None:
    state = coordinator.start(Job("orders", NAMES, "us", offer(cut(None, 10), 0), transaction_groups=PAIR))
    staged = replace(state, phase=Phase.STAGE)
    with pytest.raises(OutOfPhase, match="outlive"):
        coordinator.apply(staged, c.Staged(None, 7, Digest(7)))


def test_what_is_prepared_and_committed_says_what_is_in_the_same_transaction() -> None:
    state = coordinator.start(Job("orders", NAMES, "us", offer(cut(None, 10), 0), transaction_groups=PAIR))
    asked = []
    state = replace(state, phase=Phase.STAGE, opening=replace(state.opening, fence=Fence(1, "us")))
    state = replace(state, work=replace(state.work, number=1))
    digest = Digest(7, 1, 2)
    state = coordinator.apply(state, c.Staged("file:/s/e1#hash", 7, digest))
    for _ in NAMES:
        command = coordinator.next(state)
        assert isinstance(command, c.Prepare)
        asked.append((command.sink, command.sibling_sinks))
        state = coordinator.apply(state, c.Prepared(7, digest))
    assert asked == [("a", ()), ("b", ()), ("c", ("a",))]
    command = coordinator.next(state)
    assert isinstance(command, c.Commit)
    assert (command.marker.sink, [one.sink for one in command.sibling_markers]) == ("a", ["c"])
    state = coordinator.apply(state, c.Unknown("lost"))
    command = coordinator.next(state)
    assert isinstance(command, c.LookUp)
    assert (command.marker.sink, [one.sink for one in command.sibling_markers]) == ("a", ["c"])


def test_groups_are_of_sinks_that_share_a_transaction() -> None:
    one, other = MemoryStore(), MemoryStore()
    sinks = [MemorySink("a", one), MemorySink("b", other), MemorySink("c", MemoryStore(beside=one)), MemorySink("d")]
    assert shared_transaction.transaction_groups(sinks) == (("a", "c"),)
    assert shared_transaction.transaction_groups(sinks[1:]) == ()
    sinks.append(MemorySink("e", MemoryStore(beside=other)))
    assert shared_transaction.transaction_groups(sinks) == (("a", "c"), ("b", "e"))
    # Two names of one store are two writers of one target, not two targets.
    assert shared_transaction.transaction_groups([MemorySink("a", one), MemorySink("b", one)]) == ()


# ---- written, and crashed at every point


@pytest.fixture(params=[NAMES, ("a", "c"), ("b", "c")], ids="+".join)
def pipeline(tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    return Pipeline(tmp_path, beside=request.param)


def whole(pipeline: Pipeline) -> bool:
    return len(shared_transaction.transaction_groups(pipeline.sinks())[0]) == len(NAMES)


def epochs_held(pipeline: Pipeline) -> dict[str, int]:
    return {sink.id: len(list(sink.history())) for sink in pipeline.sinks_open()}


def test_every_sink_gets_the_same_rows_under_the_same_chain(pipeline: Pipeline) -> None:
    state = pipeline.driver().writes(1, 2, 3)
    pipeline.holds(3)
    assert sorted(receipt.sink for receipt in state.work.receipts) == ["memory:a", "memory:b", "memory:c"]
    assert [len(record.receipts) for record in pipeline.ledger.epochs("orders")] == [3, 3, 3]
    assert bool(pipeline.staged()) is not whole(pipeline)


@pytest.mark.parametrize(("point", "hit"), CRASHES, ids=str)
def test_a_crash_anywhere_leaves_sinks_of_one_transaction_at_one_epoch(
    pipeline: Pipeline, point: Point, hit: int
) -> None:
    driver = pipeline.driver()
    driver.writes(1)
    faults.arm(point, crash, hit)
    try:
        driver.writes(2)
    except Crash:
        pass
    else:  # fewer transactions pass a point less often
        assert point in {Point.COMMIT_BEFORE, Point.COMMIT_SENT, Point.COMMIT_AFTER}
    finally:
        faults.disarm()
    held = epochs_held(pipeline)
    for group in shared_transaction.transaction_groups(pipeline.sinks()):
        assert len({held[sink] for sink in group}) == 1, held
    pipeline.driver().writes(2, 3)
    pipeline.holds(3)


@pytest.mark.parametrize("beside", [NAMES, ("a", "c"), ("b", "c")], ids="+".join)
@pytest.mark.parametrize(("point", "hit"), CRASHES, ids=str)
def test_a_crash_anywhere_leaves_bad_rows_where_the_good_ones_are(
    tmp_path: Path, point: Point, hit: int, beside: tuple[str, ...]
) -> None:
    pipeline = Quarantined(tmp_path, beside=beside)
    driver = pipeline.start()
    driver.writes_wide(1)
    faults.arm(point, crash, hit)
    try:
        driver.writes_wide(2)
    except Crash:
        pass
    finally:
        faults.disarm()
    pipeline.start().writes_wide(2, 3)
    pipeline.holds_apart(3)
    assert bool(pipeline.staged()) is (beside != NAMES)


def test_an_answer_that_is_lost_is_looked_up_in_each(pipeline: Pipeline) -> None:
    def lost() -> None:
        raise OutcomeUnknown("memory:a", "no answer")

    driver = pipeline.driver()
    driver.writes(1)
    faults.arm(Point.COMMIT_SENT, lost)
    driver.writes(2, 3)
    faults.disarm()
    pipeline.holds(3)
    assert any("the answer of memory:" in said for said in pipeline.events(EventKind.RESOLVED))


class TakenBack(MemorySink):
    """The first commit of epoch 2 is taken back for the sake of another writer."""

    left = 1

    def _entry(self, prepared: Prepared | None, marker: Marker) -> StoreEntry:
        if marker.epoch.number == 2 and TakenBack.left:
            TakenBack.left -= 1
            raise Conflict(self.id, "deadlock detected", "another writer")
        return super()._entry(prepared, marker)


class TakingBack(Pipeline):
    def sinks(self) -> list[MemorySink]:
        return [TakenBack(f"memory:{name}", store) for name, store in self.stores.items()]


def test_what_the_destination_takes_back_is_written_again_for_all_of_them(tmp_path: Path) -> None:
    pipeline = TakingBack(tmp_path, beside=NAMES)
    pipeline.driver().writes(1, 2, 3)
    assert TakenBack.left == 0
    pipeline.holds(3)


def test_a_sink_that_was_behind_before_they_shared_a_transaction_is_brought_to_the_others(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, beside=NAMES)
    driver = pipeline.driver()
    driver.writes(1)
    apart = pipeline.driver()  # as it was before: a transaction for each, and files between them
    state = coordinator.start(Job("orders", tuple(sink.id for sink in apart.sinks), "apart", offered(2)))
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        apart.runner.run(state, ArrowBatch(rows(2)))
    faults.disarm()
    assert epochs_held(pipeline) == {"memory:a": 2, "memory:b": 1, "memory:c": 1}
    pipeline.driver().writes(2, 3)
    pipeline.holds(3)


def test_rows_that_are_too_many_for_one_of_them_are_staged_in_files(tmp_path: Path) -> None:
    class Small(MemorySink):
        def fits_in_driver(self, size):
            return size.size is None or size.size < 100

    pipeline = Pipeline(tmp_path, beside=NAMES)
    driver = pipeline.driver()
    driver.runner._sinks["memory:b"] = Small("memory:b", pipeline.stores["b"])
    driver.writes(1)
    assert len(pipeline.staged()) == 1
    driver.writes(2, table=rows(2).slice(0, 1))
    assert pipeline.staged() == []
    assert sorted(row["id"] for row in pipeline.sinks_open()[1].rows()) == [*range(11)]


def test_a_sink_joins_those_that_commit_together(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, beside=NAMES)
    stores = dict(pipeline.stores)
    pipeline.stores = {"a": stores["a"]}
    pipeline.driver().writes(1, 2)
    pipeline.stores = stores
    state = pipeline.driver().writes(3)
    assert state.work.epoch is not None
    assert dict(state.work.epoch.sinks) == {"memory:a": 1, "memory:b": 3, "memory:c": 3}
    assert epochs_held(pipeline) == {"memory:a": 3, "memory:b": 1, "memory:c": 1}
    pipeline.driver().writes(3, 4)
    assert epochs_held(pipeline) == {"memory:a": 4, "memory:b": 2, "memory:c": 2}


# ---- what is said of it


def test_the_promise_says_who_commits_together() -> None:
    one = MemoryStore("one")
    sinks = [MemorySink("a", one), MemorySink("b"), MemorySink("c", MemoryStore(beside=one))]
    said = str(exactly_once(*sinks).explain())
    assert "  but      a and c commit in one transaction\n  readers  for a moment some sinks show" in said
    said = str(exactly_once(sinks[0], sinks[2]).explain())
    assert "one transaction brings each epoch to all of them" in said
    assert "see an epoch in all of them or in none" in said
    assert "one after the other" not in said
