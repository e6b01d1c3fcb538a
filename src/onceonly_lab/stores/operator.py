"""Operator of a run on real stores.

It obeys a command that a refusal has printed, by the code that the command runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Sink
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import AdoptionKind
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.model.ways import Way, carry_out, printed
from onceonly_lab.play.recorder import HistoryRecorder


class Desk(Protocol):
    """What commands act on; :class:`onceonly_lab.stores.world.Stores`."""

    printed: str
    recorder: HistoryRecorder

    def handles(self) -> list[Sink]:
        """New handles of all sinks."""
        ...

    def ledger(self) -> Ledger:
        """The ledger, of a connection of its own."""
        ...


class Operator:
    """What a mutant may break is :meth:`carry_out`.

    Args:
        world: where the commands act.
    """

    def __init__(self, world: Desk) -> None:
        self._world = world

    def obey(self, kind: AdoptionKind) -> None:
        """Obey the command that accepts something of this kind, as the newest refusal prints it.

        Raises:
            LookupError: it prints none.
        """
        remedies = [remedy for remedy in printed(self._world.printed, knowing=True) if remedy.kind is kind]
        if not remedies:
            raise LookupError(f"no command that accepts {kind} is printed in {self._world.printed!r}")
        self._obey(remedies[0])

    def resolve(self) -> None:
        """Settle what a dead driver left open, as ``onceonly status --in-doubt`` says."""
        self._obey(Way("recover resolve"))

    def _obey(self, remedy: Way) -> None:
        sinks = self._world.handles()
        with closing(self._world.ledger()) as ledger:
            ledger.open()
            try:
                for sink in sinks:
                    sink.open(PIPELINE)
                self.carry_out(remedy, sinks, ledger)
                self._world.recorder.fault(f"the operator obeys {remedy.words}")
            except OnceOnlyError as refused:
                self._world.recorder.fault(f"the operator obeys {remedy.words}, which is refused: {refused.code}")
            finally:
                for sink in sinks:
                    sink.close()

    def carry_out(self, remedy: Way, sinks: Sequence[Sink], ledger: Ledger) -> None:
        """Run the command.

        Raises:
            OnceOnlyError: it is refused.
        """
        carry_out(remedy, sinks, ledger)
