"""One table over all verbs: what each changes, what it asks before, how it ends, and what it says in JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.audit.world import World
from tests.cli.conftest import Run, document
from tests.cli.scores import Scores
from tests.core.several import Pipeline

from onceonly import cli
from onceonly.cli.app import app
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.model import Slice, SourceOffsets

READING: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {
    ("status",): ((), ("orders",), ("--in-doubt",)),
    ("audit",): ((),),
    ("doctor",): ((), ("--sink", "{sink}")),
    ("explain",): (("E203",),),
    ("epochs", "list"): ((),),
    ("epochs", "show"): ((), ("2",), ("--plan",), ("2", "--offsets"), ("1", "--read-point")),
    ("quarantine",): ((), ("--rows",)),
    ("datasets",): ((), ("{sink}",)),
    ("time", "show"): ((), ("--history",)),
    ("time", "wait"): (("orders", "4", "--timeout", "0s"),),
    ("windows", "show"): (("orders", "--ledger", "{scores}"),),
    ("checkpoint",): (("{ck}",), ("{ck}", "--verify")),
}
"""Verb to arguments with which it answers; none of them takes ``--yes``."""

CHANGING: dict[tuple[str, ...], tuple[str, ...]] = {
    ("recover", "adopt"): ("orders", "--start", '{{"0":{{"logOffset":9}}}}'),
    ("recover", "forget"): ("orders",),
    ("recover", "drop-sink"): ("orders", "memory:b", "--accept-loss"),
    ("recover", "refresh"): ("orders", "--how", "replace"),
    ("recover", "rewind"): ("orders", "--to", "4"),
    ("recover", "retire-writer"): ("orders",),
    ("recover", "reset-windows"): ("orders", "--accept-loss", "--ledger", "{scores}"),
    ("recover", "rebuild-checkpoint"): ("{new}", "--query", "orders"),
    ("recover", "rebuild-ledger"): ("--query", "orders"),
    ("recover", "resolve"): (),
    ("ledger", "prune"): ("--keep-epochs", "1"),
}
"""Verb to arguments with which it has something to do."""

APART = {
    ("demo",),
    ("metrics",),
    ("lineage", "resend"),
    ("lab",),
}
"""Runs of their own, without an end or on a JVM. They change no pipeline; what they print has tests beside theirs."""

THROUGH_SPARK = {("replay", "run"), ("replay", "publish"), ("recover", "rebuild-windows")}
"""Ask as others do, and write through Spark: tests of ``integration`` run what their plans print."""

READING_SPARK = {("replay", "check")}
"""Reads through Spark: ``integration/test_recompute.py`` runs it."""

LINES = [(*verb, *arguments) for verb, lines in READING.items() for arguments in lines]


def tree() -> dict[tuple[str, ...], Any]:
    """Every verb with its parameters by name."""
    root: Any = typer.main.get_command(app)
    found: dict[tuple[str, ...], Any] = {}
    for noun, command in root.commands.items():
        for verb, below in getattr(command, "commands", {"": command}).items():
            if noun != "lab":
                found[tuple(filter(None, (noun, verb)))] = {option.name: option for option in below.params}
    return found


VERBS = tree()


def log(number: int | None) -> SourceOffsets:
    return SourceOffsets.of({"0": None if number is None else json.dumps({"logOffset": number})})


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A pipeline that reads files, as checkpoints of its kind can be rebuilt, and notes a time."""
    world = World(tmp_path)
    for number in range(4):
        noted = EpochTime("integer", number + 1, number + 1, number + 1)
        world.write(number + 1, written=Slice(log(number - 1 if number else None), log(number)), time=noted)
    return world


Fill = Callable[[tuple[str, ...]], list[str]]


@pytest.fixture
def filled(on: Run, world: World, tmp_path: Path) -> Fill:
    """A command line in this world."""
    words = ("recover", "rebuild-checkpoint", str(tmp_path / "ck"), "--query", "orders", "--yes")
    assert on(*words).exit_code == 0

    scores = Scores(tmp_path / "scores").writes([("a", 1, 2)])

    def fill(line: tuple[str, ...]) -> list[str]:
        places = {"ck": tmp_path / "ck", "new": tmp_path / "new", "sink": world.sink.address}
        places["scores"] = scores.root / "ledger.db"
        return [word.format(**places) for word in (*line, *CHANGING.get(line, ()))]

    return fill


