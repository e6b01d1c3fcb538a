"""The example for DuckDB is a sink as ours are: it passes the suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.sinks.duckdb_harness import DuckDBHarness, example
from tests.sinks.epochs import epoch_after
from tests.sinks.variants import asked_for_what_it_changes

from onceonly.errors import DestinationError
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_lab.conformance import SinkConformance, SinkHarness


@asked_for_what_it_changes
class TestDuckDB(SinkConformance):
    @pytest.fixture
    def harness(self) -> Iterator[SinkHarness]:
        harness = DuckDBHarness()
        yield harness
        harness.close()


def test_rows_are_written_with_the_types_that_they_have(tmp_path: Path) -> None:
    fence, path = Fence(1, "owner"), tmp_path / "shop.duckdb"
    sink = example.DuckDBSink(path, "orders")
    sink.open("orders")
    sink.install(fence)
    rows = pa.table({"id": [1, 2], "tags": [["new"], None], "paid": [True, False]})
    epoch = epoch_after(None, sink.id, 2, adoption=None)
    sink.commit(sink.prepare(ArrowBatch(rows), 1), Marker("orders", sink.id, fence, epoch))
    with example.opened(path) as db:
        found = db.sql("SELECT * FROM orders ORDER BY id")
        assert [str(kind) for kind in found.types] == ["BIGINT", "VARCHAR[]", "BOOLEAN", "BIGINT"]
        assert found.fetchall() == [(1, ["new"], True, 1), (2, None, False, 1)]


def test_a_file_that_another_process_keeps_open_is_refused_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = DuckDBHarness()
    monkeypatch.setattr(example, "PATIENCE", 0.1)
    with harness.locked(), pytest.raises(DestinationError, match="IOException"):
        harness.connect().open("orders")
    harness.close()
