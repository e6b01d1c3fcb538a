"""One process: several runs of a pipeline, several wrappers, several callbacks, and which of them may write."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from tests.core.several import offered, rows

from onceonly.errors import ConfigurationError, FencedOut
from onceonly.machine import coordinator
from onceonly.machine.callback_rules import Call, Entering, Holder, decide_call, decide_entry
from onceonly.machine.facts import Refusal
from onceonly.machine.state import Job
from onceonly.protocol.batch import ArrowBatch, ArrowRows
from onceonly.runtime.runner import Runner
from onceonly.runtime.runs import Runs
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore


def ended(query_id: str, run_id: str) -> bool:
    return False


def active(query_id: str, run_id: str) -> bool:
    return True


def holder(run: str = "first", pipeline: str = "orders", wrapper: int = 1, query: str = "q") -> Holder:
    return Holder(pipeline, wrapper, query, run)


FIRST, SECOND = holder("first"), holder("second")


@pytest.fixture
def runs() -> Runs:
    return Runs(patience=0.2)


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink("memory:orders")


def enter(runs: Runs, who: Holder, *sinks: MemorySink, still_running=ended, **came: str) -> None:
    runs.enter(who, sinks or (MemorySink("memory:orders"),), still_running, own=who.run_id, **came)


# ---- the rules


def test_a_batch_is_written_by_one_call_of_a_run():
    assert decide_call(Call("orders", 3, 3, finished=2)) is None
    refusal = decide_call(Call("orders", 3, 3, finished=3))
    assert refusal is not None
    assert refusal.code == "E123"


def test_only_the_engines_own_batch_id_is_taken():
    refusal = decide_call(Call("orders", 0, 1, finished=0))
    assert refusal is not None
    assert (refusal.code, dict(refusal.details)["batch"]) == ("E124", 1)


def test_what_these_rules_have_refused_stays_refused():
    before = Refusal.of("E123", pipeline="orders", batch=3)
    assert decide_call(Call("orders", 4, 4, finished=3, refused=before)) == before


def test_a_batch_of_a_run_that_was_followed_is_refused_before_all_else():
    refusal = decide_entry(Entering(FIRST, outdated=True, named=SECOND))
    assert refusal is not None
    assert refusal.code == "E402"


def test_nobody_or_oneself_is_no_rival():
    assert decide_entry(Entering(FIRST, named=FIRST, held=(("memory:orders", FIRST), ("memory:x", None)))) is None


# ---- runs


def test_a_restart_after_the_old_run_has_ended_becomes_the_newest(runs):
    enter(runs, FIRST)
    enter(runs, SECOND)
    runs.check(SECOND)


def test_a_callback_of_an_older_run_is_told_to_stop(runs):
    enter(runs, FIRST)
    enter(runs, SECOND)
    with pytest.raises(FencedOut, match="E402"):
        runs.check(FIRST)
    with pytest.raises(FencedOut, match="E402"):
        enter(runs, FIRST)
    with pytest.raises(FencedOut, match="E402"), runs.writing(FIRST, 1, 1):
        raise AssertionError("it must not get here")


def test_a_batch_of_an_older_run_is_not_taken_for_one_of_the_run_that_is_active_now(runs):
    enter(runs, FIRST)
    enter(runs, SECOND)
    with pytest.raises(FencedOut, match="E402"):
        enter(runs, holder("second", wrapper=2), session="first")


def test_rows_of_a_session_that_is_no_runs_belong_to_whoever_brings_them(runs):
    enter(runs, FIRST, session="of the user")
    enter(runs, SECOND, session="of the user", group="nightly")
    runs.check(SECOND)


def test_a_callback_that_wakes_up_before_its_first_call_is_told_by_its_job_group(runs):
    older, newer = "c1b2a3d4-0000-4000-8000-000000000001", "c1b2a3d4-0000-4000-8000-000000000002"
    enter(runs, holder(newer), group=newer)
    with pytest.raises(FencedOut, match="E402"):
        enter(runs, holder(newer), session="of the older run", group=older)
    runs.check(holder(newer))


def test_a_second_live_query_under_one_name_is_refused_and_names_the_first(runs):
    enter(runs, FIRST)
    with pytest.raises(ConfigurationError, match="first") as caught:
        enter(runs, holder("second", query="q2"), still_running=active)
    assert caught.value.code == "E103"
    runs.check(FIRST)


def test_a_second_wrapper_of_one_name_in_a_run_is_refused(runs):
    enter(runs, FIRST)
    with pytest.raises(ConfigurationError, match="another exactly_once") as caught:
        enter(runs, holder("first", wrapper=2))
    assert caught.value.code == "E103"


def test_one_run_may_enter_again_and_pipelines_do_not_disturb_each_other(runs, sink):
    for _ in range(3):
        enter(runs, FIRST, sink, still_running=active)
        runs.check(FIRST)
    enter(runs, holder("other", "flights", query="p"), still_running=active)
    runs.check(FIRST)


# ---- sink objects


def test_a_sink_object_serves_one_pipeline_at_a_time(runs, sink):
    enter(runs, FIRST, sink)
    other = holder("other", "flights", wrapper=2, query="p")
    with pytest.raises(ConfigurationError, match='"orders"') as caught:
        enter(runs, other, sink, still_running=active)
    assert caught.value.code == "E125"
    runs.check(FIRST)
    enter(runs, other, sink, still_running=ended)
    runs.check(other)
    with pytest.raises(FencedOut):
        runs.check(FIRST)


def test_a_run_that_ends_gives_back_the_sinks_that_nobody_has_taken(runs, sink):
    taken = MemorySink("memory:taken")
    enter(runs, FIRST, sink, taken)
    enter(runs, holder("other", "flights", wrapper=2), taken)
    with runs.leaving(FIRST) as left:
        assert left == (sink,)
    enter(runs, holder("third", "flows", wrapper=3), sink, still_running=active)


# ---- calls


def test_a_call_that_failed_may_be_repeated_and_one_that_did_not_may_not(runs):
    enter(runs, FIRST)
    with pytest.raises(RuntimeError), runs.writing(FIRST, 0, 0):
        raise RuntimeError
    with runs.writing(FIRST, 0, 0):
        pass
    with pytest.raises(ConfigurationError, match="E123"), runs.writing(FIRST, 0, 0):
        raise AssertionError("it must not get here")


def test_another_run_may_write_the_batch_again(runs):
    enter(runs, FIRST)
    with runs.writing(FIRST, 0, 0):
        pass
    enter(runs, SECOND)
    with runs.writing(SECOND, 0, 0):
        pass


# ---- one thread


class Watched(MemorySink):
    """Notes who is in it, and lets one preparation wait."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__("memory:orders", store)
        self.hold, self.reached, self.proceed = False, threading.Event(), threading.Event()
        self.inside: list[str] = []

    def open(self, pipeline: str) -> None:
        self.inside.append("open")
        super().open(pipeline)

    def prepare(self, batch, epoch) -> ArrowRows:
        if self.hold:
            self.hold = False
            self.reached.set()
            assert self.proceed.wait(30)
            self.inside.append("older run out of prepare")
        return super().prepare(batch, epoch)


