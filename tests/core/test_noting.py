"""What an epoch says of time: what was noted never goes back, by whose word it is noted, and what is late."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.core.stories import changed, cut, epochs, lineage, offer

from onceonly.machine import event_time
from onceonly.machine.event_time import EventTimeConfig, PreviousTime, timed
from onceonly.machine.facts import Offer
from onceonly.machine.writer_progress import RewoundPosition
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, EpochTime
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import Slice, SourceIdentity

FUNCTION = EventTimeConfig("function")
INTEGERS = EventTimeConfig("rows", "integer", "n", 0)
ROWS = EventTimeConfig("rows", "ms", "at", 2)
INGEST = EventTimeConfig("ingest")
WATERMARK = EventTimeConfig("watermark")


def batch(number: int, *, clock: int = 0, watermark: int = 0, stateful: bool = False) -> Offer:
    made = replace(lineage(number - 1, clock=clock), watermark_ms=watermark)
    return replace(offer(cut((number - 1) * 10, number * 10), number - 1, stateful=stateful), lineage=made)


def with_time(time: EpochTime | None) -> Epoch:
    (epoch,) = changed(*epochs(10), time=time)
    return epoch


def after(last: Epoch) -> PreviousTime:
    return PreviousTime("orders", last.number + 1, last)


class Told:
    """Epochs of one pipeline, one after the other, as far as they say something of time."""

    def __init__(self) -> None:
        self.last: Epoch | None = None
        self.happened: list[tuple[EventKind, str]] = []

    def tells(
        self, how: EventTimeConfig | None, times: RowTimes | None = None, *, begins: bool = False, **of: int
    ) -> EpochTime:
        number = self.last.number + 1 if self.last else 1
        stateful, still = bool(of.pop("stateful", 0)), bool(of.pop("still", 0))
        known = PreviousTime("orders", number, self.last, begins)
        offered = batch(number, stateful=stateful, **of)
        offered = replace(offered, slice=Slice(offered.slice.end, offered.slice.end)) if still else offered
        found = timed(how, known, offered, times)
        self.last = replace(with_time(found.time), number=number)
        self.happened += [(one.kind, one.reason) for one in (*found.happenings, *event_time.late(self.last))]
        assert found.time is not None
        return found.time

    def says(self, *words: int | None) -> list[int | None]:
        return [self.tells(FUNCTION, RowTimes(callback_time=word)).complete_until for word in words]


def test_what_is_noted_never_goes_back_and_the_lesser_word_is_told() -> None:
    told = Told()
    assert told.says(10, 20, 15) == [10, 20, 20]
    said = "1970-01-01T00:00:00.015Z was given, but all before 1970-01-01T00:00:00.020Z is recorded already"
    assert told.happened == [(EventKind.TIME_HELD, said)]


def test_nothing_is_noted_before_the_first_word_and_no_word_leaves_what_stands() -> None:
    assert Told().says(None, 7, None, 9, None) == [None, 7, 7, 9, 9]


def test_what_one_writer_notes_is_what_the_dataset_is_complete_through() -> None:
    told = Told()
    for word in (5, 3, None, 9):
        time = told.tells(FUNCTION, RowTimes(callback_time=word))
        assert (time.dataset_complete_until, time.max_time) == (time.complete_until, time.complete_until)


def test_rows_at_5_and_9_planned_at_100_note_7_by_a_delay_100_by_ingest_and_the_watermark_by_its_own() -> None:
    times = RowTimes(first=5, last=9)
    assert Told().tells(ROWS, times, clock=100).complete_until == 7
    assert Told().tells(INGEST, clock=100).complete_until == 100
    assert Told().tells(WATERMARK, clock=100, watermark=4).complete_until == 4


def test_what_several_writers_had_completed_stands_where_one_of_them_goes_on_alone() -> None:
    told = Told()
    told.last = with_time(EpochTime("ms", 10, 20, 30))
    assert (
        told.tells(FUNCTION, RowTimes(callback_time=15)).dataset_complete_until,
        told.tells(FUNCTION, RowTimes(callback_time=25)).dataset_complete_until,
    ) == (20, 25)


def test_rows_are_late_behind_whatever_was_told_of_the_writer_or_of_the_dataset() -> None:
    told = {(20, 10): 20, (10, 20): 20, (None, 10): 10, (20, None): 20, (None, None): None}
    found = {said: event_time.horizon(after(with_time(EpochTime("ms", *said, 30)))) for said in told}
    assert found == told
    assert event_time.horizon(PreviousTime("orders", 1, None)) is None


def test_a_rewind_takes_back_nothing_where_nothing_was_said_of_time() -> None:
    said, unsaid = with_time(EpochTime("ms", 10, 10, 30)), with_time(None)
    cut = RewoundPosition(1, ())
    assert [PreviousTime("orders", 2, last, cut=cut).turn for last in (said, unsaid, None)] == [1, 0, 0]
    assert [PreviousTime("orders", 2, last, cut=RewoundPosition(7, ())).turn for last in (said, unsaid)] == [0, 0]


def test_a_watermark_of_0_is_none_and_one_of_a_plan_with_state_closes() -> None:
    told = Told()
    assert told.tells(WATERMARK, watermark=0, stateful=1).complete_until is None
    assert told.tells(WATERMARK, watermark=4, stateful=1).closed_until == 4
    assert Told().tells(WATERMARK, watermark=4).closed_until is None


def test_a_row_of_the_horizon_is_not_late_and_silence_leaves_time_where_it_stands() -> None:
    told = Told()
    told.tells(INTEGERS, RowTimes(5, 5))
    again = told.tells(INTEGERS, RowTimes(5, 5))
    assert (again.late_before, again.late_rows, again.complete_until) == (5, 0, 5)
    assert told.tells(INTEGERS, RowTimes()).complete_until == 5
    assert told.tells(INTEGERS, RowTimes(9, 9)).complete_until == 9


def test_an_epoch_whose_rows_are_all_early_says_nothing_of_it_where_that_is_the_ordinary_case() -> None:
    told = Told()
    told.tells(ROWS, RowTimes(first=100, last=100))
    early = told.tells(ROWS, RowTimes(first=50, last=60, late=2))
    assert (early.complete_until, early.max_time, early.late_before, early.late_rows) == (98, 100, 98, 2)
    assert [kind for kind, _ in told.happened] == [EventKind.BEHIND]


def test_late_rows_are_named_with_the_horizon_and_by_how_much_the_earliest_missed_it() -> None:
    told = Told()
    told.tells(replace(ROWS, delay=0), RowTimes(last=1767269160000))
    told.tells(replace(ROWS, delay=0), RowTimes(1767268885000, 1767268885000, late=1))
    ((kind, said),) = told.happened
    assert kind is EventKind.BEHIND
    assert said == (
        "1 row came late: all before 2026-01-01T12:06:00Z was recorded as complete; the earliest is of "
        "2026-01-01T12:01:25Z, 0:04:35 before that"
    )


def test_heights_of_blocks_are_numbers_and_a_delay_of_1_notes_all_but_the_last_two() -> None:
    assert Told().tells(replace(INTEGERS, delay=1), RowTimes(100, 103)).complete_until == 102


def test_numbers_of_another_unit_do_not_go_on_from_those_that_stand() -> None:
    stands = with_time(EpochTime("integer", 102, 102, 103))
    refused = event_time.refused(ROWS, after(stands))
    assert refused is not None
    assert refused.code == "E134"
    said = {"writer": 'Pipeline "orders"', "unit": "ms", "other": "its epochs up to 1", "theirs": "integer"}
    assert dict(refused.details) == said
    assert event_time.refused(INTEGERS, after(stands)) is None
    assert event_time.refused(ROWS, after(with_time(None))) is None
    assert event_time.refused(None, after(stands)) is None


def test_where_nobody_notes_time_any_more_what_stands_is_carried_and_its_rows_are_asked_nothing() -> None:
    told = Told()
    noted = told.tells(ROWS, RowTimes(first=5, last=9, late=1, untimed=2))
    stands = replace(noted, earliest=None, latest=None, late_before=None, late_rows=0, rows_without_time=0, column=None)
    assert told.tells(None, clock=900) == stands
    assert timed(None, PreviousTime("orders", 1, None), batch(1), None).time is None


def test_a_new_series_begins_time_anew_under_the_next_turn_and_says_that_it_went_back() -> None:
    told = Told()
    told.says(20)
    begun = told.tells(FUNCTION, RowTimes(callback_time=3), begins=True)
    assert (begun.complete_until, begun.dataset_complete_until, begun.max_time, begun.late_before, begun.resets) == (
        3,
        3,
        3,
        None,
        1,
    )
    ((kind, said),) = told.happened
    assert kind is EventKind.TIME_BACK
    assert "1970-01-01T00:00:00.020Z" in said
    assert told.says(2) == [3]


def test_a_new_series_in_which_nobody_notes_time_says_no_more_that_removed_rows_are_there() -> None:
    told = Told()
    told.says(20)
    begun = told.tells(None, begins=True, clock=77)
    assert begun == EpochTime("ms", None, None, None, batch_timestamp_ms=77, resets=1)


def test_a_series_may_begin_in_another_unit() -> None:
    told = Told()
    told.says(20)
    assert told.tells(INTEGERS, RowTimes(1, 2), begins=True).unit == "integer"


def test_the_clock_of_the_engine_may_go_back_and_what_was_noted_by_it_does_not() -> None:
    told = Told()
    told.tells(INGEST, clock=2000)
    back = told.tells(INGEST, clock=1500)
    assert (back.complete_until, back.batch_timestamp_ms) == (2000, 1500)
    assert [kind for kind, _ in told.happened] == [EventKind.TIME_HELD]


def test_a_delay_that_reaches_below_all_numbers_ends_at_the_least() -> None:
    assert Told().tells(replace(ROWS, delay=END), RowTimes(last=-5)).complete_until == -(2**63)


def test_what_is_asked_of_rows_hangs_on_what_was_noted_and_on_no_clock() -> None:
    first = PreviousTime("orders", 1, None)
    assert event_time.clock(ROWS, first) == Clock("at", "ms", None)
    assert event_time.clock(ROWS, after(with_time(EpochTime("ms", 5, 7, 9)))) == Clock("at", "ms", 7)
    assert event_time.clock(INGEST, first) is None
    assert event_time.clock(None, first) is None


@pytest.mark.parametrize("seed", range(20))
def test_within_a_turn_nothing_ever_goes_back(seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    told, before = Told(), EpochTime("ms", None, None, None)
    for _ in range(60):
        how = draw.choice((ROWS, INGEST, WATERMARK, FUNCTION, None))
        last = draw.choice((None, draw.randrange(-50, 50)))
        times = RowTimes(last, last, callback_time=draw.choice((None, draw.randrange(-50, 50))))
        if how is None and told.last is None:
            continue
        clocks = {"clock": draw.randrange(1, 50), "watermark": draw.randrange(50)}
        now = told.tells(how, times, begins=draw.random() < 0.05, **clocks)
        least = -(2**63) - 1
        if now.resets == before.resets:
            for name in ("complete_until", "dataset_complete_until", "max_time"):
                was, stands = getattr(before, name), getattr(now, name)
                assert (least if stands is None else stands) >= (least if was is None else was), name
        else:
            assert now.resets == before.resets + 1
        before = now


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0, "ms", "1970-01-01T00:00:00Z"),
        (-1, "ms", "1969-12-31T23:59:59.999Z"),
        (END, "ms", "the end"),
        (END - 1, "ms", f"{END - 1} ms"),
        (7, "integer", "7"),
    ],
)
def test_a_time_has_words(value: int, unit: str, words: str) -> None:
    assert event_time.text(value, unit) == words  # type: ignore[arg-type]


IDLE = EventTimeConfig("rows", "ms", "at", 2, idle=10)


def test_while_no_row_comes_time_follows_the_clock_and_what_comes_then_is_late() -> None:
    told = Told()
    seen = [told.tells(IDLE, RowTimes(first=5, last=9), clock=100).complete_until]
    seen += [told.tells(IDLE, clock=clock, still=1).complete_until for clock in (105, 109, 110, 150, 140)]
    assert seen == [7, 7, 7, 98, 138, 138]
    assert [(kind, reason) for kind, reason in told.happened] == [
        (EventKind.SOURCE_IDLE, "no input came since 1970-01-01T00:00:00.100Z: time follows the recorded clock")
    ]
    back = told.tells(IDLE, RowTimes(first=130, last=160, late=1), clock=165)
    assert (back.complete_until, back.late_before, back.idle_since, back.late_rows) == (158, 138, None, 1)
    assert [told.tells(IDLE, clock=clock, still=1).idle_since for clock in (170, 176)] == [165, 165]
    assert [kind for kind, _ in told.happened].count(EventKind.SOURCE_IDLE) == 2


def test_a_source_that_never_sent_a_row_is_idle_from_its_first_epoch_on_and_none_is_without_the_argument() -> None:
    told, unsaid = Told(), Told()
    assert [told.tells(IDLE, clock=clock, still=1).complete_until for clock in (100, 109, 112)] == [None, None, 100]
    assert [unsaid.tells(ROWS, clock=clock, still=1).idle_since for clock in (100, 900)] == [None, None]


def test_an_epoch_of_an_operator_neither_begins_nor_ends_the_silence() -> None:
    told = Told()
    told.tells(IDLE, RowTimes(first=5, last=9), clock=100)
    silent = told.tells(IDLE, clock=104, still=1)
    told.last = replace(with_time(event_time.carried(silent)), number=3)
    assert told.tells(IDLE, clock=111, still=1).complete_until == 99


def test_input_that_brings_no_row_with_a_time_is_no_silence() -> None:
    """A backlog that is read after a stop may begin with rows that are filtered, trimmed or bad."""
    told = Told()
    told.tells(IDLE, RowTimes(first=5, last=9), clock=100)
    assert [told.tells(IDLE, clock=clock).complete_until for clock in (900, 901)] == [7, 7]
    assert told.tells(IDLE, clock=905, still=1).idle_since == 901
    heartbeat = replace(batch(9, clock=950), sources=(SourceIdentity("0", None),))
    assert timed(IDLE, after(told.last or with_time(None)), heartbeat, None).time == replace(
        told.tells(IDLE, clock=950, still=1), complete_until=938, dataset_complete_until=938
    )


AHEAD = EventTimeConfig("rows", "ms", "at", 2, ahead=60_000)


def test_a_row_further_ahead_of_the_recorded_clock_than_allowed_is_refused_and_one_at_the_limit_is_not() -> None:
    def refused(how: EventTimeConfig | None, last: int | None) -> bool:
        return bool(event_time.too_far_ahead(how, "orders", 3, lineage(2, clock=1000), RowTimes(first=1, last=last)))

    assert [refused(AHEAD, last) for last in (None, 61_000, 61_001)] == [False, False, True]
    assert [refused(how, 61_001) for how in (None, ROWS, replace(AHEAD, by="function"))] == [False, False, True]
