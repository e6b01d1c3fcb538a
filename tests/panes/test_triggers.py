"""Triggers: what each waits for, what becomes of it, and what two or more of them make; states go through JSON."""

from __future__ import annotations

import random
from typing import Any as Unknown

import pytest
from tests.panes.making import refused, through_json

from onceonly.windows import All, Any, AtCount, AtMark, AtPeriod, AtWatermark, OrFinally, Repeat, Seq
from onceonly.windows.rules.triggers import (
    DONE,
    FINISH,
    FIRE,
    WAIT,
    Event,
    Outcome,
    Passed,
    Rows,
    Tick,
    Trigger,
    advanced,
    complete_trigger,
    merges,
    united,
    wakes,
)

MINUTE = 60_000
MARK = AtMark("kind = 'end'")


def rows(count: int = 1, clock: int = 0, *, marks: int = 0) -> Rows:
    return Rows(count, marks, clock)


def marked(count: int = 1) -> Rows:
    return rows(count, marks=1)


PASSED = Passed()


def hears(trigger: Trigger, *events: Event) -> list[Outcome]:
    """What becomes of a trigger with each event; its state is stored and read in between."""
    state, found = None, []
    for event in events:
        after, outcome = advanced(trigger, state, event)
        state = through_json(after)
        assert state == after
        found.append(outcome)
    return found


# ---- one trigger


@pytest.mark.parametrize(
    ("trigger", "events", "outcomes"),
    [
        (AtCount(3), [rows(), rows(), rows()], [WAIT, WAIT, FINISH]),
        (AtCount(3), [rows(2), rows(2)], [WAIT, FINISH]),
        (AtCount(3), [rows(7)], [FINISH]),
        (AtCount(1), [PASSED, Tick(9), rows()], [WAIT, WAIT, FINISH]),
        (AtCount(1), [rows(), rows(), PASSED], [FINISH, WAIT, WAIT]),
        (MARK, [rows(), PASSED, Tick(5), marked()], [WAIT, WAIT, WAIT, FINISH]),
        (MARK, [marked(5), marked()], [FINISH, WAIT]),
        (AtPeriod("1 minute"), [rows(clock=59_999), Tick(59_999), Tick(MINUTE)], [WAIT, WAIT, FINISH]),
        (AtPeriod("1 minute"), [rows(clock=MINUTE), Tick(MINUTE), Tick(2 * MINUTE)], [WAIT, WAIT, FINISH]),
        (AtPeriod("1 minute"), [Tick(MINUTE), PASSED, Tick(2 * MINUTE)], [WAIT, WAIT, WAIT]),
        (AtPeriod("1 minute"), [rows(clock=10), rows(clock=50_000), Tick(MINUTE)], [WAIT, WAIT, FINISH]),
        (AtPeriod("1 minute"), [rows(clock=10), rows(clock=70_000), Tick(MINUTE)], [WAIT, WAIT, FINISH]),
        (AtWatermark(), [rows(), Tick(5), marked(), PASSED], [WAIT, WAIT, WAIT, FINISH]),
        (AtWatermark(), [PASSED, rows(), PASSED], [FINISH, WAIT, WAIT]),
    ],
)
def test_a_trigger_waits_for_its_own_event(trigger: Trigger, events: list[Event], outcomes: list[Outcome]) -> None:
    assert hears(trigger, *events) == outcomes


@pytest.mark.parametrize("clock", [-1, 0, 1, 59_999, 60_000, 1_700_000_012_345])
def test_timers_are_due_at_multiples_of_their_period_after_the_rows_that_set_them(clock: int) -> None:
    state, _ = AtPeriod("1 minute").step(None, rows(clock=clock))
    due = wakes(AtPeriod("1 minute"), state)
    assert due is not None
    assert due % MINUTE == 0
    assert clock < due <= clock + MINUTE


# ---- what several make


