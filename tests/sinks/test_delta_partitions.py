"""Many partition values in one task: one file is open at a time, however few a process may open."""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.broken.foreign import LeavesTheZoneOut
from tests.sinks.delta_harness import DeltaHarness

from onceonly.errors import ConfigurationError, DestinationError
from onceonly.protocol import Attempt
from onceonly.protocol.batch import ArrowBatch
from onceonly_lab.conformance.scenario import Scenario
from onceonly_sinks.delta import files
from onceonly_sinks.delta.files import WriteFiles
from onceonly_sinks.delta.schema_compatibility import Demands, Shape

VALUES = 600

FEW_FILES = f"""
import resource, sys
import pyarrow as pa
from pathlib import Path
from tests.sinks.delta_harness import DeltaHarness
from onceonly.protocol.batch import ArrowBatch
from onceonly.errors import OnceOnlyError
from onceonly_lab.conformance.scenario import Scenario

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
harness = DeltaHarness(Path(sys.argv[1]), driver_limit=int(sys.argv[2]), partition_by="day")
rows = pa.table({{"id": range(2 * {VALUES}), "day": ["d" + str(n % {VALUES}) for n in range(2 * {VALUES})]}})
with Scenario(harness) as story:
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
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=rows.num_rows)
        driver.commits(planned, driver.sink.prepare(ArrowBatch(rows, partitions=1), planned.epoch.number))
    assert sorted(harness.rows(), key=lambda row: row["id"]) == rows.to_pylist()


UTC = dt.timezone.utc
SPELLED: dict[str, tuple[pa.DataType, dict[Any, str | None]]] = {
    "instants": (
        pa.timestamp("us", "UTC"),
        {
            dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC): "2026-02-03T04:05:06.000000Z",
            dt.datetime(1, 1, 1, tzinfo=UTC): "0001-01-01T00:00:00.000000Z",
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC): "9999-12-31T23:59:59.999999Z",
            None: None,
        },
    ),
    "times of day": (
        pa.timestamp("us"),
        {
            dt.datetime(2026, 2, 3, 4, 5, 6): "2026-02-03 04:05:06",
            dt.datetime(1, 1, 1, 0, 0, 0, 1): "0001-01-01 00:00:00.000001",
        },
    ),
    "days": (pa.date32(), {dt.date(1582, 10, 10): "1582-10-10", dt.date(1, 1, 1): "0001-01-01"}),
    "decimals": (
        pa.decimal128(38, 10),
        {Decimal("-1E-10"): "-0.0000000001", Decimal("9" * 28 + "." + "9" * 10): "9" * 28 + "." + "9" * 10},
    ),
    "doubles": (
        pa.float64(),
        {1.5: "1.5", -0.0: "-0.0", math.nan: "NaN", math.inf: "Infinity", -math.inf: "-Infinity", 1e300: "1e+300"},
    ),
    "bytes": (pa.binary(), {b"abc": "abc", "\u00fc".encode(): "\u00fc", b"": None}),
    "texts": (pa.string(), {"a/b%c d": "a/b%c d", "\x01": "\x01", "": None}),
    "booleans": (pa.bool_(), {True: "true", False: "false"}),
}  # fmt: skip
"""Types of partition columns, and their values as the log has them: as Spark's Delta 4.4 writes or reads them."""


WRITTEN = {name: found for name, found in SPELLED.items() if name not in ("texts", "times of day")}
"""What deltalake spells as the others do is written by it, in a form of its own."""


@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["large", "small"])
@pytest.mark.parametrize("kind", WRITTEN)
def test_a_value_of_a_partition_is_spelled_as_spark_reads_it(tmp_path: Path, kind: str, limit: int) -> None:
    harness = DeltaHarness(tmp_path, driver_limit=limit, partition_by="p")
    rows, values = written(harness, kind)
    assert values == set(SPELLED[kind][1].values())
    # deltalake reads no bytes of Spark's, no decimal like -1E-10, and a NaN is not equal to itself.
    if kind not in ("bytes", "decimals", "doubles"):
        assert sorted(harness.rows(), key=lambda row: row["id"]) == rows.to_pylist()


