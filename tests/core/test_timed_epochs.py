"""Time is committed with the rows: whatever is killed, no sink shows one without the other, and nothing goes back."""

from __future__ import annotations

import hashlib
import random
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.core.several import CRASHES, Crash, Pipeline, crash, offered
from tests.core.stories import epochs, marked

from onceonly import faults
from onceonly.errors import OnceOnlyError
from onceonly.event_time import TimedEpoch
from onceonly.faults import Point
from onceonly.machine import coordinator, in_doubt
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.rewind import RewindRequest
from onceonly.machine.state import Job, State
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.row_times import NoEventTime
from onceonly.replay import publication, rewind
from onceonly.runtime import operator, shared_transaction
from onceonly.runtime.remedies import CommandContext
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly.runtime.time_callback import TimeCallback
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, ReplayedEpochs
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_sinks.memory import MemorySink

ROWS = EventTimeConfig("rows", "integer", "id", 3)
FUNCTION = EventTimeConfig("function", "integer", "id")


class Query:
    """Starts of one query that notes time; ids of epoch n are its ten numbers from 10 (n - 1) on."""

    def __init__(
        self, pipeline: Pipeline, noting: EventTimeConfig | None = ROWS, says: TimeCallback | None = None
    ) -> None:
        self.pipeline, self.noting, self.says = pipeline, noting, says
        self.sinks = pipeline.sinks()
        staging = StagedEpochs(pipeline.staging, "orders", self.sinks)
        self.runner = Runner(self.sinks, pipeline.ledger, staging=staging, says=says)
        self.state: State | None = None

    def writes(self, *numbers: int, table: pa.Table | None = None) -> Epoch:
        for number in numbers:
            if self.state is None:
                ids, owner = tuple(sink.id for sink in self.sinks), secrets.token_hex(4)
                said: dict[str, Any] = {
                    "transaction_groups": shared_transaction.transaction_groups(self.sinks),
                    "noting": self.noting,
                }
                state = coordinator.start(Job("orders", ids, owner, offered(number), **said))
            else:
                state = coordinator.resume(self.state, offered(number))
            self.state = self.runner.run(state, ArrowBatch(ids_of(number) if table is None else table))
        assert self.state is not None
        return self.state.current


def ids_of(number: int) -> pa.Table:
    return pa.table({"id": range((number - 1) * 10, number * 10)})


def of_ids(*ids: int | None) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def noted(number: int) -> EpochTime:
    """What an epoch of the rows of ``ids_of`` says, of which nobody comes late."""
    low, high = (number - 1) * 10, number * 10 - 1
    horizon = low - 4 if number > 1 else None
    return EpochTime(
        "integer",
        high - 3,
        high - 3,
        high,
        earliest=low,
        latest=high,
        late_before=horizon,
        batch_timestamp_ms=1000 + number - 1,
        column="id",
    )


def held(pipeline: Pipeline) -> Iterator[tuple[str, list[Epoch], list[int]]]:
    """What each sink shows to anybody: its epochs, and the ids of its rows."""
    for sink in pipeline.sinks_open():
        yield sink.id, [marker.epoch for marker, _ in sink.history()], sorted(row["id"] for row in sink.rows())


def together_in_each_sink(pipeline: Pipeline) -> None:
    """Whatever a sink says is complete is there, and it says so of all that is there."""
    for sink, shown, ids in held(pipeline):
        last = shown[-1].time if shown else None
        assert len(ids) == 10 * len(shown), sink
        assert (last.latest if last else None) == (max(ids) if ids else None), sink
        assert all(chainable.time == noted(chainable.number) for chainable in shown), sink


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, names=("a",))
    yield made
    made.ledger.close()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path)
    yield made
    made.ledger.close()


# ---- the form


def test_an_epoch_of_which_nobody_noted_time_has_the_text_and_the_chain_that_it_always_had() -> None:
    (epoch,) = epochs(10)
    assert epoch.time is None
    assert "time" not in epoch.to_json()
    assert epoch.chain == "932ff49f48cd995272e25ae99b9a2ad03381f036d298c6899d66fa1141cea2e9"
    text = hashlib.sha256(marked(epoch).text.encode()).hexdigest()
    assert text == "eafd2064186cb03ff2de44f6d6610de8b40e8333a168e3754a06328602bb7bdc"


