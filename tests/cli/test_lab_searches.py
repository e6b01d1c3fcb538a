"""Searches of ``onceonly lab``, replay, shrink, points, necessity: exit codes, and the same as table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Run, document

from onceonly.faults import Point
from onceonly_lab.checker import Anomaly
from onceonly_lab.cli import proof as mutants_command
from onceonly_lab.cli import proof as points_command
from onceonly_lab.cli import run as run_command
from onceonly_lab.cli import run as schedules_command
from onceonly_lab.explorer.bounds import BOUNDS
from onceonly_lab.fuzzer.draw import draw
from onceonly_lab.fuzzer.world import fuzz, play
from onceonly_lab.history import Op, load
from onceonly_lab.model.parts import Kind
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.world import Bound
from onceonly_lab.mutants import play as mutants_play
from onceonly_lab.play.many import Report, play_all
from onceonly_lab.play.play import Played
from onceonly_lab.schedule import NOT_SENT, SIMULATED, Action, Fault, Level, Schedule, actions_at


def saved(folder: Path, *faults: Fault) -> str:
    path = folder / "schedule.json"
    path.write_text(Schedule((Kind.POSTGRES, Kind.KAFKA), records=2, faults=faults).text, encoding="utf-8")
    return str(path)


SPLIT = Fault(1, Point.COMMIT_AFTER, Action.KILL)
NEVER = Fault(1, Point.EXECUTE_AFTER, Action.KILL)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that take a moment: one that holds, and one without a rule of the protocol."""
    monkeypatch.setitem(BOUNDS, "pair", Bound((Kind.POSTGRES,), records=1, unknowns=0))
    monkeypatch.setitem(BOUNDS, "sinks", Bound((Kind.POSTGRES,), records=1, off=frozenset({Rule.OWNER})))


@pytest.mark.usefixtures("small")
def test_a_bound_in_which_nothing_breaks_is_0(run: Run) -> None:
    result = run("lab", "run", "--bound", "pair")
    assert result.exit_code == 0
    assert "complete: every interleaving" in result.stdout


@pytest.mark.usefixtures("small")
def test_a_violation_is_1_and_told(run: Run) -> None:
    result = run("lab", "run", "--bound", "pair", "--bound", "sinks", "-o", "json")
    assert result.exit_code == 1
    good, bad = document(result)["bounds"]
    assert (good["complete"], good["anomaly"], bad["anomaly"]) == (True, None, "X-ZOMBIE")
    assert bad["story"][0] == "driver A starts on the checkpoint"


@pytest.mark.usefixtures("small")
def test_a_search_that_stopped_at_its_limit_is_2(run: Run) -> None:
    result = run("lab", "run", "--bound", "pair", "--limit", "0")
    assert result.exit_code == 2
    assert "incomplete: stopped at its time limit" in result.stdout


