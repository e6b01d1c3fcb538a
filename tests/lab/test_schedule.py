"""Schedules: one document, read back exactly, and refused with the name of what is wrong."""

from __future__ import annotations

import json

import pytest

from onceonly.faults import Point
from onceonly_lab.fuzzer.draw import draw
from onceonly_lab.model.parts import Kind
from onceonly_lab.schedule import Action, Fault, Loss, Schedule, UnreadableSchedule

SPLIT = Schedule(
    sinks=(Kind.POSTGRES, Kind.KAFKA),
    records=2,
    faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),),
    losses=(Loss(2, "ledger"),),
)


def changed(**fields: object) -> dict[str, object]:
    return {**json.loads(SPLIT.text), **fields}


@pytest.mark.parametrize("schedule", [SPLIT, *(draw(seed) for seed in range(50))], ids=lambda one: str(one.seed))
def test_a_schedule_is_read_back_as_it_was_written(schedule):
    assert Schedule.parse(schedule.text) == schedule


def test_a_schedule_without_outputs_is_written_as_ever():
    assert not {"gets", "wants", "bad", "keys"} & json.loads(SPLIT.text).keys()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "not JSON"),
        ("[]", "wants an object"),
        (json.dumps(changed(schedule=2)), "wants version 1, got 2"),
        (json.dumps(changed(rows="3")), "schedule.rows: wants an integer, got '3'"),
        (json.dumps(changed(files=1)), "schedule.files: wants true or false, got 1"),
        (json.dumps(changed(records=0)), "records: wants at least 1"),
        (json.dumps(changed(sinks=["oracle"])), r"schedule.sinks\[0\]: wants one of postgres, delta, kafka"),
        (json.dumps(changed(sinks=[])), "sinks: wants at least one"),
        (json.dumps(changed(cuts=[0])), "cuts: wants numbers from 1"),
        (json.dumps(changed(colour="red")), "no field 'colour'"),
        (json.dumps({"schedule": 1, "sinks": ["kafka"]}), "schedule: no 'records'"),
        (
            json.dumps(changed(losses=[{"before": 1, "what": "mind"}])),
            r"losses\[0\].what: wants ledger, a damage or a harm",
        ),
        (
            json.dumps(changed(faults=[{"incarnation": 3, "point": "commit.sent", "action": "kill"}])),
            r"faults\[0\].incarnation: wants 1 to 1, got 3",
        ),
        (
            json.dumps(changed(faults=[{"incarnation": 1, "point": "read.after", "action": "delay"}])),
            r"faults\[0\].action: nothing is sent at read.after",
        ),
        (
            json.dumps(changed(faults=[{"incarnation": 1, "point": "commit.between", "action": "kill"}])),
            r"schedule.faults\[0\].point: wants one of",
        ),
        (json.dumps(changed(gets=["all"])), "gets: wants one for each of 2 sinks, got 1"),
        (json.dumps(changed(gets=["all", "some"])), r"schedule.gets\[1\]: wants one of all, picked, bad"),
        (json.dumps(changed(gets=["bad", "bad"], bad=[1])), "gets: wants one sink for bad records at most"),
        (json.dumps(changed(gets=["all", "bad"])), "bad: wants a set of records for 'bad' in gets"),
        (json.dumps(changed(wants=[1])), "wants: no sink gets them"),
        (json.dumps(changed(gets=["all", "bad"], bad=[-1])), "bad: wants sets of records"),
        (json.dumps(changed(keys=[1])), "keys: wants one for each of 2 records, got 1"),
        (json.dumps(changed(keys=[1, 1], sinks=["kafka"])), "keys: no sink of kafka keeps them"),
        (json.dumps(changed(keys=[1, 1], files=True)), "keys: cannot be played together with files"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_what_is_no_schedule_is_refused_with_the_place_that_is_wrong(document, said):
    with pytest.raises(UnreadableSchedule, match=said):
        Schedule.parse(document)