def test_what_an_epoch_says_of_time_comes_back_and_is_under_the_chain(one: Pipeline) -> None:
    epoch = Query(one).writes(1)
    assert epoch.time == noted(1)
    assert Epoch.from_json(epoch.to_json()) == epoch
    other = replace(epoch, time=replace(noted(1), complete_until=7))
    assert chain.sound(epoch)
    assert not chain.sound(other)


# ---- killed


@pytest.mark.parametrize(("point", "hit"), CRASHES)
def test_a_crash_anywhere_leaves_rows_and_time_together_and_the_next_start_heals_both(
    three: Pipeline, point: Point, hit: int
) -> None:
    query = Query(three)
    query.writes(1)
    faults.arm(point, crash, hit)
    with pytest.raises(Crash):
        query.writes(2)
    faults.disarm()
    together_in_each_sink(three)
    Query(three).writes(2, 3)
    together_in_each_sink(three)
    assert [len(shown) for _, shown, _ in held(three)] == [3, 3, 3]


@pytest.mark.parametrize(
    "point", [Point.PREPARE_BEFORE, Point.PREPARE_AFTER, Point.COMMIT_BEFORE, Point.COMMIT_SENT, Point.COMMIT_AFTER]
)
def test_a_crash_of_a_query_with_one_sink_leaves_rows_and_time_together(one: Pipeline, point: Point) -> None:
    query = Query(one)
    query.writes(1)
    faults.arm(point, crash)
    with pytest.raises(Crash):
        query.writes(2)
    faults.disarm()
    together_in_each_sink(one)
    Query(one).writes(2, 3)
    together_in_each_sink(one)


def test_a_sink_that_was_behind_gets_what_the_others_say_and_nobody_is_asked_again(three: Pipeline) -> None:
    words = iter(range(100, 200))
    asked: list[int] = []

    def says(epoch: TimedEpoch) -> int:
        asked.append(epoch.number)
        return next(words)

    query = Query(three, FUNCTION, says)
    query.writes(1)
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        query.writes(2)
    faults.disarm()
    Query(three, FUNCTION, says).writes(2)
    assert asked == [1, 2]
    assert [[one.time.complete_until for one in shown if one.time] for _, shown, _ in held(three)] == [[100, 101]] * 3


def test_bytes_that_are_gone_are_computed_again_and_what_was_said_of_time_stands(three: Pipeline) -> None:
    words = iter(range(100, 200))
    query = Query(three, FUNCTION, lambda _: next(words))
    query.writes(1)
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        query.writes(2)
    faults.disarm()
    shutil.rmtree(three.staging)
    Query(three, FUNCTION, lambda _: next(words)).writes(2)
    assert [[one.time.complete_until for one in shown if one.time] for _, shown, _ in held(three)] == [[100, 101]] * 3


def test_the_engines_clock_is_noted_as_it_was_recorded_however_late_the_replay_comes(one: Pipeline) -> None:
    query = Query(one, EventTimeConfig("ingest"))
    faults.arm(Point.COMMIT_BEFORE, crash)
    with pytest.raises(Crash):
        query.writes(1)
    faults.disarm()
    # 75 seconds or a year later: the machine has no clock, and the offer is the recorded one.
    assert Query(one, EventTimeConfig("ingest")).writes(1).time == EpochTime(
        "ms", 1000, 1000, 1000, batch_timestamp_ms=1000
    )


def test_a_replay_that_is_skipped_says_nothing_new(one: Pipeline) -> None:
    asked: list[int] = []

    def says(epoch: TimedEpoch) -> int:
        asked.append(epoch.number)
        return epoch.number

    first = Query(one, FUNCTION, says).writes(1)
    assert Query(one, FUNCTION, says).writes(1) == first
    Query(one, FUNCTION, says).writes(2)
    assert asked == [1, 2]


SEED = random.SystemRandom().randrange(1_000_000_000)


