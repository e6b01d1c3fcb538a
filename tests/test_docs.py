"""Every Python block of the documentation runs (those that need Spark: elsewhere), and every test it names exists."""

import ast
import doctest
import importlib
import inspect
import json
import logging
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from onceonly import exactly_once
from onceonly.cli.app import app
from onceonly_lab.explorer.bounds import BOUNDS
from onceonly_sinks.postgres import head
from onceonly_sinks.postgres.head import Visibility

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted([README, *(ROOT / "docs").rglob("*.md")])
DECISIONS = ROOT / "docs" / "decisions"
FENCE = re.compile(r"^```(?P<info>.*)$")
KNOWN = {"python", "python spark", "python chaos"}
"""Info strings of Python blocks: run here, run where there is a Spark session, run as a chaos test."""

UNTRIED = "python untried"
"""Info string of Python that no test runs as printed; its page says so."""

FILE = re.compile(r'python title="(?P<path>\w+\.py)"')
"""Info string of a module of the reader's own, which later blocks and commands import."""

SQL = "sql postgres"
"""Info string of statements that are run in the database that the page calls ``dsn``, by its owner."""

CONSOLE = "console"
"""Info string of blocks with commands behind ``$`` and what they print; ``...`` stands for anything."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        info: what stands after the opening fence.
        line: line number of the opening fence.
        code: the text between the fences.
    """

    info: str
    line: int
    code: str

    @property
    def padded(self) -> str:
        """The code behind as many empty lines as stand before it, so that tracebacks name lines of the page."""
        return "\n" * self.line + self.code


def blocks(text: str) -> Iterator[Block]:
    opened: tuple[str, int] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, inside = (fence["info"].strip(), number), []
        elif fence and not fence["info"].strip():
            yield Block(*opened, "\n".join(inside))
            opened = None
        else:
            inside.append(line)
    assert opened is None, f"the block of line {opened[1]} is never closed"


def runnable(page: Path) -> list[Block]:
    """Blocks that run without Spark; what a console shows on a page with Spark comes of what Spark wrote."""
    found = list(blocks(page.read_text()))
    kinds = {"python"} if any(block.info == "python spark" for block in found) else {"python", CONSOLE}
    return [block for block in found if block.info in kinds]


def converse(block: Block) -> None:
    """Run the commands of a console block, and compare what they print with what the page shows."""
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        program, *arguments = shlex.split(line)
        assert program == "onceonly", line
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in (0, 1), f"line {block.line}: {line}\n{result.output}"
        alike = doctest.OutputChecker().check_output(
            expected.strip() + "\n", result.output.strip() + "\n", doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
        assert alike, f"line {block.line}: {line}\n{result.output}"


@contextmanager
def logging_left_as_found() -> Iterator[None]:
    """A page sets logging up for its reader's process; the tests that come after it have one process with it."""
    loggers = [logging.getLogger(), logging.getLogger("onceonly"), logging.getLogger("onceonly_sinks")]
    found = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    try:
        yield
    finally:
        for one, level, handlers in found:
            one.setLevel(level)
            one.handlers[:] = handlers


@contextmanager
def modules_of_the_reader() -> Iterator[None]:
    """What a page writes into modules can be imported by the rest of it, as from its reader's directory."""
    path, known, bytecode = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(Path.cwd()))
    sys.dont_write_bytecode = True  # two versions of one second are told apart by their size alone
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        for one in set(sys.modules) - known:
            if getattr(sys.modules[one], "__file__", None) == str(Path.cwd() / f"{one}.py"):
                del sys.modules[one]


def write_module(path: str, code: str) -> None:
    """Have the module be this one at its next import, whatever was imported before."""
    Path(path).write_text(f"{code}\n")
    sys.modules.pop(Path(path).stem, None)
    importlib.invalidate_caches()


