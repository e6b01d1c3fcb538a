"""Rules of every sink: which fence and which epoch may follow.

Pure: a sink reads what stands, in the transaction that writes, and asks here. The answer is the error to raise, or
``None``. So one event has one code, whatever the destination.

====================================================  ==========================================
what was found                                        answer
====================================================  ==========================================
our fence                                             ``None``
another owner of our generation, or a higher one      :class:`~onceonly.protocol.Superseded`
no fence, or a lower one: ours was lost               E508
the epoch before ours, with the chain ours goes on    ``None``
a lower epoch, and ours is the sink's own first       ``None``
a lower epoch: the sink was set back                  E207
any other epoch: two histories under one name         E210
====================================================  ==========================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol.sink import Superseded
from onceonly_checkpoints.chain import GENESIS
from onceonly_checkpoints.epoch import Fence, Marker

if TYPE_CHECKING:
    from typing_extensions import Self

    from onceonly.protocol.batch import AsOf


_LOST = "the destination was restored to an earlier state or made anew, or the fence was never installed"


def foreign(keeper: str, as_of: AsOf, problem: str) -> OnceOnlyError:
    """E226: the state of windows is not what the epoch before left. Who knows the ledger says it in its place.

    Args:
        keeper: id of the sink of state.
        as_of: the state that was meant.
        problem: what is there instead.
    """
    said = {"sink": keeper, "epoch": as_of.epoch - 1, "problem": problem, "pipeline": as_of.pipeline}
    return refuse("E226", **said)


@dataclass(frozen=True, slots=True)
class NewestEpoch:
    """The newest epoch that a sink was found to hold.

    Attributes:
        epoch: its number; 0 for none.
        chain: its chain; ``None`` where the destination remembers the number alone.
    """

    epoch: int = 0
    chain: str | None = GENESIS

    @classmethod
    def of(cls, newest: Marker | None) -> Self:
        """What the newest marker says; ``None``: the sink has none and never had."""
        return cls(newest.epoch.number, newest.epoch.chain) if newest else cls()


def check_install(sink: str, found: Fence | None, fence: Fence) -> Superseded | None:
    """Why ``fence`` may not be made the newest; ``None`` if it may, or stands already.

    Args:
        sink: id of the sink.
        found: the fence that stands; ``None`` if there is none.
        fence: the one to install.
    """
    if found is None or found == fence or found.generation < fence.generation:
        return None
    return Superseded(sink, found)


def check_fence(
    sink: str, found: Fence | None, ours: Fence | None, *, lost: str = _LOST
) -> Superseded | OnceOnlyError | None:
    """Why one may not go on under our fence; ``None`` if it stands, with our owner token.

    Args:
        sink: id of the sink.
        found: the fence that stands; ``None`` if there is none.
        ours: the fence that was installed; ``None`` if none was.
        lost: how a fence can be lost at this destination, for the words of E508.
    """
    if ours is not None and found == ours:
        return None
    if ours is not None and (superseded := check_install(sink, found, ours)):
        return superseded
    return refuse("E508", sink=sink, reason="our fence does not stand", cause=lost, next="restart the query")


def elsewhere(sink: str, epoch: int, holds: int | None) -> OnceOnlyError:
    """E110: a sink that was to stand at an epoch does not hold the rows of that one.

    Args:
        sink: id of the sink.
        epoch: the one that was named.
        holds: the one whose rows it holds; ``None`` where that is not known.
    """
    found = "those of no epoch that is known" if holds is None else f"those of epoch {holds}" if holds else "none"
    return refuse(
        "E110",
        problem=f"{sink} was to stand at epoch {epoch}, whose rows it does not hold: it has {found}.",
        cause="somebody wrote to it, or restored it, while the plan was read",
        next="run the command once more without --yes and read its plan",
    )


def joins(marker: Marker) -> bool:
    """Whether the marker's epoch is the sink's own first: it goes above whatever the sink holds."""
    return dict(marker.epoch.sinks).get(marker.sink) == marker.epoch.number


def check_follows(marker: Marker, held: NewestEpoch) -> OnceOnlyError | None:
    """Why the marker's epoch may not be committed on top of what the sink holds; ``None`` if it may.

    The chain is compared and not the number alone: after a lost checkpoint two epochs can have one number.
    """
    epoch, before = marker.epoch, marker.epoch.number - 1
    continues = held.epoch == before and held.chain in (epoch.previous_chain, None)
    if continues or (joins(marker) and held.epoch <= before):
        return None
    if held.epoch < before:
        ways = "restart the query: its opening prints the commands that apply"
        return refuse("E207", sink=marker.sink, found=held.epoch, receipt=before, ways=ways)
    contested = min(held.epoch, epoch.number)
    return refuse("E210", sink=marker.sink, epoch=contested, pipeline=marker.pipeline)
