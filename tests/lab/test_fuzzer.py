"""Random schedules: the same seed is the same run, the product breaks nothing, and what fails is made smaller."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly.machine import precheck
from onceonly_lab.checker import Anomaly, Verdict, judge
from onceonly_lab.fuzzer.draw import aimed, draw, draw_alone
from onceonly_lab.fuzzer.world import SimulatedWorld, fuzz, fuzz_all, play
from onceonly_lab.history import parse
from onceonly_lab.model.invariants import Breach
from onceonly_lab.model.parts import Harm, Kind
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.spark import Damage
from onceonly_lab.model.world import Program
from onceonly_lab.play.many import MOST_REPLAYS, broken, fingerprint
from onceonly_lab.play.play import Played
from onceonly_lab.play.world import Process
from onceonly_lab.schedule import SIMULATED, Action, Fault, Gets, Loss, Schedule, UnreadableSchedule

QUICK = 300
SEEDS = 40


def test_the_same_seed_gives_the_same_history():
    first = [fingerprint(play(draw(seed)).history) for seed in range(SEEDS)]
    assert first == [fingerprint(play(draw(seed)).history) for seed in range(SEEDS)]
    assert len(set(first)) > SEEDS / 2


@pytest.fixture(scope="module")
def fuzzed():
    """What the first random schedules have shown."""
    return fuzz(1, QUICK)


@pytest.mark.lab
def test_random_schedules_break_nothing_and_pass_every_point(fuzzed):
    assert fuzzed.failed is None, fuzzed.failed.schedule.text if fuzzed.failed else ""
    assert fuzzed.unreached == ()
    assert set(fuzzed.acted) == set(SIMULATED)


def test_every_action_that_applies_strikes_at_every_point_and_breaks_nothing():
    wrong, points = [], set()
    for point, action, schedule in aimed():
        played = play(schedule)
        points.add(point)
        if played.acted != set(schedule.faults) or broken(played) is not None:
            wrong.append(f"{action} at {point}: {len(played.acted)} faults acted, {broken(played)} found")
    assert wrong == []
    assert points == set(Point)


@pytest.mark.slow
def test_five_thousand_schedules_break_nothing():
    fuzzed = fuzz(1, 5000)
    print(f"{fuzzed.schedules} schedules, {fuzzed.rate:.0f} a second")
    assert fuzzed.failed is None, fuzzed.failed.schedule.text if fuzzed.failed else ""


def split(kind: Kind = Kind.KAFKA) -> Schedule:
    return Schedule((Kind.POSTGRES, kind), records=2, faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),))


def test_a_driver_killed_between_two_sinks_leaves_one_behind_and_the_next_heals_it():
    played = play(split())
    assert played.violation is None
    assert any("driver B takes the staged bytes" in step for step in played.steps)
    assert judge(played.history).verdict is Verdict.CLEAN


REFRESHED = Schedule(
    (Kind.DELTA, Kind.POSTGRES),
    records=2,
    incarnations=2,
    faults=(Fault(1, Point.RETURN_BEFORE, Action.KILL), Fault(2, Point.COMMIT_AFTER, Action.KILL)),
    losses=(Loss(2, Damage.REFRESHED),),
    replaces=True,
)
"""One epoch, a full refresh, and a driver that dies between the two sinks of its first epoch."""


def test_a_refresh_cut_off_between_two_sinks_is_healed_and_old_rows_leave_both():
    played = play(REFRESHED)
    assert played.violation is None
    assert played.refusal == ""
    assert set(REFRESHED.faults) == played.acted
    assert judge(played.history).verdict is Verdict.CLEAN


@pytest.mark.parametrize(
    ("rule", "anomaly"),
    [(Rule.HEALER_DELETES, Anomaly.DUP), (Rule.CLEARED_WITH_MARKER, Anomaly.LOSS)],
    ids=lambda one: one.name,
)
def test_a_refresh_whose_rows_leave_otherwise_is_called_by_its_name(rule, anomaly):
    played = play(REFRESHED, frozenset({rule}))
    assert played.violation is not None
    assert played.violation.name is anomaly


DIVIDED = Schedule(
    (Kind.POSTGRES, Kind.DELTA, Kind.KAFKA),
    records=2,
    cuts=(2,),
    faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),),
    gets=(Gets.ALL, Gets.PICKED, Gets.BAD),
    wants=(0b11, 0b01),
    bad=(0b01, 0b10),
)
"""Record 1 is bad and the output wants both; the call of whoever heals says otherwise of either."""


def held(played: Played, sink: str) -> list[str]:
    reads = [entry for entry in played.history.entries if entry.final and entry.sink == sink]
    return [row.identity for row in reads[-1].rows or ()]


def test_a_healer_brings_what_was_decided_when_the_epoch_was_staged_and_not_what_its_own_call_wants():
    played = play(DIVIDED)
    assert played.violation is None
    assert {sink: held(played, sink) for sink in DIVIDED.sinks} == {
        "postgres": ["1.0"],
        "delta": ["1.0"],
        "kafka": ["0.0"],
    }
    assert judge(played.history).verdict is Verdict.CLEAN
    assert parse(played.history.text) == played.history


@pytest.mark.parametrize(
    ("rule", "bad", "anomaly"),
    [
        (Rule.SET_ASIDE, (0b01,), Anomaly.ASIDE),
        (Rule.MARKERS_OUTPUT, (0b01, 0b10), Anomaly.CROSS),
        (Rule.MARKERS_OUTPUT, (0,), Anomaly.CROSS),
    ],
)
def test_a_share_that_comes_out_otherwise_is_called_by_its_name(rule, bad, anomaly):
    divided = replace(DIVIDED, wants=(0b01, 0b10), bad=bad)
    assert broken(play(divided)) is None
    assert broken(play(divided, frozenset({rule}))) is anomaly


@pytest.mark.parametrize("rule", [Rule.SET_ASIDE, Rule.MARKERS_OUTPUT])
def test_random_schedules_notice_a_share_that_comes_out_otherwise(rule):
    fuzzed = fuzz(50, 2000, frozenset({rule}))
    assert fuzzed.shrunk is not None
    print(fuzzed.schedules, fuzzed.shrunk.name, fuzzed.shrunk.schedule.line)
    assert fuzzed.shrunk.schedule.gets


def test_a_stateful_batch_that_is_run_again_under_other_expectations_stops_by_name():
    again = Schedule(
        (Kind.POSTGRES, Kind.DELTA),
        records=1,
        faults=(Fault(1, Point.RETURN_BEFORE, Action.KILL),),
        stateful=True,
        gets=(Gets.ALL, Gets.BAD),
        bad=(0, 1),
    )
    played = play(again)
    assert (played.refusal, broken(played)) == ("E215", None)
    assert play(replace(again, bad=(1,))).refusal == ""


REPEATED = Schedule((Kind.KAFKA, Kind.POSTGRES), records=4, cuts=(2,), keys=(1, 1, 2, 1), incarnations=1)
"""Of four records two are left out: one whose key comes twice in its batch, and one whose key an epoch has brought."""


def test_of_records_with_one_key_the_first_is_in_every_sink_whoever_brings_it():
    for point in (Point.COMMIT_BEFORE, Point.COMMIT_AFTER, Point.RETURN_BEFORE):
        played = play(replace(REPEATED, faults=(Fault(1, point, Action.KILL),)))
        assert broken(played) is None, point
        assert [held(played, sink) for sink in ("kafka", "postgres")] == [["0.0", "2.0"]] * 2, point


def test_after_a_full_refresh_every_key_comes_once_more():
    refreshed = (Loss(2, Damage.REFRESHED),)
    played = play(replace(REPEATED, sinks=(Kind.POSTGRES, Kind.DELTA), losses=refreshed, replaces=True))
    assert broken(played) is None
    assert "driver B returns; the engine logs batch 1 as done" in played.steps
    assert [held(played, sink) for sink in ("postgres", "delta")] == [["0.0", "2.0"]] * 2


@pytest.mark.parametrize(
    ("rule", "anomaly", "first"), [(Rule.SEEN_WITH_MARKER, Anomaly.AGAIN, 3_400), (Rule.SEEN_ANEW, Anomaly.LOSS, 400)]
)
def test_random_schedules_notice_a_catalogue_of_keys_that_is_kept_otherwise(rule, anomaly, first):
    fuzzed = fuzz_all(
        (one for one in map(draw, range(first, 12_000)) if one.keys and not one.windows), frozenset({rule})
    )
    assert fuzzed.shrunk is not None
    print(fuzzed.schedules, fuzzed.shrunk.name, fuzzed.shrunk.schedule.line)
    assert fuzzed.shrunk.name is anomaly
    assert fuzzed.shrunk.schedule.keys
    assert broken(play(fuzzed.shrunk.schedule)) is None


@pytest.mark.parametrize(("rule", "name"), [(Rule.TIME_WITH_MARKER, Anomaly.TIME), (Rule.TIME_COPIED, Anomaly.CROSS)])
def test_random_schedules_notice_time_that_is_not_what_the_marker_says_of_it(rule, name):
    fuzzed = fuzz(1, 200, frozenset({rule}), checked=False)
    assert fuzzed.shrunk is not None
    print(fuzzed.schedules, fuzzed.shrunk.name, fuzzed.shrunk.schedule.line)
    assert fuzzed.shrunk.name is name
    assert broken(play(fuzzed.shrunk.schedule)) is None


def test_a_catalogue_that_is_read_before_the_fence_lacks_what_another_driver_commits_until_then():
    """It goes on when the second driver has looked, and dies before that one has a fence."""
    between = (Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, steps=5), Fault(1, Point.RETURN_BEFORE, Action.KILL))
    schedule = replace(REPEATED, sinks=(Kind.POSTGRES,), faults=between, incarnations=2)
    played = play(schedule, frozenset({Rule.SEEN_UNDER_FENCE}))
    assert played.acted == set(between)
    assert broken(played) is Anomaly.AGAIN
    assert judge(played.history).anomalies == {Anomaly.AGAIN}, "a history tells as well"
    assert broken(play(schedule)) is None


def test_a_topic_beside_the_table_stops_a_refresh():
    played = play(replace(REFRESHED, sinks=(Kind.KAFKA, Kind.POSTGRES), faults=(), replaces=False))
    assert played.violation is None
    assert played.refusal == "E246"


def test_a_zombie_that_goes_on_changes_nothing():
    paused = Schedule((Kind.POSTGRES,), records=2, faults=(Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, steps=1000),))
    played = play(paused)
    assert played.violation is None
    assert any("driver A cannot: commits epoch 1" in step for step in played.steps)
    assert judge(played.history).verdict is Verdict.CLEAN


@pytest.mark.parametrize("rule", [Rule.LOOKED_UP, Rule.ONE_COPY, Rule.STAGED, Rule.KEPT])
def test_a_schedule_that_fails_is_made_smaller_and_still_fails(rule):
    fuzzed = fuzz(1, 2000, frozenset({rule}), checked=False)
    assert fuzzed.failed is not None
    assert fuzzed.shrunk is not None
    assert fuzzed.shrunk.replays <= MOST_REPLAYS
    again = play(fuzzed.shrunk.schedule, frozenset({rule}))
    assert broken(again, checked=False) is fuzzed.shrunk.name
    assert size(fuzzed.shrunk.schedule) <= size(fuzzed.failed.schedule)


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).with_name("schedules").glob("*.json")), ids=lambda path: path.stem
)
def test_a_schedule_that_once_found_a_bug_breaks_nothing_any_more(path):
    schedule = Schedule.parse(path.read_text())
    played = play(schedule)
    assert broken(played) is None
    assert played.acted == set(schedule.faults)


def size(schedule: Schedule) -> int:
    return len(schedule.faults) + len(schedule.losses) + len(schedule.sinks) + schedule.records + schedule.incarnations


def test_those_who_are_no_driver_act_and_are_counted(fuzzed):
    assert fuzzed.idle == ()
    assert fuzzed.actors["the operator"] > 5


@pytest.mark.parametrize("program", [program for program in Program if program.misuses])
def test_a_program_that_calls_wrongly_is_refused_and_breaks_nothing(program):
    wrong = {Program.PARTS: "E123", Program.WRAPPERS: "E103", Program.CONSTANT: "E124"}
    played = play(Schedule((Kind.POSTGRES, Kind.DELTA), records=4, cuts=(2,), program=program))
    assert broken(played) is None
    assert played.actors[f"a program {program}"] == 2
    for driver in ("A", "B"):  # the one that follows replays the batch, and is refused as well
        assert f"driver {driver} stops: {wrong[program]}" in played.steps


def test_a_refusal_by_anybody_but_the_wrapper_is_no_program_that_calls_wrongly():
    world = SimulatedWorld(Schedule((Kind.POSTGRES,), records=2, program=Program.PARTS))
    refused = refuse("E123", pipeline="orders", batch=1)
    assert world.stopped(Process(1, 0), refused) == "E123"
    assert not world.actors


BESIDE = Schedule(
    (Kind.POSTGRES,),
    records=4,
    faults=(Fault(1, Point.RETURN_BEFORE, Action.PAUSE, hit=2, steps=1000),),
    losses=(Loss(2, Damage.ANOTHER),),
    begins=True,
)
"""Another job of the name starts beside one that is healthy."""


def test_another_job_of_the_name_beside_a_healthy_one_is_refused_and_the_healthy_one_goes_on():
    played = play(BESIDE)
    assert broken(played) is None
    assert played.acted == set(BESIDE.faults)
    assert "driver B stops: E203" in played.steps
    assert "driver A returns; the engine logs batch 3 as done" in played.steps


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that refuses nothing before it has installed its fences."""
    monkeypatch.setattr(precheck, "check_opening", lambda found, ahead=None, identities=(): None)