def standing(world: World) -> dict[str, object]:
    """All that a verb could change."""
    files = {
        str(path): path.read_bytes()
        for path in world.path.parent.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }
    return {**files, "fence": world.sink.fence(), "epochs": len(list(world.sink.history()))}


def test_every_verb_stands_in_the_table() -> None:
    assert {*READING, *CHANGING, *APART, *THROUGH_SPARK, *READING_SPARK} - {("lab",)} == set(VERBS)


def test_what_changes_asks_and_what_reads_does_not() -> None:
    assert {verb for verb, options in VERBS.items() if "yes" in options} == set(CHANGING) | THROUGH_SPARK


def test_every_verb_that_answers_takes_an_output() -> None:
    assert [verb for verb in READING if "output" not in VERBS[verb]] == []


def test_a_verb_of_one_pipeline_takes_its_name_alone_unless_something_else_comes_first() -> None:
    first = {"number", "epochs", "path"}
    assert [verb for verb, options in VERBS.items() if "query" in options and not {"name", *first} & {*options}] == []


def test_a_name_alone_means_the_same_as_query(run: Run, world: World) -> None:
    place = ("--ledger", world.ledger.address)
    pruned = ("ledger", "prune", "--keep-epochs", "1")
    for verb in (("epochs", "list"), ("recover", "resolve"), ("recover", "rebuild-ledger"), ("doctor",), pruned):
        alone, named, other = (run(*verb, *words, *place) for words in (("orders",), ("-q", "orders"), ("nosuch",)))
        assert (alone.exit_code, alone.stderr) == (named.exit_code, named.stderr.replace(" -q orders", " orders")), verb
        assert alone.output != other.output, f"{verb} reads the name"
        two = run(*verb, "orders", "--query", "another", *place)
        assert "Two pipelines were named" in two.stderr, verb


def test_an_option_is_the_same_wherever_it_is() -> None:
    """``--sink`` of ``recover adopt`` and ``recover rewind`` alone means ids, and its help says so."""
    apart = {"sink": {("recover", "adopt"), ("recover", "drop-sink"), ("recover", "rewind")}}
    forms = {
        name: {
            (options[name].help, str(options[name].envvar), tuple(options[name].opts), str(options[name].default))
            for verb, options in VERBS.items()
            if name in options and verb not in apart.get(name, set())
        }
        for name in ("query", "ledger", "sink", "output", "yes")
    }
    assert {name: found for name, found in forms.items() if len(found) != 1} == {}


def test_every_reading_verb_changes_nothing_and_ends_with_0_where_nothing_is_wrong(
    on: Run, filled: Fill, world: World
) -> None:
    wrong = {}
    for line in LINES:
        before = standing(world)
        result = on(*filled(line))
        # A machine may have problems of its own, which the doctor tells.
        ends = result.exit_code in ((0, 1) if line[0] == "doctor" else (0,))
        if not (ends and result.stdout and standing(world) == before):
            wrong[line] = (result.exit_code, result.output, result.exception, standing(world).keys() ^ before.keys())
    assert wrong == {}


def test_every_reading_verb_answers_in_json(on: Run, filled: Fill) -> None:
    wrong = {}
    for line in LINES:
        result = on(*filled(line), "-o", "json")
        try:
            told = json.loads(result.stdout)["schema_version"] == 1
        except ValueError:
            told = False
        if not told or result.exit_code not in ((0, 1) if line[0] == "doctor" else (0,)):
            wrong[line] = (result.exit_code, result.output, result.exception)
    assert wrong == {}


