"""What a sink can say of an application that wrote to its target before onceonly did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from onceonly.protocol import Disturbance


@dataclass(frozen=True, slots=True)
class Transaction:
    """What another application last wrote, by the target's own record of it.

    Attributes:
        version: the newest version that it wrote under, in its own count; ``None`` if it never wrote.
        since: what others did to the target after that write and may have taken rows away, oldest first.
    """

    version: int | None
    since: tuple[Disturbance, ...]


@runtime_checkable
class KeepsTransactions(Protocol):
    """A sink whose target records application transactions, as Delta does. Optional; asked by ``queries adopt``."""

    def transaction(self, app: str) -> Transaction:
        """What an application last wrote. After ``open``; needs no fence and writes nothing."""
        ...
