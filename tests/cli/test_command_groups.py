"""Commands of other packages: found by entry point; where the lab is not installed, its words say how to get it."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from onceonly.cli import explain
from onceonly.cli.explain import all_codes, page_of
from onceonly.cli.plugins import GROUP, published
from onceonly.cli.tree import WORDS, command_tree
from onceonly.errors import ConfigurationError


def invoked(points: list[EntryPoint], *arguments: str) -> Result:
    return CliRunner().invoke(command_tree(points), list(arguments))


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def add_greeting(tree: object) -> None:
    """Publishes ``onceonly greet``, as another package would."""
    tree.command("greet")(lambda: print("hello"))  # type: ignore[attr-defined]


def test_the_lab_publishes_its_two_words() -> None:
    assert {found.name for found in published()} >= {"lab", "demo"}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["lab"], "onceonly-lab"),
        (["lab", "run", "--level", "L3"], "onceonly-lab"),
        (["lab", "--help"], "onceonly-lab"),
        (["demo", "--quick"], "'onceonly-lab[demo]'"),
    ],
)
def test_without_the_lab_its_words_say_in_one_sentence_how_to_get_it(arguments: list[str], wanted: str) -> None:
    result = invoked([], *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"onceonly {arguments[0]} needs the package onceonly-lab: pip install {wanted}\n"


def test_who_asks_for_json_gets_the_sentence_as_json_too() -> None:
    result = invoked([], "lab", "run", "--output", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["message"].startswith("onceonly lab needs the package onceonly-lab")


def test_every_other_command_runs_without_the_lab() -> None:
    listed = invoked([], "--help").stdout
    assert {"demo", "lab", "audit"} <= set(listed.split())
    assert invoked([], "explain", "E101").exit_code == 0


def test_another_package_adds_a_command_of_its_own() -> None:
    assert invoked([point("greet", f"{__name__}:add_greeting")], "greet").stdout == "hello\n"


def test_a_word_of_ours_is_not_taken_by_another_package() -> None:
    points = [point("audit", f"{__name__}:add_greeting")]
    assert "greet" not in invoked(points, "--help").stdout
    assert invoked(points, "audit", "--help").stdout == invoked([], "audit", "--help").stdout


def test_a_group_that_lacks_a_package_leaves_the_others_alone() -> None:
    points = [point("lab", "no_such_package_at_all:add")]
    result = invoked(points, "lab")
    assert (result.exit_code, result.stderr.strip()) == (
        2,
        "onceonly lab needs no_such_package_at_all: pip install onceonly-lab",
    )
    assert invoked(points, "explain", "E101").exit_code == 0


def test_pages_of_anomalies_come_with_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "X-LOSS" in all_codes()
    monkeypatch.setattr(explain, "published", dict)  # as where it is not installed
    assert "X-LOSS" not in all_codes()
    with pytest.raises(ConfigurationError) as refused:
        page_of("X-LOSS")
    assert refused.value.code == "E110"
    assert refused.value.remedy == "pip install onceonly-lab"


def tree(*typed: str) -> Any:
    return typer.main.get_command(command_tree(published(), typed))


def verbs_of(command: Any) -> set[str]:
    return set(getattr(command, "commands", ()))


def test_a_word_that_was_typed_brings_its_command_alone_with_all_its_verbs() -> None:
    whole = tree()
    for word in WORDS:
        alone = tree(word)
        assert list(alone.commands) == [word]
        assert verbs_of(alone.commands[word]) == verbs_of(whole.commands[word]), word


def test_a_verb_that_lies_elsewhere_is_there_when_it_is_typed_and_in_the_help() -> None:
    for typed in (["epochs", "rerun"], ["epochs"], ["epochs", "no-verb"]):
        assert {"rerun", "publish"} <= verbs_of(tree(*typed).commands["epochs"]), typed


def test_a_word_that_nobody_knows_is_answered_with_all_that_are_known() -> None:
    assert set(tree("audits").commands) >= set(WORDS)
