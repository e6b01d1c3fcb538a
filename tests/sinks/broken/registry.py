"""How a broken sink is registered with the claims that must catch it."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from onceonly_checkpoints.epoch import Marker
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import StoreEntry

WINDOW = 0.02
"""Seconds between the two halves of what should be one step; long enough for whoever watches or races.

A store in this process cannot be killed, so its torn sinks are seen by luck or by this pause. Those of
:mod:`tests.sinks.broken.torn` are killed, and have none.
"""


@dataclass(frozen=True)
class Verdict:
    """The claims that must catch a broken sink; with ``others``, more may, because its fault shows everywhere."""

    claims: frozenset[str]
    others: bool


VERDICTS: dict[type[MemorySink], Verdict] = {}


def caught_by(*claims: str, and_others: bool = False) -> Callable[[type[MemorySink]], type[MemorySink]]:
    def register(broken: type[MemorySink]) -> type[MemorySink]:
        VERDICTS[broken] = Verdict(frozenset(claims), and_others)
        return broken

    return register


class ReplacesNothing(MemorySink):
    """Whose rows nobody knows, as it says: what is broken in it would else show wherever rows are to leave."""

    def cannot_replace(self, span: tuple[int, int]) -> str:
        return "whose a row is, is not known"


def marker_of(entry: StoreEntry) -> Marker | None:
    return Marker.from_json(json.loads(entry.marker)) if entry.marker else None
