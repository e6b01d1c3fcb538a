"""Which slow suites CI draws, and which are stale: decisions of ``scripts/suites.py``."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from scripts import suites
from scripts.suites import Suite

FILES = [
    Suite(f"tests/test_{number}.py", "claims", seconds=20.0 * number, result="3 passed") for number in range(1, 11)
]
TARGETS = [Suite("connect", "claims", run="make connect", seconds=300.0, result="passed")]


def test_what_is_drawn_fits_into_the_time() -> None:
    for seed in range(50):
        drawn = suites.draw([*FILES, *TARGETS], 400, seed)
        assert sum(suite.wall for suite in drawn) < 400.01, seed
        assert drawn, seed


def test_the_longest_is_run_first() -> None:
    drawn = suites.draw([*FILES, *TARGETS], 1000, 7)
    assert drawn == sorted([*FILES, *TARGETS], key=lambda suite: -suite.wall)


def test_a_seed_draws_the_same_again_and_another_seed_draws_others() -> None:
    draws = [{suite.name for suite in suites.draw(FILES, 150, seed)} for seed in range(20)]
    assert draws == [{suite.name for suite in suites.draw(FILES, 150, seed)} for seed in range(20)]
    assert set().union(*draws) == {suite.name for suite in FILES}
    assert len({frozenset(draw) for draw in draws}) > 10


def test_a_suite_that_has_not_passed_or_cannot_fit_is_not_drawn() -> None:
    unknown = Suite("tests/test_new.py", "claims")
    lost = Suite("tests/test_lost.py", "claims", seconds=20.0, result="failed: 1 failed, 2 passed")
    assert suites.draw([unknown, lost], 1000, 1) == []
    assert suites.draw(TARGETS, 299, 1) == []
    assert suites.draw(TARGETS, 300, 1) == TARGETS


def test_a_suite_that_was_not_reached_is_no_failure() -> None:
    lost = Suite("tests/test_lost.py", "claims", result="failed: 1 failed")
    assert suites.failed([*FILES, Suite("tests/test_new.py", "claims"), lost]) == ["tests/test_lost.py"]


def test_a_suite_of_which_every_test_was_skipped_has_not_passed() -> None:
    assert not Suite("tests/test_apart.py", "claims", result="104 skipped").passed
    assert Suite("tests/test_apart.py", "claims", result="3 passed, 104 skipped").passed


def test_a_suite_is_stale_after_fifty_commits() -> None:
    assert suites.stale({"fresh": 0, "old enough": suites.MOST_COMMITS}) == []
    assert suites.stale({"old": suites.MOST_COMMITS + 1}) == ["old has not run for 51 commits"]


def test_its_age_is_what_was_committed_since_it_passed_also_after_a_rebase() -> None:
    commits = [datetime(2026, 5, day, tzinfo=timezone.utc) for day in (1, 2, 3, 4)]
    ran = replace(FILES[0], ran="2026-05-02T12:00:00+00:00", listed="2026-04-01T00:00:00+00:00", commit="lost")
    assert suites.age(ran, commits) == 2
    assert suites.age(replace(ran, result="failed: 1 failed"), commits) == 4
    assert suites.age(replace(ran, result="104 skipped"), commits) == 4


def test_each_recorded_suite_exists_and_each_target_is_one_of_the_makefile() -> None:
    recorded = suites.load()
    targets = {suite["run"] for suite in recorded.values() if suite["run"]}
    makefile = (suites.ROOT / "Makefile").read_text(encoding="utf-8")
    missing = [name for name, suite in recorded.items() if not suite["run"] and not (suites.ROOT / name).is_file()]
    missing += [run for run in targets if run.startswith("make ") and f"\n{run.split()[1]}:" not in makefile]
    assert recorded
    assert missing == []


def test_a_target_is_not_handed_the_arguments_of_the_night(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES"):
        monkeypatch.setenv(name, "--only ways-out")
        printed = suites.run_target(Suite("t", "claims", run=f"printenv {name}"), "a commit")
        assert printed.result == "failed: exit code 1", f"{name} is there"


def test_each_section_that_ci_runs_names_a_sample_which_is_a_target_of_the_makefile() -> None:
    makefile = (suites.ROOT / "Makefile").read_text(encoding="utf-8")
    assert len(suites.samples()) == 10
    assert [sample for sample in suites.samples() if f"\n{sample.removeprefix('make ')}:" not in makefile] == []


def test_samples_come_in_an_order_of_the_commit_and_all_of_them() -> None:
    commands = ["a", "b", "c", "d"]
    assert suites.shuffle(commands, 7) == suites.shuffle(reversed(commands), 7)
    assert {suites.shuffle(commands, seed)[-1] for seed in range(40)} == {*commands}


def test_a_sample_that_has_no_time_left_is_named_and_not_taken_for_passed(capfd: pytest.CaptureFixture[str]) -> None:
    results = suites.run_samples(["sleep 1", "sh -c 'echo lost; exit 3'", "echo fine"], 60)
    assert list(results.values()) == ["passed", "failed: exit code 3", "passed"]
    assert "== sh -c 'echo lost; exit 3'\nlost\n" in capfd.readouterr().out
    assert suites.run_samples(["sleep 0.2", "sleep 0.2", "echo late"], 0.1)["echo late"] == "not begun"
    assert suites.run_samples(["echo late"], -60) == {"echo late": "not begun"}
