"""Traps that a change can walk into without any other test noticing."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
from scripts.house import ratchet
from scripts.house.figures import Parser, complaints
from scripts.house.figures import limits as figure_limits

ROOT = Path(__file__).parent.parent
PACKAGES = [
    ROOT / "checkpoints/onceonly_checkpoints",
    ROOT / "src/onceonly",
    ROOT / "sinks/onceonly_sinks",
    ROOT / "src/onceonly_lab",
    ROOT / "src/pyspark_onceonly",
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


def test_a_word_of_the_glossary_has_one_line() -> None:
    """A word with two meanings says which: **witness (a sink)**."""
    words = re.findall(r"^\| \*\*([^*]+)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert sorted({word for word in words if words.count(word) > 1}) == []


def test_a_name_of_code_in_the_glossary_is_one_of_the_code() -> None:
    named = re.findall(r"\(`([A-Za-z_.]+)=?`\)", (ROOT / "docs" / "glossary.md").read_text())
    assert len(named) > 20
    known = {word for source in _sources() for word in re.findall(r"\w+", source.read_text(encoding="utf-8"))}
    assert [name for name in named if not set(name.split(".")) <= known] == []


def test_no_prose_counts_the_anomalies() -> None:
    counted = re.compile(r"\b(?:\d+|\w+teen|twenty(?:-\w+)?)\s+anomalies")
    rooms = (ROOT / "src", ROOT / "docs", ROOT / "README.md")
    pages = [page for room in rooms for page in ([room] if room.is_file() else sorted(room.rglob("*.*")))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages if page.suffix in {".py", ".md"}}
    assert [str(page) for page, text in texts.items() if counted.search(text)] == []


def test_examples_do_not_write_into_the_package_folder() -> None:
    texts = [*(ROOT / "docs" / "examples").rglob("*.py"), ROOT / "README.md"]
    assert [path for path in texts if '"checkpoints' in path.read_text() or "'checkpoints" in path.read_text()] == []


@pytest.mark.parametrize("package", ["onceonly", "onceonly.cli", "onceonly.faults", "onceonly_checkpoints.ledger.sql"])
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


def test_a_docstring_names_attributes_that_its_class_has() -> None:
    assert list(unknown_attributes('class Epoch:\n    """One.\n\n    Attributes:\n        gone: a word.\n    """\n'))
    wrong = {
        path.name: names
        for root in PACKAGES
        for path in root.rglob("*.py")
        if (names := list(unknown_attributes(path.read_text())))
    }
    assert not wrong


def unknown_attributes(source: str) -> Iterator[str]:
    """Names below ``Attributes:`` that no statement of the class or of a class in the file binds."""
    tree = ast.parse(source)
    for made in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        listed = re.search(r"^Attributes:\n((?: +.*\n|\n)+)", (ast.get_docstring(made) or "") + "\n", re.MULTILINE)
        names = re.findall(r"^    (\w+):", listed[1], re.MULTILINE) if listed else []
        bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {node.attr for node in ast.walk(made) if isinstance(node, ast.Attribute)}
        bound |= {node.name for node in made.body if isinstance(node, ast.FunctionDef)}
        yield from (f"{made.name}.{name}" for name in names if name not in bound)


def test_no_contract_of_imports_names_a_module_of_ours() -> None:
    # A contract of packages watches a new module from its first day; a list of modules does not.
    modules = [name for name in _names_in_contracts() if not _folder_of(name).is_dir()]
    assert modules == []


def test_the_contracts_of_imports_name_packages_of_all_four() -> None:
    assert {name.partition(".")[0] for name in _names_in_contracts()} == {package.name for package in PACKAGES}


def test_circles_are_forbidden_in_every_package_and_imports_for_types_count() -> None:
    settings = _import_settings()
    (circles,) = (contract for contract in settings["contracts"] if contract["type"] == "acyclic_siblings")
    assert set(circles["ancestors"]) == {package.name for package in PACKAGES} == set(settings["root_packages"])
    assert "ignore_imports" not in circles
    assert not settings.get("exclude_type_checking_imports")


def test_a_query_imports_the_rooms_that_it_asks_for_and_in_one_module() -> None:
    rooms = ("onceonly.windows", "onceonly.quality", "onceonly.event_time", "onceonly.replay")
    core = [*(ROOT / "src/onceonly" / name for name in ("api", "runtime", "spark")), ROOT / "sinks/onceonly_sinks"]
    importing = {
        path.relative_to(ROOT).as_posix()
        for folder in core
        for path in folder.rglob("*.py")
        for name in _imported_when_running(ast.parse(path.read_text()))
        if name.startswith(rooms)
    }
    assert importing == {"src/onceonly/api/wrapper.py"}
    code = "from onceonly import exactly_once; from onceonly_sinks.memory import MemorySink; exactly_once(MemorySink())"
    code = f"import sys; {code}; print(*[name for name in sys.modules if name.startswith({rooms!r})])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def _imported_when_running(node: ast.AST) -> Iterator[str]:
    """Modules that a module imports, those under ``if TYPE_CHECKING`` left out."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _imported_when_running(child)


def test_every_import_of_ours_is_a_statement_that_tools_can_read() -> None:
    # getattr(import_module(...), ...) is an import that neither type checkers nor import-linter see. Commands take the
    # names of the user's own builders and functions, which nobody here can write down. Where a package finds its names
    # on demand, tools see imports for type checkers, and the next test holds them against what is found.
    hidden = {
        path.relative_to(ROOT).as_posix()
        for path in _sources()
        if path.suffix == ".py"
        for node in _calls(ast.parse(path.read_text()))
        if _called(node) == "getattr" and "import_module" in map(_called, _calls(node))
    }
    assert hidden == {"src/onceonly/cli/user_code.py", "checkpoints/onceonly_checkpoints/__init__.py"}


