"""What a newcomer does in the first hour, in fresh environments outside of the checkout: ``make first-hour``.

Builds sdist and wheels. For each Python: installs as the README says, in the unpacked sdist. Then runs the blocks of
README, tutorial and the pages of "Write" that need no server, kills the README's program once and starts it again, and
lets pip resolve each install that pages and messages print.

A block is left out for its label or for a name that no block before it defines; each is printed with the reason. A
Python that is missing is named and skipped; with ``REQUIRE_PYTHONS=1`` it fails.
"""

from __future__ import annotations

import argparse
import email
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.first_hour_plan import PYTHONS, candidates, commands, drawn, pages, plan, printed_installs, with_wheel
from tests.test_docs import FILE, ROOT, blocks

LAB = ROOT / "src" / "onceonly_lab"
PAGE = Path(__file__).with_name("first_hour_page.py")
RESULT = ROOT / "docs" / "first-hour.json"
MOMENTS = {
    "after Spark planned the batch": ("shop/checkpoint/offsets/0", ""),
    "after the commit of the sink": ("shop/orders/_delta_log/*.json", '"add"'),
}
"""When the program is killed: as soon as such a file has this word. The commit and the Python draw one."""

_OURS = ("PYTHON", "PIP_", "PYTEST", "PYSPARK", "SPARK", "ONCEONLY", "VIRTUAL_ENV", "CONDA", "COV", "PYENV_VERSION")
_ROWS = """
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
orders = DeltaTable("shop/orders").to_pyarrow_dataset(filesystem=SubTreeFileSystem("shop/orders", LocalFileSystem()))
print(orders.to_table().sort_by("id")["id"].to_pylist())
"""
_HINTS = """
from importlib.metadata import metadata
from onceonly_checkpoints.install import hint
print(*map(hint, [*(metadata("onceonly").get_all("Provides-Extra")), "lab", "demo"]), sep="\\n")
"""
_FILES = """
from importlib.metadata import files
print(*(file for file in files("onceonly") if ".dist-info" not in str(file) and file.suffix != ".pyc"), sep="\\n")
"""


class Failed(Exception):
    """A step did not do what the page says."""


# ---- Which Python.


def find_python(version: str) -> str | None:
    """The first candidate that answers with this version, one that ``uv`` knows, or the running one."""
    folder = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    places = candidates(version, os.environ, Path(folder))
    if uv := shutil.which("uv"):
        places.append(output(uv, "python", "find", version))
    places.append(sys.executable)
    return next((place for place in places if place and version_of(place) == version), None)


def output(*command: str) -> str:
    """What a program prints, without the line's end. Empty if there is none, or it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if run.returncode else run.stdout.strip()


def version_of(python: str) -> str:
    """Minor version of an interpreter, empty for none."""
    return output(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")


# ---- One Python.


@dataclass
class Outcome:
    """What one Python came to. Seconds to the first commit include the install; packages are all but pip."""

    python: str
    install_s: float = 0
    first_commit_s: float = 0
    mb: int = 0
    packages: int = 0
    blocks: int = 0
    left_out: int = 0
    installs: int = 0


@dataclass(frozen=True)
class Newcomer:
    """Fresh environments of one Python, with what was built."""

    folder: Path
    clone: Path
    wheels: Path

    @property
    def bin(self) -> Path:
        """Programs of the environment."""
        return self.folder / "venv" / "bin"

    def environment(self, *, activated: bool = True) -> dict[str, str]:
        """Variables without those that lead to the checkout or to another Spark."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        return {**kept, "PATH": f"{self.bin}{os.pathsep}{kept['PATH']}" if activated else kept["PATH"]}

    def desk(self, name: str) -> Path:
        """An empty folder."""
        made = self.folder / name
        made.mkdir()
        return made

    def run(self, *command: str, cwd: Path, activated: bool = True, checked: bool = True) -> str:
        """Run a program; return what it printed. Raises :class:`Failed` unless it ends with 0 or is not checked."""
        environment = self.environment(activated=activated)
        run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        if checked and run.returncode:
            raise Failed(f"{shlex.join(command)}: exit code {run.returncode}\n{(run.stdout + run.stderr)[-4000:]}")
        return run.stdout if checked else run.stdout + run.stderr


