"""A real query under a name that a healthy driver has: refused, and the healthy driver does not notice it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.core.stories import cut, offer

from onceonly import Storage, exactly_once
from onceonly.machine import coordinator
from onceonly.machine.state import Job, State
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.ledger.sql import SqlLedger

pytestmark = pytest.mark.spark


class Healthy:
    """A driver of pipeline ``orders`` with a sink of its own, as another process has it."""

    def __init__(self, sink, ledger):
        self.sink = sink
        self._runner = Runner([sink], ledger)
        self._state: State | None = None

    def writes(self, number: int) -> None:
        offered = offer(cut((number - 1) * 10 if number > 1 else None, number * 10), number - 1)
        started = coordinator.start(Job("orders", (self.sink.id,), "f00d ann@production:1 app-1", offered))
        state = coordinator.resume(self._state, offered) if self._state else started
        rows = pa.table({"id": pa.array(range((number - 1) * 10, number * 10), pa.int64())})
        self._state = self._runner.run(state, ArrowBatch(rows))


@pytest.mark.parametrize("own_ledger", [False, True], ids=["the same ledger", "a ledger of its own"])
def test_a_copy_that_is_refused_does_not_stop_the_healthy_driver(stream, either, tmp_path, own_ledger):
    ledger = SqlLedger(str(tmp_path / "production.db"))
    driver = Healthy(either.sink(), ledger)
    driver.writes(1)
    driver.writes(2)
    copy = SqlLedger(str(tmp_path / "notebook.db")) if own_ledger else ledger
    said = stream.receive(range(100, 105)).fail(exactly_once(either.sink(), storage=Storage(ledger=copy)))
    assert "[ONCE-E212]" in said
    assert driver.sink.fence().who == "ann@production:1 app-1"
    driver.writes(3)
    assert either.ids() == list(range(30))
