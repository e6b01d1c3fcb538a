"""The production runner, with each command written down before it is carried out, and its answer after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from onceonly import commands as c
from onceonly.protocol import Sink
from onceonly.runner import Runner
from onceonly.staging import Staging
from onceonly.state import State
from onceonly_checkpoints.ledger import Ledger
from onceonly_lab.stores.places import Place
from onceonly_lab.stores.scribe import Scribe


class Crash(BaseException):
    """Ends a driver where it stands: nothing on its way out takes it for a lost answer."""


class Nemesis(Protocol):
    """What may go wrong with a request on its way."""

    def sending(self, number: int, place: Place, command: c.Install | c.Commit) -> None:
        """A request is about to be sent."""
        ...

    def sent(self, number: int) -> None:
        """It was answered, or the driver gave up."""
        ...


@dataclass(frozen=True, slots=True)
class Scene:
    """What a driver acts in.

    Attributes:
        number: of the driver.
        places: where the sinks write to, by id.
        scribe: takes the entries.
        nemesis: breaks what is sent.
    """

    number: int
    places: Mapping[str, Place]
    scribe: Scribe
    nemesis: Nemesis


class ToldRunner(Runner):
    """A runner of one driver.

    Args:
        sinks: in commit order.
        ledger: its index.
        staging: where epochs of several sinks are staged.
        scene: the rest.
    """

    def __init__(self, sinks: Sequence[Sink], ledger: Ledger, staging: Staging, scene: Scene) -> None:
        super().__init__(sinks, ledger, staging=staging)
        self._scene = scene

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        announced = self._scene.scribe.announce(self._scene.number, state, command)
        try:
            outcome = self._send(state, command)
        except Crash:
            self._vanish()
            raise
        except Exception as error:
            self._scene.scribe.failed(announced, error)
            raise
        self._scene.scribe.answer(announced, outcome)
        return outcome

    def _send(self, state: State, command: c.Command) -> c.Outcome:
        if not isinstance(command, c.Install | c.Commit):
            return super()._carry_out(state, command)
        sink = command.sink if isinstance(command, c.Install) else command.marker.sink
        self._scene.nemesis.sending(self._scene.number, self._scene.places[sink], command)
        try:
            return super()._carry_out(state, command)
        finally:
            self._scene.nemesis.sent(self._scene.number)

    def _vanish(self) -> None:
        """The process is gone: what it prepared stays as it lies."""
        prepared, self._prepared = self._prepared, {}
        self._borrowed = None
        for sink, one in prepared.items():
            self._scene.places[sink].vanish(one)
