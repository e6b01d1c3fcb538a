"""Decisions of ``first_hour.py``: which Python, which blocks of a page, which printed installs."""

from __future__ import annotations

import builtins
import re
import shlex
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from tests.test_docs import CONSOLE, FILE, ROOT, SQL, UNTRIED, Block, blocks

PYTHONS = ("3.10", "3.11", "3.12", "3.13")

LEFT_OUT = {
    SQL: "needs a Postgres server",
    UNTRIED: "labelled as not tried",
    "python chaos": "minutes of kills, which make test runs",
}
"""Labels of blocks that never run here, with the reason."""

_INSTALL = re.compile(r"\bpip install [^`\n]+")
_KNOWN = frozenset({*dir(builtins), "__name__", "__file__"})


# ---- Which Python.


def candidates(version: str, environment: Mapping[str, str], root: Path | None) -> list[str]:
    """Places of a Python, the first that answers counts. ``root`` is pyenv's folder."""
    named = environment.get(f"ONCEONLY_PYTHON_{version.replace('.', '_')}")
    versions = sorted((root / "versions").glob(f"{version}.*/bin/python"), reverse=True) if root else []
    return [*([named] if named else []), *map(str, versions), f"python{version}"]


def drawn(found: Sequence[str], commit: str) -> str:
    """One of the Pythons, by the commit."""
    return found[int(commit or "0", 16) % len(found)]


# ---- Which blocks.


@dataclass
class Plan:
    """A page's steps, and the blocks that are left out, by line and reason."""

    steps: list[dict[str, object]] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)


def plan(text: str, page: Path, clone: Path, has_program: Callable[[str], bool]) -> Plan:
    """Decide for each block of a page, by its label and by the names that it reads, whether it runs."""
    made, defined = Plan(), {*_KNOWN}
    incomplete = False
    for block in blocks(text):
        if block.info not in {"bash", CONSOLE, SQL} and not block.info.startswith("python"):
            continue
        reason = why_not(block, defined, incomplete, has_program)
        if reason:
            made.left_out.append((block.line, reason))
            incomplete |= not reason.startswith("make")
            continue
        made.steps.append(step_of(block, page, clone))
        if block.info in {"python", "python spark"}:
            defined |= names(block.code)[1]
    return made


def why_not(block: Block, defined: set[str], incomplete: bool, has_program: Callable[[str], bool]) -> str:
    """Why a block cannot run here, or nothing."""
    if block.info in LEFT_OUT:
        return LEFT_OUT[block.info]
    if block.info == CONSOLE:
        return "shows what a block that was left out wrote" if incomplete else ""
    if block.info == "bash":
        programs = [line.split()[0] for line in commands(block.code)]
        missing = [program for program in programs if not has_program(program)]
        reason = "make: targets of the repository" if "make" in programs else ""
    else:
        reads, binds = names(block.code)
        missing = sorted(reads - binds - ({*_KNOWN} if FILE.fullmatch(block.info) else defined))
        reason = "builds on a block that was left out" if missing and incomplete else ""
    return reason or ", ".join(f"needs {name}" for name in missing)


def step_of(block: Block, page: Path, clone: Path) -> dict[str, object]:
    """A block as :mod:`first_hour_page` takes it. Installs run in the clone, all else in the page's folder."""
    step: dict[str, object] = {"line": block.line, "code": block.code, "folder": str(page)}
    if file := FILE.fullmatch(block.info):
        return {**step, "kind": "file", "path": file["path"]}
    if block.info == "bash":
        installs = all(line.startswith("pip install ") for line in commands(block.code))
        return {**step, "kind": "shell", "folder": str(clone if installs else page)}
    return {**step, "kind": "console" if block.info == CONSOLE else "python"}


def commands(code: str) -> list[str]:
    """Lines of a shell block that are commands."""
    return [line for line in code.splitlines() if line.strip() and not line.startswith("#")]


def names(code: str) -> tuple[set[str], set[str]]:
    """Global names that a piece of Python reads anywhere, and those that it binds."""
    module = symtable.symtable(code, "page", "exec")
    symbols = module.get_symbols()
    binds = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    return set(_reads(module)), binds


def _reads(table: symtable.SymbolTable) -> Iterator[str]:
    top = table.get_type() == "module"
    yield from (one.get_name() for one in table.get_symbols() if one.is_referenced() and (top or one.is_global()))
    for child in table.get_children():
        yield from _reads(child)


def pages() -> list[Path]:
    """Tutorial, and the pages of the group "Write" of the site."""
    text = re.sub(r"!!python\S*", "", (ROOT / "mkdocs.yml").read_text())
    [write] = [entry["Write"] for entry in yaml.safe_load(text)["nav"] if "Write" in entry]
    return [ROOT / "docs" / name for name in ("tutorial.md", *(next(iter(page.values())) for page in write))]


def printed_installs(texts: Iterable[str]) -> list[str]:
    """Each different ``pip install`` of pages, without its comment."""
    found = [shlex.join(shlex.split(match, comments=True)) for text in texts for match in _INSTALL.findall(text)]
    return [*dict.fromkeys(found)]


def with_wheel(command: str, wheel: Path) -> str:
    """The command with the wheel that was built, where it names one of this file name in a folder of the reader's."""
    return " ".join(str(wheel) if Path(word).name == wheel.name else word for word in command.split(" "))
