"""What users say to the Delta sink and what readers see: addresses, notes, bad places, bad arguments, full disks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow.fs import LocalFileSystem
from tests.sinks.delta_harness import DeltaHarness

from onceonly.errors import ConfigurationError, DestinationError, OnceOnlyError
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Epoch, Fence
from onceonly_lab.conformance.scenario import PIPELINE, Driver, Scenario
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.delta.log import DeltaLog
from onceonly_sinks.delta.log_committer import LogCommitter
from onceonly_sinks.delta.marker import Note, application_id, pack
from onceonly_sinks.delta.read_at import dataset


@pytest.fixture
def harness(tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(tmp_path)


# ---- one note for every reader


def test_history_of_the_table_shows_the_marker(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.writes()
        newest = DeltaTable(harness.path).history(1)[0]
        shown = json.loads(newest["userMetadata"])
        assert shown["marker"] == driver.marker(planned.epoch).to_json()
        app = application_id(PIPELINE, driver.sink.id)
        assert DeltaTable(harness.path).transaction_version(app) == pack("", driver.fence.generation, 1)


def test_two_sinks_on_one_table_do_not_disturb_each_other(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver(7)
        first = driver.writes()
        other = DeltaSink(harness.path, id="second")
        other.open(PIPELINE)
        assert other.fence() is None
        other.install(Fence(1, "other"))
        second = driver.writes()
        assert [marker.epoch for marker, _ in story.reader().history()] == [first.epoch, second.epoch]
        assert list(other.history()) == []
        other.close()


def test_an_address_carries_a_chosen_id_and_no_secret(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "rows", id="orders copy", storage_options={"secret": "hunter2"})
    assert "hunter2" not in sink.address
    found = DeltaSink.from_address(sink.address)
    assert (found.id, found.address) == (sink.id, sink.address)


def test_a_relative_path_and_a_file_uri_are_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    addresses = {DeltaSink(target).address for target in ("./rows", f"file://{tmp_path}/rows", tmp_path / "rows/")}
    assert addresses == {f"delta:{tmp_path}/rows"}


def sent_late(path: str, driver: Driver, epoch: Epoch) -> tuple[LogCommitter, DeltaTable, Note]:
    """A commit of an epoch that was made from the table as it is now, and has not arrived."""
    found, app = DeltaTable(path), application_id(PIPELINE, driver.sink.id)
    read, marker = found.version(), driver.marker(epoch)
    note = Note(
        app, driver.fence, epoch.number, marker, None, read, read, 0, "append", str(found.metadata().id), "late"
    )
    return LogCommitter(driver.sink.id, path, {}), found, note


@pytest.mark.parametrize("asked", [False, True])
def test_a_commit_that_was_called_absent_cannot_arrive_any_more(harness: DeltaHarness, asked: bool) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        planned = driver.plan()
        log, found, note = sent_late(harness.path, driver, planned.epoch)
        if asked:
            assert driver.looks_up(planned) is None
            with pytest.raises(DeltaError):
                log.send(found, note, None)
        else:
            log.send(found, note, None)
        landed = [marker.epoch.number for marker, _ in story.reader().history()]
        assert landed == ([1] if asked else [1, 2])


def test_of_drivers_that_create_a_table_at_once_one_succeeds(tmp_path: Path) -> None:
    drivers = 4
    at_once = threading.Barrier(drivers, timeout=60)

    def creates(root: Path, number: int) -> int | None:
        app = application_id(PIPELINE, "orders")
        note = Note(app, Fence(1, str(number)), 0, None, None, -1, -1, 0, "append", "", str(number))
        at_once.wait()
        try:
            LogCommitter("orders", str(root), None).create(note)
        except DeltaError:
            return None
        return number

    with ThreadPoolExecutor(drivers) as pool:
        for root in (tmp_path / str(repeat) for repeat in range(20)):
            creators = [number for number in pool.map(partial(creates, root), range(drivers)) if number is not None]
            log = DeltaLog(str(root), application_id(PIPELINE, "orders"))
            entry = log.newest(max(log.versions()))
            assert (len(creators), log.versions()) == (1, [0])
            assert entry is not None
            assert entry.note is not None
            assert entry.note.fence == Fence(1, str(creators[0]))


def test_a_table_is_set_to_no_epoch_whose_rows_it_does_not_hold(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        with pytest.raises(ConfigurationError, match=r"E110.*it has those of epoch 2"):
            driver.sink.reset_to(Fence(7, "operator"), 1)
        write_deltalake(harness.path, DeltaTable(harness.path).to_pyarrow_table(), mode="overwrite")
        with pytest.raises(ConfigurationError, match=r"E110.*it has those of no epoch that is known"):
            driver.sink.reset_to(Fence(7, "operator"), 1)
        assert driver.sink.fence() == driver.fence


def test_a_driver_that_was_superseded_reads_no_position_and_an_epoch_that_does_not_follow_is_refused(
    harness: DeltaHarness,
) -> None:
    with Scenario(harness) as story:
        old = story.driver()
        first = old.writes()
        follows = old.plan()
        new = story.driver()
        with pytest.raises(Superseded):
            old.position()
        second = new.writes()
        with pytest.raises(OnceOnlyError, match="E210"):
            new.tries(follows)
        story.holds(first, second)


def test_threads_of_arrow_run_no_python_while_they_read(harness: DeltaHarness) -> None:
    """Else one that closes a file after the last line of a program aborts the interpreter's exit."""
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        files = dataset(driver.sink._open.table, DeltaTable(harness.path)).filesystem  # type: ignore[attr-defined]
        assert isinstance(files.base_fs, LocalFileSystem)


