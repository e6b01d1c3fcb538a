"""The operator of a run on real stores: obeys a command that a refusal has printed, by the code that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Sink
from onceonly_checkpoints.ledger import Ledger
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.model.ways import Way, carry_out, printed

if TYPE_CHECKING:
    from onceonly_lab.stores.world import World


class Operator:
    """What a mutant may break is :meth:`carry_out`.

    Args:
        world: where the commands act.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def obey(self, kind: str) -> None:
        """Obey the command that accepts something of this kind, as the newest refusal prints it.

        Raises:
            LookupError: it prints none.
        """
        found = [way for way in printed(self._world.told, knowing=True) if way.kind == kind]
        if not found:
            raise LookupError(f"no command that accepts {kind} is printed in {self._world.told!r}")
        sinks = [place.sink() for place in self._world.places.values()]
        with closing(self._world.ledger()) as ledger:
            ledger.open()
            try:
                for sink in sinks:
                    sink.open(PIPELINE)
                self.carry_out(found[0], sinks, ledger)
                self._world.scribe.fault(f"the operator obeys {found[0].words}")
            except OnceOnlyError as refused:
                self._world.scribe.fault(f"the operator obeys {found[0].words}, which is refused: {refused.code}")
            finally:
                for sink in sinks:
                    sink.close()

    def carry_out(self, way: Way, sinks: Sequence[Sink], ledger: Ledger) -> None:
        """Run the command.

        Raises:
            OnceOnlyError: it is refused.
        """
        carry_out(way, sinks, ledger)
