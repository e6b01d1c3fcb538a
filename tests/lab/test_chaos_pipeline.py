"""A job's declaration is checked where it stands, the job is found again by its place, a campaign follows its seed."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly_lab import pipeline
from onceonly_lab.chaos import samples
from onceonly_lab.chaos.campaign import check_playable, seconds_of
from onceonly_lab.chaos.cells import Cell, Facts, Matrix, left_out
from onceonly_lab.chaos.draw import DAMAGES, TRIES, draw
from onceonly_lab.chaos.least import DEFAULT, Least
from onceonly_lab.chaos.pipeline import load, source_entries
from onceonly_lab.chaos.play import operate
from onceonly_lab.chaos.pool import cut_to
from onceonly_lab.model.parts import Kind
from onceonly_lab.model.spark import Damage
from onceonly_lab.schedule import LEDGER, Action, Fault, Level, Loss, Schedule, UnreadableSchedule

PASSED = (Point.DISCOVER_AFTER, Point.INSTALL_SENT, Point.COMMIT_SENT, Point.COMMIT_AFTER, Point.RETURN_BEFORE)


def build(env: Any) -> Any:
    return env.source.writeStream


job = pipeline(rows=6, batches=3, identity="id", order_by=("key", "seq"))(build)


def facts(
    *sinks: Kind, plain: bool = False, level: Level = Level.WARM, batches: int = 3, stateful: bool = False
) -> Facts:
    passed = dict.fromkeys((Point.DISCOVER_AFTER, Point.RETURN_BEFORE) if plain else PASSED, 3)
    return Facts("module:job", sinks, batches, 200, passed, plain, level, stateful)


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
    assert load("onceonly_lab.chaos.samples:plain") is samples.plain
    assert load(samples.plain.name).function.__qualname__ == "plain"


def test_a_job_in_a_file_that_nobody_can_import_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "orders_job.py"
    file.write_text("from onceonly_lab import pipeline\n\n@pipeline(rows=9)\ndef orders(env):\n    return None\n")
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
        ("onceonly_lab.chaos.samples:nothing", "AttributeError"),
        ("onceonly_lab.chaos.samples:ALL", "ALL is a tuple"),
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
    assert second.faults[0] == Fault(1, Point.COMMIT_AFTER, Action.KILL)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("batches", [1, 3, 12])
def test_every_point_that_a_job_passes_is_killed(seed, batches):
    drawn = list(draw(facts(Kind.DELTA, Kind.POSTGRES, batches=batches), seed))
    killed = {fault.point for one in drawn for fault in one.faults if fault.action is Action.KILL}
    assert killed >= {*PASSED, Point.LOOK_UP_AFTER, Point.FETCH_AFTER, Point.REINDEX_AFTER}
    for one in drawn:
        check_playable(one)


def cells_of(schedule: Schedule) -> set[Cell]:
    return {(fault.point, fault.action) for fault in schedule.faults}


def test_what_was_struck_is_not_drawn_again_and_what_was_not_is():
    of, struck, drawn = facts(Kind.DELTA, Kind.POSTGRES), set[Cell](), Counter[Cell]()
    deaf = (Point.INSTALL_SENT, Action.LOSE_LEDGER)
    for one in draw(of, 3, struck=struck, thorough=True):
        drawn.update(cells_of(one))
        struck |= cells_of(one) - {deaf}
    assert drawn[deaf] == TRIES
    assert drawn[Point.INSTALL_SENT, Action.LOSE_ANSWER] == 1
    matrix = Matrix(left_out(of), dict.fromkeys(struck, 1), of.passed, frozenset(drawn))
    unpassed = {point for point, _ in matrix.unstruck} - {Point.INSTALL_SENT}
    assert unpassed == set(Point) - {*PASSED, Point.LOOK_UP_AFTER, Point.FETCH_AFTER, Point.REINDEX_AFTER} - {
        Point.EXECUTE_AFTER
    }


def test_what_was_struck_already_is_not_drawn_again():
    everything = {(point, action) for point in Point for action in Action}
    drawn = list(draw(facts(Kind.DELTA, Kind.POSTGRES), 1, struck=everything, thorough=True))
    assert drawn
    assert all(one.losses for one in drawn)


def test_what_tells_most_about_a_job_is_not_left_to_another():
    everything = {(point, action) for point in Point for action in Action}
    drawn = draw(facts(Kind.DELTA, Kind.POSTGRES), 1, elsewhere=everything, thorough=True)
    cells = [(fault.point, fault.action) for one in drawn if not one.losses for fault in one.faults]
    assert set(cells) == {(Point.RETURN_BEFORE, Action.KILL), (Point.COMMIT_AFTER, Action.KILL)}


@pytest.mark.parametrize("batches", [2, 3, 6])
def test_a_chain_ends_before_its_input_does(batches):
    """Every driver needs a batch that is not written yet, or the rest of the chain would never be born."""
    late = list(Point)[list(Point).index(Point.COMMIT_SENT) :]
    for one in draw(facts(Kind.DELTA, Kind.POSTGRES, batches=batches), 1, thorough=True):
        written = [fault for fault in one.faults if fault.action is Action.KILL and fault.point in late]
        assert len(one.faults) <= 3 or len(written) <= batches


def test_a_schedule_without_time_for_all_of_its_drivers_keeps_the_first():
    chain = Schedule(
        (Kind.DELTA,), 3, incarnations=3, faults=tuple(Fault(n, Point.COMMIT_BEFORE, Action.KILL) for n in (1, 2, 3))
    )
    cut = cut_to(chain, 2)
    assert cut == Schedule((Kind.DELTA,), 3, incarnations=2, faults=chain.faults[:2])
    assert cut_to(chain, 3) is chain
    assert cut_to(chain, 0) is None


@pytest.mark.parametrize("batches", [2, 3, 6, 12])
def test_every_damage_is_found_by_a_driver_that_then_dies(batches):
    drawn = [one for one in draw(facts(Kind.DELTA, batches=batches), 1) if one.losses]
    assert sorted(loss.what for one in drawn for loss in one.losses) == sorted([*DAMAGES, LEDGER])
    for one in drawn:
        killed = {fault.incarnation for fault in one.faults if fault.action is Action.KILL}
        assert killed == {*range(1, one.incarnations + 1)}
        assert {loss.before for loss in one.losses} <= killed


def test_who_waits_for_an_answer_that_is_held_is_killed_and_the_request_lands_later():
    drawn = [fault for one in draw(facts(Kind.DELTA, Kind.POSTGRES), 1) for fault in one.faults]
    held = next(at for at, one in enumerate(drawn) if (one.point, one.action) == (Point.COMMIT_SENT, Action.DELAY))
    delay, kill = drawn[held : held + 2]
    assert (delay.hit, kill.hit) == (2, 2), "the second sink is the first with a wire"
    assert (kill.incarnation, kill.point, kill.action) == (delay.incarnation, Point.COMMIT_BEFORE, Action.KILL)
    assert kill.ms


# ---- the matrix


def test_what_cannot_come_to_act_is_left_out_by_name_and_with_the_reason():
    out = left_out(facts(Kind.DELTA))
    assert {point for point, action in out if action is Action.PAUSE} == set(Point)
    assert out[Point.FETCH_AFTER, Action.KILL] == "the job has one sink, so nothing is staged"
    assert out[Point.EXECUTE_AFTER, Action.KILL].startswith("the job keeps no state")
    assert (Point.COMMIT_AFTER, Action.KILL) not in out
    cold = left_out(facts(Kind.DELTA, Kind.POSTGRES, level=Level.COLD))
    assert {point for point, action in cold if action is Action.PAUSE} == {Point.EXECUTE_AFTER}


def test_a_point_that_no_driver_passed_counts_against_the_job():
    matrix = Matrix(left_out(facts(Kind.DELTA)), {(Point.RETURN_BEFORE, Action.KILL): 2}, {Point.RETURN_BEFORE: 4})
    assert (Point.COMMIT_AFTER, Action.KILL) in matrix.unstruck
    assert matrix.sentence == f"1 of {len(matrix.cells)} cells struck (3%)"
    (line,) = [line for line in matrix.lines() if line.startswith("not struck, no driver passed the point: ")]
    assert "commit.after" in line


def test_jobs_leave_out_together_what_each_of_them_leaves_out():
    stateful, several = facts(Kind.POSTGRES, stateful=True), facts(Kind.DELTA, Kind.POSTGRES)
    both = Matrix.of([Matrix(left_out(stateful)), Matrix(left_out(several))])
    left = {cell for cell in both.left_out if cell[1] is Action.KILL}
    assert left == set()
    assert {cell for cell in left_out(stateful) if cell[1] is Action.KILL} == {
        (point, Action.KILL) for point in (Point.STAGE_BEFORE, Point.STAGE_AFTER, Point.FETCH_AFTER)
    }


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
        (
            Schedule((Kind.DELTA,), 3, faults=(Fault(1, Point.COMMIT_SENT, Action.KILL_JVM),)),
            r"faults\[0\].action: kill jvm needs a JVM of the driver's own",
        ),
        (
            Schedule((Kind.DELTA,), 3, losses=(Loss(1, Damage.COPIED.value),)),
            r"losses\[0\].what: a checkpoint on a disk",
        ),
    ],
)
def test_what_no_real_driver_can_suffer_is_refused(schedule, said):
    with pytest.raises(UnreadableSchedule, match=said):
        check_playable(schedule, Level.WARM)


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


# ---- what proves something


def test_a_campaign_that_went_through_less_than_was_asked_for_has_proved_little() -> None:
    assert Least.parse("20 kills, 8 cells") == Least(20, 8)
    assert Least.parse("1 kill") == Least(kills=1)
    assert list(Least.parse(DEFAULT).lacking(1, 1, 25)) == [
        "proved little: 1 of 25 cells struck, at least 3 were asked for"
    ]
    assert list(Least(kills=2).lacking(1, 9, 25)) == ["proved little: 1 kill, at least 2 were asked for"]
    assert not list(Least(2, 3).lacking(2, 3, 25))
    assert not list(Least(cells=3).lacking(1, 2, 2)), "a plain job has two cells"
    for text in ("many", "3", "3 cells 4 kills", ""):
        with pytest.raises(ConfigurationError, match="at_least"):
            Least.parse(text)


def test_a_fault_that_was_drawn_and_never_fired_is_named_in_the_sentence() -> None:
    cell, other = (Point.COMMIT_SENT, Action.KILL), (Point.COMMIT_AFTER, Action.KILL)
    whole = Matrix(struck={cell: 1, other: 1}, drawn=frozenset({cell, other}))
    assert "never fired" not in whole.sentence
    said = Matrix(struck={cell: 1}, drawn=frozenset({cell, other})).sentence
    assert said.endswith("; drawn and never fired: kill at commit.after")
