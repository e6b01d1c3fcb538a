"""Faults between a driver and its servers: put in force before a request is sent, held while drivers come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from onceonly_lab.chaos.task import ARMED, OVER, wire_file
from onceonly_lab.proxy.strikes import Strike
from onceonly_lab.schedule import Action, Fault

Wire = Callable[[Action], Strike | None]
"""Puts a fault in force on one wire; ``None`` where that wire has no such fault."""


@dataclass
class Wires:
    """The faults in force on the wires of one run.

    A driver waits at the point before its request until they are in force, and at the one after it until they are over:
    so they meet this request, and no other.

    Attributes:
        folder: where drivers look for the answer.
        hit: is told of a fault that met its request.
    """

    folder: Path
    hit: Callable[[Fault], None]
    _fault: Fault | None = None
    _armed: list[Strike] = field(default_factory=list[Strike])
    _held: list[tuple[int, Strike]] = field(default_factory=list[tuple[int, Strike]])
    _passed: int = 0

    def arm(self, fault: Fault, at: int, wires: Iterable[Wire]) -> None:
        """Put a fault in force on every wire that can have it: the driver sends on one of them."""
        self._fault = fault
        made = (wire(fault.action) for wire in wires)
        self._armed = [strike for strike in made if strike is not None]
        wire_file(self.folder, fault.incarnation, at, ARMED).touch()

    def over(self, at: int) -> None:
        """The request was answered, or given up."""
        fault = self._fault
        self.gone()
        if fault is not None:
            wire_file(self.folder, fault.incarnation, at, OVER).touch()

    def gone(self) -> None:
        """The driver goes on, or is dead: what is held stays held, and everything else is over."""
        fault, self._fault = self._fault, None
        armed, self._armed = self._armed, []
        if fault is None:
            return
        if any(strike.hit for strike in armed):
            self.hit(fault)
        for strike in armed:
            if strike.hit and fault.action is Action.DELAY:
                self._held.append((self._passed + fault.steps, strike))
            else:
                strike.end()

    def passed(self) -> None:
        """A driver passed a point: what was held long enough goes on."""
        self._passed += 1
        self._let_go(self._passed)

    def close(self) -> None:
        """Everything that is held goes on."""
        self.gone()
        self._let_go(None)

    def _let_go(self, now: int | None) -> None:
        due = [one for one in self._held if now is None or one[0] <= now]
        for one in due:
            self._held.remove(one)
            one[1].end()
