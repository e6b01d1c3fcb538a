"""The look before the fence: it refuses what the fence could not make right, and decides nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.several import Pipeline, rows
from tests.core.stories import SINK, adoption, at, cut, epochs, offer, recorded, sight

from onceonly.errors import IdentityError
from onceonly.machine import commands as c
from onceonly.machine import coordinator
from onceonly.machine.facts import Adopt, Offer
from onceonly.machine.state import Job
from onceonly.protocol import Peek
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink

ONE, TWO, THREE = epochs(10, 20, 30)
ELSEWHERE = offer(cut(None, 10), 0, query="q2")


def looks(
    offered: Offer,
    *sights: Peek,
    head: Epoch | None = TWO,
    descent: tuple[Epoch, ...] = (),
    adopt: Adopt = None,
    sinks: tuple[str, ...] = (SINK,),
    ahead: tuple[Epoch, ...] | None = None,
) -> c.Command:
    """What is asked for once the sinks were looked at; events and the ledger's answers are heard in passing."""
    state = coordinator.start(Job("orders", sinks, "us", offered, adopt=adopt))
    known: EpochRecord | None = recorded(head) if head else None
    answers = [c.Probed((Fence(1, "them"),) * len(sinks)), c.Recalled(known)]
    for answer in (*answers, c.Looked(sights, ahead)):
        state = coordinator.apply(state, answer)
    while isinstance(command := coordinator.next(state), c.Recollect | c.Note):
        state = coordinator.apply(state, c.Done() if isinstance(command, c.Note) else c.Recollected(descent))
    return command


def refused(command: c.Command) -> str | None:
    return command.refusal.code if isinstance(command, c.Refuse) else None


def test_another_checkpoint_is_refused_before_the_fence():
    assert refused(looks(ELSEWHERE, sight(TWO))) == "E211"


def test_another_checkpoint_is_refused_by_the_marker_alone_where_the_ledger_is_another():
    assert refused(looks(ELSEWHERE, sight(TWO), head=None)) == "E211"


@pytest.mark.parametrize(
    ("offered", "code"),
    [
        (offer(cut(25, 30), 2), "E204"),
        (offer(cut(15, 30), 5), "E203"),
        (offer(cut(20, 30), 0, query="q2", stateful=True), "E206"),
        (offer(cut(20, 30), 2, sources=()), "E212"),
        (offer(cut(20, 30), 2, missing=("file:/gone",)), "E214"),
    ],
    ids=["gap", "overlap", "state", "sources", "input"],
)
def test_a_batch_that_no_fence_makes_right_is_refused(offered, code):
    assert refused(looks(offered, sight(TWO))) == code


def test_a_start_in_the_middle_is_refused_where_nothing_was_written():
    assert refused(looks(offer(cut(5, 10), 3), sight(None), head=None)) == "E217"


def test_other_sinks_than_before_are_refused():
    assert refused(looks(offer(cut(20, 30), 2), sight(None, "memory:b"), sinks=("memory:b",))) == "E213"
    assert refused(looks(offer(cut(None, 10), 0), sight(None, strangers=True), head=None)) == "E201"
    both = looks(offer(cut(20, 30), 2), sight(TWO), sight(None, "b", strangers=True), sinks=(SINK, "b"))
    assert refused(both) == "E202"


def test_another_history_is_refused():
    (_, other) = epochs(10, 21)
    assert refused(looks(offer(cut(20, 30), 2), sight(other))) == "E210"


def test_the_next_batch_goes_on_to_the_fence():
    assert looks(offer(cut(20, 30), 2), sight(TWO)) == c.Install(SINK, Fence(2, "us"))


def test_a_replayed_batch_is_not_skipped_by_a_look():
    assert isinstance(looks(offer(TWO.written, 1), sight(TWO), descent=(TWO,)), c.Install)


