"""Detect repeated keys in a simulated batch.

Repeats are found in the catalogue that a keeper commits with its markers.

The catalogue is what the keeper's epochs have brought: it is committed in their transactions, restored and replaced
with them. So it needs no place of its own in the world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onceonly.machine.commands import Committed
from onceonly.machine.state import State
from onceonly_checkpoints.epoch import Epoch, Marker
from onceonly_lab.model.parts import Records, Target, receipt, records_of
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.sinks import Replies, Reply

SECOND = -1
"""What a sink remembers between the two transactions of an epoch whose keys come after its marker."""


def alike(records: Records, keys: Sequence[int]) -> Records:
    """All records that have the key of one of these; these where records have no keys."""
    if not keys:
        return records
    held = {key for record, key in enumerate(keys) if records >> record & 1}
    return sum(1 << record for record, key in enumerate(keys) if key in held)


def first_of_each(records: Records, earlier: Records, keys: Sequence[int]) -> Records:
    """Of a batch the records whose key was not seen: of each key the first by place."""
    left = records & ~alike(earlier, keys)
    for record in range(left.bit_length()):
        if left >> record & 1:
            left &= ~(alike(1 << record, keys) & ~((2 << record) - 1))
    return left


def doubled(records: Records, keys: Sequence[int]) -> Records:
    """Records whose key another one of these has as well; none where records have no keys."""
    others = (alike(1 << record, keys) & records & ~(1 << record) for record in range(len(keys)))
    return records & sum(1 << record for record, other in enumerate(others) if other)


def catalogue(
    keeper: Target, series: int, number: int, off: frozenset[Rule], of: Callable[[Epoch], Records] = records_of
) -> Records:
    """What was seen before an epoch: records whose keys stand in the keeper.

    Args:
        keeper: who holds the catalogue.
        series: first epoch whose keys count: rows of those before it leave with it, and stand until then.
        number: of the epoch; a recomputation must not see what it has itself brought.
        off: rules that are not kept.
        of: which records of an epoch; those of all its keys, unless its good ones alone went into windows.
    """
    records = 0
    for held in keeper.held:
        after = held.epoch.number >= series or Rule.SEEN_ANEW in off
        before = held.epoch.number < number or Rule.SEEN_BEFORE in off
        records |= of(held.epoch) if held.seen and before and after else 0
    return records


def series_of(state: State) -> int:
    """The first epoch of the series that the epoch at hand is in."""
    last = state.opening.last
    return state.work.number if state.work.replaces else last.series if last else 1


def early(keeper: Target, before: Target | None, owner: str) -> Target:
    """The keeper as somebody knows it who has read it before his fence: as it was, and what he has brought since."""
    earlier = before.held if before else ()
    ours = (
        held_epoch
        for held_epoch in keeper.held[len(earlier) :]
        if held_epoch.marker and held_epoch.marker.fence.owner == owner
    )
    return replace(keeper, held=(*earlier, *ours))


def in_two(replies: Replies, target: Target, marker: Marker, memory: int | None) -> Replies:
    """A commit to a keeper whose keys enter the catalogue in a transaction after the one of rows and marker."""
    if memory == SECOND:
        *before, newest = target.held
        after = replace(target, held=(*before, replace(newest, seen=True)))
        words = f"enters the keys of epoch {marker.epoch.number} into the catalogue of '{target.name}'"
        yield Reply(words, after, Committed(receipt(marker)))
        return
    for reply in replies:
        if len(reply.target.held) == len(target.held):
            yield reply
            continue
        *before, newest = reply.target.held
        unseen = replace(reply.target, held=(*before, replace(newest, seen=False)))
        over = isinstance(reply.outcome, Committed)
        yield replace(reply, target=unseen, outcome=None if over else reply.outcome, memory=SECOND if over else None)
