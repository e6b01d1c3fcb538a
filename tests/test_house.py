"""Traps that a change can walk into without any other test noticing."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = [
    ROOT / "checkpoints/onceonly_checkpoints",
    ROOT / "src/onceonly",
    ROOT / "sinks/onceonly_sinks",
    ROOT / "src/onceonly_lab",
]
HEAVY = {"pyspark", "psycopg", "confluent_kafka", "altair", "deltalake", "pyarrow", "pandas"}


def test_no_ignore_line_can_drop_a_package_from_the_wheel() -> None:
    # hatchling leaves out what git ignores: an unanchored `checkpoints/` would empty the wheel without a word.
    lines = [line.strip() for line in (ROOT / ".gitignore").read_text().splitlines()]
    patterns = [line.rstrip("/") for line in lines if line and not line.startswith("#")]
    for source in _sources():
        path = source.relative_to(ROOT)
        hit = [pattern for pattern in patterns if _ignores(pattern, path)]
        assert not hit, f"{path} is ignored by {hit}"


def test_an_unanchored_ignore_line_would_be_found() -> None:
    path = Path("checkpoints/onceonly_checkpoints/epoch.py")
    assert _ignores("checkpoints", path)
    assert not _ignores("/epoch.py", path)


def test_no_package_holds_a_symlink() -> None:
    # hatchling does not follow a linked directory.
    links = [path for package in PACKAGES for path in [package, *package.rglob("*")] if path.is_symlink()]
    assert links == []


def test_examples_do_not_write_into_the_package_folder() -> None:
    texts = [*(ROOT / "docs" / "examples").rglob("*.py"), ROOT / "README.md"]
    assert [path for path in texts if '"checkpoints' in path.read_text() or "'checkpoints" in path.read_text()] == []


@pytest.mark.parametrize("package", ["onceonly", "onceonly.cli", "onceonly.faults", "onceonly_checkpoints.sqlledger"])
def test_importing_the_core_loads_no_driver_and_no_spark(package: str) -> None:
    # Executors and pure tools import it too, and have none of these.
    code = f"import sys, {package}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY & set(loaded) == set()


def test_the_lab_has_the_version_and_the_licence_of_the_library() -> None:
    library, lab = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in (".", "src/onceonly_lab")
    )
    assert lab["version"] == library["version"]
    pins = [pin for pin in (*lab["dependencies"], *lab["optional-dependencies"]["demo"]) if pin.startswith("onceonly")]
    assert {pin.partition("==")[2] for pin in pins} == {library["version"]}
    assert (ROOT / "src/onceonly_lab/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_library_publishes_no_pytest_plugin_and_no_word_of_the_lab() -> None:
    published = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(published) == {"onceonly.sinks"}
    assert not any("onceonly_lab" in value for group in published.values() for value in group.values())


def _sources() -> list[Path]:
    files = [path for package in PACKAGES for path in package.rglob("*") if path.is_file()]
    return [path for path in files if "__pycache__" not in path.parts]


def _ignores(pattern: str, path: Path) -> bool:
    if pattern.startswith("/"):
        above = [parent.as_posix() for parent in [path, *path.parents]]
        return any(fnmatch.fnmatch(name, pattern[1:]) for name in above)
    return any(fnmatch.fnmatch(part, pattern) for part in path.parts)
