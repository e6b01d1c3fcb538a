"""Open, fence and commit Postgres transactions.

The head row fences them. A commit here is the one place where an outcome becomes unknown.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly.protocol import Superseded
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.postgres import errors, head
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.server import Server
from onceonly_sinks.sql.commit_outcome import landed, sending, settling

if TYPE_CHECKING:
    from sqlalchemy import Connection

# ---- Hangs up on a server that answers too late: one thread for all epochs, for which nobody waits in good times.

log = logging.getLogger(__name__)


class ResponseTimeout:
    """Drops connections whose server does not answer within ``seconds``."""

    def __init__(self, seconds: float, sink: str) -> None:
        self._seconds = seconds
        self._sink = sink
        self._due: dict[int, tuple[float, Any]] = {}
        self._turn = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting(self, connection: Any) -> Generator[None]:
        """Within, a server that is silent for longer fails as if its psycopg connection were lost.

        Keepalives do not find it: a paused server, or a proxy that swallows the answer, still acknowledges them.
        """
        with self._turn:
            self._due[id(connection)] = (time.monotonic() + self._seconds, connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._turn:  # while it hangs up, it has the turn: it never hits whoever has the connection next
                self._due.pop(id(connection), None)

    def close(self) -> None:
        """End the thread. It starts again when it is needed. May repeat."""
        with self._turn:
            self._thread = None
            self._turn.notify_all()

    def _watch(self) -> None:
        with self._turn:
            while self._thread is threading.current_thread() or self._due:
                now = time.monotonic()
                for key, (until, connection) in list(self._due.items()):
                    if until <= now:
                        del self._due[key]
                        _hang_up(connection, self._sink)
                # What comes after this look is due after the next one, so nobody has to wake this thread.
                first = min((until for until, _ in self._due.values()), default=now + self._seconds)
                self._turn.wait(first - now)


def _hang_up(connection: Any, sink: str) -> None:
    """Shut the socket down under the thread that waits at it."""
    import psycopg

    log.warning("%s: the server has not answered in time, hanging up", sink)
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
    except (psycopg.Error, OSError) as error:  # it was lost meanwhile, which is as good
        log.debug("%s: nothing to hang up: %s", sink, error)


# ---- A transaction from its first statement to the answer to its COMMIT.


class Transactions:
    """Transactions of one sink.

    ``patience`` is the seconds that the answer to a COMMIT, or to a statement that settles one, may take.
    ``lock_seconds`` is the default wait for a lock of another session.
    """

    def __init__(self, server: Server, context: errors.Context, patience: float, lock_seconds: float) -> None:
        self._engine = server.engine()
        self._context = context
        self.lock_seconds = lock_seconds
        self._patience = ResponseTimeout(patience, context.sink)

    def begin(self, application: str, lock_seconds: float) -> Connection:
        """Open a writing transaction. End it with :meth:`send` or :meth:`drop`."""
        return self.begin_with(application, lock_seconds)[0]

    def begin_with(
        self, application: str, lock_seconds: float, *statements: tuple[str, Mapping[str, Any]]
    ) -> tuple[Connection, list[Any]]:
        """Open a writing transaction with its first statements in one trip, and return the last one's rows.

        The last statement must be a query.
        """
        first = head.settings(application, lock_seconds)
        try:
            return self._begin([first, *statements])
        except Exception as error:
            failure = errors.read(error)
            if failure is None or failure.severity == "ERROR":
                raise
            # The pool may hold connections that died since their last use; nothing was done yet, so a fresh one tries.
            self._engine.dispose()
            return self._begin([first, *statements])

    def _begin(self, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[Connection, list[Any]]:
        connection = self._engine.connect()
        with self.whole(connection, cut=True):
            connection.begin()
            # In one trip: each statement by itself would cost one, in every epoch.
            with raw(connection).pipeline():
                cursors = [raw(connection).execute(statement, parameters) for statement, parameters in statements]
            return connection, cursors[-1].fetchall()

    def tried(self, connection: Connection, *statements: tuple[str, Mapping[str, Any]]) -> list[Any] | None:
        """Return the rows of the last of some statements in an open transaction, or ``None`` if a table is missing.

        One round trip, in a savepoint, as a failure would end the transaction.
        """
        session = raw(connection)
        try:
            with session.pipeline():
                session.execute("SAVEPOINT onceonly_tried")
                cursors = [session.execute(statement, parameters) for statement, parameters in statements]
                session.execute("RELEASE SAVEPOINT onceonly_tried")
            return cursors[-1].fetchall()  # type: ignore[no-any-return]
        except Exception as error:
            failure = errors.read(error)
            if failure is None or failure.state != errors.NO_SUCH_TABLE:
                raise
            session.execute("ROLLBACK TO SAVEPOINT onceonly_tried")
            return None

    @contextmanager
    def reading(self, *, snapshot: bool = False) -> Generator[Connection]:
        """A transaction that only reads. With ``snapshot`` all of its statements see the same snapshot."""
        connection = self._connect(snapshot=snapshot)
        try:
            yield connection
        finally:
            self.drop(connection)

    @contextmanager
    def at_once(self) -> Generator[Connection]:
        """An autocommit connection: each statement is its own transaction."""
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self, *, snapshot: bool) -> Connection:
        """Return a connection that answers. The pool may hold some that died since their last use."""
        options = {"isolation_level": "REPEATABLE READ"} if snapshot else {}
        connection = self._engine.connect().execution_options(**options)
        try:
            self._impatient(connection)
        except DBAPIError:
            self.drop(connection, cut=True)
            self._engine.dispose()
            connection = self._engine.connect().execution_options(**options)
            self._impatient(connection)
        return connection

    def _impatient(self, connection: Connection) -> None:
        """Set the lock timeout of a reading transaction. As the first statement it also probes the connection."""
        connection.exec_driver_sql(head.READING, {"lock": f"{int(self.lock_seconds * 1000)}ms"})

    def send(self, connection: Connection, point: Point | None = None) -> None:
        """Commit, pass the fault point if there is one, and give the connection back.

        Raises ``Refused``: the server refused. Nothing of the transaction is visible. Raises ``OnceOnlyError``: the
        transaction was over before. Raises ``OutcomeUnknown``: sent, but no answer came, or an answer that does not
        settle it.
        """
        # A COMMIT of a transaction that failed unnoticed is answered with a friendly ROLLBACK.
        if raw(connection).info.transaction_status.name != "INTRANS":
            self.drop(connection)
            cause = "a statement in it failed and the failure was not passed on"
            raise refuse(
                "E508",
                sink=self._context.sink,
                reason="the transaction was already over",
                cause=cause,
                next="restart the query",
            )
        with (
            self.whole(connection, cut=True),
            sending(self._context.sink, point, errors.read, errors.Refused),
            self.answering(connection),
        ):
            connection.commit()
        connection.close()

    def answering(self, connection: Connection) -> AbstractContextManager[None]:
        """Within, a server that is silent for longer than the patience fails as if its connection were lost."""
        return self._patience.waiting(raw(connection))

    @contextmanager
    def whole(self, connection: Connection, *, cut: bool = False) -> Generator[None]:
        """Within, whatever goes wrong drops the transaction, so that nobody commits a part of it."""
        try:
            yield
        except BaseException:  # of a driver that is told to end, too
            self.drop(connection, cut=cut)
            raise

    def drop(self, connection: Connection, *, cut: bool = False) -> None:
        """Roll back and give the connection back. ``cut`` closes its socket instead. Never raises, may repeat."""
        if connection.closed:
            return
        try:
            if cut:
                connection.invalidate()
            else:
                connection.rollback()
        except SQLAlchemyError:
            log.debug("%s: a connection was lost before its rollback", self._context.sink)
        connection.close()

    def close(self) -> None:
        """Close every idle connection. May repeat."""
        self._engine.dispose()
        self._patience.close()


def raw(connection: Connection) -> Any:
    """The psycopg connection beneath."""
    return connection.connection.driver_connection


# ---- Takes the head row from whoever of ours still holds it: a driver that is silent may keep it locked for ever.


_LOCK_SECONDS = 2.0
_ATTEMPTS = 5


def install(
    transactions: Transactions,
    writer: PostgresHeadScope,
    fence: Fence,
    create: Callable[[Connection], None] = head.create,
    then: Callable[[Connection], None] | None = None,
) -> None:
    """Make ``fence`` the newest. Afterwards end the sessions that older drivers left open.

    ``create`` makes missing tables of the sink. ``then`` runs in the same transaction after the fence is installed.

    After ``DBAPIError`` it is certainly not installed.
    """

    def act(connection: Connection) -> None:
        create(connection)
        head.TABLES.install(connection.exec_driver_sql, writer, fence)
        if then is not None:
            then(connection)

    transactions.send(_patiently(transactions, writer, fence, act), Point.INSTALL_SENT)
    # What an older driver left open can commit nothing any more, but its locks would stand in our way.
    try:
        _end_sessions(transactions, writer, fence.generation - 1)
    except Exception as error:
        if errors.read(error) is None:
            raise
        log.warning("%s: sessions of older drivers could not be ended", writer.sink)


def look_up(transactions: Transactions, marker: Marker) -> Receipt | None:
    """Find out whether an epoch was committed, once every transaction that could still commit it has ended."""
    writer = PostgresHeadScope(marker.pipeline, marker.sink)
    receipts: list[Receipt | None] = []

    def act(connection: Connection) -> None:
        # Under the lock: a plain read can miss a commit that is still under way. Of 202 sessions killed at random, 76
        # commits had no answer; read so, 53 were found and 23 were certainly gone. Not pg_xact_status: after a failover
        # it called commits "committed" that the new primary never had.
        refused = head.fenced(head.read(connection, writer, lock="FOR UPDATE"), marker.fence, marker.sink)
        if refused is not None:
            raise refused
        receipts.append(landed(head.epoch_at(connection, writer, marker.epoch.number), marker))
        # Written unchanged, so that the commit waits for the standby that the lost one needs.
        head.TABLES.touch(connection.exec_driver_sql, writer)

    with settling(marker.sink, errors.read, receipts):
        transactions.send(_patiently(transactions, writer, marker.fence, act))
    return receipts[-1]


def _patiently(
    transactions: Transactions, writer: PostgresHeadScope, fence: Fence, act: Callable[[Connection], None]
) -> Connection:
    """Act in a transaction and leave it open. While the head is locked, end the sessions that may be ended."""
    for left in reversed(range(_ATTEMPTS)):
        connection = transactions.begin(writer.session(fence), _LOCK_SECONDS)
        try:
            with transactions.answering(connection):
                act(connection)
        except BaseException as error:
            transactions.drop(connection)
            failure = errors.read(error)
            if failure is None or failure.state != errors.LOCK_NOT_AVAILABLE or not left:
                raise
            _make_way(transactions, writer, fence)
        else:
            return connection
    raise AssertionError("the last attempt returns or raises")


def _make_way(transactions: Transactions, writer: PostgresHeadScope, fence: Fence) -> None:
    """End the sessions that lock the head, those of our own generation too, unless its fence is another's.

    An opening that fell silent in the middle of its install keeps the head locked and shows nothing. The next driver
    finds the generation below, proposes the same one, and would wait for ever. Raises ``Superseded``: the installed
    fence is neither lower nor ours.
    """
    with transactions.reading() as connection:
        installed_fence = head.newest_fence(connection, writer)
    if installed_fence is not None and installed_fence != fence and installed_fence.generation >= fence.generation:
        raise Superseded(writer.sink, installed_fence)
    _end_sessions(transactions, writer, fence.generation)


def _end_sessions(transactions: Transactions, writer: PostgresHeadScope, highest: int) -> None:
    with transactions.reading() as connection:
        victims = [
            session for session in head.sessions(connection, writer) if head.of_generation_up_to(highest, session[1])
        ]
        for pid, name in victims:
            log.warning("%s: ending session %s (%s) of an older driver", writer.sink, pid, name)
        try:
            head.terminate(connection, victims)
        except DBAPIError as error:
            failure = errors.read(error)
            if failure is None or failure.state != errors.INSUFFICIENT_PRIVILEGE:
                raise
            # Another role's session: the fence holds without this; only a lock it keeps has to be waited for.
            log.warning("%s: no right to end a session of another role", writer.sink)
