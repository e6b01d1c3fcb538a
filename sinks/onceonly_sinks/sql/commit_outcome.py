"""Decide whether a transaction's commit succeeded, failed or is unknown.

One rule: once a COMMIT was sent its outcome is unknown, unless the database confirms it or reports the transaction as
over.
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
    """Facts of a driver's error."""

    @property
    def reason(self) -> str:
        """One line without secrets."""
        ...

    @property
    def transaction_is_over(self) -> bool:
        """Whether the *database* reported that the transaction failed. A lost connection reports nothing."""
        ...

    @property
    def conflicts(self) -> bool:
        """Whether the database rolled back because of others. A retry may succeed."""
        ...

    @property
    def quotes(self) -> bool:
        """Whether the driver's message may quote a value of a row. Then the error itself is not shown."""
        ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A simple :class:`Failed`."""

    reason: str
    transaction_is_over: bool = False
    conflicts: bool = False
    quotes: bool = False


F = TypeVar("F", bound=Failed)


@contextmanager
def sending(
    sink: str, point: Point | None, read: Callable[[Exception], F | None], refused: Callable[[F], Exception]
) -> Generator[None]:
    """Within, a COMMIT is sent. Then the fault point is passed, before the answer is processed.

    ``read`` returns ``None`` for an error that is not the driver's. ``refused`` makes the error for a refused COMMIT.

    Raises ``OutcomeUnknown``: sent, but no answer came, or an answer that does not settle it. Raises ``Exception``:
    made by ``refused``. Nothing of the transaction is visible.
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
def settling(
    sink: str, read: Callable[[Exception], Failed | None], receipts: Sequence[Receipt | None]
) -> Generator[None]:
    """Within, find out whether an epoch was committed. The result counts once the reading transaction is safe.

    ``read`` returns ``None`` for an error that is not the driver's. ``receipts`` is filled within by the look-up.
    Raises ``OutcomeUnknown``: neither can be proved.
    """
    try:
        yield
    except (Superseded, OutcomeUnknown):
        raise
    except Exception as error:
        failure = read(error)
        if failure is None and not receipts:
            raise
        raise OutcomeUnknown(sink, failure.reason if failure else "the server refused to settle it") from error


def landed(entry: tuple[Marker, Receipt] | None, marker: Marker) -> Receipt | None:
    """The receipt, if this very epoch is stored under its number, with this very fence.

    The chain alone does not identify the writer: it leaves the fence out, so every sink of an epoch has the same one.
    """
    if entry is None or (entry[0].fence, entry[0].epoch.chain) != (marker.fence, marker.epoch.chain):
        return None
    return entry[1]


def check_counted(sink: str, epoch: int, counted: int, written: int | None) -> OnceOnlyError | None:
    """Why an epoch with another number of rows in the database may not be committed, or ``None`` if it may.

    ``counted`` are rows at its preparation, ``written`` rows in the database (``None`` if not counted there).
    """
    if written in (None, counted):
        return None
    return refuse("E510", sink=sink, written=written, epoch=epoch, counted=counted)


def check_identity(old_identity: str, now: str, marker: Marker) -> OnceOnlyError | None:
    """Why an epoch may not go to this target after one that went to another. An adoption accepts any target.

    ``old_identity`` is empty without a newest epoch, and ``now`` is empty without a target.
    """
    if not old_identity or old_identity == now or marker.epoch.adoption is not None:
        return None
    return refuse("E208", sink=marker.sink, was=old_identity, now=now or "nothing there", pipeline=marker.pipeline)
