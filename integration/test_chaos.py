"""Users' jobs under faults: a plain ``foreachBatch`` is caught, the same job with the changed line is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from integration import chaos_jobs
from tests.test_docs import README, blocks
from typer.testing import CliRunner, Result

from onceonly.cli.app import app
from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly_lab.chaos import campaign, samples
from onceonly_lab.chaos.campaign import Campaign
from onceonly_lab.chaos.coverage import covered
from onceonly_lab.chaos.result import NotExactlyOnce, NothingProven
from onceonly_lab.checker import Verdict
from onceonly_lab.model.parts import Kind
from onceonly_lab.schedule import Action, Fault, Level, Schedule

pytestmark = pytest.mark.kill

CHANGED_LINE = {"write": 'write = exactly_once(DeltaSink(env.sinks.delta("orders")))'}
"""The line of the README that a reader changes."""

DEADLY = Fault(1, Point.RETURN_BEFORE, Action.KILL)


def lab(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["lab", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def job(name: str) -> str:
    return f"integration.chaos_jobs:{name}"


def saved(schedule: Schedule, folder: Path) -> str:
    file = folder / "given.json"
    file.write_text(schedule.text)
    return str(file)


def as_a_reader_would(folder: Path, *options: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the README's test and its line for ``conftest.py`` as files of a directory of their own."""
    text = README.read_text()
    [test] = [block.code for block in blocks(text) if block.info == "python chaos"]
    [switch] = re.findall(r"`(pytest_plugins = [^`]+)`", text)
    for old, new in changes.items():
        assert CHANGED_LINE[old] in test
        test = test.replace(CHANGED_LINE[old], new)
    (folder / "conftest.py").write_text(switch)
    (folder / "test_crash_safe.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
def test_the_lines_of_the_readme_are_a_test_that_kills_drivers(tmp_path):
    # The first schedule is played whatever time it takes; more of them would hang on how fast this machine is.
    run = as_a_reader_would(tmp_path, "--chaos-budget=12s", "--chaos-at-least=1 kill")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "return.before#1 kill: CLEAN, 1 killed" in run.stdout


@pytest.mark.slow
def test_the_same_lines_catch_a_plain_foreach_batch(tmp_path):
    write = 'write = lambda df, n: df.write.format("delta").mode("append").save(path)'
    plain = f'path = env.sinks.delta("orders")\n    {write}'
    run = as_a_reader_would(tmp_path, "--chaos-budget=60s", write=plain)
    assert run.returncode == 1
    assert "NotExactlyOnce: X-DUP: No read of a sink shows a row more often than the input has it." in run.stdout


@pytest.mark.slow
def test_one_kill_shows_what_a_plain_job_doubles_and_the_wrapped_one_does_not(tmp_path):
    schedule = Schedule((Kind.DELTA,), 2, rows=20, faults=(DEADLY,))
    with campaign.staged(chaos_jobs.plain, tmp_path / "plain") as stage:
        found = Campaign(stage).replay(schedule)
    assert (found.verdict, found.anomalies, found.kills) == (Verdict.ANOMALY, ("X-DUP",), 1)
    assert set(found.witnesses) <= {str(number) for number in range(20)}
    with campaign.staged(chaos_jobs.wrapped, tmp_path / "wrapped") as stage:
        assert Campaign(stage).replay(schedule).verdict is Verdict.CLEAN


@pytest.mark.slow
def test_the_fixture_names_anomaly_witnesses_schedule_and_the_command_that_shows_it_again(chaos):
    with pytest.raises(NotExactlyOnce) as caught:
        chaos(chaos_jobs.plain, budget="90s").assert_exactly_once()
    said = str(caught.value).splitlines()
    assert said[0] == "X-DUP: No read of a sink shows a row more often than the input has it."
    assert said[1].startswith("  delta:orders: 20 rows up to 2 times; for example ")
    assert len(said[1].rpartition("example ")[2].split(", ")) <= 5
    (schedule,) = [line for line in said if line.startswith("  schedule: ")]
    assert schedule.endswith("1:return.before#1 kill")
    (again,) = [line.partition("onceonly ")[2].split() for line in said if line.startswith("  again: ")]
    replayed = CliRunner().invoke(app, again)
    assert (replayed.exit_code, "X-DUP" in replayed.stdout) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrapped", "ordered", "totals"])
def test_jobs_with_the_changed_line_hold_through_a_whole_campaign(chaos, name):
    result = chaos(getattr(chaos_jobs, name), budget="6m", seed=2)
    result.assert_exactly_once()
    assert result.kills >= 10


@pytest.mark.slow
def test_a_job_may_say_what_all_rows_of_a_look_are_together(chaos):
    torn = chaos(chaos_jobs.one_side_first, budget="2m")
    assert "X-INVARIANT" in torn.anomalies
    assert not {"X-DUP", "X-LOSS"} & {*torn.anomalies}
    whole = chaos(chaos_jobs.bank, budget="3m")
    whole.assert_exactly_once()
    assert whole.kills >= 5


@pytest.mark.slow
def test_a_mark_before_the_rows_is_found_to_lose_them(chaos):
    result = chaos(chaos_jobs.skipping, budget="3m")
    assert "X-LOSS" in result.anomalies


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), [("plain", Verdict.ANOMALY), ("wrapped", Verdict.CLEAN)])
def test_a_driver_that_wakes_up_doubles_rows_of_a_plain_job_only(name, verdict, tmp_path):
    point = Point.DISCOVER_AFTER if name == "plain" else Point.COMMIT_BEFORE
    schedule = Schedule((Kind.DELTA,), 2, rows=20, faults=(Fault(1, point, Action.PAUSE),))
    found = campaign.replay(schedule, getattr(chaos_jobs, name), tmp_path)
    assert found.verdict is verdict, str(found)


