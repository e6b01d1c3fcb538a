"""Open sinks as of an epoch, or refuse with a reason."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Sink
from onceonly.protocol.capabilities import EpochExpired, NotVersioned
from onceonly_checkpoints.epoch import Receipt


@contextmanager
def handle(sink: Sink, pipeline: str) -> Generator[Sink]:
    """Open a second handle on a sink's target without a fence, and close it (E110: a query writes with this sink)."""
    if used := getattr(sink, "pipeline", ""):
        raise refuse(
            "E110",
            problem=f'{sink.id} is in use by pipeline "{used}", and cannot be read at the same time.',
            cause="a sink object holds the connections of one pipeline",
            next="read with a sink of its own, made as the query's was",
        )
    opened = copy.copy(sink)
    with closing(opened):
        opened.open(pipeline)
        yield opened


def receipt_of(receipts: Iterable[Receipt], sink: str, pipeline: str, epoch: int) -> Receipt:
    """Return a sink's receipt of an epoch (E110: the epoch did not go to it)."""
    receipts_by_sink = {receipt.sink: receipt for receipt in receipts}
    if sink not in receipts_by_sink:
        raise refuse(
            "E110",
            problem=f'Epoch {epoch} of "{pipeline}" did not go to a sink "{sink}".',
            cause=f"its sinks are: {', '.join(receipts_by_sink)}",
            next="name one of these",
        )
    return receipts_by_sink[sink]


@contextmanager
def refusing(sink: str, pipeline: str, epoch: int, ledger: str) -> Generator[None]:
    """Refuse with our codes (E243, E244) if rows cannot be read as of an epoch."""
    try:
        yield
    except EpochExpired as gone:
        raise gone_at(sink, pipeline, epoch, gone, f"take a newer point: {point_command(pipeline, ledger)}") from gone
    except NotVersioned as reason:
        raise not_versioned(sink, pipeline, epoch, reason, ledger) from reason


def gone_at(sink: str, pipeline: str, epoch: int, gone: EpochExpired, next_: str) -> OnceOnlyError:
    """E243."""
    details = {"reason": gone.reason, "cause": gone.cause, "next": next_}
    return refuse("E243", sink=sink, pipeline=pipeline, epoch=epoch, **details)


def not_versioned(sink: str, pipeline: str, epoch: int, error: NotVersioned, ledger: str) -> OnceOnlyError:
    """E244."""
    details = {"reason": error.reason, "option": error.option, "point": point_command(pipeline, ledger)}
    return refuse("E244", sink=sink, pipeline=pipeline, epoch=epoch, **details)


def point_command(pipeline: str, ledger: str, epoch: int | None = None) -> str:
    """Return the complete command that shows a read point."""
    which = "" if epoch is None else f" --epoch {epoch}"
    return f"onceonly epochs read-point {shlex.quote(pipeline)}{which} --ledger {shlex.quote(ledger)}"
