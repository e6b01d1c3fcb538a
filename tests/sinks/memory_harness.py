"""A fresh memory store as a target of the conformance suite."""

import itertools
from typing import Any

import pyarrow as pa

from onceonly.protocol import Batch
from onceonly_lab.conformance import NotTested, SinkHarness
from onceonly_lab.conformance.type_table import Case, Cell, Kind
from onceonly_sinks.memory import MemorySink, MemoryStore

_numbers = itertools.count(1)


def with_column(table: pa.Table, name: str | None) -> pa.Table:
    """The rows with a column more that is false throughout, if it has a name and they lack it."""
    if not name or name in table.column_names:
        return table
    return table.append_column(name, pa.array([False] * table.num_rows, pa.bool_()))


class MemoryHarness(SinkHarness):
    def __init__(
        self,
        sink: type[MemorySink] = MemorySink,
        key: tuple[str, ...] = (),
        beside: MemoryStore | None = None,
        **options: Any,
    ) -> None:
        self.store = MemoryStore(f"beside_{next(_numbers)}" if beside else "rows", beside)
        self._sink = sink
        self._options = {"key": key, **options}
        rows = {"read_current", "read_changes"} if key else {"read_by_epoch"}
        self.answers = frozenset(
            rows | {"content_epoch", "total", "read_at", "identity_now", "window_store", "place", "pipelines"}
        )

    def connect(self) -> MemorySink:
        return self._sink(store=self.store, **self._options)

    def batch(self, table: pa.Table, **how: bool) -> Batch:
        return super().batch(with_column(table, self._options.get("delete_flag")), **how)

    def rows(self) -> list[dict[str, Any]]:
        return self.store.table().to_pylist()

    def start_method(self) -> str:
        raise NotTested("The store lives in this process and ends with it.")

    def another(self) -> SinkHarness:
        return type(self)(self._sink, beside=self.store, **self._options)

    def values(self) -> list[Any]:
        if self._options.get("key"):
            raise NotTested("An upsert wants its key among the columns.")
        return [row["value"] for row in self.store.table().to_pylist()]

    def cell(self, kind: Kind, case: Case) -> Cell:
        return kind.cell("memory", case)

    def set_back(self, epoch: int) -> int:
        self.store.restore_rows(epoch)
        return epoch

    def intrude(self, table: pa.Table) -> None:
        self.store.append_foreign(table)

    def maintain(self) -> None:
        self.store.clean_up()
        forget = getattr(self._sink, "after_maintenance", None)
        if forget:
            kept = (forget(entry) if entry.writer else entry for entry in self.store._log)
            self.store._log = [entry for entry in kept if entry]
