"""A full refresh into several sinks, without Spark: real staging and ledger, memory sinks, a crash at every point."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import Crash, Driver, Pipeline, crash, rows
from tests.core.stories import at, cut, lineage, offer
from tests.core.test_rewind import of, put_back

from onceonly import Recovery, exactly_once, faults
from onceonly.errors import IdentityError, OnceOnlyError
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.facts import Offer, OnRefresh
from onceonly.machine.rewind import Origin, OriginKind, RewindRequest, Step
from onceonly.machine.state import Job, State
from onceonly.protocol.batch import ArrowBatch
from onceonly.replay import rewind
from onceonly.runtime import operator
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_checkpoints.spark.offsets import PreviousBatch
from onceonly_sinks.memory import MemorySink

WRITING = [
    Point.INTEND_AFTER,
    Point.STAGE_AFTER,
    Point.PREPARE_BEFORE,
    Point.PREPARE_AFTER,
    Point.COMMIT_BEFORE,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
    Point.RECORD_BEFORE,
    Point.RECORD_AFTER,
]
ONCE = {Point.INTEND_AFTER, Point.STAGE_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER}

ANEW = pa.table({"id": range(100, 104), "text": [None, "a", "b", "c"]})
"""What the source gives when it is read again from its start: not what stands."""


def refreshed(number: int, last: int, *, proven: bool = True) -> Offer:
    """Batch ``number`` of the new query; the sibling still holds the batch that became epoch ``last``."""
    was = replace(lineage(last - 1), run_id="", checkpoint="file:/ckpt/0")
    siblings = (PreviousBatch(was, at(last * 10)),) if proven and number == 0 else ()
    slice_ = cut(number * 4 if number else None, number * 4 + 4)
    return offer(slice_, number, "q2", earlier_checkpoints=siblings)


def begins_anew(
    driver: Driver, *numbers: int, last: int = 3, on_refresh: OnRefresh = "replace", proven: bool = True
) -> State:
    """Write batches of the new query."""
    for number in numbers:
        offered = refreshed(number, last, proven=proven)
        if driver.state is None:
            ids = tuple(sink.id for sink in driver.sinks)
            state = coordinator.start(Job("orders", ids, secrets.token_hex(4), offered, on_refresh=on_refresh))
        else:
            state = coordinator.resume(driver.state, offered)
        driver.state = driver.runner.run(state, ArrowBatch(ANEW if number == 0 else rows(number)))
    assert driver.state is not None
    return driver.state


def holds(pipeline: Pipeline, ids: list[int], epochs: int, series: int) -> None:
    """Every sink holds these rows once and every marker, under the same chain."""
    for sink in pipeline.sinks_open():
        assert sorted(row["id"] for row in sink.rows()) == ids, sink.id
        history = [marker.epoch for marker, _ in sink.history()]
        assert [epoch.number for epoch in history] == list(range(1, epochs + 1))
        assert history[-1].series == series
    chains = {tuple(m.epoch.chain for m, _ in sink.history()) for sink in pipeline.sinks_open()}
    assert len(chains) == 1


NEW = [*range(100, 104)]


def test_rows_of_the_series_before_leave_with_the_first_new_ones_and_numbers_go_on(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    begins_anew(pipeline.driver(), 0, 1)
    holds(pipeline, sorted([*NEW, *range(10)]), epochs=5, series=4)
    records = pipeline.ledger.epochs("orders")
    assert [(record.epoch.series, record.epoch.replaces) for record in records[2:]] == [
        (1, None),
        (4, (1, 3)),
        (4, None),
    ]
    assert len(pipeline.events(EventKind.REPLACED)) == 1


def test_a_refresh_stops_by_default_and_nothing_is_touched(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    with pytest.raises(IdentityError) as stopped:
        begins_anew(pipeline.driver(), 0, on_refresh="stop")
    assert stopped.value.code == "E246"
    assert "30 rows" in str(stopped.value)
    assert "onceonly recover refresh orders --ledger" in str(stopped.value)
    assert "--how replace" in str(stopped.value)
    assert "a new pipeline name on a new table" in str(stopped.value)
    pipeline.holds(3)
    assert {sink.fence().generation for sink in pipeline.sinks_open() if sink.fence()} == {1}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("point", "hit"), [(point, hit) for point in WRITING for hit in ((1,) if point in ONCE else (1, 2, 3))], ids=str
)
def test_a_crash_anywhere_in_the_first_epoch_of_a_series_is_healed(pipeline: Pipeline, point: Point, hit: int) -> None:
    pipeline.driver().writes(1, 2, 3)
    driver = pipeline.driver()
    faults.arm(point, crash, hit)
    with pytest.raises(Crash):
        begins_anew(driver, 0)
    faults.disarm()
    begins_anew(pipeline.driver(), 0, 1)
    holds(pipeline, sorted([*NEW, *range(10)]), epochs=5, series=4)


@pytest.mark.parametrize("hit", [1, 2])
def test_resolve_takes_the_old_rows_away_too_as_the_marker_says(pipeline: Pipeline, hit: int) -> None:
    pipeline.driver().writes(1, 2, 3)
    driver = pipeline.driver()
    faults.arm(Point.COMMIT_AFTER, crash, hit)
    with pytest.raises(Crash):
        begins_anew(driver, 0)
    faults.disarm()
    pipeline.resolve()
    holds(pipeline, NEW, epochs=4, series=4)


def test_a_second_refresh_begins_a_third_series(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    begins_anew(pipeline.driver(), 0)
    was = replace(refreshed(0, 3).lineage, run_id="", checkpoint="file:/ckpt/1")
    again = replace(refreshed(0, 3), lineage=lineage(0, "q3"), earlier_checkpoints=(PreviousBatch(was, at(4)),))
    driver = pipeline.driver()
    ids = tuple(sink.id for sink in driver.sinks)
    state = coordinator.start(Job("orders", ids, "third", again, on_refresh="replace"))
    driver.runner.run(state, ArrowBatch(rows(7)))
    holds(pipeline, list(range(60, 70)), epochs=5, series=5)


def test_an_operator_lets_the_next_query_replace_and_the_one_after_it_not(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    accepted = Adoption(AdoptionKind.REPLACE_ROWS, first=1, last=3)
    adopted = operator.refresh(pipeline.sinks(), pipeline.ledger, "orders", accepted)
    assert (adopted.number, adopted.series) == (4, 1)
    begins_anew(pipeline.driver(), 0, on_refresh="stop", proven=False)
    holds(pipeline, NEW, epochs=5, series=5)
    driver = pipeline.driver()
    other = replace(refreshed(0, 3, proven=False), lineage=lineage(0, "q9"))
    state = coordinator.start(Job("orders", tuple(sink.id for sink in driver.sinks), "other", other))
    with pytest.raises(OnceOnlyError) as refused:
        driver.runner.run(state, ArrowBatch(ANEW))
    assert refused.value.code == "E211"
    holds(pipeline, NEW, epochs=5, series=5)


def test_what_was_decided_about_other_epochs_is_not_carried_out(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    accepted = Adoption(AdoptionKind.REPLACE_ROWS, first=1, last=2)
    with pytest.raises(OnceOnlyError) as refused:
        operator.refresh(pipeline.sinks(), pipeline.ledger, "orders", accepted)
    assert refused.value.code == "E110"
    pipeline.holds(3)


def test_one_sink_that_cannot_replace_is_refused_by_name_for_all_of_the_call() -> None:
    class Plain:
        """A sink without the protocol: what the memory sink has, but for replacing."""

        def __init__(self) -> None:
            self._sink = MemorySink("memory:topic")

        def __getattr__(self, name: str) -> object:
            if name in ("cannot_replace", "prepare_replacement"):
                raise AttributeError(name)
            return getattr(self._sink, name)

    with pytest.raises(IdentityError) as refused:
        exactly_once(MemorySink(), Plain(), recovery=Recovery(on_refresh="replace"))  # type: ignore[arg-type]
    assert refused.value.code == "E247"
    assert str(refused.value).startswith("[ONCE-E247] memory:topic cannot replace")


def test_a_sink_whose_rows_others_touch_refuses_before_any_sink_has_begun(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    stores = list(pipeline.stores.values())
    keyed = [MemorySink(f"memory:{name}", store, key="id") for name, store in pipeline.stores.items()]
    pipeline.sinks = lambda: keyed  # type: ignore[method-assign]
    pipeline.driver().writes(1, 2, 3)
    stores[2].append_foreign(rows(9))
    with pytest.raises(IdentityError) as refused:
        begins_anew(pipeline.driver(), 0)
    assert refused.value.code == "E247"
    assert "memory:c" in str(refused.value)
    assert [len(list(sink.history())) for sink in keyed] == [3, 3, 3]


def test_rows_that_are_not_ours_stay(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, names=("a", "b"))
    pipeline.driver().writes(1, 2, 3)
    pipeline.stores["a"].append_foreign(pa.table({"id": [999], "text": ["theirs"]}))
    begins_anew(pipeline.driver(), 0)
    first, second = pipeline.sinks_open()
    assert sorted(row["id"] for row in first.rows()) == [*NEW, 999]
    assert sorted(row["id"] for row in second.rows()) == NEW
    assert first.recount() == {0: 1, 1: 0, 2: 0, 3: 0, 4: 4}


def test_an_option_that_means_nothing_is_refused() -> None:
    with pytest.raises(OnceOnlyError) as refused:
        exactly_once(MemorySink(), recovery=Recovery(on_refresh="append"))
    assert refused.value.code == "E110"


def test_explain_says_that_readers_see_a_table_that_refills() -> None:
    assert "refills" in exactly_once(MemorySink(), recovery=Recovery(on_refresh="replace")).explain()
    assert "refills" not in exactly_once(MemorySink()).explain()


def test_a_sink_that_is_brought_up_over_a_refresh_loses_the_rows_that_it_replaced(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    begins_anew(pipeline.driver(), 0, 1)
    put_back(pipeline, 3, "b")
    asked = RewindRequest(3, ("memory:b",), Origin(OriginKind.SINK, "memory:a"))

    def give(steps: tuple[Step, ...], take: Callable[[Step, ArrowBatch], None]) -> None:
        for step in steps:
            take(step, ArrowBatch(ANEW if step.epoch.replaces else rows(1)))

    rewind.bring_up(of(pipeline), rewind.plan(of(pipeline), asked), asked, give)
    holds(pipeline, sorted([*NEW, *range(10)]), epochs=5, series=4)
