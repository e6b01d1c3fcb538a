"""The census follows rows through a Delta log, and refuses to guess."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.audit.histories import epoch_after

from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_sinks.delta import row_counts
from onceonly_sinks.delta.ladder import Effect
from onceonly_sinks.delta.log import LogEntry
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.row_counts import CannotTell, Change


class Log:
    """A log that grows by one version per call."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def _commit(
        self, operation: str, actions: list[dict[str, Any]], note: Note | None = None, **parameters: Any
    ) -> Log:
        version = len(self.changes)
        entry = LogEntry(version, operation, parameters, note, None, Effect.NONE, None, None)
        self.changes.append(row_counts.parse(entry, "\n".join(map(json.dumps, actions))))
        return self

    def epoch(self, number: int, files: dict[str, int | None], mode: str = "append") -> Log:
        fence = Fence(1, "a")
        rows = sum(count or 0 for count in files.values())
        marker = Marker("orders", "delta:t", fence, epoch_after(None, rows))
        note = Note(
            app="app",
            fence=fence,
            epoch=number,
            marker=marker,
            at=None,
            read=-1,
            judged=-1,
            rows=rows,
            mode=mode,
            identity="table",
            token="token",
        )
        return self._commit("WRITE", [add(path, rows) for path, rows in files.items()], note)

    def foreign(
        self,
        operation: str,
        removes: list[dict[str, Any]] | None = None,
        adds: list[dict[str, Any]] | None = None,
        **parameters: Any,
    ) -> Log:
        return self._commit(operation, [*(removes or []), *(adds or [])], None, **parameters)

    def count(self, first: int = 0) -> dict[int, int]:
        return dict(row_counts.count(self.changes[first:]).rows)


def add(path: str, rows: int | None, *, changes: bool = True, vector: str = "", deleted: int = 0) -> dict[str, Any]:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    action: dict[str, Any] = {"path": path, "dataChange": changes, "stats": stats}
    if vector:
        action["deletionVector"] = {"storageType": "u", "pathOrInlineDv": vector, "cardinality": deleted}
    return {"add": action}


def remove(path: str, *, changes: bool = True, vector: str = "") -> dict[str, Any]:
    action: dict[str, Any] = {"path": path, "dataChange": changes}
    if vector:
        action["deletionVector"] = {"storageType": "u", "pathOrInlineDv": vector, "cardinality": 1}
    return {"remove": action}


@pytest.fixture
def log() -> Log:
    """Two epochs of 5 and 3 rows."""
    return Log().epoch(1, {"a": 4, "b": 1}).epoch(2, {"c": 3})


def test_untouched_files_are_counted_whole(log: Log) -> None:
    assert log.count() == {1: 5, 2: 3}


def test_an_epoch_without_files_has_no_rows(log: Log) -> None:
    assert log.epoch(3, {}).count() == {1: 5, 2: 3, 3: 0}


def test_compaction_keeps_every_row_with_its_epoch(log: Log) -> None:
    moved = log.foreign("OPTIMIZE", [remove(path, changes=False) for path in "abc"], [add("x", 8, changes=False)])
    assert moved.count() == {1: 5, 2: 3}


def test_a_removed_file_takes_its_rows_along(log: Log) -> None:
    assert log.foreign("DELETE", [remove("a")]).count() == {1: 1, 2: 3}


def test_a_file_written_again_holds_what_is_left_of_its_epoch(log: Log) -> None:
    assert log.foreign("DELETE", [remove("a")], [add("a2", 1)]).count() == {1: 2, 2: 3}


def test_a_deletion_vector_takes_rows_of_its_own_file_only(log: Log) -> None:
    shrunk = log.foreign(
        "DELETE", [remove("a"), remove("c")], [add("a", 4, vector="v1", deleted=1), add("c", 3, vector="v2", deleted=2)]
    )
    assert shrunk.count() == {1: 4, 2: 1}
    again = shrunk.foreign("DELETE", [remove("a", vector="v1")], [add("a", 4, vector="v3", deleted=3)])
    assert again.count() == {1: 2, 2: 1}


def test_rows_deleted_from_a_file_of_two_epochs_are_not_guessed(log: Log) -> None:
    log.foreign("OPTIMIZE", [remove(path, changes=False) for path in "abc"], [add("x", 8, changes=False)])
    with pytest.raises(CannotTell, match="several epochs"):
        log.foreign("DELETE", [remove("x")], [add("y", 7)]).count()


def test_a_mixed_file_that_is_gone_leaves_nothing(log: Log) -> None:
    log.foreign("OPTIMIZE", [remove(path, changes=False) for path in "abc"], [add("x", 8, changes=False)])
    assert log.foreign("DELETE", [remove("x")]).count() == {1: 0, 2: 0}


def test_part_of_a_mixed_bundle_that_is_gone_is_not_guessed(log: Log) -> None:
    adds = [add("x", 4, changes=False), add("y", 4, changes=False)]
    log.foreign("OPTIMIZE", [remove(path, changes=False) for path in "abc"], adds)
    with pytest.raises(CannotTell):
        log.foreign("DELETE", [remove("x")]).count()


