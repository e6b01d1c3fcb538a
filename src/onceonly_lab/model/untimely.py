"""Pipelines that break a rule about event time.

The time comes after its rows, or is asked for again.
"""

from __future__ import annotations

from dataclasses import replace

from onceonly.machine.commands import Committed
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, Marker
from onceonly_lab.model.keys import SECOND
from onceonly_lab.model.parts import Held, Target, receipt
from onceonly_lab.model.sinks import Replies, Reply


def time_after(replies: Replies, target: Target, marker: Marker, memory: int | None) -> Replies:
    """A commit whose epoch says what it has to say of time in a transaction after the one of rows and marker."""
    if memory == SECOND:
        *before, newest = target.held
        after = replace(target, held=(*before, replace(newest, epoch=marker.epoch, marker=marker)))
        words = f"says the time of epoch {marker.epoch.number} in sink '{target.name}'"
        yield Reply(words, after, Committed(receipt(marker)))
        return
    for reply in replies:
        if len(reply.target.held) == len(target.held):
            yield reply
            continue
        *before, newest = reply.target.held
        over = isinstance(reply.outcome, Committed)
        timeless = replace(reply.target, held=(*before, _timeless(newest)))
        yield replace(reply, target=timeless, outcome=None if over else reply.outcome, memory=SECOND if over else None)


def _timeless(held: Held) -> Held:
    # The chain is left as it is: it is of the whole epoch, of which a part is to come.
    epoch = replace(held.epoch, time=None)
    return replace(held, epoch=epoch, marker=held.marker and replace(held.marker, epoch=epoch))


def asked_again(marker: Marker) -> Marker:
    """The marker of a healer that has asked anew up to when all is there, and been told of a later time."""
    return replace(marker, epoch=_later(marker.epoch))


def _later(epoch: Epoch) -> Epoch:
    if epoch.time is None or epoch.time.complete_until is None:
        return epoch
    complete_until = epoch.time.complete_until + 1
    return chain.linked(
        replace(epoch, time=replace(epoch.time, complete_until=complete_until, dataset_complete_until=complete_until))
    )