@pytest.mark.parametrize(
    "package",
    [
        "onceonly",
        "onceonly.audit",
        "onceonly_sinks.delta",
        "onceonly_sinks.kafka",
        "onceonly_sinks.postgres",
        "onceonly_sinks.sql",
    ],
)
def test_what_is_found_on_demand_is_what_tools_see(package: str) -> None:
    module = importlib.import_module(package)
    source = ast.parse(Path(str(module.__file__)).read_text())
    blocks = [node for node in source.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {
        alias.name: str(found.module)
        for block in blocks
        for found in block.body
        if isinstance(found, ast.ImportFrom)
        for alias in found.names
    }
    on_demand = [name for name in module.__all__ if name not in vars(module)]
    assert on_demand
    for name in on_demand:
        assert getattr(module, name) is getattr(importlib.import_module(seen[name]), name)


def test_the_picture_of_the_layers_is_as_the_imports_are(tmp_path: Path) -> None:
    drawn = tmp_path / "layers.svg"
    subprocess.run(
        [sys.executable, ROOT / "scripts/layers.py", "--picture", drawn], check=True, stdout=subprocess.DEVNULL
    )
    kept = (ROOT / "docs/images/layers.svg").read_text()
    assert drawn.read_text() == kept, 'draw it again: make layers ARGS="--picture docs/images/layers.svg"'


def test_a_limit_of_the_house_only_falls_until_it_meets_its_target() -> None:
    folder = "scripts/house/limits"
    commits = _git("log", "--format=%H", "-n", "20", "--", folder).split()
    raised = []
    for path in sorted((ROOT / folder).glob("*.txt")):
        versions = [path.read_text()]
        for commit in commits:
            name = f"{commit}:{folder}/{path.name}"
            versions.append(_git("show", name) if _git("ls-tree", commit, f"{folder}/{path.name}") else "")
        for newer, older in itertools.pairwise(map(_limits, versions)):
            raised += [
                f"{path.name}: {limit} from {was:g} to {newer[limit]:g}"
                for limit, was in older.items()
                if limit in newer and ratchet.worse(limit, newer[limit], _worst(limit, was, versions[0]))
            ]
            raised += [f"{path.name}: {limit} is gone" for limit in older if limit not in newer]
    assert not raised, raised


def test_the_ratchet_lowers_a_limit_that_a_figure_beats_and_raises_none() -> None:
    limits = "--max lines=10  # 5\n--max words=3.5\n--min you=2\n--slack 5\n"
    figures = {"lines": 8.0, "words": 4.0, "you": 2.5}
    assert ratchet.lowered(limits, figures) == "--max lines=8  # 5\n--max words=3.5\n--min you=2.5\n--slack 5\n"


def test_a_limit_that_has_met_its_target_stays_there() -> None:
    limits = "--max lines=10  # 5\n--min you=2 # 6 and more\n--max words=3  # 3\n"
    figures = {"lines": 4.0, "you": 14.2, "words": 1.0}
    met = "--max lines=5  # 5\n--min you=6 # 6 and more\n--max words=3  # 3\n"
    assert ratchet.lowered(limits, figures) == met
    parsed = Parser(None)
    options = parsed.parse_args([word for line in met.split("\n") for word in parsed.convert_arg_line_to_args(line)])
    given = [figure_limits(texts) for texts in (options.max, options.min, options.target)]
    assert complaints(figures, given[0], given[1], 5, given[2]) == []
    assert len(complaints(figures, given[0], given[1], 5, {})) == 3


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def _worst(limit: str, was: float, text: str) -> float:
    """What a limit may be: the one before, or its target where that is easier."""
    targets = {f"{kind} {name}": float(target) for kind, name, _, _, target in ratchet.LIMIT.findall(text) if target}
    target = targets.get(limit, was)
    return target if ratchet.worse(limit, target, was) else was


def _limits(text: str) -> dict[str, float]:
    return {f"{kind} {name}": float(limit) for kind, name, limit, *_ in ratchet.LIMIT.findall(text)}


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _calls(node: ast.AST) -> list[ast.Call]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Call)]


def _import_settings() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return found


def _names_in_contracts() -> list[str]:
    """Every package of ours that a contract names, written in full."""
    names: list[str] = []
    for contract in _import_settings()["contracts"]:
        layers = [one.strip() for layer in contract.get("layers", []) for one in layer.split("|")]
        for container in contract.get("containers", [""]):
            names += [f"{container}.{one}" if container else one for one in layers]
        for key in ("containers", "source_modules", "forbidden_modules", "ancestors", "modules"):
            names += contract.get(key, [])
    return [name for name in names if name.partition(".")[0] in {package.name for package in PACKAGES}]


def _folder_of(name: str) -> Path:
    first, *rest = name.split(".")
    (package,) = (package for package in PACKAGES if package.name == first)
    return package.joinpath(*rest)


def _sources() -> list[Path]:
    files = [path for package in PACKAGES for path in package.rglob("*") if path.is_file()]
    return [path for path in files if "__pycache__" not in path.parts and path.suffix != ".jar"]


def _ignores(pattern: str, path: Path) -> bool:
    if pattern.startswith("/"):
        above = [parent.as_posix() for parent in [path, *path.parents]]
        return any(fnmatch.fnmatch(name, pattern[1:]) for name in above)
    return any(fnmatch.fnmatch(part, pattern) for part in path.parts)
