"""Every command and statement that a message prints is run somewhere: as a way out, on a page, or by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_printed_commands import PAGES, ROOT, SOURCES, TREE, commands, of_messages, of_sources
from typer.core import TyperGroup

pytestmark = pytest.mark.docs

_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_PRINTED = frozenset({"next", "next_", "way", "ways", "remedy", "full", "mend"})
"""What is called so in a source is a way out."""

STATEMENT = re.compile(
    r"\b(?:ALTER (?:TABLE|ROLE)|CREATE (?:UNIQUE )?INDEX|CREATE DATABASE|GRANT|CALL|DROP RULE)\b[^;,`\n]*"
)
"""A statement that is printed for somebody to run."""


# ---- What is run.


def _words(tree: ast.AST) -> str:
    """The texts of a module, in their order: those of a call's arguments follow each other."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = (one for one in ast.walk(tree) if isinstance(one, ast.Constant) and id(one) not in told)
    said = sorted((one for one in found if isinstance(one.value, str)), key=lambda one: (one.lineno, one.col_offset))
    return " ".join(str(one.value) for one in said)


@cache
def obeyed() -> Mapping[str, str]:
    """What is run, by page or test: ways out that were walked, console blocks, and the texts of a module of tests."""
    walked = {"docs/ways-out.md": " ".join(re.findall(r"`([^`]+)`", (ROOT / "docs" / "ways-out.md").read_text()))}
    shown = {str(page): " ".join(_CONSOLE.findall(page.read_text())) for page in PAGES}
    tests = [page for room in ("tests", "integration") for page in (ROOT / room).rglob("*.py")]
    said = {str(page): _words(ast.parse(page.read_text())) for page in tests if page != Path(__file__)}
    return {**walked, **shown, **said}


def runs(verb: str, options: frozenset[str]) -> bool:
    """Whether a verb is run with these options: all of them stand in one page or module that has the verb."""
    spoken = re.compile(rf"(?<![\w-]){re.escape(verb)}(?![\w-])")
    noun, _, rest = verb.partition(" ")
    by_noun = re.compile(rf"(?<![\w-]){re.escape(rest or noun)}(?![\w-])")  # time("certify", ...) of a module of time
    for place, words in obeyed().items():
        if spoken.search(words) or (f"_{noun}_" in place and by_noun.search(words)):
            there = {*_OPTION.findall(words), *(SAME[one] for one in SAME if re.search(rf"(?<!\S){one}(?!\S)", words))}
            if options <= there | GIVEN:
                return True
    return False


SAME = {"-q": "--query"}
GIVEN = frozenset({"--query", "--ledger", "--sink"})
"""Where a command works: the fixtures of tests say it, and ways out are recorded without it."""


# ---- What is printed.


def shape(arguments: list[str]) -> tuple[str, frozenset[str]]:
    """The verb of a command, and its options; none where it is only spoken of."""
    command: Any = TREE
    verb, rest = list[str](), list(arguments)
    while isinstance(command, TyperGroup) and rest and rest[0] in command.commands:
        verb.append(rest[0])
        command = command.commands[rest.pop(0)]
    return " ".join(verb), frozenset(name for one in rest for name in _OPTION.findall(one)[:1])


def printed() -> Mapping[tuple[str, frozenset[str]], str]:
    """Shapes of the commands of messages and sources, with a place of each."""
    texts = [*of_messages(), *of_sources()]
    return {shape(command): where for where, text in texts for command in commands(text)}


def _ways(page: Path) -> Iterator[str]:
    """Texts of a source that are printed as ways out, with ``{}`` for each value."""
    for node in ast.walk(ast.parse(page.read_text())):
        named = node.arg if isinstance(node, ast.keyword) else ""
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named = node.targets[0].id
        if named in _PRINTED and isinstance(node, ast.keyword | ast.Assign):
            texts = (one for one in ast.walk(node.value) if isinstance(one, ast.JoinedStr | ast.Constant))
            yield from (re.sub(r"\{[^{}]*\}", "{}", ast.unparse(text)) for text in texts)


