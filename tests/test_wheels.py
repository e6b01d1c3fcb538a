"""The library as a user installs it: both wheels in environments of their own, outside of the checkout.

Third parties are linked from the checkout's environment, so nothing is downloaded; pip resolves every requirement and
extra against them. Our own distributions are not among the links: they can come from the wheels alone. An environment
of one extra has links to what that extra demands, and to nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow

PIPELINE_OF_A_USER = """
import sys
from pathlib import Path

import onceonly, onceonly_checkpoints, onceonly_sinks
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import EpochRecord, Fence, Marker
from onceonly_checkpoints.ledger import Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.conformance.scenario import PIPELINE, plan
from onceonly_sinks.delta import DeltaSink

for package in (onceonly, onceonly_checkpoints, onceonly_sinks):
    assert Path(package.__file__).is_relative_to(sys.prefix), package.__file__

ledger, sink, fence = SqlLedger("ledger.db"), DeltaSink(Path("orders")), Fence(1, "a" * 32)
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
print(len(sink.recount()), sum(sink.recount().values()))
"""

SINK_OF_A_USER = """
import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages

import pyarrow as pa
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.registry import sink_class

kind, *arguments = sys.argv[1:]
made = sink_class(kind)
package = import_module(made.__module__.rpartition(".")[0])
for module in walk_packages(package.__path__, package.__name__ + "."):
    import_module(module.name)
named = dict(value.split("=") for value in arguments if "=" in value)
sink = made(*(value for value in arguments if "=" not in value), **named)
assert ArrowBatch(pa.table({"id": [1]})).digest()
print(sink.id, "with" if find_spec("pyspark") else "without", "PySpark")
"""

SINKS_WITHOUT_THEIR_EXTRA = """
from onceonly.errors import OnceOnlyError
from onceonly.protocol.registry import kinds, sink_from_address

for address in ("postgres:host=h dbname=d#orders", "delta:/lake/orders", "kafka:h:9092/orders"):
    try:
        sink_from_address(address)
    except OnceOnlyError as refused:
        print(refused.code, str(refused).rpartition("Next: ")[2])
"""

A_NEW_LEDGER = """
import sqlite3
from importlib import resources

from onceonly_checkpoints.ledger.sql import SqlLedger

scripts = sorted(resources.files("onceonly_checkpoints.ledger").joinpath("migrations").glob("*_sqlite.sql"))
ledger = SqlLedger("new.db")
ledger.open()
ledger.close()
with sqlite3.connect("new.db") as connection:
    (version,) = connection.execute("SELECT version FROM ledger_version").fetchone()
connection.close()
print(version == int(scripts[-1].name.partition("_")[0]))
"""

CONFORMANCE_OF_A_USER = """
from onceonly_lab.conformance import NotTested, SinkHarness, check
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
assert report.conforms, str(report)
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

    def install(self, *wanted: str) -> None:
        """Install from the two wheels; pip fails if a requirement is not met by what is linked."""
        self.run("python", "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(self.wheels), *wanted)


def demanded(*wanted: str) -> set[str]:
    """Names of the third parties that requirements bring along, as far as these ask for each other here."""
    found: set[tuple[str, str]] = set()

    def follow(text: str, extra: str = "") -> None:
        one = Requirement(text)
        if one.marker and not one.marker.evaluate({"extra": extra}):
            return
        for asked in ("", *one.extras):
            if (one.name, asked) not in found:
                found.add((one.name, asked))
                for further in distribution(one.name).requires or ():
                    follow(further, asked)

    for text in wanted:
        follow(text)
    return {name for name, _ in found}


def top_level(name: str) -> set[str]:
    """What a distribution has put into the folder of packages, by name."""
    files = distribution(name).files or ()
    return {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in (ROOT, ROOT / "src/onceonly_lab"):
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
        subprocess.run([*command, str(project)], check=True, stdout=subprocess.DEVNULL)
    return folder


def environment(folder: Path, wheels: Path, linked: Callable[[str], bool]) -> Environment:
    """An environment that has those third parties whose files are linked, and nothing of ours."""
    found = Environment(folder / "env", wheels, folder / "desk")
    found.desk.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(found.folder)], check=True)
    third = folder / "third"
    third.mkdir()
    for theirs in Path(sysconfig.get_path("purelib")).iterdir():
        if "onceonly" not in theirs.name and theirs.suffix != ".pth" and linked(theirs.name):
            (third / theirs.name).symlink_to(theirs)
    (packages,) = (found.folder / "lib").glob("python*/site-packages")
    (packages / "third.pth").write_text(f"{third}\n")
    found.run("python", "-c", "import onceonly", code=1)
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Environment:
    """An environment that has all third parties, and nothing of ours."""
    return environment(tmp_path_factory.mktemp("installed"), wheels, lambda name: True)


