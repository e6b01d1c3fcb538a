"""What markers say of time is judged: with the rows, never less than before, and one for all sinks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab.tale import Tale, written

from onceonly_lab.checker import Anomaly
from onceonly_lab.history import Mark, MarkTime


def timed(*said: MarkTime | None, sinks: tuple[str, ...] = ("pg",)) -> Tale:
    """A right run whose epochs say so much of time in each sink."""
    tale = written(*sinks, epochs=len(said))
    for sink in sinks:
        for epoch, time in enumerate(said, 1):
            says(tale, sink, epoch, time)
    return tale


def says(tale: Tale, sink: str, epoch: int, time: MarkTime | None) -> None:
    tale.marks[sink][epoch] = replace(tale.marks[sink][epoch], time=time)


def what(tale: Tale) -> list[tuple[Anomaly, str | None, int | None, str]]:
    tale.end()
    return [(finding.anomaly, finding.sink, finding.epoch, finding.what) for finding in tale.judged().findings]


@pytest.mark.parametrize(
    "said",
    [
        (None, None, None),
        (None, None, MarkTime(5, 5)),
        (MarkTime(), MarkTime(), MarkTime(7, 3)),
        (MarkTime(5, 5), MarkTime(5, 5), MarkTime(6, 5)),
        (MarkTime(5, 5), MarkTime(2, 1, turn=1), MarkTime(2, 2, turn=1)),
        (MarkTime(5, 5), MarkTime(turn=1), MarkTime(turn=2)),
    ],
)
def test_time_that_is_not_noted_yet_stands_or_begins_anew_in_another_turn_is_right(said: tuple[MarkTime, ...]) -> None:
    assert what(timed(*said)) == []


def test_rows_of_whose_time_nothing_is_said_once_something_was_are_untimely() -> None:
    (found,) = what(timed(MarkTime(5, 5), None))
    assert found == (Anomaly.TIME, "pg", 2, "says nothing of time, and epoch 1 does")
    assert [one[2] for one in what(timed(MarkTime(), None))] == [2], "nothing was noted yet, and that was said"


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (MarkTime(4, 5), "noted 4, complete through 5"),
        (MarkTime(5, 4), "noted 5, complete through 4"),
        (MarkTime(None, 5), "noted nothing, complete through 5"),
        (MarkTime(6, None), "noted 6, complete through nothing"),
    ],
)
def test_a_number_that_goes_back_in_its_turn_is_untimely(now: MarkTime, words: str) -> None:
    (found,) = what(timed(MarkTime(5, 5), now))
    assert found == (Anomaly.TIME, "pg", 2, f"says {words}, and epoch 1 noted 5, complete through 5")


def test_a_turn_that_goes_back_is_untimely_however_great_its_numbers_are() -> None:
    (found,) = what(timed(MarkTime(5, 5, turn=1), MarkTime(9, 9)))
    assert found[3] == "says noted 9, complete through 9, and epoch 1 noted 5, complete through 5 in turn 1"


def test_a_marker_that_says_another_time_than_a_reader_has_seen_is_untimely_unless_the_sink_was_restored() -> None:
    tale = timed(MarkTime(5, 5))
    tale.read("pg")
    says(tale, "pg", 1, MarkTime(6, 6))
    assert what(tale) == [
        (Anomaly.TIME, "pg", 1, "says noted 6, complete through 6, and said noted 5, complete through 5")
    ]
    tale = timed(MarkTime(5, 5), MarkTime(6, 6))
    tale.read("pg")
    tale.restore("pg", 1, 2)
    says(tale, "pg", 2, MarkTime(7, 7))
    assert what(tale) == []
    tale.read("pg")
    says(tale, "pg", 2, MarkTime(8, 8))
    assert [(one[0], one[2]) for one in what(tale)] == [(Anomaly.TIME, 2)], "after the restore it is held again"


def test_sinks_that_say_different_times_of_one_epoch_are_crossed() -> None:
    tale = timed(MarkTime(5, 5), MarkTime(6, 6), sinks=("pg", "delta"))
    says(tale, "delta", 2, MarkTime(7, 7))
    assert what(tale) == [
        (Anomaly.CROSS, "delta", 2, "pg says noted 6, complete through 6, delta noted 7, complete through 7")
    ]


def test_a_sink_that_says_nothing_of_time_where_another_does_is_crossed_and_one_that_was_not_asked_is_not() -> None:
    tale = timed(MarkTime(5, 5), sinks=("pg", "delta"))
    says(tale, "delta", 1, None)
    assert [(one[0], one[3].endswith("delta nothing of time")) for one in what(tale)] == [(Anomaly.CROSS, True)]
    tale = timed(MarkTime(5, 5), sinks=("pg", "topic"))
    tale.end(topic={"markers": None})
    assert tale.judged().findings == ()


def test_a_time_survives_its_own_text_and_one_of_nothing_is_short() -> None:
    for mark in (Mark(1, time=MarkTime(5, -3, turn=2)), Mark(2, time=MarkTime()), Mark(3)):
        assert Mark.from_json(mark.to_json()) == mark
    assert Mark(2, time=MarkTime()).to_json() == {"epoch": 2, "time": {}}
    assert Mark(3).to_json() == {"epoch": 3}
