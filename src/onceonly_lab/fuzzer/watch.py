"""Who stops whom in a scene: drivers that meet another's fence and end there, and who is refused behind his own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onceonly_lab.model.parts import Held, Kind, SimulatedLedger, Target

OVERTAKEN = frozenset({"E401", "E403"})
"""Codes with which a driver stops at another's fence."""


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to know for a driver that opens, before it looks at the sinks.

    Attributes:
        held: what each sink holds, and what has happened to it.
        recorded: chains in the ledger.
        hidden: whether only a fence can tell what there is: Kafka may hide from a look what it has confirmed.
    """

    held: tuple[tuple[tuple[Held, ...], str], ...]
    recorded: frozenset[str]
    hidden: bool

    @classmethod
    def of(cls, targets: Mapping[str, Target], ledger: SimulatedLedger) -> Known:
        """As it is now."""
        held = tuple((target.held, target.harm) for target in targets.values())
        told = {one.sink: one.epoch for one in ledger.head.receipts} if ledger.head else {}
        lacking = (name for name, target in targets.items() if _newest(target) < told.get(name, 0))
        hidden = any(targets[name].kind is Kind.KAFKA for name in lacking)
        return cls(held, frozenset(record.epoch.chain for record in ledger.records), hidden)


def _newest(target: Target) -> int:
    return target.newest.epoch.number if target.newest else 0


@dataclass
class Watched:
    """What a driver met on its way.

    Attributes:
        opens: whether it has asked for fences, and has not read the ledger's head since. A driver that is refused reads
            it, too, for its message.
        known: what there was to know at its newest opening; ``None`` where the ledger told of no epoch.
        met: the sink at which it found another's fence last, with the owner of it.
    """

    opens: bool = False
    known: Known | None = None
    met: tuple[str, str] | None = None

    def recalls(self, targets: Mapping[str, Target], ledger: SimulatedLedger) -> None:
        """It reads the ledger's head: of what is there from now on it could know."""
        if self.opens:
            self.known = Known.of(targets, ledger) if ledger.head else None
        self.opens = False


def marked(
    watched: Watched, owner: str, code: str, targets: Mapping[str, Target], ledger: SimulatedLedger
) -> dict[str, Target]:
    """The sinks as they tell of it that a driver stops.

    Args:
        watched: what it met.
        owner: its token.
        code: why it stops.
        targets: sinks by name.
        ledger: the index.
    """
    found = dict(targets)
    if code in OVERTAKEN and watched.met is not None:
        sink, by = watched.met
        found[sink] = replace(found[sink], stopped_by=by)
    if code.startswith("E2") and _could_have_known(watched, targets, ledger):
        for name, target in targets.items():
            if target.fence is not None and target.fence.owner == owner:
                found[name] = replace(found[name], barren=owner)
    return found


def _could_have_known(watched: Watched, targets: Mapping[str, Target], ledger: SimulatedLedger) -> bool:
    """Whether all that counts at the end was there before the look: nobody has written since, nor lost anything."""
    known, now = watched.known, Known.of(targets, ledger)
    return known is not None and not known.hidden and now.held == known.held and known.recorded <= now.recorded
