"""A command that a message prints installs our package and nobody else's, before a release and after."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
import tomllib

from onceonly.errors import refuse
from onceonly_checkpoints import install
from onceonly_checkpoints.install import LAB, hint, pip, requirement_of, upgrade

ROOT = Path(__file__).parents[2]
ROOMS = ("src", "sinks", "checkpoints")
OF_PEOPLE = {ROOT / "src/onceonly_lab" / name for name in ("README.md", "pyproject.toml")}

Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Installed:
    """Installs metadata of the library alone, as pip records it, into a path of this process."""
    own = [f"{line}\n" for line in metadata("Requires-Dist", "Provides-Extra", "Version")]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *without_ours(sys.path, tmp_path)])

    def install_(**record: Any) -> None:
        folder = tmp_path / "site" / "onceonly-0.1.0.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: onceonly\n" + "".join(own))
        if record:
            (folder / "direct_url.json").write_text(json.dumps(record))

    return install_


def metadata(*fields: str) -> list[str]:
    text = Distribution.from_name("onceonly").read_text("METADATA") or ""
    return [line for line in text.splitlines() if line.startswith(tuple(f"{name}:" for name in fields))]


def without_ours(path: list[str], folder: Path) -> list[str]:
    """The path with our two distributions left out."""
    return [part for part in path if not list(Path(part or ".").glob("onceonly*.dist-info"))]


def folder_of_a_clone(folder: Path) -> Path:
    """A source folder with both projects, below a name that a shell would split."""
    clone = folder / "my clone"
    for project in (clone, clone / "src" / "onceonly_lab"):
        project.mkdir(parents=True, exist_ok=True)
        (project / "pyproject.toml").touch()
    return clone


def test_a_folder_is_installed_again_with_the_extra(installed: Installed, tmp_path: Path) -> None:
    clone = folder_of_a_clone(tmp_path)
    installed(url=clone.as_uri(), dir_info={})
    assert hint("kafka") == f"pip install '{clone}[kafka]'"
    assert hint("demo") == f"pip install '{clone}/src/onceonly_lab[demo]'"
    assert hint("lab") == f"pip install '{clone}/src/onceonly_lab'"
    assert upgrade().endswith(f": update {clone}, then pip install '{clone}'")
    installed(url=clone.as_uri(), dir_info={"editable": True})
    assert hint("spark,delta") == f"pip install --editable '{clone}[spark,delta]'"
    assert hint("demo") == f"pip install --editable '{clone}/src/onceonly_lab[demo]'"


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"url": "https://example.invalid/onceonly.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
        {"url": "file:///wheels/onceonly-0.1.0-py3-none-any.whl", "archive_info": {}},
        {"url": "file:///gone", "dir_info": {}},
    ],
    ids=["index", "repository", "wheel", "deleted-folder"],
)
def test_elsewhere_the_packages_of_the_extra_are_named(
    installed: Installed, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # a project in the working directory is not the one that was installed
    installed(**record)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["kafka"]
    command, subcommand, *named = shlex.split(hint("kafka"))
    assert (command, subcommand) == ("pip", "install")
    assert [requirement_of(one).package for one in named] == [requirement_of(one).package for one in wanted]
    assert [set(requirement_of(one).pins.split(",")) for one in named] == [
        set(requirement_of(one).pins.split(",")) for one in wanted
    ]
    assert "psycopg[binary]" in hint("postgres")
    assert "pip install" not in upgrade()


def test_the_lab_is_the_wheel_beside_this_one(installed: Installed) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    installed()
    assert hint("demo") == f"pip install 'onceonly_lab-{version}-py3-none-any.whl[demo]'"
    installed(url="file:///wheels/onceonly-0.1.0-py3-none-any.whl", archive_info={})
    assert hint("lab") == f"pip install /wheels/onceonly_lab-{version}-py3-none-any.whl"


def test_after_a_release_names_of_an_index_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "RELEASED", True)
    assert hint("kafka") == "pip install 'onceonly[kafka]'"
    assert (hint("lab"), hint("demo")) == (f"pip install {LAB}", f"pip install '{LAB}[demo]'")
    assert upgrade().endswith(": pip install --upgrade onceonly")


def test_without_metadata_or_with_an_unknown_extra_no_name_is_guessed(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hint("kafka") == "install what kafka needs"
    installed()
    assert hint("warehouse") == "install what warehouse needs"


def test_a_refusal_prints_the_command_of_its_extra() -> None:
    assert refuse("E108", what="history()", package="pandas", extra="notebook").remedy.endswith(f": {hint('notebook')}")


def test_no_other_text_of_the_library_has_such_a_command() -> None:
    """Our own names may belong to others, so one module alone makes the commands."""
    texts = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".md", ".j2")]
    assert len(texts) > 300
    found = {path for path in texts if re.search(r"\bpip3? install|-m pip\b", path.read_text())} - OF_PEOPLE
    assert found == set()
    assert pip("onceonly") == "pip install onceonly"


def test_nothing_but_the_standard_library_is_imported_for_it() -> None:
    code = "import sys, onceonly_checkpoints.install; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {"sqlalchemy", "fsspec", "packaging", "onceonly"}