@pytest.mark.parametrize("wanted", [30, pytest.param(200, marks=pytest.mark.lab)])
def test_over_many_crashes_time_never_goes_back(three: Pipeline, wanted: int) -> None:
    print(f"seed {SEED}")
    draw, lowest, number, crashes = random.Random(SEED), -1, 1, 0
    while crashes < wanted:
        query = Query(three)
        try:
            while True:
                if draw.random() < 0.8:
                    point, hit = draw.choice(CRASHES)
                    faults.arm(point, crash, hit)
                query.writes(number)
                number += 1
                faults.disarm()
        except Crash:
            crashes += 1
        finally:
            faults.disarm()
        together_in_each_sink(three)
        seen = max(
            (shown[-1].time.dataset_complete_until for _, shown, _ in held(three) if shown and shown[-1].time),
            default=-1,
        )
        assert seen is not None
        assert seen >= lowest
        lowest = seen
    Query(three).writes(number)
    together_in_each_sink(three)
    assert {shown[-1].time for _, shown, _ in held(three)} == {noted(number)}
    print(f"{crashes} crashes in {number} epochs")


# ---- restarts, ledgers, operators


def test_a_restart_and_a_lost_ledger_go_on_from_what_the_sink_says(one: Pipeline, tmp_path: Path) -> None:
    Query(one).writes(1, 2)
    one.ledger.close()
    one.ledger = SqlLedger(str(tmp_path / "another.db"))
    assert Query(one).writes(3).time == noted(3)
    recorded = [record.epoch.time for record in one.ledger.epochs("orders")]
    assert recorded == [noted(1), noted(2), noted(3)]


def test_a_query_that_notes_time_no_more_carries_what_stands_and_one_that_does_again_goes_on(one: Pipeline) -> None:
    Query(one).writes(1)
    carried = Query(one, None).writes(2).time
    assert carried == EpochTime("integer", 6, 6, 9, batch_timestamp_ms=1000)
    assert Query(one).writes(3).time == replace(noted(3), late_before=6)


def test_a_pipeline_that_never_noted_time_begins_to_with_any_epoch(one: Pipeline) -> None:
    assert Query(one, None).writes(1).time is None
    begun = Query(one).writes(2).time
    assert begun is not None
    assert (begun.complete_until, begun.late_before, begun.late_rows) == (16, None, 0)


def test_another_unit_is_refused_before_anything_is_written_and_the_former_one_goes_on(one: Pipeline) -> None:
    Query(one).writes(1)
    with pytest.raises(OnceOnlyError) as refused:
        Query(one, EventTimeConfig("ingest")).writes(2)
    assert refused.value.code == "E134"
    assert 'count in "integer" there as well' in refused.value.remedy
    assert [len(shown) for _, shown, _ in held(one)] == [1]
    assert Query(one).writes(2).time == noted(2)


def test_no_command_of_an_operator_puts_time_back_and_one_that_gives_up_rows_begins_the_next_turn(
    one: Pipeline,
) -> None:
    Query(one).writes(1, 2, 3)
    one.stores["a"].restore(1)
    with pytest.raises(OnceOnlyError) as refused:
        Query(one).writes(4)
    assert refused.value.code == "E207"
    gone = Adoption(AdoptionKind.ACCEPT_LOSS, sinks=("memory:a",), first=2, last=3)
    adopted = operator.adopt(one.sinks(), one.ledger, "orders", gone)
    assert adopted is not None
    # Its number was another epoch's: a reader that remembers that one takes this for the newer one by its turn.
    assert (adopted.number, adopted.time) == (2, EpochTime("integer", 26, 26, 29, batch_timestamp_ms=1002, resets=1))
    after = Query(one).writes(4).time
    assert after is not None
    assert (after.complete_until, after.resets, after.late_before) == (36, 1, 26)
    said = "epochs 2 to 3 are gone and will be numbered again: conclusions of other writers are void; turn 1"
    assert one.events(EventKind.TIME_BACK) == [said]


def cut_back(pipeline: Pipeline, to: int) -> None:
    """Put the sink back to an epoch, and have the pipeline cut back to it, as ``recover rewind`` does."""
    pipeline.stores["a"].restore(to)
    pipeline.stores["a"]._mishaps.clear()  # a backup knows nothing of what came after it
    sinks = tuple(pipeline.sinks())
    of = rewind.Pipeline("orders", sinks, pipeline.ledger, CommandContext("orders", ""))
    rewind.cut_back(of, rewind.plan(of, RewindRequest(to)))


BACK = "the position was reset to epoch 1, and readers may have seen epoch 3; turn 1"


