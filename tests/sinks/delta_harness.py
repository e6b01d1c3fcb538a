"""A Delta table on disk as the suite and our own tests see it: read and maintained without the sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from onceonly_sinks.conformance import SinkHarness
from onceonly_sinks.delta import DeltaSink


class DeltaHarness(SinkHarness):
    def __init__(self, folder: Path, **options: Any) -> None:
        self.path = folder / "rows"
        self._options = options

    def connect(self) -> DeltaSink:
        return DeltaSink(self.path, **self._options)

    def rows(self) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(self.path)):
            return []
        rows: list[dict[str, Any]] = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return rows

    def maintain(self) -> None:
        table = DeltaTable(self.path)
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        table.create_checkpoint()

    def forget_log_before_checkpoint(self) -> None:
        """What log retention does after its 30 days: only the checkpoint and what follows it stay."""
        log = self.path / "_delta_log"
        newest = max(int(path.name.split(".")[0]) for path in log.glob("*.checkpoint.parquet"))
        for path in log.glob("*.json"):
            if int(path.stem) < newest:
                path.unlink()