@pytest.mark.parametrize(
    ("trigger", "events", "outcomes"),
    [
        (Repeat(AtCount(2)), [rows(2), rows(), rows()], [FIRE, WAIT, FIRE]),
        (Repeat(AtCount(2)), [rows(5), rows()], [FIRE, WAIT]),
        (Repeat(MARK), [marked(), rows(), marked()], [FIRE, WAIT, FIRE]),
        (
            Repeat(AtPeriod("1 minute")),
            [rows(), Tick(MINUTE), Tick(2 * MINUTE), rows(clock=2 * MINUTE), Tick(3 * MINUTE)],
            [WAIT, FIRE, WAIT, WAIT, FIRE],
        ),
        (Repeat(AtWatermark()), [PASSED, rows()], [FIRE, WAIT]),
        (Repeat(Repeat(AtCount(1))), [rows(), rows()], [FIRE, FIRE]),
        # until the other one finishes, which fires and is the end
        (OrFinally(Repeat(AtCount(1)), AtWatermark()), [rows(), rows(), PASSED, rows()], [FIRE, FIRE, FINISH, WAIT]),
        (OrFinally(Repeat(AtCount(9)), AtWatermark()), [rows(), PASSED], [WAIT, FINISH]),
        (OrFinally(Repeat(AtCount(1)), MARK), [rows(), marked(), rows()], [FIRE, FINISH, WAIT]),
        (OrFinally(AtCount(2), AtWatermark()), [rows(2), PASSED], [FINISH, WAIT]),
        (OrFinally(Repeat(AtCount(2)), Repeat(MARK)), [rows(), marked(), marked()], [WAIT, FIRE, FIRE]),
        # one after the other
        (Seq(AtCount(2), MARK), [marked(), rows(), marked(), marked()], [WAIT, FIRE, FINISH, WAIT]),
        (Seq(AtCount(1), AtCount(2), AtCount(1)), [rows()] * 5, [FIRE, WAIT, FIRE, FINISH, WAIT]),
        (Seq(AtWatermark(), Repeat(AtCount(1))), [rows(), PASSED, rows(), rows()], [WAIT, FIRE, FIRE, FIRE]),
        (Seq(AtCount(1), MARK), [marked(), rows(), marked()], [FIRE, WAIT, FINISH]),
        (Repeat(Seq(AtCount(1), MARK)), [rows(), marked(), rows()], [FIRE, FIRE, FIRE]),
        # all of them
        (All(AtCount(2), MARK), [marked(), rows()], [WAIT, FINISH]),
        (All(AtCount(2), MARK), [rows(2), rows(), marked(), marked()], [WAIT, WAIT, FINISH, WAIT]),
        (All(AtWatermark(), MARK), [marked(), PASSED], [WAIT, FINISH]),
        (All(AtWatermark(), MARK), [PASSED, rows(), marked()], [WAIT, WAIT, FINISH]),
        (All(Repeat(AtCount(1)), AtWatermark()), [rows(), rows(), PASSED], [WAIT, WAIT, FINISH]),
        (Repeat(All(AtCount(2), MARK)), [marked(2), rows(2), marked()], [FIRE, WAIT, FIRE]),
        # the first of them
        (Any(AtCount(3), MARK), [rows(), marked(), marked()], [WAIT, FINISH, WAIT]),
        (Any(AtCount(2), AtWatermark()), [rows(), PASSED, rows()], [WAIT, FINISH, WAIT]),
        (Any(Repeat(AtCount(1)), AtWatermark()), [rows(), rows()], [FINISH, WAIT]),
        (Repeat(Any(AtCount(3), AtPeriod("1 minute"))), [rows(), Tick(MINUTE), rows(3)], [WAIT, FIRE, FIRE]),
        (Repeat(Any(AtCount(3), AtPeriod("1 minute"))), [rows(3), Tick(MINUTE), rows()], [FIRE, WAIT, WAIT]),
        # short form
        (AtWatermark(early=AtCount(2)), [rows(2), rows(), PASSED, rows(5)], [FIRE, WAIT, FINISH, WAIT]),
        (AtWatermark(late=AtCount(2)), [rows(9), PASSED, rows(), rows()], [WAIT, FIRE, WAIT, FIRE]),
        (AtWatermark(early=AtCount(1), late=AtCount(2)), [rows(), PASSED, rows(), rows()], [FIRE, FIRE, WAIT, FIRE]),
    ],
)
def test_triggers_made_of_others_keep_their_law(trigger: Trigger, events: list[Event], outcomes: list[Outcome]) -> None:
    assert hears(trigger, *events) == outcomes


@pytest.mark.parametrize(
    "order",
    [[PASSED, rows(), marked()], [marked(), rows(), PASSED], [rows(), marked(), PASSED], [PASSED, marked(), rows()]],
)
def test_watermark_and_end_of_file_row_fires_once_both_are_there(order: list[Event]) -> None:
    both = {order.index(PASSED), next(at for at, one in enumerate(order) if isinstance(one, Rows) and one.marks)}
    found = hears(All(AtWatermark(), MARK), *order)
    assert found == [FINISH if at == max(both) else WAIT for at in range(3)]


