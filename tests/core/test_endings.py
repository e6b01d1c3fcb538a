"""What an opening leaves behind: who it was, how it ended, and whom it fenced out."""

from __future__ import annotations

import os
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.audit.histories import true_facts
from tests.core.several import Crash, Pipeline, crash, offered, rows
from tests.core.stories import cut, offer

from onceonly import faults
from onceonly.errors import FencedOut, OnceOnlyError
from onceonly.faults import Point
from onceonly.machine import coordinator, in_doubt
from onceonly.machine.commands import Probed
from onceonly.machine.facts import Offer, PeekFacts
from onceonly.machine.in_doubt import GRACE_S, patience_ms
from onceonly.machine.state import Job, Phase, State
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime import runs
from onceonly.runtime.remedies import open_epoch
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_sinks.memory import MemorySink


def opening(offered_: Offer, owner: str) -> State:
    return coordinator.start(Job("orders", ("memory:a",), owner, offered_))


def runner(pipeline: Pipeline) -> Runner:
    return Runner([MemorySink("memory:a", pipeline.stores["a"])], pipeline.ledger)


def failures(pipeline: Pipeline) -> list[Event]:
    return [event for event in pipeline.ledger.events("orders") if event.kind is EventKind.FAILED]


def state_of(pipeline: Pipeline, now_ms: int = 1 << 60) -> in_doubt.InDoubtEpoch | None:
    (entry,) = pipeline.ledger.pipelines()
    return open_epoch(pipeline.ledger, entry, now_ms)


@pytest.fixture
def one(tmp_path):
    return Pipeline(tmp_path, ("a",))


def test_an_owner_names_user_host_process_and_application():
    fence = Fence(3, runs.owner("app-1"))
    user, _, rest = fence.who.partition("@")
    assert user
    assert rest.endswith(f":{os.getpid()} app-1")
    assert fence.text == f"generation 3 ({fence.who})"
    assert runs.owner() != runs.owner()


def test_a_refusal_leaves_its_code_in_the_ledger_once(one):
    runner(one).run(opening(offered(1), "a"), ArrowBatch(rows(1)))
    with pytest.raises(OnceOnlyError):
        runner(one).run(opening(offer(cut(15, 30), 5), "b"), ArrowBatch(rows(2)))
    (failed,) = failures(one)
    assert failed.code == "E229"
    assert failed.generation == 0  # refused by a look: it fenced nobody


def test_an_error_of_the_users_own_leaves_a_trace_too(one):
    driver = runner(one)
    driver.events.failed("orders", error := RuntimeError("secret postgresql://me:hunter2@db"))
    driver.events.failed("orders", error)
    assert [event.reason for event in failures(one)] == ["RuntimeError"]


def test_a_failure_before_anything_was_sent_leaves_nothing_to_do(one):
    runner(one).run(opening(offered(1), "a"), ArrowBatch(rows(1)))
    faults.arm(Point.PREPARE_BEFORE, "raise")
    with pytest.raises(faults.InjectedFault):
        runner(one).run(opening(offered(2), "b"), ArrowBatch(rows(2)))
    faults.disarm()
    begun = state_of(one)
    assert begun is not None
    assert (begun.epoch, begun.state) == (2, in_doubt.Progress.DEAD)


def test_a_failure_in_the_middle_of_a_commit_leaves_doubt(one):
    runner(one).run(opening(offered(1), "a"), ArrowBatch(rows(1)))
    faults.arm(Point.COMMIT_BEFORE, "raise")
    with pytest.raises(faults.InjectedFault):
        runner(one).run(opening(offered(2), "b"), ArrowBatch(rows(2)))
    faults.disarm()
    begun = state_of(one, now_ms=0)
    assert begun is not None
    assert (begun.epoch, begun.state) == (2, in_doubt.Progress.UNKNOWN)


def test_a_refused_first_start_leaves_nothing_to_do(one):
    batch = ArrowBatch(pa.table({"id": [1]}))
    faults.arm(Point.PREPARE_BEFORE, "raise")
    with pytest.raises(faults.InjectedFault):
        runner(one).run(opening(offered(1), "a"), batch)
    faults.disarm()
    begun = state_of(one)
    assert begun is not None
    assert not begun.overdue


