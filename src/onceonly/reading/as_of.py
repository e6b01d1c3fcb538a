"""Open sinks as of an epoch, or refuse with a reason."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.protocol import Sink
from onceonly.protocol.capabilities import EpochExpired, NotVersioned
from onceonly_checkpoints.epoch import Receipt


@contextmanager
def handle(sink: Sink, pipeline: str) -> Generator[Sink]:
    """Open a second handle on a sink's target without a fence, and close it (E110: a query writes with this sink)."""
    if used := getattr(sink, "pipeline", ""):
        raise misused(
            f'{sink.id} is in use by pipeline "{used}", and cannot be read at the same time.',
            "a sink object holds the connections of one pipeline",
            "read with a sink of its own, made as the query's was",
        )
    opened = copy.copy(sink)
    with closing(opened):
        opened.open(pipeline)
        yield opened


def receipt_of(receipts: Iterable[Receipt], sink: str, pipeline: str, epoch: int) -> Receipt:
    """Return a sink's receipt of an epoch (E110: the epoch did not go to it)."""
    receipts_by_sink = {receipt.sink: receipt for receipt in receipts}
    if sink not in receipts_by_sink:
        raise misused(
            f'Epoch {epoch} of "{pipeline}" did not go to a sink "{sink}".',
            f"its sinks are: {', '.join(receipts_by_sink)}",
            "name one of these",
        )
    return receipts_by_sink[sink]


@contextmanager
def refusing(
    sink: str, pipeline: str, epoch: int, ledger: str, way_out: Callable[[], str] | None = None
) -> Generator[None]:
    """Refuse with our codes (E243, E244) if rows cannot be read as of an epoch. ``way_out``: the remedy of E243."""
    point = point_command(pipeline, ledger)
    try:
        yield
    except EpochExpired as gone:
        remedy = way_out() if way_out else f"take a newer point: {point}"
        raise gone_at(sink, pipeline, epoch, gone, remedy) from gone
    except NotVersioned as error:
        details = {"reason": error.reason, "option": error.option, "point": point}
        raise refuse("E244", sink=sink, pipeline=pipeline, epoch=epoch, **details) from error


def gone_at(sink: str, pipeline: str, epoch: int, gone: EpochExpired, next_: str) -> OnceOnlyError:
    """E243."""
    details = {"reason": gone.reason, "cause": gone.cause, "next": next_}
    return refuse("E243", sink=sink, pipeline=pipeline, epoch=epoch, **details)


def point_command(pipeline: str, ledger: str, epoch: int | None = None) -> str:
    """Return the complete command that shows a read point."""
    which = "" if epoch is None else f" {epoch}"
    return f"onceonly epochs show --read-point --query {shlex.quote(pipeline)} --ledger {shlex.quote(ledger)}{which}"
