"""Several writers of one dataset: what they know together, whom they wait for, and what a reader may conclude."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.errors import OnceOnlyError
from onceonly.machine.completeness import (
    EMPTY,
    PlacedEpoch,
    TimeWindow,
    after_all,
    members,
    passes,
    started_before,
    window,
    window_at,
)
from onceonly.machine.writer_progress import (
    TimedMarker,
    Vector,
    WriterSet,
    by_name,
    clamped,
    concluded,
    joined,
    known_lower,
    next_reset,
)
from onceonly_checkpoints.epoch_time import END, EpochTime, Unit, WriterProgress

BOTH = WriterSet(("A", "B"), 60)


class Dataset:
    """Commits of several writers, each of which sees the newest ones of its peers unless told otherwise."""

    def __init__(self, writers: WriterSet = BOTH, unit: Unit = "integer") -> None:
        self.writers, self.unit = writers, unit
        self.newest: dict[str, TimedMarker] = {}

    def commit(
        self,
        writer: str,
        said: int | None,
        ingest: int,
        *,
        sees: tuple[TimedMarker, ...] | None = None,
        back: bool = False,
    ) -> TimedMarker:
        last = self.newest.get(writer)
        polled = tuple(one for name, one in self.newest.items() if name != writer) if sees is None else sees
        vectors = [one.observed for one in (*polled, *((last,) if last else ()))]
        turn = next_reset(writer, *vectors) if back else last.time.resets if last else 0
        before = last.time.complete_until if last and not back else None
        own = WriterProgress(writer, last.epoch + 1 if last else 1, clamped(said, before), ingest, turn)
        view = concluded(own, last, polled, self.writers)
        time = EpochTime(
            self.unit,
            own.complete_until,
            view.lower,
            max_time=said,
            batch_timestamp_ms=ingest,
            writers=view.observed,
            timed_out=view.silent,
            resets=turn,
        )
        self.newest[writer] = TimedMarker(writer, own.epoch, time)
        return self.newest[writer]

    def put_back(self, writer: str, to: TimedMarker) -> None:
        self.newest[writer] = to

    @property
    def window(self) -> TimeWindow:
        return window(tuple(self.newest.values()))

    @property
    def cut(self) -> dict[str, int]:
        return {mark.writer: mark.epoch for mark in self.window.at}


def names(vector: Vector) -> tuple[str, ...]:
    return tuple(mark.writer for mark in vector)


def alone(writer: str, epoch: int, noted: int, *, high: int | None = None, closed: int | None = None) -> TimedMarker:
    return TimedMarker(writer, epoch, EpochTime("integer", noted, noted, noted if high is None else high, closed))


# ---- Several writers, one after the other.


def test_nothing_is_complete_before_every_declared_writer_has_noted_something() -> None:
    data = Dataset()
    assert data.commit("A", 100, 0).time.dataset_complete_until is None
    assert data.window.lower is None
    assert names(data.window.held) == ("B",)
    data.commit("B", 70, 0)
    assert (data.window.lower, data.window.upper, data.cut) == (70, 100, {"A": 1, "B": 1})
    assert names(data.window.held) == ("B",)


def test_the_place_of_a_cut_is_behind_all_that_its_epochs_wrote() -> None:
    assert after_all([{"t/0": 5, "t/1": 2}, {"t/0": 3, "t/1": 6}]) == {"t/0": 5, "t/1": 6}


def test_a_silent_writer_is_left_out_on_record_and_counts_again_from_its_return() -> None:
    data = Dataset()
    data.commit("A", 100, 0)
    data.commit("B", 70, 0)
    data.commit("A", 130, 30)
    assert (data.window.lower, names(data.window.held), data.window.without) == (70, ("B",), ())
    excluding = data.commit("A", 130, 61)
    assert excluding.time.timed_out == ("B",)
    assert (data.window.lower, data.window.silent, data.window.without) == (130, ("B",), ("B",))
    assert names(data.window.held) == ("A",)
    back = data.commit("B", 90, 70)
    assert (back.time.dataset_complete_until, back.time.timed_out) == (130, ())
    assert (data.window.lower, data.window.without, names(data.window.held)) == (130, ("B",), ("A", "B"))
    data.commit("A", 200, 80)
    assert data.window.lower == 130
    data.commit("B", 150, 90)
    assert (data.window.lower, data.window.without) == (150, ())


def test_the_clock_that_times_a_writer_out_is_that_of_epochs_and_the_limit_itself_is_too_long() -> None:
    data = Dataset()
    data.commit("B", 70, 0)
    assert data.commit("A", 100, 59).time.timed_out == ()
    assert data.commit("A", 100, 60).time.timed_out == ("B",)


def test_a_declared_writer_that_never_comes_is_timed_out_from_the_epoch_that_declared_it() -> None:
    data = Dataset()
    assert [data.commit("A", 100 + at, at).time.dataset_complete_until for at in (1000, 1059, 1060)] == [
        None,
        None,
        1160,
    ]
    assert by_name(data.window.at)["B"] == WriterProgress("B", 0, None, 1000)
    assert data.window.without == ("B",)


def test_what_is_noted_never_goes_back_whatever_is_said() -> None:
    assert [clamped(10, None), clamped(20, 10), clamped(15, 20), clamped(None, 20), clamped(None, None)] == [
        10,
        20,
        20,
        20,
        None,
    ]


def test_without_a_time_out_a_declared_writer_is_waited_for_without_end() -> None:
    data = Dataset(WriterSet(("A", "B")))
    assert data.commit("A", 100, 10**15).time.dataset_complete_until is None


def test_a_late_join_holds_what_is_complete_until_it_has_passed_it() -> None:
    data = Dataset(WriterSet(timeout=60))
    assert data.commit("A", 100, 0).time.dataset_complete_until == 100
    assert data.commit("C", 40, 10).time.dataset_complete_until == 100
    assert data.commit("A", 200, 20).time.dataset_complete_until == 100
    assert (data.window.lower, data.window.without) == (100, ("C",))
    data.commit("C", 120, 30)
    assert (data.window.lower, data.window.without) == (120, ())


def test_a_writer_that_notes_the_end_is_neither_waited_for_nor_called_silent() -> None:
    data = Dataset()
    data.commit("A", 100, 0)
    data.commit("B", END, 0)
    assert data.window.lower == 100
    last = data.commit("A", 150, 10_000)
    assert (last.time.dataset_complete_until, last.time.timed_out, data.window.without) == (150, (), ())


def test_an_old_view_lags_and_forgets_nobody() -> None:
    data = Dataset(WriterSet(timeout=60))
    old = data.commit("A", 10, 0)
    data.commit("B", 20, 1)
    data.commit("A", 30, 2)
    stale = data.commit("B", 40, 3, sees=(old,))
    assert (names(stale.time.writers), stale.time.dataset_complete_until) == (("A", "B"), 10)
    assert data.commit("B", 50, 4, sees=()).time.dataset_complete_until == 10
    assert data.commit("B", 60, 5).time.dataset_complete_until == 30


def test_the_horizon_of_an_epoch_knows_what_peers_have_concluded() -> None:
    data, own = Dataset(), WriterProgress("B", 2, None, 61)
    assert known_lower(own, None, ()) is None
    data.commit("A", 100, 0)
    data.commit("B", 70, 0)
    excluding = data.commit("A", 130, 61)
    assert known_lower(own, data.newest["B"], ()) == 70
    assert known_lower(own, data.newest["B"], (excluding,)) == 130
    assert known_lower(WriterProgress("C", 1, None, 61), None, (excluding,)) == 130


def test_rows_that_come_again_after_a_cut_are_not_late_by_what_was_concluded_before_it() -> None:
    data = Dataset(WriterSet(timeout=600))
    first = data.commit("A", 10, 0)
    data.commit("A", 90, 1)
    seen = data.commit("B", 95, 2)
    again = replace(first.mark, epoch=2, complete_until=None)
    assert known_lower(again, first, (seen,)) == 90
    assert known_lower(replace(again, resets=1), first, (seen,)) is None


# ---- A position that goes back.


def test_what_was_concluded_from_epochs_that_are_cut_off_stands_no_longer() -> None:
    data = Dataset(WriterSet(timeout=600))
    first = data.commit("A", 10, 0)
    data.commit("B", 100, 1)
    data.commit("A", 90, 2)
    data.commit("B", 100, 3)
    assert data.window.lower == 90
    data.put_back("A", first)
    assert (data.window.lower, data.window.lost) == (10, ("A",))
    again = data.commit("A", 12, 4, back=True)
    assert (again.epoch, again.time.resets, again.time.dataset_complete_until) == (2, 1, 12)
    assert (data.window.lower, data.window.lost) == (12, ())
    assert data.commit("B", 100, 5).time.dataset_complete_until == 12
    data.commit("A", 50, 6)
    assert data.window.lower == 50


def test_two_writers_that_go_back_at_once_do_not_believe_each_others_older_turn() -> None:
    data = Dataset(WriterSet(timeout=600))
    a, b = data.commit("A", 10, 0), data.commit("B", 20, 1)
    data.commit("A", 90, 2)
    data.commit("B", 80, 3)
    a3, b3 = data.newest["A"], data.newest["B"]
    assert data.window.lower == 80
    data.put_back("A", a)
    data.put_back("B", b)
    data.commit("A", 11, 4, sees=(b3,), back=True)
    data.commit("B", 21, 5, sees=(a3,), back=True)
    # Neither has seen the other's new turn: what each concluded rests on an epoch that is gone.
    assert data.window.lower is None
    assert data.commit("A", 15, 6).time.dataset_complete_until == 15
    assert data.window.lower == 15


def test_a_chain_of_acquaintances_is_one_dataset_whoever_is_asked() -> None:
    a, b, c = (alone(name, 1, 1) for name in "ABC")
    b = replace(b, time=replace(b.time, writers=(a.mark,)))
    c = replace(c, time=replace(c.time, writers=(b.mark,)))
    for name in "ABC":
        assert [member.writer for member in members(name, (a, b, c))] == ["A", "B", "C"]


def test_what_was_concluded_from_epochs_that_others_took_away_does_not_count_and_their_writer_is_named() -> None:
    data = Dataset(WriterSet(timeout=600))
    first = data.commit("A", 10, 0)
    data.commit("B", 100, 1)
    data.commit("A", 90, 2)
    concluding = data.commit("B", 100, 3)
    assert window((concluding,)).lower == 90, "a peer that is not found is not gone"
    assert (window((concluding,), {"A"}).lower, window((concluding,), {"A"}).lost) == (None, ("A",))
    left = window((first, concluding), {"A"})
    assert (left.lower, left.lost) == (10, ("A",))
    assert (window((first,), {"A"}).lower, window((first,), {"A"}).lost) == (10, ("A",))


def test_who_was_only_declared_has_no_epoch_that_could_be_gone() -> None:
    data = Dataset()
    alone_since = [data.commit("A", 100 + at, at) for at in (0, 60)][-1]
    assert (window((alone_since,), {"B"}).lower, window((alone_since,), {"B"}).lost) == (160, ("B",))


def test_a_second_cut_to_the_same_epoch_is_a_turn_of_its_own() -> None:
    data = Dataset(WriterSet(timeout=600))
    first = data.commit("A", 10, 0)
    data.commit("B", 100, 1)
    for turn in (1, 2):
        data.put_back("A", first)
        assert data.commit("A", 12, 2, back=True).time.resets == turn
        data.commit("B", 100, 3)


def test_a_turn_is_of_one_writer() -> None:
    vectors = (
        (WriterProgress("A", 5, 1, 0, resets=3), WriterProgress("B", 9, 1, 0, resets=7)),
        (WriterProgress("A", 2, 1, 0, resets=4),),
    )
    assert (next_reset("A", *vectors), next_reset("C", *vectors)) == (5, 1)


# ---- Joining, as algebra.

marks = st.builds(
    WriterProgress,
    st.sampled_from("ABC"),
    st.integers(0, 3),
    st.none() | st.integers(-2, 2),
    st.integers(-2, 2),
    st.integers(0, 2),
)
vectors = st.lists(marks, max_size=6).map(joined)


def newer_or_same(one: Vector, other: Vector) -> bool:
    """Whether the second vector knows all that the first one does."""
    held = {mark.writer: (mark.resets, mark.epoch) for mark in other}
    return all(mark.writer in held and held[mark.writer] >= (mark.resets, mark.epoch) for mark in one)


@given(vectors)
def test_a_view_joined_with_itself_is_the_same(one: Vector) -> None:
    assert joined(one, one) == joined(one) == one


@given(vectors, vectors)
def test_it_does_not_matter_who_was_heard_first(one: Vector, other: Vector) -> None:
    assert joined(one, other) == joined(other, one)


@given(vectors, vectors, vectors)
def test_it_does_not_matter_what_was_joined_before(one: Vector, two: Vector, three: Vector) -> None:
    assert joined(joined(one, two), three) == joined(one, joined(two, three)) == joined(one, two, three)


@given(vectors, vectors)
def test_a_view_only_grows(one: Vector, other: Vector) -> None:
    assert newer_or_same(one, joined(one, other))


@given(vectors, vectors, vectors)
def test_whoever_knew_more_knows_no_less_afterwards(one: Vector, two: Vector, three: Vector) -> None:
    assert newer_or_same(joined(one, three), joined(one, two, three))


def test_of_two_declarations_the_later_one_stands_and_an_epoch_beats_both() -> None:
    early, late, seen = (WriterProgress("A", epoch, None, at) for epoch, at in ((0, 1), (0, 9), (1, 5)))
    assert joined((late,), (early,)) == (late,)
    assert joined((late,), (seen,)) == (seen,)


times = st.builds(
    EpochTime,
    unit=st.just("integer"),
    complete_until=st.none() | st.integers(0, 9),
    dataset_complete_until=st.none() | st.integers(0, 9),
    max_time=st.integers(0, 9),
    writers=vectors,
    resets=st.integers(0, 2),
)
epochs = st.lists(st.builds(TimedMarker, st.sampled_from("ABC"), st.integers(1, 3), times), max_size=3, unique_by=str)


@given(epochs.filter(lambda found: len({one.writer for one in found}) == len(found)), st.randoms())
def test_a_window_is_the_same_in_whatever_order_markers_are_read(found: list[TimedMarker], chance: object) -> None:
    before = window(tuple(found))
    chance.shuffle(found)  # type: ignore[attr-defined]
    assert window(tuple(found)) == before


# ---- What a reader is told.


def test_nobody_has_noted_anything() -> None:
    assert window(()) == EMPTY
    assert not EMPTY.complete(0)


def test_one_writer_says_itself_what_is_closed_and_of_several_nobody_does() -> None:
    one, other = alone("A", 3, 8, closed=6), alone("B", 1, 9, closed=7)
    assert window((one,)) == TimeWindow(8, 8, 6, at=(one.mark,), unit="integer")
    assert window((one, other)).closed is None


def test_complete_is_what_ends_at_the_bound_with_everybody_unless_some_may_be_left_out() -> None:
    found = TimeWindow(130, 200, without=("B",))
    assert (found.complete(130), replace(found, without=()).complete(130)) == (False, True)
    assert (found.complete(130, allow_left_out=True), found.complete(131, allow_left_out=True)) == (True, False)


def test_a_dataset_is_who_knows_each_other() -> None:
    data = Dataset(WriterSet(timeout=60))
    a = data.commit("A", 10, 0)
    data.commit("B", 20, 1, sees=(a,))
    stranger = alone("C", 1, 5)
    data.commit("D", 30, 2, sees=(data.newest["B"],))  # knows A through B alone
    found = (*data.newest.values(), stranger)
    assert [member.writer for member in members("A", found)] == ["A", "B", "D"]
    assert [member.writer for member in members("C", found)] == ["C"]
    assert members("E", found) == ()


def test_units_that_differ_are_named_and_heights_are_counted() -> None:
    data = Dataset(WriterSet(), "integer")
    data.commit("chain", 103 - 1, 0)
    assert (data.window.lower, data.window.unit) == (102, "integer")
    other = TimedMarker("web", 1, EpochTime("ms", 5, 5, 5))
    with pytest.raises(OnceOnlyError, match='web counts time in "ms", and chain'):
        window((data.newest["chain"], other))
    with pytest.raises(OnceOnlyError) as caught:
        window_at((PlacedEpoch(data.newest["chain"], {"v": 1}), PlacedEpoch(other, {"v": 9})), {"v": 3})
    assert caught.value.code == "E134"


# ---- The window at a position.

CUTS = ((5, 5), (8, 9), (12, 15), (18, 18), (20, 25))
PLACED = [PlacedEpoch(alone("A", n, n), {"t/0": a, "t/1": b}) for n, (a, b) in enumerate(CUTS, start=1)]


@pytest.mark.parametrize(
    ("position", "lower", "upper"),
    [
        ((19, 11), 2, 5),
        ((1, 1), None, 1),
        ((30, 30), 5, None),
        ((5, 5), 1, 1),
        ((4, 5), None, 1),
        ((20, 25), 5, 5),
    ],
)
def test_a_position_lies_between_what_it_has_passed_and_what_has_passed_it(
    position: tuple[int, int], lower: int | None, upper: int | None
) -> None:
    found = window_at(PLACED, {"t/0": position[0], "t/1": position[1]})
    assert (found.lower, found.upper, found.unit) == (lower, upper, "integer")


def test_a_partition_that_a_position_does_not_know_is_not_passed() -> None:
    assert window_at(PLACED, {"t/0": 30}).lower is None
    assert not passes({"t/0": 30}, {"t/0": 1, "t/1": 0})


def test_a_writer_has_begun_before_a_position_that_lies_behind_one_of_its_epochs_and_not_at_it() -> None:
    placed = [PlacedEpoch(alone("A", 1, 1), {"t/0": 2}), PlacedEpoch(alone("B", 1, 1), {"t/0": 5, "t/1": 1})]
    positions = [{"t/0": 1}, {"t/0": 2}, {"t/0": 3}, {"t/0": 9}, {"t/0": 9, "t/1": 0}, {"t/0": 9, "t/1": 1}]
    begun = ["".join(sorted(started_before(placed, position))) for position in positions]
    assert begun == ["", "", "A", "A", "A", "AB"]


def test_a_position_that_one_of_two_writers_has_not_passed_may_hold_later_rows_of_it() -> None:
    a, b = alone("A", 1, 4), alone("B", 1, 9)
    placed = [PlacedEpoch(a, {"v": 1}), PlacedEpoch(b, {"v": 2}), PlacedEpoch(alone("A", 2, 5), {"v": 3})]
    assert window_at(placed, {"v": 2}).upper == 9
    assert window_at(placed, {"v": 3}).upper is None


def test_equal_times_in_a_later_epoch_are_not_late_and_time_stands_until_more_is_noted() -> None:
    data = Dataset(WriterSet())
    data.commit("A", 5, 0)
    assert known_lower(WriterProgress("A", 2, None, 1), data.newest["A"], ()) == 5  # 5 < 5 is false
    assert [data.commit("A", said, 1).time.dataset_complete_until for said in (5, None, 9)] == [5, 5, 9]


def test_a_window_of_events_is_complete_only_once_more_than_its_end_is_noted() -> None:
    data = Dataset(WriterSet())
    data.commit("A", 7, 0)  # events 1..6, 8, 7: at most 7 is behind
    assert not data.window.complete(8)
    data.commit("A", 9, 1)
    assert data.window.complete(8)
