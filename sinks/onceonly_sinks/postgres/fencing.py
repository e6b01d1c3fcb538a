"""Takes the head row from whoever of ours still holds it: a driver that is silent may keep it locked for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.postgres import classify, head
from onceonly_sinks.postgres.head import Writer
from onceonly_sinks.postgres.transactions import Transactions

if TYPE_CHECKING:
    from sqlalchemy import Connection

log = logging.getLogger(__name__)

_LOCK_SECONDS = 2.0
_ATTEMPTS = 5


def install(transactions: Transactions, writer: Writer, fence: Fence) -> None:
    """Make ``fence`` the newest; afterwards end what older drivers left open.

    Raises:
        Superseded: a fence stands that is neither lower nor this one.
        OutcomeUnknown: the answer was lost.
        DBAPIError: certainly not installed.
    """

    def act(connection: Connection) -> None:
        head.create(connection)
        head.install(connection, writer, fence)

    transactions.send(_patiently(transactions, writer, fence, act), Point.INSTALL_SENT)
    # What an older driver left open can commit nothing any more, but its locks would stand in our way.
    try:
        _end_sessions(transactions, writer, fence.generation - 1)
    except Exception as error:
        if classify.read(error) is None:
            raise
        log.warning("%s: sessions of older drivers could not be ended", writer.sink)


def look_up(transactions: Transactions, marker: Marker) -> Receipt | None:
    """Whether an epoch landed, once every transaction that could still bring it has ended.

    Raises:
        Superseded: another fence stands.
        OutcomeUnknown: it cannot be said.
    """
    writer = Writer(marker.pipeline, marker.sink)
    found: list[Receipt | None] = []

    def act(connection: Connection) -> None:
        refused = head.fenced(head.read(connection, writer, lock=True), marker.fence, marker.sink)
        if refused is not None:
            raise refused
        landed = head.epoch_at(connection, writer, marker.epoch.number)
        found.append(landed[1] if landed and _same(landed[0], marker) else None)
        head.touch(connection, writer)

    try:
        transactions.send(_patiently(transactions, writer, marker.fence, act))
    except (Superseded, OutcomeUnknown):
        raise
    except Exception as error:
        failure = classify.read(error)
        if failure is None and not found:
            raise
        # Whatever was read counts only once the transaction that read it is safe, too.
        reason = failure.reason if failure else "the server refused to settle it"
        raise OutcomeUnknown(marker.sink, reason) from error
    return found[-1]


def _same(landed: Marker, marker: Marker) -> bool:
    return (landed.fence, landed.epoch.chain) == (marker.fence, marker.epoch.chain)


def _patiently(
    transactions: Transactions, writer: Writer, fence: Fence, act: Callable[[Connection], None]
) -> Connection:
    """Act in a transaction and leave it open; while a lock is in the way, end the sessions that may be ended."""
    for left in reversed(range(_ATTEMPTS)):
        connection = transactions.begin(writer.session(fence), _LOCK_SECONDS)
        try:
            with transactions.answering(connection):
                act(connection)
        except BaseException as error:
            transactions.drop(connection)
            failure = classify.read(error)
            if failure is None or failure.state != classify.LOCK_NOT_AVAILABLE or not left:
                raise
            _make_way(transactions, writer, fence)
        else:
            return connection
    raise AssertionError("the last attempt returns or raises")


def _make_way(transactions: Transactions, writer: Writer, fence: Fence) -> None:
    """End the sessions that keep the head locked, of our own generation, too, unless its fence is another's.

    An opening that fell silent in the middle of its install keeps the head locked and shows nothing. Whoever comes
    after it finds the generation below, proposes the same one, and would wait for ever.

    Raises:
        Superseded: a fence stands that is neither lower nor ours.
    """
    with transactions.reading() as connection:
        standing = head.newest_fence(connection, writer) if head.exists(connection) else None
    if standing is not None and standing != fence and standing.generation >= fence.generation:
        raise Superseded(writer.sink, standing)
    _end_sessions(transactions, writer, fence.generation)


def _end_sessions(transactions: Transactions, writer: Writer, highest: int) -> None:
    """End this sink's sessions up to a generation."""
    with transactions.reading() as connection:
        victims = [one for one in head.sessions(connection, writer) if head.of_generation_up_to(highest, one[1])]
        for pid, name in victims:
            log.warning("%s: ending session %s (%s) of an older driver", writer.sink, pid, name)
        try:
            head.terminate(connection, victims)
        except DBAPIError as error:
            failure = classify.read(error)
            if failure is None or failure.state != classify.INSUFFICIENT_PRIVILEGE:
                raise
            # Another role's session: the fence holds without this; only a lock it keeps has to be waited for.
            log.warning("%s: no right to end a session of another role", writer.sink)
