"""Data files of executors: their statistics are exact or left out, and readers that skip by them lose no row."""

from __future__ import annotations

import errno
import json
import math
import pickle
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceonly.protocol import Attempt, Estimate
from onceonly_sinks.delta.errors import unwritable
from onceonly_sinks.delta.files import WriteFiles, partitions
from onceonly_sinks.delta.planning import Choice, LoadPath, size_of
from onceonly_sinks.delta.schema_compatibility import Demands, Shape
from onceonly_sinks.delta.statistics import Statistics

FIRST = Attempt(0, 0)


def stats_of(**columns: pa.Array[Any]) -> dict[str, Any]:
    gathered = Statistics()
    table = pa.table(columns)
    gathered.add(table)
    found: dict[str, Any] = json.loads(gathered.text(table.num_rows))
    return found


def task(root: Path, schema: pa.Schema, **changes: Any) -> WriteFiles:
    fields: dict[str, Any] = {
        "root": str(root),
        "shape": Shape.of(schema, schema.names),
        "epoch_column": None,
        "epoch": 1,
        "demands": Demands(),
        "partition_by": (),
        "options": (),
    }
    return WriteFiles(**(fields | changes))


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_statistics_of_integers_are_exact(values: list[int | None]) -> None:
    known = [value for value in values if value is not None]
    found = stats_of(a=pa.array(values, pa.int64()))
    assert found["numRecords"] == len(values)
    assert found["nullCount"] == {"a": len(values) - len(known)}
    assert found["minValues"] == ({"a": min(known)} if known else {})
    assert found["maxValues"] == ({"a": max(known)} if known else {})


@given(st.lists(st.none() | st.floats(), min_size=1))
def test_statistics_of_floats_hold_every_value_or_are_left_out(values: list[float | None]) -> None:
    found = stats_of(a=pa.array(values, pa.float64()))
    known = [value for value in values if value is not None]
    if "a" in found["minValues"]:
        assert not any(math.isnan(value) or math.isinf(value) for value in known)
        assert found["minValues"]["a"] == min(known)
        assert found["maxValues"]["a"] == max(known)
    else:
        assert not known or any(math.isnan(value) or math.isinf(value) for value in known)


@given(st.lists(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), min_size=1))
def test_statistics_of_times_are_rounded_outwards(values: list[datetime]) -> None:
    # Delta keeps milliseconds: rounding inwards would hide the rows at the edges.
    for zone, array in ((None, pa.timestamp("us")), (UTC, pa.timestamp("us", "UTC"))):
        found = stats_of(a=pa.array([value.replace(tzinfo=zone) for value in values], array))
        least = datetime.fromisoformat(found["minValues"]["a"])
        greatest = datetime.fromisoformat(found["maxValues"]["a"])
        assert least <= min(values).replace(tzinfo=zone)
        assert greatest >= max(values).replace(tzinfo=zone)
        assert (min(values).replace(tzinfo=zone) - least).total_seconds() < 0.001
        assert (greatest - max(values).replace(tzinfo=zone)).total_seconds() < 0.001


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()], ids=str)
def test_what_lies_beyond_the_calendar_of_python_has_no_range(kind: Any) -> None:
    # '9999-12-31 23:59:59' says "no end", and west of Greenwich it is a moment of the year 10000.
    day = 1 if pa.types.is_date32(kind) else 86_400_000_000
    storage = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    for beyond in (2_932_897 * day, -719_163 * day):
        found = stats_of(a=pa.array([0, beyond, None], storage).cast(kind), b=pa.array([1, 2, 3]))
        assert (found["minValues"], found["maxValues"]) == ({"b": 1}, {"b": 3})
        assert found["nullCount"] == {"a": 1, "b": 0}


def test_what_has_no_exact_range_in_json_has_none() -> None:
    found = stats_of(
        text=pa.array(["x" * 500]),
        raw=pa.array([b"a"]),
        flag=pa.array([True]),
        many=pa.array([[1]]),
        day=pa.array([date(2020, 1, 1)]),
    )
    assert found["minValues"] == found["maxValues"] == {"day": "2020-01-01"}
    assert found["nullCount"] == {"text": 0, "raw": 0, "flag": 0, "day": 0}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=5))
