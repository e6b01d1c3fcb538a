"""``epochs list --follow``, ``status --watch``, ``ledger prune`` and ``audit --html`` as a user runs them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.histories import slice_
from tests.audit.world import World
from tests.cli.conftest import Run, assert_answerless, document

from onceonly.cli.status import PipelineStatus, glance, spell
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.ledger import EventKind


@pytest.fixture
def growing(world: World) -> Iterator[World]:
    """A pipeline that writes an epoch now and then until the test is over, as a running query does."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.2):
            world.write(12)

    writer = threading.Thread(target=write)
    writer.start()
    yield world
    over.set()
    writer.join()


def test_following_prints_the_newest_and_then_what_is_committed(on: Run, growing: World) -> None:
    result = on("epochs", "list", "--follow", "--limit", "1", "--every", "0.1", "--count", "2")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    numbers = [int(line.split(" epoch ")[1].split()[0]) for line in lines]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert lines[-1].endswith("committed 12 rows memory:orders prepare 200 ms commit 10 ms")


@pytest.mark.parametrize("recorded", [True, False])
def test_an_epoch_that_is_not_recorded_yet_is_told_at_the_next_look(
    on: Run, world: World, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    looks = []

    def between_two_looks(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            receipt = world.commit(epoch := world.next_epoch(12))
            half = EpochRecord(world.name, world.fence, epoch, (receipt,), (), (("commit", 0.01),))
            looks.append(half)
        elif recorded:
            world.ledger.record(looks[1])

    monkeypatch.setattr("onceonly.cli.epochs.time.sleep", between_two_looks)
    result = on("epochs", "list", "--follow", "--limit", "1", "--count", "1")
    assert len(looks) == 3, "looked once more"
    assert result.stdout.splitlines()[-1].endswith("memory:orders commit 10 ms" if recorded else "memory:orders")


def test_following_writes_one_json_object_a_line(on: Run, growing: World) -> None:
    result = on("epochs", "list", "--follow", "-n", "2", "--every", "0.1", "--count", "1", "-o", "json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(lines) == 3
    assert {line["schema_version"] for line in lines} == {1}


def test_watch_shows_epochs_phases_and_what_is_in_doubt(on: Run, world: World) -> None:
    world.intend(5, slice_(400, 500), ago_s=61)
    result = on("status", "--watch", "--count", "1")
    assert result.exit_code == 0, result.stderr
    assert "orders  generation 1" in result.stdout
    assert re.search(r"epoch 5 IN DOUBT for 6\d s", result.stdout)  # a loaded machine is slow to look
    assert "prepare 200  commit 10" in result.stdout


def test_watching_writes_each_epoch_as_one_json_line(on: Run, growing: World) -> None:
    result = on("status", "--watch", "-n", "2", "--every", "0.3", "--count", "4", "-o", "json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    first = lines[0]["number"]
    assert len(lines) > 2, "some were written while it watched"
    assert [line["number"] for line in lines] == list(range(first, first + len(lines)))
    assert {(line["pipeline"], line["rows"], line["receipts"][0]["sink"]) for line in lines[2:]} == {
        ("orders", 12, "memory:orders")
    }
    assert all(line["phases"].keys() == {"prepare", "commit"} for line in lines[2:])


def test_watch_shows_until_when_event_time_is_complete(world: World) -> None:
    timed = EpochTime(unit="ms", complete_until=60_000, dataset_complete_until=60_000, max_time=60_000)
    record = EpochRecord(world.name, world.fence, replace(world.next_epoch(3), time=timed), ())
    (entry,) = world.ledger.pipelines()
    [row] = PipelineStatus(entry, (record,), None, 10).rows
    assert row[3] == "1970-01-01T00:01:00Z"


def test_watch_stops_speaking_of_doubt_once_the_epoch_stands(world: World) -> None:
    world.intend(5, slice_(400, 500))
    (entry,) = world.ledger.pipelines()
    assert glance(world.ledger, entry, 3, 10).begun is not None
    world.write(9)
    assert glance(world.ledger, entry, 3, 10).begun is None
    assert [row[0] for row in glance(world.ledger, entry, 3, 10).rows] == ["3", "4", "5"]


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(-5, "0 s"), (119_000, "119 s"), (150_000, "2 min"), (10_800_000, "3 h"), (200_000_000, "2 d")],
)
def test_a_length_of_time_has_one_unit(milliseconds: int, words: str) -> None:
    assert spell(milliseconds) == words


def test_prune_prints_its_plan_and_waits_for_a_yes(on: Run, world: World) -> None:
    result = on("ledger", "prune", "--keep-epochs", "1")
    assert result.exit_code == 4
    assert "epochs 1 to 3" in result.stdout
    assert len(world.ledger.epochs("orders")) == 4


def test_a_pruned_ledger_keeps_the_newest_and_says_what_was_done(on: Run, world: World) -> None:
    assert on("ledger", "prune", "--keep-epochs", "2", "--yes").exit_code == 0
    assert [record.epoch.number for record in world.ledger.epochs("orders")] == [3, 4]
    assert world.ledger.intent("orders", 2) is None
    assert world.ledger.intent("orders", 3) is not None
    assert world.ledger.events("orders")[-1].kind is EventKind.PRUNED
    assert on("audit").stdout.startswith("EXACTLY ONCE")


def test_a_pruned_pipeline_goes_on(on: Run, world: World) -> None:
    on("ledger", "prune", "--keep-epochs", "1", "--yes")
    world.write(3)
    assert on("audit").exit_code == 0
    assert [record.epoch.number for record in world.ledger.epochs("orders")] == [4, 5]


def test_prune_has_nothing_to_do_in_a_short_ledger(on: Run, world: World) -> None:
    result = on("ledger", "prune", "--keep-epochs", "4", "--yes")
    assert result.exit_code == 0
    assert "nothing" in result.stdout
    assert len(world.ledger.epochs("orders")) == 4


def test_the_plan_names_epochs_that_nothing_else_proves(on: Run, world: World) -> None:
    del world.store._log[:3]
    result = on("ledger", "prune", "--keep-epochs", "1")
    assert "nothing will prove epochs 1 to 2" in result.stdout


def test_forget_prints_its_plan_and_waits_for_a_yes(on: Run, world: World) -> None:
    result = on("recover", "forget", "orders")
    assert result.exit_code == 4
    assert "4 epochs and 1 events" in result.stdout
    assert [entry.name for entry in world.ledger.pipelines()] == ["orders"]


def test_a_forgotten_pipeline_leaves_the_ledger_and_not_its_sinks(on: Run, world: World) -> None:
    world.intend(5, slice_(400, 500))
    assert on("recover", "forget", "orders", "--yes").exit_code == 0
    ledger = world.ledger
    assert (list(ledger.pipelines()), list(ledger.epochs("orders")), list(ledger.events("orders"))) == ([], [], [])
    assert ledger.intent("orders", 5) is None
    assert len(world.sink.rows()) > 0
    assert_answerless(on("recover", "forget", "orders", "--yes"), "does not know a pipeline")


def test_the_audit_page_is_written_beside_the_answer(on: Run, world: World, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    world.keep_rows(3, 5)
    result = on("audit", "--html", str(target), "-o", "json")
    assert result.exit_code == 1
    assert document(result)["verdict"] == "GAPS"
    assert str(target) in result.stderr
    assert "First disagreement: epoch 3" in target.read_text()


def test_a_page_that_cannot_be_written_is_no_answer(on: Run, tmp_path: Path) -> None:
    assert_answerless(on("audit", "--html", str(tmp_path / "no" / "report.html")), "Cannot answer")


def test_watching_a_pipeline_that_nobody_knows_is_no_answer(on: Run) -> None:
    result = on("status", "--watch", "-q", "nosuch", "--count", "1")
    assert result.exit_code == 2
    assert 'does not know a pipeline "nosuch"' in result.stderr
