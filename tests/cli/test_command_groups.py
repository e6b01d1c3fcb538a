"""Commands of other packages: found by entry point; where the lab is not installed, its words say how to get it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner, Result

from onceonly.cli import explain
from onceonly.cli.explain import all_codes, page_of
from onceonly.cli.tree import GROUP, TREE, Noun, command_tree, published
from onceonly.errors import ConfigurationError
from onceonly_checkpoints.install import hint


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
    "arguments", [["lab"], ["lab", "run", "--level", "L3"], ["lab", "--help"], ["demo", "--quick"]]
)
def test_without_the_lab_its_words_say_in_one_sentence_how_to_get_it(arguments: list[str]) -> None:
    result = invoked([], *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"onceonly {arguments[0]} needs onceonly-lab: {hint(arguments[0])}\n"


def test_who_asks_for_json_gets_the_sentence_as_json_too() -> None:
    result = invoked([], "lab", "run", "--output", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["message"].startswith("onceonly lab needs onceonly-lab")


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
        f"onceonly lab needs no_such_package_at_all: {hint('lab')}",
    )
    assert invoked(points, "explain", "E101").exit_code == 0


def test_pages_of_anomalies_come_with_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "X-LOSS" in all_codes()
    monkeypatch.setattr(explain, "published", dict)  # as where it is not installed
    assert "X-LOSS" not in all_codes()
    with pytest.raises(ConfigurationError) as refused:
        page_of("X-LOSS")
    assert refused.value.code == "E110"
    assert refused.value.remedy == hint("lab")


def loaded(*words: str) -> set[str]:
    """Modules of the command line and of the lab that a command line imports, in a process of its own."""
    script = (
        "import sys\nfrom onceonly.cli import main\n"
        f"sys.argv = ['onceonly', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*(name for name in sys.modules if name.startswith(('onceonly.cli.', 'onceonly_lab'))), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


VERBS = {"audit", "checkpoint", "doctor", "epochs", "explain", "ledger", "metrics", "quarantine", "replay", "status"}
"""Modules of commands below ``onceonly.cli``; those of ``recover`` lie in a folder."""


def commands_in(modules: set[str]) -> set[str]:
    """Modules of commands, the lab's included."""
    rooms = ("onceonly_lab", "onceonly.cli.recover.")
    ours = {f"onceonly.cli.{name}" for name in VERBS | {"time", "windows"}}
    return {name for name in modules if name in ours or name.startswith(rooms)}


def test_the_version_and_the_help_load_no_command() -> None:
    for words in (["--version"], ["--help"], ["recover", "--help"], ["recover"]):
        assert commands_in(loaded(*words)) == set(), words


def test_a_command_loads_the_module_of_its_own() -> None:
    assert commands_in(loaded("audit", "--help")) == {"onceonly.cli.audit"}
    assert commands_in(loaded("recover", "forget", "--help")) == {"onceonly.cli.recover.removal"}


def test_a_word_that_nobody_knows_is_answered_in_one_sentence() -> None:
    assert "No such command 'audits'. Did you mean 'audit'?" in invoked([], "audits").stderr


def test_the_help_of_the_tree_names_every_verb_that_it_has() -> None:
    lacking: dict[str, str] = {}
    for word, entry in TREE.items():
        if isinstance(entry, Noun):
            listed = invoked([], word, "--help").stdout
            lacking |= {f"{word} {verb}": listed for verb in entry.verbs if f"\n  {verb} " not in listed}
    assert lacking == {}
