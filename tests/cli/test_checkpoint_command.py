"""``onceonly checkpoint`` and ``recover rebuild-checkpoint`` on real checkpoint files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.audit.world import World
from tests.cli.conftest import Run, assert_answerless, document

from onceonly_checkpoints.model import Slice, SourceOffsets


def log(number: int | None) -> SourceOffsets:
    return SourceOffsets.of({"0": None if number is None else json.dumps({"logOffset": number})})


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A pipeline that reads files: epoch N is batch N-1 and log offset N-1."""
    world = World(tmp_path)
    for number in range(4):
        world.write(number + 1, written=Slice(log(number - 1 if number else None), log(number)))
    return world


@pytest.fixture
def checkpoint(tmp_path: Path, on: Run) -> Path:
    path = tmp_path / "ck"
    result = on("recover", "rebuild-checkpoint", str(path), "--query", "orders", "--yes")
    assert result.exit_code == 0, result.output
    return path


def test_a_lost_checkpoint_is_rebuilt_and_is_sound(on: Run, checkpoint: Path) -> None:
    assert json.loads((checkpoint / "metadata").read_text()) == {"id": "q-1"}
    assert (checkpoint / "offsets" / "3").read_text().splitlines()[2] == '{"logOffset":3}'
    assert (checkpoint / "sources" / "0" / "3").exists()
    assert on("checkpoint", str(checkpoint), "--verify").exit_code == 0


def test_without_yes_only_the_plan_is_printed(on: Run, tmp_path: Path) -> None:
    path = tmp_path / "ck"
    result = on("recover", "rebuild-checkpoint", str(path), "-q", "orders")
    assert result.exit_code == 4
    assert "write  metadata" in result.stdout
    assert "Nothing was changed" in result.stderr
    assert not path.exists()


def test_a_rebuild_at_an_older_epoch_deletes_what_is_newer(on: Run, checkpoint: Path) -> None:
    plan = on("recover", "rebuild-checkpoint", str(checkpoint), "-q", "orders", "--at", "2")
    assert "delete" in plan.stdout
    assert "offsets/3" in plan.stdout
    assert on("recover", "rebuild-checkpoint", str(checkpoint), "-q", "orders", "--at", "2", "--yes").exit_code == 0
    assert sorted(path.name for path in (checkpoint / "offsets").iterdir()) == ["0", "1"]


def test_a_damaged_entry_is_found_and_written_back(on: Run, checkpoint: Path) -> None:
    (checkpoint / "offsets" / "3").write_text("")
    (checkpoint / "commits" / "3").rename(checkpoint / "commits" / "2")
    assert on("checkpoint", str(checkpoint), "--verify").exit_code == 1
    result = on("recover", "rebuild-checkpoint", str(checkpoint), "-q", "orders", "--entry", "3", "--yes")
    assert result.exit_code == 0, result.output
    assert on("checkpoint", str(checkpoint), "--verify").exit_code == 0


def test_verify_names_damage_consequence_and_remedy(on: Run, checkpoint: Path) -> None:
    (checkpoint / "metadata").unlink()
    result = on("checkpoint", str(checkpoint), "--verify", "-o", "json")
    problems = document(result)["problems"]
    assert result.exit_code == 1
    assert problems[0]["path"] == "metadata"
    assert "recover rebuild-checkpoint" in problems[0]["remedy"]


def test_verify_against_the_sinks_finds_a_foreign_checkpoint(on: Run, checkpoint: Path) -> None:
    assert on("checkpoint", str(checkpoint), "--verify", "--query", "orders").exit_code == 0
    (checkpoint / "metadata").write_text('{"id":"another"}')
    result = on("checkpoint", str(checkpoint), "--verify", "--query", "orders")
    assert result.exit_code == 1
    assert "query id another" in result.stdout


def test_verify_against_the_sinks_finds_a_rolled_back_checkpoint(on: Run, checkpoint: Path) -> None:
    on("recover", "rebuild-checkpoint", str(checkpoint), "-q", "orders", "--at", "2", "--yes")
    result = on("checkpoint", str(checkpoint), "--verify", "--query", "orders")
    assert result.exit_code == 1
    assert "offsets/3" in result.stdout


