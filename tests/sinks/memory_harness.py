"""A fresh memory store as a target of the conformance suite."""

from typing import Any

from onceonly_sinks.conformance import SinkHarness
from onceonly_sinks.memory import MemorySink, MemoryStore


class MemoryHarness(SinkHarness):
    def __init__(self, sink: type[MemorySink] = MemorySink, key: tuple[str, ...] = ()) -> None:
        self.store = MemoryStore()
        self._sink = sink
        self._key = key

    def connect(self) -> MemorySink:
        return self._sink(store=self.store, key=self._key)

    def rows(self) -> list[dict[str, Any]]:
        return self.store.table().to_pylist()

    def maintain(self) -> None:
        self.store.clean_up()
        forget = getattr(self._sink, "after_maintenance", None)
        if forget:
            kept = (forget(entry) if entry.writer else entry for entry in self.store._log)
            self.store._log = [entry for entry in kept if entry]
