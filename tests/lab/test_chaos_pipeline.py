"""A job's declaration is checked where it stands, the job is found again by its place, a campaign follows its seed."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly.lab import pipeline
from onceonly.lab.chaos import samples
from onceonly.lab.chaos.campaign import check_playable
from onceonly.lab.chaos.draw import Facts, draw
from onceonly.lab.chaos.pipeline import load
from onceonly.lab.chaos.running import seconds_of
from onceonly.lab.chaos.source import source_entries
from onceonly.lab.chaos.surgery import operate
from onceonly.lab.level import Level
from onceonly.lab.model.parts import Kind
from onceonly.lab.model.spark import Damage
from onceonly.lab.schedule import Action, Fault, Loss, Schedule, UnreadableSchedule

PASSED = (Point.DISCOVER_AFTER, Point.INSTALL_SENT, Point.COMMIT_SENT, Point.COMMIT_AFTER, Point.RETURN_BEFORE)


def build(env: Any) -> Any:
    return env.source.writeStream


job = pipeline(rows=6, batches=3, identity="id", order_by=("key", "seq"))(build)


def facts(*sinks: Kind, plain: bool = False, level: Level = Level.WARM) -> Facts:
    passed = dict.fromkeys((Point.DISCOVER_AFTER, Point.RETURN_BEFORE) if plain else PASSED, 3)
    return Facts("module:job", sinks, 3, 200, passed, plain, level)


# ---- declarations


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"rows": 2, "batches": 3}, "rows=2 cannot be cut into batches=3"),
        ({"order_by": ("key",)}, r"order_by=\('key',\) is not"),
        ({"row": lambda number: {"number": number}}, "the input has no column id"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_once(arguments, said):
    with pytest.raises(ConfigurationError, match=said):
        pipeline(**arguments)(build)


def test_a_job_that_no_driver_could_find_is_refused_at_once():
    def inner(env: Any) -> Any:
        return env

    with pytest.raises(ConfigurationError, match="defined inside of a function"):
        pipeline()(inner)


def test_a_job_is_found_again_by_the_place_it_names():
    assert load("onceonly.lab.chaos.samples:plain") is samples.plain
    assert load(samples.plain.name).function.__qualname__ == "plain"


def test_a_job_in_a_file_that_nobody_can_import_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "orders_job.py"
    file.write_text("from onceonly.lab import pipeline\n\n@pipeline(rows=9)\ndef orders(env):\n    return None\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = load(f"{file}:orders")
    assert found.rows == 9
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    assert found.name == f"{file}:orders"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no.such.module:job", "ModuleNotFoundError"),
        ("nowhere.py:job", "FileNotFoundError"),
        ("onceonly.lab.chaos.samples:nothing", "AttributeError"),
        ("onceonly.lab.chaos.samples:ALL", "ALL is a tuple"),
        ("onceonly", "ValueError"),
    ],
)
def test_a_place_without_a_job_is_named(place, said):
    with pytest.raises(ConfigurationError, match=said):
        load(place)


def test_the_input_has_the_declared_columns_and_every_key_in_order():
    entries = list(source_entries(job, 3, 2))
    rows = [row for entry in entries for row in entry.rows or ()]
    assert [row.identity for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert {*job.made(8)} == {"id", "key", "seq", "word"}
    assert job.made(8)["key"] == job.made(1)["key"]
    assert job.made(8)["seq"] > job.made(1)["seq"]


@pytest.mark.parametrize(("budget", "seconds"), [("90s", 90), ("3m", 180), ("0.5h", 1800), (7, 7)])
def test_a_budget_is_a_time(budget, seconds):
    assert seconds_of(budget) == seconds


def test_a_budget_that_is_no_time_is_refused():
    with pytest.raises(ConfigurationError, match="budget='soon' is no time"):
        seconds_of("soon")


# ---- schedules


def test_the_same_seed_draws_the_same_schedules_and_another_one_others():
    of = facts(Kind.DELTA)
    assert list(draw(of, 1)) == list(draw(of, 1))
    assert [one.faults for one in draw(of, 1)] != [one.faults for one in draw(of, 2)]


def test_what_tells_most_comes_first_and_alone():
    first, second = islice(draw(facts(Kind.DELTA, Kind.POSTGRES), 1), 2)
    assert first.faults == (Fault(1, Point.RETURN_BEFORE, Action.KILL),)
    assert second.faults == (Fault(1, Point.COMMIT_AFTER, Action.KILL),)


@pytest.mark.parametrize("seed", range(5))
def test_every_point_that_a_job_passes_is_killed_once(seed):
    drawn = list(draw(facts(Kind.DELTA, Kind.POSTGRES), seed))
    killed = {fault.point for one in drawn for fault in one.faults if fault.action is Action.KILL}
    assert killed == {*PASSED, Point.RECORD_AFTER, Point.LOOK_UP_AFTER, Point.FETCH_AFTER, Point.REINDEX_AFTER}
    assert all(one.incarnations <= 3 for one in drawn)
    for one in drawn:
        check_playable(one)


def test_a_plain_job_is_given_nothing_that_it_cannot_suffer():
    drawn = list(draw(facts(Kind.DELTA, plain=True), 1))
    assert {fault.point for one in drawn for fault in one.faults} == {Point.DISCOVER_AFTER, Point.RETURN_BEFORE}
    assert {fault.action for one in drawn for fault in one.faults} == {Action.KILL}


def test_cold_drivers_are_stopped_first():
    first = next(iter(draw(facts(Kind.DELTA, level=Level.COLD), 1)))
    assert first.faults == (Fault(1, Point.COMMIT_BEFORE, Action.PAUSE),)


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Schedule((Kind.DELTA,), 3, faults=(Fault(1, Point.COMMIT_SENT, Action.HIDE),)), r"faults\[0\].action: only"),
        (
            Schedule((Kind.DELTA,), 3, losses=(Loss(1, Damage.COPIED.value),)),
            r"losses\[0\].what: a checkpoint on a disk",
        ),
    ],
)
def test_what_no_real_driver_can_suffer_is_refused(schedule, said):
    with pytest.raises(UnreadableSchedule, match=said):
        check_playable(schedule)


# ---- surgery


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three batches, the last of them not committed."""
    place = tmp_path / "checkpoint"
    for log, count in (("offsets", 3), ("commits", 2)):
        (place / log).mkdir(parents=True)
        for batch in range(count):
            (place / log / str(batch)).write_text("v1")
            (place / log / f".{batch}.crc").write_text("")
    (place / "metadata").write_text("{}")
    return place


