"""The library as a user installs it: both wheels in an environment of their own, outside of the checkout.

Third parties are linked from the checkout's environment, so nothing is downloaded; pip resolves every requirement and
extra against them. Our own distributions are not among the links: they can come from the wheels alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.long

PIPELINE_OF_A_USER = """
import sys
from pathlib import Path

import onceonly, onceonly_checkpoints, onceonly_sinks
from onceonly.audit import gather, judge, page
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import EpochRecord, Fence, Marker
from onceonly_checkpoints.ledger import Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.conformance.story import PIPELINE, plan
from onceonly_sinks.memory import MemorySink

for package in (onceonly, onceonly_checkpoints, onceonly_sinks):
    assert Path(package.__file__).is_relative_to(sys.prefix), package.__file__

ledger, sink, fence = SqlLedger("ledger.db"), MemorySink(), Fence(1, "a" * 32)
ledger.open()
sink.open(PIPELINE)
sink.install(fence)
sink.position(None)
ledger.enter(Pipeline(PIPELINE, ((sink.id, sink.address),), "query", "file:/checkpoint", 1, 1))
epoch = None
for _ in range(3):
    planned = plan(epoch, sink.id)
    epoch = planned.epoch
    prepared = sink.prepare(ArrowBatch(planned.table), epoch.number)
    receipt = sink.commit(prepared, Marker(PIPELINE, sink.id, fence, epoch))
    ledger.record(EpochRecord(PIPELINE, fence, epoch, (receipt,)))
facts = gather(ledger, PIPELINE, [sink])
result = judge(facts)
page.write(Path("audit.html"), [(facts, result)], page.Taken.now())
print(result.verdict.name, len(sink.rows()))
"""

LEDGER_OF_THE_FIRST_VERSION = """
import sqlite3
from importlib import resources

from onceonly_checkpoints.ledger.sql import SqlLedger

scripts = sorted(resources.files("onceonly_checkpoints.ledger").joinpath("migrations").glob("*_sqlite.sql"))
with sqlite3.connect("old.db") as connection:
    connection.executescript(scripts[0].read_text())
connection.close()
ledger = SqlLedger("old.db")
ledger.open()
ledger.close()
with sqlite3.connect("old.db") as connection:
    (version,) = connection.execute("SELECT version FROM ledger_version").fetchone()
connection.close()
print(version == int(scripts[-1].name.partition("_")[0]))
"""

CONFORMANCE_OF_A_USER = """
from onceonly_sinks.conformance import NotTested, SinkHarness, check
from onceonly_sinks.memory import MemorySink, MemoryStore


class Harness(SinkHarness):
    def __init__(self):
        self.store = MemoryStore()

    def connect(self):
        return MemorySink(store=self.store)

    def rows(self):
        return self.store.table().to_pylist()

    def start_method(self):
        raise NotTested("The store lives in this process and ends with it.")

    def maintain(self):
        self.store.clean_up()

    def another(self):
        return type(self)()


report = check(Harness)
assert report.conforms, report
print(report.certified)
"""


@dataclass(frozen=True)
class Environment:
    """A fresh virtual environment, and an empty directory to work in."""

    folder: Path
    wheels: Path
    desk: Path

    def run(self, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment at the desk; no variable of the test's own leads back to the checkout."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "COV"))}
        program, *arguments = command
        result = subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            check=False,
            cwd=self.desk,
            env={**ours, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "COLUMNS": "200"},
            capture_output=True,
            text=True,
        )
        assert result.returncode == code, result.stdout + result.stderr
        return result

    def install(self, wanted: str) -> None:
        """Install from the two wheels; pip fails if a requirement is not met by what is linked."""
        self.run("python", "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(self.wheels), wanted)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that has third parties, and nothing of ours."""
    folder = tmp_path_factory.mktemp("installed")
    found = Environment(folder / "env", folder / "wheels", folder / "desk")
    found.desk.mkdir()
    for project in (ROOT, ROOT / "src/onceonly_lab"):
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(found.wheels)]
        subprocess.run([*command, str(project)], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(found.folder)], check=True)
    third = folder / "third"
    third.mkdir()
    for theirs in Path(sysconfig.get_path("purelib")).iterdir():
        if "onceonly" not in theirs.name and theirs.suffix != ".pth":
            (third / theirs.name).symlink_to(theirs)
    (packages,) = (found.folder / "lib").glob("python*/site-packages")
    (packages / "third.pth").write_text(f"{third}\n")
    found.run("python", "-c", "import onceonly", code=1)
    return found


