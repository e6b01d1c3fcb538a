"""What the benchmark table says follows from the runs, round by round."""

from __future__ import annotations

import pytest
from benchmarks.bars import LONG, MEMORY, POINTS, STREAMS
from benchmarks.command import main
from benchmarks.data import SCHEMAS, Shape, table
from benchmarks.model import Bar, Pair, Result, Rule, Run, compare
from benchmarks.report import as_json, as_markdown

MACHINE = {"date": "today", "cores": 2, "cpu": "some", "memory_gb": 8, "system": "Linux", "load_before": [0.1]}


def run(variant: str, number: int, seconds: float = 1.0, epoch: float = 10.0) -> Run:
    return Run("large", variant, number, 1000, seconds, (epoch, epoch + 1, epoch - 1))


def bar(rule: Rule, limit: float, *peers: str) -> Bar:
    return Bar("job", "a job", "ours", peers or ("peer",), rule, limit, "large")


def test_a_ratio_is_taken_within_a_round_and_only_then_over_the_rounds() -> None:
    # The machine slows down by the round; the medians of the sides alone would say 1.
    runs = [run("ours", n, 1.0 * n) for n in (1, 2, 3)] + [run("peer", n, 2.0 * n) for n in (1, 2, 3)]
    assert compare(bar(Rule.RATE, 2.0), runs).each == [2.0, 2.0, 2.0]


def test_the_faster_of_two_peers_counts() -> None:
    runs = [run("ours", 1, 1.0), run("slow", 1, 9.0), run("fast", 1, 3.0)]
    found = compare(bar(Rule.RATE, 2.0, "slow", "fast"), runs)
    assert (found.peer, found.value) == ("fast", 3.0)
    assert compare(bar(Rule.TIME, 2.0, "slow", "fast"), [*runs, run("fast", 1, epoch=5.0)]).peer == "fast"


def test_a_side_that_was_not_measured_is_said_and_not_left_out() -> None:
    with pytest.raises(ValueError, match="peer was not measured"):
        compare(bar(Rule.RATE, 2.0), [run("ours", 1)])


@pytest.mark.parametrize(
    ("rule", "ours", "peer", "limit", "met"),
    [
        (Rule.RATE, 200.0, 100.0, 2.0, True),
        (Rule.RATE, 199.0, 100.0, 2.0, False),
        (Rule.TIME, 35.0, 100.0, 0.35, True),
        (Rule.TIME, 36.0, 100.0, 0.35, False),
        (Rule.ADDED_MS, 120.0, 100.0, 20.0, True),
        (Rule.ADDED_MB, 260.0, 100.0, 150.0, False),
        (Rule.GROWTH, 22.0, 20.0, 1.1, True),
        (Rule.SHARE, 1.0, 1000.0, 0.1, True),
        (Rule.SHARE, 1.1, 1000.0, 0.1, False),
    ],
)
def test_a_bar_is_met_on_its_own_side_of_the_limit(
    rule: Rule, ours: float, peer: float, limit: float, met: bool
) -> None:
    assert Result(bar(rule, limit), "peer", (Pair(ours, peer),)).met is met


def test_the_table_shows_the_spread_and_a_missed_bar() -> None:
    pairs = (Pair(100.0, 100.0), Pair(150.0, 100.0), Pair(300.0, 100.0))
    found = as_json(MACHINE, {}, [Result(bar(Rule.RATE, 2.0), "peer", pairs)], [])
    assert "**1.50** x rows/s (1.00..3.00) | >= 2 | **missed** |" in as_markdown(found)


def test_every_bar_has_a_name_of_its_own() -> None:
    names = [each.name for each in (*STREAMS, *MEMORY, *LONG, *POINTS)]
    assert len(set(names)) == len(names)


def test_the_rows_are_the_same_every_time_and_fit_their_schema() -> None:
    assert table(500).equals(table(500))
    assert table(3).column_names == [part.split()[0] for part in SCHEMAS["orders"].split(", ")]
    assert {len(note) for note in table(50).column("note").to_pylist()} == {40}
    assert Shape("any", 2, 50).checksum == sum(range(100))


def test_a_bar_that_does_not_exist_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nothing"]) == 2
    assert "delta-large" in capsys.readouterr().err