def test_a_rewind_begins_the_next_turn_with_the_first_epoch_behind_it_and_says_so_once(one: Pipeline) -> None:
    Query(one).writes(1, 2, 3)
    cut_back(one, 1)
    query = Query(one)
    again, later = query.writes(2), query.writes(3)
    assert again.time == replace(noted(2), resets=1)
    assert later.time == replace(noted(3), resets=1)
    assert one.events(EventKind.TIME_BACK) == [BACK]
    assert Query(one).writes(4).time == replace(noted(4), resets=1)
    assert one.events(EventKind.TIME_BACK) == [BACK]


def test_every_rewind_is_a_turn_of_its_own_also_back_to_where_one_went_before(one: Pipeline) -> None:
    Query(one).writes(1, 2, 3)
    for turn in (1, 2):
        cut_back(one, 1)
        times = [Query(one).writes(number).time for number in (2, 3)]
        assert times == [replace(noted(number), resets=turn) for number in (2, 3)]
    cut_back(one, 2)
    assert Query(one).writes(3).time == replace(noted(3), resets=3)
    assert [said.rpartition(" ")[2] for said in one.events(EventKind.TIME_BACK)] == ["1", "2", "3"]


def test_a_rewind_whose_ledger_was_set_back_as_well_begins_the_next_turn(one: Pipeline, tmp_path: Path) -> None:
    Query(one).writes(1)
    one.ledger.close()
    shutil.copy(tmp_path / "ledger.db", tmp_path / "copy.db")
    Query(one).writes(2, 3)
    one.ledger.close()
    one.ledger = SqlLedger(str(tmp_path / "copy.db"))
    cut_back(one, 1)
    query = Query(one)
    assert [query.writes(number).time for number in (2, 3)] == [replace(noted(number), resets=1) for number in (2, 3)]
    assert one.events(EventKind.TIME_BACK) == ["the position was reset to epoch 1; turn 1"]


def test_a_rewind_begins_the_next_turn_whatever_was_noted_in_between(one: Pipeline, tmp_path: Path) -> None:
    Query(one).writes(1)
    cut_back(one, 1)
    for _ in range(in_doubt.WINDOW + 1):
        one.ledger.note(Event("orders", EventKind.FAILED, "E501: no answer"))
    assert Query(one).writes(2).time == replace(noted(2), resets=1)
    assert one.events(EventKind.TIME_BACK) == ["the position was reset to epoch 1; turn 1"]


def test_a_rewind_to_below_all_that_the_ledger_still_knows_begins_the_next_turn(one: Pipeline) -> None:
    Query(one).writes(1, 2, 3)
    one.ledger.prune("orders", 3)
    cut_back(one, 1)
    assert one.ledger.head("orders") is None
    assert Query(one).writes(2).time == replace(noted(2), resets=1)
    assert one.events(EventKind.TIME_BACK) == [BACK]


@pytest.mark.parametrize("point", [Point.INTEND_AFTER, Point.PREPARE_BEFORE, Point.COMMIT_BEFORE, Point.COMMIT_AFTER])
def test_a_driver_that_dies_behind_a_rewind_leaves_one_turn_and_one_line(one: Pipeline, point: Point) -> None:
    Query(one).writes(1, 2, 3)
    cut_back(one, 1)
    faults.arm(point, crash)
    with pytest.raises(Crash):
        Query(one).writes(2)
    faults.disarm()
    assert [Query(one).writes(number).time for number in (2, 3)] == [
        replace(noted(number), resets=1) for number in (2, 3)
    ]
    assert one.events(EventKind.TIME_BACK) == [BACK]


def test_an_operators_epoch_behind_a_rewind_begins_the_turn(one: Pipeline) -> None:
    Query(one).writes(1, 2)
    cut_back(one, 1)
    decided = Adoption(AdoptionKind.START, reason="said so")
    adopted = operator.adopt(one.sinks(), one.ledger, "orders", decided, start=offered(2).slice.start)
    assert adopted is not None
    assert adopted.time == EpochTime("integer", 6, 6, 9, batch_timestamp_ms=1000, resets=1)
    assert one.events(EventKind.TIME_BACK) == [BACK.replace("epoch 3", "epoch 2")]
    assert Query(one).writes(2).time == replace(noted(2), resets=1)
    assert len(one.events(EventKind.TIME_BACK)) == 1