def test_a_callback_that_outlives_its_run_stops_at_its_next_step_and_the_next_run_waits_for_that(tmp_path):
    runs, sink, ledger = Runs(), Watched(MemoryStore()), SqlLedger(str(tmp_path / "ledger.db"))
    said: list[str] = []

    def write(who: Holder, table: pa.Table) -> None:
        runner = Runner([sink], ledger, guard=lambda: runs.check(who))
        start = coordinator.start(Job("orders", (sink.id,), who.run_id, offered(1)))
        try:
            with runs.writing(who, 0, 0):
                runner.run(start, ArrowBatch(table))
        except FencedOut as error:
            said.append(error.code)

    enter(runs, FIRST, sink)
    sink.hold = True
    older = threading.Thread(target=write, args=(FIRST, rows(9)))
    older.start()
    assert sink.reached.wait(30)
    enter(runs, SECOND, sink)
    newer = threading.Thread(target=write, args=(SECOND, rows(1)))
    newer.start()
    newer.join(0.3)
    waited = newer.is_alive()
    sink.proceed.set()
    older.join(30)
    newer.join(30)
    assert waited
    assert said == ["E402"]
    assert sink.inside == ["open", "older run out of prepare", "open"]
    assert sink.table() == rows(1)


def test_a_callback_that_never_ends_is_not_waited_for_for_ever(runs, sink):
    enter(runs, FIRST, sink)
    with runs.writing(FIRST, 0, 0):
        enter(runs, SECOND, sink)
        with pytest.raises(ConfigurationError, match="has not ended") as caught, runs.writing(SECOND, 0, 0):
            raise AssertionError("it must not get here")
    assert caught.value.code == "E103"
    with runs.writing(SECOND, 0, 0):
        pass