def run(page: Path, found: list[Block], given: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Run the blocks of a page one after the other in one module, as a reader would; return the names it ends with."""
    module = ModuleType(f"docs_{page.stem.replace('-', '_')}")
    module.__dict__.update(given or {})
    sys.modules[module.__name__] = module
    with logging_left_as_found(), modules_of_the_reader():
        try:
            for block in found:
                if file := FILE.fullmatch(block.info):
                    write_module(file["path"], block.code)
                elif block.info == CONSOLE:
                    converse(block)
                elif block.info == SQL:
                    with psycopg.connect(module.__dict__["dsn"], autocommit=True) as owner:
                        owner.execute(block.code.encode())
                else:
                    exec(compile(block.padded, str(page), "exec"), module.__dict__)
        finally:
            del sys.modules[module.__name__]
    return module.__dict__


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page) and page != README], ids=name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, runnable(page))


def test_every_python_block_says_whether_it_needs_spark() -> None:
    unknown = [
        f"{name(page)}:{block.line}: {block.info}"
        for page in PAGES
        for block in blocks(page.read_text())
        if block.info.startswith("py") and block.info not in {*KNOWN, UNTRIED} and not FILE.fullmatch(block.info)
    ]
    assert unknown == []


def test_links_between_pages_lead_somewhere() -> None:
    missing = [
        f"{name(page)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert missing == []


def test_the_list_of_decisions_has_each_page_with_its_title() -> None:
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    listed, _, before = (DECISIONS / "README.md").read_text().partition("## Numbers before the merge")
    titles = {page.name: page.read_text().partition("\n")[0].removeprefix("# ") for page in pages}
    rows = [f"| {name[:4]} | [{title}]({name}) |" for name, title in titles.items()]
    assert [line for line in listed.splitlines() if re.match(r"\| \d", line)] == rows
    first = re.findall(r"^\| \d{4} \| \[\d{4}\]\(([^)]+)\).* \| (.+) \|$", before, re.M)
    assert first
    assert [(name, title) for name, title in first if titles.get(name) != title] == []


def test_a_block_that_fails_is_noticed_at_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nfine = 1\n```\n\n```python\nassert fine == 2\n```\n")
    with pytest.raises(AssertionError) as caught:
        run(page, list(blocks(page.read_text())))
    assert caught.traceback[-1].lineno + 1 == 8


def test_a_block_that_is_never_closed_is_noticed() -> None:
    with pytest.raises(AssertionError, match="line 1 is never closed"):
        list(blocks("```python\nfine = 1\n"))


def test_a_command_that_prints_something_else_is_noticed() -> None:
    converse(Block(CONSOLE, 1, "$ onceonly explain E101\ncode...E101\n..."))
    with pytest.raises(AssertionError, match="line 1"):
        converse(Block(CONSOLE, 1, "$ onceonly explain E101\ncode...E102\n..."))


# ---- the protocol as it is written

PROTOCOL = ROOT / "docs" / "concepts" / "protocol.md"


def test_the_sql_of_the_protocol_page_is_what_is_sent() -> None:
    said = [block.code for block in blocks(PROTOCOL.read_text()) if block.info == "sql"]
    sent = [head.DDL[0], head.TABLES.sql_install, head.ADVANCE.format(place=Visibility().sql)]
    assert [" ".join(sql.split()) for sql in said] == [" ".join(sql.split()) for sql in sent]


def test_the_note_that_the_protocol_page_shows_is_the_one_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = run(PROTOCOL, runnable(PROTOCOL))["note"]
    [shown] = [json.loads(block.code) for block in blocks(PROTOCOL.read_text()) if block.info == "json"]
    by_chance = {"token", "identity"}
    assert {**shown, **{name: written[name] for name in by_chance}} == written


# ---- bugs that the lab found

BUGS = ROOT / "docs" / "bug-record.md"


def test_each_bug_names_a_schedule_or_bound_and_a_test_that_are_there() -> None:
    rows = [line.split("|") for line in BUGS.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row[1]) for row in rows] == list(range(1, len(rows) + 1))
    tests = "".join(path.read_text() for room in ("tests", "integration") for path in (ROOT / room).rglob("test_*.py"))
    for row in rows:
        command, named = row[3].strip(" `").split(), row[4].strip(" `")
        assert command[:2] == ["onceonly", "lab"], row[1]
        assert (ROOT / command[3]).is_file() if command[2] == "replay" else command[4] in BOUNDS, row[1]
        assert f"def {named}(" in tests, row[1]


# ---- the overview of the proof

PROOF = ROOT / "docs" / "how-it-is-proven" / "index.md"


def test_each_figure_of_the_overview_is_on_the_page_that_it_links() -> None:
    """Programs write those pages, or a test compares their output."""
    rows = re.findall(r"^\| .* \| ([\d,]+ \w+)[^|]* \| \[[^]]*\]\(([^)]+)\) \|$", PROOF.read_text(), re.MULTILINE)
    assert len(rows) == 3
    assert [row for row in rows if row[0] not in (PROOF.parent / row[1]).read_text()] == []


# ---- the packages


@pytest.mark.parametrize(("package", "prefix"), [("onceonly", ""), ("onceonly_lab", "onceonly_lab.")])
def test_the_page_on_architecture_names_each_package(package: str, prefix: str) -> None:
    """A row may name several: the first with its prefix, the others without."""
    rows = [line for line in (ROOT / "docs" / "architecture.md").read_text().splitlines() if line.startswith("| `")]
    firsts = [re.findall(r"`([\w.]+)`", line.split("|")[1]) for line in rows]
    named = {name.removeprefix(prefix) for names in firsts if names[0].startswith(prefix) for name in names}
    packages = {path.parent.name for path in (ROOT / "src" / package).glob("*/__init__.py")}
    assert sorted(packages - named) == []


# ---- pitfalls and the tests that show them

PITFALLS = ROOT / "docs" / "pitfalls.md"
"""The page: a row a pitfall, and the numbers of those that are open."""

EVIDENCE = ROOT / "docs" / "how-it-is-proven" / "pitfalls.json"
"""The same rows with their details, and the tests that show each."""

NUMBERS = [f"C{number}" for number in range(1, 49)]
CLAIMS = "src/onceonly_lab/conformance/"
"""Functions below are tests if the suite lists them; each sink's tests inherit them."""

CERTIFIED = {
    "memory": "tests/sinks/test_conformance_catches_broken_sinks.py",
    "delta": "tests/sinks/test_delta_conformance.py",
    "postgres": "tests/sinks/test_postgres_conformance.py",
    "kafka": "tests/sinks/test_kafka_conformance.py",
}


def pitfalls() -> list[dict[str, Any]]:
    """The entries of the data file, in order; a number that is there twice comes twice."""
    entries: list[dict[str, Any]] = json.loads(EVIDENCE.read_text())
    return entries


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def is_a_test(named: str) -> bool:
    """Whether a file has the function or method, and something runs it as a test."""
    file, _, function = named.partition("::")
    if not (ROOT / file).is_file():
        return False
    tree = parsed(file)
    if not any(isinstance(node, ast.FunctionDef) and node.name == function for node in ast.walk(tree)):
        return False
    return function in listed_claims(tree) if file.startswith(CLAIMS) else collected(file, function)


def collected(file: str, function: str) -> bool:
    """Whether pytest takes a function of this name, in a file of this name, for a test."""
    return Path(file).name.startswith("test_") and function.startswith("test_")


def listed_claims(tree: ast.Module) -> set[str]:
    """Names that a module of the suite passes to ``claims_of``."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    listing = [call for call in calls if ast.unparse(call.func) == "claims_of"]
    return {name.id for call in listing for name in call.args if isinstance(name, ast.Name)}


def inherits_the_claims(file: str) -> bool:
    """Whether a file has test classes made of the conformance suite that are not left to the slow runs."""
    classes = [node for node in parsed(file).body if isinstance(node, ast.ClassDef)]
    bases = [ast.unparse(base) for found in classes if not found.decorator_list for base in found.bases]
    return "SinkConformance" in bases


def test_each_pitfall_is_there_once() -> None:
    assert [entry["number"] for entry in pitfalls()] == NUMBERS


def test_the_page_has_a_row_for_each_pitfall() -> None:
    rows = re.findall(r"^\| (C\d+) \| (.+) \| (.+) \|$", PITFALLS.read_text(), re.MULTILINE)
    assert rows == [(entry["number"], entry["failure"], entry["answer"]) for entry in pitfalls()]


def test_every_pitfall_is_shown_ruled_out_or_open() -> None:
    wrong = {}
    for entry in pitfalls():
        named = entry["tests"]
        answered = named or entry.get("cannot_happen") or entry.get("open")
        unknown = [test for test in named if not is_a_test(test)]
        if unknown or not answered or len(named) != len(set(named)) or not entry["elsewhere"] or not entry["here"]:
            wrong[entry["number"]] = unknown or entry
    assert wrong == {}


def test_the_data_file_names_every_argument_of_exactly_once() -> None:
    here = {entry["number"]: entry["here"] for entry in pitfalls()}["C30"]
    [listed] = re.findall(r"The arguments of `exactly_once\(\)` are (.*?)\.", here)
    found = [
        name
        for name, parameter in inspect.signature(exactly_once).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert re.findall(r"`(\w+)`", listed) == found


def test_the_page_lists_what_is_open() -> None:
    [line] = re.findall(r"^(?:Nothing is open: .*|Open: (.*)\.)$", PITFALLS.read_text(), re.MULTILINE)
    assert re.findall(r"C\d+", line) == [entry["number"] for entry in pitfalls() if entry.get("open")]


def test_every_sink_inherits_the_claims_that_the_pitfalls_name() -> None:
    assert [sink for sink, file in CERTIFIED.items() if not inherits_the_claims(file)] == []


def test_a_name_that_is_no_test_is_noticed() -> None:
    wrong = [
        "tests/test_docs.py::test_that_nobody_wrote",
        "tests/test_gone.py::test_each_pitfall_is_there_once",
        "tests/test_docs.py::pitfalls",
        f"{CLAIMS}claims_writing.py::claims_of",
        f"{CLAIMS}claims_writing.py::_of_another_history",
    ]
    assert [name for name in wrong if is_a_test(name)] == []
