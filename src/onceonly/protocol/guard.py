"""Check fences and chains by rules that every sink shares. Pure.

A sink reads its current fence and marker in the transaction that writes, and asks here. The answer is the error to
raise, or ``None``. So one event has one code at every destination.

====================================================  ==========================================
found in the sink                                     answer
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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.protocol.sink import Superseded
from onceonly_checkpoints.chain import GENESIS
from onceonly_checkpoints.epoch import Fence, Marker

if TYPE_CHECKING:
    from typing_extensions import Self

    from onceonly.protocol.batch import AsOf
    from onceonly.protocol.capabilities import StateRow

_LOST = "the destination was restored or created again, or the fence was never installed"


def foreign(keeper: str, as_of: AsOf, problem: str) -> OnceOnlyError:
    """E226: the state of windows differs from the one that the epoch before left.

    The runner adds the ledger's address, for the commands of the message. ``keeper`` is the id of the sink of state.
    """
    details = {"sink": keeper, "epoch": as_of.epoch - 1, "problem": problem, "pipeline": as_of.pipeline}
    return refuse("E226", **details)


def check_recalled(keeper: str, rows: Iterable[StateRow], as_of: AsOf) -> list[StateRow]:
    """Return rows of window state. Raises E226: no epoch before wrote one of them. 0 stands for no epoch."""
    recalled = list(rows)
    for row in recalled:
        if not 0 < row.epoch < as_of.epoch:
            problem = f"the window of key {row.key} from {row.start} on is of "
            raise foreign(keeper, as_of, problem + (f"epoch {row.epoch}" if row.epoch else "no epoch"))
    return recalled


@dataclass(frozen=True, slots=True)
class NewestEpoch:
    """The newest epoch found in a sink, 0 for none.

    ``chain`` is ``None`` where the destination remembers the number alone.
    """

    epoch: int = 0
    chain: str | None = GENESIS

    @classmethod
    def of(cls, newest: Marker | None) -> Self:
        """Convert the newest marker. ``None``: the sink has none and never had."""
        return cls(newest.epoch.number, newest.epoch.chain) if newest else cls()


def check_install(sink: str, installed: Fence | None, fence: Fence) -> Superseded | None:
    """Why ``fence`` may not be installed. ``None`` if it may, or is already current.

    ``installed`` is the current fence of the sink.
    """
    if installed is None or installed == fence or installed.generation < fence.generation:
        return None
    return Superseded(sink, installed)


def check_fence(
    sink: str, installed: Fence | None, ours: Fence | None, *, lost: str = _LOST
) -> Superseded | OnceOnlyError | None:
    """Why our fence does not permit a write. ``None`` if it is current, with our owner token.

    ``installed`` is the current fence, ``ours`` the installed one. ``lost`` is the cause of a lost fence at this
    destination, for the message of E508.
    """
    if ours is not None and installed == ours:
        return None
    if ours is not None and (superseded := check_install(sink, installed, ours)):
        return superseded
    return refuse("E508", sink=sink, reason="our fence is gone", cause=lost, next="restart the query")


def elsewhere(sink: str, epoch: int, holds: int | None) -> OnceOnlyError:
    """E110: a sink does not hold the rows of ``epoch``, to which it was to be set.

    ``holds`` is the epoch whose rows it holds, ``None`` where that is not known.
    """
    held_rows = "those of no epoch that is known" if holds is None else f"those of epoch {holds}" if holds else "none"
    return misused(
        f"{sink} should be at epoch {epoch}, whose rows it does not hold: it has {held_rows}.",
        "it was written or restored after the plan was printed",
        "run the command once more without --yes and read its plan",
    )


def joins(marker: Marker) -> bool:
    """Whether the marker's epoch is the sink's own first: it may follow any lower epoch."""
    return dict(marker.epoch.sinks).get(marker.sink) == marker.epoch.number


def check_follows(marker: Marker, held: NewestEpoch) -> OnceOnlyError | None:
    """Why the marker's epoch may not be committed on top of the sink's newest one. ``None`` if it may.

    The chain is compared, not the number alone: after a lost checkpoint two epochs can have one number.
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
