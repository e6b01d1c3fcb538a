"""Right runs raise no alarm, and the history of a right run with one thing changed is called by exactly that name."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from tests.lab.clean_runs import clean_run
from tests.lab.mutations import INVARIANCES, MUTATIONS, Clean, Mutation

from onceonly_lab.checker import Anomaly, Judgement, judge
from onceonly_lab.history import History, Situation, parse

QUICK = 150
MANY = 10_000
FIRST = random.SystemRandom().randrange(1_000_000_000)
MISREAD = 956_202_352
"""Two commits of one epoch with an unknown outcome, of which the first was to bring more rows than a read shows."""


@cache
def known(seed: int) -> History:
    """A right run that is made once for all tests."""
    return clean_run(seed)


@pytest.fixture(scope="module")
def judged() -> dict[int, Judgement]:
    """What the checker says of the first right runs."""
    return {seed: judge(known(seed)) for seed in range(QUICK)}


def alarms(seeds: range) -> list[tuple[int, str]]:
    return [(seed, judgement.sentence) for seed in seeds if (judgement := judge(clean_run(seed))).findings]


def test_right_runs_raise_no_alarm(judged: dict[int, Judgement]) -> None:
    print(f"seeds from {FIRST}")
    assert [(seed, judgement.sentence) for seed, judgement in judged.items() if judgement.findings] == []
    assert alarms(range(MISREAD, MISREAD + 1)) == []
    assert alarms(range(FIRST, FIRST + QUICK)) == []


@pytest.mark.slow
def test_ten_thousand_right_runs_raise_no_alarm() -> None:
    print(f"seeds from {FIRST}")
    assert alarms(range(FIRST, FIRST + MANY)) == []


def test_right_runs_go_through_every_situation(judged: dict[int, Judgement]) -> None:
    reached = Counter(situation for judgement in judged.values() for situation in judgement.reached)
    assert set(reached) == set(Situation)
    assert min(reached.values()) >= QUICK // 20


def test_right_runs_are_conclusive(judged: dict[int, Judgement]) -> None:
    assert {seed: judgement.missing for seed, judgement in judged.items() if judgement.missing} == {}


def test_a_seed_is_a_history() -> None:
    assert clean_run(7).text == clean_run(7).text != clean_run(8).text
    assert parse(clean_run(7).text) == clean_run(7)


def settled(seeds: range) -> list[Clean]:
    runs = (Clean(known(seed), random.Random(seed)) for seed in seeds)
    return [run for run in runs if run.settled()]


def named(mutation: Mutation) -> str:
    return mutation.__name__


@pytest.mark.parametrize(
    ("seeds", "least"),
    [(range(QUICK // 3), 3), pytest.param(range(FIRST, FIRST + 200), 8, marks=pytest.mark.lab)],
    ids=["known runs", "drawn runs"],
)
def test_one_change_is_called_by_its_name_alone(seeds: range, least: int) -> None:
    print(f"seeds from {seeds.start}")
    wrong = [words for mutation in MUTATIONS for words in miscalled(mutation, settled(seeds), least)]
    assert wrong == []


def miscalled(mutation: Mutation, runs: list[Clean], least: int) -> Iterator[str]:
    """Runs in which a change is not called what it is, and whether there are too few to tell."""
    mutated = [history for run in runs if (history := mutation(run))]
    for history in mutated:
        judgement = judge(history)
        if {str(anomaly) for anomaly in judgement.anomalies} != {MUTATIONS[mutation]}:
            yield f"{named(mutation)} in {history.header.run}: {MUTATIONS[mutation]}, not {judgement.findings}"
    if len(mutated) < least:
        yield f"{named(mutation)}: possible in {len(mutated)} of {len(runs)} runs, not in {least}"


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
                assert judge(changed).anomalies == judge(broken).anomalies, (named(mutation), run.history.header.run)


def test_every_anomaly_has_a_change_that_causes_it() -> None:
    assert set(MUTATIONS.values()) == {str(anomaly) for anomaly in Anomaly}
