"""Production runner that records each command and its answer.

The command is recorded before it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from onceonly.errors import OnceOnlyError
from onceonly.machine import commands as c
from onceonly.machine.state import State
from onceonly.protocol import Sink
from onceonly.protocol.row_times import TimedEpoch
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.epoch import Epoch, Marker
from onceonly_checkpoints.ledger import Ledger
from onceonly_lab.history import LEDGER, Kind, Op, Part, Range
from onceonly_lab.model.parts import record_at
from onceonly_lab.play.recorder import HistoryRecorder, kind_of
from onceonly_lab.play.world import Killed, Process
from onceonly_lab.stores.places import Place
from onceonly_lab.stores.source import Source


class Wires(Protocol):
    """What a runner tells of its requests; :class:`onceonly_lab.stores.world.Stores`."""

    recorder: HistoryRecorder
    source: Source

    @property
    def places(self) -> Mapping[str, Place]:
        """What each sink writes to, by its id."""
        ...

    def wire(self, sink: str) -> Place:
        """The place whose wire a sink's requests go over."""
        ...

    def shares(self, number: int, span: Range) -> tuple[Part, ...] | None:
        """What the call of a driver makes of a range of the source; ``None`` where all sinks get all rows."""
        ...

    def sending(self, process: Process, command: c.Install | c.Commit) -> None:
        """A request is about to be sent."""
        ...

    def sent(self) -> None:
        """It was answered, or its answer was lost."""
        ...


class Asked(NamedTuple):
    """What a command asks for, as far as anybody outside can see it.

    Attributes:
        op: what.
        sink: of whom.
        epoch: which; its number while it has no content.
        generation: under which fence.
    """

    op: Op
    sink: str | None = None
    epoch: Epoch | int | None = None
    generation: int | None = None


class RecordingRunner(Runner):
    """A runner of one driver.

    Args:
        sinks: in commit order.
        ledger: its index.
        staging: where epochs of several sinks are staged.
        process: the driver's.
        world: what it acts in.
    """

    def __init__(
        self, sinks: Sequence[Sink], ledger: Ledger, staging: StagedEpochs, process: Process, world: Wires
    ) -> None:
        super().__init__(sinks, ledger, staging=staging, says=lambda epoch: said_of(world.source, epoch))
        self._process = process
        self._world = world

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        number, recorder = self._process.number, self._world.recorder
        # State of windows is read beside its table's rows and is no sink of the history.
        history_sinks = {None, LEDGER, *self._world.places}
        requests = tuple(candidate for candidate in _asked(state, command) if candidate.sink in history_sinks)
        for request in requests:
            recorder.asks(number, *request)
        try:
            outcome = self._send(state, command)
        except Killed:
            self._vanish()
            raise
        except Exception as error:
            for request in reversed(requests):  # a refusal by a commit is certain, one by a look-up is none
                certain = isinstance(error, OnceOnlyError) and request.op is not Op.LOOK_UP
                recorder.answers(number, request.op, Kind.FAIL if certain else Kind.INFO, request.sink, request.epoch)
            raise
        if isinstance(command, c.Stage) and isinstance(outcome, c.Staged):
            span = self._world.source.taken(state.offered.lineage.query_id, command.slice)
            shares, digest = self._world.shares(number, span), outcome.digest
            recorder.staged(number, command.number, digest, outcome.manifest, span=span, outputs=shares)
        else:
            for request in reversed(requests):
                recorder.answers(number, request.op, kind_of(request.op, outcome), request.sink, request.epoch)
        return outcome

    def _send(self, state: State, command: c.Command) -> c.Outcome:
        if not isinstance(command, c.Install | c.Commit):
            return super()._carry_out(state, command)
        self._world.sending(self._process, command)
        try:
            return super()._carry_out(state, command)
        finally:
            self._world.sent()

    def _vanish(self) -> None:
        """The process is gone: what it prepared stays as it lies."""
        prepared, self._prepared = self._prepared, {}
        self._borrowed = []
        for sink, preparation in prepared.items():
            self._world.wire(sink).vanish(preparation)


def said_of(source: Source, epoch: TimedEpoch) -> int | None:
    """All records up to the end of an epoch's slice are there; nothing is said where offsets are no positions."""
    return None if source.files else record_at(epoch.slice.end)


def _asked(state: State, command: c.Command) -> tuple[Asked, ...]:
    """What is asked; of several sinks where one transaction brings an epoch to all of them."""
    match command:
        case c.Commit(marker, beside):
            return tuple(_of_epoch(Op.COMMIT, sink_marker) for sink_marker in (marker, *beside))
        case c.LookUp(marker, beside):
            return tuple(_of_epoch(Op.LOOK_UP, sink_marker) for sink_marker in (marker, *beside))
        case c.Record(epoch, fence, skipped=False):
            return (Asked(Op.RECORD, LEDGER, epoch, fence.generation),)
        case c.Stage(number):
            return (Asked(Op.STAGE, epoch=number),)
        case c.Install(sink, fence):
            return (Asked(Op.INSTALL, sink, generation=fence.generation),)
        case _:
            return ()


def _of_epoch(op: Op, marker: Marker) -> Asked:
    return Asked(op, marker.sink, marker.epoch, marker.fence.generation)
