"""How an opening ended, as events of the ledger: it failed with a code, or it ended. Pure.

One that ended without either was killed, or still runs; the next opening says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from onceonly.errors import OnceOnlyError
from onceonly.state import Phase, State
from onceonly_checkpoints.ledger import Event, EventKind

ENDS = (EventKind.FAILED, EventKind.ENDED)
"""Kinds with which an opening says that it is over."""

WINDOW = 100
"""How many of the newest events are searched for the end of the opening before."""

_SENT = (Phase.COMMIT, Phase.LOOK_UP)


def failure(pipeline: str, error: BaseException, state: State | None) -> Event:
    """The event of an error that left the callback.

    Args:
        pipeline: its name.
        error: what was raised.
        state: where the machine stood; ``None``: it was not asked.
    """
    number = state.number if state else 0
    return Event(pipeline, EventKind.FAILED, _reason(error, state), number, _generation(state))


def end(state: State) -> Event:
    """The event of an opening that is over, with every epoch that it began in every sink."""
    number = state.last.number if state.last else 0
    return Event(state.pipeline, EventKind.ENDED, f"ended after epoch {number}", number, _generation(state))


def ended(events: Iterable[Event]) -> frozenset[int]:
    """Generations of openings that said that they are over."""
    return frozenset(event.generation for event in events if event.kind in ENDS and event.generation)


def _reason(error: BaseException, state: State | None) -> str:
    if isinstance(error, OnceOnlyError):
        return f"{error.code}: {error.what}"
    name = type(error).__name__
    if state is not None and state.phase in _SENT:
        return f"E301: {name} while epoch {state.number} was being committed; whether it landed is not known"
    return f"{name} in phase {state.phase.value}" if state else name


def _generation(state: State | None) -> int:
    """The generation whose fence stood; 0 for an opening that had only proposed one, which another may take."""
    stood = state is not None and state.fence is not None and bool(state.readings or state.last)
    return state.fence.generation if stood and state is not None and state.fence is not None else 0
