"""Every command that a message prints exists, with the options that it is printed with. Parsed, never run."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from onceonly.audit.catalogue import RULES
from onceonly.cli.app import app
from onceonly.doctor import PAGES as ILLS
from onceonly.errors.codes import CATALOGUE
from onceonly_lab.anomalies import PAGES as ANOMALIES

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
TREE: Any = typer.main.get_command(app)
NOUNS = "|".join(sorted(TREE.commands))
COMMAND = re.compile(rf"\bonceonly ((?:{NOUNS})\b(?!:)[^\n;`]*)")
OPTIONAL = (
    r"(?<!--ledger )\{ledger\}"
    r"|\{(?:where|trim|again|onward|back|each|alone|named|copy|ways|change|rewind|then|range)\}"
)
DETAIL = re.compile(r"\{[^{}]*\}")
SOURCES = sorted(
    page for room in ("src", "sinks") for page in (ROOT / room).rglob("*.py") if page.name != "catalogue.py"
)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.*")])


def commands(text: str) -> list[list[str]]:
    """The printed commands of a text, each split as a shell would; a detail that only an occurrence knows is a 1.

    Details that stand for whole options (``{where}``, ``{ledger}`` without its name, ``{named}``) are left out.
    """
    filled = re.sub(OPTIONAL, "", text)
    found = [line.split(" (")[0].rstrip(" .,:)'\"") for line in COMMAND.findall(DETAIL.sub("1", filled))]
    return [shlex.split(line if line.count("'") % 2 == 0 else f"{line}'") for line in found]


def problem(arguments: list[str]) -> str:
    """Why a command line cannot be parsed; empty if it can. A command may be named without its options."""
    command: Any = TREE
    given = list(arguments)
    while isinstance(command, TyperGroup):
        name = given.pop(0) if given else ""
        if name not in command.commands:
            return f"there is no {name!r} in {command.name}"
        command = command.commands[name]
    try:
        if given:
            command.make_context(command.name, given)
    except Exception as error:
        return repr(error)
    return ""


def literals(page: Path) -> Iterator[str]:
    """Strings of a module that could be printed, with a detail for each value; docstrings are left to reviewers."""
    tree = ast.parse(page.read_text())
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{value}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner | told:
            yield node.value


def of_messages() -> Iterator[tuple[str, str]]:
    """Code of a message, and its texts with commands."""
    yield from ((code, text) for code, entry in CATALOGUE.items() for text in (entry.remedy, entry.more))
    yield from ((code, rule.remedy) for code, rule in RULES.items())
    yield from ((code, page.remedy) for pages in (ANOMALIES, ILLS) for code, page in pages.items())


def of_sources() -> Iterator[tuple[str, str]]:
    """Module, and its literals."""
    for page in SOURCES:
        yield from ((str(page.relative_to(ROOT)), text) for text in literals(page))


def of_pages() -> Iterator[tuple[str, str]]:
    return ((str(page.relative_to(ROOT)), page.read_text()) for page in PAGES)


Texts = Callable[[], Iterator[tuple[str, str]]]


@pytest.mark.parametrize(
    ("texts", "known"),
    [
        (of_messages, ["E203", "E213", "E215", "E216", "E219", "E301", "E602", "A131"]),
        (of_sources, ["src/onceonly/cli/errors.py"]),
        (of_pages, ["README.md"]),
    ],
)
def test_every_printed_command_can_be_parsed(texts: Texts, known: list[str]) -> None:
    printed = {(where, shlex.join(command)) for where, text in texts() for command in commands(text)}
    problems = {f"{where}: onceonly {line}": problem(shlex.split(line)) for where, line in sorted(printed)}
    assert {line: found for line, found in problems.items() if found} == {}
    assert {where for where, _ in printed} >= set(known)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    wrong = (
        "queries rename orders",
        "recover adopt orders --accept",
        "recover rebuild-checkpoint --entry x",
        "audit --quietly",
    )
    assert [line for line in wrong if not problem(line.split())] == []
