"""What a Delta table is complete through: by its log alone, at any version, after a RESTORE, and with other engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.reading.writing import Writer

from onceonly import OnceOnlyError
from onceonly.event_time import TimeReader, TimeWindow
from onceonly.machine.writer_progress import WriterSet
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink

BOTH = WriterSet(("web", "app"), 60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


def version(path: Path) -> int:
    return DeltaTable(path).version()


def test_a_table_says_at_each_version_what_it_was_complete_through(path: Path) -> None:
    web, app = Writer("web", DeltaSink(path), BOTH), Writer("app", DeltaSink(path), BOTH)
    told: dict[int, int | None] = {}
    for number in range(1, 5):
        for writer, peer in ((web, app), (app, web)):
            writer.write(number * 10, noted=number * 10, ingest=number, sees=[peer])
            newest = writer.newest
            assert newest is not None
            told[version(path)] = newest.time.dataset_complete_until
    reader = TimeReader("app", DeltaSink(path))
    assert {at: reader.time_window(at).lower for at in told} == told
    assert set(told.values()) == {None, 10, 20, 30, 40}
    assert reader.time_window().lower == 40
    assert reader.time_window(0).lower is None


def test_a_fence_repeats_what_was_noted(path: Path) -> None:
    web = Writer("web", DeltaSink(path))
    web.write(1, noted=7)
    web.take_over()
    assert TimeReader("web", DeltaSink(path)).time_window().lower == 7


def test_after_a_restore_only_what_was_left_counts_until_the_writer_goes_on(path: Path) -> None:
    web = Writer("web", DeltaSink(path))
    kept = web.write(1, noted=10).at("version")
    gone = web.write(2, noted=20).at("version")
    assert isinstance(kept, int)
    DeltaTable(path).restore(kept)
    reader = TimeReader("web", DeltaSink(path))
    found = reader.time_window()
    assert (found.lower, found.lost, [mark.epoch for mark in found.at]) == (10, ("web",), [1])
    restored = version(path)
    assert [reader.time_window(at).lower for at in (kept, gone, restored)] == [10, 20, 10]
    assert reader.time_window(restored).lost == ("web",)
    assert reader.time_window(gone).lost == ()
    web.take_over()
    web.accept_change(10)
    web.write(4, noted=15)
    assert (reader.time_window().lower, reader.time_window().lost) == (15, ())
    assert [reader.time_window(at).lower for at in (kept, gone, restored)] == [10, 20, 10]


def test_another_engine_reads_the_same_out_of_the_log(path: Path) -> None:
    web = Writer("web", DeltaSink(path))
    for number in (1, 2, 3):
        web.write(number, noted=number * 10)
    said = [json.loads(one["userMetadata"]) for one in DeltaTable(path).history() if "userMetadata" in one]
    noted = {one["marker"]["epoch"]["time"]["dataset_complete_until"] for one in said if one["marker"]}
    assert noted == {10, 20, 30}


def test_sql_reads_the_same_out_of_the_files_of_the_log(path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    web = Writer("web", DeltaSink(path))
    for number in (1, 2, 3):
        web.write(number, noted=number * 10)
    query = f"""
        SELECT max((commitInfo.userMetadata::JSON ->> '$.marker.epoch.time.dataset_complete_until')::BIGINT)
        FROM read_json('{path}/_delta_log/*.json', columns = {{commitInfo: 'STRUCT(userMetadata VARCHAR)'}})
        WHERE commitInfo IS NOT NULL
    """
    with duckdb.connect() as connection:
        assert connection.execute(query).fetchone() == (30,)


def test_a_version_is_no_place_where_there_are_offsets(path: Path) -> None:
    Writer("web", DeltaSink(path)).write(1, noted=1)
    with pytest.raises(OnceOnlyError, match="are counted by version"):
        TimeReader("web", DeltaSink(path)).time_window({"clicks": {"0": 5}})


# ---- what its owner does to a table in between


def compact(path: Path) -> None:
    DeltaTable(path).optimize.compact()


def vacuum(path: Path) -> None:
    DeltaTable(path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def written(web: Writer, app: Writer, number: int) -> None:
    web.write(number * 10, noted=number * 10, ingest=number, sees=[app])
    app.write(number * 10, noted=number * 10 - 5, ingest=number, sees=[web])


def told(path: Path) -> TimeWindow:
    with TimeReader("web", DeltaSink(path)) as reader:
        return reader.time_window()


@pytest.mark.parametrize("cares", [(compact,), (compact, vacuum)])
def test_compaction_and_vacuum_change_nothing_of_what_a_table_is_complete_through(
    path: Path, cares: tuple[Callable[[Path], None], ...]
) -> None:
    web, app = Writer("web", DeltaSink(path), BOTH), Writer("app", DeltaSink(path), BOTH)
    for number in range(1, 5):
        written(web, app, number)
    before, newest = told(path), version(path)
    assert (before.lower, before.upper, [mark.writer for mark in before.held]) == (35, 40, ["app"])
    for care in cares:
        care(path)
    assert version(path) > newest
    assert told(path) == before
    with TimeReader("web", DeltaSink(path)) as reader:
        assert [reader.time_window(at).lower for at in (newest - 2, newest, version(path))] == [25, 35, 35]
    web.write(50, noted=50, ingest=5, sees=[app])
    app.write(60, noted=60, ingest=6, sees=[web])
    assert (told(path).lower, told(path).lost) == (50, ())


def test_what_is_cleaned_away_of_a_log_behind_its_newest_epochs_was_needed_by_nobody(path: Path) -> None:
    web, app = Writer("web", DeltaSink(path), BOTH), Writer("app", DeltaSink(path), BOTH)
    written(web, app, 1)
    retain_nothing(path)
    written(web, app, 2)
    before, logged = told(path), log_files(path)
    assert before.lower == 15
    DeltaTable(path).cleanup_metadata()
    assert log_files(path) < logged
    assert told(path) == before
    written(web, app, 3)
    assert told(path).lower == 25


def test_a_log_that_was_cleaned_away_whole_says_nothing_and_the_ledger_goes_on_saying_it(
    path: Path, tmp_path: Path
) -> None:
    with closing(SqlLedger(str(tmp_path / "ledger.db"))) as ledger:
        ledger.open()
        web = Writer("web", DeltaSink(path), ledger=ledger)
        web.write(7, noted=7)
        retain_nothing(path)
        DeltaTable(path).cleanup_metadata()
        assert told(path) == TimeWindow(None, None)
        assert TimeReader("web", ledger).time_window().lower == 7


def retain_nothing(path: Path) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    DeltaTable(path).create_checkpoint()


def log_files(path: Path) -> int:
    return len(list((path / "_delta_log").glob("*.json")))
