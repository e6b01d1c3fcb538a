"""``onceonly lab writers``: what each design is called, in how many runs, and the exit code that follows."""

from __future__ import annotations

from tests.cli.conftest import Run, document


def test_the_command_says_how_many_runs_each_took(run: Run) -> None:
    result = run("lab", "writers", "--runs", "20", "--only", "shipped", "--only", "MT3")
    assert result.exit_code == 0, result.output
    assert "2 of 2 designs are called what they are, seed 1" in result.stdout
    found = document(run("lab", "writers", "--runs", "20", "--only", "MT3", "-o", "json"))
    (design,) = found["designs"]
    assert (design["design"], design["as_expected"], design["first"]["seed"]) == ("MT3", True, design["took"])


def test_a_mutant_that_is_not_found_is_1_and_an_unknown_one_3(run: Run) -> None:
    assert run("lab", "writers", "--runs", "1", "--seed", "3", "--only", "MT10").exit_code == 1
    result = run("lab", "writers", "--only", "MT99")
    assert result.exit_code == 3
    assert "onceonly lab writers --only MT1" in result.stderr
