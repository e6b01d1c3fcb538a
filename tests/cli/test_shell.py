"""The command tree itself: entry point, codes, streams, and what happens when something breaks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.audit.world import World
from tests.cli.conftest import Run, assert_answerless, document

from onceonly.audit.catalogue import RULES
from onceonly.cli.app import app
from onceonly.cli.errors import to_json, words_for
from onceonly.cli.tree import TREE as WORDS
from onceonly.doctor import PAGES as ILLS
from onceonly.errors import refuse
from onceonly.errors.codes import CATALOGUE
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.install import hint, upgrade
from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_checkpoints.model import UnreadableMarker
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint
from onceonly_checkpoints.storage import UnreachableStorage
from onceonly_lab.anomalies import PAGES
from onceonly_lab.checker import MUST_HOLD, Anomaly

TREE: Any = typer.main.get_command(app)


def commands(command: Any = TREE, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it, the tree itself and its nouns too."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, *words, name)


def is_sentence(text: str | None) -> bool:
    """Whether a text ends with a full stop and begins with a capital, or with a word of code."""
    return re.match(r"([A-Z]|\S*[-(:]).*\.$", " ".join((text or "").split())) is not None


@pytest.mark.docs
def test_every_help_text_is_a_sentence() -> None:
    told = [(words, paragraph) for words, one in commands() for paragraph in (one.help or "").split("\n\n")]
    told += [((*words, option.name), option.help) for words, one in commands() for option in one.params if option.name]
    assert [(words, text) for words, text in told if not is_sentence(text)] == []


@pytest.mark.docs
def test_every_command_prints_its_help(run: Run) -> None:
    results = {words: run(*words, "--help") for words, _ in commands()}
    wrong = [
        (words, result.output)
        for words, result in results.items()
        if result.exit_code or not re.match(rf"usage: \w+ {' '.join(words)}", result.stdout, re.IGNORECASE)
    ]
    assert wrong == []


def test_the_root_lists_every_noun(run: Run) -> None:
    text = run("--help").stdout
    assert [noun for noun in TREE.commands if f"\n  {noun} " not in text] == []


@pytest.mark.docs
def test_every_code_can_be_explained(run: Run) -> None:
    wrong = {}
    for code in (*CATALOGUE, *RULES, *Anomaly):
        result = run("explain", code)
        titles = dict(line.rsplit(maxsplit=1) for line in result.stdout.splitlines()[:1])
        unfilled = "{" in result.stdout.replace("{start", "")
        if result.exit_code or titles != {"code": code} or "\nnext " not in result.stdout or unfilled:
            wrong[code] = (result.exit_code, result.output)
    assert wrong == {}


def test_a_code_may_be_spelled_as_it_is_printed(run: Run) -> None:
    assert run("explain", "ONCE-E203").stdout == run("explain", "e203").stdout


def test_all_codes_are_listed_without_one(run: Run) -> None:
    found = document(run("explain", "-o", "json"))["codes"]
    assert [page["code"] for page in found] == [*CATALOGUE, *RULES, *ILLS, *Anomaly]
    assert document(run("explain", "A121", "-o", "json"))["verdict"] == "GAPS"


def test_an_anomaly_is_explained_with_its_promise_its_causes_and_where_to_look(run: Run) -> None:
    page = document(run("explain", "x-loss", "-o", "json"))
    assert list(page) == ["schema_version", "code", "what", "must hold", "likely cause", "next"]
    assert (page["code"], page["must hold"]) == ("X-LOSS", MUST_HOLD[Anomaly.LOSS])
    assert list(PAGES) == list(Anomaly)


def test_an_unknown_code_is_answered_in_words(run: Run) -> None:
    for code in ("E999", "X-", "X-FOO", "", "nonsense"):
        assert_answerless(run("explain", code), f"There is no code {code!r}.")


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout.startswith("onceonly 0.")


def test_no_command_at_all_prints_the_help(run: Run) -> None:
    assert run().output == run("--help").output


def test_json_is_all_that_stands_on_stdout(run: Run, world: World, tmp_path: Path) -> None:
    arguments = ("-q", "orders", "--sink", world.sink.address, "--ledger", str(tmp_path / "gone.db"))
    result = run("audit", *arguments, "-o", "json")
    json.loads(result.stdout)
    assert "There is no ledger at" in result.stderr


def test_options_may_come_from_the_environment(run: Run, world: World) -> None:
    found = run("audit", ONCEONLY_LEDGER=str(world.path), ONCEONLY_QUERY="orders", ONCEONLY_OUTPUT="json")
    assert document(found)["verdict"] == "EXACTLY ONCE"


def test_an_unexpected_error_is_two_and_not_a_finding(run: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("password=geheim is wrong")

    monkeypatch.setattr(type(world.sink), "recount", break_down)
    result = run("audit", "--ledger", str(world.path))
    assert_answerless(result, "Unexpected RuntimeError", "ONCEONLY_DEBUG=1")
    assert "geheim" not in result.output


def test_the_traceback_of_an_unexpected_error_can_be_had(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(type(world.sink), "recount", break_down)
    result = run("audit", "--ledger", str(world.path), ONCEONLY_DEBUG="1")
    assert isinstance(result.exception, RuntimeError)


def test_errors_of_ours_keep_their_words() -> None:
    error = refuse("E101")
    assert words_for(error) == str(error)
    assert "--ledger" in words_for(LedgerUnavailable("the disk is full"))
    told = words_for(OutcomeUnknown("s", "lost"))
    assert told.startswith("Cannot answer: s: lost\n  Next: ")


@pytest.mark.parametrize(
    ("error", "next_"),
    [
        (UnreadableMarker("marker format 2"), upgrade()),
        (UnreadableCheckpoint("offsets/3", "damaged", "damaged"), "onceonly doctor"),
        (UnreachableStorage("no answer"), "onceonly doctor"),
        (Superseded("s", Fence(2, "them")), "stop it"),
        (OSError("no route to host"), "onceonly doctor"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_without_a_code_names_the_next_command_too(error: Exception, next_: str) -> None:
    assert next_ in to_json(words_for(error))["next"]


def onceonly(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    script = "from onceonly.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, env={**env}
    )


def test_the_entry_point_runs_as_a_process(tmp_path: Path) -> None:
    done = onceonly("explain", "E101", PATH="/usr/bin", HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout


def test_without_its_extra_the_command_line_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('No module named typer', name='typer')")
    done = onceonly("explain", PYTHONPATH=str(tmp_path), HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == f"The command line needs typer: {hint('cli')}\n"


def test_the_demo_gets_every_argument_as_it_is(run: Run) -> None:
    result = run("demo", "--kills", "0")
    assert result.exit_code == 2
    assert "--kills" in result.output
    assert "--quick" in run("demo", "--help").output


_COMMAND = re.compile(rf"onceonly ((?:{'|'.join(WORDS)})\b[^;,)\n\"|]*)")
_FILLED = {"epoch": "1", "batch": "1", "address": "memory:x"}


def commands_in(texts: Iterable[str]) -> list[list[str]]:
    """Commands that texts tell the user to run, with every detail filled in."""
    filled = (re.sub(r"\{(\w+)(?::q)?\}", lambda detail: _FILLED.get(detail[1], "x"), text) for text in texts)
    found = (shlex.split(command.rstrip(". ")) for text in filled for command in _COMMAND.findall(text))
    return [list(words) for words in sorted({tuple(words) for words in found})]


def test_commands_that_a_finding_prints_run_as_they_are(on: Run, run: Run, world: World) -> None:
    world.keep_rows(3, 5)
    finding = document(on("audit", "-o", "json"))["findings"][0]
    words, rerun = sorted(commands_in([finding["remedy"]]), key=lambda words: "replay" in words)
    assert rerun[:2] == ["replay", "run"], "obeyed in integration/test_rerun.py"
    result = run(*words)
    assert result.exit_code == 0, (words, result.output)
    assert "3 of orders" in result.stdout


def test_commands_that_a_finding_prints_run_without_a_ledger_too(run: Run, world: World) -> None:
    world.keep_rows(3, 5)
    findings = document(run("audit", "-q", "orders", "--sink", world.sink.address, "-o", "json"))["findings"]
    told = commands_in([finding["remedy"] for finding in findings if finding["code"] == "A121"])
    [words] = [words for words in told if "replay" not in words]
    assert run(*words).exit_code == 0


def test_a_name_with_blanks_and_quotes_is_one_word_of_a_printed_command(run: Run, tmp_path: Path) -> None:
    world = World(tmp_path, "it's my $(orders)").write_all()
    world.keep_rows(3, 5)
    place = ("--ledger", str(world.path), "-o", "json")
    finding = document(run("audit", *place))["findings"][0]
    printed = finding["remedy"].partition("onceonly ")[2].partition("; restore")[0]
    result = run(*shlex.split(printed))
    assert result.exit_code == 0, (printed, result.output)
    refused = refuse("E213", sink="kafka:it's", first=1, pipeline=world.name, ledger="ledger.db", behind="", range="")
    assert shlex.split(refused.remedy.partition("drop-sink ")[2])[:2] == [world.name, "kafka:it's"]


def test_reading_commands_load_neither_spark_nor_drivers(tmp_path: Path) -> None:
    script = (
        "import sys; from onceonly.cli.app import app; "
        "print(*{name.partition('.')[0] for name in sys.modules} & {'pyspark', 'psycopg', 'deltalake', 'pyarrow'})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["explain", "E101"], 0, "E101"),
        (["audit", "--ledger", "nowhere.db"], 2, "nowhere.db"),
        (["lab", "run", "--level", "L3"], 2, f"onceonly lab needs psutil: {hint('lab')}"),
        (["demo", "--quick"], 2, hint("demo")),
        (["--help"], 0, "audit"),
    ],
)
def test_the_command_line_runs_with_its_own_packages_alone_and_names_the_extra_of_what_does_not(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    others = "psutil numpy pyspark pandas pyarrow psycopg deltalake delta confluent_kafka jinja2 vl_convert fsspec"
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({others.split()!r})); "
        "from onceonly.cli import main; sys.argv[0] = 'onceonly'; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert words in done.stdout + done.stderr


def test_the_command_line_is_there_as_a_module() -> None:
    said = subprocess.run([sys.executable, "-m", "onceonly", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("onceonly ")


def test_a_shell_can_complete_the_commands(run: Run) -> None:
    assert "--install-completion" in run("--help").stdout
    asked = {"_ONCEONLY_COMPLETE": "complete_bash", "COMP_WORDS": "onceonly ep", "COMP_CWORD": "1"}
    command = [Path(sys.executable).with_name("onceonly")]
    completed = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **asked}, check=False)
    assert completed.stdout.split() == ["epochs"]


def test_a_word_lists_the_codes_that_speak_of_it(run: Run) -> None:
    found = run("explain", "postgres").stdout.splitlines()
    assert 1 < len(found) < len(run("explain").stdout.splitlines())
    assert_answerless(run("explain", "nosuchword"), "There is no code")


def test_no_code_is_explained_by_a_blank_alone(run: Run) -> None:
    pages = document(run("explain", "-o", "json"))["codes"]
    assert [page["code"] for page in pages if re.fullmatch(r"<\w+>", page["what"])] == []
    assert document(run("explain", "E102", "-o", "json"))["what"].startswith(
        "exactly_once() cannot write to these sinks"
    )


def test_a_sink_of_ones_own_is_known_once_it_is_published_as_the_refusal_says(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from onceonly_sinks.memory import MemorySink\n\n\n"
        "class Mine(MemorySink):\n"
        "    @classmethod\n"
        "    def from_address(cls, address):\n"
        "        return cls(address)\n"
    )
    check = ("doctor", "--sink", "mine:orders")
    where = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    refused = onceonly(*check, **where)
    assert refused.returncode == 1
    found = re.search(r'\[project\.entry-points\."(\S+)"\] (\w+) = "module:Class"', refused.stdout)
    assert found, refused.stdout
    described = tmp_path / "mine-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(f"[{found[1]}]\n{found[2]} = mine:Mine\n")
    answered = onceonly(*check, **where)
    assert (answered.returncode, answered.stderr) == (0, ""), answered.stdout
    assert "answers" in answered.stdout
