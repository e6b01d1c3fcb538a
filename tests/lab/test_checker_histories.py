"""Right runs raise no alarm, and the history of a right run with one thing changed is called by exactly that name."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.lab.clean_runs import clean_run
from tests.lab.mutations import INVARIANCES, MUTATIONS, Clean, Mutation

from onceonly_lab.checker import Anomaly, judge
from onceonly_lab.history import Situation, parse

QUICK = 150
MANY = 10_000
FIRST = random.SystemRandom().randrange(1_000_000_000)


def alarms(seeds: range) -> list[tuple[int, str]]:
    return [(seed, judgement.sentence) for seed in seeds if (judgement := judge(clean_run(seed))).findings]


def test_right_runs_raise_no_alarm() -> None:
    print(f"seeds from {FIRST}")
    assert alarms(range(QUICK)) == []
    assert alarms(range(FIRST, FIRST + QUICK)) == []


@pytest.mark.slow
def test_ten_thousand_right_runs_raise_no_alarm() -> None:
    print(f"seeds from {FIRST}")
    assert alarms(range(FIRST, FIRST + MANY)) == []


def test_right_runs_go_through_every_situation() -> None:
    reached = Counter(situation for seed in range(QUICK) for situation in judge(clean_run(seed)).reached)
    assert set(reached) == set(Situation)
    assert min(reached.values()) >= QUICK // 20


def test_right_runs_are_conclusive() -> None:
    assert {judge(clean_run(seed)).missing for seed in range(QUICK)} == {()}


def test_a_seed_is_a_history() -> None:
    assert clean_run(7).text == clean_run(7).text
    assert parse(clean_run(7).text) == clean_run(7)


def settled(seeds: range) -> list[Clean]:
    runs = (Clean(clean_run(seed), random.Random(seed)) for seed in seeds)
    return [run for run in runs if run.settled()]


def named(mutation: Mutation) -> str:
    return mutation.__name__


@pytest.mark.parametrize("mutation", MUTATIONS, ids=named)
def test_one_change_is_called_by_its_name_alone(mutation: Mutation) -> None:
    assert_called(mutation, settled(range(QUICK // 3)), at_least=3)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=named)
def test_one_change_is_called_by_its_name_alone_in_many_runs(mutation: Mutation) -> None:
    print(f"seeds from {FIRST}")
    assert_called(mutation, settled(range(FIRST, FIRST + 600)), at_least=30)


def assert_called(mutation: Mutation, runs: list[Clean], at_least: int) -> None:
    mutated = [(run, history) for run in runs if (history := mutation(run))]
    for _, history in mutated:
        judgement = judge(history)
        assert {str(anomaly) for anomaly in judgement.anomalies} == {MUTATIONS[mutation]}, judgement.findings
    assert len(mutated) >= at_least


@pytest.mark.parametrize("change", INVARIANCES, ids=named)
def test_what_means_nothing_changes_nothing(change: Mutation) -> None:
    for run in settled(range(QUICK // 10)):
        history = change(run)
        assert history is not None
        assert judge(history).findings == ()


@pytest.mark.parametrize("change", INVARIANCES, ids=named)
def test_what_means_nothing_hides_nothing(change: Mutation) -> None:
    for run in settled(range(QUICK // 20)):
        for mutation in MUTATIONS:
            broken = mutation(run)
            changed = broken and change(Clean(broken, run.random))
            if broken and changed:
                assert judge(changed).anomalies == judge(broken).anomalies


def test_every_anomaly_has_a_change_that_causes_it() -> None:
    assert set(MUTATIONS.values()) == {str(anomaly) for anomaly in Anomaly}
