"""Level L2: schedules on real stores, by the production runner, with faults on real wires."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from sqlalchemy.exc import StatementError

from onceonly.faults import Point
from onceonly.machine.callback_rules import Call
from onceonly_lab.checker import Anomaly, Verdict, judge
from onceonly_lab.fuzzer.draw import draw_alone
from onceonly_lab.history import Entry, Mark, Op, Range, Situation, parse
from onceonly_lab.history import Kind as Told
from onceonly_lab.model.parts import Kind
from onceonly_lab.model.spark import Damage
from onceonly_lab.play.driver import Driver
from onceonly_lab.play.play import Played
from onceonly_lab.schedule import LEDGER, Action, Fault, Gets, Loss, Schedule
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.stores.places import Servers
from onceonly_lab.stores.world import Making, Stores, Terms, play

pytestmark = pytest.mark.postgres

TWO = (Kind.POSTGRES, Kind.DELTA)


def commits(played: Played, kind: Told, sink: str) -> list[Entry]:
    entries = played.history.entries
    return [
        entry
        for entry in entries
        if entry.op is Op.COMMIT and entry.kind is kind and (entry.sink or "").startswith(sink)
    ]


def clean(played: Played, *situations: Situation) -> None:
    judgement = judge(played.history)
    assert judgement.verdict is Verdict.CLEAN, judgement.findings
    assert set(situations) <= judgement.reached
    assert set(played.schedule.faults) == played.acted


def test_a_run_without_faults_is_clean_and_its_history_can_be_read_again(servers: Servers) -> None:
    played = play(Schedule(TWO, records=3, rows=2), servers)
    clean(played)
    assert parse(played.history.text) == played.history
    assert judge(played.history).epochs == 3


@pytest.mark.parametrize("point", [Point.COMMIT_SENT, Point.STAGE_AFTER, Point.RECORD_BEFORE])
def test_a_driver_that_dies_anywhere_is_healed_by_the_next(servers: Servers, point: Point) -> None:
    clean(play(Schedule(TWO, records=2, faults=(Fault(1, point, Action.KILL),)), servers))


def test_a_split_epoch_is_brought_to_the_other_sink(servers: Servers) -> None:
    played = play(Schedule(TWO, records=2, faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),)), servers)
    clean(played, Situation.SPLIT)


MORE = pytest.mark.slow
"""The same claim at another point, or for other sinks."""

SHARES = [
    ((Kind.POSTGRES, Kind.DELTA, Kind.POSTGRES), (Gets.ALL, Gets.PICKED, Gets.BAD)),
    ((Kind.POSTGRES, Kind.POSTGRES), (Gets.ALL, Gets.BAD)),
    pytest.param(TWO, (Gets.ALL, Gets.BAD), marks=MORE),
    pytest.param((Kind.DELTA,), (Gets.PICKED,), marks=MORE),
]


@pytest.mark.parametrize("point", [Point.COMMIT_AFTER, pytest.param(Point.COMMIT_BEFORE, marks=MORE)])
@pytest.mark.parametrize(("sinks", "gets"), SHARES, ids=str)
def test_a_driver_that_dies_leaves_each_sink_what_was_decided_for_it(
    servers: Servers, sinks: tuple[Kind, ...], gets: tuple[Gets, ...], point: Point
) -> None:
    wants, bad = (0b0101, 0b0110) if Gets.PICKED in gets else (), (0b0010, 0b0101) if Gets.BAD in gets else ()
    faults = (Fault(1, point, Action.KILL),)
    played = play(Schedule(sinks, 4, cuts=(2,), rows=2, faults=faults, gets=gets, wants=wants, bad=bad), servers)
    clean(played)
    told = [entry.outputs for entry in played.history.entries if entry.outputs]
    assert len(told) >= 2


@pytest.mark.parametrize(
    "point",
    [Point.COMMIT_AFTER, *(pytest.param(point, marks=MORE) for point in (Point.COMMIT_SENT, Point.RECORD_BEFORE))],
)
def test_a_full_refresh_on_real_stores_leaves_the_new_series_alone_wherever_its_first_driver_dies(
    servers: Servers, point: Point
) -> None:
    faults = (Fault(1, Point.RETURN_BEFORE, Action.KILL), Fault(2, point, Action.KILL))
    lost = (Loss(2, Damage.REFRESHED),)
    played = play(Schedule(TWO, records=3, rows=2, incarnations=2, faults=faults, losses=lost, replaces=True), servers)
    clean(played)
    assert {commit.replaces for commit in commits(played, Told.INVOKE, "delta")} == {None, (1, 1)}
    assert not played.refusal


def windows_of(played: Played) -> list[tuple[int, int]]:
    """Epochs that a reader saw as the newest ones, with the rows that open windows held then."""
    marks = [mark for entry in played.history.entries for mark in entry.markers or ()]
    return [(mark.epoch, mark.windows) for mark in marks if mark.windows is not None]


WINDOWED = [
    (TWO, Fault(1, Point.COMMIT_AFTER, Action.KILL)),
    pytest.param((Kind.DELTA, Kind.POSTGRES), Fault(1, Point.COMMIT_SENT, Action.KILL, hit=2), marks=MORE),
    ((Kind.POSTGRES, Kind.POSTGRES), Fault(1, Point.COMMIT_SENT, Action.LOSE_ANSWER)),
    ((Kind.POSTGRES,), Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, steps=30)),
    ((Kind.DELTA,), Fault(1, Point.COMMIT_SENT, Action.KILL, hit=2)),
    pytest.param((Kind.DELTA,), Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, hit=2, steps=30), marks=MORE),
]


@pytest.mark.parametrize(("sinks", "fault"), WINDOWED, ids=str)
def test_windows_hold_what_the_epochs_up_to_theirs_have_brought(
    servers: Servers, sinks: tuple[Kind, ...], fault: Fault
) -> None:
    played = play(Schedule(sinks, records=3, rows=2, faults=(fault,), windows=True), servers)
    clean(played)
    assert not played.refusal
    seen = set(windows_of(played))  # not behind a commit whose answer was lost: nobody looks there
    assert {(3, 6)} < seen <= {(1, 2), (2, 4), (3, 6)}


def test_windows_begin_anew_with_a_full_refresh(servers: Servers) -> None:
    faults = (Fault(1, Point.RETURN_BEFORE, Action.KILL, hit=2), Fault(2, Point.COMMIT_AFTER, Action.KILL))
    lost = (Loss(2, Damage.REFRESHED),)
    refreshed = Schedule((Kind.DELTA, Kind.POSTGRES), 3, (1,), 2, 2, faults, lost, replaces=True, windows=True)
    played = play(refreshed, servers)
    clean(played)
    assert not played.refusal
    assert set(windows_of(played)) == {(1, 2), (2, 4), (3, 2), (4, 4), (5, 6)}


def test_a_row_that_state_lacks_is_found(servers: Servers) -> None:
    history = play(Schedule((Kind.POSTGRES,), records=2, rows=2, windows=True), servers).history
    entries = [
        replace(entry, markers=entry.markers and tuple(map(lacking, entry.markers))) for entry in history.entries
    ]
    judgement = judge(replace(history, entries=tuple(entries)))
    assert judgement.anomalies == {Anomaly.PANE}
    assert {finding.epoch for finding in judgement.findings} == {2}


def lacking(mark: Mark) -> Mark:
    return replace(mark, windows=mark.windows - 1) if mark.epoch == 2 and mark.windows is not None else mark


def test_a_lost_answer_is_found_to_be_a_yes(servers: Servers) -> None:
    fault = Fault(1, Point.COMMIT_SENT, Action.LOSE_ANSWER, hit=2)
    played = play(Schedule((Kind.POSTGRES,), records=3, faults=(fault,)), servers)
    clean(played, Situation.RESOLVED)
    assert len(commits(played, Told.INFO, "postgres")) == 1


def test_a_lost_request_is_found_to_be_a_no_and_sent_again(servers: Servers) -> None:
    fault = Fault(1, Point.COMMIT_SENT, Action.LOSE_REQUEST, hit=2)
    played = play(Schedule((Kind.POSTGRES,), records=3, faults=(fault,)), servers)
    clean(played)
    assert len(commits(played, Told.INVOKE, "postgres")) == 4


def test_an_answer_of_delta_is_lost_in_the_process(servers: Servers) -> None:
    fault = Fault(1, Point.COMMIT_SENT, Action.LOSE_ANSWER, hit=2)
    clean(play(Schedule((Kind.DELTA,), records=3, faults=(fault,)), servers), Situation.RESOLVED)


def test_a_zombie_changes_nothing(servers: Servers) -> None:
    faults = (Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, hit=2, steps=200),)
    clean(play(Schedule((Kind.DELTA,), records=3, faults=faults), servers), Situation.ZOMBIE)


def test_a_lost_ledger_loses_nothing(servers: Servers) -> None:
    faults = (Fault(1, Point.RETURN_BEFORE, Action.KILL, hit=2),)
    clean(play(Schedule(TWO, records=3, faults=faults, losses=(Loss(2, LEDGER),)), servers))


def test_a_deleted_checkpoint_stops_the_pipeline_by_a_named_refusal(servers: Servers) -> None:
    faults = (Fault(1, Point.RETURN_BEFORE, Action.KILL, hit=2),)
    schedule = Schedule((Kind.POSTGRES,), records=3, cuts=(1, 1, 3), faults=faults, losses=(Loss(2, Damage.DELETED),))
    played = play(schedule, servers)
    clean(played)
    assert played.refusal == "E211"


def lost_after_staging(servers: Servers, *cuts: int) -> tuple[Played, list[Entry]]:
    """A run whose checkpoint is lost once a batch is staged, and the two answers that say what its epoch was."""
    faults, losses = (Fault(1, Point.PREPARE_AFTER, Action.KILL),), (Loss(2, Damage.DELETED),)
    played = play(Schedule(TWO, records=3, cuts=cuts, faults=faults, losses=losses), servers)
    staged = [
        entry for entry in played.history.entries if (entry.op, entry.kind, entry.epoch) == (Op.STAGE, Told.OK, 1)
    ]
    assert played.history.header.deterministic
    assert len(staged) == 2
    return played, staged


def test_a_staged_batch_that_a_lost_checkpoint_cuts_otherwise_is_no_plan_that_changes(servers: Servers) -> None:
    played, (first, second) = lost_after_staging(servers, 1, 3)
    clean(played)
    assert (first.slice, second.slice) == ((Range("0", 0, 1),), (Range("0", 0, 3),))
    assert first.digest != second.digest


def test_a_staged_batch_that_is_cut_the_same_after_a_lost_checkpoint_must_give_the_same_rows(servers: Servers) -> None:
    played, (first, second) = lost_after_staging(servers, 1)
    clean(played)
    assert first.slice == second.slice == (Range("0", 0, 1),)
    entries = [replace(entry, digest="other") if entry is first else entry for entry in played.history.entries]
    assert judge(replace(played.history, entries=tuple(entries))).anomalies == {Anomaly.NONDET}


class FailsInSqlAlchemy(Driver):
    """A driver whose callback fails by an error that is none of the product's, and has a code all the same."""

    code: str | None = None

    def admits(self, call: Call) -> bool:
        raise StatementError("no such thing", "SELECT 1", {}, ValueError(), code=self.code)