def test_the_next_opening_tells_of_one_that_ended_without_a_word(one):
    killed = runner(one)
    faults.arm(Point.COMMIT_BEFORE, crash)
    with pytest.raises(Crash):
        killed.run(opening(offered(1), "f00d ann@host:4711 app-1"), ArrowBatch(rows(1)))
    faults.disarm()
    assert not failures(one)
    runner(one).run(opening(offered(1), "b"), ArrowBatch(rows(1)))
    said = one.events(EventKind.OPENED)[-1]
    assert "generation 1 (ann@host:4711 app-1) ended without a word, and is fenced out if it still runs" in said


def test_the_next_opening_is_silent_of_one_that_said_that_it_ended(one):
    first = runner(one)
    first.events.ended(first.run(opening(offered(1), "a"), ArrowBatch(rows(1))))
    runner(one).run(opening(offered(2), "b"), ArrowBatch(rows(2)))
    assert "without a word" not in one.events(EventKind.OPENED)[-1]


def test_a_driver_that_is_fenced_out_is_told_who_did_it(one):
    driver, newer = runner(one), runner(one)
    state = driver.run(opening(offered(1), "a"), ArrowBatch(rows(1)))
    newer.run(opening(offered(2), "f00d bob@elsewhere:7 app-2"), ArrowBatch(rows(2)))
    with pytest.raises(FencedOut, match=r"owned by bob@elsewhere:7 app-2 \(generation 2, ours was 1\)"):
        driver.run(coordinator.resume(state, offered(2)), ArrowBatch(rows(2)))
    assert failures(one)[-1].code == "E401"


def test_a_ledger_that_is_gone_does_not_hide_the_error(one):
    driver = runner(one)
    driver.run(opening(offered(1), "a"), ArrowBatch(rows(1)))
    for file in one.root.glob("ledger.db*"):
        file.unlink()
    one.root.joinpath("ledger.db").mkdir()
    driver.events.failed("orders", RuntimeError("what the user must see"))


def test_a_failure_while_a_call_opens_again_is_not_one_of_an_opening_that_stood(one):
    runner(one).run(opening(offered(1), "a"), ArrowBatch(rows(1)))
    found = runner(one).run(opening(offered(2), "b"), ArrowBatch(rows(2)))
    again = coordinator.apply(replace(found, phase=Phase.PROBE), Probed((found.opening.fence,)))
    assert again.opening.last is None


def test_a_failure_under_a_fence_that_is_only_proposed_is_of_no_generation(one):
    found = runner(one).run(opening(offered(1), "a"), ArrowBatch(rows(1)))
    newest = found.opening.last
    proposed = replace(found.opening, fence=Fence(2, "us"), peek=PeekFacts(newest, 1), readings=(), last=newest)
    stopped = replace(found, phase=Phase.RECOLLECT, opening=proposed)
    assert in_doubt.failure("orders", RuntimeError("gone"), stopped).generation == 0
    stood = replace(stopped, opening=replace(proposed, peek=None))
    assert in_doubt.failure("orders", RuntimeError("gone"), stood).generation == 2


def test_a_marker_of_a_newer_version_is_refused_in_words(one, monkeypatch):
    runner(one).run(opening(offered(1), "a"), ArrowBatch(rows(1)))

    class Newer(MemorySink):
        def position(self, since):
            Marker.from_json({"format": 99})

    newer = Newer("memory:a", one.stores["a"])
    with pytest.raises(OnceOnlyError, match="marker format 99") as refused:
        Runner([newer], one.ledger).run(opening(offered(2), "b"), ArrowBatch(rows(2)))
    assert refused.value.code == "E508"
    assert "upgrade onceonly" in refused.value.remedy
    assert failures(one)[-1].code == "E508"


# For how long an epoch without an answer counts as being written.


def records_that_took(*seconds: float):
    facts = true_facts()
    assert facts.ledger is not None
    record = facts.ledger.records[0]
    return [replace(record, phases=(("prepare", took / 2), ("commit", took / 2))) for took in seconds]


def test_an_epoch_may_take_twice_as_long_as_the_slowest_of_the_recent_ones() -> None:
    assert patience_ms(records_that_took(3.0, 10 * GRACE_S, 1.0)) == 20 * GRACE_S * 1000


def test_quick_epochs_leave_the_time_that_was_asked_for() -> None:
    assert patience_ms(records_that_took(0.1, 0.2)) == GRACE_S * 1000
    assert patience_ms(records_that_took(0.1), grace_s=90.0) == 90_000
    assert patience_ms([]) == GRACE_S * 1000
