"""Many partition values in one task: one file is open at a time, however few a process may open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.sinks.delta_harness import DeltaHarness

from onceonly.protocol import Attempt
from onceonly.protocol.batch import ArrowBatch
from onceonly_sinks.conformance.story import Story
from onceonly_sinks.delta import files
from onceonly_sinks.delta.files import WriteFiles
from onceonly_sinks.delta.shape import Demands, Shape

VALUES = 600

FEW_FILES = f"""
import resource, sys
import pyarrow as pa
from pathlib import Path
from tests.sinks.delta_harness import DeltaHarness
from onceonly.protocol.batch import ArrowBatch
from onceonly.errors import OnceOnlyError
from onceonly_sinks.conformance.story import Story

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
harness = DeltaHarness(Path(sys.argv[1]), driver_limit=int(sys.argv[2]), partition_by="day")
rows = pa.table({{"id": range(2 * {VALUES}), "day": ["d" + str(n % {VALUES}) for n in range(2 * {VALUES})]}})
with Story(harness) as story:
    driver = story.driver()
    planned = driver.plan(rows=rows.num_rows)
    driver.commits(planned, driver.sink.prepare(ArrowBatch(rows, partitions=1), planned.epoch.number))
    assert story.reader().recount() == {{1: rows.num_rows}}
"""


@pytest.mark.parametrize(
    "limit", [pytest.param(0, id="executors"), pytest.param(1 << 30, id="driver", marks=pytest.mark.slow)]
)
def test_more_partitions_than_a_process_may_open_files_are_written(tmp_path: Path, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES, tmp_path, str(limit)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = DeltaHarness(tmp_path).rows()
    assert sorted((row["id"], row["day"]) for row in found) == [(n, f"d{n % VALUES}") for n in range(2 * VALUES)]


@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["executors", "driver"])
def test_rows_keep_their_partition_where_the_values_could_meet_in_more_ways_than_64_bits_count(
    tmp_path: Path, limit: int
) -> None:
    names = [f"c{n:02}" for n in range(16)]
    values = {name: [f"v{(row * (place + 1)) % 17}" for row in range(17)] for place, name in enumerate(names)}
    rows = pa.table({"id": list(range(17)), **values})
    assert 17 ** len(names) > 1 << 64
    harness = DeltaHarness(tmp_path, driver_limit=limit, partition_by=names)
    with Story(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=rows.num_rows)
        driver.commits(planned, driver.sink.prepare(ArrowBatch(rows, partitions=1), planned.epoch.number))
    assert sorted(harness.rows(), key=lambda row: row["id"]) == rows.to_pylist()


def test_rows_beyond_what_is_held_go_into_further_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_HELD", 1)
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    task = WriteFiles(str(tmp_path), Shape.of(schema, schema.names), None, 1, Demands(), ("day",), ())
    batches = [pa.record_batch({"id": [n, n + 10], "day": ["a", "b"]}) for n in range(3)]
    answer = task(Attempt(0, 0), iter(batches))
    assert [(file["rows"], file["partition"]["day"]) for file in answer["files"]] == [(1, "a"), (1, "b")] * 3


def test_files_of_a_task_that_fails_are_removed_with_those_already_closed(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string())])
    task = WriteFiles(str(tmp_path), Shape.of(schema, schema.names), None, 1, Demands(("id",)), ("day",), ())
    batches = [pa.record_batch({"id": pa.array([one], pa.int64()), "day": ["a"]}) for one in (1, None)]
    assert task(Attempt(0, 0), iter(batches))["wrong"] == ["id", "null in a NOT NULL column"]
    assert list(tmp_path.iterdir()) == []