def test_random_schedules_are_played_from_a_seed(run: Run) -> None:
    result = run("lab", "run", "--schedules", "3", "--seed", "7", "-o", "json")
    assert result.exit_code == 0
    found = document(result)
    assert (found["schedules"], found["seed"], found["anomaly"]) == (3, 7, None)
    assert run("lab", "run", "--schedules", "3").stdout.startswith("3 schedules from seed 1, ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bound", "nowhere"], f"--bound with one of: {', '.join(BOUNDS)}"),
        (["--bound", "pair", "--seed", "1"], "draws nothing"),
        (["--limit", "3"], "--limit is for a search"),
        (["--schedules", "0"], "--schedules"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_cannot_be_run_is_3_and_says_why(run: Run, arguments: list[str], words: str) -> None:
    result = run("lab", "run", *arguments)
    assert (result.exit_code, result.stdout) == (3, "")
    assert words in result.stderr


def test_a_schedule_is_played_again_and_told(run: Run, tmp_path: Path) -> None:
    result = run("lab", "replay", saved(tmp_path, SPLIT))
    assert result.exit_code == 0
    assert "driver A is killed at commit.after" in result.stdout
    found = document(run("lab", "replay", saved(tmp_path, SPLIT), "-o", "json"))
    assert (found["anomaly"], found["unstruck"]) == (None, [])
    assert "driver A is killed at commit.after" in found["steps"]


def test_a_fault_that_never_came_to_act_proves_nothing(run: Run, tmp_path: Path) -> None:
    result = run("lab", "replay", saved(tmp_path, SPLIT, NEVER))
    assert result.exit_code == 2
    assert result.stdout.splitlines()[-1] == "inconclusive: never came to act: 1:execute.after#1 kill"


@pytest.mark.parametrize("verb", ["replay", "shrink"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"schedule": 7}', "schedule.json: schedule: wants version 1, got 7"),
        (b"\xff\xfe", "schedule.json: 'utf-8' codec"),
        (Schedule((Kind.KAFKA,), 1, faults=(SPLIT,)).text.replace("commit.after", "nowhere").encode(), "commit.sent"),
    ],
    ids=["version", "bytes", "point"],
)
def test_a_file_that_is_no_schedule_is_3_and_names_what_is_wrong(
    run: Run, tmp_path: Path, verb: str, content: bytes, words: str
) -> None:
    path = tmp_path / "schedule.json"
    path.write_bytes(content)
    result = run("lab", verb, str(path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert words in result.stderr


def test_a_schedule_that_breaks_nothing_cannot_be_made_smaller(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "smaller.json"
    result = run("lab", "shrink", saved(tmp_path, SPLIT), "--smaller", str(target))
    assert (result.exit_code, result.stdout, target.exists()) == (0, "", False)
    assert "It breaks nothing" in result.stderr


def test_points_strikes_every_point_with_every_action_that_applies(run: Run) -> None:
    result = run("lab", "points", "--schedules", "0", "-o", "json")
    found = document(result)
    assert result.exit_code == 0
    assert (found["unreached"], found["unstruck"], found["anomaly"]) == ([], [], None)
    assert [one["point"] for one in found["points"]] == list(Point)
    for one in found["points"]:
        assert list(one["struck"]) == list(actions_at(Point(one["point"])))
        assert min(one["struck"].values()) > 0
        assert {*one["struck"], *one["not_applicable"]} == set(SIMULATED)


def test_points_and_actions_that_nothing_is_aimed_at_are_1_and_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points_command, "aimed", lambda: iter(()))
    result = run("lab", "points", "--schedules", "1")
    assert result.exit_code == 1
    assert "never struck: " in result.stdout
    assert f"-: {NOT_SENT}" in " ".join(result.stdout.split())


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules whose histories end before the pipeline is left in peace, so that they prove too little."""

    def cut_short(schedule: Schedule) -> Played:
        played = play(schedule)
        entries = tuple(entry for entry in played.history.entries if entry.op is not Op.SETTLE)
        return replace(played, history=replace(played.history, entries=entries))

    def fuzzed(schedules: Iterable[Schedule]) -> Report:
        return play_all(schedules, cut_short, Report(Level.SIMULATED), shrinks=True)

    monkeypatch.setattr(points_command, "fuzz_all", fuzzed)
    monkeypatch.setattr(run_command, "fuzz", lambda first, count: fuzzed(map(draw, range(first, first + count))))


@pytest.mark.usefixtures("unproven")
@pytest.mark.parametrize(("verb", "code"), [("points", 1), ("run", 2)])
def test_a_history_that_proves_too_little_is_told_with_its_reason_and_its_seed(run: Run, verb: str, code: int) -> None:
    given = ("lab", verb, "--schedules", "5", "--seed", "7")
    result = run(*given)
    said = " ".join(result.stdout.split())
    assert result.exit_code == code
    assert "INCONCLUSIVE" in said
    assert "the history ends before the pipeline was left in peace" in said
    found = document(run(*given, "-o", "json"))
    assert f"with seed {found['schedule']['seed']}:" in said
    assert (found["anomaly"], found["judgement"]["verdict"]) == (None, "INCONCLUSIVE")


def test_necessity_shows_every_variant_and_is_0(run: Run) -> None:
    result = run("lab", "necessity")
    assert result.exit_code == 0
    assert "every variant shows what it must, and nothing else" in result.stdout
    found = document(run("lab", "necessity", "-o", "json"))
    assert found["surprises"] == []
    assert all(one["as_expected"] for one in (*found["variants"], *found["zombies"]))
    assert json.dumps(found["variants"][0]["counts"]) == '{"DUP": 66, "TORN": 91}'


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A schedule that breaks something, played by commands that turn the same rule of the protocol off."""
    off = frozenset({Rule.ONE_COPY})
    failed = fuzz(1, 2000, off).failed
    assert failed is not None
    monkeypatch.setattr(schedules_command, "play", lambda schedule: play(schedule, off))
    path = tmp_path / "breaking.json"
    path.write_text(failed.schedule.text, encoding="utf-8")
    return str(path)


def test_a_schedule_that_breaks_something_is_1_and_made_smaller(run: Run, breaking: str, tmp_path: Path) -> None:
    anomaly = document(run("lab", "replay", breaking, "-o", "json"))["anomaly"]
    target = tmp_path / "smaller.json"
    result = run("lab", "shrink", breaking, "--smaller", str(target))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{anomaly} after ")
    assert run("lab", "replay", str(target)).exit_code == 1
    assert run("lab", "shrink", breaking).stdout == target.read_text()


def test_a_random_schedule_that_breaks_something_leaves_a_history_to_judge_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    off, kept = frozenset({Rule.ONE_COPY}), tmp_path / "kept.jsonl"
    monkeypatch.setattr(run_command, "fuzz", lambda first, count: fuzz(first, count, off))
    assert run("lab", "run", "--schedules", "2000", "--keep", str(kept)).exit_code == 1
    assert run("lab", "recheck", str(kept)).exit_code == 1
    _, *drawn = load(kept).header.again
    assert run("lab", "run", *drawn).exit_code == 1


def test_what_only_processes_suffer_is_not_played_without_any(run: Run, tmp_path: Path) -> None:
    result = run("lab", "replay", saved(tmp_path, Fault(1, Point.COMMIT_AFTER, Action.KILL_JVM)))
    assert result.exit_code == 3
    assert "faults[0].action: only a job on a real Spark can be given kill jvm" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--bound", "pair", "--level", "L2"], "draws nothing"),
        (["run", "--level", "L9"], "--level"),
        (["run", "--level", "L3", "--only", "kill"], "--only cannot be used here"),
        (["run", "--level", "L3", "--bound", "pair"], "--bound cannot be used here"),
        (["run", "here:job", "--level", "L2"], "goes at L3 or L4"),
        (["run", "here:job", "--bound", "pair"], "--bound cannot be used here"),
        (["run", "--junit", "out.xml"], "--junit cannot be used here"),
        (["points", "--level", "L2"], "goes at L1 or L3 or L4"),
        (["points", "here:job", "--schedules", "5"], "--schedules cannot be used here"),
        (["mutants", "--only", "M99"], "There is no mutant 'M99'"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_cannot_be_played_is_3(run: Run, arguments: list[str], words: str) -> None:
    result = run("lab", *arguments)
    assert result.exit_code == 3
    assert words in result.stderr


def test_a_mutant_that_is_called_by_its_name_is_0_and_keeps_its_histories(run: Run, tmp_path: Path) -> None:
    result = run("lab", "mutants", "--only", "m16", "--keep", str(tmp_path), "-o", "json")
    assert result.exit_code == 0, result.stderr
    found = document(result)
    (mutant,) = found["mutants"]
    assert (mutant["id"], mutant["killed"], mutant["twin"]) == ("M16", True, "CLEAN")
    assert mutant["verdict"] == mutant["expected"] == ["X-DUP", "X-ZOMBIE"]
    assert found["killed"] == 1
    assert run("lab", "recheck", str(tmp_path / "M16.jsonl")).exit_code == 1
    assert run("lab", "recheck", str(tmp_path / "M16-twin.jsonl")).exit_code == 0
    assert load(tmp_path / "M16.jsonl").header.again == ("mutants", "--only", "M16")


def test_a_mutant_that_is_called_something_else_is_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = mutants_play.chosen(["M16"])
    monkeypatch.setattr(mutants_command, "chosen", lambda _: (replace(one, expected=(Anomaly.DUP,)),))
    result = run("lab", "mutants")
    assert result.exit_code == 1
    assert "0/1 are called exactly what they are" in result.stdout


def test_a_mutant_whose_faults_never_act_is_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = mutants_play.chosen(["M16"])
    late = tuple(replace(fault, hit=9) for fault in one.schedule.faults)
    monkeypatch.setattr(
        mutants_command, "chosen", lambda _: (replace(one, schedule=replace(one.schedule, faults=late)),)
    )
    result = run("lab", "mutants")
    assert result.exit_code == 2
    assert "M16 is inconclusive: never came to act: 1:return.before#9 kill" in result.stdout


def test_a_schedule_is_replayed_on_real_stores(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    schedule = Schedule((Kind.DELTA,), records=2, faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),))
    path.write_text(schedule.text, encoding="utf-8")
    result = run("lab", "replay", str(path), "--level", "L2")
    assert result.exit_code == 0, result.stderr
    assert '"fault":"commit.after:kill"' in result.stdout
    path.write_text(
        replace(schedule, faults=(NEVER, Fault(1, Point.COMMIT_AFTER, Action.KILL, 9))).text, encoding="utf-8"
    )
    result = run("lab", "replay", str(path), "--level", "L2", "-o", "json")
    assert result.exit_code == 2
    assert document(result)["unstruck"] == ["1:execute.after#1 kill", "1:commit.after#9 kill"]
