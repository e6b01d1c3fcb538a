"""What a Delta table is complete through: by its log alone, at any version, after a RESTORE, and with other engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.reading.writing import Writer

from onceonly import OnceOnlyError
from onceonly.machine.marks import Writers
from onceonly.reading import Reader
from onceonly_sinks.delta import DeltaSink

BOTH = Writers(("web", "app"), 60)


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
            told[version(path)] = newest.time.lower
    reader = Reader("app", DeltaSink(path))
    assert {at: reader.time_window(at).lower for at in told} == told
    assert set(told.values()) == {None, 10, 20, 30, 40}
    assert reader.time_window().lower == 40
    assert reader.time_window(0).lower is None


def test_a_fence_repeats_what_was_noted(path: Path) -> None:
    web = Writer("web", DeltaSink(path))
    web.write(1, noted=7)
    web.take_over()
    assert Reader("web", DeltaSink(path)).time_window().lower == 7


def test_after_a_restore_only_what_was_left_counts_until_the_writer_goes_on(path: Path) -> None:
    web = Writer("web", DeltaSink(path))
    kept = web.write(1, noted=10).at("version")
    gone = web.write(2, noted=20).at("version")
    assert isinstance(kept, int)
    DeltaTable(path).restore(kept)
    reader = Reader("web", DeltaSink(path))
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
    noted = {one["marker"]["epoch"]["time"]["lower"] for one in said if one["marker"]}
    assert noted == {10, 20, 30}


def test_sql_reads_the_same_out_of_the_files_of_the_log(path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    web = Writer("web", DeltaSink(path))
    for number in (1, 2, 3):
        web.write(number, noted=number * 10)
    query = f"""
        SELECT max((commitInfo.userMetadata::JSON ->> '$.marker.epoch.time.lower')::BIGINT)
        FROM read_json('{path}/_delta_log/*.json', columns = {{commitInfo: 'STRUCT(userMetadata VARCHAR)'}})
        WHERE commitInfo IS NOT NULL
    """
    with duckdb.connect() as connection:
        assert connection.execute(query).fetchone() == (30,)


def test_a_version_is_no_place_where_there_are_offsets(path: Path) -> None:
    Writer("web", DeltaSink(path)).write(1, noted=1)
    with pytest.raises(OnceOnlyError, match="are counted by version"):
        Reader("web", DeltaSink(path)).time_window({"clicks": {"0": 5}})
