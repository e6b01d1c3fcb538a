"""A Delta table on disk as the suite and our own tests see it: read and maintained without the sink."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from tests.sinks.flat_options import delta_sink
from tests.sinks.memory_harness import with_column
from tests.sinks.sqlite_harness import in_sqlite

from onceonly.protocol import Batch
from onceonly.protocol.row_rules import Condition
from onceonly_lab.conformance import NotTested, SinkHarness
from onceonly_lab.conformance.scenario import PIPELINE
from onceonly_lab.conformance.type_table import Case, Cell, Kind
from onceonly_sinks.delta import DeltaSink


class DeltaHarness(SinkHarness):
    # A process starts in a tenth of a second, and each version makes the table slower to read.
    moments = 8

    def __init__(self, folder: Path, *, sink: type[DeltaSink] = DeltaSink, **options: Any) -> None:
        self._folder, self.path = folder, folder / "rows"
        self._sink = sink
        self._options = options
        self.answers = frozenset(
            {"content_epoch", "total", "read_at", "select_at", "identity_now", "place", "examine", "pipelines"}
            | {"source_identity", "window_store"}
            | (set() if options else {"seen_ids_store"})
            | (set() if options.keys() & {"key", "merge"} else {"read_by_epoch"})
        )

    def connect(self) -> DeltaSink:
        return delta_sink(self.path, self._sink, **self._options)

    def rows(self) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(self.path)):
            return []
        rows: list[dict[str, Any]] = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return rows

    def start_method(self) -> str:
        return "forkserver"  # deltalake's threads do not live through a fork

    def another(self) -> SinkHarness:
        return type(self)(self._folder / uuid.uuid4().hex, sink=self._sink, **self._options)

    def values(self) -> list[Any]:
        if set(self._options) - {"driver_limit"}:
            raise NotTested("The table wants other columns than the one of the type table.")
        if not DeltaTable.is_deltatable(str(self.path)):
            return []
        rows = DeltaTable(self.path).to_pyarrow_table()
        # A refused type may leave the table that opening made, whose columns come with the first rows.
        return rows.column("value").to_pylist() if "value" in rows.column_names else []

    def cell(self, kind: Kind, case: Case) -> Cell:
        return kind.cell("delta", case)

    def forbid(self) -> str:
        DeltaTable(self.path).alter.add_constraint({"allowed": "note <> 'forbidden'"})
        return "forbidden"

    def forbid_by_rule(self) -> str:
        if "merge" in self._options:
            raise NotTested("A merge by hand decides what becomes of a row, so there is no rule.")
        return self.forbid()

    def evaluate(self, conditions: Sequence[Condition], rows: pa.Table) -> list[list[bool] | None]:
        return in_sqlite(conditions, rows)

    def replace(self) -> bool:
        narrow = pa.schema([("id", pa.int64()), ("step", pa.int64()), ("note", pa.string())])
        DeltaTable.create(self.path, narrow, mode="overwrite")
        return True

    def set_back(self, epoch: int) -> int:
        with closing(self.connect()) as sink:
            sink.open(PIPELINE)
            [version] = [one.at("version") for marker, one in sink.history() if marker.epoch.number == epoch]
        assert isinstance(version, int)
        DeltaTable(self.path).restore(version)
        return epoch

    def intrude(self, table: pa.Table) -> None:
        write_deltalake(self.path, table, mode="append", schema_mode="merge")

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


class DeletingDeltaHarness(DeltaHarness):
    """Every row says that it stays."""

    def batch(self, table: pa.Table, **how: bool) -> Batch:
        return super().batch(with_column(table, "gone"), **how)

    def forbid_by_rule(self) -> str:
        raise NotTested("A row that may delete another one has a rule for its key alone.")


class NarrowDeltaHarness(DeltaHarness):
    """The table lacks a column of the rows, and any epoch may be the first to add it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **{"schema": "add_columns", **options})
        DeltaTable.create(self.path, pa.schema([("id", pa.int64()), ("step", pa.int64())]))