def test_a_batch_that_a_sink_holds_and_the_ledger_does_not_know_is_left_to_the_fence():
    assert isinstance(looks(offer(TWO.written, 1), sight(TWO), head=ONE), c.Install)


def test_a_sink_that_is_behind_by_one_is_left_to_healing():
    both = looks(offer(cut(20, 30), 2), sight(TWO), sight(ONE, "b"), sinks=(SINK, "b"), head=ONE)
    assert isinstance(both, c.Install)


def test_a_lost_ledger_is_left_to_the_fence_where_sinks_were_not_asked_for_their_history():
    assert isinstance(looks(offer(ONE.written, 0), sight(THREE), head=None), c.Install)
    assert isinstance(looks(offer(cut(30, 40), 3), sight(THREE), head=None), c.Install)


def test_a_lost_ledger_is_no_reason_to_disturb_anybody_where_sinks_tell_their_history():
    line = (ONE, TWO, THREE)
    assert isinstance(looks(offer(ONE.written, 0), sight(THREE), head=None, ahead=line), c.Install)  # a proven replay
    assert refused(looks(offer(cut(None, 15), 0), sight(THREE), head=None, ahead=line)) == "E205"
    assert refused(looks(offer(cut(10, 25), 1), sight(THREE), head=ONE, ahead=(TWO, THREE))) == "E205"


def test_a_hole_that_no_sink_fills_is_a_hole_under_the_fence_too():
    assert refused(looks(offer(ONE.written, 0), sight(THREE), head=None, ahead=(ONE, THREE))) == "E203"
    assert refused(looks(offer(ONE.written, 0), sight(THREE), head=THREE, descent=(ONE, THREE))) == "E203"


def test_what_a_driver_writes_after_the_look_is_left_out():
    (*_, four) = epochs(10, 20, 30, 40)
    line = (TWO, THREE, four)
    assert isinstance(looks(offer(cut(30, 40), 3), sight(THREE), head=ONE, ahead=line), c.Install)


def back(newest: Epoch | None, identity: str | None = "table-1") -> Peek:
    """A look at a sink that confirmed more."""
    return replace(sight(newest), identity=identity)


def test_a_sink_that_was_set_back_is_refused_by_sight_where_it_says_what_it_is():
    assert refused(looks(ELSEWHERE, back(ONE))) == "E207"
    assert refused(looks(offer(cut(20, 30), 2), back(ONE))) == "E207"
    assert refused(looks(offer(cut(20, 30), 2), back(None, "table-2"))) == "E208"
    assert refused(looks(offer(cut(20, 30), 2), back(None, ""))) == "E208"


def test_a_sink_that_may_hide_what_it_has_confirmed_is_left_to_the_fence():
    assert isinstance(looks(ELSEWHERE, back(ONE, None)), c.Install)
    assert isinstance(looks(ELSEWHERE, back(None, None)), c.Install)


def test_a_marker_whose_text_has_aged_out_is_what_the_ledger_says():
    assert refused(looks(ELSEWHERE, Peek(None, 2), head=None)) == "E216"
    assert refused(looks(ELSEWHERE, Peek(None, 2))) == "E211"
    assert isinstance(looks(offer(cut(20, 30), 2), Peek(None, 2)), c.Install)


def test_an_adoption_without_a_lineage_is_left_to_the_fence_where_the_ledger_is_lost():
    moved = adoption(TWO, "continue", at(20))
    assert isinstance(looks(offer(cut(20, 30), 2), sight(moved), head=None), c.Install)


def test_nothing_is_looked_at_without_a_batch():
    state = coordinator.start(Job("orders", (SINK,), "us", None))
    state = coordinator.apply(state, c.Probed((None,)))
    state = coordinator.apply(state, c.Recalled(recorded(TWO)))
    assert isinstance(coordinator.next(state), c.Install)