def rerun_of(pipeline: Pipeline, *ran: Epoch) -> MemorySink:
    """A sink in which a rerun of these epochs has written what they brought."""
    sink, fence, before = MemorySink("memory:again"), Fence(1, "rerun"), chain.GENESIS
    sink.open("orders~v2")
    sink.install(fence)
    for was in ran:
        batch = ArrowBatch(ids_of(was.number))
        prepared = sink.prepare(batch, was.number)
        replays = ReplayedEpochs("orders", was.number, was.number, was.chain)
        listed = {"sinks": ((sink.id, 1),), "previous_chain": before, "digest": batch.digest(), "time": None}
        epoch = chain.linked(replace(was, lineage=None, replays=replays, **listed))
        sink.commit(prepared, Marker("orders~v2", sink.id, fence, epoch))
        before = epoch.chain
    return sink


def publish(pipeline: Pipeline, rerun: MemorySink) -> Epoch:
    [sink] = pipeline.sinks()
    of = publication.Publication("orders", sink, "orders~v2", rerun, pipeline.ledger)
    return publication.swap(of, publication.plan(of), ArrowBatch(pa.Table.from_pylist(rerun.rows())))


def test_a_rerun_that_is_published_behind_a_rewind_begins_the_turn(one: Pipeline) -> None:
    Query(one).writes(1, 2)
    cut_back(one, 1)
    [first] = [record.epoch for record in one.ledger.epochs("orders")]
    published = publish(one, rerun_of(one, first))
    assert (published.number, published.time) == (2, EpochTime("integer", 6, 6, 9, batch_timestamp_ms=1000, resets=1))
    assert one.events(EventKind.TIME_BACK) == [BACK.replace("epoch 3", "epoch 2")]
    assert Query(one).writes(2).time == replace(noted(2), resets=1)
    assert len(one.events(EventKind.TIME_BACK)) == 1


def test_a_rerun_that_is_published_where_nothing_was_cut_off_carries_time_and_turn(one: Pipeline) -> None:
    Query(one).writes(1)
    [first] = [record.epoch for record in one.ledger.epochs("orders")]
    assert publish(one, rerun_of(one, first)).time == EpochTime("integer", 6, 6, 9, batch_timestamp_ms=1000)
    assert one.events(EventKind.TIME_BACK) == []


def test_time_that_nobody_notes_any_more_is_carried_into_the_next_turn_behind_a_rewind(one: Pipeline) -> None:
    Query(one).writes(1, 2, 3)
    cut_back(one, 1)
    query = Query(one, None)
    carried = [query.writes(number).time for number in (2, 3)]
    assert carried == [EpochTime("integer", 6, 6, 9, batch_timestamp_ms=1000, resets=1)] * 2
    assert one.events(EventKind.TIME_BACK) == [BACK]


def test_a_rewind_of_a_pipeline_that_never_noted_time_says_nothing_of_it(one: Pipeline) -> None:
    Query(one, None).writes(1, 2)
    cut_back(one, 1)
    assert Query(one, None).writes(2).time is None
    assert one.events(EventKind.TIME_BACK) == []


def test_a_decision_that_cuts_nothing_off_carries_time_and_turn(one: Pipeline) -> None:
    Query(one).writes(1)
    decided = Adoption(AdoptionKind.START, reason="said so")
    adopted = operator.adopt(one.sinks(), one.ledger, "orders", decided, start=offered(5).slice.start)
    assert adopted is not None
    assert adopted.time == EpochTime("integer", 6, 6, 9, batch_timestamp_ms=1000)
    assert one.events(EventKind.TIME_BACK) == []


# ---- rows


def test_rows_before_the_horizon_are_written_counted_and_named(one: Pipeline) -> None:
    query = Query(one)
    query.writes(1)
    time = query.writes(2, table=of_ids(4, 5, 6, None, 20)).time
    said = EpochTime(
        "integer",
        17,
        17,
        20,
        earliest=4,
        latest=20,
        late_before=6,
        late_rows=2,
        rows_without_time=1,
        batch_timestamp_ms=1001,
        column="id",
    )
    assert time == said
    assert one.events(EventKind.BEHIND) == [
        "2 rows came late: all before 6 was recorded as complete; the earliest is of 4"
    ]


def test_a_window_is_complete_only_once_it_was_said_whatever_the_rows_are(one: Pipeline) -> None:
    words = iter([None, 9])
    query = Query(one, FUNCTION, lambda _: next(words))
    first = query.writes(1, table=of_ids(1, 2, 3, 4, 5, 6, 8, 7)).time
    assert first is not None
    assert (first.dataset_complete_until, first.max_time) == (None, 8)
    second = query.writes(2, table=of_ids()).time
    assert second is not None
    assert (second.dataset_complete_until, second.max_time) == (9, 8)
    (ids,) = (ids for _, _, ids in held(one))
    assert len([id_ for id_ in ids if 0 <= id_ < 8]) == 7