def left(checkpoint: Path) -> tuple[list[str], list[str]]:
    logs = [sorted(path.name for path in (checkpoint / log).glob("[0-9]*")) for log in ("offsets", "commits")]
    return logs[0], logs[1]


@pytest.mark.parametrize(
    ("damage", "offsets", "commits"),
    [
        (Damage.CUT_OFF, ["0", "1"], ["0", "1"]),
        (Damage.ROLLED_BACK, ["0", "1"], ["0"]),
        (Damage.ROLLED_BACK_TWO, ["0"], []),
        (Damage.OFFSETS_REMOVED, [], ["0", "1"]),
    ],
)
def test_damage_leaves_what_its_name_says(checkpoint, damage, offsets, commits):
    assert operate(checkpoint, damage.value)
    assert left(checkpoint) == (offsets, commits)


def test_a_commit_entry_that_is_not_there_cannot_be_taken_away(checkpoint):
    assert not operate(checkpoint, Damage.COMMIT_REMOVED.value)
    (checkpoint / "commits" / "2").write_text("v1")
    assert operate(checkpoint, Damage.COMMIT_REMOVED.value)
    assert left(checkpoint) == (["0", "1", "2"], ["0", "1"])


def test_nothing_can_be_done_to_a_checkpoint_that_is_not_there(tmp_path):
    assert not operate(tmp_path / "checkpoint", Damage.DELETED.value)
    assert not operate(tmp_path / "checkpoint", "ledger")


def test_the_ledger_beside_a_checkpoint_goes_with_what_sqlite_adds_to_it(checkpoint):
    for end in ("", "-wal"):
        checkpoint.with_name(f"checkpoint.onceonly.db{end}").touch()
    assert operate(checkpoint, "ledger")
    assert [path.name for path in checkpoint.parent.iterdir()] == ["checkpoint"]


# ---- the plugin


def test_pytest_pays_nothing_for_the_plugin_where_nobody_uses_it():
    code = (
        "import sys, pytest, onceonly.lab.pytest_plugin; print(*(m for m in sys.modules if m.startswith('onceonly')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(loaded) == ["onceonly", "onceonly.lab", "onceonly.lab.pytest_plugin"]


def test_the_plugin_is_registered_with_its_options_and_markers(pytestconfig: pytest.Config):
    assert pytestconfig.pluginmanager.has_plugin("onceonly")
    assert pytestconfig.getoption("--chaos-budget") is None
    assert any(line.startswith("chaos_level(level)") for line in pytestconfig.getini("markers"))
