"""Defects put into the jar by which tasks send: each is called by name by the test that is there for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts import jar

import onceonly_sinks

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PATIENCE_S = 600
_HERE = Path(__file__).parent
_ALONE = "test_kafka_by_tasks.py::test_{}"
_ON_A_CLUSTER = "test_kafka_tasks_on_a_cluster.py::test_{}"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect.

    Attributes:
        name: what is wrong.
        source: of the class.
        old: its text, which is there once.
        new: what takes its place.
        killer: the test that fails.
    """

    name: str
    source: str
    old: str
    new: str
    killer: str


MUTANTS = (
    Mutant(
        "a second attempt of a task sends, too",
        "Fill",
        "context.attemptNumber() > 0 || context.stageAttemptNumber() > 0",
        "false",
        _ON_A_CLUSTER.format("an_executor_that_is_killed_while_it_sends_leaves_nothing[keyless]"),
    ),
    Mutant(
        "rows that were refused count as sent",
        "Fill",
        "if (answers.error != null) {",
        "if (sent < 0) {",
        _ALONE.format("a_row_that_is_refused_leaves_nothing_and_the_next_start_goes_on"),
    ),
    Mutant(
        "rows count as sent before the brokers have them",
        "Fill",
        "for (producer.flush(); answers.error == null && answers.taken.get() < sent; producer.flush()) {",
        "while (sent < 0) {",
        _ALONE.format("nothing_of_a_task_that_throws_is_seen_and_the_epoch_is_written_again"),
    ),
    Mutant(
        "a late task of an older epoch sends by the newer one's producer",
        "Fill",
        "if (own.epoch != epoch) {",
        "if (own == null) {",
        _ALONE.format("a_late_task_of_an_older_epoch_has_no_part_in_a_newer_one"),
    ),
    Mutant(
        "a producer outlives its epoch",
        "Fill",
        "own.running.decrementAndGet() == 0",
        "own.running.decrementAndGet() < 0",
        _ALONE.format("rows_are_sent_once_and_a_replay_sends_none"),
    ),
    Mutant(
        "tasks without keys write the same partitions",
        "Fill",
        "return send(producer, rows, context.partitionId(), context.numPartitions());",
        "return send(producer, rows, 0, 1);",
        _ON_A_CLUSTER.format("rows_without_keys_come_into_each_partition"),
    ),
    Mutant(
        "a key goes to another partition than by the driver",
        "Place",
        "Utils.murmur2(hashed)",
        "java.util.Arrays.hashCode(hashed)",
        _ON_A_CLUSTER.format("keys_go_where_the_driver_sends_them"),
    ),
    Mutant(
        "rows without a key go to the first partition",
        "Place",
        "key == null ? value : key",
        "key",
        _ON_A_CLUSTER.format("rows_whose_key_is_null_come_into_each_partition"),
    ),
)


def played(test: str, place: Path, sources: Path) -> str:
    """What pytest ends with, where the jar is built from these sources: for each process of the test."""
    shutil.copytree(
        Path(onceonly_sinks.__file__).parent, place / "onceonly_sinks", ignore=shutil.ignore_patterns("__pycache__")
    )
    jar.pack(jar.classes(sources), place / "onceonly_sinks" / "kafka" / jar.JAR.name)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", str(_HERE / test)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        command,
        cwd=_HERE.parent,
        env={**environment, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return f"{ran.stdout}{ran.stderr}"


@pytest.mark.parametrize("killer", dict.fromkeys(mutant.killer for mutant in MUTANTS))
def test_without_a_defect_the_test_passes(killer: str, tmp_path: Path) -> None:
    assert "1 passed" in played(killer, tmp_path, jar.SOURCES)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_defect_is_found(mutant: Mutant, tmp_path: Path) -> None:
    sources = tmp_path / "java"
    shutil.copytree(jar.SOURCES, sources)
    [source] = sources.rglob(f"{mutant.source}.java")
    text = source.read_text()
    assert text.count(mutant.old) == 1
    source.write_text(text.replace(mutant.old, mutant.new))
    assert "1 failed" in played(mutant.killer, tmp_path / "shadow", sources)