def test_what_a_look_found_is_read_again_under_the_fence():
    state = coordinator.start(Job("orders", (SINK,), "us", offer(TWO.written, 1)))
    for answer in (
        c.Probed((None,)),
        c.Recalled(recorded(TWO)),
        c.Looked((sight(TWO),)),
        c.Recollected((TWO,)),
    ):
        state = coordinator.apply(state, answer)
    assert (state.opening.peek, state.opening.last, state.work.descent, state.opening.held) == (None, None, None, None)


def copy_of(pipeline: Pipeline, ledger: SqlLedger) -> Runner:
    return Runner([MemorySink(f"memory:{name}", store) for name, store in pipeline.stores.items()], ledger)


@pytest.mark.parametrize("own_ledger", [False, True], ids=["same ledger", "ledger of its own"])
def test_a_copy_that_is_refused_does_not_stop_a_healthy_driver(tmp_path, own_ledger):
    pipeline = Pipeline(tmp_path, ("a",))
    driver = pipeline.driver()
    driver.writes(1, 2)
    fence = driver.sinks[0].fence()
    ledger = SqlLedger(str(tmp_path / "other.db")) if own_ledger else pipeline.ledger
    with pytest.raises(IdentityError, match="E211"):
        copy_of(pipeline, ledger).run(
            coordinator.start(Job("orders", ("memory:a",), "copy", offer(cut(None, 10), 0, query="q2"))),
            ArrowBatch(rows(1)),
        )
    assert driver.sinks[0].fence() == fence
    assert [record.epoch.number for record in ledger.epochs("orders")] == [1, 2]  # what the message prints works
    assert [entry.generation for entry in ledger.pipelines()] == [1]
    driver.writes(3)
    pipeline.holds(3)


def test_a_refused_copy_leaves_no_generation_in_the_events(tmp_path):
    pipeline = Pipeline(tmp_path, ("a",))
    pipeline.driver().writes(1)
    with pytest.raises(IdentityError, match="E211"):
        copy_of(pipeline, pipeline.ledger).run(
            coordinator.start(Job("orders", ("memory:a",), "copy", offer(cut(None, 10), 0, query="q2"))),
            ArrowBatch(rows(1)),
        )
    assert pipeline.ledger.events("orders")[-1].generation == 0


def refuses(pipeline: Pipeline, offered: Offer, code: str, ledger: SqlLedger) -> None:
    """A copy of the job is refused, and nobody's fence is touched."""
    stood = [sink.fence() for sink in pipeline.sinks_open()]
    with pytest.raises(IdentityError, match=code):
        copy_of(pipeline, ledger).run(
            coordinator.start(Job("orders", tuple(f"memory:{name}" for name in pipeline.stores), "copy", offered)),
            ArrowBatch(rows(1)),
        )
    assert [sink.fence() for sink in pipeline.sinks_open()] == stood


def test_a_copy_with_a_ledger_that_is_ahead_of_the_sink_does_not_stop_the_driver_of_it(tmp_path):
    elsewhere, pipeline = Pipeline(tmp_path / "production", ("a",)), Pipeline(tmp_path / "staging", ("a",))
    elsewhere.driver().writes(1, 2, 3)
    driver = pipeline.driver()
    driver.writes(1)
    refuses(pipeline, offer(cut(30, 40), 3), "E208", elsewhere.ledger)
    pipeline.stores["a"].identity = elsewhere.stores["a"].identity
    refuses(pipeline, offer(cut(30, 40), 3), "E207", elsewhere.ledger)
    pipeline.stores["a"].identity = pipeline.ledger.head("orders").receipts[0].identity  # type: ignore[union-attr]
    driver.writes(2)
    pipeline.holds(2)


def test_a_copy_of_the_checkpoint_without_its_ledger_does_not_stop_the_driver(tmp_path):
    pipeline = Pipeline(tmp_path, ("a",))
    driver = pipeline.driver()
    driver.writes(1, 2, 3)
    refuses(pipeline, offer(cut(10, 25), 1), "E205", SqlLedger(str(tmp_path / "other.db")))
    driver.writes(4)
    pipeline.holds(4)
