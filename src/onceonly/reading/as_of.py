"""Open sinks as of an epoch, or refuse with a reason."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import EpochExpired, NotVersioned, Sink
from onceonly_checkpoints.epoch import Receipt


@contextmanager
def handle(sink: Sink, pipeline: str) -> Generator[Sink]:
    """Open a second handle on a sink's target without a fence, and close it at the end.

    Raises:
        ConfigurationError: E110, a query writes with this very sink.
        DestinationError: the target does not answer.
    """
    if used := getattr(sink, "pipeline", ""):
        raise refuse(
            "E110",
            problem=f'{sink.id} is in use by pipeline "{used}", and cannot be read beside that.',
            cause="a sink object holds the connections of one pipeline",
            next="read with a sink of its own, made as the query's was",
        )
    opened = copy.copy(sink)
    with closing(opened):
        opened.open(pipeline)
        yield opened


def receipt_of(receipts: Iterable[Receipt], sink: str, pipeline: str, epoch: int) -> Receipt:
    """Return a sink's receipt of an epoch.

    Raises:
        ConfigurationError: E110, the epoch did not go to it.
    """
    found = {receipt.sink: receipt for receipt in receipts}
    if sink not in found:
        raise refuse(
            "E110",
            problem=f'Epoch {epoch} of "{pipeline}" did not go to a sink "{sink}".',
            cause=f"its sinks are: {', '.join(found)}",
            next="name one of these",
        )
    return found[sink]


@contextmanager
def refusing(sink: str, pipeline: str, epoch: int, ledger: str) -> Generator[None]:
    """Refuse with our codes if rows cannot be read as of an epoch.

    Raises:
        IdentityError: E243 or E244.
    """
    try:
        yield
    except EpochExpired as gone:
        raise gone_at(sink, pipeline, epoch, gone, f"take a newer point: {point_command(pipeline, ledger)}") from gone
    except NotVersioned as reason:
        raise not_versioned(sink, pipeline, epoch, reason, ledger) from reason


def gone_at(sink: str, pipeline: str, epoch: int, gone: EpochExpired, next_: str) -> OnceOnlyError:
    """E243."""
    said = {"reason": gone.reason, "cause": gone.cause, "next": next_}
    return refuse("E243", sink=sink, pipeline=pipeline, epoch=epoch, **said)


def not_versioned(sink: str, pipeline: str, epoch: int, found: NotVersioned, ledger: str) -> OnceOnlyError:
    """E244."""
    said = {"reason": found.reason, "option": found.option, "point": point_command(pipeline, ledger)}
    return refuse("E244", sink=sink, pipeline=pipeline, epoch=epoch, **said)


def point_command(pipeline: str, ledger: str, epoch: int | None = None) -> str:
    """Return the complete command that shows a read point."""
    which = "" if epoch is None else f" --epoch {epoch}"
    return f"onceonly read-point {shlex.quote(pipeline)}{which} --ledger {shlex.quote(ledger)}"