def test_only_a_fence_that_lost_a_race_is_sent_again(tmp_path: Path) -> None:
    """Behind any other error nobody was faster: twenty tries would name the wrong reason."""
    (tmp_path / "_delta_log").write_text("no folder")
    sink = DeltaSink(tmp_path)
    sink.open(PIPELINE)
    with pytest.raises(OutcomeUnknown, match="OSError"):
        sink.install(Fence(1, "driver"))


# ---- bad places and bad arguments


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.parquet").write_bytes(b"x")
    with pytest.raises(DestinationError) as refused:
        DeltaSink(tmp_path).open(PIPELINE)
    assert refused.value.code == "E508"


def test_a_file_is_no_place_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(DestinationError) as refused:
        DeltaSink(tmp_path / "file").open(PIPELINE)
    assert refused.value.code == "E508"


def test_a_table_name_needs_a_session(tmp_path: Path) -> None:
    with pytest.raises(DestinationError) as refused:
        DeltaSink("sales.orders").open(PIPELINE)
    assert refused.value.code == "E508"
    assert "sales.orders" in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "upsert"},
        {"sequence": "step"},
        {"external_changes": "some"},
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_together_are_refused_at_once(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        DeltaSink(tmp_path, **arguments)
    assert refused.value.code == "E110"


def test_a_committer_that_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r'committer is not "auto", "log" or "spark": \'rust\''):
        DeltaTuning(committer="rust")  # type: ignore[arg-type]


def test_the_spark_committer_without_a_session_is_refused_before_the_action(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, tuning=DeltaTuning(committer="spark"))
    with Scenario(harness) as story:
        driver = story.driver()
        with pytest.raises(ConfigurationError) as refused:
            driver.prepares(driver.plan())
        assert refused.value.code == "E110"
        assert "with_delta" in str(refused.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["executors", "driver"])
def test_a_full_disk_is_named_and_loses_nothing(small_disk: Path, limit: int) -> None:
    harness = DeltaHarness(small_disk, tuning=DeltaTuning(driver_limit=limit))
    with Scenario(harness) as story:
        driver = story.driver()
        first = driver.writes()
        planned = driver.plan()
        rows = planned.table.slice(0, 1)
        large = pa.concat_tables([rows.set_column(2, "note", [[os.urandom(40).hex()]]) for _ in range(40_000)])
        for batch in (ArrowBatch(large), None):
            if batch is None:
                (small_disk / "filler").write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 4096))
            with pytest.raises(DestinationError) as refused:
                driver.commits(planned, driver.sink.prepare(batch or ArrowBatch(planned.table), planned.epoch.number))
            assert refused.value.code == "E507"
        (small_disk / "filler").unlink()
        driver.tries(planned)
        story.holds(first, planned)
