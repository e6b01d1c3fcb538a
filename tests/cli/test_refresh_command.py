"""``recover refresh``: what it shows, what it refuses, and that the next query that begins anew replaces all rows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Run, assert_answerless
from tests.core.several import Pipeline, rows
from tests.core.test_refresh_several import NEW, begins_anew, holds

from onceonly.errors import IdentityError
from onceonly_sinks.memory import MemorySink


@pytest.fixture
def three(tmp_path: Path) -> Pipeline:
    """Three sinks that hold three epochs."""
    pipeline = Pipeline(tmp_path)
    pipeline.driver().writes(1, 2, 3)
    return pipeline


def typed(pipeline: Pipeline, *more: str) -> list[str]:
    return ["recover", "refresh", "orders", "--ledger", str(pipeline.root / "ledger.db"), *more]


def test_the_printed_command_shows_the_rows_at_stake_and_then_replaces_them(run: Run, three: Pipeline) -> None:
    with pytest.raises(IdentityError) as stopped:
        begins_anew(three.driver(), 0, on_refresh="stop")
    (line,) = (line for line in str(stopped.value).splitlines() if "recover refresh" in line)
    printed = shlex.split(line.partition("onceonly ")[2])
    plan = run(*printed)
    assert plan.exit_code == 4
    assert "epochs 1..3 (3 epochs, 30 rows)" in " ".join(plan.stdout.split())
    three.holds(3)
    done = run(*printed, "--yes")
    assert done.exit_code == 0, done.output
    assert "the next query with a new checkpoint replaces the rows of epochs 1..3" in " ".join(done.stdout.split())
    begins_anew(three.driver(), 0, on_refresh="stop")
    holds(three, NEW, epochs=5, series=5)


def test_a_second_refresh_counts_the_rows_of_the_series_that_stands(run: Run, three: Pipeline) -> None:
    begins_anew(three.driver(), 0)
    plan = run(*typed(three, "--how", "replace"))
    assert "epochs 4..4 (1 epoch, 4 rows)" in " ".join(plan.stdout.split())
    done = run(*typed(three, "--how", "replace", "--yes"))
    assert "replaces the rows of epochs 4..4" in " ".join(done.stdout.split())
    assert "replace-rows of epoch 4 " in run("epochs", "show", "5", *typed(three)[3:]).stdout


@pytest.mark.parametrize("how", ["append", "generation", ""])
def test_another_way_is_refused_and_changes_nothing(run: Run, three: Pipeline, how: str) -> None:
    assert_answerless(run(*typed(three, "--how", how, "--yes")), "E110", "--how replace", "a new pipeline name")
    three.holds(3)


def test_a_pipeline_without_an_epoch_has_nothing_to_replace(run: Run, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.ledger.open()
    assert_answerless(run(*typed(pipeline, "--how", "replace", "--yes")), "E110")


def test_a_sink_that_cannot_replace_is_named_and_nobody_is_fenced_out(run: Run, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, names=("a", "b"))
    keyed = [MemorySink(f"memory:{name}", store, key="id") for name, store in pipeline.stores.items()]
    pipeline.sinks = lambda: keyed  # type: ignore[method-assign]
    driver = pipeline.driver()
    driver.writes(1, 2)
    pipeline.stores["b"].append_foreign(rows(9))
    assert_answerless(run(*typed(pipeline, "--how", "replace", "--yes")), "E247", "memory:b cannot replace")
    driver.writes(3)  # it still runs
    assert [len(list(sink.history())) for sink in keyed] == [3, 3]
