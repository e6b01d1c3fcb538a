"""The state machine, driven by hand: each test tells what the world answers and reads what is asked for next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.stories import SINK, adoption, changed, cut, epochs, offer, reading, receipt, recorded, sight

from onceonly.machine import commands as c
from onceonly.machine import coordinator
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.facts import Offer
from onceonly.machine.source_order import kafka_identity
from onceonly.machine.state import MAX_OPENINGS, MAX_UNKNOWN, Job, State
from onceonly.machine.writer_progress import TimedMarker, WriterSet
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence, Marker
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import SourceIdentity

ONE, TWO, THREE = epochs(10, 20, 30)
NEXT = offer(cut(20, 30), 2)
BEGIN = offer(cut(None, 10), 0)
UNWRITTEN = (c.Recalled(None), c.Looked((sight(None),)))
"""What a new pipeline answers before its first fence."""


class Machine:
    """A state with the commands it has asked for; notes and waits are carried out in passing."""

    def __init__(self, offered: Offer | None, state: State | None = None) -> None:
        self.state = state or coordinator.start(Job("orders", (SINK,), "us", offered))
        self.events: list[EventKind] = []
        self.waits = 0

    @property
    def asks(self) -> c.Command:
        while isinstance(command := coordinator.next(self.state), c.Note | c.Wait):
            if isinstance(command, c.Note):
                self.events += [happening.kind for happening in command.happenings]
            else:
                self.waits += 1
            self.state = coordinator.apply(self.state, c.Done())
        return command

    def hears(self, *outcomes: c.Outcome) -> Machine:
        for outcome in outcomes:
            assert self.asks
            self.state = coordinator.apply(self.state, outcome)
        return self

    def opens(self, last: Epoch | None = TWO, generation: int = 1, descent: tuple[Epoch, ...] = ()) -> Machine:
        """Hear everything up to the comparison of the batch."""
        fence = Fence(generation, "them")
        self.hears(
            c.Probed((fence if generation else None,)),
            c.Recalled(recorded(last) if last else None),
        )
        if self.state.job.offer is not None:
            self.looks(last, *descent)
        self.hears(
            c.Installed(),
            reading(last, known=last, rows=last is not None, identity="table-1" if last else ""),
            c.Indexed(),
        )
        return self

    def looks(self, last: Epoch | None, *descent: Epoch) -> Machine:
        """Hear what the sink shows to anybody, and, if that is asked, which epochs the batch id became."""
        self.hears(c.Looked((sight(last),)))
        return self.hears(c.Recollected(descent)) if isinstance(self.asks, c.Recollect) else self

    def prepares(self, digest: Digest | None = None) -> Machine:
        digest = digest or Digest(7, 1, 2)
        return self.hears(c.Done(), c.Prepared(digest.rows, digest))


def refusal(machine: Machine) -> str:
    command = machine.asks
    assert isinstance(command, c.Refuse), command
    return command.refusal.code


def test_an_epoch_goes_through_all_phases_in_order():
    machine = Machine(NEXT)
    assert machine.asks == c.Probe()
    machine.hears(c.Probed((Fence(4, "them"),)))
    assert machine.asks == c.Recall()
    machine.hears(c.Recalled(recorded(TWO)))
    assert machine.asks == c.Look()
    machine.hears(c.Looked((sight(TWO),)))
    assert machine.asks == c.Install(SINK, Fence(5, "us"))
    machine.hears(c.Installed())
    assert machine.asks == c.Read(SINK, receipt(TWO), 2)
    machine.hears(reading(TWO, known=TWO))
    assert machine.asks == c.Index(Fence(5, "us"), (), NEXT.lineage)
    machine.hears(c.Indexed())
    assert machine.asks == c.Intend(3, Fence(5, "us"), NEXT.slice)
    machine.hears(c.Done())
    assert machine.asks == c.Prepare(SINK, 3)
    machine.hears(c.Prepared(7, Digest(7, 1, 2)))
    command = machine.asks
    assert isinstance(command, c.Commit)
    assert command.marker.epoch.number == 3
    assert command.marker.epoch.previous_chain == TWO.chain
    assert command.marker.fence == Fence(5, "us")
    machine.hears(c.Committed(receipt(command.marker.epoch)))
    assert machine.asks == c.Record(command.marker.epoch, Fence(5, "us"), (receipt(command.marker.epoch),))
    machine.hears(c.Done())
    assert machine.asks == c.Return()
    assert machine.events == [EventKind.OPENED]


def test_the_next_batch_of_a_run_does_not_open_again():
    machine = Machine(NEXT).opens().prepares()
    command = machine.asks
    assert isinstance(command, c.Commit)
    machine.hears(c.Committed(receipt(command.marker.epoch)), c.Done())
    assert machine.asks == c.Return()
    following = Machine(None, coordinator.resume(machine.state, offer(cut(30, 40), 3)))
    assert following.asks == c.Intend(4, Fence(2, "us"), cut(30, 40))
    assert following.state.opening.fence == machine.state.opening.fence


def other_topic(name: str | None) -> tuple[SourceIdentity, ...]:
    return (SourceIdentity("0", name and kafka_identity("cluster", {"events": name})),)


def test_brokers_that_could_not_be_asked_once_do_not_make_another_topic_the_same():
    machine = Machine(replace(NEXT, sources=other_topic(None))).opens().prepares()
    command = machine.asks
    assert isinstance(command, c.Commit)
    assert command.marker.epoch.sources == TWO.sources
    machine.hears(c.Committed(receipt(command.marker.epoch)), c.Done())
    following = offer(cut(30, 40), 3, sources=other_topic("made anew"))
    assert refusal(Machine(None, coordinator.resume(machine.state, following))) == "E212"


def test_a_topic_that_becomes_another_one_between_two_batches_of_a_run_is_noticed():
    machine = Machine(NEXT).opens().prepares()
    command = machine.asks
    assert isinstance(command, c.Commit)
    machine.hears(c.Committed(receipt(command.marker.epoch)), c.Done())
    following = offer(cut(30, 40), 3, sources=other_topic("made anew"))
    assert refusal(Machine(None, coordinator.resume(machine.state, following))) == "E212"


def test_the_next_batch_of_a_run_is_still_compared():
    machine = Machine(NEXT).opens().prepares()
    command = machine.asks
    assert isinstance(command, c.Commit)
    machine.hears(c.Committed(receipt(command.marker.epoch)), c.Done())
    assert refusal(Machine(None, coordinator.resume(machine.state, offer(cut(35, 40), 3)))) == "E204"


def test_a_replayed_batch_is_recollected_and_skipped():
    machine = Machine(offer(TWO.written, 1)).opens()
    assert machine.asks == c.Recollect("q1", 1, 2)
    machine.hears(c.Recollected((TWO,)))
    assert machine.asks == c.Record(TWO, Fence(2, "us"), skipped=True)
    assert machine.hears(c.Done()).asks == c.Return()
    assert machine.state.work.skipped
    assert machine.state.opening.last == TWO
    assert EventKind.SKIPPED in machine.events


def test_a_skipped_stateful_batch_is_executed_and_its_digest_compared():
    same = Machine(offer(TWO.written, 1, stateful=True)).opens().hears(c.Recollected((TWO,)))
    assert same.asks == c.Execute()
    assert same.hears(c.Executed(TWO.digest), c.Done()).asks == c.Return()
    other = Machine(offer(TWO.written, 1, stateful=True)).opens().hears(c.Recollected((TWO,)))
    assert refusal(other.hears(c.Executed(Digest(1, 2, 3)))) == "E215"


def test_who_gave_up_input_of_a_batch_took_what_it_is_without_it():
    """Seed 6359: E214 was accepted, and the batch, run again for its state, stopped the query by E215."""
    again = offer(TWO.written, 1, stateful=True, missing=("file:///one",))
    ours = adoption(TWO, "accept-loss", TWO.written.end, first=2, last=2, offsets=again.range)
    machine = Machine(again).opens(ours, descent=(TWO, ours)).hears(c.Recollected((TWO, ours)))
    assert machine.asks == c.Execute()
    assert machine.hears(c.Executed(Digest(1, 2, 3)), c.Done()).asks == c.Return()
    assert EventKind.DIVERGED in machine.events


def test_a_batch_that_lacks_nothing_is_compared_although_its_input_was_given_up():
    again = offer(TWO.written, 1, stateful=True)
    ours = adoption(TWO, "accept-loss", TWO.written.end, first=2, last=2, offsets=again.range)
    machine = Machine(again).opens(ours, descent=(TWO, ours)).hears(c.Recollected((TWO, ours)))
    assert refusal(machine.hears(c.Executed(Digest(1, 2, 3)))) == "E215"


def test_a_resolve_without_a_batch_ends_once_everything_stands():
    machine = Machine(None).opens()
    assert machine.asks == c.Return()
    assert machine.state.opening.last == TWO


def test_a_higher_generation_stops_the_driver_and_names_it():
    machine = Machine(BEGIN).hears(c.Probed((None,)), *UNWRITTEN, c.Overtaken(Fence(9, "them")))
    assert refusal(machine) == "E401"
    assert machine.events == [EventKind.FENCED]


def test_an_equal_generation_of_another_owner_is_tried_again_higher():
    machine = Machine(BEGIN).hears(c.Probed((None,)), *UNWRITTEN, c.Overtaken(Fence(1, "them")))
    assert machine.asks == c.Probe()
    assert machine.waits == 1
    machine.hears(c.Probed((Fence(1, "them"),)), *UNWRITTEN)
    assert machine.asks == c.Install(SINK, Fence(2, "us"))


def test_ties_end_after_a_bound():
    machine = Machine(BEGIN)
    for generation in range(1, MAX_OPENINGS + 1):
        machine.hears(c.Probed((None,)), *UNWRITTEN, c.Overtaken(Fence(generation, "them")))
    assert refusal(machine) == "E403"


def test_a_lost_answer_to_a_fence_sends_the_same_fence_again():
    machine = Machine(BEGIN).hears(c.Probed((None,)), *UNWRITTEN, c.Unknown("cut"))
    assert machine.asks == c.Install(SINK, Fence(1, "us"))
    for _ in range(MAX_UNKNOWN - 1):
        machine.hears(c.Unknown("cut"))
    assert refusal(machine) == "E302"


def test_a_position_read_under_another_fence_stops():
    machine = Machine(BEGIN).hears(c.Probed((None,)), *UNWRITTEN, c.Installed(), c.Overtaken(Fence(2, "x")))
    assert refusal(machine) == "E401"


def test_a_lost_commit_answer_is_looked_up_and_found():
    machine = Machine(NEXT).opens().prepares()
    command = machine.asks
    assert isinstance(command, c.Commit)
    machine.hears(c.Unknown("connection lost"))
    assert machine.asks == c.LookUp(command.marker)
    machine.hears(c.Committed(receipt(command.marker.epoch)))
    assert isinstance(machine.asks, c.Record)
    assert EventKind.RESOLVED in machine.events


def test_an_absent_commit_opens_again_higher_before_anything_is_sent_twice():
    machine = Machine(NEXT).opens(generation=4).prepares().hears(c.Unknown("cut"), c.Absent())
    assert machine.asks == c.Probe()
    machine.hears(c.Probed((Fence(5, "us"),)), c.Recalled(recorded(TWO)), c.Looked((sight(TWO),)))
    assert machine.asks == c.Install(SINK, Fence(6, "us"))
    machine.hears(c.Installed(), reading(TWO, known=TWO), c.Indexed())
    assert machine.asks == c.Intend(3, Fence(6, "us"), NEXT.slice)


@pytest.mark.parametrize("committing", [False, True], ids=["prepare", "commit"])
def test_an_epoch_that_was_taken_back_is_written_from_what_stands_under_a_higher_fence(committing: bool):
    machine = Machine(NEXT).opens(generation=4)
    machine = machine.prepares() if committing else machine.hears(c.Done())
    machine.hears(c.RolledBack("deadlock detected", "pid 7"))
    assert machine.asks == c.Probe()
    assert machine.waits == 1
    assert machine.events[-1] is EventKind.RESOLVED
    machine.hears(c.Probed((Fence(5, "us"),)), c.Recalled(recorded(TWO)), c.Looked((sight(TWO),)))
    assert machine.asks == c.Install(SINK, Fence(6, "us"))
    machine.hears(c.Installed(), reading(TWO, known=TWO), c.Indexed(), c.Done())
    assert machine.asks == c.Prepare(SINK, 3)


def test_an_epoch_that_is_taken_back_again_and_again_stops_with_who_was_in_the_way():
    machine = Machine(NEXT)
    for _ in range(MAX_OPENINGS):
        machine.opens().prepares().hears(c.RolledBack("deadlock detected", "pid 7"))
    assert refusal(machine) == "E526"
    assert machine.state.refusal is not None
    assert dict(machine.state.refusal.details)["blocker"] == "pid 7"


def test_a_fence_met_while_preparing_stops():
    machine = Machine(NEXT).opens().hears(c.Done(), c.Overtaken(Fence(9, "them")))
    assert refusal(machine) == "E401"


def test_a_commit_found_after_reopening_is_skipped_not_repeated():
    machine = Machine(NEXT).opens().prepares()
    command = machine.asks
    assert isinstance(command, c.Commit)
    late = command.marker.epoch
    machine.hears(c.Unknown("cut"), c.Absent(), c.Probed((None,)), c.Recalled(recorded(TWO)), c.Looked((sight(TWO),)))
    machine.hears(c.Installed(), reading(late, known=TWO, ahead=(late,)), c.Indexed())
    assert machine.asks == c.Recollect("q1", 2, 3)
    assert machine.hears(c.Recollected((late,)), c.Done()).asks == c.Return()
    assert machine.state.work.skipped


def test_an_outcome_that_stays_unknown_stops_the_query():
    machine = Machine(NEXT).opens().prepares()
    for _ in range(MAX_UNKNOWN):
        machine.hears(c.Unknown("cut"))
    assert refusal(machine) == "E301"


def test_a_zombie_that_wakes_at_its_commit_stops():
    machine = Machine(NEXT).opens().prepares().hears(c.Overtaken(Fence(8, "them")))
    assert refusal(machine) == "E401"


def test_rows_that_do_not_match_their_digest_are_not_committed():
    machine = Machine(NEXT).opens().hears(c.Done(), c.Prepared(6, Digest(7)))
    assert refusal(machine) == "E510"


def test_an_epoch_without_rows_is_committed_like_any_other():
    machine = Machine(NEXT).opens().prepares(Digest(0))
    assert isinstance(machine.asks, c.Commit)


def test_a_lost_ledger_learns_the_sinks_history_before_the_batch_is_compared():
    machine = Machine(NEXT).hears(c.Probed((Fence(1, "x"),)), c.Recalled(None), c.Looked((sight(TWO),)))
    machine.hears(c.Installed(), reading(TWO, ahead=(ONE, TWO)))
    command = machine.asks
    assert isinstance(command, c.Index)
    assert [marker.epoch.number for marker, _ in command.epochs] == [1, 2]
    assert machine.hears(c.Indexed()).asks == c.Intend(3, Fence(2, "us"), NEXT.slice)
    assert machine.events == [EventKind.OPENED, EventKind.REBUILT]


@pytest.mark.parametrize(("pipeline", "sink"), [("flights", SINK), ("orders", "memory:flights")])
@pytest.mark.parametrize("from_history", [False, True])
def test_a_marker_that_names_another_pipeline_or_sink_is_taken_for_nothing(pipeline, sink, from_history):
    foreign, fence = Marker(pipeline, sink, Fence(1, "them"), THREE), Fence(1, "them")
    said = reading(THREE, ahead=(THREE,))
    if from_history:
        said = replace(said, ahead=((foreign, said.ahead[0][1]),))
    else:
        said = replace(said, position=replace(said.position, marker=foreign))
    machine = Machine(NEXT).hears(c.Probed((fence,)), c.Recalled(recorded(TWO)), c.Looked((sight(TWO),)))
    machine.hears(c.Installed(), said)
    assert refusal(machine) == "E508"
    assert isinstance(machine.asks, c.Refuse)
    assert f'"{pipeline}"' in str(machine.asks.refusal.details)


def test_a_foreign_marker_that_a_look_shows_is_refused_before_any_fence():
    foreign = replace(sight(TWO), marker=Marker("flights", SINK, Fence(1, "them"), TWO))
    machine = Machine(NEXT).hears(c.Probed((None,)), c.Recalled(recorded(TWO)), c.Looked((foreign,)))
    assert refusal(machine) == "E508"
    assert machine.state.opening.fence.generation == 0


def test_an_outcome_that_answers_nothing_is_an_error():
    with pytest.raises(TypeError, match="does not answer"):
        coordinator.apply(coordinator.start(Job("orders", (SINK,), "us", NEXT)), c.Installed())


def test_a_sink_behind_by_an_epoch_whose_bytes_were_never_staged_stops_the_query():
    other, fence = "memory:shipped", Fence(1, "them")
    ahead = changed(*epochs(10, 20), sinks=((SINK, 1), (other, 1)))
    refused = {None: "E219", "file:/staging/2": None}
    for manifest, code in refused.items():
        line = changed(*ahead, manifest=manifest)
        machine = Machine(None, coordinator.start(Job("orders", (SINK, other), "us", None)))
        machine.hears(c.Probed((fence, fence)), c.Recalled(recorded(line[0])), c.Installed(), c.Installed())
        machine.hears(reading(line[0], known=line[0]), reading(line[1], known=line[0], ahead=line[1:], sink=other))
        if code:
            assert refusal(machine) == code
            assert "its bytes were not staged" in str(machine.asks.refusal.details)  # type: ignore[union-attr]
        else:
            assert isinstance(machine.asks, c.Fetch)


def test_a_word_on_time_that_cannot_go_on_is_refused_once_other_writers_are_known_and_before_rows_are_read():
    counted = {"ms": c.Refuse, "integer": c.Prepare}
    found = {}
    for unit in counted:
        time = EventTimeConfig("function", "integer", writers=WriterSet())
        machine = Machine(NEXT, coordinator.start(Job("orders", (SINK,), "us", NEXT, noting=time)))
        machine.opens().hears(c.Done())
        assert isinstance(machine.asks, c.Poll)
        machine.hears(c.Polled((TimedMarker("shipments", 4, EpochTime(unit, 7, 7, 9)),)))  # type: ignore[arg-type]
        found[unit] = type(machine.asks)
    assert found == counted
