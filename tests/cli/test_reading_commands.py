"""``epochs`` and ``status``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.audit.histories import FENCE, at, epoch_after, slice_
from tests.audit.world import World
from tests.cli.conftest import Run, assert_answerless, document

from onceonly_checkpoints.code_version import PlanFingerprint
from onceonly_checkpoints.epoch import EpochRecord, Lineage
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.ledger import KeptPlan
from onceonly_checkpoints.model import SourceOffsets


def test_epochs_are_listed_oldest_first_with_the_newest_kept(on: Run) -> None:
    found = document(on("epochs", "list", "--limit", "2", "-o", "json"))
    assert [epoch["number"] for epoch in found["epochs"]] == [3, 4]
    lines = on("epochs", "list").stdout.splitlines()
    assert lines[0].split()[:3] == ["epoch", "rows", "up"]
    assert len(lines) == 5


def test_an_epoch_that_only_the_sink_knows_is_listed(on: Run, world: World) -> None:
    world.commit(world.next_epoch(3))
    found = document(on("epochs", "list", "-o", "json"))
    assert [epoch["number"] for epoch in found["epochs"]] == [1, 2, 3, 4, 5]
    assert found["epochs"][-1]["recorded_ms"] is None


def test_where_ledger_and_sink_disagree_the_marker_is_shown(on: Run, world: World) -> None:
    stranger = epoch_after(world.line[2], 99, sinks=(world.sink.id,))
    world.ledger.discard("orders", 4)
    world.ledger.record(EpochRecord("orders", world.fence, stranger, ()))
    assert document(on("epochs", "show", "4", "-o", "json"))["epoch"]["rows"] == 12


def test_an_epoch_is_shown_in_full(on: Run, world: World) -> None:
    text = on("epochs", "show", "3").stdout
    epoch = world.line[2]
    for part in (
        epoch.chain,
        epoch.previous_chain,
        "7 rows; position: entry",
        "generation",
        FENCE.owner,
        "q-1",
        "commit 10 ms",
        "files",
    ):
        assert part in text
    found = document(on("epochs", "show", "3", "-o", "json"))["epoch"]
    assert (found["digest"]["rows"], found["sound"], found["files"]) == (7, True, 1)
    assert found["receipts"][0]["sink"] == world.sink.id


def test_what_an_epoch_says_of_time_is_shown_in_words(on: Run, world: World) -> None:
    noon = 1767268800000
    world.write(
        7, time=EpochTime("ms", noon, noon, noon + 9, noon, noon - 5, noon + 9, noon - 1, 2, 1, batch_timestamp_ms=noon)
    )
    world.write(7, time=EpochTime("integer", None, None, None))
    text = on("epochs", "show", "5").stdout
    assert re.search(r"complete +through 2026-01-01T12:00:00Z\n", text)
    assert re.search(r"closed +through 2026-01-01T12:00:00Z: nothing before it changes any more", text)
    assert re.search(r"times +2026-01-01T11:59:59.995Z to 2026-01-01T12:00:00.009Z", text)
    assert re.search(r"late +2 rows before 2026-01-01T11:59:59.999Z", text)
    assert re.search(r"untimed +1 rows", text)
    assert re.search(r"complete +through nothing yet", on("epochs", "show", "6").stdout)
    assert "complete" not in on("epochs", "show", "4").stdout
    assert document(on("epochs", "show", "5", "-o", "json"))["epoch"]["time"]["dataset_complete_until"] == noon


def test_plans_are_listed_with_what_the_newest_changes(on: Run, world: World) -> None:
    assert document(on("epochs", "show", "--plan", "-o", "json"))["plans"] == []
    first = KeptPlan("orders", "1-4.2-3.11-aa", "Filter\n  Literal value=1\n  relation", 1)
    other = KeptPlan("orders", "1-4.2-3.11-bb", "Filter\n  Literal value=2\n  relation", 3)
    for plan in (first, other):
        world.ledger.keep_plan(plan)
    lines = on("epochs", "show", "--plan").stdout.splitlines()
    assert [line for line in lines if line[:1] in "+-"] == [
        "--- 1-4.2-3.11-aa",
        "+++ 1-4.2-3.11-bb",
        "-  Literal value=1",
        "+  Literal value=2",
    ]
    found = document(on("epochs", "show", "--plan", "-o", "json"))["plans"]
    assert [(one["first_epoch"], one["plan"]) for one in found] == [(1, first.plan), (3, other.plan)]


def test_the_code_of_an_epoch_is_shown(on: Run, world: World) -> None:
    plan = PlanFingerprint(1, "4.2", "3.11", "0" * 16)
    world.write(7, lineage=Lineage("q-1", "r-1", "file:/ck", 4, 5000, 0, "1f2e3d", plan))
    text = on("epochs", "show", "5").stdout
    assert re.search(r"version +1f2e3d\n", text)
    assert re.search(r"plan +1-4.2-3.11-0{16}\n", text)
    assert "version" not in on("epochs", "show", "4").stdout


def test_an_adoption_is_listed_as_one(on: Run, world: World) -> None:
    world.write(0, written=slice_(400, 900), adoption="accept-loss: gone")
    assert "adopted" in on("epochs", "list").stdout
    assert ": gone" in on("epochs", "show", "5").stdout


def test_epochs_are_readable_without_any_ledger(run: Run, world: World) -> None:
    world.delete_ledger()
    result = run("epochs", "list", "-q", "orders", "--sink", world.sink.address, "-o", "json")
    assert len(document(result)["epochs"]) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "99"], ["knows epoch 99", "the newest is epoch 4"]),
        (["show", "1", "--query", "nosuch"], ["does not know a pipeline"]),
        (["list", "--sink", "nonsense"], ["is not the address of a sink"]),
    ],
)
def test_bad_input_to_epochs_is_answered_in_words(on: Run, arguments: list[str], words: list[str]) -> None:
    assert_answerless(on("epochs", *arguments), *words)


def test_an_epoch_that_is_no_number_ends_with_two(on: Run) -> None:
    assert on("epochs", "show", "abc").exit_code == 2
    assert on("epochs", "show", "0").exit_code == 2


def test_the_ledger_alone_answers_when_the_sink_is_gone(on: Run, world: World) -> None:
    world.store._all.clear()
    result = on("epochs", "list", "-o", "json")
    assert [epoch["number"] for epoch in document(result)["epochs"]] == [1, 2, 3, 4]
    assert "cannot be found" in result.stderr
    assert on("epochs", "show", "--offsets").stdout == '{"events":{"0":400}}\n'


def test_queries_are_listed(on: Run, world: World) -> None:
    found = document(on("status", "-o", "json"))["pipelines"]
    assert [(one["name"], one["epoch"], one["generation"]) for one in found] == [("orders", 4, 1)]
    assert found[0]["sinks"] == {world.sink.id: world.sink.address}
    assert "orders" in on("status").stdout


def test_one_query_is_shown_with_its_events(on: Run) -> None:
    assert "first start" in on("status", "orders").stdout
    found = document(on("status", "orders", "-o", "json"))
    assert [event["kind"] for event in found["events"]] == ["opened"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ledger", "/no/such.db"], ["There is no ledger at"]),
        (["nosuch"], ["does not know a pipeline", "orders"]),
        (["--ledger", "mongodb://h/d"], ["is not the place of a ledger"]),
    ],
)
def test_bad_input_to_queries_is_answered_in_words(on: Run, arguments: list[str], words: list[str]) -> None:
    assert_answerless(on("status", *arguments), *words)


def test_queries_without_a_ledger_are_answered_in_words(run: Run) -> None:
    assert_answerless(run("status"), "No ledger was named")
    assert_answerless(run("status", "orders"), "No ledger was named")


def test_offsets_can_be_pasted_as_starting_offsets(on: Run) -> None:
    result = on("epochs", "show", "--offsets", "--query", "orders")
    assert result.exit_code == 0
    assert result.stdout == '{"events":{"0":400}}\n'
    assert "startingOffsets" in result.stderr


def test_offsets_of_an_older_epoch_are_there_too(on: Run) -> None:
    assert json.loads(on("epochs", "show", "2", "--offsets").stdout) == {"events": {"0": 200}}
    found = document(on("epochs", "show", "2", "--offsets", "-o", "json"))
    assert (found["epoch"], found["offsets"]) == (2, {"0": {"events": {"0": 200}}})


def test_offsets_come_from_the_sink_when_the_ledger_is_gone(run: Run, world: World) -> None:
    world.delete_ledger()
    result = run("epochs", "show", "--offsets", "-q", "orders", "--sink", world.sink.address)
    assert json.loads(result.stdout) == {"events": {"0": 400}}


def test_offsets_of_several_sources_are_named(on: Run, world: World) -> None:
    both = SourceOffsets.of({"a": '{"logOffset":3}', "b": None})
    world.write(1, written=type(slice_(0, 1))(at(400), both))
    result = on("epochs", "show", "--offsets")
    assert json.loads(result.stdout) == {"a": {"logOffset": 3}, "b": None}
    assert "no starting offsets" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["99"], ["knows epoch 99"]),
        (["--query", "nosuch"], ["does not know a pipeline"]),
        (["--query", "orders", "--sink", "x"], ["is not the address of a sink"]),
    ],
)
def test_bad_input_to_offsets_is_answered_in_words(on: Run, arguments: list[str], words: list[str]) -> None:
    assert_answerless(on("epochs", "show", "--offsets", *arguments), *words)


def test_several_pipelines_must_be_told_apart(on: Run, tmp_path: Path) -> None:
    World(tmp_path, "payments")
    assert_answerless(on("epochs", "list"), "Which pipeline?", "orders, payments")


def test_a_pipeline_without_an_epoch_has_no_offsets(run: Run, tmp_path: Path) -> None:
    fresh = World(tmp_path, "fresh", ledger="fresh.db")
    result = run("epochs", "show", "--offsets", ONCEONLY_LEDGER=str(fresh.path))
    assert_answerless(result, "has no epoch yet")
