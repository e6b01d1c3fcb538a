"""Lines are changed one way at a time, and rules that are off are noticed by quick tests: the scripts that try both."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scripts() -> Iterator[Path]:
    """The scripts can import one another; nothing of ours that is loaded here is changed."""
    place = str(ROOT / "scripts")
    sys.path.insert(0, place)
    yield ROOT / "scripts"
    sys.path.remove(place)


@pytest.fixture(scope="module")
def mutants(scripts: Path) -> ModuleType:
    return importlib.import_module("mutants")


@pytest.fixture(scope="module")
def noticed(scripts: Path) -> ModuleType:
    return importlib.import_module("noticed")


TEXT = '''
LIMIT = 3


class Table:
    def first(self, a: int, b: int = 2) -> int:
        """Say 1."""
        _log.info("nothing is lost without %s", a)
        if a and not b:
            note(a)
            return a + 1
        raise ValueError(f"no {a}")


def second(rows: list[int]) -> str:
    while rows:
        rows.pop()
    return "x" + "y" if len(rows) <= 1 else None
'''
CHANGES = {
    "Table.first: if a and (not b):": "if not (a and (not b)):",
    "Table.first: a and (not b)": "a",
    "Table.first: not b": "b",
    "Table.first: note(a)": "pass",
    "Table.first: return a + 1": "return None",
    "Table.first: a + 1": "a - 1",
    "Table.first: 1": "2",
    "Table.first: raise ValueError(f'no {a}')": "pass",
    "second: while rows:": "while not rows:",
    "second: rows.pop()": "pass",
    "second: return 'x' + 'y' if len(rows) <= 1 else None": "return None",
    "second: 'x' + 'y' if len(rows) <= 1 else None": "'x' + 'y' if not len(rows) <= 1 else None",
    "second: len(rows) <= 1": "len(rows) < 1",
    "second: 1": "2",
}


@pytest.fixture
def text(mutants: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "src" / "table.py"
    path.parent.mkdir()
    path.write_text(TEXT)
    monkeypatch.setattr(mutants.forked, "ROOT", tmp_path)
    monkeypatch.setattr(mutants.forked, "SOURCES", (tmp_path / "src",))
    return path


def test_each_change_is_one_expression_or_statement_of_a_function_and_none_is_of_words_types_or_defaults(
    mutants: ModuleType, text: Path
) -> None:
    made = list(mutants.mutants(text))
    found = {f"{one.function}: {one.was.splitlines()[0]}": one.now.splitlines()[0] for one in made}
    assert found == CHANGES  # of an operand that goes, the last one
    assert len(made) == len(CHANGES) + 1
    plain = ast.unparse(ast.parse(TEXT))
    assert [one.text for one in made if ast.unparse(one.make()) == plain] == []


def test_a_fingerprint_is_that_of_one_change_and_stays_where_other_lines_are_added(
    mutants: ModuleType, text: Path
) -> None:
    before = {mutant.fingerprint: (mutant.was, mutant.now) for mutant in mutants.mutants(text)}
    text.write_text("import os\n" + TEXT.replace("    while rows:", "    rows = list(rows)\n    while rows:"))
    after = {mutant.fingerprint: (mutant.was, mutant.now) for mutant in mutants.mutants(text)}
    assert len(before) == len(CHANGES) + 1
    assert before.items() <= after.items()


def test_a_change_stands_in_the_innermost_block_that_a_test_can_reach(mutants: ModuleType, text: Path) -> None:
    found = {(mutant.was, mutant.now): mutant.block for mutant in mutants.mutants(text)}
    assert found[("note(a)", "pass")] == "table:Table.first#1"
    assert found[("a and (not b)", "a")] == "table:Table.first#0"
    assert found[("rows.pop()", "pass")] == "table:second#1"


def test_a_change_that_alters_nothing_is_one_that_can_be_made_and_has_a_reason(mutants: ModuleType) -> None:
    known = mutants.equivalents()
    every = {mutant.fingerprint for paths in mutants.OF.values() for path in paths for mutant in mutants.mutants(path)}
    assert known.keys() - every == set()
    assert [fingerprint for fingerprint, reason in known.items() if len(reason.split()) < 4] == []


# ---- rules that are off


def test_every_rule_was_tried_as_it_is_now_and_four_in_five_are_noticed_by_a_quick_test(noticed: ModuleType) -> None:
    """New and changed ones come there by ``scripts/noticed.py --only RULE --record --page``."""
    found = {one["rule"]: one for one in noticed.recorded()}
    rules = {rule.name: rule.fingerprint for rule in noticed.rules()}
    assert {name: one["fingerprint"] for name, one in found.items()} == rules
    by_tests = [one for one in found.values() if one["test"]]
    assert len(by_tests) >= noticed.WANTED * len(rules)
    files = {entry["test"].partition("::")[0] for entry in by_tests}
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in files if (ROOT / file).is_file()}
    named = [entry["test"].partition("[")[0].partition("::") for entry in by_tests]
    assert [f"{file}::{test}" for file, _, test in named if f"def {test}(" not in texts.get(file, "")] == []


def test_a_rule_that_no_quick_test_notices_is_noticed_in_a_world(noticed: ModuleType) -> None:
    worlds = importlib.import_module("json").loads(noticed.WORLDS.read_text(encoding="utf-8"))
    seen = {world["rule"] for world in worlds if world["noticed"]}
    assert [one["rule"] for one in noticed.recorded() if not one["test"] and one["rule"] not in seen] == []


def test_the_page_says_what_was_recorded_and_which_target_tries_what_is_broken(noticed: ModuleType) -> None:
    """``scripts/noticed.py --page`` writes it."""
    assert noticed.PAGE.read_text(encoding="utf-8") == noticed.page()
