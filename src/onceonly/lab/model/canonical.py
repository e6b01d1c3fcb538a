"""Forgets what the coordinator will not read again, so that worlds that differ in nothing else are one.

Which fields a phase reads is seen in ``coordinator`` and ``transitions``: ``head`` and ``readings`` are read while the
pipeline is opened and are written anew by the next opening; ``floor`` is read by PROBE and written before each further
one; ``descent`` is read by COMPARE; of a finished epoch ``coordinator.resume`` takes six fields along.
"""

from __future__ import annotations

from dataclasses import replace

from onceonly.state import Phase, State

_OPENING = frozenset({Phase.PROBE, Phase.RECALL, Phase.INSTALL, Phase.READ})


def forgetful(state: State) -> State:
    """The same state, as far as its future goes."""
    if state.phase is Phase.DONE:
        return State(
            Phase.DONE,
            state.pipeline,
            state.sinks,
            state.owner,
            fence=state.fence,
            last=state.last,
            lineage=state.lineage,
            healed=state.healed,
        )
    floor = state.floor if state.phase is Phase.PROBE else 0
    if state.phase in _OPENING:
        return replace(state, floor=floor) if floor != state.floor else state
    return replace(state, floor=floor, head=None, readings=(), descent=None)