def visit(newcomer: Newcomer, python: str, commit: str) -> Outcome:
    """Install, follow the pages, kill, and resolve what is printed."""
    made = Outcome(output(python, "-c", "import platform; print(platform.python_version())"))
    newcomer.folder.mkdir()
    newcomer.run(python, "-m", "venv", str(newcomer.folder / "venv"), cwd=newcomer.folder, activated=False)
    readme = readme_of(newcomer.wheels)
    install(newcomer, readme, made)
    for name, text in [("README.md", readme), *((str(page.relative_to(ROOT)), page.read_text()) for page in pages())]:
        follow(newcomer, name, text, made)
    [program] = [block.code for block in blocks(readme) if FILE.fullmatch(block.info)]
    be_a_program(newcomer, program, made)
    be_killed(newcomer, program, drawn(list(MOMENTS), f"{int(commit or '0', 16) + int(minor(made.python)[2:]):x}"))
    resolve(newcomer, made)
    return made


def readme_of(wheels: Path) -> str:
    """The README as an index would show it."""
    [wheel] = wheels.glob("onceonly-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return str(email.message_from_bytes(archive.read(metadata)).get_payload(decode=True), "utf-8")


def install(newcomer: Newcomer, readme: str, made: Outcome) -> None:
    """Run the README's first install, and compare the installed files with the wheel's."""
    [command] = commands(next(block.code for block in blocks(readme) if "pip install" in block.code))
    began = time.monotonic()
    newcomer.run("sh", "-c", command, cwd=newcomer.clone)
    made.install_s = round(time.monotonic() - began, 1)
    packages = next((newcomer.folder / "venv" / "lib").glob("python*/site-packages"))
    made.mb = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) // 1_000_000
    made.packages = len([*packages.glob("*.dist-info")]) - len(
        [*packages.glob("pip-*"), *packages.glob("setuptools-*")]
    )
    [wheel] = newcomer.wheels.glob("onceonly-*.whl")
    built = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    installed = set(newcomer.run("python", "-c", _FILES, cwd=newcomer.folder).split()) - {"../../../bin/onceonly"}
    if built != installed:
        raise Failed(f"installed files are not those of the wheel: {sorted(built ^ installed)[:10]}")


def follow(newcomer: Newcomer, name: str, text: str, made: Outcome) -> None:
    """Run a page's blocks in an empty folder, in order."""
    desk = newcomer.desk(re.sub(r"\W", "-", name))
    path = newcomer.environment()["PATH"]
    planned = plan(text, desk, newcomer.clone, lambda program: bool(shutil.which(program, path=path)))
    for line, reason in planned.left_out:
        print(f"{name}:{line}: left out, {reason}")
    made.blocks += len(planned.steps)
    made.left_out += len(planned.left_out)
    if not planned.steps:
        return
    steps, runner = newcomer.folder / f"{desk.name}.json", newcomer.folder / PAGE.name
    steps.write_text(json.dumps({"name": name, "steps": planned.steps}))
    shutil.copy(PAGE, runner)
    newcomer.run("python", str(runner), str(steps), cwd=desk)
    print(f"{name}: {len(planned.steps)} blocks ran", flush=True)


def be_a_program(newcomer: Newcomer, program: str, made: Outcome) -> None:
    """Run the program by its interpreter, whose folder is not on the path: workers may then be of another Python."""
    desk = newcomer.desk("program")
    (desk / "shop.py").write_text(program + "\n")
    began = time.monotonic()
    printed = newcomer.run(str(newcomer.bin / "python"), "shop.py", cwd=desk, activated=False, checked=False)
    made.first_commit_s = round(made.install_s + time.monotonic() - began, 1)
    if "[ONCE-E" in printed and "ModuleNotFoundError" not in printed:
        print("the program without its environment on the path: refused by name")
        return
    expect_rows(newcomer, desk, printed)


def be_killed(newcomer: Newcomer, program: str, moment: str) -> None:
    """SIGKILL driver and JVM at a moment of the first epoch. Another run must make it exact."""
    desk = newcomer.desk("killed")
    (desk / "shop.py").write_text(program + "\n")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    driver = subprocess.Popen(["python", "shop.py"], cwd=desk, env=newcomer.environment(), **quiet)  # type: ignore[call-overload]
    pattern, word = MOMENTS[moment]
    while driver.poll() is None and not any(word in path.read_text() for path in desk.glob(pattern)):
        time.sleep(0.005)
    if driver.poll() is not None:
        raise Failed(f"the program ended before it could be killed {moment}")
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    finished = (desk / "shop/checkpoint/commits/0").exists()
    newcomer.run("python", "shop.py", cwd=desk)
    audit = newcomer.run("onceonly", "audit", "--ledger", "shop/checkpoint.onceonly.db", cwd=desk)
    if not audit.startswith("EXACTLY ONCE"):
        raise Failed(f"after a kill {moment}:\n{audit}")
    expect_rows(newcomer, desk, audit)
    print(
        f"killed {moment}, Spark's record of the batch {'was' if finished else 'was not'} there: exact after a restart"
    )


