"""What the tables about time say follows from what was measured, each bar on its own side of the limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.time import LARGE, SMALL, Pairs, in_pairs, line_of

from benchmarks import looks, report


def test_pairs_take_turns_after_a_round_that_does_not_count(tmp_path: Path) -> None:
    order: list[bool] = []

    def measure(timed: bool, root: Path) -> float:
        order.append(timed)
        return 100.0 + len(order)

    found = in_pairs(Pairs(SMALL, 8, "delta"), 2, measure, tmp_path)
    assert order == [True, False, False, True, True, False]
    assert (found.plain, found.timed) == ((103.0, 106.0), (104.0, 105.0))


def test_quotients_and_differences_are_taken_within_a_round() -> None:
    # The machine slows down by the round; the medians of the sides alone would say the same of all.
    line = line_of(Pairs(SMALL, 8, "delta", (100.0, 200.0, 300.0), (101.0, 203.0, 304.0)))
    assert line == ("| 100 | delta | 200 ms | 203 ms | 1.013 | 1.010 to 1.015 | +3.0 ms | +1.0 to +4.0 | 1 ms more |")


@pytest.mark.parametrize(
    ("shape", "timed", "said"),
    [
        (SMALL, 101.0, "1 ms more |"),
        (SMALL, 101.1, "1 ms more, missed |"),
        (LARGE, 102.0, "1.02 times |"),
        (LARGE, 102.1, "1.02 times, missed |"),
    ],
)
def test_small_epochs_are_held_to_milliseconds_and_large_ones_to_a_quotient(shape, timed: float, said: str) -> None:
    assert line_of(Pairs(shape, 1, "postgres", (100.0,), (timed,))).endswith(said)


def test_a_part_of_a_page_is_written_anew_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "time.md"
    report.put(page, "# One\n\n1\n")
    report.put(page, "# Two\n\n2\n\n- more\n")
    report.put(page, "# One\n\n## of it\n\n3\n")
    assert page.read_text() == "# One\n\n## of it\n\n3\n\n# Two\n\n2\n\n- more\n"


@pytest.mark.parametrize(("better", "said"), [(5.0, "5 ms |"), (5.1, "5 ms, missed |")])
def test_a_look_is_held_to_the_better_end_of_its_spread(better: float, said: str) -> None:
    line = looks.line_of(looks.Taken("postgres", 100_000, looks.LOOK, 5.0, (better, 7.0, 90.0)))
    assert line.startswith(f"| postgres | 100,000 | {looks.LOOK} | 7.0 ms | {better:.1f} to 90.0 | {better:.1f} ms |")
    assert line.endswith(said)
    assert looks.line_of(looks.Taken("postgres", 2, looks.POLL, None, (1.0, 2.0))).endswith("|  |")
