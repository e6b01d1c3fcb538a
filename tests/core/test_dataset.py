"""Several pipelines write one dataset: what it is complete through, whom it waits for, and whose word goes back."""

from __future__ import annotations

import ast
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.stories import changed, cut, epochs, lineage, offer

from onceonly import EventTime, exactly_once, faults
from onceonly.cli import doctor_checks
from onceonly.errors import OnceOnlyError
from onceonly.event_time import TimeReader, Writers
from onceonly.event_time.event_time_argument import EventTimeArgument, check_event_time
from onceonly.event_time.marker_sources import Peers
from onceonly.faults import Point
from onceonly.machine import coordinator, event_time, writer_progress
from onceonly.machine.event_time import EventTimeConfig, PreviousTime
from onceonly.machine.rewind import RewindRequest
from onceonly.machine.state import Job, State
from onceonly.machine.writer_progress import TimedMarker, WriterSet
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.row_times import NO_TIMES
from onceonly.replay import rewind
from onceonly.runtime import operator
from onceonly.runtime.remedies import CommandContext
from onceonly.runtime.runner import ReadPeers, Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly.spark.engine import QueryPlan, Run
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, EpochTime, WriterProgress
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.postgres import PostgresSink

BOTH = WriterSet(("A", "B"), timeout=60)


class Crash(BaseException):
    """Ends a driver where it stands."""


def crash() -> None:
    raise Crash


class Writer:
    """Starts of one pipeline: what an epoch notes, and the times of its rows, are told to it."""

    def __init__(self, root: Path, name: str, *stores: MemoryStore, writers: WriterSet | None = BOTH) -> None:
        self.root, self.name, self.stores = root / name, name, stores
        self.root.mkdir(exist_ok=True)
        self.noting = EventTimeConfig("function", "integer", "at", writers=writers)
        self.ledger = SqlLedger(str(self.root / "ledger.db"))
        self.said: int | None = None
        self.number = 0
        self.start()

    def start(self) -> None:
        self.sinks = [MemorySink(store=store) for store in self.stores]
        staging = StagedEpochs(str(self.root / "staging"), self.name, self.sinks)
        self.peers: ReadPeers = Peers(self.sinks)
        self.runner = Runner(self.sinks, self.ledger, staging=staging, says=lambda _: self.said, peers=self.reads)
        self.state: State | None = None

    def reads(self, name: str, known: Sequence[str]) -> tuple[tuple[TimedMarker, ...], str]:
        return self.peers(name, known)

    def commits(self, noted: int | None, at: int, *rows: int) -> EpochTime:
        """One more epoch: what it notes, the engine's clock, and the times of its rows."""
        self.said, number = noted, self.number + 1
        made = lineage(number - 1, clock=0)
        batch = replace(offer(cut((number - 1) * 10 if number > 1 else None, number * 10), number - 1), lineage=made)
        batch = replace(batch, lineage=replace(made, batch_timestamp_ms=at))
        if self.state is None:
            ids, owner = tuple(sink.id for sink in self.sinks), secrets.token_hex(4)
            state = coordinator.start(Job(self.name, ids, owner, batch, noting=self.noting))
        else:
            state = coordinator.resume(self.state, batch)
        self.state = None
        self.state = self.runner.run(state, ArrowBatch(pa.table({"at": pa.array(rows, pa.int64())})))
        self.number = number
        assert self.state.current.time is not None
        return self.state.current.time

    def events(self, kind: EventKind) -> list[str]:
        return [event.reason for event in self.ledger.events(self.name) if event.kind is kind]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def names(time: EpochTime) -> list[str]:
    return [mark.writer for mark in time.writers]