class FailsInSqlAlchemyWithALink(FailsInSqlAlchemy):
    """The same with the code of a page of SQLAlchemy's."""

    code = "E211"


@pytest.mark.parametrize("driver", [FailsInSqlAlchemy, FailsInSqlAlchemyWithALink])
def test_an_error_that_is_none_of_the_products_is_told_by_its_class_and_never_by_a_code(
    servers: Servers, driver: type[Driver]
) -> None:
    damaged = Schedule((Kind.DELTA,), records=1, losses=(Loss(2, Damage.DELETED),))
    played = play(damaged, servers, Making(driver=driver))
    assert "E211" in played.history.header.refusals
    assert played.refusal == "StatementError"
    assert judge(played.history).anomalies == {Anomaly.STUCK}


def test_what_a_reader_sees_twice_is_found(servers: Servers) -> None:
    history = play(Schedule((Kind.POSTGRES,), records=2), servers).history
    doubled = [
        replace(entry, rows=(*entry.rows, entry.rows[0])) if entry.final and entry.rows else entry
        for entry in history.entries
    ]
    assert judge(replace(history, entries=tuple(doubled))).anomalies == {Anomaly.DUP}


def test_an_install_whose_commit_is_held_up_keeps_nobody_out(servers: Servers) -> None:
    text = Path(__file__).with_name("schedules").joinpath("silent-in-its-install.json").read_text()
    clean(play(Schedule.parse(text), servers))