@pytest.fixture(scope="module")
def library(bare: Environment) -> Environment:
    """The library with its extras, and without the lab."""
    bare.install("onceonly[spark,postgres,delta,kafka,cli,notebook,report,metrics]")
    return bare


@pytest.fixture(scope="module")
def without_lab(library: Environment) -> dict[str, str]:
    """What the words of the lab say before it is installed."""
    return {word: library.run("onceonly", word, code=2).stderr for word in ("lab", "demo")}


@pytest.fixture(scope="module")
def lab(library: Environment, without_lab: dict[str, str]) -> Environment:
    """The library, and the lab beside it."""
    library.install("onceonly-lab")
    return library


def test_the_command_line_answers_as_a_script_and_as_a_module(library: Environment) -> None:
    said = library.run("onceonly", "--version").stdout
    assert re.fullmatch(r"onceonly \d+\.\d+\.\d+\n", said)
    assert library.run("python", "-m", "onceonly", "--version").stdout == said
    assert {"audit", "doctor", "explain"} <= set(library.run("onceonly", "--help").stdout.split())


def test_every_public_name_of_the_library_can_be_imported(library: Environment) -> None:
    code = "import onceonly; print(*(getattr(onceonly, name).__name__ for name in onceonly.__all__))"
    assert "exactly_once" in library.run("python", "-c", code).stdout.split()


def test_every_kind_of_sink_is_found_and_loads(library: Environment) -> None:
    code = "from onceonly.protocol.registry import kinds, sink_class"
    code += "\nprint(*(sink_class(kind).__name__ for kind in kinds()))"
    assert library.run("python", "-c", code).stdout.split() == ["DeltaSink", "KafkaSink", "MemorySink", "PostgresSink"]


def test_epochs_are_written_recorded_audited_and_drawn(library: Environment) -> None:
    assert library.run("python", "-c", PIPELINE_OF_A_USER).stdout == "EXACTLY_ONCE 9\n"
    page = (library.desk / "audit.html").read_text()
    assert "<style>" in page
    assert "<svg" in page


def test_a_ledger_of_the_first_version_is_migrated_to_the_newest(library: Environment) -> None:
    assert library.run("python", "-c", LEDGER_OF_THE_FIRST_VERSION).stdout == "True\n"


def test_a_code_is_explained(library: Environment) -> None:
    assert library.run("onceonly", "explain", "E203").stdout.startswith("code            E203\n")


def test_the_conformance_suite_certifies_the_memory_sink(library: Environment) -> None:
    assert library.run("python", "-c", CONFORMANCE_OF_A_USER).stdout == "exactly once\n"


@pytest.mark.parametrize(("word", "wanted"), [("lab", "onceonly-lab"), ("demo", "'onceonly-lab[demo]'")])
def test_without_the_lab_its_words_say_how_to_get_it(without_lab: dict[str, str], word: str, wanted: str) -> None:
    assert without_lab[word] == f"onceonly {word} needs the package onceonly-lab: pip install {wanted}\n"


def test_the_lab_runs_schedules_once_it_is_installed(lab: Environment) -> None:
    assert "every invariant holds" in lab.run("onceonly", "lab", "run", "--schedules", "20").stdout
    assert "usage: onceonly demo" in lab.run("onceonly", "demo", "--help").stdout


def test_the_pytest_plugin_is_on_only_where_it_is_named(lab: Environment) -> None:
    (lab.desk / "test_job.py").write_text("def test_it_asks_for_chaos(chaos):\n    assert callable(chaos)\n")
    pytest_ = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_job.py")
    assert "fixture 'chaos' not found" in lab.run(*pytest_, code=1).stdout
    assert "1 passed" in lab.run(*pytest_, "-p", "onceonly_lab.plugin").stdout
    (lab.desk / "conftest.py").write_text('pytest_plugins = ["onceonly_lab.plugin"]\n')
    assert "1 passed" in lab.run(*pytest_).stdout