def test_a_file_holds_the_rows_it_was_given(tmp_path: Path, batches: list[list[int]]) -> None:
    schema = pa.schema([("a", pa.int64())])
    parts = [pa.record_batch({"a": pa.array(batch, pa.int64())}) for batch in batches]
    files = task(tmp_path, schema)(FIRST, iter(parts))["files"]
    rows = [value for batch in batches for value in batch]
    assert len(files) == bool(rows)
    for file in files:
        path = tmp_path / file["path"]
        assert ds.dataset(path).to_table().column("a").to_pylist() == rows
        assert (file["rows"], file["size"], file["partition"]) == (len(rows), path.stat().st_size, {})
        path.unlink()
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.tuples(st.none() | st.sampled_from(["a", "", "b c"]), st.none() | st.booleans(), st.integers(0, 9))))
def test_partitions_hold_every_row_once(rows: list[tuple[str | None, bool | None, int]]) -> None:
    text, flag, number = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table(
        {"t": pa.array(text, pa.string()), "f": pa.array(flag, pa.bool_()), "n": pa.array(number, pa.int64())}
    )
    spelled = {None: None, "": None, "a": "a", "b c": "b c"}
    flags = {None: None, True: "true", False: "false"}
    found = [(values, n) for values, part in partitions(table, ("t", "f")) for n in part.column("n").to_pylist()]
    wanted = [((("t", spelled[t]), ("f", flags[f])), n) for t, f, n in rows]
    assert Counter(found) == Counter(wanted)
    assert len({values for values, _ in partitions(table, ("t", "f"))}) == len(list(partitions(table, ("t", "f"))))


def test_two_attempts_at_one_partition_write_two_files(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    parts = [pa.record_batch({"a": pa.array([1], pa.int64())})]
    names = {task(tmp_path, schema)(Attempt(0, attempt), iter(parts))["files"][0]["path"] for attempt in (1, 2)}
    assert len(names) == 2


def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Any:
        yield pa.record_batch({"a": pa.array([1], pa.int64())})
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError):
        task(tmp_path, pa.schema([("a", pa.int64())]))(FIRST, broken())
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_answered_and_not_tried_again(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    code = """
import errno, os, sys, pyarrow as pa
from onceonly.protocol import Attempt
from onceonly_sinks.delta import files
from onceonly_sinks.delta.schema_compatibility import Demands
from onceonly_sinks.delta.schema_compatibility import Shape
files.DataDirectory.create = lambda self, name: open("/dev/full", "wb", buffering=0)
files.DataDirectory.remove = lambda self, name: None
schema = pa.schema([("a", pa.int64())])
task = files.WriteFiles("/tmp", Shape.of(schema, ["a"]), None, 1, Demands(), (), ())
answer = task(Attempt(0, 0), iter([pa.record_batch({"a": pa.array(range(9), pa.int64())})]))
sys.exit(0 if answer["errno"] == errno.ENOSPC else 1)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_task_travels_and_needs_neither_deltalake_nor_spark(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    (tmp_path / "task").write_bytes(pickle.dumps(task(tmp_path, schema)))
    code = f"""
import pickle, sys
task = pickle.load(open({str(tmp_path / "task")!r}, "rb"))
import pyarrow as pa
from onceonly.protocol import Attempt
task(Attempt(0, 0), iter([pa.record_batch({{"a": pa.array([1], pa.int64())}})]))
sys.exit({{"deltalake", "pyspark", "delta"}} & set(sys.modules) and 1 or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def choice(**changes: Any) -> Choice:
    fields: dict[str, Any] = {
        "merge": False,
        "size": 10,
        "limit": 100,
        "committer": "auto",
        "log_refuses": None,
        "takes_files": True,
        "only_files": False,
        "spark": True,
    }
    return Choice(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "way"),
    [
        ({}, LoadPath.DRIVER),
        ({"size": 101}, LoadPath.EXECUTORS),
        ({"size": None}, LoadPath.EXECUTORS),
        ({"only_files": True}, LoadPath.EXECUTORS),
        ({"only_files": True, "committer": "log"}, LoadPath.EXECUTORS),
        ({"only_files": True, "committer": "spark"}, LoadPath.SPARK),
        ({"size": 101, "takes_files": False}, LoadPath.SPARK),
        ({"size": 101, "takes_files": False, "spark": False}, LoadPath.DRIVER),
        ({"size": 101, "takes_files": False, "committer": "log"}, LoadPath.DRIVER),
        ({"size": 101, "merge": True}, LoadPath.SPARK),
        ({"size": None, "merge": True}, LoadPath.SPARK),
        ({"merge": True}, LoadPath.DRIVER),
        ({"size": 101, "merge": True, "committer": "log"}, LoadPath.DRIVER),
        ({"log_refuses": "a feature"}, LoadPath.SPARK),
        ({"log_refuses": "a feature", "spark": False}, LoadPath.SPARK),
        ({"committer": "spark"}, LoadPath.SPARK),
    ],
    ids=str,
)
def test_the_way_of_an_epoch_follows_size_table_and_choice(changes: dict[str, Any], way: LoadPath) -> None:
    assert choice(**changes).load_path is way


def test_the_size_of_a_batch_is_taken_from_its_rows_where_only_they_are_known() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.bool_()), ("c", pa.string())])
    assert size_of(Estimate(10, None), schema) == 10 * (8 + 1 + 40)
    assert size_of(Estimate(10, 7), schema) == 7
    assert size_of(Estimate(None, None), schema) is None


def test_a_process_out_of_files_is_not_told_that_the_disk_is_full() -> None:
    assert unwritable("delta:t", errno.ENOSPC).code == "E507"
    told = unwritable("delta:t", errno.EMFILE)
    assert told.code == "E508"
    assert "ulimit" in str(told)
