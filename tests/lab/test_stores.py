"""Level L2: schedules on real stores, by the production runner, with faults on real wires."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from onceonly.faults import Point
from onceonly_lab.checker import Anomaly, Verdict, judge
from onceonly_lab.history import Entry, Op, Situation, parse
from onceonly_lab.history import Kind as Told
from onceonly_lab.kafka import EmbeddedKafka
from onceonly_lab.model.parts import Kind
from onceonly_lab.model.spark import Damage
from onceonly_lab.postgres import temporary_postgres
from onceonly_lab.proxy import KafkaProxy, PostgresProxy
from onceonly_lab.schedule import LEDGER, Action, Fault, Loss, Schedule
from onceonly_lab.stores.ground import Broker, Ground
from onceonly_lab.stores.play import Played, play
from onceonly_lab.stores.run import lines, run

pytestmark = pytest.mark.postgres

TWO = (Kind.POSTGRES, Kind.DELTA)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with (
        tempfile.TemporaryDirectory() as root,
        temporary_postgres() as server,
        PostgresProxy(("127.0.0.1", server.port)) as wire,
    ):
        yield Ground(Path(root), (server, wire))


def commits(played: Played, kind: Told, sink: str) -> list[Entry]:
    entries = played.history.entries
    return [one for one in entries if one.op is Op.COMMIT and one.kind is kind and (one.sink or "").startswith(sink)]


def clean(played: Played, *situations: Situation) -> None:
    judgement = judge(played.history)
    assert judgement.verdict is Verdict.CLEAN, judgement.findings
    assert set(situations) <= judgement.reached
    assert set(played.schedule.faults) == played.acted


def test_a_run_without_faults_is_clean_and_its_history_can_be_read_again(ground: Ground) -> None:
    played = play(Schedule(TWO, records=3, rows=2), ground)
    clean(played)
    assert parse(played.history.text) == played.history
    assert judge(played.history).epochs == 3


@pytest.mark.parametrize("point", [Point.COMMIT_AFTER, Point.COMMIT_SENT, Point.STAGE_AFTER, Point.RECORD_BEFORE])
def test_a_driver_that_dies_anywhere_is_healed_by_the_next(ground: Ground, point: Point) -> None:
    clean(play(Schedule(TWO, records=2, faults=(Fault(1, point, Action.KILL),)), ground))


def test_a_split_epoch_is_brought_to_the_other_sink(ground: Ground) -> None:
    played = play(Schedule(TWO, records=2, faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),)), ground)
    clean(played, Situation.SPLIT)


def test_a_lost_answer_is_found_to_be_a_yes(ground: Ground) -> None:
    fault = Fault(1, Point.COMMIT_SENT, Action.LOSE_ANSWER, hit=2)
    played = play(Schedule((Kind.POSTGRES,), records=3, faults=(fault,)), ground)
    clean(played, Situation.RESOLVED)
    assert len(commits(played, Told.INFO, "postgres")) == 1


def test_a_lost_request_is_found_to_be_a_no_and_sent_again(ground: Ground) -> None:
    fault = Fault(1, Point.COMMIT_SENT, Action.LOSE_REQUEST, hit=2)
    played = play(Schedule((Kind.POSTGRES,), records=3, faults=(fault,)), ground)
    clean(played)
    assert len(commits(played, Told.INVOKE, "postgres")) == 4


def test_an_answer_of_delta_is_lost_in_the_process(ground: Ground) -> None:
    fault = Fault(1, Point.COMMIT_SENT, Action.LOSE_ANSWER, hit=2)
    clean(play(Schedule((Kind.DELTA,), records=3, faults=(fault,)), ground), Situation.RESOLVED)


def test_a_zombie_changes_nothing(ground: Ground) -> None:
    faults = (Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, hit=2, steps=200),)
    clean(play(Schedule((Kind.DELTA,), records=3, faults=faults), ground), Situation.ZOMBIE)


def test_a_lost_ledger_loses_nothing(ground: Ground) -> None:
    faults = (Fault(1, Point.RETURN_BEFORE, Action.KILL, hit=2),)
    clean(play(Schedule(TWO, records=3, faults=faults, losses=(Loss(2, LEDGER),)), ground))


def test_a_deleted_checkpoint_stops_the_pipeline_by_a_named_refusal(ground: Ground) -> None:
    faults = (Fault(1, Point.RETURN_BEFORE, Action.KILL, hit=2),)
    schedule = Schedule((Kind.POSTGRES,), records=3, cuts=(1, 1, 3), faults=faults, losses=(Loss(2, Damage.DELETED),))
    played = play(schedule, ground)
    clean(played)
    assert played.refusal == "E211"


def test_what_a_reader_sees_twice_is_found(ground: Ground) -> None:
    history = play(Schedule((Kind.POSTGRES,), records=2), ground).history
    doubled = [
        replace(one, rows=(*one.rows, one.rows[0])) if one.final and one.rows else one for one in history.entries
    ]
    assert judge(replace(history, entries=tuple(doubled))).anomalies == {Anomaly.DUP}


def test_an_install_whose_commit_is_held_up_keeps_nobody_out(ground: Ground) -> None:
    text = Path(__file__).with_name("schedules").joinpath("silent-in-its-install.json").read_text()
    clean(play(Schedule.parse(text), ground))


def test_random_schedules_on_real_stores_are_clean(ground: Ground) -> None:
    from onceonly_lab.fuzzer.draw import draw

    seeds = [seed for seed in range(1, 40) if Kind.KAFKA not in draw(seed).sinks][:5]
    for seed in seeds:
        judgement = judge(play(draw(seed).alone, ground).history)
        assert judgement.verdict is Verdict.CLEAN, (seed, judgement.findings)


@pytest.mark.slow
@pytest.mark.kafka
def test_three_hundred_random_schedules_are_clean(
    ground: Ground, kafka: EmbeddedKafka, wire: KafkaProxy, inner_wire: KafkaProxy
) -> None:
    ran = run(1, 300, replace(ground, kafka=Broker(kafka, wire, inner_wire)))
    assert ran.failed is None, "\n".join(lines(ran))
    assert not ran.missing