@pytest.mark.parametrize("kind", Kind)
def test_without_the_look_another_job_that_is_refused_has_stopped_the_healthy_one(kind, monkeypatch):
    assert broken(play(replace(BESIDE, sinks=(kind,)))) is None
    blind(monkeypatch)
    played = play(replace(BESIDE, sinks=(kind,)))
    assert "driver B stops: E203" in played.steps
    assert "driver A stops: E401" in played.steps
    assert played.violation is not None
    assert played.violation.name is Breach.KILLED
    assert "owner-2" in played.violation.words


def test_random_schedules_notice_a_product_without_the_look_and_the_one_that_does_is_made_smaller(monkeypatch):
    blind(monkeypatch)
    fuzzed = fuzz(80, 2000, checked=False)
    assert fuzzed.shrunk is not None
    assert fuzzed.shrunk.name is Breach.KILLED
    assert broken(play(fuzzed.shrunk.schedule), checked=False) is Breach.KILLED


def test_who_is_refused_for_what_came_after_his_look_may_have_stopped_somebody():
    """He could not have known: between his look and his fence the driver that he stops has committed."""
    paused = (
        Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, hit=2, steps=7),
        Fault(1, Point.RETURN_BEFORE, Action.PAUSE, hit=2, steps=1000),
    )
    lost = (Loss(2, Damage.CUT_OFF),)
    played = play(Schedule((Kind.POSTGRES,), records=4, cuts=(1, 1, 2), faults=paused, losses=lost, begins=True))
    assert broken(played) is None
    told = [
        "driver B looks at sink 'postgres' and finds epoch 1",
        "driver A commits epoch 2 to sink 'postgres'",
        "driver B stops: E205",
        "driver A stops: E401",
    ]
    assert [step for step in played.steps if step in told] == told