def expect_rows(newcomer: Newcomer, desk: Path, printed: str) -> None:
    """Each row of the README's program is in the table once. Raises :class:`Failed`."""
    rows = newcomer.run("python", "-c", _ROWS, cwd=desk, checked=False).strip()
    if not rows.endswith("[1, 2]"):
        raise Failed(f"rows are {rows[-500:]}\n{printed[-3000:]}")


def resolve(newcomer: Newcomer, made: Outcome) -> None:
    """Let pip resolve each printed install without installing it: of pages, of messages here and beside wheels."""
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", LAB / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [*printed_installs(path.read_text() for path in texts)]
    found += newcomer.run("python", "-c", _HINTS, cwd=newcomer.folder).splitlines()
    bare = newcomer.folder / "bare"
    newcomer.run("python", "-m", "venv", str(bare), cwd=newcomer.folder)
    [wheel] = newcomer.wheels.glob("onceonly-*.whl")
    newcomer.run(str(bare / "bin" / "pip"), "install", "--quiet", "--no-deps", str(wheel), cwd=newcomer.folder)
    found += newcomer.run(str(bare / "bin" / "python"), "-c", _HINTS, cwd=newcomer.folder).splitlines()
    for command in dict.fromkeys(found):
        if not command.startswith("pip install "):
            raise Failed(f"not a command: {command}")
        here = with_wheel(command, wheel)
        newcomer.run("sh", "-c", f"{here} --dry-run --quiet", cwd=newcomer.clone)
        made.installs += 1


# ---- All.


def build(folder: Path) -> tuple[Path, Path]:
    """Build sdist and wheels; return the unpacked sdist and the folder of the wheels."""
    wheels = folder / "dist"
    common = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(wheels)]
    for command in ([*common, str(ROOT)], [*common, "--wheel", str(LAB)]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    [archive] = wheels.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        sdist.extractall(folder / "clone", filter="data")
    [clone] = (folder / "clone").iterdir()
    return clone, wheels


def keep(outcomes: Sequence[Outcome]) -> None:
    """Write figures down, those of the Pythons that did not run stay."""
    kept = {minor(one["python"]): one for one in (json.loads(RESULT.read_text()) if RESULT.exists() else [])}
    kept |= {minor(one.python): asdict(one) for one in outcomes}
    RESULT.write_text(
        json.dumps([kept[name] for name in sorted(kept, key=lambda name: int(name[2:]))], indent=1) + "\n"
    )


def minor(version: str) -> str:
    """``3.11`` of ``3.11.7``."""
    return version.rpartition(".")[0]


def main() -> int:
    """Visit one Python or all, and print what it came to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="each Python; keeps the figures in docs/first-hour.json")
    parser.add_argument("--python", choices=PYTHONS, help="this one, instead of one drawn by the commit")
    options = parser.parse_args()
    commit = output("git", "-C", str(ROOT), "rev-parse", "HEAD")
    found = {version: path for version in PYTHONS if (path := find_python(version))}
    missing = [version for version in PYTHONS if version not in found]
    for version in missing:
        print(f"Python {version}: skipped, none here; name one in ONCEONLY_PYTHON_{version.replace('.', '_')}")
    chosen = list(found) if options.all else [options.python or drawn(list(found), commit)]
    outcomes, failures = [], 0
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        clone, wheels = build(Path(folder))
        for version in chosen:
            print(f"Python {version}, by commit {commit[:12]}", flush=True)
            try:
                outcomes.append(visit(Newcomer(Path(folder) / version, clone, wheels), found[version], commit))
            except Failed as failure:
                print(f"Python {version}: FAILED\n{failure}")
                failures += 1
            shutil.rmtree(Path(folder) / version, ignore_errors=True)
    for outcome in outcomes:
        print(", ".join(f"{name} {value}" for name, value in asdict(outcome).items()))
    if options.all and outcomes:
        keep(outcomes)
    return int(bool(failures or (missing and os.environ.get("REQUIRE_PYTHONS") == "1")))


if __name__ == "__main__":
    sys.exit(main())
