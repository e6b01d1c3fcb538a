"""A replay under other code on real Spark: it is said once, and another start of the same code says nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from integration.processes import REPOSITORY
from integration.targets import events, ids
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from onceonly import Storage, exactly_once
from onceonly_checkpoints.code_version import PlanFingerprint
from onceonly_checkpoints.ledger import EventKind

pytestmark = pytest.mark.spark


def kept(df: DataFrame) -> DataFrame:
    return df.where("id >= 0").select("id", "word")


def other_literal(df: DataFrame) -> DataFrame:
    return df.where("id >= -1").select("id", "word")


def without_filter(df: DataFrame) -> DataFrame:
    return df.select("id", "word")


def doubled(df: DataFrame) -> DataFrame:
    return df.withColumn("word", f.concat("word", "word"))


def warned(ledger: Any) -> list[str]:
    return [event for event in events(ledger, EventKind.WARNED) if event.startswith("[ONCE-W711]")]


def plans(ledger: Any) -> list[PlanFingerprint]:
    found = [record.epoch.lineage.plan for record in ledger.epochs("orders")]
    assert all(found)
    return found


@pytest.mark.parametrize(
    ("shape", "before"),
    [
        (other_literal, None),
        pytest.param(without_filter, None, marks=pytest.mark.slow),
        pytest.param(kept, doubled, marks=pytest.mark.slow),
    ],
    ids=["literal", "filter", "transform="],
)
def test_a_replay_under_other_code_is_said_once(
    stream: Any, sink: Any, ledger: Any, shape: Callable[[DataFrame], DataFrame], before: Any
) -> None:
    stream.receive(range(5), range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=kept)
    for _ in range(2):
        stream.remove("commits", 1)
        stream.run(exactly_once(sink, storage=Storage(ledger=ledger), transform=before), shape=shape)
    stream.receive(range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=ledger), transform=before), shape=shape)
    assert ids(sink) == list(range(15))
    one, two, three = plans(ledger)
    assert one == two
    assert two != three
    [said] = warned(ledger)
    assert said.endswith("applies from epoch 3. New code changes no rows of an epoch that was already committed.")
    assert two.text in said
    assert three.text in said
    assert len(events(ledger, EventKind.PLAN_CHANGED)) == 1
    assert [plan.first_epoch for plan in ledger.plans("orders")] == [1, 3]


def test_other_starts_of_the_same_code_say_nothing(stream: Any, sink: Any, ledger: Any, monkeypatch: Any) -> None:
    stream.receive(range(5), range(5, 10)).run(
        exactly_once(sink, storage=Storage(ledger=ledger), transform=doubled), shape=kept
    )
    stream.remove("commits", 1)
    monkeypatch.setenv("ONCEONLY_VERSION", "a")
    stream.receive(range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=ledger), transform=doubled), shape=kept)
    assert len(set(plans(ledger))) == 1
    assert [record.epoch.lineage.version for record in ledger.epochs("orders")] == ["", "", "a"]
    assert warned(ledger) == []
    assert events(ledger, EventKind.PLAN_CHANGED) == []
    assert len(ledger.plans("orders")) == 1


@pytest.mark.slow
def test_state_that_other_code_grows_names_it(stream: Any, sink: Any, ledger: Any) -> None:
    def counted(df: DataFrame) -> DataFrame:
        return df.groupBy((f.col("id") % 2).alias("k")).agg(f.count("*").alias("n"))

    def more(df: DataFrame) -> DataFrame:
        return df.groupBy((f.col("id") % 2).alias("k")).agg((f.count("*") + 1).alias("n"))

    stream.receive(range(5), range(5, 10))
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger), version="a"), shape=counted, mode="update")
    stream.remove("commits", 1)
    told = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger), version="b"), shape=more, mode="update")
    assert "E215" in told
    assert "Likely cause: the code changed: version a (plan" in told
    assert "wrote the epoch, version b (plan" in told


@pytest.mark.slow
def test_twenty_plans_are_spelled_alike_in_two_processes() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-m", "integration.twenty_plans", str(seed)],
            capture_output=True,
            text=True,
            check=True,
            cwd=REPOSITORY,
        )
        for seed in (1, 2)
    ]
    one, other = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    assert len(one) == 20
    assert len(set(one.values())) == 20
    assert one == other
