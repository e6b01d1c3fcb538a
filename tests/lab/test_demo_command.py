"""The demo's options: bad ones and missing things are named before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceonly_lab.demo.command import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kills", "0"], "--kills"),
        (["--rows", "3"], "--rows"),
        (["--rows", "336777"], "--rows"),
        (["--sink", "kafka"], "--sink"),
        (["--output", "xml"], "--output"),
        (["--wrong"], "--wrong"),
        (["--windows", "--rows", "100", "--full"], "leave --rows, --full out"),
        (["--quick", "--full"], "--full: not allowed with argument --quick"),
    ],
)
def test_a_bad_option_is_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_a_folder_in_use_is_not_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert main(["--keep", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_missing_java_is_named_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["--quick"]) == 2
    captured = capsys.readouterr()
    assert "bin/java" in captured.err
    assert "apt install openjdk-17" in captured.err
    assert captured.out.startswith("CANNOT TELL")


def test_an_old_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho java.base@11.0.2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["--quick", "--output", "json", "--seed", "5"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["seed"]) == ("CANNOT TELL", 5)
    assert "is 11" in document["reason"]


def test_help_is_not_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--quick" in capsys.readouterr().out
