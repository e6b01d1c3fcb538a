"""Files that Spark wrote and deltalake would rewrite with other values, or not remove: left to Spark, or refused."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.sinks.delta_harness import DeltaHarness

from onceonly.errors import ConfigurationError
from onceonly.protocol.batch import ArrowBatch
from onceonly_lab.conformance.scenario import Scenario
from onceonly_sinks.delta import log_committer
from onceonly_sinks.delta.table import Table

UTC = dt.timezone.utc
NEAR, FAR = dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC), dt.datetime(9999, 12, 31, tzinfo=UTC)
STAMP = pa.timestamp("us", "UTC")


def spark_wrote(path: Path, rows: pa.Table, *, stats: bool = True) -> None:
    """A table as Spark leaves it: instants as INT96."""
    write_deltalake(path, rows)
    [file] = path.glob("*.parquet")
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    [log] = (path / "_delta_log").glob("*.json")
    edit(log, lambda add: add | {"size": file.stat().st_size} | ({} if stats else {"stats": None}))


def edit(log: Path, change: Any) -> None:
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    changed = [{"add": change(action["add"])} if "add" in action else action for action in actions]
    log.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in changed))


def obstacle(path: Path) -> str | None:
    table = Table("delta:rows", str(path), "app", None)
    assert table.reopen() is not None
    return log_committer.rewrite_obstacle(table)


def nested(kind: pa.DataType, value: Any) -> pa.Table:
    return pa.table({"id": [1], "at": pa.array([value], kind)})


INSTANTS = {
    "near": (nested(STAMP, NEAR), None),
    "far": (nested(STAMP, FAR), "timestamps before 1678 or after 2262"),
    "long ago": (nested(STAMP, dt.datetime(1500, 1, 1, tzinfo=UTC)), "timestamps before 1678 or after 2262"),
    "null": (nested(STAMP, None), None),
    "far in a list": (nested(pa.list_(STAMP), [FAR]), "timestamps before 1678 or after 2262"),
    "far in a struct": (nested(pa.struct([("x", STAMP)]), {"x": FAR}), "timestamps before 1678 or after 2262"),
    "a far day": (nested(pa.date32(), FAR.date()), None),
}


def test_instants_that_deltalake_would_rewrite_as_others_are_found(tmp_path: Path) -> None:
    found = {}
    for name, (rows, _) in INSTANTS.items():
        spark_wrote(tmp_path / name, rows)
        found[name] = (obstacle(tmp_path / name) or "")[:36] or None
    assert found == {name: told and told[:36] for name, (_, told) in INSTANTS.items()}


def test_a_file_without_statistics_is_looked_into(tmp_path: Path) -> None:
    spark_wrote(tmp_path / "rows", nested(STAMP, NEAR), stats=False)
    assert obstacle(tmp_path / "rows")


def test_what_deltalake_wrote_itself_may_be_rewritten(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "rows", nested(STAMP, FAR))
    assert obstacle(tmp_path / "rows") is None


def test_a_merge_that_would_garble_an_instant_is_refused_without_spark(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key="id")
    spark_wrote(harness.path, nested(STAMP, FAR))
    with Scenario(harness) as story, pytest.raises(ConfigurationError, match="timestamps before 1678 or after 2262"):
        story.driver().sink.prepare(ArrowBatch(nested(STAMP, NEAR)), 1)
    assert pq.read_table(DeltaTable(harness.path).file_uris()[0]).num_rows == 1


def spark_partitioned(path: Path) -> None:
    """A partition of Spark's, whose log has the name as it is; deltalake puts percent signs into it."""
    write_deltalake(path, pa.table({"id": [1], "city": ["Zürich"]}), partition_by=["city"])
    as_spark_names_it(path)


def as_spark_names_it(path: Path) -> None:
    """Give the newest file the name that Spark gives it, in the table's folder and in its log."""
    log = max((path / "_delta_log").glob("*.json"))
    [add] = [one["add"] for one in map(json.loads, log.read_text().splitlines()) if "add" in one]
    named = "city=Zürich/" + add["path"].rpartition("/")[2]
    (path / "city=Zürich").mkdir()
    (path / unquote(add["path"])).rename(path / named)
    edit(log, lambda add: add | {"path": named})


def test_a_merge_that_would_leave_the_old_row_beside_the_new_one_is_refused_without_spark(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key="id")
    spark_partitioned(harness.path)
    with Scenario(harness) as story, pytest.raises(ConfigurationError, match="it would not be removed"):
        story.driver().sink.prepare(ArrowBatch(pa.table({"id": [1], "city": ["Zürich"]})), 1)


def test_rows_in_such_a_file_are_not_replaced_through_deltalake(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    spark_partitioned(harness.path)
    with Scenario(harness) as story:
        assert "it would not be removed" in story.driver().sink.cannot_replace((1, 1))


@pytest.mark.parametrize("kind", ["name", "timestamp"])
def test_such_files_are_not_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(log_committer, "COMPACT_EVERY", 2)
    by = "city" if kind == "name" else "at"
    rows = pa.table({"id": [1], "city": ["Zürich"], "at": pa.array([NEAR], STAMP)})
    harness = DeltaHarness(tmp_path, partition_by=by)
    with Scenario(harness) as story:
        driver = story.driver()
        for number in range(4):
            planned = driver.plan(rows=1)
            driver.commits(planned, driver.sink.prepare(ArrowBatch(rows), planned.epoch.number))
            if not number:
                DeltaTable(harness.path).alter.set_table_properties({"delta.autoOptimize.autoCompact": "true"})
                if kind == "name":
                    write_deltalake(harness.path, rows, mode="append")
                    as_spark_names_it(harness.path)
    assert len(DeltaTable(harness.path).file_uris()) == 4 + (kind == "name")


def test_a_partition_of_deltalake_s_own_may_be_rewritten(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "rows", pa.table({"id": [1], "city": ["Zürich"]}), partition_by=["city"])
    assert obstacle(tmp_path / "rows") is None
