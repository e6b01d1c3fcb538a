"""``onceonly lab report``: the exit codes of recheck over several histories, a table or JSON, and the page."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.cli.conftest import Run, document
from tests.cli.test_lab_command import clean, lossy, saved
from tests.lab.tale import Tale, written

from onceonly_lab.history import load
from onceonly_lab.model.parts import Kind
from onceonly_lab.schedule import Schedule


def unsettled() -> Tale:
    return written("pg")


def test_clean_runs_are_0_an_anomaly_outweighs_what_is_inconclusive(run: Run, tmp_path: Path) -> None:
    good, bad = saved(clean(), tmp_path, "good.jsonl"), saved(lossy(), tmp_path, "bad.jsonl")
    open_ = saved(unsettled(), tmp_path, "open.jsonl")
    assert run("lab", "report", good, good).exit_code == 0
    assert run("lab", "report", good, open_).exit_code == 2
    found = run("lab", "report", good, open_, bad)
    assert found.exit_code == 1
    heading, *rows = found.stdout.splitlines()
    assert heading.split() == ["history", "verdict", "called", "epochs", "rows", "reads"]
    assert [row.split()[1] for row in rows[:3]] == ["CLEAN", "INCONCLUSIVE", "ANOMALY"]
    assert rows[3] == f"{open_} is inconclusive: the history ends before the pipeline was left in peace"


def test_one_that_cannot_be_read_is_3_and_no_page_is_written(run: Run, tmp_path: Path) -> None:
    broken, page = tmp_path / "broken.jsonl", tmp_path / "report.html"
    broken.write_text("{}\n")
    found = run("lab", "report", saved(clean(), tmp_path), str(broken), "--html", str(page))
    assert (found.exit_code, found.stdout) == (3, "")
    assert "broken.jsonl: line 1: not a history of version 1" in found.stderr
    assert not page.exists()


def test_a_page_that_cannot_be_written_is_3(run: Run, tmp_path: Path) -> None:
    found = run("lab", "report", saved(clean(), tmp_path), "--html", str(tmp_path / "no" / "report.html"))
    assert (found.exit_code, found.stdout) == (3, "")


def test_the_page_is_written_beside_the_answer(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    found = run("lab", "report", saved(lossy(), tmp_path), "--html", str(page), "--output", "json")
    assert found.exit_code == 1
    assert document(found)["runs"][0]["verdict"] == "ANOMALY"
    assert f"The report is in {page}" in found.stderr
    assert "X-LOSS" in page.read_text()


def test_a_golden_run_says_what_is_right(run: Run, tmp_path: Path) -> None:
    right, wrong = saved(clean(), tmp_path, "right.jsonl"), saved(lossy(), tmp_path, "wrong.jsonl")
    assert run("lab", "report", right, "--golden", right).exit_code == 0
    assert run("lab", "report", wrong, "--golden", right).exit_code == 1


def test_a_replay_keeps_a_history_that_names_the_command_for_it(run: Run, tmp_path: Path) -> None:
    schedule, kept = tmp_path / "it's.json", tmp_path / "kept.jsonl"
    schedule.write_text(Schedule((Kind.POSTGRES,), records=2).text)
    played = run("lab", "replay", str(schedule), "--keep", str(kept))
    assert load(kept).header.again == ("replay", str(schedule))
    page = tmp_path / "report.html"
    assert run("lab", "report", str(kept), "--html", str(page)).exit_code == played.exit_code == 0
    command = shlex.join(["onceonly", "lab", "replay", str(schedule)])
    assert command.replace("'", "&#39;").replace('"', "&#34;") in page.read_text()
