"""The Delta sink passes the conformance suite: appending and merging, through the driver and through files of executors."""

import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from onceonly_sinks.conformance import SinkConformance, SinkHarness
from onceonly_sinks.delta import DeltaSink


class DeltaHarness(SinkHarness):
    def __init__(self, folder: Path, **options: object) -> None:
        self.path = folder / "rows"
        self._options = options

    def connect(self) -> DeltaSink:
        return DeltaSink(self.path, **self._options)  # type: ignore[arg-type]

    def rows(self) -> list[dict[str, object]]:
        if not DeltaTable.is_deltatable(str(self.path)):
            return []
        rows: list[dict[str, object]] = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return rows

    def maintain(self) -> None:
        table = DeltaTable(self.path)
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        table.create_checkpoint()


class TestDeltaAppendThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path)


class TestDeltaAppendThroughExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, driver_limit=0)


class TestDeltaMerge(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, key="id", sequence="step")