def test_a_trigger_wakes_when_the_first_of_its_timers_is_due() -> None:
    trigger = Any(AtPeriod("5 minutes"), AtPeriod("1 minute"))
    state, _ = trigger.step(None, rows(clock=3))
    assert wakes(trigger, state) == MINUTE
    both = All(AtPeriod("5 minutes"), AtPeriod("1 minute"))
    state, _ = both.step(None, rows(clock=3))
    state, outcome = both.step(through_json(state), Tick(MINUTE))
    assert (wakes(both, state), outcome) == (5 * MINUTE, WAIT)


def test_only_the_trigger_at_work_sets_a_timer() -> None:
    trigger = Seq(AtCount(1), AtPeriod("1 minute"))
    state, outcome = trigger.step(None, rows(clock=3))
    assert (outcome, wakes(trigger, state)) == (FIRE, None)
    state, outcome = trigger.step(through_json(state), rows(clock=70_000))
    assert (outcome, wakes(trigger, state)) == (WAIT, 2 * MINUTE)


def test_one_that_is_finished_wants_to_hear_nothing() -> None:
    assert advanced(AtPeriod("1 minute"), DONE, Tick(MINUTE)) == (DONE, WAIT)
    assert wakes(AtPeriod("1 minute"), DONE) is None


# ---- long form and short form


LEAVES = (AtCount(1), AtCount(3), AtPeriod("1 minute"), AtPeriod("7 seconds"), MARK, Any(AtCount(4), MARK))


def _random_events(draw: random.Random, count: int) -> list[Event]:
    clock, found = 0, list[Event]()
    for _ in range(count):
        clock += draw.randrange(40_000)
        some: list[Event] = [rows(draw.randint(1, 3), clock), marked(), Tick(clock), Tick(clock)]
        found.append(draw.choice(some))
    found.insert(draw.randrange(count), PASSED)
    return found


def test_the_short_form_does_what_the_long_form_does() -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(300):
        early, late = draw.choice(LEAVES), draw.choice(LEAVES)
        events = _random_events(draw, 30)
        long = Seq(OrFinally(Repeat(early), AtWatermark()), Repeat(late))
        assert hears(AtWatermark(early=early, late=late), *events) == hears(long, *events)
        assert hears(AtWatermark(early=early), *events) == hears(OrFinally(Repeat(early), AtWatermark()), *events)
        assert hears(AtWatermark(late=late), *events) == hears(Seq(AtWatermark(), Repeat(late)), *events)


def test_the_short_form_is_spelled_as_the_long_form() -> None:
    long = Seq(OrFinally(Repeat(AtCount(2)), AtWatermark()), Repeat(AtPeriod("60 s")))
    assert AtWatermark(early=AtCount(2), late=AtPeriod("1 minute")).spelled == long.spelled
    assert AtWatermark(early=AtCount(2)).spelled == OrFinally(Repeat(AtCount(2)), AtWatermark()).spelled
    assert AtWatermark().spelled != AtWatermark(late=AtCount(1)).spelled != AtWatermark(late=AtCount(2)).spelled


@pytest.mark.parametrize("trigger", [AtCount(2), AtPeriod("1 minute"), MARK])
def test_one_for_rows_or_for_the_clock_alone_is_meant_again_and_again(trigger: Trigger) -> None:
    assert complete_trigger(trigger) == Repeat(trigger)
    assert complete_trigger(Seq(trigger, trigger)) == Seq(trigger, trigger)


# ---- sessions that merge


@pytest.mark.parametrize(
    ("trigger", "can"),
    [
        (AtWatermark(), True),
        (AtWatermark(early=AtPeriod("1 minute"), late=AtCount(2)), True),
        (Repeat(AtCount(2)), True),
        (Repeat(AtPeriod("1 minute")), True),
        (Repeat(MARK), False),
        (AtWatermark(early=MARK), False),
        (AtWatermark(late=Any(AtCount(1), AtCount(2))), False),
        (Seq(AtCount(1), AtWatermark()), False),
        (All(AtWatermark(), MARK), False),
        (Any(AtWatermark(), AtCount(1)), False),
        (OrFinally(Repeat(AtCount(1)), AtWatermark()), False),
    ],
)
def test_a_union_has_a_state_only_where_counts_periods_and_the_watermark_make_it(trigger: Trigger, can: bool) -> None:
    assert merges(trigger) is can


