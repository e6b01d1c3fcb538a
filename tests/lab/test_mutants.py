"""The checker calls each mutant exactly what it is, and its unbroken twin under the same schedule is clean."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from scripts import mutants_page

from onceonly_lab.checker import Anomaly, Verdict
from onceonly_lab.model.parts import Kind
from onceonly_lab.mutants.play import Mutant, mutants, tried
from onceonly_lab.schedule import Schedule
from onceonly_lab.stores.places import Servers
from onceonly_lab.stores.world import Making

MUTANTS = {one.id: one for one in mutants()}
QUICK = [one for one in MUTANTS.values() if Kind.KAFKA not in one.kinds and one.id != "M15"]
"""M15 has to wait until a client gives up; Kafka has to be waited for anyway."""


def assert_killed(mutant: Mutant, servers: Servers) -> None:
    trial = tried(mutant, servers)
    assert trial.conclusive, trial.unstruck
    assert trial.twin.verdict is Verdict.CLEAN, trial.twin.findings
    assert trial.verdict == mutant.expected, trial.judgement.findings
    assert trial.killed


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("mutant", QUICK, ids=lambda one: one.id)
def test_a_mutant_is_called_what_it_is(mutant: Mutant, servers: Servers) -> None:
    assert_killed(mutant, servers)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("mutant", [one for one in MUTANTS.values() if one not in QUICK], ids=lambda one: one.id)
def test_a_mutant_that_has_to_be_waited_for_is_called_what_it_is(mutant: Mutant, with_broker: Servers) -> None:
    assert_killed(mutant, with_broker)


def test_the_page_lists_all_mutants_and_no_other() -> None:
    """``python scripts/mutants_page.py`` writes it."""
    text = mutants_page.PAGE.read_text(encoding="utf-8")
    assert text == mutants_page.page()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| M\d+ \|", line)]
    assert [row[0] for row in rows] == [f"M{number}" for number in range(1, len(MUTANTS) + 1)]
    for row, one in zip(rows, MUTANTS.values(), strict=True):
        assert row[1:] == [one.broken, one.killer, ", ".join(one.schedule.sinks), ", ".join(one.expected)]


def test_every_mutant_breaks_something_and_has_faults() -> None:
    for one in MUTANTS.values():
        assert one.making != Making(), one.id
        assert one.expected, one.id
        assert one.schedule.faults, one.id


def test_a_schedule_of_a_mutant_survives_its_own_text() -> None:
    for one in MUTANTS.values():
        assert Schedule.parse(one.schedule.text) == one.schedule, one.id


@pytest.mark.postgres
def test_a_mutant_that_is_called_something_else_is_not_killed(servers: Servers) -> None:
    wrong = replace(MUTANTS["M1"], expected=(Anomaly.LOSS,))
    trial = tried(wrong, servers)
    assert trial.verdict == (Anomaly.DUP,)
    assert not trial.killed


@pytest.mark.postgres
def test_what_is_not_broken_lives(servers: Servers) -> None:
    trial = tried(replace(MUTANTS["M1"], making=Making()), servers)
    assert trial.verdict == ()
    assert not trial.killed
    assert trial.conclusive


@pytest.mark.postgres
def test_a_fault_that_never_acts_makes_a_trial_inconclusive(servers: Servers) -> None:
    schedule = MUTANTS["M1"].schedule
    late = tuple(replace(fault, hit=9) for fault in schedule.faults)
    trial = tried(replace(MUTANTS["M1"], schedule=replace(schedule, faults=late)), servers)
    assert not trial.conclusive
    assert len(trial.unstruck) == len(late)
