"""Refuse markers that are newer than their target's rows.

If a table or topic was dropped and created again, the old markers report every epoch as written, so none could be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.acceptance import Stop, applicable
from onceonly.machine.facts import Reading
from onceonly.protocol import Identified, Settable, Sink, Witness
from onceonly.runtime.remedies import CommandContext
from onceonly.runtime.unreadable_markers import naming
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.model import AdoptionKind


def stale_sinks(sinks: Sequence[Sink], stands: Mapping[str, int], recorded: Mapping[str, Receipt]) -> dict[str, str]:
    """Return the present target in words, by id of each stale sink that can be detected without a fence.

    ``stands`` is the newest epoch of each sink's markers, and ``recorded`` the ledger's newest receipt of each.
    """
    found: dict[str, str] = {}
    for sink in (one for one in sinks if stands[one.id]):
        with naming(sink):
            now = [_in_place_of(sink, one) for one in _known(sink, stands[sink.id], recorded.get(sink.id))]
        if now and all(now):
            found[sink.id] = now[0]
    return found


def _known(sink: Sink, stands: int, recorded: Receipt | None) -> list[Receipt]:
    """Receipts of targets that the sink has had. Empty if its markers do not identify their target."""
    told = [receipt for _, receipt in sink.history(stands - 1)]
    if not told or not all(one.identity for one in told):
        return []
    return [*told, recorded] if recorded else told


def _in_place_of(sink: Sink, known: Receipt) -> str:
    """Target that replaced the one of a receipt. Empty if that still exists, or only a fence would show it."""
    if isinstance(sink, Identified):
        identity = sink.identity_beside(known.identity)
        return "" if identity == known.identity else identity or "nothing there"
    events = sink.disturbances(known) if isinstance(sink, Witness) else ()
    return next((event.detail for event in events if event.kind == "recreated"), "")


def demand(sinks: Sequence[Sink], where: CommandContext, readings: Sequence[Reading]) -> None:
    """Refuse stale markers under the fence, which also reveals sinks that cannot be checked without one.

    Raises:
        ConfigurationError: E110, with the command that gives the rows up.
    """
    named = {sink.id: sink for sink in sinks}
    for reading in (one for one in readings if one.sink in named and one.position.epoch):
        sink, stands, now = named[reading.sink], reading.position.epoch, reading.position.identity
        with naming(sink):
            known = _known(sink, stands, reading.receipt)
        if known and all(one.identity != now for one in known):
            raise refused(sink, where, stands, now)


def refused(sink: Sink, where: CommandContext, stands: int, now: str) -> OnceOnlyError:
    """Error of a sink whose markers belong to a target that no longer exists.

    ``stands`` is the newest epoch of its markers. ``now`` is the present target, in words.
    """
    given_up = applicable(AdoptionKind.ACCEPT_LOSS, Stop("E208", (sink.id,), 1, stands))
    problem = f"{sink.id} was made anew ({now}), and its markers, up to epoch {stands}, tell of what was there"
    cause = "they stand beside the rows, and outlive a table or a topic that is dropped"
    way = "put the old one back"
    if isinstance(sink, Settable):
        way += "\nor, if no row of it is worth keeping, take all of them out of it and give this command again"
    way += f"\nor give the rows up: {where.adopt(given_up)}" if given_up else ""
    return refuse("E110", problem=f"{problem}.", cause=cause, next=way)
