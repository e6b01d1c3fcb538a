"""Builds both wheels and demands that each holds every file of its packages and nothing else.

So the library's brings no fixture, no mutant and no server.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Wheel:
    """One distribution.

    Attributes:
        name: of the distribution.
        project: folder of its ``pyproject.toml``.
        packages: folders that it ships, below the root.
        endings: a wheel without files of these kinds is not whole.
        beside: files of the packages' folders that are of the project, not of the package.
        entry_points: the groups that it publishes.
    """

    name: str
    project: str
    packages: tuple[str, ...]
    endings: tuple[str, ...]
    entry_points: frozenset[str]
    beside: frozenset[str] = frozenset()

    def expected(self) -> set[str]:
        """Files of the packages as they lie in the source tree."""
        folders = [ROOT / package for package in self.packages]
        files = {path.relative_to(folder.parent) for folder in folders for path in folder.rglob("*") if path.is_file()}
        return {path.as_posix() for path in files if "__pycache__" not in path.parts} - self.beside

    def built(self) -> tuple[set[str], set[str]]:
        """Files of the wheel without its own metadata, and the groups of entry points that it publishes."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
            subprocess.run([*command, str(ROOT / self.project)], check=True, stdout=subprocess.DEVNULL)
            (wheel,) = Path(folder).glob("*.whl")
            archive = zipfile.ZipFile(wheel)
            (published,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
            lines = archive.read(published).decode().splitlines()
        groups = {line.strip("[]") for line in lines if line.startswith("[")}
        return {name for name in archive.namelist() if ".dist-info/" not in name}, groups

    def problems(self) -> Iterator[str]:
        """What is wrong with it, one line each."""
        wanted = self.expected()
        found, groups = self.built()
        for name in sorted(wanted ^ found):
            yield f"{'not in the wheel' if name in wanted else 'only in the wheel'}: {name}"
        for ending in self.endings:
            if not any(name.endswith(ending) for name in found):
                yield f"no file ends with {ending}"
        for group in sorted(groups ^ self.entry_points):
            yield f"entry points {group}: {'not published' if group in self.entry_points else 'published'}"


LIBRARY = Wheel(
    "onceonly",
    ".",
    ("checkpoints/onceonly_checkpoints", "src/onceonly", "src/pyspark_onceonly", "sinks/onceonly_sinks"),
    (".py", ".sql", ".md", "py.typed"),
    # No pytest11: whoever installs the library gets no fixture.
    frozenset({"console_scripts", "onceonly.sinks"}),
)
LAB = Wheel(
    "onceonly-lab",
    "src/onceonly_lab",
    ("src/onceonly_lab",),
    (".py", ".json", ".j2", ".css", "py.typed"),
    frozenset({"onceonly.commands", "onceonly.mutants", "onceonly.pages"}),
    frozenset(f"onceonly_lab/{name}" for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE")),
)


def main() -> int:
    """0 if both wheels are whole."""
    whole = True
    for wheel in (LIBRARY, LAB):
        problems = list(wheel.problems())
        for problem in problems:
            print(f"{wheel.name}: {problem}")
        whole = whole and not problems
        print(f"{wheel.name}: {len(wheel.expected())} files, {'not whole' if problems else 'whole'}")
    return 0 if whole else 1


if __name__ == "__main__":
    raise SystemExit(main())