@pytest.mark.parametrize(
    ("at", "stopped"), [(0, ["B: E208", "A: E508", "C: E208"]), (1, ["B: E208", "A: E401", "C: E208"])]
)
def test_who_is_refused_for_a_sink_that_is_another_one_stops_nobody_unless_only_the_fence_can_tell(at, stopped):
    """What Kafka has confirmed may be hidden from a look, so that one that lacks it is no proof yet."""
    replaced = Schedule(
        (Kind.POSTGRES, Kind.KAFKA),
        records=4,
        cuts=(1,),
        faults=(Fault(1, Point.RETURN_BEFORE, Action.PAUSE, hit=2, steps=1000),),
        losses=(Loss(2, Harm.REPLACED, at),),
    )
    played = play(replaced)
    assert broken(played) is None
    stops = [step.removeprefix("driver ").replace(" stops", "") for step in played.steps if " stops: E" in step]
    assert stops == stopped


def test_a_program_is_named_as_it_is_or_refused():
    with pytest.raises(UnreadableSchedule, match="program: wants one of"):
        Schedule((Kind.POSTGRES,), records=1, program="twice")


def test_what_real_stores_cannot_play_is_left_out():
    drawn = [draw(seed) for seed in range(QUICK)]
    assert any(one.peopled for one in drawn)
    assert not any(one.alone.peopled or one.alone.trims for one in drawn)
    assert Counter(one.alone == one for one in drawn)[True] > QUICK / 15
    for_stores = [draw_alone(seed) for seed in range(QUICK)]
    assert all(schedule.alone == schedule for schedule in for_stores)
    assert QUICK / 15 < sum(schedule.windows for schedule in for_stores) < QUICK / 3