def test_verify_against_the_sinks_finds_a_batch_with_another_range(on: Run, checkpoint: Path) -> None:
    entry = checkpoint / "offsets" / "3"
    entry.write_text(entry.read_text().replace('"logOffset":3', '"logOffset":2'))
    result = on("checkpoint", str(checkpoint), "--verify", "--query", "orders")
    assert result.exit_code == 1
    assert "--entry 3" in result.stdout


def test_a_checkpoint_is_shown(on: Run, checkpoint: Path) -> None:
    (checkpoint / "commits" / "3").unlink()
    found = document(on("checkpoint", str(checkpoint), "-o", "json"))
    assert (found["query id"], found["pending"]) == ("q-1", 3)
    assert [batch["batch"] for batch in found["batches"]] == [2, 3]
    assert '{"logOffset":3}' in on("checkpoint", str(checkpoint)).stdout


def test_a_torn_entry_is_shown_as_unreadable(on: Run, checkpoint: Path) -> None:
    (checkpoint / "offsets" / "3").write_text("v1\n")
    result = on("checkpoint", str(checkpoint))
    assert result.exit_code == 0
    assert "unreadable" in result.stdout


def test_file_lists_that_the_ledger_lost_are_taken_from_the_checkpoint(
    run: Run, world: World, checkpoint: Path
) -> None:
    world.delete_ledger()
    (checkpoint / "metadata").unlink()
    named = ("-q", "orders", "--sink", world.sink.address)
    result = run("recover", "rebuild-checkpoint", str(checkpoint), *named, "--yes")
    assert result.exit_code == 0, result.output
    assert (checkpoint / "metadata").exists()


def test_lost_file_lists_are_named(run: Run, world: World, tmp_path: Path) -> None:
    world.delete_ledger()
    result = run("recover", "rebuild-checkpoint", str(tmp_path / "new"), "-q", "orders", "--sink", world.sink.address)
    assert_answerless(result, "E604", "file lists of source 0")


REBUILD = ("recover", "rebuild-checkpoint")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["checkpoint", "/no/such/checkpoint"], ["E603", "is not a checkpoint"]),
        (["checkpoint", "nosuch://bucket/ck"], ["nosuch"]),
        ([*REBUILD, "{ck}", "-q", "orders", "--at", "99", "--yes"], ["E604", "no epoch 99"]),
        ([*REBUILD, "{ck}", "-q", "orders", "--entry", "99", "--yes"], ["E604", "no epoch came from batch 99"]),
        ([*REBUILD, "{ck}", "-q", "orders", "--at", "1", "--entry", "1"], ["--at or --entry, not both"]),
        ([*REBUILD, "{ck}", "-q", "nosuch"], ["does not know a pipeline"]),
        ([*REBUILD, "{other}", "-q", "orders", "--yes"], ["E603", "it holds other things: letters.txt"]),
        (["checkpoint", "nosuch://bucket/ck", "--verify"], ["nosuch"]),
        (["checkpoint", "{ck}", "--verify", "-q", "nosuch"], ["does not know a pipeline"]),
    ],
)
def test_bad_input_is_answered_in_words(
    on: Run, checkpoint: Path, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "letters.txt").write_text("dear")
    filled = [argument.format(ck=checkpoint, other=other) for argument in arguments]
    assert_answerless(on(*filled), *words)
    assert [path.name for path in other.iterdir()] == ["letters.txt"]


def test_a_missing_directory_is_a_problem_of_verify(on: Run) -> None:
    result = on("checkpoint", "/no/such/checkpoint", "--verify")
    assert result.exit_code == 1
    assert "there is no checkpoint" in result.stdout


def test_a_newer_log_version_is_refused(on: Run, checkpoint: Path) -> None:
    entry = checkpoint / "offsets" / "3"
    entry.write_text(entry.read_text().replace("v1", "v9", 1))
    assert "v9" in on("checkpoint", str(checkpoint)).stdout
    verified = on("checkpoint", str(checkpoint), "--verify")
    assert (verified.exit_code, "v9" in verified.stdout) == (1, True), verified.output


def test_the_ledger_beside_a_local_checkpoint_is_found_by_itself(run: Run, tmp_path: Path) -> None:
    world = World(tmp_path, ledger="mine.onceonly.db").write_all()
    path = tmp_path / "mine"
    result = run("recover", "rebuild-checkpoint", str(path), "--query", "orders", "--yes")
    assert result.exit_code == 0, result.output
    assert run("checkpoint", str(path), "--verify", "--query", "orders").exit_code == 0
    assert world.path.exists()
