"""The archive of a driver's classes: used where it exists, kept only when it is whole, never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceonly_lab.session.launch import JvmArchive

VARIABLE = "SPARK_SUBMIT_OPTS"


def made_path(environment: dict[str, str]) -> Path:
    """Where a driver of this environment would leave the archive."""
    (option,) = [part for part in environment[VARIABLE].split() if part.startswith("-XX:ArchiveClassesAtExit=")]
    return Path(option.partition("=")[2])


def test_without_an_archive_a_driver_is_told_of_none(tmp_path: Path) -> None:
    archive = JvmArchive("demo", cache=tmp_path)
    assert not archive.made
    assert "SharedArchiveFile" not in archive.environment()[VARIABLE]


def test_an_archive_that_was_made_is_used_from_then_on(tmp_path: Path) -> None:
    archive = JvmArchive("demo", cache=tmp_path)
    made_path(archive.making()).write_bytes(b"classes")
    archive.keep()
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.environment()[VARIABLE].split()
    assert JvmArchive("demo", cache=tmp_path).made
    assert [path.name for path in archive.path.parent.iterdir()] == [archive.path.name]


def test_a_driver_that_made_none_leaves_nothing(tmp_path: Path) -> None:
    archive = JvmArchive("demo", cache=tmp_path)
    archive.making()
    archive.keep()
    assert not archive.made
    assert list(archive.path.parent.iterdir()) == []


def test_half_an_archive_is_never_used(tmp_path: Path) -> None:
    archive = JvmArchive("demo", cache=tmp_path)
    made_path(archive.making()).write_bytes(b"cla")
    archive.discard()
    assert not archive.made
    assert list(archive.path.parent.iterdir()) == []


def test_another_class_path_or_program_has_another_archive(tmp_path: Path) -> None:
    paths = {
        JvmArchive("demo", cache=tmp_path).path,
        JvmArchive("demo", [Path("delta.jar")], cache=tmp_path).path,
        JvmArchive("test", cache=tmp_path).path,
    }
    assert len(paths) == 3


def test_options_that_the_user_gave_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "-Duser.option=1")
    assert JvmArchive("demo", cache=tmp_path).environment()[VARIABLE].startswith("-Duser.option=1 ")
