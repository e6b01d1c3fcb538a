"""What markers say of open windows is judged: each row of the epochs up to one, once, and none of a later epoch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab.tale import Tale, written

from onceonly_lab.checker import Anomaly


def holding(*windows: int | None, sinks: tuple[str, ...] = ("pg",)) -> Tale:
    """Epochs of two rows each, whose markers say that their windows hold so many rows."""
    tale = written(*sinks, epochs=len(windows))
    for sink in sinks:
        for epoch, rows in enumerate(windows, 1):
            tale.marks[sink][epoch] = replace(tale.marks[sink][epoch], windows=rows)
    return tale


def what(tale: Tale) -> list[tuple[Anomaly, str | None, int | None, str]]:
    tale.end()
    return [(finding.anomaly, finding.sink, finding.epoch, finding.what) for finding in tale.judged().findings]


@pytest.mark.parametrize("windows", [(2, 4, 6), (None, 4, 6), (2, None, 6), (None, None, None)])
def test_windows_that_hold_what_the_epochs_brought_are_right(windows: tuple[int | None, ...]) -> None:
    assert what(holding(*windows)) == []


@pytest.mark.parametrize(
    ("windows", "epoch", "words"),
    [
        ((1, 4, 6), 1, "its windows hold 1 row, and 2 rows came"),
        ((2, 5, 6), 2, "its windows hold 5 rows, and 4 rows came"),
        ((2, 4, 2), 3, "its windows hold 2 rows, and 6 rows came"),
        ((0, 4, 6), 1, "its windows hold 0 rows, and 2 rows came"),
    ],
)
def test_windows_that_lack_a_row_or_hold_one_twice_are_called(windows: tuple[int, ...], epoch: int, words: str) -> None:
    assert what(holding(*windows)) == [(Anomaly.PANE, "pg", epoch, words)]


def test_the_windows_of_each_sink_are_counted_by_themselves() -> None:
    tale = holding(2, 4, sinks=("pg", "delta"))
    tale.marks["delta"][2] = replace(tale.marks["delta"][2], windows=3)
    assert what(tale) == [(Anomaly.PANE, "delta", 2, "its windows hold 3 rows, and 4 rows came")]


def test_a_finding_shows_the_commit_and_the_read() -> None:
    tale = holding(2, 3)
    tale.end()
    (found,) = tale.judged().findings
    entries = {number: tale.entries[number - 2] for number in found.lines}
    commits = [entry for entry in entries.values() if entry.epoch == 2 and entry.sink == "pg"]
    assert len(commits) == 2
    assert any(entry.markers for entry in entries.values())


def test_behind_an_epoch_that_is_not_there_nobody_knows_the_rows() -> None:
    tale = holding(2, 9, 9)
    del tale.marks["pg"][1]
    assert Anomaly.PANE not in {one[0] for one in what(tale)}
