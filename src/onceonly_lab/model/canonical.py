"""Forgets what the coordinator will not read again, so that worlds that differ in nothing else are one.

Which fields a phase reads is seen in ``coordinator`` and ``transitions``: ``head`` and ``readings`` are read while the
pipeline is opened, which COMPARE and RECOLLECT are part of as long as there is ``seen``, and are written anew by the
next opening; ``floor`` is read by PROBE and written before each further one; ``descent`` is read by COMPARE; of a
finished epoch ``coordinator.resume`` takes six fields along.
"""

from __future__ import annotations

from dataclasses import replace

from onceonly.state import Phase, State

_OPENING = frozenset({Phase.PROBE, Phase.RECALL, Phase.LOOK, Phase.INSTALL, Phase.READ})


def forgetful(state: State) -> State:
    """The same state, as far as its future goes."""
    if state.phase is Phase.DONE:
        return State(
            Phase.DONE,
            state.pipeline,
            state.sinks,
            state.owner,
            overlap=state.overlap,
            stages=state.stages,
            held=state.held,
            fence=state.fence,
            last=state.last,
            healed=state.healed,
        )
    state = replace(state, before=None) if state.before else state  # only an event tells of it
    floor = state.floor if state.phase is Phase.PROBE else 0
    if state.phase in _OPENING or state.seen is not None:
        return replace(state, floor=floor) if floor != state.floor else state
    return replace(state, floor=floor, head=None, readings=(), descent=None)