def statements() -> Mapping[str, str]:
    """Statements that are printed, each by the words that are always the same in it, with a place of each."""
    of_ways = ((str(page.relative_to(ROOT)), text) for page in SOURCES for text in _ways(page))
    texts = [*of_messages(), *of_ways]
    found = {one[0]: where for where, text in texts for one in STATEMENT.finditer(text)}
    return {_steady(statement): where for statement, where in found.items()}


def _steady(statement: str) -> str:
    """The longest part of a statement without a detail."""
    parts = re.split(r"\{[^{}]*\}|\.\.\.|[\'\"()=]", statement)
    return max((" ".join(part.split()) for part in parts), key=len)


# ---- Each is run.

MINUTES = frozenset(
    {("lab replay", "--to"), ("lab rules-off", ""), ("lab rules-off", "--only"), ("lab rules-off", "--page --record")}
)
"""Of the lab: what takes minutes or a Spark of its own, and is run by targets of the Makefile alone."""

OBEYED = {
    "ADD COLUMN _epoch bigint": "tests/sinks/test_postgres_expiring.py"
    "::test_the_column_that_a_refusal_asks_for_lets_rows_go",
    "ALTER TABLE": "tests/sinks/test_postgres_writing.py::test_all_missing_columns_come_with_one_statement",
    "CREATE DATABASE": "tests/sinks/test_wrong_places.py::test_the_remedy_can_be_obeyed",
    "CREATE UNIQUE INDEX CONCURRENTLY ON": "tests/sinks/test_postgres_writing.py"
    "::test_a_key_without_an_index_comes_with_the_statement_that_makes_it",
    "DROP RULE": "tests/sinks/test_postgres_obstacles.py"
    "::test_a_table_with_a_rule_is_refused_and_the_printed_command_lets_it_go_on",
    "GRANT USAGE ON SCHEMA public TO": "tests/sinks/test_least_rights.py"
    "::test_a_schema_that_a_role_may_not_use_is_refused_with_the_grant",
    "REPLICA IDENTITY FULL": "tests/sinks/test_postgres_writing.py"
    "::test_a_published_table_comes_with_the_statement_by_which_its_rows_are_known",
}
"""What of a printed statement never changes, and the test that runs it as it is printed."""

FILLED_IN = {
    "ALTER ROLE": "the role is the user's to name",
    "ALTER TABLE while the query is stopped": "advice",
    "DETACH PARTITION": "the table above is not known",
    "GRANT": "rights that are missing",
    "GRANT CREATE ON SCHEMA": "rights that are missing",
    "SET TBLPROPERTIES": "Delta: by path or by a catalogue's name",
    "UNSET TBLPROPERTIES": "Delta: by path or by a catalogue's name",
    "delta.autoOptimize.autoCompact": "Delta: by path or by a catalogue's name",
    "delta.deletedFileRetentionDuration": "Delta: by path or by a catalogue's name",
    "delta.logRetentionDuration": "Delta: by path or by a catalogue's name",
    "delta.setTransactionRetentionDuration": "Delta: by path or by a catalogue's name",
}
"""Statements that somebody completes before they run, and why they are not printed whole."""


def test_every_printed_command_is_run_somewhere_with_its_options() -> None:
    lacking = {
        (verb, " ".join(sorted(said))): where for (verb, said), where in printed().items() if not runs(verb, said)
    }
    assert {one: where for one, where in lacking.items() if one not in MINUTES} == {}


def test_every_printed_statement_is_run_by_a_test_or_filled_in_by_somebody() -> None:
    assert statements().keys() == OBEYED.keys() | FILLED_IN.keys()
    tests = {words: (ROOT / test.partition("::")[0]).read_text() for words, test in OBEYED.items()}
    assert [test for words, test in OBEYED.items() if f"def {test.partition('::')[2]}(" not in tests[words]] == []


def test_a_command_that_nothing_runs_is_noticed() -> None:
    assert runs("recover rewind", frozenset({"--to"}))
    assert not runs("recover rewind", frozenset({"--nowhere"}))
    assert not runs("queries retitle", frozenset())
    assert _steady("ALTER TABLE {} REPLICA IDENTITY FULL") == "REPLICA IDENTITY FULL"
