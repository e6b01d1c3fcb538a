"""A log that is looked at again: only what came since is read, and another log in its place is never taken for it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from tests.reading.writing import Writer, rows_at

from onceonly.event_time import TimeReader
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.delta.log import NEWEST, CachedLog, DeltaLog


class Touched:
    """What Python itself lists and opens in logs of Delta tables; a hook of the interpreter cannot be taken off."""

    def __init__(self) -> None:
        self.now: list[str] | None = None
        sys.addaudithook(self._notice)

    def _notice(self, event: str, given: tuple[object, ...]) -> None:
        if self.now is not None and event in ("os.listdir", "os.scandir", "open") and "_delta_log" in str(given[0]):
            self.now.append("listed" if event != "open" else Path(str(given[0])).name)

    @contextmanager
    def noticed(self) -> Iterator[list[str]]:
        self.now = seen = []
        try:
            yield seen
        finally:
            self.now = None


TOUCHED = Touched()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


def file_of(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def followed(path: Path) -> CachedLog:
    return CachedLog(DeltaLog(str(path), "onceonly/web/delta%3Aclicks"))


def versions(found: CachedLog) -> list[int]:
    return [entry.version for entry in found.newest_first()]


def test_a_reader_that_looks_again_lists_no_folder_and_opens_no_old_file(path: Path) -> None:
    web = Writer("web", DeltaSink(path))
    for noted in range(1, 31):
        web.write(noted, noted=noted)
    with TimeReader("web", DeltaSink(path)) as reader:
        assert reader.time_window().lower == 30
        web.write(31, noted=31)
        head = DeltaTable(path).version()
        with TOUCHED.noticed() as seen:
            assert reader.time_window(head).lower == 31
            assert reader.time_window().lower == 31
    assert "listed" not in seen
    # A position is looked for among the newest sixteen epochs; what they show of the log's age is nothing.
    opened = {int(name.removesuffix(".json")) for name in seen}
    assert min(opened) >= head - 17, sorted(opened)


def test_a_first_look_and_each_further_one_need_neither_a_listing_nor_what_only_deltalake_reads(path: Path) -> None:
    web = Writer("web", DeltaSink(path))
    for noted in range(1, 31):
        web.write(noted, noted=noted)
    checkpoints = list((path / "_delta_log").glob("*.checkpoint.parquet"))
    assert checkpoints
    with TimeReader("web", DeltaSink(path)) as reader, TOUCHED.noticed() as seen:
        held = [file.read_bytes() for file in checkpoints]
        for file in checkpoints:
            file.write_bytes(b"no checkpoint")
        assert reader.time_window().lower == 30
        assert "listed" not in seen
        for file, content in zip(checkpoints, held, strict=True):
            file.write_bytes(content)
        web.write(31, noted=31)
        for file in checkpoints:
            file.write_bytes(b"no checkpoint")
        seen.clear()
        assert reader.time_window().lower == 31
    assert "listed" not in seen


@pytest.mark.parametrize("last", ["", "{}", '{"version":', '{"version":900,"size":3}', '{"size":3,"version":2}'])
def test_the_newest_version_is_found_whatever_the_last_checkpoint_is_said_to_be(path: Path, last: str) -> None:
    for number in range(15):
        write_deltalake(path, rows_at([number]), mode="append")
    named = path / "_delta_log" / "_last_checkpoint"
    named.write_text(last)
    assert followed(path).head() == 14
    for version in range(5):
        file_of(path, version).unlink()
    assert followed(path).head() == 14


def test_versions_that_came_since_are_found_and_none_is_lost_below_one_that_was_cleaned_away(path: Path) -> None:
    for number in range(4):
        write_deltalake(path, rows_at([number]), mode="append")
    found = followed(path)
    assert found.head() == 3
    for number in range(3):
        write_deltalake(path, rows_at([number]), mode="append")
    assert (found.head(), versions(found)) == (6, [6, 5, 4, 3, 2, 1, 0])
    file_of(path, 2).unlink()
    assert versions(found) == [6, 5, 4, 3, 1, 0]


def test_a_table_that_is_not_there_has_no_version_and_one_that_is_made_then_has(path: Path) -> None:
    found = followed(path)
    assert (found.head(), versions(found), found.writers()) == (-1, [], [])
    write_deltalake(path, rows_at([1]))
    assert (found.head(), versions(found)) == (0, [0])


def test_a_table_that_was_made_anew_by_the_same_writer_is_another_one(path: Path) -> None:
    def write() -> None:
        web = Writer("web", DeltaSink(path))
        for noted in range(1, 6):
            web.write(noted, noted=noted)

    write()
    reader = DeltaSink(path)
    reader.open("web")
    *_, (_, newest) = reader.history()
    assert reader.external_changes(newest) == ()
    shutil.rmtree(path)
    write()
    assert "recreated" in [disturbance.kind for disturbance in reader.external_changes(newest)]


@pytest.mark.parametrize("epochs", [1, 9], ids=["of fewer versions", "of more versions"])
def test_a_table_that_was_made_anew_in_the_place_is_another_one(path: Path, epochs: int) -> None:
    web = Writer("web", DeltaSink(path))
    for noted in range(1, 6):
        web.write(noted, noted=noted)
    found, reader = followed(path), DeltaSink(path)
    reader.open("web")
    *_, (_, newest) = reader.history()
    assert (reader.pipelines(), found.writers()) == (["web"], ["web"])
    assert reader.external_changes(newest) == ()
    shutil.rmtree(path)
    app = Writer("app", DeltaSink(path))
    for noted in range(1, epochs + 1):
        app.write(noted, noted=noted)
    assert found.head() == DeltaTable(path).version()
    assert (reader.pipelines(), found.writers()) == (["app"], ["app"])
    assert "recreated" in [disturbance.kind for disturbance in reader.external_changes(newest)]
    assert list(reader.history()) == []


def test_a_newest_file_that_was_replaced_is_read_again(path: Path) -> None:
    Writer("web", DeltaSink(path)).write(1, noted=1)
    found = followed(path)
    assert found.writers() == ["web"]
    head = file_of(path, found.head())
    head.write_text(head.read_text().replace("onceonly/web/", "onceonly/app/"))
    assert found.writers() == ["app"]


def test_who_wrote_long_ago_is_forgotten_in_the_same_way_however_often_somebody_looked(path: Path) -> None:
    Writer("old", DeltaSink(path)).write(1, noted=1)
    found = followed(path)
    assert found.writers() == ["old"]
    text = file_of(path, 0).read_text().replace("onceonly/old/", "strange/old/")
    for version in range(found.head() + 1, NEWEST + 10):
        file_of(path, version).write_text(text)
    assert found.writers() == followed(path).writers() == []
