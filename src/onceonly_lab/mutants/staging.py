"""M12, M13, M14, M19, M28: bytes of an epoch that nobody keeps, that are believed unread, or dropped too early."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from onceonly import commands as c
from onceonly import coordinator, faults
from onceonly.batch import ArrowBatch
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly.runner import Runner
from onceonly.staging import Staging
from onceonly.state import State
from onceonly_checkpoints.manifest import Reference
from onceonly_checkpoints.sqlledger import SqlLedger
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.stores.told import ToldRunner
from onceonly_lab.stores.world import World
from onceonly_sinks.memory import MemorySink


class ComputesAgain(ToldRunner):
    """M12: nothing is staged; what a sink lacks is computed again from the batch."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if not isinstance(command, c.Fetch):
            return super()._carry_out(state, command)
        assert state.epoch is not None
        self._staged = None
        faults.fire(Point.FETCH_AFTER)
        return c.Staged(command.manifest, state.epoch.digest.rows, state.epoch.digest)


class RecordsTooEarly(ToldRunner):
    """M13: an epoch is recorded, and the engine told, before the last sink has committed it."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        last = isinstance(command, c.Commit) and command.marker.sink == state.targets[-1]
        if last and state.epoch is not None and not state.healing:
            super()._carry_out(state, c.Record(state.epoch, state.receipts))
        return super()._carry_out(state, command)


class BelievesTheStage(ToldRunner):
    """M14: staged files were not flushed, and nobody compares sizes or digests before they are used again."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if isinstance(command, c.Fetch):
            return self._whatever_is_there(state, command)
        outcome = super()._carry_out(state, command)
        if not isinstance(command, c.Prepare) or not state.healing or state.epoch is None:
            return outcome
        believed: Any = self._prepared[command.sink]
        believed.rows = state.epoch.digest.rows
        return c.Prepared(state.epoch.digest.rows, state.epoch.digest)

    def _whatever_is_there(self, state: State, command: c.Fetch) -> c.Outcome:
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert state.epoch is not None
        folder = Path(Reference.parse(command.manifest).directory)
        tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
        self._staged = ArrowBatch(pa.concat_tables(tables))
        faults.fire(Point.FETCH_AFTER)
        return c.Staged(command.manifest, state.epoch.digest.rows, state.epoch.digest)


class SweepsTooEarly(ToldRunner):
    """M19: an epoch's bytes are removed once the first sink has it."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if isinstance(command, c.Commit) and command.marker.sink == state.targets[0] and self._staging:
            assert state.epoch is not None
            assert state.epoch.manifest is not None
            self._staging.drop(state.epoch.manifest)
        return super()._carry_out(state, command)


def tear(world: World) -> None:
    """The power fails: a staged file whose name was not flushed into its directory is gone."""
    world.staged()[-1].unlink()
    world.scribe.fault("a staged file is torn off")


def by_name(folder: str, _: Sequence[Sink]) -> Staging:
    """M28: a directory belongs to whoever has the pipeline's name, wherever his sinks lie."""
    return Staging(folder, PIPELINE, ())


def another_environment(world: World) -> None:
    """A pipeline of the same name, with a sink and a ledger of its own, is opened on the same staging directory."""
    sink = MemorySink("another environment")
    with closing(SqlLedger(str(world.folder / "another.db"))) as ledger:
        for opening in range(_OPENINGS):
            state = coordinator.start(PIPELINE, (sink.id,), f"another-{opening}", None)
            Runner([sink], ledger, staging=world.staging([sink])).run(state)
    world.scribe.fault("another environment opens a pipeline of the same name")


_OPENINGS = 3
"""Each one counts a generation, so that the last one is above that of whoever staged the epoch in doubt."""