def test_a_sink_that_leaves_the_zone_out_is_called_by_the_type(tmp_path: Path) -> None:
    harnesses = {kind: DeltaHarness(tmp_path / kind, sink=LeavesTheZoneOut, partition_by="p") for kind in WRITTEN}
    wrong = [kind for kind, one in harnesses.items() if written(one, kind)[1] != set(SPELLED[kind][1].values())]
    assert wrong == ["instants"]


def written(harness: DeltaHarness, kind: str) -> tuple[pa.Table, set[str | None]]:
    """Write an epoch with values of a type; the rows, and the values as the log has them."""
    arrow, values = SPELLED[kind]
    rows = pa.table({"id": range(len(values)), "p": pa.array(list(values), arrow)})
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=rows.num_rows)
        driver.commits(planned, driver.sink.prepare(ArrowBatch(rows), planned.epoch.number))
    return rows, {values["p"] for values in partition_values(harness.path)}


def partition_values(path: Path) -> list[dict[str, str | None]]:
    """As the log has them."""
    lines = [line for log in (path / "_delta_log").glob("*.json") for line in log.read_text().splitlines()]
    return [action["add"]["partitionValues"] for action in map(json.loads, lines) if "add" in action]


@pytest.mark.parametrize("kind", SPELLED)
def test_a_value_of_a_partition_is_spelled_on_executors_as_spark_reads_it(kind: str) -> None:
    arrow, values = SPELLED[kind]
    rows = pa.table({"p": pa.array(list(values), arrow)})
    assert {dict(one)["p"] for one, _ in files.partitions(rows, ["p"])} == set(values.values())


@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["large", "small"])
def test_an_empty_text_is_null_in_a_partition_whatever_the_size_of_its_epoch(tmp_path: Path, limit: int) -> None:
    rows = pa.table({"id": [1, 2, 3], "p": ["", None, "a"]})
    harness = DeltaHarness(tmp_path, driver_limit=limit, partition_by="p")
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan(rows=3)
        driver.commits(planned, driver.sink.prepare(ArrowBatch(rows), planned.epoch.number))
    assert {values["p"] for values in partition_values(harness.path)} == {None, "a"}
    assert sorted((row["id"], row["p"]) for row in harness.rows()) == [(1, None), (2, None), (3, "a")]


def test_an_empty_text_in_a_key_that_is_a_partition_is_refused(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, partition_by="p", key=["id", "p"])
    with Scenario(harness) as story, pytest.raises(DestinationError, match="E504"):
        story.driver().sink.prepare(ArrowBatch(pa.table({"id": [1], "p": [""]})), 1)


def test_a_merge_may_lack_the_column_that_the_table_is_partitioned_by(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, partition_by="p", key="id")
    with Scenario(harness) as story:
        driver = story.driver()
        for rows in (pa.table({"id": [1], "v": [0], "p": ["a"]}), pa.table({"id": [1], "v": [1]})):
            planned = driver.plan(rows=1)
            driver.commits(planned, driver.sink.prepare(ArrowBatch(rows), planned.epoch.number))
    assert harness.rows() == [{"id": 1, "v": 1, "p": "a"}]


def test_bytes_that_are_no_text_are_no_partition(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, partition_by="p")
    with Scenario(harness) as story, pytest.raises(DestinationError, match="no UTF-8 text"):
        story.driver().sink.prepare(ArrowBatch(pa.table({"id": [1], "p": [b"\xff"]})), 1)


def test_a_merge_into_partitions_that_deltalake_spells_otherwise_is_refused_without_spark(tmp_path: Path) -> None:
    at = pa.array([0], pa.timestamp("us", "UTC"))
    harness = DeltaHarness(tmp_path, partition_by="at", key="id")
    with Scenario(harness) as story, pytest.raises(ConfigurationError, match="partition column at of type timestamp"):
        story.driver().sink.prepare(ArrowBatch(pa.table({"id": [1], "at": at})), 1)


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