def test_what_is_drawn_differs_in_every_way():
    drawn = [draw(seed) for seed in range(QUICK)]
    assert {len(one.sinks) for one in drawn} == {1, 2, 3, 4}
    assert any(one.sinks.count(Kind.POSTGRES) > 1 for one in drawn), "tables that commit together"
    assert {fault.action for one in drawn for fault in one.faults} == set(SIMULATED)
    assert Counter(bool(one.losses) for one in drawn)[True] > QUICK / 10
    assert {gets for one in drawn for gets in one.gets} == set(Gets)
    divided = [one for one in drawn if one.gets]
    assert QUICK / 5 < len(divided) < QUICK / 2
    assert any(one.trims for one in divided)
    assert any(one.sinks.count(Kind.POSTGRES) > 1 and Gets.BAD in one.gets for one in divided)
    assert any(loss.what == Damage.REFRESHED for one in divided for loss in one.losses)
    assert any(len(set(one.keys)) < len(one.keys) for one in drawn)


WINDOWED = Schedule((Kind.KAFKA, Kind.POSTGRES), records=4, cuts=(2,), windows=True, incarnations=1)
"""Two epochs, of which the second one goes on with the windows that the first one left open."""


def test_open_windows_hold_each_row_once_whoever_brings_it():
    for point in (Point.STAGE_AFTER, Point.COMMIT_BEFORE, Point.COMMIT_AFTER, Point.RETURN_BEFORE):
        played = play(replace(WINDOWED, faults=(Fault(1, point, Action.KILL),)))
        assert broken(played) is None, point
        assert any("goes on with windows that hold records 1 to 2" in step for step in played.steps), point