@pytest.fixture
def alone(tmp_path: Path, wheels: Path) -> Callable[..., Environment]:
    """Installs the library with some extras or none, where nothing is but what they and other requirements demand."""

    def install(extras: str, *others: str) -> Environment:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        wanted = [*project["dependencies"], *others]
        wanted += [each for extra in extras.split(",") if extra for each in project["optional-dependencies"][extra]]
        names = {file for name in demanded("pip", *wanted) for file in top_level(name)}
        found = environment(tmp_path, wheels, names.__contains__)
        found.install(f"onceonly[{extras}]" if extras else "onceonly")
        return found

    return install


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
    library.install(str(library.wheels / shlex.split(without_lab["lab"])[-1]))
    return library


def test_the_command_line_answers_as_a_script_and_as_a_module(library: Environment) -> None:
    said = library.run("onceonly", "--version").stdout
    assert re.fullmatch(r"onceonly \d+\.\d+\.\d+(?:a\d+)?\n", said)
    assert library.run("python", "-m", "onceonly", "--version").stdout == said
    assert {"audit", "doctor", "explain"} <= set(library.run("onceonly", "--help").stdout.split())


def test_every_public_name_of_the_library_can_be_imported(library: Environment) -> None:
    code = "import onceonly; print(*(getattr(onceonly, name).__name__ for name in onceonly.__all__))"
    assert "exactly_once" in library.run("python", "-c", code).stdout.split()


def test_every_kind_of_sink_is_found_and_loads(library: Environment) -> None:
    code = "from onceonly.protocol.registry import kinds, sink_class"
    code += "\nprint(*(sink_class(kind).__name__ for kind in kinds()))"
    assert library.run("python", "-c", code).stdout.split() == ["DeltaSink", "KafkaSink", "MemorySink", "PostgresSink"]


def test_the_doctor_finds_what_the_extras_bring(library: Environment) -> None:
    seen = library.run("onceonly", "doctor").stdout
    for package in ("sqlalchemy", "psycopg", "deltalake", "confluent-kafka", "pandas", "pyspark"):
        assert re.search(rf"^ok +{package} ", seen, re.MULTILINE), seen


# ---- extras by destination

SINKS = {
    "postgres": ("postgresql:///shop", "orders"),
    "delta": ("/lake/orders",),
    "kafka": ("localhost:9092", "topic=orders"),
}


@pytest.mark.parametrize("kind", SINKS)
def test_an_extra_by_itself_brings_all_that_its_sink_imports_and_no_pyspark(
    alone: Callable[..., Environment], kind: str
) -> None:
    """Nothing that the extra ``delta`` brings can replace the PySpark of a cluster."""
    said = alone(kind).run("python", "-c", SINK_OF_A_USER, kind, *SINKS[kind]).stdout
    assert said == f"{kind}:orders without PySpark\n"


def test_an_extra_that_is_missing_is_named(alone: Callable[..., Environment]) -> None:
    nothing = alone("")
    said = nothing.run("python", "-c", SINKS_WITHOUT_THEIR_EXTRA).stdout
    assert [line.partition(" ")[0] for line in said.splitlines()] == ["E108"] * len(SINKS)
    said += nothing.run("onceonly", "--version", code=2).stderr
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, line in zip((*SINKS, "cli"), said.splitlines(), strict=True):
        named = shlex.split(line.partition("pip install ")[2])
        assert {str(Requirement(one)) for one in named} == {str(Requirement(one)) for one in extras[extra]}