@pytest.mark.parametrize(
    ("trigger", "before", "events", "outcomes"),
    [
        (Repeat(AtCount(5)), False, [rows(2)], [FIRE]),
        (Repeat(AtCount(6)), False, [rows(2), rows()], [WAIT, FIRE]),
        (Repeat(AtPeriod("1 minute")), False, [Tick(MINUTE), Tick(2 * MINUTE)], [FIRE, WAIT]),
        (AtWatermark(), False, [rows(9), PASSED, rows()], [WAIT, FINISH, WAIT]),
        (AtWatermark(), True, [rows(9), PASSED], [WAIT, WAIT]),
        (AtWatermark(early=AtCount(5)), False, [rows(2), PASSED], [FIRE, FINISH]),
        (AtWatermark(late=AtCount(5)), False, [rows(9), PASSED, rows(4), rows()], [WAIT, FIRE, WAIT, FIRE]),
        (AtWatermark(late=AtCount(5)), True, [rows(), rows()], [WAIT, FIRE]),
        (AtWatermark(early=AtPeriod("1 minute"), late=AtCount(1)), False, [Tick(MINUTE), PASSED], [FIRE, FIRE]),
        (AtWatermark(early=AtCount(1), late=AtPeriod("1 minute")), True, [PASSED, Tick(MINUTE)], [WAIT, FIRE]),
    ],
)
def test_a_union_goes_on_with_the_rows_that_wait(
    trigger: Trigger, before: bool, events: list[Event], outcomes: list[Outcome]
) -> None:
    state: Unknown = through_json(united(trigger, 3, 1_000, passed=before))
    found = []
    for event in events:
        state, outcome = advanced(trigger, state, event)
        found.append(outcome)
    assert found == outcomes


def test_a_union_of_which_all_is_written_waits_for_rows() -> None:
    assert wakes(Repeat(AtPeriod("1 minute")), united(Repeat(AtPeriod("1 minute")), 0, 1_000, passed=False)) is None
    assert advanced(Repeat(AtCount(2)), united(Repeat(AtCount(2)), 0, 1_000, passed=False), rows())[1] is WAIT


# ---- what is no trigger, and the way out


@pytest.mark.parametrize(
    ("make", "printed", "way"),
    [
        (lambda: AtPeriod(60), 'AtPeriod("1 minute")', lambda: AtPeriod("1 minute")),  # type: ignore[arg-type]
        (lambda: AtPeriod("now and then"), 'give a time: AtPeriod("1 minute")', lambda: AtPeriod("1 minute")),
        (lambda: AtPeriod("0s"), 'give a time: AtPeriod("1 minute")', lambda: AtPeriod("1 minute")),
        (lambda: AtCount(0), "AtCount(100)", lambda: AtCount(100)),
        (lambda: AtCount(True), "AtCount(100)", lambda: AtCount(100)),
        (lambda: AtCount("9"), "AtCount(100)", lambda: AtCount(100)),  # type: ignore[arg-type]
        (lambda: AtMark(" "), "AtMark(\"kind = 'end'\")", lambda: AtMark("kind = 'end'")),
        (lambda: AtMark(None), "AtMark(\"kind = 'end'\")", lambda: AtMark("kind = 'end'")),  # type: ignore[arg-type]
        (lambda: Seq(AtCount(1)), "Seq(AtCount(100), AtPeriod('1 minute'))", lambda: Seq(AtCount(1), AtCount(2))),
        (All, "All(AtCount(100), AtPeriod('1 minute'))", lambda: All(AtCount(100), AtPeriod("1 minute"))),
        (
            lambda: Any(AtCount(1), 5),  # type: ignore[arg-type]
            "Any(AtCount(100), AtPeriod('1 minute'))",
            lambda: Any(AtCount(100), AtPeriod("1 minute")),
        ),
        (
            lambda: AtWatermark(early=AtWatermark()),
            'AtWatermark(early=AtPeriod("1 minute"))',
            lambda: AtWatermark(early=AtPeriod("1 minute")),
        ),
        (
            lambda: AtWatermark(late=Seq(AtCount(1), AtWatermark())),
            'AtWatermark(late=AtPeriod("1 minute"))',
            lambda: AtWatermark(late=AtPeriod("1 minute")),
        ),
        (
            lambda: AtWatermark(early="1 minute"),  # type: ignore[arg-type]
            'AtWatermark(early=AtPeriod("1 minute"))',
            lambda: AtWatermark(early=AtPeriod("1 minute")),
        ),
        (lambda: Repeat("1 minute"), 'Repeat(AtPeriod("1 minute"))', lambda: Repeat(AtPeriod("1 minute"))),  # type: ignore[arg-type]
        (
            lambda: OrFinally(AtCount(1), None),  # type: ignore[arg-type]
            "OrFinally(Repeat(AtCount(100)), AtWatermark())",
            lambda: OrFinally(Repeat(AtCount(100)), AtWatermark()),
        ),
    ],
)
def test_a_trigger_that_cannot_fire_is_refused_with_one_that_can(make: Unknown, printed: str, way: Unknown) -> None:
    assert printed in str(refused("E140", make))
    way()
