"""What lies in the source beyond an epoch: which files are looked for, whose list names them, and what nobody asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoints.samples import QUERY, at, commit_text, epoch_after, history, lineage, offsets_text, write
from tests.checkpoints.samples import write_checkpoint as sound

from onceonly.replay.source_check import SourceAvailability, by_lists, check_source, is_there
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.model import SourceIdentity
from onceonly_checkpoints.storage import LocalStorage

RECORDS = tuple(history(5))
STOOD = RECORDS[1].epoch
"""Everything is cut back to epoch 2, which took in the source log's entry 1."""


def known(records: tuple[EpochRecord, ...] = RECORDS) -> dict[int, Epoch]:
    return {record.epoch.number: record.epoch for record in records}


def but(*gone: int) -> Callable[[str], bool]:
    """All parts are there but these."""
    return lambda url: not any(f"part%20{number}.csv" in url for number in gone)


def unlisted(records: tuple[EpochRecord, ...] = RECORDS) -> tuple[EpochRecord, ...]:
    """The same records as a ledger has them that was filled from the sinks' markers: without files."""
    return tuple(replace(record, files=()) for record in records)


@pytest.fixture
def log(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path / "checkpoint")
    sound(storage, 5)
    return storage


def test_nothing_is_said_where_every_file_is_there(log: LocalStorage) -> None:
    assert check_source(STOOD, known(), RECORDS, log, but()) == SourceAvailability({})


def test_a_file_that_is_gone_is_told_by_the_epoch_that_read_it_and_none_below_is_looked_for(log: LocalStorage) -> None:
    assert check_source(STOOD, known(), RECORDS, log, but(1, 3)).gone == {4: "file:///in/part%203.csv"}
    assert by_lists(RECORDS, STOOD.number, but(1, 3)).gone == {4: "file:///in/part%203.csv"}


def test_what_no_ledger_lists_is_looked_for_by_the_list_of_the_checkpoint(log: LocalStorage) -> None:
    assert check_source(STOOD, known(), unlisted(), log, but(3)) == SourceAvailability({4: "file:///in/part%203.csv"})
    assert by_lists(unlisted(), STOOD.number, but(3)) == SourceAvailability({})


def test_batches_that_are_no_epochs_are_counted_on(log: LocalStorage) -> None:
    """Ledger and sinks restored together know two epochs; Spark has finished five batches."""
    few = RECORDS[:2]
    assert check_source(STOOD, known(few), few, log, but(2, 4)).gone == {
        3: "file:///in/part%202.csv",
        5: "file:///in/part%204.csv",
    }


def test_an_entry_that_spark_has_planned_for_no_batch_belongs_to_the_epoch_behind_the_last(log: LocalStorage) -> None:
    write(log, **{"sources/0/5": 'v1\n{"path":"file:///in/part%205.csv","timestamp":1,"batchId":5}'})
    assert check_source(STOOD, known(), RECORDS, log, but(5)).gone == {6: "file:///in/part%205.csv"}


def test_entries_that_nobody_lists_are_counted_and_the_others_still_looked_for(log: LocalStorage) -> None:
    (Path(log.url) / "sources/0/3").write_text("torn")
    found = check_source(STOOD, known(), unlisted(), log, but(2, 3, 4))
    assert found.gone == {3: "file:///in/part%202.csv", 5: "file:///in/part%204.csv"}
    (said,) = found.unasked
    assert said.startswith("for the files of 1 batch beyond epoch 2, which neither the ledger nor the checkpoint lists")


def test_the_log_of_another_job_is_not_asked(tmp_path: Path) -> None:
    other = LocalStorage(tmp_path / "other")
    write(
        other,
        metadata='{"id": "another"}',
        **{"offsets/0": offsets_text('{"logOffset":9}'), "commits/0": commit_text()},
    )
    found = check_source(STOOD, known(), unlisted(), other, but(2, 3, 4))
    assert found.gone == {}
    assert "files of 3 batches beyond epoch 2" in found.unasked[0]


def test_a_checkpoint_whose_metadata_a_killed_cut_has_deleted_is_still_its_own(log: LocalStorage) -> None:
    (Path(log.url) / "metadata").unlink()
    assert check_source(STOOD, known(), unlisted(), log, but(3)).gone == {4: "file:///in/part%203.csv"}


def test_without_a_checkpoint_batches_that_no_ledger_knows_are_named_as_not_asked() -> None:
    (said,) = check_source(STOOD, known(), RECORDS, None, but()).unasked
    assert "that the ledger does not know: their checkpoint is not to be found" in said


def test_files_that_nobody_here_can_look_for_are_counted(log: LocalStorage) -> None:
    assert check_source(STOOD, known(), RECORDS, log, lambda _: None) == SourceAvailability(
        {}, ("whether 3 input files are still there",)
    )


def test_epochs_of_an_earlier_job_are_looked_for_by_the_ledger_alone(log: LocalStorage) -> None:
    """The checkpoint was made anew behind epoch 3; its log counts from its own beginning."""
    records = list(RECORDS[:3])
    moved = epoch_after(records[-1].epoch, at(3), lineage(0, "another"))
    records.append(replace(RECORDS[3], epoch=moved, files=()))
    found = check_source(STOOD, known(tuple(records)), tuple(records), log, but())
    assert "1 batch beyond epoch 2" in found.unasked[0]


@pytest.mark.parametrize(
    ("identity", "called"),
    [
        ('kafka:{"servers": "a:1", "topics": {"flights": "id"}}', "topic flights"),
        ("delta:/tables/in", "table delta:/tables/in"),
        (None, "source 0"),
    ],
)
def test_what_other_sources_hold_is_named_as_not_asked(identity: str | None, called: str) -> None:
    offsets = replace(at(1), entries=(("0", '{"reservoirVersion":3}'),))
    epoch = epoch_after(None, offsets, lineage(0, QUERY))
    stood = chain.linked(replace(epoch, sources=(SourceIdentity("0", identity),)))
    (said,) = check_source(stood, {1: stood}, (), None, but()).unasked
    assert said.startswith(f"whether {called} still holds the input after epoch 1")


def test_a_file_is_there_is_not_or_cannot_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("")
    assert is_there((tmp_path / "here.csv").as_uri()) is True
    assert is_there((tmp_path / "gone.csv").as_uri()) is False
    assert is_there("nowhere://bucket/part.csv") is None
