"""Figures of Streaming 102 on queries whose drivers are killed twice in each epoch; and a replay that must show."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from integration.figures import drawn, line, play
from integration.processes import Drivers
from integration.servers import PostgresAddress
from integration.targets import PostgresTarget

from onceonly_lab.demo.streaming102 import cases

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kill, pytest.mark.slow]


@pytest.mark.slow
def test_no_kill_changes_a_figure(any_postgres: PostgresAddress, tmp_path: Path, warm_drivers: Drivers) -> None:
    seed = random.randrange(2**32)
    [name] = drawn(1, seed)
    played = play(cases()[name], PostgresTarget(any_postgres.database("figure")), tmp_path, warm_drivers)
    print(f"seed {seed}\n{line(played)}")
    assert played.same
    assert played.kills == 2 * len(played.case.epochs)


def test_a_replay_by_the_time_of_day_is_told_from_one_by_the_recorded_clock(
    any_postgres: PostgresAddress, tmp_path: Path, warm_drivers: Drivers
) -> None:
    case = cases()["row 7 order A"]
    pg = PostgresTarget(any_postgres.database("figure_by_wall_clock"))
    played = play(case, pg, tmp_path, warm_drivers, shifted=1)
    print(line(played))
    assert not played.same
