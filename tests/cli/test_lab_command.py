"""``onceonly lab recheck``: four exit codes, data on stdout, the same verdict as a table, as JSON and as JUnit XML."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from tests.cli.conftest import Run, document
from tests.lab.tale import Tale, without, written

from onceonly_lab.checker import Anomaly
from onceonly_lab.history import Kind, Op, Row, Situation


def saved(tale: Tale, folder: Path, name: str = "history.jsonl") -> str:
    path = folder / name
    path.write_text(tale.history.text, encoding="utf-8")
    return str(path)


def clean() -> Tale:
    tale = written("pg")
    tale.end()
    return tale


def lossy() -> Tale:
    tale = written("pg")
    tale.end(pg={"rows": without(tale.held["pg"], "a2", "b2")})
    return tale


def test_a_clean_run_is_0(run: Run, tmp_path: Path) -> None:
    result = run("lab", "recheck", saved(clean(), tmp_path))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["a tale", "CLEAN (2 epochs, 4 rows in, 2 reads)"]
    assert result.stderr == ""


def test_an_anomaly_is_1_with_its_promise_and_its_evidence(run: Run, tmp_path: Path) -> None:
    result = run("lab", "recheck", saved(lossy(), tmp_path))
    assert result.exit_code == 1
    promise, heading, row, verdict = result.stdout.splitlines()[1:]
    assert promise == "X-LOSS: Every row of the input is in every sink that it is for at the end."
    assert heading.split() == ["anomaly", "sink", "epoch", "what", "was", "seen", "rows", "lines"]
    assert " ".join(row.split()) == "X-LOSS pg 2 2 rows of epoch 2 missing at the end a2, b2 25"
    assert verdict == "ANOMALY: X-LOSS (2 epochs, 4 rows in, 2 reads)"


def test_what_proves_nothing_is_2(run: Run, tmp_path: Path) -> None:
    tale = written("pg", requires=(Situation.ZOMBIE,))
    tale.end()
    result = run("lab", "recheck", saved(tale, tmp_path))
    assert result.exit_code == 2
    assert "inconclusive: never reached: zombie blocked" in result.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "line 1: the history is empty"), ('{"history":1,"sinks":[]}\n{}\n', "line 2: no 'actor'")],
)
def test_what_cannot_be_read_is_3_and_names_its_line(run: Run, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(text)
    result = run("lab", "recheck", str(path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"broken.jsonl: {words}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [["missing.jsonl"], [], ["--nonsense"], ["h", "--golden", "missing"], ["h", "--junit", "/"]]
)
def test_misuse_is_3(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    path = saved(clean(), tmp_path)
    result = run("lab", "recheck", *[path if argument == "h" else argument for argument in arguments])
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr
    assert "Traceback" not in result.stderr


def test_a_history_that_asks_for_an_unknown_anomaly_is_3(run: Run, tmp_path: Path) -> None:
    tale = written("pg")
    tale.say("judge", Kind.FAIL, Op.ASSERTION, anomaly="X-FOO")
    result = run("lab", "recheck", saved(tale, tmp_path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert "there is no anomaly 'X-FOO'" in result.stderr


def test_a_command_of_the_lab_that_does_not_exist_is_3(run: Run) -> None:
    assert run("lab", "nonsense").exit_code == 3


def test_json_has_the_findings_with_their_lines(run: Run, tmp_path: Path) -> None:
    result = run("lab", "recheck", saved(lossy(), tmp_path), "--output", "json")
    assert result.exit_code == 1
    found = document(result)
    assert (found["verdict"], found["run"]) == ("ANOMALY", "a tale")
    (finding,) = found["findings"]
    assert finding == {
        "anomaly": "X-LOSS",
        "must_hold": "Every row of the input is in every sink that it is for at the end.",
        "sink": "pg",
        "epoch": 2,
        "what": "2 rows of epoch 2 missing at the end",
        "witnesses": ["a2", "b2"],
        "lines": [25],
    }
    assert json.loads(lossy().history.text.splitlines()[24])["kind"] == "read"


def test_a_golden_run_decides_what_is_right(run: Run, tmp_path: Path) -> None:
    tale, golden = Tale("pg").promising("pg", keeps=False), Tale("pg")
    tale.end(pg={"rows": [Row("k", value="3")], "markers": None}, ledger={"markers": None})
    golden.end(pg={"rows": [Row("k", value="4")], "markers": None}, ledger={"markers": None})
    path, right = saved(tale, tmp_path), saved(golden, tmp_path, "golden.jsonl")
    assert run("lab", "recheck", path).exit_code == 2
    assert run("lab", "recheck", path, "--golden", right).exit_code == 1
    assert run("lab", "recheck", path, "--golden", path).exit_code == 0


def test_junit_has_a_case_per_anomaly_and_one_for_the_run(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    assert run("lab", "recheck", saved(lossy(), tmp_path), "--junit", str(path)).exit_code == 1
    suite = Xml.parse(path).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("20", "1", "0")
    cases = {case.get("name", ""): case for case in suite}
    assert [name.partition(":")[0] for name in cases][:-1] == [str(anomaly) for anomaly in Anomaly]
    (failed,) = [name for name, case in cases.items() if case.find("failure") is not None]
    assert failed == "X-LOSS: Every row of the input is in every sink that it is for at the end."
    assert cases[failed][0].text == "sink pg; epoch 2; rows a2, b2; lines 25"


def test_junit_takes_any_text_and_shows_what_is_missing(run: Run, tmp_path: Path) -> None:
    tale = written("pg", requires=(Situation.SPLIT,))
    tale.end(pg={"rows": [*tale.held["pg"], Row("<&\x00'\"")]})
    path = tmp_path / "junit.xml"
    run("lab", "recheck", saved(tale, tmp_path), "--junit", str(path))
    suite = Xml.parse(path).getroot()
    assert [(failure.text or "").split("; ")[1] for failure in suite.iter("failure")] == ["rows <&\ufffd'\""]
    assert [error.get("message") for error in suite.iter("error")] == [
        "never reached: one sink committed, one not, recovered"
    ]