@pytest.mark.parametrize("verb", list(CHANGING), ids=" ".join)
def test_a_changing_verb_prints_its_plan_changes_nothing_and_prints_what_does_it(
    on: Run, run: Run, filled: Fill, world: World, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    words, before = filled(verb), standing(world)
    if verb == ("recover", "drop-sink"):
        two = Pipeline(tmp_path / "two", ("a", "b"))
        two.driver().writes(1, 2)
        words = [*words, "--ledger", two.ledger.address]
    planned = on(*words)
    assert planned.exit_code == 4, planned.output
    assert planned.stdout
    assert "Nothing was changed. To do it:" in planned.stderr
    if verb != ("recover", "drop-sink"):
        assert standing(world) == before
    printed = planned.stderr.splitlines()[-1]
    assert printed == shlex.join(["onceonly", *words, "--yes"])
    assert on(*shlex.split(printed)[1:]).exit_code == 0


def test_every_verb_that_cannot_answer_ends_with_2_and_one_document(
    run: Run, filled: Fill, world: World, tmp_path: Path
) -> None:
    gone, wrong = tmp_path / "nosuch.db", {}
    unanswerable = {
        ("explain",): ["explain", "E999"],
        ("checkpoint",): ["checkpoint", "nosuch://x/ck"],
        ("doctor",): ["doctor", "--nosuch"],
        ("recover", "rebuild-ledger"): [
            *filled(("recover", "rebuild-ledger")),
            "--ledger",
            str(gone),
            "--sink",
            "nosuch:x",
        ],
    }
    for verb in (*READING, *CHANGING):
        line = (*verb, *READING.get(verb, ((),))[0])
        before = standing(world)
        words = unanswerable.get(verb) or [*filled(line), "--ledger", str(gone)]
        result = run(*words, ONCEONLY_OUTPUT="json")
        try:
            error = document(result)["error"]
        except ValueError:
            error = {}
        parts = list(error) == ["code", "message", "matter", "cause", "next"]
        said = parts and error["message"] and error["message"] in result.stderr
        if result.exit_code != 2 or not said or standing(world) != before:
            wrong[verb] = (result.exit_code, result.output, result.exception, gone.exists())
    assert wrong == {}


def test_no_command_writes_an_exit_code_as_a_number() -> None:
    folder = Path(cli.__file__).parent
    ends = {(path.name, end) for path in folder.rglob("*.py") for end in re.findall(r"Exit\((.*)\)", path.read_text())}
    assert len(ends) > 5
    assert {end for end in ends if re.search(r"\d", end[1])} <= {("__init__.py", "2")}, "it runs without typer"


def test_a_code_and_the_next_command_of_an_error_are_members_of_their_own(run: Run, tmp_path: Path) -> None:
    error = document(run("audit", "--ledger", str(tmp_path / "no.db"), "-o", "json"))["error"]
    assert error["code"] == "E110"
    assert error["message"] == f"There is no ledger at {tmp_path / 'no.db'}."
    assert "onceonly recover rebuild-ledger" in error["next"]


def test_a_command_line_that_cannot_be_understood_is_one_document_too(run: Run) -> None:
    result = run("epochs", "show", "-o", "json", "--nosuch")
    assert result.exit_code == 2
    assert document(result)["error"]["next"] == "onceonly epochs show --help"


def test_a_plan_in_json_is_one_document_with_the_command_that_carries_it_out(on: Run, world: World) -> None:
    result = on("recover", "resolve", "-o", "json")
    found = document(result)
    assert (result.exit_code, found["changed"], found["plan"]["pipeline"]) == (4, False, "orders")
    assert document(on(*shlex.split(found["next"])[1:]))["pipeline"] == "orders"


def test_without_a_wish_for_json_an_error_leaves_stdout_alone(run: Run, tmp_path: Path) -> None:
    assert run("audit", "--ledger", str(tmp_path / "no.db")).stdout == ""


def test_a_plan_for_a_new_ledger_does_not_create_it(on: Run, world: World, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    words = ["recover", "rebuild-ledger", "--query", "orders", "--sink", world.sink.address, "--ledger", str(new)]
    assert on(*words).exit_code == 4
    assert not new.exists()
    assert on(*words, "--yes").exit_code == 0
    assert new.exists()