def test_the_command_line_needs_its_extra_alone(alone: Callable[..., Environment]) -> None:
    assert alone("cli").run("onceonly", "--version").stdout.startswith("onceonly ")


# ----


def test_a_ledger_is_made_from_the_schema_in_the_wheel(library: Environment) -> None:
    assert library.run("python", "-c", A_NEW_LEDGER).stdout == "True\n"


def test_the_jar_by_which_tasks_send_is_in_the_wheel(library: Environment) -> None:
    code = "from importlib import resources; print((resources.files('onceonly_sinks.kafka') / 'fill.jar').is_file())"
    assert library.run("python", "-c", code).stdout == "True\n"


def test_a_code_is_explained(library: Environment) -> None:
    assert library.run("onceonly", "explain", "E113").stdout.split()[:2] == ["code", "E113"]


@pytest.mark.parametrize(("word", "extra"), [("lab", ""), ("demo", "[demo]")])
def test_without_the_lab_its_words_name_the_wheel_beside_the_librarys(
    without_lab: dict[str, str], wheels: Path, word: str, extra: str
) -> None:
    [wheel] = wheels.glob("onceonly_lab-*.whl")
    wanted = shlex.quote(f"{wheel.name}{extra}")
    assert without_lab[word] == f"onceonly {word} needs onceonly-lab: pip install {wanted}\n"


def test_the_lab_runs_schedules_and_strikes_its_points_once_it_is_installed(lab: Environment) -> None:
    assert "every invariant holds" in lab.run("onceonly", "lab", "run", "--schedules", "20").stdout
    points = lab.run("onceonly", "lab", "points", "--schedules", "20").stdout
    struck, of = re.findall(r"(\d+) of (\d+) points and actions struck", points)[0]
    assert struck == of
    assert "usage: onceonly demo" in lab.run("onceonly", "demo", "--help").stdout


def test_epochs_are_written_and_the_commands_list_audit_and_draw_them(lab: Environment) -> None:
    assert lab.run("python", "-c", PIPELINE_OF_A_USER).stdout == "3 9\n"
    listed = lab.run("onceonly", "status", "--ledger", "ledger.db").stdout
    assert f"delta:{lab.desk}/orders" in listed
    audited = lab.run("onceonly", "audit", "--ledger", "ledger.db", "--html", "audit.html").stdout
    assert audited.startswith("EXACTLY ONCE  conformance\n")
    page = (lab.desk / "audit.html").read_text()
    assert "<style>" in page
    assert "<svg" in page


def test_the_conformance_suite_certifies_the_memory_sink(lab: Environment) -> None:
    assert lab.run("python", "-c", CONFORMANCE_OF_A_USER).stdout == "exactly once\n"


def test_the_pytest_plugin_is_on_only_where_it_is_named(lab: Environment) -> None:
    (lab.desk / "test_job.py").write_text("def test_it_asks_for_chaos(chaos):\n    assert callable(chaos)\n")
    pytest_ = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_job.py")
    assert "fixture 'chaos' not found" in lab.run(*pytest_, code=1).stdout
    assert "1 passed" in lab.run(*pytest_, "-p", "onceonly_lab.plugin").stdout
    (lab.desk / "conftest.py").write_text('pytest_plugins = ["onceonly_lab.plugin"]\n')
    assert "1 passed" in lab.run(*pytest_).stdout


def test_the_lab_beside_spark_and_delta_runs_the_chaos_test_of_the_readme(alone: Callable[..., Environment]) -> None:
    (job,) = re.findall(r"```python chaos\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lab = tomllib.loads((ROOT / "src/onceonly_lab/pyproject.toml").read_text())["project"]["dependencies"]
    user = alone("spark,delta,cli", *(each for each in lab if not each.startswith("onceonly")))
    user.install("onceonly-lab")
    (user.desk / "test_job.py").write_text(job)
    (user.desk / "conftest.py").write_text('pytest_plugins = ["onceonly_lab.plugin"]\n')
    assert "test_crash_safe: CLEAN" in user.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider").stdout