@pytest.mark.parametrize("rule", [Rule.SEEN_WITH_MARKER, Rule.SEEN_ANEW, Rule.GOOD_IN_WINDOWS])
def test_random_schedules_notice_state_of_windows_that_is_kept_otherwise(rule):
    unkeyed = (one for one in filter(windowed, map(draw, range(400, 4000))) if not one.keys)
    fuzzed = fuzz_all(unkeyed, frozenset({rule}))
    assert fuzzed.shrunk is not None
    print(fuzzed.schedules, fuzzed.shrunk.name, fuzzed.shrunk.schedule.line)
    assert fuzzed.shrunk.name is Anomaly.PANE
    assert broken(play(fuzzed.shrunk.schedule)) is None


def test_bad_rows_in_windows_are_called_by_the_world_and_by_a_history():
    schedule = replace(WINDOWED, gets=(Gets.BAD, Gets.ALL), bad=(0b0010,))
    played = play(schedule, frozenset({Rule.GOOD_IN_WINDOWS}))
    assert broken(played) is Anomaly.PANE
    assert judge(played.history).anomalies == {Anomaly.PANE}
    assert broken(play(schedule)) is None
    assert judge(play(schedule).history).anomalies == set()


def test_a_key_is_seen_where_its_first_row_was_bad():
    schedule = Schedule((Kind.POSTGRES, Kind.DELTA), 3, gets=(Gets.ALL, Gets.BAD), bad=(0b001,), keys=(1, 2, 1))
    played = play(schedule)
    assert broken(played) is None
    assert judge(played.history).anomalies == set()
    assert [held(played, sink) for sink in ("postgres", "delta")] == [["1.0"], ["0.0"]]


def windowed(schedule: Schedule) -> bool:
    return schedule.windows


def test_state_that_is_read_before_the_fence_lacks_what_another_driver_commits_until_then():
    """It goes on when the second driver has looked, and dies before that one has a fence."""
    between = (Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, steps=5), Fault(1, Point.RETURN_BEFORE, Action.KILL))
    schedule = replace(WINDOWED, sinks=(Kind.POSTGRES,), faults=between, incarnations=2)
    played = play(schedule, frozenset({Rule.SEEN_UNDER_FENCE}))
    assert broken(played) is Anomaly.PANE
    assert judge(played.history).anomalies == {Anomaly.PANE}, "a history tells as well"
    assert broken(play(schedule)) is None


@pytest.mark.lab
def test_windows_are_drawn_and_hold_in_random_schedules():
    report = fuzz_all(filter(windowed, map(draw, range(1, 1200))))
    assert report.schedules > 50
    assert report.shrunk is None, report.shrunk
