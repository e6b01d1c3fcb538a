"""Outcome of a COMMIT: certain or unknown, and whether the epoch exists.

One rule: once a COMMIT was sent its outcome is unknown, unless the answer is yes, or that the transaction is over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly_checkpoints.epoch import Marker, Receipt


class Failed(Protocol):
    """What a driver's error says."""

    @property
    def reason(self) -> str:
        """One line without secrets."""
        ...

    @property
    def transaction_is_over(self) -> bool:
        """Whether the *database* said that the transaction failed; a connection that was lost says nothing."""
        ...

    @property
    def conflicts(self) -> bool:
        """Whether the database took the transaction back because of others. It may be repeated."""
        ...

    @property
    def quotes(self) -> bool:
        """Whether the driver's own words may quote a value of a row: the error itself is not shown then."""
        ...


@dataclass(frozen=True, slots=True)
class Failure:
    """What a driver's error says, where a few words do; see :class:`Failed`."""

    reason: str
    transaction_is_over: bool = False
    conflicts: bool = False
    quotes: bool = False


F = TypeVar("F", bound=Failed)


@contextmanager
def sending(
    sink: str, point: Point | None, read: Callable[[Exception], F | None], refused: Callable[[F], Exception]
) -> Generator[None]:
    """Within, a COMMIT is sent; then the fault point is passed, while the answer is not yet processed.

    Args:
        sink: sink id.
        point: the fault point, if there is one.
        read: what an error says; ``None``: it is none of the driver's.
        refused: the error to raise where the database said no.

    Raises:
        OutcomeUnknown: sent, and no answer came, or one that does not say.
        Exception: what ``refused`` makes; nothing of the transaction is visible.
    """
    try:
        yield
        if point is not None:
            faults.fire(point)
    except Exception as error:
        failure = read(error)
        if failure is not None and failure.transaction_is_over:
            raise refused(failure) from (None if failure.quotes else error)
        # Every other error, of classes that nobody has met, too: an unknown outcome is looked up, a wrong no is not.
        raise OutcomeUnknown(sink, failure.reason if failure else type(error).__name__) from error


@contextmanager
def settling(sink: str, read: Callable[[Exception], Failed | None], found: Sequence[Receipt | None]) -> Generator[None]:
    """Within, it is found out whether an epoch landed; what was read counts once the transaction that read it is safe.

    Args:
        sink: sink id.
        read: what an error says; ``None``: it is none of the driver's.
        found: filled within, when the epoch was looked for.

    Raises:
        OutcomeUnknown: it cannot be said.
    """
    try:
        yield
    except (Superseded, OutcomeUnknown):
        raise
    except Exception as error:
        failure = read(error)
        if failure is None and not found:
            raise
        raise OutcomeUnknown(sink, failure.reason if failure else "the server refused to settle it") from error


def landed(found: tuple[Marker, Receipt] | None, marker: Marker) -> Receipt | None:
    """The receipt, if what stands under the epoch's number is this very epoch, under this very fence.

    The chain alone does not say whose it is: it leaves the fence out, so that every sink of an epoch has the same one.
    """
    if found is None or (found[0].fence, found[0].epoch.chain) != (marker.fence, marker.epoch.chain):
        return None
    return found[1]


def check_counted(sink: str, epoch: int, counted: int, written: int | None) -> OnceOnlyError | None:
    """Why an epoch of which ``written`` rows lie in the database may not be committed; ``None``: it may.

    Args:
        sink: sink id.
        epoch: its number.
        counted: rows that were counted when it was prepared.
        written: rows that were counted in the database; ``None`` where it was not asked.
    """
    if written in (None, counted):
        return None
    return refuse("E510", sink=sink, written=written, epoch=epoch, counted=counted)


def check_identity(was: str, now: str, marker: Marker) -> OnceOnlyError | None:
    """Why an epoch may not go to this target after one that went to another; an adoption accepts what it finds.

    Args:
        was: identity of the target that the newest epoch went to; empty if there is none.
        now: identity of the target that stands; empty where nothing does.
        marker: of the epoch.
    """
    if not was or was == now or marker.epoch.adoption is not None:
        return None
    return refuse("E208", sink=marker.sink, was=was, now=now or "nothing there", pipeline=marker.pipeline)