def test_an_update_keeps_the_number_of_rows(log: Log) -> None:
    assert log.foreign("UPDATE", [remove("a"), remove("c")], [add("x", 7)]).count() == {1: 5, 2: 3}


def test_an_overwrite_leaves_rows_of_others_only(log: Log) -> None:
    assert log.foreign("WRITE", [remove(path) for path in "abc"], [add("x", 9)]).count() == {0: 9, 1: 0, 2: 0}


def test_an_overwrite_by_predicate_is_not_guessed(log: Log) -> None:
    with pytest.raises(CannotTell):
        log.foreign("WRITE", [remove("a")], [add("x", 9)], predicate="id > 3").count()


def test_a_merge_by_others_is_not_guessed(log: Log) -> None:
    with pytest.raises(CannotTell, match="MERGE"):
        log.foreign("MERGE", [remove("a")], [add("x", 9)]).count()


def test_an_append_by_others_is_counted_as_theirs(log: Log) -> None:
    assert log.foreign("WRITE", adds=[add("x", 9)]).count() == {0: 9, 1: 5, 2: 3}


@pytest.mark.parametrize("version", [0, "0"])
def test_a_restore_is_the_state_it_went_back_to(log: Log, version: int | str) -> None:
    assert log.foreign("RESTORE", [remove("c")], version=version).count() == {1: 5, 2: 0}


def test_a_restore_behind_a_delete_brings_the_rows_back(log: Log) -> None:
    log.foreign("DELETE", [remove("a")], [add("a2", 1)])
    assert log.foreign("RESTORE", [remove("a2")], [add("a", 4)], version=1).count() == {1: 5, 2: 3}


def test_a_restore_to_a_moment_is_the_state_whose_files_it_brought_back(log: Log) -> None:
    log.foreign("RESTORE", [remove("c")], version=None, timestamp="2026-01-01")
    assert log.count() == {1: 5, 2: 0}
    assert log.epoch(2, {"d": 4}).count() == {1: 5, 2: 4}


def test_a_restore_to_files_that_no_version_held_is_not_guessed(log: Log) -> None:
    with pytest.raises(CannotTell, match="RESTORE"):
        log.foreign("RESTORE", [remove("a")], timestamp="2026-01-01").count()


def test_rows_of_files_that_are_gone_do_not_stand(log: Log) -> None:
    assert row_counts.count(log.changes, absent=["c"]).rows == {1: 5, 2: 0}
    log.foreign("OPTIMIZE", [remove("a", changes=False), remove("c", changes=False)], [add("x", 7, changes=False)])
    assert sum(row_counts.count(log.changes, absent=["x"]).rows.values()) == 1


def test_a_restore_behind_the_log_is_not_guessed(log: Log) -> None:
    log.foreign("RESTORE", [remove("c")], version=0)
    with pytest.raises(CannotTell):
        log.count(first=1)


def test_a_file_without_statistics_is_not_guessed(log: Log) -> None:
    with pytest.raises(CannotTell, match="how many rows"):
        log.epoch(3, {"d": None}).count()


def test_a_merged_epoch_is_not_counted(log: Log) -> None:
    with pytest.raises(CannotTell, match="merged"):
        log.epoch(3, {"d": 3}, mode="merge").count()


def test_compaction_with_files_of_a_forgotten_past_keeps_the_known_epochs(log: Log) -> None:
    log.foreign("OPTIMIZE", [remove(path, changes=False) for path in "abc"], [add("x", 8, changes=False)])
    assert log.count(first=1) == {2: 3}


def test_deletes_from_a_file_of_a_forgotten_past_are_not_guessed(log: Log) -> None:
    log.foreign("OPTIMIZE", [remove(path, changes=False) for path in "abc"], [add("x", 8, changes=False)])
    log.foreign("DELETE", [remove("x")], [add("y", 6)])
    with pytest.raises(CannotTell):
        log.count(first=1)


# ---- whose rows a file holds


def test_files_are_known_by_the_epoch_that_brought_them(log: Log) -> None:
    log.foreign("WRITE", [], [add("theirs", 9)])
    assert row_counts.owners(log.changes) == {"a": 1, "b": 1, "c": 2, "theirs": 0}


def test_a_file_written_again_by_an_update_stays_its_epochs(log: Log) -> None:
    log.foreign("UPDATE", [remove("c")], [add("c2", 3)])
    assert row_counts.owners(log.changes) == {"a": 1, "b": 1, "c2": 2}


def test_epochs_that_share_a_file_are_known_by_none_of_theirs(log: Log) -> None:
    log.epoch(3, {"d": 2}).foreign("OPTIMIZE", [remove("b"), remove("c")], [add("x", 4, changes=False)])
    assert row_counts.owners(log.changes) == {"a": None, "x": None, "d": 3}


def test_a_file_from_before_the_log_is_nobodys(log: Log) -> None:
    log.foreign("OPTIMIZE", [remove("old"), remove("a")], [add("x", 11, changes=False)])
    assert row_counts.owners(log.changes) == {"b": None, "c": 2, "x": None}