def test_a_dataset_is_complete_through_the_least_that_its_declared_writers_noted(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = Writer(tmp_path, "A", store), Writer(tmp_path, "B", store)
    assert a.commits(100, 0).dataset_complete_until is None
    assert b.commits(70, 0).dataset_complete_until == 70
    found = TimeReader("A", MemorySink(store=store)).time_window()
    assert (found.lower, found.upper, [mark.writer for mark in found.held]) == (70, None, ["B"])
    again = a.commits(130, 30)
    assert (again.dataset_complete_until, again.complete_until, names(again)) == (70, 130, ["A", "B"])


def test_a_silent_writer_is_left_out_by_a_commit_that_says_so_and_its_late_rows_are_counted(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = Writer(tmp_path, "A", store), Writer(tmp_path, "B", store)
    a.commits(100, 0)
    b.commits(70, 0)
    a.commits(130, 30)
    excluding = a.commits(130, 61)
    assert (excluding.dataset_complete_until, excluding.timed_out) == (130, ("B",))
    assert a.events(EventKind.WRITER_TIMED_OUT) == ["B is waited for no more: its epoch 1 was planned, 0.061 s before"]
    back = b.commits(90, 70, 95, 129, 130)
    assert (back.dataset_complete_until, back.late_before, back.late_rows) == (130, 130, 2)
    assert a.commits(200, 80).dataset_complete_until == 130
    assert b.commits(150, 90).dataset_complete_until == 150
    assert len(a.events(EventKind.WRITER_TIMED_OUT)) == 1


def test_the_doctor_tells_of_a_time_out_that_the_pace_of_a_writer_meets_again(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = Writer(tmp_path, "A", store), Writer(tmp_path, "B", store)
    for number in range(4):
        b.commits(number, 40 * number)
        a.commits(number, 40 * number + 1)
    assert "D405" not in {
        pipeline_check.code for pipeline_check in doctor_checks.pipeline_checks(a.ledger, "A", (), a.ledger.address)
    }
    assert a.commits(9, 120 + 60).timed_out == ("B",)
    found = {
        pipeline_check.code: pipeline_check.message
        for pipeline_check in doctor_checks.pipeline_checks(a.ledger, "A", (), a.ledger.address)
    }
    assert found["D405"] == '"A" left B out as idle after 0.06 s, and epochs of B are up to 0.04 s apart'


def test_a_writer_that_nobody_declared_counts_from_its_first_epoch_on(tmp_path: Path, store: MemoryStore) -> None:
    free = WriterSet()
    a, c = (Writer(tmp_path, name, store, writers=free) for name in "AC")
    assert a.commits(100, 0).dataset_complete_until == 100
    joined = c.commits(40, 1, 45)
    assert (joined.dataset_complete_until, joined.late_before, joined.late_rows) == (100, 100, 1)
    assert a.commits(120, 2).dataset_complete_until == 100
    assert c.commits(110, 3).dataset_complete_until == 110


def test_a_pipeline_that_speaks_for_itself_alone_in_the_same_table_is_no_writer_of_the_dataset(
    tmp_path: Path, store: MemoryStore
) -> None:
    free, alone = Writer(tmp_path, "A", store, writers=WriterSet()), Writer(tmp_path, "S", store, writers=None)
    alone.commits(5, 0)
    assert free.commits(100, 1).dataset_complete_until == 100
    assert alone.commits(6, 2).writers == ()


def test_writers_know_each_other_by_any_sink_that_they_share(tmp_path: Path, store: MemoryStore) -> None:
    other = MemoryStore("other")
    a, b = Writer(tmp_path, "A", store, other), Writer(tmp_path, "B", other)
    a.commits(100, 0)
    assert b.commits(70, 0).dataset_complete_until == 70
    assert a.commits(130, 1).dataset_complete_until == 70


@pytest.mark.parametrize("point", [Point.INTEND_AFTER, Point.STAGE_AFTER, Point.PREPARE_AFTER, Point.COMMIT_AFTER])
def test_whoever_dies_on_the_way_goes_on_with_what_the_sink_says(
    tmp_path: Path, store: MemoryStore, point: Point
) -> None:
    second = MemoryStore("second")
    a, b = Writer(tmp_path, "A", store, second), Writer(tmp_path, "B", store)
    a.commits(100, 0)
    b.commits(70, 0)
    faults.arm(point, crash)
    with pytest.raises(Crash):
        a.commits(130, 30)
    faults.disarm()
    b.commits(90, 31)
    a.start()
    found = a.commits(130, 30)
    # What stood in a sink was concluded before B went on, and is healed as it was; what did not is polled again.
    assert found.dataset_complete_until == (70 if point is Point.COMMIT_AFTER else 90)
    assert [marker.epoch.time for marker, _ in a.sinks[0].history()] == [m.epoch.time for m, _ in a.sinks[1].history()]


def test_where_peers_cannot_be_read_what_was_known_of_them_stands_and_that_is_told(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = Writer(tmp_path, "A", store), Writer(tmp_path, "B", store)
    a.commits(100, 0)
    b.commits(70, 0)
    assert a.commits(110, 1).dataset_complete_until == 70
    b.commits(90, 2)
    a.peers = lambda name, known: ((), "memory:0: it is away")
    assert a.commits(120, 3).dataset_complete_until == 70
    (told,) = a.events(EventKind.UNPOLLED)
    assert told == "other writers could not be read, their last known times are kept: memory:0: it is away"


def test_a_writer_that_was_cut_back_is_in_its_next_turn_though_no_peer_has_seen_it_go_back(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = Writer(tmp_path, "A", store), Writer(tmp_path, "B", store)
    a.commits(100, 0)
    b.commits(170, 0)
    assert [a.commits(noted, at).dataset_complete_until for noted, at in ((130, 1), (150, 2))] == [130, 150]
    store.restore(1)
    store._mishaps.clear()  # a backup knows nothing of what came after it
    of = rewind.Pipeline("A", tuple(a.sinks), a.ledger, CommandContext("A", ""))
    rewind.cut_back(of, rewind.plan(of, RewindRequest(1)))
    a.start()
    a.number, a.peers = 1, lambda name, known: ((), "memory:0: it is away")
    again = a.commits(110, 3)
    assert (again.dataset_complete_until, again.resets) == (None, 1)  # what B noted stood beside what was cut off
    assert a.events(EventKind.TIME_BACK) == [
        "the position was reset to epoch 1, and readers may have seen epoch 3; turn 1"
    ]
    seen = b.commits(180, 4)
    assert (seen.dataset_complete_until, seen.writers[0]) == (110, WriterProgress("A", 2, 110, 3, resets=1))
    assert a.commits(120, 5).resets == 1
    assert len(a.events(EventKind.TIME_BACK)) == 1


def test_a_server_that_is_away_is_named_and_stops_nobody() -> None:
    away = PostgresSink("postgresql://nobody@127.0.0.1:1/none", table="clicks")
    found, unread = Peers([away, MemorySink()])("A", ("B",))
    assert found == ()
    assert unread.startswith("postgres:clicks: [ONCE-E")
    assert away.pipeline == ""


def test_a_writer_that_is_retired_is_waited_for_no_more_and_does_not_come_back(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = Writer(tmp_path, "A", store), Writer(tmp_path, "B", store)
    a.commits(100, 0)
    b.commits(70, 0)
    a.commits(130, 1)
    gone = operator.retire(b.sinks, b.ledger, "B", Adoption(AdoptionKind.RETIRE_WRITER, reason="shop closed"))
    assert gone.time is not None
    assert (gone.time.complete_until, gone.time.dataset_complete_until, gone.digest.rows) == (END, 100, 0)
    assert a.commits(200, 2).dataset_complete_until == 200
    assert TimeReader("A", MemorySink(store=store)).time_window().held == (WriterProgress("A", 3, 200, 2),)
    b.start()
    with pytest.raises(OnceOnlyError) as refused:
        b.commits(90, 3)
    assert refused.value.code == "E135"
    assert "was retired by epoch 2" in str(refused.value)
    assert "ended for good: by a drain, or onceonly recover retire-writer" in str(refused.value)
    renamed = Writer(tmp_path, "C", store)
    assert renamed.commits(210, 4).dataset_complete_until == 200  # what the printed way on leads to


def test_who_alone_is_retired_has_nothing_left_to_wait_for(tmp_path: Path, store: MemoryStore) -> None:
    a = Writer(tmp_path, "A", store, writers=None)
    a.commits(100, 0)
    gone = operator.retire(a.sinks, a.ledger, "A", Adoption(AdoptionKind.RETIRE_WRITER))
    assert gone.time is not None
    assert (gone.time.complete_until, gone.time.dataset_complete_until) == (END, END)
    assert TimeReader("A", MemorySink(store=store)).time_window().held == ()


def test_a_pipeline_that_notes_no_time_cannot_be_retired(tmp_path: Path, store: MemoryStore) -> None:
    sinks, ledger = [MemorySink(store=store)], SqlLedger(str(tmp_path / "none.db"))
    with pytest.raises(OnceOnlyError, match="records event time, so no reader waits for it"):
        operator.retire(sinks, ledger, "X", Adoption(AdoptionKind.RETIRE_WRITER))


def at(number: int, time: EpochTime) -> Epoch:
    (epoch,) = changed(*epochs(10), time=time)
    return replace(epoch, number=number)


def test_a_position_that_others_have_seen_further_on_is_a_new_turn_and_what_was_concluded_from_it_is_void() -> None:
    seen = (WriterProgress("A", 7, 100, 5), WriterProgress("B", 3, 120, 6))
    peer = TimedMarker("B", 3, EpochTime("integer", 120, 100, 120, writers=seen))
    stands = at(
        4, EpochTime("integer", 60, 60, 60, writers=(WriterProgress("A", 4, 60, 2), WriterProgress("B", 1, 80, 1)))
    )
    known = PreviousTime("A", 5, stands, polled=(peer,))
    batch = offer(cut(40, 50), 4)
    said = event_time.timed(EventTimeConfig("function", "integer", writers=BOTH), known, batch, NO_TIMES)
    assert said.time is not None
    assert (known.turn, said.time.resets) == (1, 1)
    assert said.time.dataset_complete_until == 60
    assert said.happenings[0].kind is EventKind.TIME_BACK
    assert said.happenings[0].reason == "the position was reset to epoch 4, and others have seen epoch 7; turn 1"


def test_a_retired_writer_is_refused_and_told_the_way_on() -> None:
    retired = at(4, EpochTime("integer", END, END, 60))
    refused = event_time.refused(EventTimeConfig("function", "integer"), PreviousTime("A", 5, retired))
    assert refused is not None
    assert refused.code == "E135"
    assert "a new name" in str(dict(refused.details)["next"])


def test_more_writers_than_markers_can_carry_are_refused() -> None:
    vector = tuple(WriterProgress(f"w{number}", 1, 1, 1) for number in range(event_time.MOST_WRITERS + 1))
    peer = TimedMarker("w0", 1, EpochTime("integer", 1, 1, 1, writers=vector))
    refused = event_time.refused(
        EventTimeConfig("function", "integer", writers=WriterSet()), PreviousTime("A", 1, None, polled=(peer,))
    )
    assert refused is not None
    assert refused.code == "E136"


# ---- what may be said


@pytest.mark.parametrize(
    ("said", "code", "problem"),
    [
        ({"writers": "web"}, "E110", "names of pipelines"),
        ({"writers": ("web", "")}, "E110", "names of pipelines"),
        ({"writers": ("web", "app", "web")}, "E135", '"web" twice'),
        ({"writers": tuple(map(str, range(257)))}, "E136", "257 writers"),
        ({"timeout": "soon"}, "E110", "10 minutes"),
        ({"timeout": "0s"}, "E110", "longer than nothing"),
    ],
)
def test_a_dataset_that_cannot_be_is_refused_when_it_is_said(said: dict[str, object], code: str, problem: str) -> None:
    with pytest.raises(OnceOnlyError) as refused:
        Writers("ingest", **said)
    assert refused.value.code == code
    assert problem in str(refused.value)


def test_a_pipeline_that_its_dataset_does_not_name_is_refused_and_the_printed_names_are_taken() -> None:
    plan = QueryPlan(stateful=False, nondeterministic=None, sources=())
    run = Run("run", "query", "shop", "file:/ck", None, False, "session", plan, None, None, None)  # type: ignore[arg-type]

    def given(writers: Sequence[str]) -> EventTimeArgument:
        return check_event_time(Writers("ingest", writers=writers))

    with pytest.raises(OnceOnlyError) as refused:
        given(("web", "app")).check_run(run, "shop")
    assert refused.value.code == "E135"
    assert 'Writers(writers=) does not name "shop", the pipeline that it was given to' in str(refused.value)
    told = re.search(r"writers=(\(.*?\))", refused.value.remedy)
    assert told is not None
    given(ast.literal_eval(told[1])).check_run(run, "shop")
    given(()).check_run(run, "shop")


def test_writers_of_a_topic_alone_must_be_named_since_a_topic_shows_nobody() -> None:
    topic = KafkaSink("127.0.0.1:1", "clicks")
    with pytest.raises(OnceOnlyError) as refused:
        exactly_once(topic, event_time=Writers("ingest"))
    assert refused.value.code == "E135"
    assert "kafka:clicks does not show who writes there" in str(refused.value)
    assert 'Writers(..., writers=("web", "app"))' in refused.value.remedy
    assert exactly_once(topic, event_time=Writers("ingest", writers=("web", "app")))
    assert exactly_once(topic, MemorySink(), event_time=Writers("ingest"))
    assert exactly_once(topic, event_time="ingest")


def test_a_dataset_of_a_dataset_is_refused() -> None:
    with pytest.raises(OnceOnlyError, match=r"E110. Writers\(event_time=\) was given a Writers"):
        Writers(Writers("ingest"))  # type: ignore[arg-type]


def test_the_promise_says_whom_a_dataset_waits_for() -> None:
    wrapped = exactly_once(
        MemorySink(), event_time=Writers(EventTime("at", max_delay="0s"), writers=("A", "B"), timeout="1 hour")
    )
    said = "of the dataset the least that its writers noted, among them A, B; one that is silent for 1 hour is left out"
    assert said in wrapped.explain()


def test_what_is_joined_of_many_polls_is_what_was_said_last() -> None:
    older, newer = (TimedMarker("B", n, EpochTime("integer", n, n, n)) for n in (1, 2))
    assert writer_progress.joined(older.observed, newer.observed) == newer.observed