@pytest.mark.slow
def test_a_budget_that_is_over_before_anything_was_shown_is_no_green_result(chaos):
    result = chaos(samples.two_sinks, budget="1s")
    assert result.verdict is Verdict.INCONCLUSIVE
    with pytest.raises(NothingProven, match="never reached: one sink committed, one not, recovered"):
        result.assert_exactly_once()


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_chaos_test_says_in_the_summary_what_it_went_through(tmp_path, workers):
    file = tmp_path / "test_job.py"
    file.write_text(
        "from onceonly_lab.chaos import samples\n\n\n"
        "def test_job(chaos):\n"
        "    chaos(samples.two_sinks, budget='1s', seed=11)\n"
    )
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["onceonly_lab.plugin"]\n')
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stdout
    (line,) = [line for line in ran.stdout.splitlines() if "test_job.py::test_job: " in line]
    assert ", seed 11: " in line
    assert "SIGKILL" in line
    assert " cells struck (" in line


# ---- the command line


@pytest.mark.slow
def test_the_command_line_writes_what_build_servers_read(tmp_path):
    junit = tmp_path / "junit.xml"
    run = lab("run", job("plain"), "--level", "L3", "--budget", "90s", "--junit", str(junit), "-o", "json")
    assert run.exit_code == 1
    found = json.loads(run.stdout)
    assert (found["verdict"], found["schedule"]["job"]) == ("ANOMALY", job("plain"))
    assert found["struck"] == [["return.before", "kill", found["kills"]]]
    assert Xml.parse(junit).getroot().get("failures") == "1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("idle", "E117", "starts no streaming query"),
        ("unseen", "E118", "asked env.sinks for nothing"),
        ("elsewhere", "E118", "no row was in it"),
        ("nameless", "E118", "cannot be polled"),
        ("broken", "E119", "the job's own fault"),
    ],
)
def test_a_job_that_cannot_be_judged_is_named_and_is_3(name, code, said):
    run = lab("run", job(name), "--level", "L3", "--budget", "60s")
    assert (run.exit_code, run.stdout) == (3, "")
    assert f"[ONCE-{code}]" in run.stderr
    assert said in run.stderr


def test_what_cannot_be_played_is_3(tmp_path):
    asleep = Schedule((Kind.DELTA,), 1, faults=(Fault(1, Point.COMMIT_SENT, Action.PAUSE),), job=job("wrapped"))
    assert lab("replay", saved(asleep, tmp_path), "--level", "L3").exit_code == 3
    nobody = Schedule((Kind.DELTA,), 1, faults=(DEADLY,), job="integration.chaos_jobs:nobody")
    assert lab("replay", saved(nobody, tmp_path)).exit_code == 3
    assert lab("run", job("wrapped"), "--budget", "soon").exit_code == 3
    assert lab("run", "--level", "L3", "--only", "pause").exit_code == 3
    assert lab("run", job("wrapped"), "--bound", "pair").exit_code == 3


@pytest.mark.slow
def test_a_fault_that_never_came_to_act_is_2(tmp_path):
    never = Schedule((Kind.DELTA,), 1, rows=5, faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL, 9),))
    run = lab("replay", saved(Schedule.parse(never.text.replace('"job": ""', f'"job": "{job("wrapped")}"')), tmp_path))
    assert (run.exit_code, "never came to act: 1:commit.after#9 kill" in run.stdout) == (2, True)


@pytest.mark.slow
def test_real_drivers_go_through_most_of_the_matrix(tmp_path):
    real = covered(Level.WARM, None, 900, 1, tmp_path)
    assert real.failed == ()
    assert real.unpassed == ()
    assert real.matrix.share >= 0.9, "\n".join(real.matrix.lines())
    assert {(Point.COMMIT_SENT, Action.LOSE_REQUEST), (Point.COMMIT_SENT, Action.DELAY)} <= {*real.matrix.struck}
    assert real.kills > len(real.matrix.cells)


def test_a_job_is_declared_before_it_is_given():
    with pytest.raises(ConfigurationError, match="was given a function"):
        campaign.chaos(lambda env: env, Path("nowhere"))  # type: ignore[arg-type]