# ---- the user's function


def test_a_function_is_told_of_the_epoch_after_its_action_and_of_what_was_noted_before(one: Pipeline) -> None:
    told: list[TimedEpoch] = []

    def says(epoch: TimedEpoch) -> int:
        told.append(epoch)
        return 5

    query = Query(one, FUNCTION, says)
    query.writes(1, 2)
    assert told == [
        TimedEpoch(1, offered(1).slice, 10, 0, 9, 1000, None, offered(1).sources),
        TimedEpoch(2, offered(2).slice, 10, 10, 19, 1001, 5, offered(2).sources),
    ]


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (1.5, "gave 1.5"),
        (True, "gave True"),
        ("noon", "gave 'noon'"),
        (2**63, f"gave {2**63}"),
        (datetime(2026, 1, 1), "gave datetime.datetime"),
    ],
)
def test_what_is_no_time_is_refused_before_anything_is_written(one: Pipeline, answer: object, what: str) -> None:
    with pytest.raises(OnceOnlyError) as refused:
        Query(one, EventTimeConfig("function"), lambda _: answer).writes(1)
    assert refused.value.code == "E133"
    assert what in refused.value.what
    assert [shown for _, shown, _ in held(one)] == [[]]
    assert Query(one, EventTimeConfig("function"), lambda _: None).writes(1).number == 1


def test_a_function_that_fails_stops_the_query_with_what_it_raised(one: Pipeline) -> None:
    def says(epoch: TimedEpoch) -> int:
        return {}["bucket"]

    with pytest.raises(OnceOnlyError) as refused:
        Query(one, EventTimeConfig("function"), says).writes(1)
    assert refused.value.code == "E133"
    assert "raised KeyError: 'bucket'" in refused.value.what


@pytest.mark.parametrize(
    ("moment", "milliseconds"),
    [
        (datetime(2026, 1, 1, 13, 0, 0, 1500, tzinfo=timezone(timedelta(hours=1))), 1767268800001),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc), -1),
    ],
)
def test_a_moment_with_a_zone_is_taken_by_floor(one: Pipeline, moment: datetime, milliseconds: int) -> None:
    time = Query(one, EventTimeConfig("function"), lambda _: moment).writes(1).time
    assert time is not None
    assert time.complete_until == milliseconds


def test_an_upstream_that_could_not_be_read_leaves_what_was_noted_and_an_event_says_why(one: Pipeline) -> None:
    words = iter([3, NoEventTime("delta:clicks could not be read: it is gone"), 6])
    query = Query(one, EventTimeConfig("upstream", "integer"), lambda _: next(words))
    assert [query.writes(number).time.complete_until for number in range(1, 4)] == [3, 3, 6]  # type: ignore[union-attr]
    said = [(event.epoch, event.reason) for event in one.ledger.events("orders") if event.kind is EventKind.UNPOLLED]
    assert said == [(2, "the recorded time is kept: delta:clicks could not be read: it is gone")]


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one sink", "several"])
def test_a_row_of_the_far_future_stops_its_epoch_before_anything_is_written(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    """The batches are planned a second after 1970, and a row may be ten milliseconds ahead."""
    pipeline = Pipeline(tmp_path, names=names)
    ahead = EventTimeConfig("rows", "ms", "at", 0, ahead=10)

    def at(*milliseconds: int) -> pa.Table:
        return pa.table({"id": range(10), "at": pa.array([*milliseconds] + [0] * 9, pa.timestamp("ms", "UTC"))})

    Query(pipeline, ahead).writes(1, table=at(1010))
    with pytest.raises(OnceOnlyError, match="ONCE-E530") as refused:
        Query(pipeline, ahead).writes(2, table=at(1012))
    assert "is of 1970-01-01T00:00:01.012Z, more than 0:00:00.010000 after its batch was planned" in str(refused.value)
    assert [len(shown) for _, shown, _ in held(pipeline)] == [1] * len(names)
    assert Query(pipeline, ahead).writes(2, table=at(1011)).number == 2
    pipeline.ledger.close()
