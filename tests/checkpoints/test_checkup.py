"""Every damage is found, with what Spark will do. That Spark does it is tested with Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkpoints.samples import QUERY, commit_text, files_text, offsets_text, write_checkpoint

from onceonly_checkpoints.spark.verify import Effect, verify
from onceonly_checkpoints.storage import FsspecStorage, LocalStorage, companion

Damage = Callable[[LocalStorage], None]


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path / "checkpoint")
    write_checkpoint(storage, 12)
    return storage


def gone(*paths: str) -> Damage:
    def damage(storage: LocalStorage) -> None:
        for path in paths:
            assert storage.exists(path)
            for name in storage.names(path):
                storage.delete(f"{path}/{name}")
            target = Path(storage.url) / path
            if target.is_dir():
                target.rmdir()
            else:
                storage.delete(path)

    return damage


def holding(path: str, text: str) -> Damage:
    def damage(storage: LocalStorage) -> None:
        storage.delete(path)
        storage.create(path, text.encode())

    return damage


FINDINGS: dict[str, tuple[Damage, str, Effect]] = {
    "metadata gone": (gone("metadata"), "metadata", Effect.REFUSES),
    "metadata torn": (holding("metadata", '{"id'), "metadata", Effect.REFUSES),
    "commits lag by two": (gone("commits/10", "commits/11"), "commits/10", Effect.LOSES),
    "no commits": (gone("commits"), "commits/10", Effect.LOSES),
    "commit without offsets": (gone("offsets/11"), "offsets/11", Effect.REPEATS),
    "offsets before the newest gone": (gone("offsets/10"), "offsets/10", Effect.REFUSES),
    "no offsets": (gone("offsets"), "offsets", Effect.REFUSES),
    "neither log": (gone("offsets", "commits"), "offsets", Effect.REPEATS),
    "newest offsets empty": (holding("offsets/11", ""), "offsets/11", Effect.REFUSES),
    "newest offsets torn": (holding("offsets/11", 'v1\n{}\n{"logO'), "offsets/11", Effect.REFUSES),
    "newest offsets of a newer Spark": (holding("offsets/11", "v3\n{}\n1"), "offsets/11", Effect.REFUSES),
    "old offsets empty": (holding("offsets/4", ""), "offsets/4", Effect.NOTHING),
    "newest commit empty": (holding("commits/11", ""), "commits/11", Effect.REFUSES),
    "old commit empty": (holding("commits/4", ""), "commits/4", Effect.NOTHING),
    "source log: newest gone": (gone("sources/0/11"), "sources/0/11", Effect.REFUSES),
    "source log: one gone": (gone("sources/0/10"), "sources/0/10", Effect.REFUSES),
    "source log: newest torn": (holding("sources/0/11", files_text(11)[:12]), "sources/0/11", Effect.REFUSES),
    "source log: compacted torn": (
        holding("sources/0/9.compact", files_text(*range(10))[:99]), "sources/0/9.compact", Effect.REFUSES,
    ),
}  # fmt: skip


def test_a_sound_checkpoint_has_no_problem(storage: LocalStorage) -> None:
    assert verify(storage) == ()


def test_a_batch_that_is_planned_but_not_done_is_no_problem(storage: LocalStorage) -> None:
    storage.delete("commits/11")
    assert verify(storage) == ()


def test_a_query_that_has_never_run_a_batch_is_no_problem(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("metadata", f'{{"id":"{QUERY}"}}'.encode())
    assert verify(storage) == ()
    storage.create("offsets/0", offsets_text("5").encode())
    assert verify(storage) == ()


def test_purged_old_entries_are_no_problem(storage: LocalStorage) -> None:
    for number in range(9):
        storage.delete(f"offsets/{number}")
        storage.delete(f"commits/{number}")
        storage.delete(f"sources/0/{number}")
    assert verify(storage) == ()


@pytest.mark.parametrize("name", FINDINGS)
def test_a_damage_is_found_with_its_effect(storage: LocalStorage, name: str) -> None:
    damage, path, effect = FINDINGS[name]
    damage(storage)
    (problem,) = verify(storage)
    assert (problem.path, problem.effect) == (path, effect)
    assert problem.description
    assert problem.consequence.endswith(".")
    assert problem.remedy


def test_an_empty_directory_is_no_checkpoint(tmp_path: Path) -> None:
    (problem,) = verify(LocalStorage(tmp_path))
    assert (problem.path, problem.effect) == ("", Effect.REPEATS)


def test_several_damages_are_all_found(storage: LocalStorage) -> None:
    for damage in (gone("metadata"), gone("offsets/10"), holding("commits/11", "")):
        damage(storage)
    assert {problem.path for problem in verify(storage)} == {"metadata", "offsets/10", "commits/11"}


def test_lost_batches_are_named(storage: LocalStorage) -> None:
    gone("commits/9", "commits/10", "commits/11")(storage)
    (problem,) = verify(storage)
    assert "9..10" in problem.consequence


def test_a_torn_entry_of_a_planned_batch_may_also_be_deleted(storage: LocalStorage) -> None:
    storage.delete("commits/11")
    holding("offsets/11", "")(storage)
    (problem,) = verify(storage)
    assert "--entry 11" in problem.remedy
    assert "delete the file" in problem.remedy


def test_a_file_changed_under_its_checksum_is_found(storage: LocalStorage) -> None:
    holding("commits/11", commit_text(5))(storage)
    # Taken from a real Spark: magic, 512 bytes per sum, CRC-32 of the text.
    storage.create(companion("commits/11"), b"crc\0\0\0\2\0" + bytes.fromhex("00000000"))
    (problem,) = verify(storage)
    assert (problem.path, problem.effect) == ("commits/11", Effect.REFUSES)
    assert ".11.crc" in problem.remedy


def test_it_works_on_any_storage() -> None:
    storage = FsspecStorage("memory://checkup/sound")
    write_checkpoint(storage, 3)
    assert verify(storage) == ()
    storage.delete("metadata")
    assert [problem.path for problem in verify(storage)] == ["metadata"]
