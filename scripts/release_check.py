"""Build a release into dist/, check and install it, and ask a package index for the names.

``--index`` is the address of a project's JSON there, with ``{}`` for its name.

Exit status 0: ready. 1: not ready. 2: the index did not answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import tomllib

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
PROJECTS = (ROOT, ROOT / "src/onceonly_lab")


def name_state(name: str, repository: str, index: str) -> str:
    """``free``, ``ours``, ``taken`` or ``unknown``: a project is ours if it links our repository."""
    if not index:
        return "unknown: add INDEX=, the address of a project's JSON on the index, with {} for its name"
    try:
        with urllib.request.urlopen(index.format(name), timeout=20) as answer:
            urls = json.load(answer)["info"].get("project_urls") or {}
    except urllib.error.HTTPError as error:
        return "free" if error.code == 404 else "unknown"
    except (OSError, ValueError, KeyError):
        return "unknown"
    return "ours" if repository and repository in urls.values() else "taken"


def version_problems(version: str, changelog: str, tags: str) -> Iterator[str]:
    """Where a version does not fit the changelog or the tags."""
    newest = re.search(r"^## ([^\s,]+)", changelog, re.M)
    if newest is None or newest[1] != version:
        yield f"CHANGELOG.md begins with {newest[1] if newest else 'no release'}, pyproject.toml has {version}"
    if f"v{version}" in tags.split():
        yield f"v{version} is tagged already: choose another version"


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """Run a command, or end with all that it printed."""
    process = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{process.stdout}{process.stderr}")
    return process.stdout


def build() -> list[Path]:
    """Build sdists and wheels into an empty folder, each with its SHA-256."""
    shutil.rmtree(DIST, ignore_errors=True)
    for project in PROJECTS:
        run(sys.executable, "-m", "build", "--outdir", DIST, project)
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (DIST / "SHA256SUMS").write_text("".join(sums))
    return files


def install(files: list[Path]) -> str:
    """Install both wheels into a fresh environment, and return the version that the command prints."""
    wheels = [file for file in files if file.suffix == ".whl"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "venv", folder / "env")
        run(folder / "env/bin/python", "-m", "pip", "install", "--quiet", *wheels, folder=folder)
        run(folder / "env/bin/onceonly", "lab", "--help", folder=folder)
        return run(folder / "env/bin/onceonly", "--version", folder=folder).removeprefix("onceonly ").strip()


def main() -> int:
    """Print a line for each check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", default="")
    index = parser.parse_args().index
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    version, repository = settings["project"]["version"], settings["tool"]["onceonly"]["repository"]
    states = {name: name_state(name, repository, index) for name in ("onceonly", "onceonly-lab")}
    problems = [f"{name} belongs to another project on the index" for name in states if states[name] == "taken"]
    problems += version_problems(version, (ROOT / "CHANGELOG.md").read_text(), run("git", "tag"))
    if not repository:
        problems.append("[tool.onceonly] repository in pyproject.toml is empty")
    if changed := run("git", "status", "--porcelain"):
        problems.append(f"the checkout has changes:\n{changed}")
    print(*(f"name {name}: {state}" for name, state in states.items()), sep="\n", flush=True)
    files = build()
    print(f"built {len(files)} files of {version} into dist/, with SHA256SUMS", flush=True)
    installed = install(files)
    print(f"installed {installed} into a fresh environment")
    if installed != version:
        problems.append(f"the installed command has version {installed}, pyproject.toml has {version}")
    print("".join(f"not ready: {problem}\n" for problem in problems), end="")
    return 1 if problems else 2 if any(state.startswith("unknown") for state in states.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
