"""The plan of kills: the same for a seed, and never later than the input lasts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.faults import Point
from onceonly_lab.demo.plan import LONGEST_DELAY, OPENING, WINDOW, epochs_for, plan, plan_several

BOTH = ("delta", "postgres")
SINKS = st.sampled_from([BOTH, ("delta",), ("postgres",)])


@given(st.integers(0, 10_000), st.integers(1, 12), SINKS)
def test_the_same_seed_plans_the_same_kills(seed: int, kills: int, sinks: tuple[str, ...]) -> None:
    assert plan(seed, kills, sinks) == plan(seed, kills, sinks)
    assert len(plan(seed, kills, sinks)) == kills


@given(st.integers(0, 10_000), st.integers(1, 12), SINKS)
def test_the_last_driver_always_has_input_left(seed: int, kills: int, sinks: tuple[str, ...]) -> None:
    # The worst case: each batch counts once, and each driver gets one batch further than the kill counts.
    used = sum(kill.batch + 1 for kill in plan(seed, kills, sinks))
    assert used < epochs_for(kills)


@given(st.integers(0, 10_000), SINKS)
def test_the_default_kills_hit_every_sink_in_its_window_and_one_random_moment(
    seed: int, sinks: tuple[str, ...]
) -> None:
    kills = plan(seed, 3, sinks)
    assert {kill.sink for kill in kills if kill.point in WINDOW} == set(sinks)
    assert [kill for kill in kills if kill.point is None]


@given(st.integers(0, 10_000))
def test_a_single_kill_falls_between_the_two_commits(seed: int) -> None:
    (kill,) = plan(seed, 1, ("delta",))
    assert kill.point in WINDOW


@given(st.integers(0, 10_000), st.integers(1, 12), SINKS)
def test_points_of_an_opening_are_aimed_at_the_first_batch(seed: int, kills: int, sinks: tuple[str, ...]) -> None:
    for kill in plan(seed, kills, sinks):
        assert kill.point not in OPENING or kill.batch == 1
        assert 0 <= kill.delay <= LONGEST_DELAY


def test_different_seeds_plan_different_kills() -> None:
    assert len({plan(seed, 3, BOTH) for seed in range(50)}) > 25


@pytest.mark.parametrize("kills", range(1, 13))
def test_more_kills_get_more_epochs(kills: int) -> None:
    assert epochs_for(kills) >= max(12, 3 * (kills + 1))


@given(st.integers(0, 10_000), st.integers(3, 12))
def test_several_sinks_are_killed_in_each_gap_between_their_commits_and_at_a_random_moment(
    seed: int, kills: int
) -> None:
    planned = plan_several(seed, kills, 3)
    assert {(kill.point, kill.written) for kill in planned if kill.written} == {
        (Point.COMMIT_AFTER, 1),
        (Point.COMMIT_AFTER, 2),
    }
    assert [kill for kill in planned if kill.point is None]


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_a_gap_is_never_aimed_at_in_a_batch_that_may_be_a_replay(seed: int, kills: int) -> None:
    planned = plan_several(seed, kills, 3)
    assert planned == plan_several(seed, kills, 3)
    assert all(kill.batch > 1 for kill in planned if kill.written)
    assert sum(kill.batch + 1 for kill in planned) < epochs_for(kills)


@given(st.integers(0, 10_000))
def test_a_single_kill_of_several_sinks_falls_between_two_commits(seed: int) -> None:
    (kill,) = plan_several(seed, 1, 3)
    assert kill.written == 1
    assert kill.moment == f"commit.after of sink 1 in batch {kill.batch} of several"