def test_random_schedules_on_real_stores_are_clean(servers: Servers) -> None:
    seeds = [seed for seed in range(1, 40) if Kind.KAFKA not in draw_alone(seed).sinks][:3]
    for seed in seeds:
        judgement = judge(play(draw_alone(seed), servers).history)
        assert judgement.verdict is Verdict.CLEAN, (seed, judgement.findings)


@pytest.mark.slow
@pytest.mark.kafka
def test_what_a_dead_driver_left_open_is_settled_by_hand_where_the_next_is_refused_before_it_fences(
    with_broker: Servers,
) -> None:
    faults, lost = (Fault(1, Point.COMMIT_AFTER, Action.KILL),), (Loss(2, Damage.REFRESHED),)
    schedule = Schedule((Kind.POSTGRES, Kind.KAFKA), records=2, cuts=(1, 2), faults=faults, losses=lost)
    played = play(schedule, with_broker)
    clean(played)
    assert played.refusal == "E246"
    assert "the operator obeys onceonly recover resolve" in [entry.fault for entry in played.history.entries]


@pytest.mark.slow
@pytest.mark.kafka
def test_what_is_still_open_after_that_is_found(kafka: EmbeddedKafka, with_broker: Servers) -> None:
    strangers: list[Producer] = []

    def leave_open(world: Stores) -> None:
        stranger = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "a stranger", "log_level": 0})
        stranger.init_transactions(10)
        stranger.begin_transaction()
        stranger.produce(
            next(iter(world.places)).partition(":")[2], json.dumps({"id": "none", "key": "k", "amount": 0})
        )
        stranger.flush(10)
        strangers.append(stranger)

    faults, lost = (Fault(1, Point.RETURN_BEFORE, Action.KILL),), (Loss(2, Damage.REFRESHED),)
    schedule = Schedule((Kind.KAFKA,), records=2, faults=faults, losses=lost)
    played = play(schedule, with_broker, terms=Terms(reads=(), before=((2, leave_open),)))
    strangers[0].abort_transaction(10)
    refused = "the operator obeys onceonly recover resolve, which is refused: E514"
    assert refused in [entry.fault for entry in played.history.entries]
    assert judge(played.history).anomalies == {Anomaly.STUCK}
