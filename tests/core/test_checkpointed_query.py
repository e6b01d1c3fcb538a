"""A query as its checkpoint's files show it, to a process without a session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceonly.errors import OnceOnlyError
from onceonly.spark.datasource.partition_files import PartitionFile, Parts
from onceonly.spark.datasource.query_files import Query
from onceonly_checkpoints.digests import Digest

CONF = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 7, "conf": {}})


def part(
    batch_id: int = 0, path: str = "", size: int = 0, digest: Digest | None = None, run: str = "run"
) -> PartitionFile:
    return PartitionFile("query", run, batch_id, path, size, digest or Digest(0))


def query(checkpoint: Path, *offsets: str) -> Query:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / "0").write_text("\n".join(["v1", CONF, *offsets]))
    return Query.of(str(checkpoint), "orders", [part()], 0)


def test_sources_are_told_by_their_own_offsets(tmp_path: Path) -> None:
    delta = '{"sourceVersion":1,"reservoirId":"r","reservoirVersion":1,"index":0,"isStartingVersion":false}'
    plan = query(tmp_path, '{"logOffset":3}', '{"topic":{"0":5}}', delta, "17").plan()
    assert [source.reads_files for source in plan.sources] == [True, False, False, False]
    assert [source.brokers is not None for source in plan.sources] == [False, True, False, False]
    assert [reason.partition(":")[0] for reason in plan.unseen][1:] == ["a topic is deleted and created again"]
    assert not plan.stateful


def test_a_source_without_an_offset_is_told_by_the_log_that_it_keeps(tmp_path: Path) -> None:
    (tmp_path / "sources" / "1").mkdir(parents=True)
    (tmp_path / "sources" / "1" / "0").write_text('v1\n{"path":"file:///in/a","timestamp":1,"batchId":0}')
    plan = query(tmp_path, "-", "-").plan()
    assert [source.reads_files for source in plan.sources] == [False, True]
    assert len(plan.unseen) == 1


def test_state_shows_in_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    assert query(tmp_path, '{"logOffset":0}').plan().stateful


def test_messages_of_two_batches_or_runs_are_no_batch(tmp_path: Path) -> None:
    for parts in ([], [part(0), part(1)], [part(run="a"), part(run="b")]):
        with pytest.raises(RuntimeError, match="batch 0"):
            Query.of(str(tmp_path), "orders", parts, 0)


def test_a_checkpoint_that_cannot_be_read_here_is_refused_by_name() -> None:
    with pytest.raises(OnceOnlyError, match="nowhere://bucket/ck cannot be read here") as caught:
        Query.of("nowhere://bucket/ck", "orders", [part()], 0)
    assert caught.value.code == "E150"


def test_parts_are_the_rows_and_the_digest_of_all_tasks(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("id", pa.int64())])
    parts = []
    for at in range(2):
        path = tmp_path / f"{at}-{at}.parquet"
        pq.write_table(pa.table({"id": [at, at + 10]}, schema=schema), path)
        parts.append(part(0, str(path), path.stat().st_size, Digest(2, 3, 4)))
    batch = Parts([*parts, part()], schema)
    assert batch.digest() == Digest(4, 6, 8)
    assert batch.estimate.rows == 4
    assert [row["id"] for rows in batch.arrow() for row in rows.to_pylist()] == [0, 10, 1, 11]
    target = tmp_path / "epoch"
    batch.write(str(target))
    assert sorted(path.name for path in target.iterdir()) == ["0-0.parquet", "1-1.parquet"]
    assert (target / "0-0.parquet").stat().st_nlink == 2, "not copied"


def test_a_file_that_is_gone_or_another_one_is_not_taken(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "0-0.parquet"
    path.write_bytes(b"half")
    batch = Parts([part(0, str(path), 99, Digest(1))], pa.schema([("id", pa.int64())]))
    with pytest.raises(FileNotFoundError, match="epoch"):
        batch.write(str(tmp_path / "epoch"))


def test_what_needs_a_session_is_refused_by_name(tmp_path: Path) -> None:
    import pyarrow as pa

    with pytest.raises(OnceOnlyError) as caught:
        _ = Parts([part()], pa.schema([("id", pa.int64())])).dataframe
    assert caught.value.code == "E150"
